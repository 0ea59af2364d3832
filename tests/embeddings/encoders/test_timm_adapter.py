"""timm's tiny test models with random weights, from a checkpoint and from a folder."""

import numpy as np
import pytest

from hcep.embeddings.encoders import HubUnreachableError, load_encoder
from hcep.errors import HCEPError

torch = pytest.importorskip("torch", reason="torch is not installed")
pytestmark = [pytest.mark.usefixtures("timm"), pytest.mark.filterwarnings("ignore::DeprecationWarning")]

ARCHITECTURE = "test_vit"


@pytest.fixture
def timm(torchvision):
    return pytest.importorskip("timm", reason="timm is not installed")


@pytest.fixture
def model(timm):
    torch.manual_seed(0)
    return timm.create_model(ARCHITECTURE, num_classes=7).eval()


@pytest.fixture
def checkpoint(model, tmp_path):
    """The whole model with its classifier, as training leaves it."""
    torch.save(model.state_dict(), tmp_path / "model.pth")
    return tmp_path / "model.pth"


@pytest.fixture
def folder(timm, model, tmp_path):
    timm.models.save_for_hf(model, tmp_path / "folder")
    return tmp_path / "folder"


def pooled(model, batch):
    with torch.inference_mode():
        return model.forward_head(model.forward_features(torch.from_numpy(batch)), pre_logits=True).numpy()


def test_a_checkpoint(model, checkpoint, picture):
    encoder = load_encoder(f"timm:{ARCHITECTURE}/{checkpoint}", device="cpu")
    batch = encoder.preprocess(picture)[None]
    assert encoder.name == f"timm:{ARCHITECTURE}/{checkpoint}"
    assert not encoder.has_text
    np.testing.assert_allclose(encoder.encode_images(batch), pooled(model, batch), rtol=1e-4, atol=1e-5)


def test_a_folder_and_a_checkpoint_give_the_same_encoder(folder, checkpoint, picture):
    by_folder, by_file = load_encoder(f"timm:local-dir:{folder}"), load_encoder(f"timm:{ARCHITECTURE}/{checkpoint}")
    batch = by_folder.preprocess(picture)[None]
    np.testing.assert_allclose(by_folder.encode_images(batch), by_file.encode_images(batch), rtol=1e-5)
    assert by_folder.fingerprint == by_file.fingerprint


@pytest.mark.parametrize("crop_mode", ["center", "squash", "border"])
@pytest.mark.parametrize("crop_pct", [0.95, 1.0])
def test_images_are_prepared_as_timm_does(timm, picture, crop_mode, crop_pct):
    from hcep.embeddings.encoders.timm_adapter import _own_preprocessing

    model = timm.create_model(ARCHITECTURE)
    config = {**timm.data.resolve_model_data_config(model), "crop_mode": crop_mode, "crop_pct": crop_pct}
    theirs = timm.data.create_transform(**config)(picture).numpy()
    np.testing.assert_allclose(_own_preprocessing(config)(picture), theirs, atol=1e-5)


def test_images_that_are_not_square(timm):
    from hcep.embeddings.encoders.timm_adapter import _own_preprocessing

    config = {**timm.data.resolve_model_data_config(timm.create_model(ARCHITECTURE)), "input_size": (3, 32, 64)}
    assert _own_preprocessing(config).size == (32, 64)


def test_its_preprocessing_may_be_overridden(timm, tmp_path):
    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "a.pth")
    encoder = load_encoder(f"timm:test_resnet/{tmp_path / 'a.pth'}", preprocessing={"size": 64, "edge": None})
    assert encoder.preprocessing["size"] == [64, 64]
    assert encoder.encode_images(np.zeros((2, 3, 64, 64), dtype=np.float32)).shape == (2, encoder.n_dims)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("tset_vit", "timm has no architecture 'tset_vit'. Near matches: 'test_vit'"),
        ("test_vit.r160_in2k", "timm has no weights 'test_vit.r160_in2k'. Near matches: 'test_vit.r160_in1k'"),
        ("test_vit/none.pth", "timm:test_vit/none.pth: no checkpoint 'none.pth'"),
        ("local-dir:none", "timm:local-dir:none: no such folder"),
    ],
)
def test_unknown_names(name, message):
    with pytest.raises(HCEPError, match=message):
        load_encoder(f"timm:{name}")


def test_weights_of_another_model(timm, tmp_path):
    torch.save(timm.create_model("test_resnet").state_dict(), tmp_path / "other.pth")
    with pytest.raises(HCEPError, match=r"other\.pth: the file lacks \d+ of the model's weights, such as '") as found:
        load_encoder(f"timm:{ARCHITECTURE}/{tmp_path / 'other.pth'}")
    assert "\n" not in str(found.value)


@pytest.mark.parametrize("name", ["test_vit.r160_in1k", "hf-hub:timm/test_vit.r160_in1k"])
def test_without_a_hub(no_hub, name):
    with pytest.raises(
        HubUnreachableError, match=f"^timm:{name} is not on this machine, and the hub cannot be reached"
    ):
        load_encoder(f"timm:{name}")


def loaded(timm, tmp_path, architecture, **options):
    """A random network as timm builds it, and the encoder that is loaded from its file."""
    torch.manual_seed(0)
    model = timm.create_model(architecture, num_classes=3, **options).eval()
    for parameter in model.parameters():  # away from the zeros and ones of a fresh norm
        torch.nn.init.normal_(parameter, std=0.3)
    timm.models.save_for_hf(model, tmp_path / architecture, model_args=options or None)
    model.reset_classifier(0)
    return model, load_encoder(f"timm:local-dir:{tmp_path / architecture}", device="cpu")


@pytest.mark.parametrize("architecture", ["test_resnet", "test_efficientnet", "test_vit2"])
def test_the_vector_of_a_network_that_ends_in_a_mean_is_the_mean_of_its_map(timm, tmp_path, picture, architecture):
    options = {"global_pool": "avg", "fc_norm": False} if architecture == "test_vit2" else {}
    model, encoder = loaded(timm, tmp_path, architecture, **options)
    batch = np.stack([encoder.preprocess(picture), encoder.preprocess(picture.rotate(90))])
    assert (encoder.has_maps, encoder.maps_are_exact) == (True, True)
    maps = encoder.feature_map(batch)
    np.testing.assert_allclose(maps.mean(axis=(2, 3)), encoder.encode_images(batch), rtol=1e-3, atol=1e-4)
    with torch.inference_mode():
        features = model.forward_features(torch.from_numpy(batch)).numpy()
    expected = features if features.ndim == 4 else features[:, 1:].mT.reshape(maps.shape)
    np.testing.assert_allclose(maps, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("architecture", ["test_vit", "test_vit3", "test_convnext", "swin_tiny_patch4_window7_224"])
def test_other_heads_give_approximate_maps_each_position_as_the_head_sees_it(timm, tmp_path, picture, architecture):
    tiny = {"depths": (1, 1), "embed_dim": 16, "num_heads": (2, 2)} if architecture.startswith("swin") else {}
    model, encoder = loaded(timm, tmp_path, architecture, **tiny)
    batch = encoder.preprocess(picture)[None]
    maps = encoder.feature_map(batch)
    assert encoder.has_maps
    with torch.inference_mode():
        features = model.forward_features(torch.from_numpy(batch))
        if features.ndim == 3:  # class tokens first, then rows of patches
            features = features[:, model.num_prefix_tokens :].mT.reshape(1, -1, *maps.shape[2:])
            head = model.attn_pool if model.attn_pool is not None else lambda x: x[:, 0]
            alone = model.fc_norm(head(features[:, :, 1, 2][:, None])).numpy()
        else:
            one = features[:, 1, 2][:, None, None] if tiny else features[:, :, 1:2, 2:3]
            alone = model.forward_head(one).numpy()
    np.testing.assert_allclose(maps[:, :, 1, 2], alone, rtol=1e-4, atol=1e-5)
    assert encoder.maps_are_exact == bool(tiny)  # Swin takes a mean, behind its last norm
