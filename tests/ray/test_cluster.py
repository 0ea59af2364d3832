"""On a real cluster of several nodes on this machine: what dies, and that nothing is lost, nothing twice."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image

import hcep
from hcep import HCEPClassifier, HCEPError, Hierarchy, save
from hcep.datasets import encode_images
from hcep.embeddings import Embeddings, EmbeddingStore, import_embeddings
from hcep.evaluate import evaluate_method
from hcep.explain.predictions import write_predictions
from hcep.ray.cluster import IN_FLIGHT
from tests.models.test_fit_in_parts import TREE, shuffled
from tests.ray.counting_encoder import DEADLY

ray = pytest.importorskip("ray", reason="ray is not installed")
cluster_utils = pytest.importorskip("ray.cluster_utils", reason="ray is not installed")
pytestmark = [pytest.mark.slow, pytest.mark.alone, pytest.mark.filterwarnings("ignore")]

N_SHARDS, BATCH = 8, 4
SIZES = {"batch_size": BATCH, "shard_size": BATCH}


@pytest.fixture(scope="module")
def nodes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A head that only directs, and two nodes of one CPU each; all can import the encoder."""
    code = tmp_path_factory.mktemp("code")
    shutil.copy(Path(__file__).with_name("counting_encoder.py"), code)
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(code)
    sys.path.insert(0, str(code))
    memory = {"object_store_memory": 80_000_000}
    # A busy machine is slow to answer; a node that is gone refuses at once.
    patient = {"health_check_timeout_ms": 60_000, "health_check_period_ms": 1000, "health_check_failure_threshold": 5}
    head = {"num_cpus": 0, "include_dashboard": False, "_system_config": patient, **memory}
    cluster = cluster_utils.Cluster(initialize_head=True, head_node_args=head)
    cluster.add_node(num_cpus=1, **memory)
    cluster.add_node(num_cpus=1, **memory)
    ray.init(address=cluster.address, log_to_driver=False)
    yield cluster
    ray.shutdown()
    cluster.shutdown()
    sys.path.remove(str(code))
    os.environ.pop("PYTHONPATH") if before is None else os.environ.update(PYTHONPATH=before)


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    rng = np.random.default_rng(0)
    for k in range(N_SHARDS * BATCH):
        path = tmp_path / "photos" / "ab"[k % 2] / f"{k:02}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 200, (8, 8, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


def encoder(log: Path, seconds: float = 0.0) -> Callable[[], Any]:
    from counting_encoder import CountingEncoder

    return partial(CountingEncoder, str(log), seconds)


def files(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.iterdir()}


def expected(photos: Path, tmp_path: Path) -> dict[str, bytes]:
    encode_images(photos, encoder(tmp_path / "other.log")(), tmp_path / "one", **SIZES)
    return files(tmp_path / "one")


def n_encoded(log: Path) -> int:
    """Batches that went through the encoder, the driver's none; a batch is a shard."""
    return len(log.read_text().splitlines())


def wait_for(condition: Callable[[], bool], seconds: float = 240.0) -> None:
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end, "nothing happened in time"
        time.sleep(0.05)


def n_committed(store: Path) -> int:
    return len(list(store.glob(".ray/*/*.json")))


def when(condition: Callable[[], bool], act: Callable[[], object]) -> threading.Thread:
    """Do something, once, when the condition holds."""
    thread = threading.Thread(target=lambda: (wait_for(condition), act()), daemon=True)
    thread.start()
    return thread


def test_the_same_bytes_as_one_process_and_no_more_begun_than_there_are_actors(
    nodes: Any, photos: Path, tmp_path: Path
) -> None:
    log, store, under_way, done = tmp_path / "log", tmp_path / "store", [0], threading.Event()

    def watch() -> None:
        while not done.wait(0.02):
            begun = {path.stem for path in store.glob(".ray/*/*.attempts")}
            under_way.append(len(begun - {path.stem for path in store.glob(".ray/*/*.json")}))

    watcher = threading.Thread(target=watch)
    watcher.start()
    report = hcep.ray.encode(photos, encoder(log, 0.2), store, n_workers=2, **SIZES)
    done.set()
    watcher.join()
    assert 1 <= max(under_way) <= 2
    assert (report.n_encoded, report.n_reused, report.skipped) == (N_SHARDS * BATCH, 0, ())
    assert files(store) == expected(photos, tmp_path)
    assert n_encoded(log) == N_SHARDS
    again = hcep.ray.encode(photos, encoder(log), store, **SIZES)
    assert (again.n_encoded, again.n_reused) == (0, N_SHARDS * BATCH)


def test_a_worker_is_killed(nodes: Any, photos: Path, tmp_path: Path) -> None:
    log, store = tmp_path / "log", tmp_path / "store"
    killer = when(
        lambda: n_committed(store) >= 2,
        lambda: os.kill(int(log.read_text().splitlines()[-1]), signal.SIGKILL),
    )
    hcep.ray.encode(photos, encoder(log, 0.5), store, n_workers=2, **SIZES)
    killer.join()
    assert len(set(log.read_text().split())) >= 3  # two actors, and the one that took the dead one's place
    assert files(store) == expected(photos, tmp_path)
    assert N_SHARDS <= n_encoded(log) <= N_SHARDS + 2 * IN_FLIGHT


def test_a_node_is_lost(nodes: Any, photos: Path, tmp_path: Path) -> None:
    log, store = tmp_path / "log", tmp_path / "store"
    lost = nodes.add_node(num_cpus=1, object_store_memory=80_000_000)
    remover = when(lambda: n_committed(store) >= 2, lambda: nodes.remove_node(lost, allow_graceful=False))
    hcep.ray.encode(photos, encoder(log, 0.5), store, n_workers=3, **SIZES)
    remover.join()
    assert files(store) == expected(photos, tmp_path)
    assert N_SHARDS <= n_encoded(log) <= N_SHARDS + 3 * IN_FLIGHT


DRIVER = """
import sys
from functools import partial
from counting_encoder import CountingEncoder
from hcep import ray as distributed
photos, log, store, address = sys.argv[1:]
encoder = partial(CountingEncoder, log, 0.5)
distributed.encode(photos, encoder, store, address=address, n_workers=2, batch_size=4, shard_size=4)
"""


def test_the_driver_is_killed_and_started_again(nodes: Any, photos: Path, tmp_path: Path) -> None:
    log, store = tmp_path / "log", tmp_path / "store"
    driver = subprocess.Popen([sys.executable, "-c", DRIVER, str(photos), str(log), str(store), nodes.address])
    wait_for(lambda: n_committed(store) >= 3 or driver.poll() is not None)
    driver.send_signal(signal.SIGKILL)
    driver.wait()
    n_before = n_committed(store)
    assert n_before < N_SHARDS
    assert len(EmbeddingStore(store)) == 0  # a reader sees what was there before
    hcep.ray.encode(photos, encoder(log), store, n_workers=2, **SIZES)
    assert files(store) == expected(photos, tmp_path)
    assert N_SHARDS <= n_encoded(log) <= N_SHARDS + 2 * IN_FLIGHT


def test_a_deadly_image_is_skipped_with_the_reason(nodes: Any, photos: Path, tmp_path: Path) -> None:
    (photos / "a" / "04.png").write_bytes(b"no image")
    Image.new("RGB", (8, 8), DEADLY).save(photos / "b" / "09.png")
    report = hcep.ray.encode(photos, encoder(tmp_path / "log"), tmp_path / "store", n_workers=2, **SIZES)
    reasons = {one.id: one.reason for one in report.skipped}
    assert reasons == {
        "a/04.png": "not an image or not in a format that can be read",
        "b/09.png": "the worker that opened it crashed",
    }
    store = EmbeddingStore(tmp_path / "store")
    store.verify()
    assert len(store) == N_SHARDS * BATCH - 2


def test_an_error_about_the_input_is_one_sentence(nodes: Any, photos: Path, tmp_path: Path) -> None:
    (photos / "a" / "04.png").write_bytes(b"no image")
    with pytest.raises(HCEPError, match=r"04\.png' cannot be encoded: not an image.*\(strict is on\)"):
        hcep.ray.encode(photos, encoder(tmp_path / "log"), tmp_path / "store", strict=True, **SIZES)


# -- fit, predict, evaluate ----------------------------------------------------------------------------


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Hierarchy, np.ndarray, np.ndarray]:
    """A store of six shards: 600 images of six classes under three concepts, four of five for training."""
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges([(f"g{i // 2}", f"c{i}") for i in range(6)] + [("r", f"g{i}") for i in range(3)])
    y = np.array([f"c{i}" for i in rng.integers(6, size=600)])
    means = {f"c{i}": rng.standard_normal(8) * 2 for i in range(6)}
    X = (np.stack([means[c] for c in y]) + rng.standard_normal((600, 8))).astype(np.float32)
    split = np.where(np.arange(600) % 5 == 0, "val", "train")
    folder = tmp_path_factory.mktemp("data") / "store"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("hcep.embeddings.store.manifest.ROW_GROUP", 100)
        import_embeddings(Embeddings(X, y, np.array([f"i{k}" for k in range(600)]), None, split), folder, encoder="e")
    assert len(EmbeddingStore(folder).shards) == 6
    return folder, tree, X, y


def test_fit_is_that_of_one_process(nodes: Any, data: Any) -> None:
    folder, tree, X, y = data
    train = np.arange(600) % 5 != 0
    one = HCEPClassifier(tree).fit(X[train], y[train])
    many = hcep.ray.fit(folder, tree, cluster={"n_workers": 2})
    assert (many.power_, many.shrinkage_, many.anchor_) == (one.power_, one.shrinkage_, one.anchor_)
    np.testing.assert_allclose(many.dictionary_.synset_embeddings, one.dictionary_.synset_embeddings, atol=1e-6)
    np.testing.assert_allclose(many.predict_proba(X[~train]), one.predict_proba(X[~train]), atol=1e-6)
    assert many.images_per_class_.tolist() == one.images_per_class_.tolist()


def test_the_dictionary_is_of_all_images_where_choices_are_of_a_sample(
    nodes: Any, data: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, tree, X, y = data
    train = np.arange(600) % 5 != 0
    fixed = {"power": 1.0, "shrinkage": 0.3, "anchor": 0.1, "refine": False}
    monkeypatch.setattr("hcep.ray.fitting.SAMPLE", 60)
    many = hcep.ray.fit(folder, tree, cluster={"n_workers": 2}, **fixed)
    one = HCEPClassifier(tree, **fixed).fit(X[train], y[train])
    np.testing.assert_allclose(many.dictionary_.synset_embeddings, one.dictionary_.synset_embeddings, atol=1e-6)
    np.testing.assert_allclose(many.dictionary_.transform.whitener, one.dictionary_.transform.whitener, atol=1e-6)


def test_labels_above_the_classes_teach_them_on_a_cluster(
    nodes: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    X, y, truth = shuffled(4, 250, spread=2.5)
    with monkeypatch.context() as patch:
        patch.setattr("hcep.embeddings.store.manifest.ROW_GROUP", 200)
        import_embeddings(Embeddings(X.astype(np.float32), y), tmp_path / "store", encoder="e")
    monkeypatch.setattr("hcep.ray.fitting.SAMPLE", 300)
    many = hcep.ray.fitting.fit_model(tmp_path / "store", TREE, tmp_path / "model", cluster={"n_workers": 2})
    assert many.classes_.tolist() == sorted(set(truth.tolist()))
    assert {name: count.n_images for name, count in many.coarse_counts_.items()} == dict(Counter(y[y != truth]))
    assert many.class_weights_.sum() == pytest.approx(len(y))
    assert np.mean(many.predict(X) == truth) > HCEPClassifier(TREE).fit(X[y == truth], y[y == truth]).score(X, truth)
    saved = hcep.models.read_model(tmp_path / "model")
    assert saved.coarse_counts == many.coarse_counts_
    assert saved.training.n_images == 24
    assert 0.5 < saved.training.metrics["training accuracy"] <= 1.0


def test_predictions_and_scores_are_those_of_one_process(nodes: Any, data: Any, tmp_path: Path) -> None:
    folder, tree, X, y = data
    train = np.arange(600) % 5 != 0
    model = HCEPClassifier(tree).fit(X[train], y[train])
    save(model, tmp_path / "model")
    n_images = hcep.ray.predict(tmp_path / "model", folder, tmp_path / "predictions", n_workers=2)
    parts = sorted((tmp_path / "predictions").glob("*.parquet"))
    assert (n_images, len(parts)) == (600, 6)
    found = pq.read_table(tmp_path / "predictions").to_pydict()
    ids = np.array([f"i{k}" for k in range(600)])
    write_predictions(model.path_model(), X, tmp_path / "one.parquet", ids=ids, labels=y)
    whole = pq.read_table(tmp_path / "one.parquet").to_pydict()
    assert {name: found[name] for name in ("id", "label", "class", "path", "names")} == {
        name: whole[name] for name in ("id", "label", "class", "path", "names")
    }
    np.testing.assert_allclose(found["class_probability"], whole["class_probability"], atol=1e-6)
    parts[3].unlink()
    stamps = {part: part.stat().st_mtime_ns for part in parts if part.exists()}
    hcep.ray.predict(tmp_path / "model", folder, tmp_path / "predictions", n_workers=1)
    assert {part: part.stat().st_mtime_ns for part in stamps} == stamps
    assert parts[3].exists()
    with pytest.raises(HCEPError, match="holds other predictions; pass --overwrite to replace them"):
        hcep.ray.predict(tmp_path / "model", folder, tmp_path / "predictions", split="val")
    scores = hcep.ray.evaluate(tmp_path / "model", folder, n_workers=2)
    own = evaluate_method(model, X[~train], y[~train])
    assert scores.labels == own.labels
    assert scores.summary() == pytest.approx(own.summary(), nan_ok=True)


def test_the_commands(nodes: Any, photos: Path, tmp_path: Path) -> None:
    def run(*arguments: object) -> str:
        command = Path(sys.executable).with_name("hcep")
        ours = ("--ray", nodes.address, "--json")
        done = subprocess.run([command, *map(str, (*arguments, *ours))], capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    store, model = tmp_path / "store", tmp_path / "model"
    shards = ("--batch-size", BATCH, "--shard-size", BATCH)
    run("encode", photos, "--encoder", "function:counting_encoder:mean_colour", "-o", store, *shards)
    assert len(EmbeddingStore(store)) == N_SHARDS * BATCH
    assert f'"n_images": {N_SHARDS * BATCH}' in run("fit", store, "--hierarchy", "flat", "-o", model)
    assert f'"n_images": {N_SHARDS * BATCH}' in run("predict", model, store, "-o", tmp_path / "predictions")
    assert '"accuracy"' in run("evaluate", model, store)
