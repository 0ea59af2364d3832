"""A store is in step with its folder: what moved has its new label, what is gone is gone, and a fit says where not."""

import os

import numpy as np
import pytest
from PIL import Image

from hcep.datasets import encode_images, read_images
from hcep.embeddings import EmbeddingStore
from tests.embeddings.tiny import TinyEncoder


@pytest.fixture
def encoder():
    return TinyEncoder()


@pytest.fixture
def photos(tmp_path):
    for i, name in enumerate(["cat/a.png", "cat/b.png", "dog/c.png", "dog/d.png"]):
        (tmp_path / "photos" / name).parent.mkdir(parents=True, exist_ok=True)
        Image.new("RGB", (2, 2), (60 * i, 10, 10)).save(tmp_path / "photos" / name)
    return tmp_path / "photos"


def labelled(store):
    opened = EmbeddingStore(store)
    return dict(zip(opened.ids.tolist(), opened.labels.tolist(), strict=True))


def encode(photos, encoder, store, **options):
    return encode_images(read_images(photos), encoder, store, **{"remove_vanished": True, **options})


def test_a_moved_image_never_has_two_labels(photos, encoder, tmp_path):
    encode(photos, encoder, tmp_path / "s")
    before = EmbeddingStore(tmp_path / "s").select(labels="cat").to_numpy()
    os.rename(photos / "cat" / "b.png", photos / "dog" / "b.png")
    n_encoded = sum(encoder.batches)
    report = encode(photos, encoder, tmp_path / "s")
    assert labelled(tmp_path / "s") == {"cat/a.png": "cat", "dog/b.png": "dog", "dog/c.png": "dog", "dog/d.png": "dog"}
    assert (report.n_encoded, report.n_reused, report.n_relabelled, report.n_removed) == (0, 4, 1, 0)
    assert sum(encoder.batches) == n_encoded
    after = EmbeddingStore(tmp_path / "s")
    assert np.array_equal(after.to_numpy()[after.ids.tolist().index("dog/b.png")], before[1])


def test_a_deleted_image_is_removed_by_default(photos, encoder, tmp_path):
    encode(photos, encoder, tmp_path / "s")
    (photos / "dog" / "d.png").unlink()
    assert encode(photos, encoder, tmp_path / "kept", remove_vanished=False).n_removed == 0
    report = encode(photos, encoder, tmp_path / "s")
    assert (report.n_encoded, report.n_reused, report.n_relabelled, report.n_removed) == (0, 3, 0, 1)
    assert "dog/d.png" not in labelled(tmp_path / "s")


def test_images_of_another_folder_stay(photos, encoder, tmp_path):
    other = tmp_path / "other" / "fox"
    other.mkdir(parents=True)
    for i in range(2):
        Image.new("RGB", (2, 2), (5, 60 * i, 200)).save(other / f"{i}.png")
    encode(photos, encoder, tmp_path / "s")
    assert encode(tmp_path / "other", encoder, tmp_path / "s").n_removed == 0
    assert len(labelled(tmp_path / "s")) == 6
