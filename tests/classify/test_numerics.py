"""Data as it comes: any layout and type of array, any type of label, few or equal images give sound answers."""

import multiprocessing

import numpy as np
import pytest
from scipy import sparse
from threadpoolctl import threadpool_limits

from hcep import HCEPClassifier, Hierarchy

EDGES = [("10", "0"), ("10", "1"), ("10", "2"), ("11", "3"), ("11", "4"), ("11", "5"), ("12", "10"), ("12", "11")]
TREE = Hierarchy.from_edges(EDGES)
NUMBERS = [(int(parent), int(child)) for parent, child in EDGES]


@pytest.fixture(scope="module")
def images():
    y = np.arange(60) % 6
    rng = np.random.default_rng(0)
    return (3.0 * rng.normal(size=(6, 16))[y] + rng.normal(size=(60, 16))).astype(np.float32), y


@pytest.fixture(scope="module")
def model(images):
    return HCEPClassifier(TREE).fit(*images)


def read_only(X):
    X = X.copy()
    X.setflags(write=False)
    return X


def frame(X):
    return pytest.importorskip("pandas", reason="comes with the extra test").DataFrame(X)


def polars_frame(X):
    return pytest.importorskip("polars", reason="`make test-all` installs it").DataFrame(X)


LAYOUTS = {
    "list": np.ndarray.tolist,
    "float64": lambda X: X.astype(np.float64),
    "Fortran": np.asfortranarray,
    "strided": lambda X: np.repeat(X, 2, axis=0)[::2],
    "backwards": lambda X: X[::-1].copy()[::-1],
    "a part of its columns": lambda X: np.hstack([X, X])[:, :16],
    "read-only": read_only,
    "big-endian": lambda X: X.astype(">f4"),
    "pandas": frame,
    "polars": polars_frame,
}


@pytest.mark.parametrize("layout", LAYOUTS)
def test_every_layout_gives_the_same_answers(images, model, layout):
    X, y = images
    other = HCEPClassifier(TREE).fit(LAYOUTS[layout](X), y)
    np.testing.assert_allclose(other.predict_proba(LAYOUTS[layout](X)), model.predict_proba(X), atol=1e-5)


def test_half_precision_and_whole_numbers_are_images_too(images):
    X, y = images
    for narrow in (X.astype(np.float16), np.round(8 * X).astype(np.int16)):
        assert HCEPClassifier(TREE).fit(narrow, y).score(narrow, y) > 0.9


def test_sparse_images_are_refused_with_what_to_do(images):
    X, y = images
    with pytest.raises(TypeError, match=r"dense data is required. Use '\.toarray\(\)'"):
        HCEPClassifier(TREE).fit(sparse.csr_matrix(X), y)


@pytest.mark.parametrize("kind", [np.int64, np.int8, np.uint16, object, list], ids=str)
@pytest.mark.parametrize("hierarchy", [None, TREE, NUMBERS], ids=["flat", "texts", "numbers"])
def test_integer_labels_come_back_as_integers(images, model, kind, hierarchy):
    X, y = images
    labels = y.tolist() if kind is list else y.astype(kind)
    fitted = HCEPClassifier(hierarchy).fit(X, labels)
    assert fitted.classes_.tolist() == list(range(6))
    assert fitted.predict(X).tolist() == model.predict(X).tolist()
    assert all(isinstance(label, int) for label in fitted.predict(X).tolist())
    assert (fitted.predict(X) == labels).mean() > 0.9


def test_nullable_integers_of_pandas_are_integer_labels(images, model):
    pandas = pytest.importorskip("pandas", reason="comes with the extra test")
    X, y = images
    fitted = HCEPClassifier(TREE).fit(X, pandas.Series(y, dtype="Int64"))
    assert fitted.predict(X).tolist() == model.predict(X).tolist()


def test_an_integer_label_above_the_classes_means_one_of_them(images):
    X, y = images
    labels = np.where(np.arange(60) % 10 == 0, 10 + (y > 2), y)
    texts = HCEPClassifier(TREE).fit(X, labels.astype(str))
    numbers = HCEPClassifier(NUMBERS).fit(X, labels)
    assert numbers.classes_.tolist() == list(range(6))
    assert numbers.predict(X).astype(str).tolist() == texts.predict(X).tolist()


def test_a_graph_of_integers_is_a_hierarchy(images, model):
    networkx = pytest.importorskip("networkx", reason="comes with the extra formats")
    X, y = images
    graph = networkx.DiGraph(NUMBERS)
    graph.nodes[10]["name"], graph.nodes[10]["rank"] = "animal", "kingdom"
    hierarchy = Hierarchy.from_networkx(graph)
    assert (hierarchy.name("10"), hierarchy.rank("10")) == ("animal", "kingdom")
    assert HCEPClassifier(graph).fit(X, y).predict(X).tolist() == model.predict(X).tolist()


def test_text_labels_of_any_kind_are_alike(images, model):
    X, y = images
    for labels in (y.astype(str), y.astype(str).astype(object), y.astype(str).tolist(), y.astype("S1").astype("U1")):
        assert HCEPClassifier(TREE).fit(X, labels).predict(X).tolist() == model.predict(X).astype(str).tolist()


ODD = {
    "a constant feature": lambda X, y: (np.hstack([X, np.full((60, 1), 7.0)]), y),
    "equal images": lambda X, y: (np.repeat(X[:6], 10, axis=0), np.repeat(y[:6], 10)),
    "an image per class": lambda X, y: (X[:6], y[:6]),
    "one class": lambda X, y: (X, np.zeros(60, dtype=int)),
    "nothing but constants": lambda X, y: (np.ones_like(X), y),
}


@pytest.mark.parametrize("odd", ODD)
def test_odd_data_gives_probabilities(images, odd):
    X, y = ODD[odd](*images)
    probabilities = HCEPClassifier(TREE).fit(X, y).predict_proba(X)
    assert np.isfinite(probabilities).all()
    np.testing.assert_allclose(probabilities.sum(axis=1), 1.0, atol=1e-5)


def answers(model, X):
    return model.predict_proba(X), model.infer(X).residual_norms


@pytest.mark.slow
@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_another_process_gives_the_same_bits(images, model, method):
    X, _ = images
    ours = answers(model, X)  # before the other process starts, so that a fork has kernels and threads
    with multiprocessing.get_context(method).Pool(1) as pool:
        for mine, theirs in zip(ours, pool.apply(answers, (model, X)), strict=True):
            assert np.array_equal(mine, theirs)


@pytest.mark.slow
def test_the_number_of_threads_does_not_change_an_answer(monkeypatch):
    hierarchy = Hierarchy.from_edges(
        [("root", f"g{i}") for i in range(5)] + [(f"g{i % 5}", f"c{i}") for i in range(30)]
    )
    y, rng = np.arange(3000) % 30, np.random.default_rng(0)  # several blocks, and products that BLAS divides
    X = (rng.normal(size=(30, 96))[y] + 1.5 * rng.normal(size=(3000, 96))).astype(np.float32)
    labels = np.char.add("c", y.astype(str))
    model = HCEPClassifier(hierarchy, shrinkage=0.3, anchor=0.3).fit(X[:900], labels[:900])
    bits, concepts = [], []
    for n_threads in (1, 2):
        monkeypatch.setenv("OMP_NUM_THREADS", str(n_threads))
        with threadpool_limits(n_threads, "blas"):
            bits.append([part.tobytes() for rows in (X, X[:50], X[:1]) for part in answers(model, rows)])
            refitted = HCEPClassifier(hierarchy, shrinkage=0.3, anchor=0.3).fit(X[:900], labels[:900])
            concepts.append(refitted.predict_concept(X).tolist())
    assert bits[0] == bits[1]
    assert concepts[0] == concepts[1]
