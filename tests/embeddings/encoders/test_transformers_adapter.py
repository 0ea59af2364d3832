"""Tiny CLIP and SigLIP models with random weights, saved to a folder and loaded by its path: images and texts."""

import os
import subprocess
import sys

import numpy as np
import pytest

from hcep.embeddings import Encoder
from hcep.embeddings.encoders import HubUnreachableError, load_encoder
from hcep.embeddings.encoders.transformers_adapter import _own_preprocessing, _vectors
from hcep.embeddings.preprocessing import Preprocessing
from hcep.errors import HCEPError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytest.importorskip("transformers", reason="transformers is not installed")
pytestmark = [pytest.mark.usefixtures("mended"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TEXTS = ["a photo of a cat", "a dog", "cat " * 40]
TOWER = {"hidden_size": 16, "intermediate_size": 32, "num_hidden_layers": 2, "num_attention_heads": 2}
TEXT = {
    **TOWER,
    "vocab_size": 16,
    "max_position_embeddings": 12,
    "bos_token_id": 2,
    "eos_token_id": 3,
    "pad_token_id": 0,
}
VISION = {**TOWER, "image_size": 32, "patch_size": 8}
WORDS = ["<pad>", "<unk>", "<s>", "</s>", "a", "photo", "of", "cat", "dog"]

WITHOUT_TORCHVISION = """
import sys
sys.modules["torchvision"] = None
import numpy as np
from hcep.embeddings.encoders import load_encoder
encoder = load_encoder(f"transformers:{sys.argv[1]}", device="cpu")
batch = np.load(sys.argv[2])
np.save(sys.argv[3], np.concatenate([encoder.encode_images(batch), encoder.encode_texts(["a cat", "a dog"])]))
"""


@pytest.fixture(scope="session")
def mended(request):
    """transformers imports torchvision where it is installed, so that it must be mended first."""
    installed = subprocess.run([sys.executable, "-c", "import importlib.util as u; assert u.find_spec('torchvision')"])
    return None if installed.returncode else request.getfixturevalue("torchvision")


@pytest.fixture
def transformers(mended):
    import transformers

    return transformers


def save_tokenizer(transformers, folder):
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    vocabulary = {word: i for i, word in enumerate(WORDS)}
    tokenizer = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, "<unk>"))
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    tokenizer.post_processor = tokenizers.processors.TemplateProcessing("<s> $A </s>", None, [("<s>", 2), ("</s>", 3)])
    special = {"pad_token": "<pad>", "unk_token": "<unk>", "bos_token": "<s>", "eos_token": "</s>"}
    transformers.PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)


@pytest.fixture
def clip(transformers, tmp_path):
    """A folder with a tiny CLIP, and the model in it."""
    torch.manual_seed(0)
    config = transformers.CLIPConfig(text_config=TEXT, vision_config=VISION, projection_dim=10)
    model = transformers.CLIPModel(config).eval()
    return saved(transformers, model, tmp_path / "clip", CLIP_IMAGES)


@pytest.fixture
def siglip(transformers, tmp_path):
    """A folder with a tiny SigLIP, and the model in it."""
    torch.manual_seed(0)
    config = transformers.SiglipConfig(text_config={**TEXT, "projection_size": 16}, vision_config=VISION)
    model = transformers.SiglipModel(config).eval()
    return saved(transformers, model, tmp_path / "siglip", SIGLIP_IMAGES)


CLIP_IMAGES = """{"image_processor_type": "CLIPImageProcessor", "do_center_crop": true,
"crop_size": {"height": 32, "width": 32}, "size": {"shortest_edge": 32},
"resample": 3, "image_mean": [0.48145466, 0.4578275, 0.40821073],
"image_std": [0.26862954, 0.26130258, 0.27577711]}"""
SIGLIP_IMAGES = """{"image_processor_type": "SiglipImageProcessor", "size": {"height": 32, "width": 32}, "resample": 2,
"image_mean": [0.5, 0.5, 0.5], "image_std": [0.5, 0.5, 0.5]}"""


def saved(transformers, model, folder, images):
    model.save_pretrained(folder)
    (folder / "preprocessor_config.json").write_text(images)
    save_tokenizer(transformers, folder)
    return folder, model


def image_vectors(model, batch):
    with torch.inference_mode():
        return _vectors(model.get_image_features(pixel_values=torch.from_numpy(batch))).numpy()


@pytest.mark.parametrize(("kind", "n_dims", "resize"), [("clip", 10, "shortest"), ("siglip", 16, "squash")])
def test_images_and_texts_from_a_folder(request, picture, kind, n_dims, resize):
    folder, model = request.getfixturevalue(kind)
    encoder = load_encoder(f"transformers:{folder}", device="cpu")
    assert isinstance(encoder, Encoder)
    assert (encoder.n_dims, encoder.has_text, encoder.preprocessing["resize"]) == (n_dims, True, resize)
    batch = encoder.preprocess(picture)[None]
    np.testing.assert_allclose(encoder.encode_images(batch), image_vectors(model, batch), rtol=1e-4, atol=1e-6)
    cat, dog, long, again = encoder.encode_texts([*TEXTS, TEXTS[0]])
    np.testing.assert_allclose(cat, again, atol=1e-6)
    assert np.abs(cat - dog).max() > 1e-3
    assert np.isfinite(long).all()


def test_clips_texts_do_not_depend_on_padding(clip, transformers):
    folder, model = clip
    tokens = transformers.AutoTokenizer.from_pretrained(folder)(TEXTS[:1], return_tensors="pt")
    with torch.inference_mode():
        unpadded = _vectors(model.get_text_features(tokens["input_ids"], tokens["attention_mask"])).numpy()
    np.testing.assert_allclose(load_encoder(f"transformers:{folder}").encode_texts(TEXTS[:1]), unpadded, atol=1e-5)


@pytest.mark.parametrize("kind", ["clip", "siglip"])
def test_images_are_prepared_as_transformers_does(request, transformers, picture, kind):
    folder, _ = request.getfixturevalue(kind)
    classes = {"clip": "CLIPImageProcessorPil", "siglip": "SiglipImageProcessorPil"}
    processor = getattr(transformers, classes[kind]).from_pretrained(folder)
    theirs = np.asarray(processor(picture, return_tensors="np")["pixel_values"])[0]
    np.testing.assert_allclose(load_encoder(f"transformers:{folder}").preprocess(picture), theirs, atol=1e-5)


@pytest.mark.slow
def test_without_torchvision(clip, picture, tmp_path):
    folder, _ = clip
    encoder = load_encoder(f"transformers:{folder}", device="cpu")
    batch = encoder.preprocess(picture)[None]
    np.save(tmp_path / "batch.npy", batch)
    files = [str(folder), str(tmp_path / "batch.npy"), str(tmp_path / "vectors.npy")]
    subprocess.run(
        [sys.executable, "-c", WITHOUT_TORCHVISION, *files], check=True, env={**os.environ, "HF_HUB_OFFLINE": "1"}
    )
    expected = np.concatenate([encoder.encode_images(batch), encoder.encode_texts(["a cat", "a dog"])])
    np.testing.assert_allclose(np.load(tmp_path / "vectors.npy"), expected, rtol=1e-4, atol=1e-6)


def test_fingerprints(clip, siglip):
    folder, model = clip
    first = load_encoder(f"transformers:{folder}").fingerprint
    assert load_encoder(f"transformers:{folder}").fingerprint == first
    assert load_encoder(f"transformers:{siglip[0]}").fingerprint != first
    assert load_encoder(f"transformers:{folder}", preprocessing={"interpolation": "box"}).fingerprint != first
    model.visual_projection.weight.data += 0.1
    model.save_pretrained(folder)
    assert load_encoder(f"transformers:{folder}").fingerprint != first


def test_images_without_texts_where_the_tokenizer_is_missing(siglip, caplog):
    folder, _ = siglip
    for file in folder.glob("tokenizer*"):
        file.unlink()
    encoder = load_encoder(f"transformers:{folder}")
    assert not encoder.has_text
    assert "texts cannot be encoded: the tokenizer of" in caplog.text
    with pytest.raises(HCEPError, match=r"cannot encode texts: the tokenizer of .* could not be loaded"):
        encoder.encode_texts(TEXTS)


def test_a_model_without_image_embeddings(transformers, tmp_path):
    config = transformers.ViTConfig(**VISION)
    transformers.ViTModel(config).save_pretrained(tmp_path)
    (tmp_path / "preprocessor_config.json").write_text(SIGLIP_IMAGES)
    with pytest.raises(HCEPError, match="is a ViTModel, which gives no image embeddings; try timm: or onnx:"):
        load_encoder(f"transformers:{tmp_path}")


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(HCEPError, match=f"transformers:{tmp_path} could not be loaded: ") as found:
        load_encoder(f"transformers:{tmp_path}")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", ["google/siglip-base-patch16-224", "openai/clip-vit-large-patch14"])
def test_without_a_hub(no_hub, name):
    with pytest.raises(
        HubUnreachableError, match=f"^transformers:{name} is not on this machine, and the hub cannot be"
    ):
        load_encoder(f"transformers:{name}")


CONFIGS = [
    ({"size": 224, "crop_size": 224, "do_center_crop": True}, Preprocessing()),
    (
        {"size": {"shortest_edge": 256}, "crop_size": {"height": 224, "width": 224}, "do_center_crop": True},
        Preprocessing(edge=256),
    ),
    ({"size": {"height": 384, "width": 384}}, Preprocessing(size=384, resize="squash")),
    ({"size": 224, "resample": 2}, Preprocessing(interpolation="bilinear")),
    ({"size": 224, "do_rescale": False}, Preprocessing(rescale=1.0)),
    ({"size": 224, "image_mean": [1, 2, 3], "do_normalize": True}, Preprocessing(mean=(1, 2, 3))),
]


@pytest.mark.parametrize(("config", "expected"), CONFIGS)
def test_processors_of_several_ages(config, expected):
    plain = {"image_mean": [0, 0, 0], "image_std": [1, 1, 1], "do_normalize": True}
    assert _own_preprocessing("x", {**plain, **config}) == expected


def test_no_normalisation():
    assert _own_preprocessing("x", {"size": 224, "do_normalize": False}) == Preprocessing()


def test_a_processor_without_a_fixed_size():
    with pytest.raises(HCEPError, match="x: its processor must make images of a fixed size, got size None"):
        _own_preprocessing("x", {"patch_size": 16, "max_num_patches": 256})


def test_maps_of_clip_are_its_patch_tokens_projected(clip, picture):
    folder, model = clip
    encoder = load_encoder(f"transformers:{folder}", device="cpu")
    batch = encoder.preprocess(picture)[None]
    assert (encoder.has_maps, encoder.maps_are_exact) == (True, False)
    with torch.inference_mode():
        tokens = model.vision_model(pixel_values=torch.from_numpy(batch)).last_hidden_state[:, 1:]
        expected = model.visual_projection(model.vision_model.post_layernorm(tokens)).numpy()
    maps = encoder.feature_map(batch)
    assert maps.shape == (1, 10, 4, 4)
    np.testing.assert_allclose(maps.reshape(1, 10, 16).transpose(0, 2, 1), expected, rtol=1e-4, atol=1e-6)


def test_maps_of_siglip_are_what_its_pooling_makes_of_each_token(siglip, picture):
    folder, model = siglip
    encoder = load_encoder(f"transformers:{folder}", device="cpu")
    batch = encoder.preprocess(picture)[None]
    assert (encoder.has_maps, encoder.maps_are_exact) == (True, False)
    with torch.inference_mode():
        tokens = model.vision_model(pixel_values=torch.from_numpy(batch)).last_hidden_state
        expected = np.stack([model.vision_model.head(tokens[:, i : i + 1]).numpy() for i in range(16)], axis=1)
    maps = encoder.feature_map(batch)
    np.testing.assert_allclose(maps.reshape(1, 16, 16).transpose(0, 2, 1), expected, rtol=1e-4, atol=1e-6)
