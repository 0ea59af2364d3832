"""Memory does not grow with the number of images."""

import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from weakref import WeakSet

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from pyarrow.csv import read_csv

from hcep import HCEPClassifier, explain_images
from hcep.embeddings import Embeddings, EmbeddingStore, load_encoder, read_embeddings
from hcep.embeddings.store.writer import import_embeddings
from hcep.errors import HCEPError
from hcep.evaluate import audit
from hcep.explain.photos import ExplainOptions, answer_batches
from hcep.models import fit_model, fitting, read_model
from hcep.models.saving import save_model
from tests.cli.test_workflow import run
from tests.taxonomy.naming.bear_space import BEARS, bear_images

ENCODER = "function:tests.taxonomy.naming.bear_space:colour_vectors"

PEAK = """
import sys
from hcep.cli import main
try:
    main()
except SystemExit as ended:
    assert not ended.code, ended.code
# Not ru_maxrss, which a process inherits from the one that started it.
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


def make_store(folder, n_images, n_dims=256, n_classes=20, split=False):
    rng = np.random.default_rng(0)
    y = np.arange(n_images) % n_classes
    X = (rng.normal(size=(n_classes, n_dims))[y] + rng.normal(size=(n_images, n_dims))).astype(np.float16)
    labels, splits = np.array([f"c{i:02d}" for i in y]), np.where(np.arange(n_images) // n_classes % 2, "val", "train")
    import_embeddings(Embeddings(X, labels=labels, splits=splits if split else None), folder, encoder="e")
    return folder


def test_a_fit_in_blocks_is_the_fit_in_memory(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store", 900, n_dims=12, n_classes=5)
    options = {"shrinkage": 0.3, "anchor": 0.5, "power": 1.0, "refine": False}
    fit_model(read_embeddings(store), None, tmp_path / "whole", **options)
    monkeypatch.setattr(fitting, "SAMPLE", 300)
    monkeypatch.setattr(fitting, "BLOCK", 128)
    stays = read_embeddings(store, in_memory=300)
    monkeypatch.setattr("hcep.embeddings.EmbeddingStore.to_numpy", None)  # no way to have all at once
    fit_model(stays, None, tmp_path / "parts", **options)
    whole, parts = read_model(tmp_path / "whole"), read_model(tmp_path / "parts")
    assert parts.training.n_images == whole.training.n_images == 900
    one, other = whole.dictionary.synset_embeddings, parts.dictionary.synset_embeddings
    np.testing.assert_allclose(other, one, rtol=1e-6, atol=1e-9)
    assert parts.training.metrics["training accuracy"] == pytest.approx(whole.training.metrics["training accuracy"])


def test_a_linear_head_still_has_its_images(tmp_path):
    store = make_store(tmp_path / "store", 200, n_dims=12, n_classes=5)
    fitted = fit_model(read_embeddings(store, in_memory=100), None, tmp_path / "m", head="logistic")
    assert isinstance(fitted, HCEPClassifier)
    assert read_model(tmp_path / "m").training.metrics["training accuracy"] > 0.5


def test_predictions_of_a_store_that_stays_on_disk_are_those_in_memory(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store", 700, n_dims=12, n_classes=5)
    fit_model(read_embeddings(store), None, tmp_path / "m")
    words = ("predict", tmp_path / "m", store)
    run(*words, "-o", tmp_path / "whole.parquet")
    monkeypatch.setattr("hcep.explain.predictions.BLOCK", 256)
    monkeypatch.setattr("hcep.embeddings.EmbeddingStore.to_numpy", None)  # no way to have all at once
    run(*words, "-o", tmp_path / "parts.parquet")
    run(*words, "-o", tmp_path / "parts.csv")
    whole, parts = (pq.read_table(tmp_path / f"{name}.parquet") for name in ("whole", "parts"))
    assert pq.ParquetFile(tmp_path / "parts.parquet").num_row_groups == 3
    numbers = ["class_probability", "answer_probability", "answer_estimate"]
    rounded = [*numbers, "coefficients", "residual_norm"]
    assert parts.drop_columns(rounded).equals(whole.drop_columns(rounded))
    for name in numbers:
        columns = [table[name].to_numpy(zero_copy_only=False).astype(float) for table in (parts, whole)]
        np.testing.assert_allclose(*columns, rtol=1e-6)
    assert read_csv(tmp_path / "parts.csv")["class"].equals(whole["class"])


@pytest.fixture
def fitted(tmp_path):
    store = make_store(tmp_path / "store", 1200, n_dims=12, n_classes=5, split=True)
    return fit_model(read_embeddings(store, "train"), None, tmp_path / "m"), EmbeddingStore(store)


def test_scores_of_a_store_that_stays_on_disk_are_those_in_memory(fitted, tmp_path, monkeypatch):
    words = ("evaluate", tmp_path / "m", tmp_path / "store", "--by-class", "--json")
    whole = json.loads(run(*words))
    monkeypatch.setattr("hcep.evaluate.model_scores.IN_MEMORY", 300)
    monkeypatch.setattr(fitting, "BLOCK", 128)
    monkeypatch.setattr("hcep.embeddings.EmbeddingStore.to_numpy", None)  # no way to have all at once
    parts = json.loads(run(*words))
    intervals = parts.pop("intervals"), whole.pop("intervals")
    assert [list(row.values()) for row in parts.pop("classes")] == [
        [value if isinstance(value, str) else pytest.approx(value) for value in row.values()]
        for row in whole.pop("classes")
    ]
    assert parts.pop("data") == whole.pop("data")
    assert list(parts) == list(whole)
    for name, value in whole.items():
        assert parts[name] is value or parts[name] == pytest.approx(value, rel=1e-6)
    for name, (low, high) in intervals[1].items():
        assert intervals[0][name] == pytest.approx([low, high], abs=0.2 * (high - low) + 1e-9)


def test_checks_of_a_store_that_stays_on_disk_are_those_in_memory(fitted, monkeypatch):
    model, store = fitted
    train, val = store.select(splits="train"), store.select(splits="val")
    arrays = [(part.to_numpy(np.float32), part.labels) for part in (val, train)]
    whole = audit(model, *arrays[0], train=arrays[1])
    monkeypatch.setattr("hcep.evaluate.audit_checks.BLOCK", 250)
    parts = audit(model, val, val.labels, train=(train, train.labels))
    assert parts.accuracy == whole.accuracy
    for ours, theirs in zip(parts.checks, whole.checks, strict=True):
        assert ours.figures == pytest.approx(theirs.figures, abs=0.1)


@pytest.mark.parametrize(
    "words",
    [
        ["evaluate", "--compare", "nn"],
        ["evaluate", "--interventions"],
        ["evaluate", "--per-image", "scores.csv"],
        ["audit", "--figures", "figures"],
        ["fit", "--hierarchy", "flat", "-P", "head=logistic", "-o", "other"],
    ],
    ids=str,
)
def test_what_needs_all_vectors_is_refused_above_half_of_the_memory(fitted, tmp_path, monkeypatch, words):
    command, *options = words
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("hcep.embeddings.store.embedding_store.memory_limit", lambda: 10_000)
    monkeypatch.setattr("hcep.embeddings.EmbeddingStore._vectors", None)  # refused before any is read
    monkeypatch.setattr("hcep.models.fit_data.IN_MEMORY", 100)
    monkeypatch.setattr("hcep.models.fitting.SAMPLE", 50)
    places = ["store"] if command == "fit" else ["m", "store"]
    with pytest.raises(HCEPError, match=r"vectors take [\d,]+ bytes, more than half .* leave it out, or choose"):
        run(command, *places, *options)


def test_a_large_file_of_arrays_is_refused_before_it_is_read(tmp_path, monkeypatch):
    X = np.eye(100, dtype=np.float32)
    np.savez(tmp_path / "x.npz", vectors=X)
    np.save(tmp_path / "x.npy", X)
    monkeypatch.setattr("hcep.embeddings.files.memory_limit", lambda: 10_000)
    with pytest.raises(HCEPError, match=r"has [\d,]+ bytes, more than half .* write the vectors as \.npy"):
        read_embeddings(tmp_path / "x.npz")
    assert isinstance(read_embeddings(tmp_path / "x.npy").X, np.memmap)


def test_a_failure_half_way_leaves_the_old_predictions(tmp_path, monkeypatch):
    store = make_store(tmp_path / "store", 700, n_dims=12, n_classes=5)
    fit_model(read_embeddings(store), None, tmp_path / "m")
    shard = min(store.glob("shard-*.parquet"))
    (tmp_path / "p.parquet").write_bytes(b"old")
    monkeypatch.setattr("hcep.explain.predictions.BLOCK", 256)
    data = bytearray(shard.read_bytes())
    data[len(data) // 2] ^= 1
    shard.write_bytes(data)
    with pytest.raises(HCEPError):
        run("predict", tmp_path / "m", store, "-o", tmp_path / "p.parquet", "--overwrite")
    assert {path.name for path in tmp_path.iterdir()} == {"store", "m", "p.parquet"}
    assert (tmp_path / "p.parquet").read_bytes() == b"old"


def test_images_are_explained_as_they_come_and_let_go():
    X, y = bear_images(30)
    model, many, alive = HCEPClassifier(BEARS).fit(X, y), np.repeat(X, 30, axis=0), WeakSet()
    assert len(many) > 2 * 1024
    for batch in answer_batches(many, model, ExplainOptions()):
        for one in batch:
            alive.add(one.context)
        del batch, one
        gc.collect()
        assert len(alive) <= 1024
    assert [one.label for one in explain_images(many, model)] == model.predict(many).tolist()


def spoken(program, *words):
    """The last two numbers that a process of its own prints."""
    command = [sys.executable, "-c", program, *words]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=Path(__file__).parents[2])
    assert done.returncode == 0, done.stderr
    return [int(word) for word in done.stdout.split()[-2:] if word.isdigit()]


def peak(*words):
    return spoken(PEAK, *words)[-1]


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A store of 10,000 images and one of 40,000, half of them for training; half the large one is 160 MB in memory."""
    folder = tmp_path_factory.mktemp("stores")
    for n_images in (10_000, 40_000):
        make_store(folder / str(n_images), n_images, n_dims=2048, split=True)
    options = ["--hierarchy", "flat", "-P", "shrinkage=none", "-P", "anchor=0.3", "--json"]
    peaks = [peak("fit", folder / n, *options, "-o", folder / f"model{n}") for n in ("10000", "40000")]
    return folder, peaks


@pytest.mark.slow
def test_the_memory_of_fit_is_flat_from_10_000_to_40_000_images(stores):
    _, peaks = stores
    assert peaks[1] < 1.2 * peaks[0], peaks


@pytest.mark.slow
@pytest.mark.parametrize(
    ("command", "options"),
    [
        ("predict", ["-o", "p.parquet", "--overwrite"]),
        ("predict", ["-o", "p.csv", "--overwrite"]),
        ("evaluate", ["--by-class", "--json"]),
        ("audit", ["--json"]),
    ],
)
def test_the_memory_of_a_command_is_flat_from_10_000_to_40_000_images(stores, command, options):
    folder, _ = stores
    own = [str(folder / word) if word.startswith("p.") else word for word in options]
    peaks = [peak(command, folder / "model10000", folder / n, *own) for n in ("10000", "40000")]
    assert peaks[1] < 1.2 * peaks[0], peaks


@pytest.mark.slow
def test_the_memory_of_a_fit_with_labels_above_the_classes_is_flat_from_12_000_to_48_000_images(tmp_path):
    groups = "".join(f"r,g{g}\n" for g in range(4)) + "".join(f"g{i // 5},c{i:02d}\n" for i in range(20))
    (tmp_path / "tree.csv").write_text("parent,child\n" + groups)
    peaks = []
    for n_images in (12_000, 48_000):
        rng, own = np.random.default_rng(0), np.arange(n_images) % 20
        X = 0.35 * rng.normal(size=(20, 256))[own] + rng.normal(size=(n_images, 256))
        labels = np.array([f"c{i:02d}" if k < 600 else f"g{i // 5}" for k, i in enumerate(own)])
        store = tmp_path / f"{n_images}"
        import_embeddings(Embeddings(X.astype(np.float16), labels=labels), store, encoder="e")
        words = ("--hierarchy", tmp_path / "tree.csv", "-o", tmp_path / f"m{n_images}")
        peaks.append(peak("fit", store, *words, "--say-coarse", tmp_path / f"c{n_images}.csv"))
        counts = read_model(tmp_path / f"m{n_images}").coarse_counts
        assert sum(count.n_images for count in counts.values()) == n_images - 600
        assert all(count.classes for count in counts.values())
    assert peaks[1] < 1.2 * peaks[0], peaks


EXPLAIN = """
import sys
import numpy as np
from hcep.explain.photos import ExplainOptions, answer_batches
from hcep.models import read_model
X = np.load(sys.argv[2], mmap_mode="r")
batches = answer_batches(X, read_model(sys.argv[1]), ExplainOptions())
print(sum(one.probability > 0 for batch in batches for one in batch))
print(next(line.split()[1] for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.slow
def test_the_memory_of_explanations_is_flat_from_1000_to_30_000_embeddings(tmp_path):
    small = make_store(tmp_path / "s", 1_000, n_dims=64)  # the file is mapped: few bytes per image
    fit_model(read_embeddings(small), None, tmp_path / "m")
    X, peaks = read_embeddings(small).X, []
    for n_times in (1, 30):
        np.save(tmp_path / "X.npy", np.tile(X, (n_times, 1)))
        n_explained, most = spoken(EXPLAIN, tmp_path / "m", tmp_path / "X.npy")
        assert n_explained == 1_000 * n_times
        peaks.append(most)
    assert peaks[1] < 1.2 * peaks[0], peaks


@pytest.mark.slow
def test_the_memory_of_explain_is_flat_from_500_to_4_000_photos(tmp_path):
    for i in range(3):
        Image.new("RGB", (8, 8), tuple(255 * (i == k) for k in range(3))).save(tmp_path / f"{i}.png")
    X, y = bear_images(20)
    save_model(HCEPClassifier(BEARS).fit(X, y), tmp_path / "m", encoder=load_encoder(ENCODER))
    peaks = []
    for n_images in (500, 4_000):
        (folder := tmp_path / f"f{n_images}").mkdir()
        for i in range(n_images):
            os.link(tmp_path / f"{i % 3}.png", folder / f"{i}.png")
        peaks.append(peak("explain", tmp_path / "m", folder, "--encoder", ENCODER, "--json"))
    assert peaks[1] < 1.2 * peaks[0], peaks
