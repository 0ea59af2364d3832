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


def test_a_folder_gives_the_same(folder, checkpoint, picture):
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
    with pytest.raises(HubUnreachableError, match=f"^timm:{name} is not on this machine and its hub cannot be reached"):
        load_encoder(f"timm:{name}")
