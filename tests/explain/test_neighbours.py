"""Training photos beside an explanation: the nearest in the model's metric, typical ones of each concept."""

import numpy as np
import pytest
from PIL import Image

from hcep import HCEPClassifier, explain_images
from hcep.datasets.encoding import embeddings_of
from hcep.embeddings import EmbeddingStore, encode_to_store, load_encoder
from hcep.embeddings.encoders import FunctionEncoder
from hcep.errors import HCEPError
from hcep.explain import nearest_photos, neighbours
from hcep.explain.neighbours import concept_photos, training_photos
from hcep.explain.report import photo_report
from hcep.models import fit_model, read_model
from tests.taxonomy.naming.bear_space import BEARS, LEAVES

MIX = np.array([LEAVES["polar_bear"], LEAVES["car"], LEAVES["bus"]])
COLOURS = {"polar_bear": (230, 10, 10), "car": (10, 230, 10), "bus": (10, 10, 230), "grizzly": (200, 120, 10)}


def vectors(batch):
    return batch.mean(axis=(2, 3)) @ MIX


@pytest.fixture(scope="module")
def encoder():
    return FunctionEncoder(vectors, name="colour-mix", preprocessing={"size": 8}, fingerprint="colours")


@pytest.fixture(scope="module")
def trained(encoder, tmp_path_factory):
    """Photos of four classes in train/ and val/, and the model that a fit of the folder leaves, its store inside."""
    place = tmp_path_factory.mktemp("neighbours")
    rng = np.random.default_rng(0)
    for split, n in (("train", 6), ("val", 2)):
        for label, colour in COLOURS.items():
            (place / "photos" / split / label).mkdir(parents=True)
            for i in range(n):
                pixels = np.clip(rng.normal(colour, 25, (10, 10, 3)), 0, 255).astype(np.uint8)
                Image.fromarray(pixels).save(place / "photos" / split / label / f"{i}.png")
    found = embeddings_of(place / "photos", default_split="train", encoder=encoder, store=place / "model" / "store")
    fit_model(found, BEARS, place / "model", shrinkage=0.5, anchor=0.1)
    return place


def by_hand(model, store, x):
    """Distances to every photo in the model's metric, one by one."""
    z = model.dictionary.embed(x[None].astype(np.float64))[0]
    return np.array([np.linalg.norm(z - other) for other in model.dictionary.embed(store.to_numpy(np.float64))])


def test_the_model_knows_its_training_photos_and_no_others(trained):
    store = training_photos(None, read_model(trained / "model"))
    assert len(store) == 24
    assert {path.split("/")[-3] for path in store.paths.tolist()} == {"train"}
    assert str(trained) not in (trained / "model" / "model.json").read_text().replace(str(trained / "photos"), "")


@pytest.mark.parametrize("block", [2048, 5])
def test_the_nearest_photos_equal_those_of_a_plain_comparison(trained, encoder, monkeypatch, block):
    monkeypatch.setattr(neighbours, "BLOCK", block)
    model, store = read_model(trained / "model"), training_photos(None, read_model(trained / "model"))
    X = encoder.encode_images(np.random.default_rng(3).random((5, 3, 8, 8)).astype(np.float32))
    found = nearest_photos(store, model.path_model, X, n=4)
    for x, photos in zip(X, found, strict=True):
        distances = by_hand(model, store, x)
        order = np.argsort(distances, kind="stable")[:4]
        assert [photo.file for photo in photos] == store.paths[order].tolist()
        assert [photo.label for photo in photos] == store.labels[order].tolist()
        np.testing.assert_allclose([photo.distance for photo in photos], distances[order], atol=1e-4)
    for label in COLOURS:
        among = nearest_photos(store, model.path_model, X, n=2, classes=[label] * 5)
        assert {photo.label for photos in among for photo in photos} == {label}
        for x, photos in zip(X, among, strict=True):
            own = by_hand(model, store, x)[store.labels == label]
            np.testing.assert_allclose([photo.distance for photo in photos], np.sort(own)[:2], atol=1e-4)


def test_typical_photos_of_a_concept_are_of_classes_below_it(trained):
    model = read_model(trained / "model")
    store = training_photos(None, model)
    found = concept_photos(store, model.path_model, ["bear", "car", "bear"], n=3)
    assert list(found) == ["bear", "car"]
    assert {photo.label for photo in found["bear"]} <= {"polar_bear", "grizzly"}
    assert [photo.label for photo in found["car"]] == ["car"] * 3
    # Typical: nearer to the mean of its class than the others are.
    centre = model.dictionary.synset_embedding("car")
    cars = model.dictionary.embed(store.select(labels="car").to_numpy(np.float64))
    np.testing.assert_allclose(
        [photo.distance for photo in found["car"]], np.sort(np.linalg.norm(cars - centre, axis=1))[:3], atol=1e-3
    )


def test_answers_list_the_nearest_photos_without_the_photo_itself(trained, encoder):
    file = trained / "photos" / "train" / "car" / "0.png"
    one = explain_images(file, trained / "model", encoder=encoder, training=True)[0]
    assert len(one.nearest) == 3
    assert str(file) not in [photo.file for photo in one.nearest]
    assert {photo.label for photo in one.nearest} == {"car"}
    assert {step.synset for step in one.path} <= set(one.context.typical)
    without = explain_images(file, trained / "model", encoder=encoder)[0]
    assert (without.nearest, dict(without.context.typical)) == ((), {})
    assert one.replaced(nearest=()) == without


def test_a_report_has_each_training_photo_once(trained, encoder):
    found = explain_images(trained / "photos" / "val", trained / "model", encoder=encoder, training=True)
    page = photo_report(found)
    files = {photo.file for one in found for photo in one.nearest}
    shown = {photo.file for one in found for s in one.path for photo in one.context.typical[s.synset]}
    assert page.count("data:image/jpeg;base64,") == len(found) + len(files | shown)
    assert "Nearest training photos" in page
    assert str(trained) not in page.replace(str(trained / "photos" / "val"), "")


def test_photos_that_are_gone_are_left_out(trained, encoder, tmp_path):
    known = embeddings_of(trained / "model" / "store")
    model = HCEPClassifier(BEARS, shrinkage=0.5).fit(known.X, known.y)
    Image.new("RGB", (8, 8), COLOURS["bus"]).save(tmp_path / "gone.png")
    from hcep.embeddings.images import ImageItem

    encode_to_store([ImageItem(tmp_path / "gone.png", "bus", "gone")], encoder, tmp_path / "store")
    (tmp_path / "gone.png").unlink()
    one = explain_images(Image.new("RGB", (8, 8), "blue"), model, encoder=encoder, training=tmp_path / "store")
    assert [photo.label for photo in one[0].nearest] == ["bus"]
    assert "Nearest training photos" not in photo_report(one)


def test_a_store_of_another_encoder_is_refused(trained, encoder, tmp_path):
    other = load_encoder(vectors, preprocessing={"size": 4})
    Image.new("RGB", (8, 8)).save(tmp_path / "a.png")
    from hcep.embeddings.images import ImageItem

    encode_to_store([ImageItem(tmp_path / "a.png", "bus", "a")], other, tmp_path / "store")
    with pytest.raises(HCEPError, match="encode the images with the model's encoder"):
        explain_images(
            tmp_path / "a.png", trained / "model", encoder=encoder, training=EmbeddingStore(tmp_path / "store")
        )
