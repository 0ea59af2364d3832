"""Tiny open_clip models with random weights: a folder, a checkpoint, a tag; CLIP and SigLIP, images and texts."""

import json

import numpy as np
import pytest

from hcep.embeddings import Encoder
from hcep.embeddings.encoders import HubUnreachableError, load_encoder
from hcep.errors import HCEPError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.usefixtures("open_clip"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

TEXTS = ["a photo of a cat", "a photo of a dog", "a very long text " * 50]
CLIP = {
    "embed_dim": 16,
    "vision_cfg": {"image_size": 32, "layers": 2, "width": 64, "patch_size": 8},
    "text_cfg": {"context_length": 77, "vocab_size": 49408, "width": 32, "heads": 2, "layers": 2},
}
SIGLIP = {
    "embed_dim": 96,
    "init_logit_bias": -10,
    "custom_text": True,
    "vision_cfg": {
        "image_size": 160,
        "timm_model_name": "test_vit3",
        "timm_model_pretrained": False,
        "timm_pool": "map",
        "timm_proj": "none",
    },
    "text_cfg": {
        "context_length": 16,
        "vocab_size": 32,
        "hf_tokenizer_name": "in the folder",
        "tokenizer_kwargs": {"clean": "canonicalize"},
        "width": 96,
        "heads": 2,
        "layers": 2,
        "no_causal_mask": True,
        "proj_bias": True,
        "pool_type": "last",
    },
}


@pytest.fixture
def open_clip(torchvision):
    return pytest.importorskip("open_clip", reason="open_clip is not installed")


@pytest.fixture
def architecture(open_clip, tmp_path, monkeypatch):
    """An architecture of open_clip's own, tiny."""
    monkeypatch.setattr(open_clip.factory, "_MODEL_CONFIG_PATHS", list(open_clip.factory._MODEL_CONFIG_PATHS))
    monkeypatch.setattr(open_clip.factory, "_MODEL_CONFIGS", dict(open_clip.factory._MODEL_CONFIGS))
    (tmp_path / "tiny-clip.json").write_text(json.dumps(CLIP))
    open_clip.add_model_config(tmp_path / "tiny-clip.json")
    return "tiny-clip"


@pytest.fixture
def checkpoint(open_clip, architecture, tmp_path):
    torch.manual_seed(0)
    torch.save(open_clip.create_model(architecture).state_dict(), tmp_path / "weights.pt")
    return tmp_path / "weights.pt"


def folder_of(open_clip, path, config, preprocessing, tokenizer=None):
    """Save a random model as the hub keeps it."""
    path.mkdir()
    (path / "open_clip_config.json").write_text(json.dumps({"model_cfg": config, "preprocess_cfg": preprocessing}))
    torch.manual_seed(0)
    model = open_clip.create_model(f"local-dir:{path}", load_weights=False).eval()
    torch.save(model.state_dict(), path / "open_clip_pytorch_model.bin")
    return model


@pytest.fixture
def siglip(open_clip, tmp_path):
    """The folder of a SigLIP with a tokenizer of its own, and the model in it."""
    transformers = pytest.importorskip("transformers", reason="transformers is not installed")
    tokenizers = pytest.importorskip("tokenizers", reason="tokenizers is not installed")
    words = tokenizers.models.WordLevel(
        {"<pad>": 0, "<unk>": 1, "a": 2, "cat": 3, "dog": 4, "photo": 5, "of": 6}, "<unk>"
    )
    tokenizer = tokenizers.Tokenizer(words)
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    folder = tmp_path / "siglip"
    model = folder_of(open_clip, folder, SIGLIP, {"mean": [0.5] * 3, "std": [0.5] * 3, "resize_mode": "squash"})
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, pad_token="<pad>", unk_token="<unk>"
    ).save_pretrained(folder)
    return folder, model


def test_clip_from_a_folder(open_clip, tmp_path, picture):
    model = folder_of(open_clip, tmp_path / "clip", CLIP, {"size": 32})
    encoder = load_encoder(f"open_clip:local-dir:{tmp_path / 'clip'}", device="cpu")
    assert isinstance(encoder, Encoder)
    assert (encoder.n_dims, encoder.has_text) == (16, True)
    batch = encoder.preprocess(picture)[None]
    with torch.inference_mode():
        images = model.encode_image(torch.from_numpy(batch)).numpy()
        texts = model.encode_text(open_clip.tokenize(TEXTS)).numpy()
    np.testing.assert_allclose(encoder.encode_images(batch), images, rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(encoder.encode_texts(TEXTS), texts, rtol=1e-4, atol=1e-5)


def test_siglip_from_a_folder(siglip, picture):
    folder, model = siglip
    encoder = load_encoder(f"open_clip:local-dir:{folder}")
    assert (encoder.n_dims, encoder.preprocessing["resize"]) == (96, "squash")
    batch = encoder.preprocess(picture)[None]
    with torch.inference_mode():
        images = model.encode_image(torch.from_numpy(batch)).numpy()
    np.testing.assert_allclose(encoder.encode_images(batch), images, rtol=1e-4, atol=1e-5)
    cat, dog, again = encoder.encode_texts(["A photo of a cat.", "a photo of a dog", "a photo of a cat"])
    np.testing.assert_array_equal(cat, again)
    assert np.abs(cat - dog).max() > 1e-3


def test_images_without_texts_where_the_tokenizer_is_missing(siglip, caplog):
    folder, _ = siglip
    for file in folder.glob("tokenizer*"):
        file.unlink()
    encoder = load_encoder(f"open_clip:local-dir:{folder}")
    assert not encoder.has_text
    assert "texts cannot be encoded: the tokenizer of local-dir" in caplog.text
    with pytest.raises(HCEPError, match=r"cannot encode texts: the tokenizer of local-dir:.* could not be loaded"):
        encoder.encode_texts(TEXTS)


def test_a_checkpoint(architecture, checkpoint):
    encoder = load_encoder(f"open_clip:{architecture}/{checkpoint}")
    assert (encoder.n_dims, encoder.has_text) == (16, True)
    assert load_encoder(f"open_clip:{architecture}/{checkpoint}").fingerprint == encoder.fingerprint
    other = load_encoder(f"open_clip:{architecture}/{checkpoint}", preprocessing={"interpolation": "bilinear"})
    assert other.fingerprint != encoder.fingerprint


def test_a_tag_sets_the_activation_of_its_weights(open_clip, architecture, checkpoint, monkeypatch, picture):
    # As with ViT-L-14/openai: the weights were trained with another activation than the architecture's.
    tag = {"file": str(checkpoint), "quick_gelu": True}
    monkeypatch.setitem(
        open_clip.pretrained._PRETRAINED, architecture, {"quick": tag, "plain": {**tag, "quick_gelu": False}}
    )
    quick, plain = (load_encoder(f"open_clip:{architecture}/{name}") for name in ("quick", "plain"))
    batch = quick.preprocess(picture)[None]
    assert np.abs(quick.encode_images(batch) - plain.encode_images(batch)).max() > 1e-4
    assert quick.fingerprint != plain.fingerprint
    assert plain.fingerprint == load_encoder(f"open_clip:{architecture}/{checkpoint}").fingerprint


def test_the_papers_model_was_trained_with_quick_gelu(open_clip):
    from hcep.embeddings.encoders.open_clip_adapter import _trained_with_quick_gelu

    assert _trained_with_quick_gelu(open_clip, "ViT-L-14", "openai")
    assert not _trained_with_quick_gelu(open_clip, "ViT-L-14", "laion2b_s32b_b82k")
    assert not _trained_with_quick_gelu(open_clip, "hf-hub:owner/model", None)


@pytest.mark.parametrize("resize", ["shortest", "longest", "squash"])
@pytest.mark.parametrize("interpolation", ["bicubic", "bilinear", "random"])
def test_images_are_prepared_as_open_clip_does(open_clip, picture, resize, interpolation):
    from dataclasses import asdict

    from hcep.embeddings.encoders.open_clip_adapter import _own_preprocessing

    config = open_clip.transform.PreprocessCfg(size=32, resize_mode=resize, interpolation=interpolation, fill_color=9)
    theirs = open_clip.transform.image_transform_v2(config, is_train=False)(picture).numpy()
    np.testing.assert_allclose(_own_preprocessing(asdict(config))(picture), theirs, atol=1e-5)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("ViT-L14/openai", "open_clip has no architecture 'ViT-L14'. Near matches: 'ViT-L-14'"),
        ("ViT-L-14/opanai", r"needs one of its tags \('openai', .*got 'opanai'. Near matches: 'openai'"),
        ("ViT-L-14", r"open_clip:ViT-L-14 needs one of its tags .*, got ''\."),
        ("tiny-clip/none.pt", r"needs one of its tags \(it has none\) or the path of a checkpoint .*, got 'none.pt'"),
        ("local-dir:none", "open_clip:local-dir:none: no such folder"),
    ],
)
def test_unknown_names(architecture, name, message):
    with pytest.raises(HCEPError, match=message):
        load_encoder(f"open_clip:{name}")


def test_a_folder_without_a_model(tmp_path):
    with pytest.raises(HCEPError, match=r"could not be loaded: .*config file missing"):
        load_encoder(f"open_clip:local-dir:{tmp_path}")


def test_a_folder_without_weights(open_clip, tmp_path):
    folder_of(open_clip, tmp_path / "clip", CLIP, {})
    (tmp_path / "clip" / "open_clip_pytorch_model.bin").unlink()
    with pytest.raises(HCEPError, match="could not be loaded: Required pretrained weights"):
        load_encoder(f"open_clip:local-dir:{tmp_path / 'clip'}")


@pytest.mark.parametrize("name", ["ViT-L-14/openai", "hf-hub:timm/ViT-B-16-SigLIP"])
def test_without_a_hub(no_hub, name, caplog):
    with pytest.raises(HubUnreachableError, match=f"^open_clip:{name} is not on this machine, and the hub cannot be"):
        load_encoder(f"open_clip:{name}")
    assert caplog.text == ""


@pytest.mark.parametrize("pooling", [{}, {"pool_type": "avg"}, {"pool_type": "avg", "final_ln_after_pool": True}])
def test_maps_are_patch_tokens_projected_as_the_image_is(open_clip, tmp_path, picture, pooling):
    config = {**CLIP, "vision_cfg": {**CLIP["vision_cfg"], **pooling}}
    model = folder_of(open_clip, tmp_path / "clip", config, {"size": 32})
    encoder = load_encoder(f"open_clip:local-dir:{tmp_path / 'clip'}", device="cpu")
    assert encoder.has_maps
    batch = encoder.preprocess(picture)[None]
    maps = encoder.feature_map(batch)
    assert maps.shape == (1, 16, 4, 4)
    tower, last = model.visual, []
    tower.transformer.register_forward_hook(lambda module, given, tokens: last.append(tokens))
    with torch.inference_mode():
        vector = model.encode_image(torch.from_numpy(batch)).numpy()
        tokens = (tower.ln_post(last[0][:, 1:]) @ tower.proj).numpy()
    np.testing.assert_allclose(maps.reshape(1, 16, 16).transpose(0, 2, 1), tokens, rtol=1e-4, atol=1e-5)
    # A mean after the last norm is exact; a class token, or a norm after the mean, is not.
    assert encoder.maps_are_exact == (pooling == {"pool_type": "avg"})
    assert (np.abs(maps.mean(axis=(2, 3)) - vector).max() < 1e-4) == encoder.maps_are_exact


def test_maps_of_siglip_are_approximate(siglip, picture):
    encoder = load_encoder(f"open_clip:local-dir:{siglip[0]}")
    batch = encoder.preprocess(picture)[None]
    assert (encoder.has_maps, encoder.maps_are_exact) == (True, False)
    tower = siglip[1].visual
    with torch.inference_mode():
        patches = tower.trunk.forward_features(torch.from_numpy(batch))[:, tower.trunk.num_prefix_tokens :]
        alone = tower.head(tower.trunk.fc_norm(tower.trunk.attn_pool(patches[:, 3:4]))).numpy()
    maps = encoder.feature_map(batch)
    np.testing.assert_allclose(maps[:, :, 0, 3], alone, rtol=1e-4, atol=1e-5)


def test_a_tower_that_pools_its_map_by_attention_has_none(open_clip, tmp_path):
    config = {**CLIP, "vision_cfg": {"image_size": 32, "layers": [1, 1, 1, 1], "width": 8, "patch_size": None}}
    folder_of(open_clip, tmp_path / "resnet", config, {"size": 32})
    encoder = load_encoder(f"open_clip:local-dir:{tmp_path / 'resnet'}")
    assert not encoder.has_maps
    with pytest.raises(HCEPError, match="has no feature maps"):
        encoder.feature_map(np.zeros((1, 3, 32, 32), dtype=np.float32))
