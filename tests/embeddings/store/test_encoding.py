"""Images into a store: resumable whatever happens, and the same vectors to the bit."""

import logging
import os
import random
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hcep import ConceptDictionary, Hierarchy
from hcep._progress import listening
from hcep.embeddings import load_encoder
from hcep.embeddings.images import ImageItem, content_hash
from hcep.embeddings.protocol import EncoderRecord
from hcep.embeddings.store import manifest
from hcep.embeddings.store.embedding_store import EmbeddingStore
from hcep.embeddings.store.encoding import encode_to_store
from hcep.embeddings.store.writer import StoreWriter
from hcep.embeddings.vectors import StoreError
from tests.conftest import shared_file
from tests.embeddings.encoders.tiny_onnx import dynamically_quantised, mean_colour
from tests.embeddings.tiny import TinyEncoder, encode, folder_items, make_images

TINY = Path(__file__).parents[1] / "tiny.py"


@pytest.fixture
def images(tmp_path):
    folder = tmp_path / "images"
    make_images(folder, 30)
    return folder


@pytest.fixture
def items(images):
    return folder_items(images)


@pytest.fixture
def store(tmp_path):
    return tmp_path / "store"


def contents(folder):
    """Every file of a store with its bytes."""
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def vectors(folder):
    """Bytes of every vector, by id."""
    opened = EmbeddingStore(folder)
    return {key: row.tobytes() for key, row in zip(opened.ids.tolist(), opened.to_numpy(), strict=True)}


def reasons(report):
    return {Path(image.path).name: image.reason for image in report.skipped}


# -- a run, and the next one ---------------------------------------------------------------------------


def test_vectors_ids_paths_labels_and_hashes(items, store):
    report = encode(items, store)
    opened = EmbeddingStore(store)
    opened.verify()
    assert (report.n_encoded, report.n_reused, report.n_skipped, report.skipped) == (30, 0, 0, ())
    assert report.images_per_second == pytest.approx(30 / report.seconds)
    assert opened.ids.tolist() == [item.id for item in items]
    assert opened.paths.tolist() == [str(item.path) for item in items]
    assert opened.labels.tolist() == [item.label for item in items]
    assert opened.content_hashes.tolist() == [content_hash(item.path) for item in items]
    assert [shard.n_images for shard in opened.shards] == [8, 8, 8, 6]
    first = np.stack([TinyEncoder().preprocess(Image.open(item.path)) for item in items[:4]])
    np.testing.assert_array_equal(opened.to_numpy()[:4], TinyEncoder().encode_images(first).astype(np.float16))


def test_items_may_be_tuples_and_have_no_label(items, store):
    encode([(item.path, None) for item in items[:3]] + [(str(items[3].path), "cat", "last", "val")], store)
    opened = EmbeddingStore(store)
    assert opened.labels.tolist() == [None, None, None, "cat"]
    assert opened.splits.tolist() == [None, None, None, "val"]
    assert opened.ids.tolist() == [*(str(item.path) for item in items[:3]), "last"]


def test_a_second_run_encodes_nothing_and_changes_nothing(items, store):
    encode(items, store)
    before, encoder = contents(store), TinyEncoder()
    report = encode(items, store, encoder)
    assert (report.n_encoded, report.n_reused, report.n_updated, encoder.batches) == (0, 30, 0, [])
    assert contents(store) == before


def test_new_images_leave_the_old_vectors_alone(images, items, store):
    encode(items, store)
    before = vectors(store)
    Image.new("RGB", (5, 5), "red").save(images / "cat" / "0000a.png")
    report = encode(folder_items(images), store)
    assert (report.n_encoded, report.n_reused) == (1, 30)
    after = vectors(store)
    assert after.keys() - before.keys() == {"cat/0000a.png"}
    assert {key: after[key] for key in before} == before


def test_a_changed_file_is_encoded_again_and_its_old_vector_leaves(items, store):
    encode(items, store)
    before = vectors(store)
    Image.new("RGB", (5, 5), "red").save(items[9].path)
    report = encode(items, store)
    after = vectors(store)
    assert (report.n_encoded, report.n_reused) == (1, 29)
    assert {key for key in after if after[key] != before[key]} == {items[9].id}
    assert len(EmbeddingStore(store)) == 30
    EmbeddingStore(store).verify()


def test_a_file_touched_but_not_changed_is_not_encoded_again(items, store):
    encode(items, store)
    items[0].path.touch()
    assert encode(items, store).n_reused == 30


def test_a_shard_whose_images_all_changed_disappears(items, store):
    encode(items, store)
    for item in items[:8]:
        Image.new("RGB", (5, 5), "red").save(item.path)
    encode(items, store)
    opened = EmbeddingStore(store)
    assert [shard.file for shard in opened.shards] == [f"shard-00000{i}.parquet" for i in (1, 2, 3, 4)]
    assert {path.name for path in store.iterdir()} == {"manifest.json", *(shard.file for shard in opened.shards)}


def test_new_labels_reach_the_store_without_encoding(items, store):
    encode(items, store)
    before, encoder = vectors(store), TinyEncoder()
    relabelled = [ImageItem(item.path, "fox", item.id, "train") for item in items[:3]]
    report = encode([*relabelled, *items[3:]], store, encoder)
    opened = EmbeddingStore(store)
    assert (report.n_encoded, report.n_reused, report.n_updated, encoder.batches) == (0, 30, 3, [])
    assert opened.labels[:4].tolist() == ["fox", "fox", "fox", items[3].label]
    assert opened.splits[:4].tolist() == ["train", "train", "train", None]
    assert vectors(store) == before


def test_vanished_images_are_removed_only_on_request(items, store):
    encode(items, store)
    before = vectors(store)
    items[4].path.unlink()
    assert reasons(encode(items[2:], store)) == {items[4].path.name: "no such file"}
    assert vectors(store) == before
    report = encode(items[2:], store, remove_vanished=True)
    assert report.n_removed == 3
    assert vectors(store) == {item.id: before[item.id] for item in (*items[2:4], *items[5:])}
    assert EmbeddingStore(store).skipped == ()


def test_a_fresh_encoding_encodes_everything(items, store):
    encode(items, store, TinyEncoder("tiny-0"))
    report = encode(items[:9], store, resume=False)
    opened = EmbeddingStore(store)
    opened.verify()
    assert (report.n_encoded, len(opened), opened.encoder.fingerprint) == (9, 9, "tiny-1")


def test_no_items_make_an_empty_store(store):
    report = encode([], store)
    assert (report.n_encoded, len(EmbeddingStore(store))) == (0, 0)
    assert EmbeddingStore(store).to_numpy().shape == (0, 12)
    assert list(EmbeddingStore(store).batches()) == []


def test_a_store_makes_a_dictionary(items, store):
    encode(items, store)
    opened = EmbeddingStore(store)
    pets = Hierarchy.from_edges([("pet", "cat"), ("pet", "dog")])
    streamed = ConceptDictionary.from_images(pets, opened.batches(7))
    whole = ConceptDictionary.from_images(pets, opened.to_numpy(), opened.labels)
    np.testing.assert_allclose(streamed.atoms, whole.atoms, atol=1e-12)


def test_float32(items, store):
    encode(items, store, dtype="float32")
    half = store.with_name("half")
    encode(items, half)
    assert EmbeddingStore(store).dtype == np.float32
    np.testing.assert_array_equal(EmbeddingStore(store).to_numpy(np.float16), EmbeddingStore(half).to_numpy())


def test_any_number_of_threads_gives_the_same_store(items, store):
    encode(items, store, n_workers=1)
    other = store.with_name("other")
    encode(items, other, n_workers=5)
    assert contents(store) == contents(other)


def test_decoding_keeps_a_bounded_distance_ahead(items, store):
    class Watching(TinyEncoder):
        begun = done = most = 0
        lock = threading.Lock()

        def preprocess(self, image):
            with self.lock:
                self.begun += 1
                self.most = max(self.most, self.begun - self.done)
            return super().preprocess(image)

        def encode_images(self, batch):
            time.sleep(0.02)
            self.done += len(batch)
            return super().encode_images(batch)

    watching = Watching()
    encode(items, store, watching, batch_size=2, shard_size=2, n_workers=4)
    assert 2 < watching.most <= 2 + 2 * 2 + 1


def test_a_large_jpeg_is_decoded_small_where_the_encoder_says_what_it_needs(tmp_path, store):
    class Sparing(TinyEncoder):
        shorter_side, seen = 20, ()

        def preprocess(self, image):
            self.seen = (*self.seen, image.size)
            return super().preprocess(image)

    Image.new("RGB", (640, 320), "red").save(tmp_path / "a.jpg")
    sparing = Sparing()
    encode([ImageItem(tmp_path / "a.jpg")], store, sparing)
    assert sparing.seen == ((80, 40),)


def test_progress_moves_every_few_photos_if_the_network_runs_them_one_by_one(items, store, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra onnx)")
    steps = {"by one": list[int](), "together": list[int]()}
    for name, content in {"by one": dynamically_quantised(), "together": mean_colour()}.items():
        (tmp_path / f"{name}.onnx").write_bytes(content)
        encoder = load_encoder(f"onnx:{tmp_path / name}.onnx", preprocessing={"size": 8})
        with listening(lambda _, n_done, total, done=steps[name]: done.append(n_done)):
            encode_to_store(items, encoder, store.with_name(name))
    assert steps == {"by one": [*range(4, 30, 4), 30], "together": [30]}
    assert len(list((tmp_path / "by one").glob("*.parquet"))) == len(list((tmp_path / "together").glob("*.parquet")))


def test_progress_goes_to_standard_error(items, store, capsys):
    encode(items, store, progress=True)
    encode(items, store, progress=True)
    shown = capsys.readouterr()
    assert shown.out == ""
    assert "encoding" in shown.err
    assert "30/30" in shown.err
    assert "images/s" in shown.err
    assert "checking" in shown.err


# -- interrupted ---------------------------------------------------------------------------------------


class Interrupted(TinyEncoder):
    def __init__(self, n_batches):
        super().__init__()
        self.n_batches = n_batches

    def encode_images(self, batch):
        vectors = super().encode_images(batch)
        if len(self.batches) > self.n_batches:
            raise KeyboardInterrupt
        return vectors


@pytest.mark.parametrize("n_batches", range(8))
def test_an_interrupt_loses_no_whole_batch_and_the_rest_follows(items, store, n_batches):
    with pytest.raises(KeyboardInterrupt):
        encode(items, store, Interrupted(n_batches))
    EmbeddingStore(store).verify()
    assert len(EmbeddingStore(store)) == 4 * n_batches
    assert encode(items, store).n_reused == 4 * n_batches
    whole = store.with_name("whole")
    encode(items, whole)
    assert vectors(store) == vectors(whole)


class PowerCut(BaseException):
    """Nothing is written any more, whatever the program tries."""


def cut_power_after(monkeypatch, n_writes):
    done = []
    write = manifest.write_bytes

    def cut(path, content, error):
        if len(done) >= n_writes:
            path.with_name(f".{path.name}.tmp").write_bytes(bytes(content[: len(content) // 2]))
            raise PowerCut
        done.append(path)
        write(path, content, error)

    monkeypatch.setattr("hcep.embeddings.store.manifest.write_bytes", cut)


@pytest.mark.parametrize("n_writes", range(9))
def test_a_crash_at_every_write_of_a_first_run(items, store, monkeypatch, n_writes):
    with monkeypatch.context() as patched:
        cut_power_after(patched, n_writes)
        with pytest.raises(PowerCut):
            encode(items, store)
    encode(items, store)
    whole = store.with_name("whole")
    encode(items, whole)
    assert contents(store) == contents(whole)


@pytest.mark.parametrize("n_writes", range(6))
def test_a_crash_at_every_write_of_a_run_over_changed_images(images, items, store, monkeypatch, n_writes):
    encode(items, store)
    for item in items[::7]:
        Image.new("RGB", (5, 5), "red").save(item.path)
    Image.new("RGB", (5, 5), "blue").save(images / "cat" / "0000a.png")
    items[2].path.write_bytes(b"no longer an image")
    whole = store.with_name("whole")
    shutil.copytree(store, whole)
    with monkeypatch.context() as patched:
        cut_power_after(patched, n_writes)
        with pytest.raises(PowerCut):
            encode(folder_items(images), store)
    EmbeddingStore(store).verify()
    encode(folder_items(images), store)
    encode(folder_items(images), whole)
    EmbeddingStore(store).verify()
    assert vectors(store) == vectors(whole)
    assert EmbeddingStore(store).skipped == EmbeddingStore(whole).skipped


def killed_after(command, seconds, store=None):
    """Start a program, wait until it encodes, or has a shard more, and end it with SIGKILL a moment later; its code."""
    before = len(list(store.glob("shard-*"))) if store else 0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout.readline() == "encoding\n"
        while store and process.poll() is None and len(list(store.glob("shard-*"))) <= before:
            time.sleep(0.02)
        time.sleep(seconds)
        process.kill()
    return process.returncode


@pytest.mark.slow
def test_kill_9_again_and_again(tmp_path, store):
    items = make_images(tmp_path / "images", 400)
    items[37].path.write_bytes(b"no image")
    # So slow that it cannot be done within all the moments together, on any machine.
    command = [sys.executable, TINY, tmp_path / "images", store, "0.06"]
    moments = random.Random(0)
    assert [killed_after(command, moments.uniform(0.0, 0.4)) for _ in range(10)] == [-9] * 10
    assert 0 < len(EmbeddingStore(store)) < 399
    encode(items, store)
    whole = store.with_name("whole")
    encode(items, whole)
    assert contents(store) == contents(whole)


ENCODE_JPEGS = """
import sys
import time
from pathlib import Path
import pyarrow.parquet  # what takes long to load without bytecode
from hcep.embeddings.encoders import load_encoder
from hcep.embeddings.store.encoding import encode_to_store
from tests.embeddings.tiny import folder_items

encoder = load_encoder(f"onnx:{sys.argv[1]}", preprocessing="efficientnet-lite2")


class Slowly:
    def __getattr__(self, name):
        return getattr(encoder, name)

    def encode_on_one_core(self, batch):
        time.sleep(float(sys.argv[4]))
        return encoder.encode_on_one_core(batch)


assert encoder.has_one_core
print("encoding", flush=True)
encode_to_store(folder_items(Path(sys.argv[2])), Slowly(), sys.argv[3], batch_size=8, shard_size=8)
"""


@pytest.mark.slow
def test_kill_9_with_a_real_encoder(store, monkeypatch):
    pytest.importorskip("onnxruntime")
    model, images = shared_file("encoders/efficientnet_lite2.onnx"), shared_file("data/imagenette_images/train")
    command = [sys.executable, "-c", ENCODE_JPEGS, model, images]
    monkeypatch.chdir(Path(__file__).parents[3])  # where the program finds `tests`
    moments = random.Random(0)
    # 25 batches, two at a time, at a second each: each run is ended after its first and long before the last.
    codes = [killed_after([*command, store, "1.0"], moments.uniform(0.0, 1.5), store) for _ in range(3)]
    assert codes == [-9] * 3
    assert 0 < len(EmbeddingStore(store)) < 200
    subprocess.run([*command, store, "0"], check=True, capture_output=True)
    subprocess.run([*command, store.with_name("whole"), "0"], check=True, capture_output=True)
    assert len(EmbeddingStore(store)) == 200
    assert contents(store) == contents(store.with_name("whole"))


def test_two_runs_at_once_are_refused(items, store):
    record = EncoderRecord("tiny", "tiny-1", {})
    with (
        StoreWriter.open(store, record, 12, "float16"),
        pytest.raises(StoreError, match=r"another run is writing to .*store': wait for it or stop it"),
    ):
        encode(items, store)
    assert encode(items, store).n_encoded == 30


def test_a_file_system_without_locks_can_be_written_to(items, store, monkeypatch, caplog):
    def no_locks(descriptor, operation):
        raise OSError("no locks here")

    monkeypatch.setattr("fcntl.flock", no_locks)
    with caplog.at_level(logging.INFO, logger="hcep"):
        assert encode(items, store).n_encoded == 30
    assert "cannot be locked" in caplog.text


def test_a_platform_without_locks(items, store, monkeypatch):
    monkeypatch.setitem(sys.modules, "fcntl", None)
    assert encode(items, store).n_encoded == 30


class FullDisk:
    """Takes the place of fsync; the disk is full when the second shard is written."""

    n_calls = 0

    def __call__(self, descriptor):
        self.n_calls += 1
        if self.n_calls > 6:
            raise OSError(28, "No space left on device")


def test_a_full_disk_names_the_file_and_keeps_what_was_committed(items, store, monkeypatch):
    with monkeypatch.context() as patched:
        patched.setattr("os.fsync", FullDisk())
        with pytest.raises(StoreError, match=r"cannot write '.*shard-00000\d.parquet': No space left on device"):
            encode(items, store)
    EmbeddingStore(store).verify()
    assert encode(items, store).n_reused == 8


# -- images that cannot be used --------------------------------------------------------------------------


def test_broken_images_are_listed_once_and_not_decoded_again(items, store, monkeypatch):
    items[3].path.write_bytes(b"text")
    items[11].path.write_bytes(b"")
    first = encode(items, store)
    assert (first.n_encoded, first.n_skipped) == (28, 2)
    assert reasons(first) == {
        items[3].path.name: "not an image or not in a format that can be read",
        items[11].path.name: "empty file",
    }
    before = contents(store)
    with monkeypatch.context() as patched:
        patched.setattr("hcep.embeddings.store.encoding.open_image", None)
        second = encode(items, store)
    assert (second.n_encoded, second.n_reused) == (0, 28)
    assert reasons(second) == reasons(first)
    assert contents(store) == before
    assert {image.id for image in EmbeddingStore(store).skipped} == {items[3].id, items[11].id}


def test_a_repaired_image_is_encoded_and_leaves_the_list(items, store):
    items[3].path.write_bytes(b"text")
    encode(items, store)
    Image.new("RGB", (5, 5), "red").save(items[3].path)
    assert encode(items, store).n_encoded == 1
    assert EmbeddingStore(store).skipped == ()
    assert len(EmbeddingStore(store)) == 30


def test_skipped_images_are_tried_again_without_resume(items, store):
    class Choosy(TinyEncoder):
        def preprocess(self, image):
            raise ValueError("not today")

    assert encode(items[:2], store, Choosy()).skipped[0].reason == "preprocessing failed: not today"
    assert encode(items[:2], store).n_encoded == 0
    assert encode(items[:2], store, resume=False).n_encoded == 2
    assert EmbeddingStore(store).skipped == ()


def test_an_image_that_broke_loses_its_vector_an_unreadable_one_keeps_it(items, store):
    encode(items, store)
    items[3].path.write_bytes(b"text")
    items[4].path.unlink()
    report = encode(items, store)
    assert (report.n_reused, report.n_skipped) == (28, 2)
    assert items[3].id not in vectors(store)
    assert items[4].id in vectors(store)
    assert {image.id for image in EmbeddingStore(store).skipped} == {items[3].id, items[4].id}


def test_a_file_that_comes_back_is_no_longer_listed(items, store):
    encode(items, store)
    hidden = items[4].path.rename(items[4].path.with_suffix(".hidden"))
    encode(items, store)
    assert len(EmbeddingStore(store).skipped) == 1
    hidden.rename(items[4].path)
    encode(items, store)
    assert EmbeddingStore(store).skipped == ()


def test_strict_stops_at_the_first_bad_image_and_loses_nothing(items, store):
    items[14].path.write_bytes(b"text")
    with pytest.raises(StoreError, match=r"0028\.png' cannot be encoded: not an image.*strict is on"):
        encode(items, store, strict=True)
    assert len(EmbeddingStore(store)) == 12
    assert encode(items, store).n_reused == 12
    whole = store.with_name("whole")
    encode(items, whole)
    assert vectors(store) == vectors(whole)
    with pytest.raises(StoreError, match=r"0028\.png' cannot be encoded"):
        encode(items, store, strict=True)


def test_an_encoder_that_returns_nan(items, store):
    class SometimesNaN(TinyEncoder):
        def encode_images(self, batch):
            vectors = super().encode_images(batch)
            vectors[1::4] = np.nan
            return vectors

    report = encode(items[:8], store, SometimesNaN())
    assert (report.n_encoded, report.n_skipped) == (6, 2)
    assert set(reasons(report).values()) == {"the encoder returned NaN or infinite values"}
    with pytest.raises(StoreError, match="cannot be encoded: the encoder returned NaN"):
        encode(items[:8], store.with_name("strict"), SometimesNaN(), strict=True)


def test_names_with_newlines_accents_and_bytes_that_are_no_text(tmp_path, store):
    folder = os.fsencode(tmp_path / "cat")
    os.mkdir(folder)
    names = [b"two\nlines.png", "ÄÖ 猫 🐈.png".encode(), b"latin-\xe9.png", b"-rf.png", b" .png"]
    for name in names:
        Image.new("RGB", (3, 3)).save(tmp_path / "plain.png")
        os.rename(tmp_path / "plain.png", os.path.join(folder, name))
    items = [ImageItem(Path(os.fsdecode(os.path.join(folder, name)))) for name in names]
    assert encode(items, store).n_encoded == 5
    assert encode(items, store).n_reused == 5
    assert EmbeddingStore(store).ids[2].endswith("latin-\\xe9.png")


# -- what does not fit -------------------------------------------------------------------------------------


def test_another_encoder_is_refused_and_nothing_changes(items, store):
    encode(items, store)
    before = contents(store)
    with pytest.raises(
        StoreError, match=r"store' come from encoder 'tiny' \(fingerprint tiny-1\), not from 'tiny' \(ti"
    ):
        encode(items, store, TinyEncoder("tiny-2"))
    with pytest.raises(StoreError, match="float16 vectors of 12 dimensions, not float32 of 12; use the same dtype"):
        encode(items, store, dtype="float32")
    assert contents(store) == before


def test_values_too_large_for_half_precision(items, store):
    class Large(TinyEncoder):
        def encode_images(self, batch):
            return super().encode_images(batch) * np.float32(1e5)

    with pytest.raises(
        StoreError, match=r"vector of 'cat/0000.png' reaches .*, more than float16 .* dtype=\"float32\""
    ):
        encode(items, store, Large())
    assert encode(items, store.with_name("single"), Large(), dtype="float32").n_encoded == 30


def test_an_encoder_with_a_wrong_number_of_dimensions_is_refused(items, store):
    class Wrong(TinyEncoder):
        n_dims = 7

    with pytest.raises(StoreError, match=r"encoder 'tiny' returned vectors of shape \(4, 12\), expected \(4, 7\)"):
        encode(items, store, Wrong())


def test_a_preprocessing_of_changing_shapes(items, store):
    class Wrong(TinyEncoder):
        def preprocess(self, image):
            return np.zeros((2, 2 + image.width % 2, 3), np.float32)

    Image.new("RGB", (6, 6)).save(items[1].path)
    with pytest.raises(StoreError, match=r"'tiny' preprocesses images to different shapes: \(2, 2, 3\), \(2, 3, 3\)"):
        encode(items, store, Wrong())


def test_a_preprocessing_that_is_not_json(items, store):
    encoder = TinyEncoder()
    encoder.preprocessing = {"size": {1, 2}}
    with pytest.raises(StoreError, match="values that JSON can hold: Object of type set"):
        encode(items, store, encoder)


@pytest.mark.parametrize("name", ["batch_size", "shard_size", "n_workers"])
def test_sizes_must_be_positive(items, store, name):
    with pytest.raises(StoreError, match=f"{name} must be at least 1, got 0"):
        encode(items, store, **{name: 0})


def test_an_unknown_precision(items, store):
    with pytest.raises(StoreError, match='dtype must be "float16" or "float32", got \'float64\''):
        encode(items, store, dtype="float64")


def test_ids_that_are_not_unique(items, store):
    with pytest.raises(StoreError, match=r"1 ids are not unique: 'cat/0000\.png'; give each image its own"):
        encode([*items, items[0]], store)


def test_labels_that_are_not_text_are_refused(items, store):
    with pytest.raises(StoreError, match=r"labels must be strings or None, got 3 \(int\); use str\(\)"):
        encode([(items[0].path, 3)], store)


def test_a_folder_that_cannot_be_made(items, tmp_path):
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=r"cannot create the folder .*Not a directory"):
        encode(items, tmp_path / "file" / "store")


def test_shards_without_a_manifest_are_refused(items, store):
    store.mkdir()
    (store / "shard-000000.parquet").write_bytes(b"precious")
    with pytest.raises(StoreError, match=r"holds 'shard-000000.parquet' but no manifest.json: give another folder"):
        encode(items, store)
    assert (store / "shard-000000.parquet").read_bytes() == b"precious"


def test_the_manifest_of_another_program_is_refused(items, store):
    store.mkdir()
    (store / "manifest.json").write_text('{"name": "my web page"}')
    with pytest.raises(StoreError, match=r"manifest.json' is not an embedding store"):
        encode(items, store, resume=False)


def test_other_files_in_the_folder_stay(items, store):
    store.mkdir()
    for name in ("notes.txt", "vectors-final.npy", ".other.tmp", "shard-1.parquet"):
        (store / name).write_text("mine")
    encode(items, store)
    encode(items, store, resume=False)
    assert {name for name, content in contents(store).items() if content == b"mine"} == {
        "notes.txt",
        "vectors-final.npy",
        ".other.tmp",
        "shard-1.parquet",
    }


def test_a_damaged_shard_stops_the_run_until_it_is_repaired(items, store):
    encode(items, store)
    before = vectors(store)
    shard = store / "shard-000001.parquet"
    shard.write_bytes(shard.read_bytes()[:-100])
    with pytest.raises(StoreError, match=r"shard-000001.parquet' is damaged: .* bytes instead of"):
        encode(items, store)
    assert EmbeddingStore(store).repair() == ["shard-000001.parquet"]
    assert encode(items, store).n_encoded == 8
    assert vectors(store) == before


def test_the_lock_is_gone_with_the_run(items, store):
    encode(items, store)
    with manifest.locked(store), pytest.raises(StoreError, match="another run is writing"), manifest.locked(store):
        pass
    assert encode_to_store(items, TinyEncoder(), store).n_reused == 30
