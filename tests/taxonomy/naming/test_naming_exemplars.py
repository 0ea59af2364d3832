"""Images that show an atom: by eye, on the bundled sample and on all of ImageNette."""

import numpy as np
import pytest

from hcep import ConceptDictionary, Hierarchy
from hcep.datasets import load_sample
from hcep.embeddings import Embeddings, EmbeddingStore, import_embeddings
from hcep.errors import HCEPError
from hcep.taxonomy.naming import exemplars
from tests.conftest import shared_file
from tests.taxonomy.naming.bear_space import BEARS, bear_images, bears


@pytest.fixture(scope="module")
def sample():
    return load_sample()


@pytest.fixture(scope="module")
def sample_dictionary(sample):
    tree = sample.hierarchy.as_tree("first").collapse()
    return ConceptDictionary.from_images(tree, sample.X_train, sample.y_train, shrinkage=0.6, rescale=True)


def test_the_parent_is_at_0_and_the_child_at_1():
    d = bears()
    X = np.array([d.synset_embedding(s) for s in ("bear", "polar_bear", "grizzly", "car")])
    names = exemplars(d, X, ["grizzly", "polar_bear", "grizzly", "car"], ["b", "p", "g", "c"], top_k=3)
    found = names["bear", "polar_bear"].exemplars
    assert [(image.id, image.projection) for image in found] == [("p", 1.0), ("b", 0.0), ("g", -1.0)]


def test_only_images_below_the_parent_are_looked_at():
    X, y = bear_images()
    names = exemplars(bears(), X, y, [f"{label}/{i}" for i, label in enumerate(y)], top_k=32, contrast=2)
    shown = {image.id.split("/")[0] for image in names["bear", "grizzly"].exemplars}
    assert shown == {"grizzly", "polar_bear"}
    assert len(names["thing", "bear"].exemplars) == 32
    assert [image.id.split("/")[0] for image in names["bear", "grizzly"].contrast] == ["polar_bear"] * 2


def test_projections_fall_and_the_contrast_rises():
    X, y = bear_images()
    atom = exemplars(bears(), X, y, top_k=5, contrast=5)["vehicle", "bus"]
    high, low = ([image.projection for image in images] for images in (atom.exemplars, atom.contrast))
    assert high == sorted(high, reverse=True)
    assert low == sorted(low)
    assert max(low) < min(high)


def test_contrast_is_off_by_default():
    X, y = bear_images()
    assert exemplars(bears(), X, y)["bear", "grizzly"].contrast == ()


def test_ties_go_to_the_first_image():
    d = bears()
    X = np.repeat(d.synset_embedding("car")[None], 4, axis=0)
    found = exemplars(d, X, ["car"] * 4, top_k=2)["vehicle", "car"].exemplars
    assert [image.id for image in found] == ["0", "1"]


def test_a_zero_atom_has_no_images():
    chain = Hierarchy.from_edges([("thing", "bear"), ("bear", "grizzly"), ("thing", "car")])
    d = ConceptDictionary.from_leaf_embeddings(chain, {"grizzly": [1.0, 0.0], "car": [0.0, 1.0]})
    names = exemplars(d, [[1.0, 0.0], [0.0, 1.0]], ["grizzly", "car"], contrast=1)
    assert names["bear", "grizzly"].exemplars == names["bear", "grizzly"].contrast == ()
    assert names["thing", "bear"].exemplars[0].id == "0"


def test_a_class_above_a_class_is_found_by_its_own_leaf():
    tree = Hierarchy.from_edges([("thing", "cat"), ("cat", "lynx"), ("thing", "car")])
    X, y = np.array([[2.0, 1.0], [2.0, -1.0], [0.0, 3.0]]), ["cat", "lynx", "car"]
    d = ConceptDictionary.from_images(tree, X, y)
    own = d.hierarchy.leaf_of("cat")
    assert exemplars(d, X, y, ["c", "l", "v"], top_k=1)["cat", own].exemplars[0].id == "c"


def test_integer_labels_are_taken_by_their_text():
    flat = Hierarchy.from_edges([("all", "0"), ("all", "1")])
    d = ConceptDictionary.from_leaf_embeddings(flat, {"0": [1.0, 0.0], "1": [0.0, 1.0]})
    assert exemplars(d, np.eye(2), np.array([0, 1]), top_k=1)["all", "1"].exemplars[0].id == "1"


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_batches_give_what_the_whole_does(sample, sample_dictionary, size):
    X, y, ids = sample.X_val[::5], sample.y_val[::5], sample.images_val[::5]
    whole = exemplars(sample_dictionary, X, y, ids, top_k=4, contrast=2)
    parts = ((X[i : i + size], y[i : i + size]) for i in range(0, len(X), size))
    assert exemplars(sample_dictionary, parts, ids=ids, top_k=4, contrast=2) == whole


def test_a_store_is_streamed(sample, sample_dictionary, tmp_path):
    rows = slice(0, 500, 5)
    X, y, ids = sample.X_val[rows], sample.y_val[rows], sample.images_val[rows]
    import_embeddings(Embeddings(X, y, ids), tmp_path / "store", encoder="efficientnet-lite2")
    store = EmbeddingStore(tmp_path / "store")
    found = exemplars(sample_dictionary, store.batches(32), ids=store.ids, top_k=3)
    assert found == exemplars(sample_dictionary, X, y, ids, top_k=3)


def test_the_best_images_of_the_sample_are_of_the_child(sample, sample_dictionary):
    names = exemplars(sample_dictionary, sample.X_val, sample.y_val, sample.images_val, top_k=5)
    tree = sample_dictionary.hierarchy
    label = dict(zip(sample.images_val.tolist(), sample.y_val.tolist(), strict=True))
    right = [
        label[image.id] in {atom.child, *tree.descendants(atom.child)} for atom in names for image in atom.exemplars
    ]
    assert len(right) == 5 * tree.n_edges
    assert np.mean(right) > 0.97


def test_imagenettes_tench_atom_shows_tenches(wordnet_dag):
    data = np.load(shared_file("data/imagenette_efficientnet_lite2.npz"), allow_pickle=False)
    X, y = data["embeddings"].astype(np.float32), data["wnids"][data["labels"]]
    tree = wordnet_dag.as_tree().restrict(data["wnids"]).collapse()
    d = ConceptDictionary.from_images(tree, X, y)
    (parent,) = tree.parents("n01440764")
    atom = exemplars(d, X, y, data["paths"], top_k=10, contrast=10)[parent, "n01440764"]
    assert all("n01440764" in image.id for image in atom.exemplars)
    assert not any("/n01440764/" in image.id for image in atom.contrast)


@pytest.mark.parametrize(
    ("change", "match"),
    [
        ({"y": ["bear"] * 32}, "1 labels of y are not classes of the dictionary: 'bear'"),
        ({"y": ["grizly"] * 32}, "'grizly'. Near matches: 'grizzly'"),
        ({"y": ["car"]}, r"y must have one label per row: X has 32 rows, y has shape \(1,\)"),
        ({"y": None}, "y is missing: exemplars takes X and y, or one iterable"),
        ({"ids": ["a"]}, "ids has 1 entries for 32 images; give one id per image"),
        ({"top_k": 0}, "top_k must be at least 1 and contrast at least 0, got 0 and 0"),
        ({"contrast": -1}, "got 5 and -1"),
        ({"X": [], "y": None}, "X has no images"),
    ],
)
def test_invalid_arguments_are_refused(change, match):
    X, y = bear_images()
    with pytest.raises(HCEPError, match=match):
        exemplars(**{"dictionary": bears(), "X": X, "y": y, **change})


def test_edges_are_all_there():
    X, y = bear_images()
    assert tuple(exemplars(bears(), X, y).by_edge) == BEARS.edges
