"""Embedded texts in files: which array or column is read, and what is refused instead of guessed."""

import numpy as np
import pytest

from hcep import HCEPError
from hcep.embeddings import Embeddings, write_embeddings
from hcep.embeddings.texts import is_embedded, read_text_vectors, text_place
from tests.conftest import shared_file

NAMES, VECTORS = np.array(["cat", "dog", "car"]), np.arange(12.0).reshape(3, 4)


@pytest.fixture
def beside_images(tmp_path):
    """An .npz with images and, in other arrays, the texts of their classes."""
    images = {"embeddings": np.ones((6, 4)), "labels": np.array([0, 0, 1, 1, 2, 2])}
    texts = {"text_photo": VECTORS, "class_names": NAMES, "words": VECTORS + 1, "words_names": NAMES[::-1]}
    np.savez(tmp_path / "clip.npz", **images, **texts)
    return tmp_path / "clip.npz"


@pytest.mark.parametrize(
    ("arrays", "names", "first"),
    [
        (":text_photo", ["cat", "dog", "car"], 0.0),
        (":words", ["car", "dog", "cat"], 1.0),
        (":words,class_names", ["cat", "dog", "car"], 1.0),
    ],
)
def test_arrays_of_an_npz_are_named_after_a_colon(beside_images, arrays, names, first):
    read = read_text_vectors(f"{beside_images}{arrays}")
    assert read.names == tuple(names)
    assert read.vectors[0, 0] == first
    assert read.note.startswith("clip.npz: 3 texts, vectors from ")


def test_images_are_not_taken_for_texts_in_silence(beside_images):
    assert read_text_vectors(beside_images).note == "clip.npz: 6 texts, vectors from 'embeddings', names from 'labels'"


@pytest.mark.parametrize("suffix", [".npz", ".parquet"])
def test_files_of_labelled_embeddings_are_read(tmp_path, suffix):
    place = tmp_path / f"texts{suffix}"
    write_embeddings(place, Embeddings(VECTORS.astype(np.float32), labels=NAMES))
    read = read_text_vectors(place)
    assert is_embedded(place)
    assert read.names == tuple(NAMES)
    np.testing.assert_array_equal(read.vectors, VECTORS)


def test_a_table_names_its_columns(tmp_path):
    (tmp_path / "texts.csv").write_text("phrase,f0,f1\ncat,1.5,2\ndog,3,4.5\n", encoding="utf-8")
    assert read_text_vectors(f"{tmp_path / 'texts.csv'}:f*,phrase").names == ("cat", "dog")
    assert read_text_vectors(tmp_path / "texts.csv").note.endswith("labels from column 'phrase'")
    (tmp_path / "two.csv").write_text("phrase,kind,f0,f1\ncat,a,1.5,2\ndog,b,3,4.5\n", encoding="utf-8")
    with pytest.raises(HCEPError, match="--vocabulary FILE:VECTORS,NAMES"):
        read_text_vectors(tmp_path / "two.csv")


def test_integer_labels_count_class_names_and_not_rows(tmp_path):
    np.savez(tmp_path / "t.npz", embeddings=VECTORS, labels=np.array([2, 1, 0]), class_names=NAMES)
    assert read_text_vectors(tmp_path / "t.npz").names == ("car", "dog", "cat")


def test_a_colon_in_the_name_of_a_file_belongs_to_it(tmp_path):
    place = tmp_path / "a:b.npz"
    np.savez(place, embeddings=VECTORS, phrases=NAMES)
    assert text_place(place) == (place, None, None)
    assert read_text_vectors(place).names == tuple(NAMES)


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (":text_foto", "has no 'text_foto', only .* Near matches: 'text_photo'"),
        (":text_photo,labels", r"no list of names for the 3 vectors in 'text_photo'.*FILE:VECTORS,NAMES"),
        (":labels,class_names", "no list of names for the 6 vectors in 'labels'"),
        (":class_names,words_names", r"expected vectors of shape \(n_texts, n_dims\)"),
    ],
)
def test_wrong_arrays_are_refused(beside_images, arrays, message):
    with pytest.raises(HCEPError, match=message):
        read_text_vectors(f"{beside_images}{arrays}")


def test_other_dimensions_and_absent_files_are_refused(beside_images, tmp_path):
    with pytest.raises(HCEPError, match="the embeddings have 4 dimensions, the model 5"):
        read_text_vectors(f"{beside_images}:text_photo", n_dims=5)
    with pytest.raises(HCEPError, match=r"cannot read texts from .*nowhere\.npz': No such file"):
        read_text_vectors(tmp_path / "nowhere.npz:texts")


def test_damaged_files_are_refused(tmp_path):
    (tmp_path / "broken.npz").write_bytes(b"PK\x03\x04 and nothing else")
    with pytest.raises(HCEPError, match=r"broken\.npz"):
        read_text_vectors(tmp_path / "broken.npz")


def test_vocabularies_of_clip_are_read_as_they_are():
    file = shared_file("data/clip_vitb32/text_vocabularies.npz")
    names = read_text_vectors(f"{file}:lvis", 512).names
    assert len(names) == 1203
    assert names[0] == "aerosol_can"
    assert read_text_vectors(f"{file}:lvis,lvis_synsets").names[0] == "aerosol.n.02"
    with pytest.raises(HCEPError, match="has no array 'embeddings'; its arrays are 'lvis'"):
        read_text_vectors(file)
