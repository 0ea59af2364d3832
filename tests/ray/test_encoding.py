"""A shard at a time, without a cluster: what an actor does, and what a plan is."""

from __future__ import annotations

import json
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hcep.datasets import encode_images
from hcep.embeddings import EmbeddingStore
from hcep.embeddings.protocol import EncoderRecord
from hcep.embeddings.vectors import StoreError
from hcep.ray.encoding import ATTEMPTS, EncodeShard, Plan, _listed, _opened, kills
from hcep.ray.places import Place
from tests.ray.counting_encoder import DEADLY, CountingEncoder

SIZES = {"batch_size": 2, "shard_size": 4}


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Ten photos of two classes."""
    rng = np.random.default_rng(0)
    for k in range(10):
        path = tmp_path / "photos" / "ab"[k % 2] / f"{k}.png"
        path.parent.mkdir(parents=True, exist_ok=True)
        Image.fromarray(rng.integers(0, 200, (8, 8, 3), dtype=np.uint8)).save(path)
    return tmp_path / "photos"


@pytest.fixture
def make(tmp_path: Path) -> partial[CountingEncoder]:
    return partial(CountingEncoder, str(tmp_path / "log"))


def record_of(make: partial[CountingEncoder]) -> EncoderRecord:
    encoder = make()
    return EncoderRecord(encoder.name, encoder.fingerprint, dict(encoder.preprocessing))


def encode_here(photos: Path | str, make: partial[CountingEncoder], store: Path | str, n_shards: int | None = None):
    """What `hcep.ray.encode` does, by one actor in this process; only the first shards, if asked."""
    place = Place.of(store)
    listed = _listed(photos)
    with _opened(place, record_of(make), 6, "float16", True) as (manifest, known):
        fresh = [image for image in listed if image.id not in known]
        plan = Plan.made(place, manifest, fresh, **SIZES)
        actor = EncodeShard(make, plan, record_of(make), dtype="float16", batch_size=2, strict=False)
        for number in plan.left()[:n_shards]:
            actor({"number": number})
        return plan.publish(manifest) if n_shards is None else plan


def files(store: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in store.iterdir()}


def test_the_same_bytes_as_one_process(photos: Path, make, tmp_path: Path) -> None:
    encode_images(photos, make(), tmp_path / "one", **SIZES)
    assert encode_here(photos, make, tmp_path / "many") == ()
    assert files(tmp_path / "one") == files(tmp_path / "many")
    EmbeddingStore(tmp_path / "many").verify()


def test_a_run_that_was_killed_goes_on_where_it_was(photos: Path, make, tmp_path: Path) -> None:
    encode_here(photos, make, tmp_path / "store", n_shards=2)
    assert len(EmbeddingStore(tmp_path / "store")) == 0  # not listed before all are there
    n_batches = len((tmp_path / "log").read_text().splitlines())
    encode_here(photos, make, tmp_path / "store")
    assert len((tmp_path / "log").read_text().splitlines()) == n_batches + 1
    encode_images(photos, make(), tmp_path / "one", **SIZES)
    assert files(tmp_path / "one") == files(tmp_path / "store")


def test_a_shard_that_is_there_is_not_encoded_again(photos: Path, make, tmp_path: Path) -> None:
    plan = encode_here(photos, make, tmp_path / "store", n_shards=1)
    before = (tmp_path / "log").read_text()
    actor = EncodeShard(make, plan, record_of(make), dtype="float16", batch_size=2, strict=False)
    assert actor({"number": 0}) == {"number": 0, "n_images": 4}
    assert (tmp_path / "log").read_text() == before


def test_new_images_make_a_new_plan_and_drop_the_old_one(photos: Path, make, tmp_path: Path) -> None:
    old = encode_here(photos, make, tmp_path / "store", n_shards=1)
    Image.new("RGB", (8, 8), "green").save(photos / "a" / "0new.png")
    encode_here(photos, make, tmp_path / "store")
    assert not Path(old.staging.address).exists()
    assert len(EmbeddingStore(tmp_path / "store")) == 11


def test_images_are_added_to_what_a_store_holds(photos: Path, make, tmp_path: Path) -> None:
    encode_images(photos, make(), tmp_path / "store", **SIZES)
    Image.new("RGB", (8, 8), "green").save(photos / "b" / "new.png")
    encode_here(photos, make, tmp_path / "store")
    store = EmbeddingStore(tmp_path / "store")
    store.verify()
    assert store.ids[-1] == "b/new.png"
    assert len(store) == len(set(store.ids)) == 11


def test_bad_images_are_skipped_with_their_reason(photos: Path, make, tmp_path: Path) -> None:
    (photos / "a" / "2.png").write_bytes(b"no image")
    skipped = encode_here(photos, make, tmp_path / "store")
    assert [(one.id, one.reason) for one in skipped] == [
        ("a/2.png", "not an image or not in a format that can be read")
    ]
    assert skipped[0].path == str(photos / "a" / "2.png")
    encode_images(photos, make(), tmp_path / "one", **SIZES)
    one, many = EmbeddingStore(tmp_path / "one"), EmbeddingStore(tmp_path / "store")
    assert one.ids.tolist() == many.ids.tolist()
    np.testing.assert_array_equal(one.to_numpy(), many.to_numpy())


def test_an_image_that_kills_is_skipped_after_some_attempts(photos: Path, make, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), DEADLY).save(photos / "a" / "2.png")
    plan = encode_here(photos, make, tmp_path / "store", n_shards=0)
    plan.staging.write("0.attempts", str(ATTEMPTS).encode())  # so often an actor died of it
    skipped = encode_here(photos, make, tmp_path / "store")
    assert [(one.id, one.reason) for one in skipped] == [("a/2.png", "the worker that opened it crashed")]
    assert len(EmbeddingStore(tmp_path / "store")) == 9


def test_only_a_deadly_image_kills(photos: Path, make, tmp_path: Path) -> None:
    Image.new("RGB", (8, 8), DEADLY).save(tmp_path / "deadly.png")
    (tmp_path / "bad.png").write_bytes(b"no image")
    assert kills(make(), tmp_path / "deadly.png")
    assert not kills(make(), tmp_path / "bad.png")
    assert not kills(make(), photos / "a" / "0.png")


def test_a_machine_with_another_encoder_is_refused(photos: Path, make, tmp_path: Path) -> None:
    plan = encode_here(photos, make, tmp_path / "store", n_shards=0)
    other = EncoderRecord("test:counting", "d" * 64, {})
    with pytest.raises(StoreError, match=r"differs from the driver's \(another fingerprint\)"):
        EncodeShard(make, plan, other, dtype="float16", batch_size=2, strict=False)


def test_images_and_store_at_urls(photos: Path, make, tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    memory = fsspec.filesystem("memory")
    memory.store.clear()
    memory.put(str(photos), "/bucket/photos", recursive=True)
    memory.pipe_file("/bucket/photos/b/broken.png", b"no image")
    skipped = encode_here("memory://bucket/photos", make, "memory://bucket/store")
    assert [(one.id, one.path) for one in skipped] == [("b/broken.png", "memory://bucket/photos/b/broken.png")]
    memory.get("/bucket/store", str(tmp_path / "copy"), recursive=True)
    store = EmbeddingStore(tmp_path / "copy")
    store.verify()
    encode_images(photos, make(), tmp_path / "one", **SIZES)
    np.testing.assert_array_equal(
        np.sort(store.to_numpy(), axis=0), np.sort(EmbeddingStore(tmp_path / "one").to_numpy(), axis=0)
    )
    assert store.paths[0] == "memory://bucket/photos/a/0.png"
    assert encode_here("memory://bucket/photos", make, "memory://bucket/store") == ()  # nothing is new
    assert json.loads(memory.cat("/bucket/store/manifest.json"))["n_images"] == 10


def test_a_store_of_another_encoder_at_a_url(photos: Path, make) -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    fsspec.filesystem("memory").store.clear()
    encode_here(photos, make, "memory://bucket/store")
    other = EncoderRecord("other", "d" * 64, {})
    with (
        pytest.raises(StoreError, match="come from encoder 'test:counting'"),
        _opened(Place.of("memory://bucket/store"), other, 6, "float16", True),
    ):
        pass
