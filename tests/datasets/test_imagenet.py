"""ImageNet as published: the ways in which the labels of val are told."""

import numpy as np
import pytest
from scipy.io import savemat

from hcep.datasets import read_images
from hcep.errors import DatasetError
from hcep.hierarchy.imagenet import imagenet_classes
from tests.datasets.tiny_files import VAL, VAL_LABELS, imagenet, touch, write

DEVKIT = "ILSVRC2012_devkit_t12/data"
TRUTH = f"{DEVKIT}/ILSVRC2012_validation_ground_truth.txt"
SORTED_WORDS = "n01440764 tench, Tinca tinca\nn02119789 kit fox, Vulpes macrotis\n"


@pytest.fixture
def root(tmp_path):
    return imagenet(tmp_path / "imagenet")


def val_labels(root):
    dataset = read_images(root, split="val")
    assert dataset.layout == "imagenet"
    assert [item.path.name for item in dataset] == VAL
    return list(dataset.labels)


def write_solution(root):
    boxes = ["n01440764 85 1 499 272", "n02119789 131 0 499 254 n02119789 4 5 6 7", "n01440764 0 0 9 9"]
    rows = [f"{name.removesuffix('.JPEG')},{box}" for name, box in zip(VAL, boxes, strict=True)]
    write(root, "LOC_val_solution.csv", "ImageId,PredictionString\n" + "\n".join(reversed(rows)) + "\n")


def write_meta(root, name="meta.mat"):
    fields = [("ILSVRC2012_ID", "O"), ("WNID", "O"), ("words", "O"), ("gloss", "O"), ("num_children", "O")]
    rows = [
        (1, "n02119789", "kit fox", "small", 0),
        (2, "n01440764", "tench", "fish", 0),
        (3, "n00001740", "entity", "", 2),
    ]
    savemat(root / DEVKIT / name, {"synsets": np.array(rows, dtype=fields)[:, None]})


def test_train_val_and_test(root):
    write_solution(root)
    write(root, "LOC_synset_mapping.txt", SORTED_WORDS)
    dataset = read_images(root)
    assert repr(dataset) == "ImageDataset(8 images, 2 classes, layout 'imagenet', train 4, val 3, test 1)"
    assert dataset.split("train").labels == ("n01440764",) * 2 + ("n02119789",) * 2
    assert dataset.split("test").labels == (None,)


def test_kaggle_solution(root):
    write_solution(root)
    assert val_labels(root) == VAL_LABELS


def test_kaggle_folders(root, tmp_path):
    kaggle = tmp_path / "kaggle"
    (kaggle / "ILSVRC" / "Data").mkdir(parents=True)
    root.rename(kaggle / "ILSVRC" / "Data" / "CLS-LOC")
    write_solution(kaggle)
    assert val_labels(kaggle) == VAL_LABELS


def test_folders_named_like_the_archives(tmp_path):
    root = touch(tmp_path, "ILSVRC2012_img_train/n01440764/a.JPEG", *(f"ILSVRC2012_img_val/{name}" for name in VAL))
    write_solution(root)
    assert val_labels(root) == VAL_LABELS


@pytest.mark.parametrize("folder", ["", "val/"])
def test_val_txt_with_wordnet_ids(root, folder):
    write(root, f"{folder}val.txt", "".join(f"val/{n} {label}\n" for n, label in zip(VAL, VAL_LABELS, strict=True)))
    assert val_labels(root) == VAL_LABELS


def test_val_txt_with_numbers_counts_in_imagenets_order(root):
    numbers = [imagenet_classes().index(label) for label in VAL_LABELS]
    write(root, "val.txt", "".join(f"{n} {number}\n" for n, number in zip(VAL, numbers, strict=True)))
    assert val_labels(root) == VAL_LABELS


def test_val_txt_with_numbers_counts_in_the_order_of_the_synset_file(root):
    write(root, "synset_words.txt", SORTED_WORDS)
    write(root, "val.txt", f"{VAL[0]} 0\n{VAL[1]} 1\n{VAL[2]} 0\n")
    assert val_labels(root) == VAL_LABELS


def test_val_without_train(root, tmp_path):
    lone = tmp_path / "lone"
    lone.mkdir()
    (root / "val").rename(lone / "val")
    write_solution(lone)
    assert val_labels(lone) == VAL_LABELS


def test_val_sorted_into_folders(tmp_path):
    dataset = read_images(touch(tmp_path, "train/n01440764/a.JPEG", "val/n01440764/b.JPEG"), layout="imagenet")
    assert dataset.labels == ("n01440764", "n01440764")


@pytest.mark.parametrize("name", ["meta.mat", "meta_clsloc.mat"])
def test_devkit_with_its_matlab_table(root, name):
    write(root, TRUTH, "2\n1\n2\n")
    write_meta(root, name)
    assert val_labels(root) == VAL_LABELS


def test_devkit_with_its_text_table(root):
    write(root, TRUTH, "2\n1\n2\n")
    write(root, f"{DEVKIT}/map_clsloc.txt", "n02119789 1 kit_fox\nn01440764 2 tench\n")
    assert val_labels(root) == VAL_LABELS


def test_devkit_with_a_synset_list_in_its_order(root):
    write(root, TRUTH, "2\n1\n2\n")
    write(root, "synset_words.txt", "n02119789 kit fox\nn01440764 tench\n")
    assert val_labels(root) == VAL_LABELS


def test_annotations_with_one_wordnet_id_per_line(root):
    write(root, "imagenet_2012_validation_synset_labels.txt", "\n".join(VAL_LABELS))
    assert val_labels(root) == VAL_LABELS


# -- what cannot be read -------------------------------------------------------------------------------


@pytest.mark.parametrize(("words", "said"), [(SORTED_WORDS, "is sorted"), ("", "beside it$")])
def test_devkit_numbers_are_not_read_in_alphabetical_order(root, words, said):
    write(root, TRUTH, "2\n1\n2\n")
    write(root, "synset_words.txt", words)
    with pytest.raises(
        DatasetError, match=f"devkit's class numbers, which are not in alphabetical order; put .*{said}"
    ):
        read_images(root)


def test_no_annotations(root):
    with pytest.raises(DatasetError, match=r"their labels were not found: looked for LOC_val_solution.csv, val.txt, "):
        read_images(root)
    assert len(read_images(root, split="train")) == 4


def test_annotated_but_absent(root):
    write_solution(root)
    (root / "val" / VAL[1]).unlink()
    with pytest.raises(DatasetError, match=r"1 of 3 files listed in '.*LOC_val_solution.csv' are not in '.*val'"):
        read_images(root)


def test_images_without_annotation(root):
    write(root, "val.txt", f"{VAL[0]} n01440764\n")
    with pytest.raises(DatasetError, match=r"2 of 3 images in '.*val' have no label in '.*val.txt': 'ILSVRC2012_val_"):
        read_images(root)


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        (
            "LOC_val_solution.csv",
            "ImageId,Boxes\na,b\n",
            "must have a column 'PredictionString', it has 'ImageId', 'Boxes'",
        ),
        ("LOC_val_solution.csv", "Image,PredictionString\na,b\n", "must have a column 'ImageId'"),
        ("val.txt", "only_a_name.JPEG\n", "must have lines of file name and class, got 'only_a_name.JPEG'"),
        ("val.txt", f"{VAL[0]} 1000\n", "has the class number '1000'; expected 0 to 999"),
        ("val.txt", f"{VAL[0]} tench\n", "names the class 'tench'; expected a WordNet id such as 'n01440764'"),
    ],
)
def test_annotations_of_another_form(root, name, text, message):
    write(root, name, text)
    with pytest.raises(DatasetError, match=message):
        read_images(root)


@pytest.mark.parametrize("line", ["4", "0", "tench"])
def test_devkit_numbers_out_of_range(root, line):
    write(root, TRUTH, f"1\n{line}\n2\n")
    write_meta(root)
    with pytest.raises(DatasetError, match=f"has the class number '{line}'; expected 1 to 3"):
        read_images(root)


def test_text_table_of_another_form(root):
    write(root, TRUTH, "1\n")
    write(root, "map_clsloc.txt", "n02119789 kit_fox\n")
    with pytest.raises(DatasetError, match=r"map_clsloc.txt' must have lines of WordNet id, number and name"):
        read_images(root)


def test_matlab_tables_of_another_form(root):
    write(root, TRUTH, "1\n")
    savemat(root / DEVKIT / "meta.mat", {"classes": [1, 2]})
    with pytest.raises(DatasetError, match=r"meta.mat' is not the devkit's table of synsets: 'synsets'"):
        read_images(root)
    write(root, f"{DEVKIT}/meta.mat", "no table of Matlab, but longer than the header of one: " * 9)
    with pytest.raises(DatasetError, match=r"meta.mat' is not the devkit's table of synsets: "):
        read_images(root)


def test_lists_that_are_not_text(root):
    (root / "val.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(DatasetError, match=r"val.txt' is not text in UTF-8"):
        read_images(root)


def test_not_imagenet(tmp_path):
    with pytest.raises(DatasetError, match=r"is not ImageNet: looked for train/<wnid>/ and a flat val/"):
        read_images(tmp_path, layout="imagenet")
