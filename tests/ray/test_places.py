"""Folders by path and URL: what is written is whole, what is read is what was written."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from hcep.embeddings.vectors import StoreError
from hcep.errors import HCEPError
from hcep.ray.encoding import list_images
from hcep.ray.places import Place, is_url


@pytest.fixture(params=["path", "file", "memory"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Place:
    if request.param == "path":
        return Place.of(tmp_path / "store")
    if request.param == "file":
        return Place.of(f"file://{tmp_path}/store")
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    fsspec.filesystem("memory").store.clear()
    return Place.of("memory://bucket/store")


def test_files_are_written_read_listed_and_removed(place: Place) -> None:
    assert place.read("a.json") is None
    assert place.sizes() == {}
    place.write("a.json", b"123")
    (place / "below").write("b.bin", b"4567")
    assert place.read("a.json") == b"123"
    assert place.sizes() == {"a.json": 3, "below/b.bin": 4}
    (place / "below").publish("b.bin", place)
    (place / "below").remove()
    (place / "below").remove()
    assert place.sizes() == {"a.json": 3, "b.bin": 4}
    with place.at_hand("b.bin") as folder:
        assert (folder / "b.bin").read_bytes() == b"4567"


def test_a_place_is_sent_by_its_address(place: Place) -> None:
    place.write("a", b"1")
    assert pickle.loads(pickle.dumps(place)) == place


@pytest.mark.parametrize(
    ("where", "address", "is_local"),
    [
        ("s3://bucket/store/", "s3://bucket/store", False),
        (Path("s3://bucket/store"), "s3://bucket/store", False),  # a path object has swallowed a slash
        ("file:///data/store", "/data/store", True),
        ("/data/store", "/data/store", True),
    ],
)
def test_addresses(where: str | Path, address: str, is_local: bool) -> None:
    assert Place.of(where).address == address
    assert (Place.of(where).local is not None) == is_local
    assert is_url("C/data") is False


def test_an_unknown_protocol_is_refused() -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed")
    with pytest.raises(HCEPError, match="cannot open 'nosuch://bucket': Protocol not known"):
        Place.of("nosuch://bucket").read("x")


def test_images_at_a_url() -> None:
    fsspec = pytest.importorskip("fsspec", reason="fsspec is not installed")
    fsspec.filesystem("memory").store.clear()
    place = Place.of("memory://photos")
    with pytest.raises(StoreError, match="there are no images at 'memory://photos'"):
        list_images(place)
    for name in ("cat/1.jpg", "cat/2.PNG", "dog/3.jpg", "notes.txt"):
        (place / name.rpartition("/")[0] if "/" in name else place).write(name.rpartition("/")[2], b"x")
    found = [(one.id, one.label, one.split) for one in list_images(place)]
    assert found == [("cat/1.jpg", "cat", None), ("cat/2.PNG", "cat", None), ("dog/3.jpg", "dog", None)]
    assert list_images(place)[0].path == "memory://photos/cat/1.jpg"
    splits = Place.of("memory://splits")
    (splits / "train/cat").write("1.jpg", b"x")
    (splits / "valid/dog").write("2.jpg", b"x")
    found = [(one.id, one.label, one.split) for one in list_images(splits)]
    assert found == [("train/cat/1.jpg", "cat", "train"), ("valid/dog/2.jpg", "dog", "val")]
