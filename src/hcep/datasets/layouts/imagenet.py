"""ImageNet (ILSVRC) as published: train/<wnid>/, a flat val/ with an annotation file, and a flat test/."""

import re
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hcep._files import read_lines
from hcep.datasets.image_dataset import DatasetError, ImageDataset, choose_splits
from hcep.datasets.layouts import listing
from hcep.datasets.layouts.listing import LayoutOptions, class_of
from hcep.datasets.layouts.table import read_columns
from hcep.errors import quote, quoted
from hcep.hierarchy.imagenet import imagenet_classes

LOOKS_FOR = "train/<wnid>/ and a flat val/ with LOC_val_solution.csv, val.txt or *validation_ground_truth.txt"
#: Folders of the images below the given one: itself, or as in Kaggle's archive and the later devkits.
IMAGE_ROOTS = ("", "ILSVRC/Data/CLS-LOC", "Data/CLS-LOC")
#: Folders of annotation files below the given one.
ANNOTATION_ROOTS = ("", "val", "devkit/data", "ILSVRC2012_devkit_t12/data", "ILSVRC/devkit/data")
SPLIT_FOLDERS = {
    "train": ("train", "ILSVRC2012_img_train"),
    "val": ("val", "ILSVRC2012_img_val"),
    "test": ("test", "ILSVRC2012_img_test"),
}
#: One class per line, in the order of labels that count from 0.
SYNSET_FILES = ("LOC_synset_mapping.txt", "synset_words.txt", "synsets.txt")
#: The devkit's own numbers, which follow no alphabetical order.
DEVKIT_TEXT, DEVKIT_MATLAB = "map_clsloc.txt", ("meta.mat", "meta_clsloc.mat")
WNID = re.compile(r"n\d{8}")


def detect(source: Path) -> bool:
    """Whether val/ is flat, and there is a train/ with WordNet ids or an annotation file."""
    val = _split_folder(source, "val")
    if val is None or not listing.has_flat_images(source / val):
        return False
    train = _split_folder(source, "train")
    classes = listing.subfolders(source / train) if train else []
    if classes:
        return all(WNID.fullmatch(name) for name in classes)
    return _find_annotations(source) is not None


def read(source: Path, options: LayoutOptions) -> ImageDataset:
    """List the images; labels are WordNet ids, and a flat test split has none."""
    folders = {split: folder for split in SPLIT_FOLDERS if (folder := _split_folder(source, split))}
    if not folders:
        raise DatasetError(f"{str(source)!r} is not ImageNet: looked for {LOOKS_FOR}")
    chosen = [(split, folders[split]) for split in choose_splits(folders, options.split, source)]

    def label(split: str, files: list[str]) -> Sequence[str | None]:
        classes = [class_of(f) for f in files]
        if split != "val" or all(classes):  # many people sort val into folders with a script
            return classes
        annotations, folder = _find_annotations(source), source / folders[split]
        if annotations is None:
            raise DatasetError(
                f"the images in {str(folder)!r} are not in folders by class and their labels were not found: "
                f"looked for {', '.join(ANNOTATIONS)} in {str(source)!r} and, below it, " + quoted(ANNOTATION_ROOTS[1:])
            )
        read, file = annotations
        return listing.match_annotations(files, read(source, file), file, folder)

    return listing.list_splits(source, chosen, label)


def _split_folder(source: Path, split: str) -> str | None:
    places = [f"{root}/{name}".lstrip("/") for root in IMAGE_ROOTS for name in SPLIT_FOLDERS[split]]
    return next((place for place in places if (source / place).is_dir()), None)


def _find_annotations(source: Path) -> tuple[Callable[[Path, Path], dict[str, str]], Path] | None:
    places = ((read, pattern, source / root) for pattern, read in ANNOTATIONS.items() for root in ANNOTATION_ROOTS)
    return next(((read, file) for read, pattern, place in places for file in sorted(place.glob(pattern))), None)


def _find(source: Path, *names: str) -> Path | None:
    places = (source / root / name for name in names for root in ANNOTATION_ROOTS)
    return next((file for file in places if file.is_file()), None)


def _read_solution(source: Path, file: Path) -> dict[str, str]:
    """Kaggle's LOC_val_solution.csv, where the class is the first word of the boxes."""
    columns = read_columns(file)
    for column in ("ImageId", "PredictionString"):
        if column not in columns:
            raise DatasetError(f"{str(file)!r} must have a column {quote(column)}, it has {quoted(columns)}")
    boxes = zip(columns["ImageId"], columns["PredictionString"], strict=True)
    return {f"{image}.JPEG": _known_wnid(box.split(" ")[0], file) for image, box in boxes}


def _read_list(source: Path, file: Path) -> dict[str, str]:
    """val.txt, with a file name and a class: a WordNet id, or a number that counts from 0 in ImageNet's order."""
    labels = {}
    by_number: Mapping[int, str] | None = None
    for line in read_lines(file, DatasetError):
        name, _, label = line.rpartition(" ")
        if not name:
            raise DatasetError(f"{str(file)!r} must have lines of file name and class, got {quote(line)}")
        if label.isdecimal():
            by_number = by_number or dict(enumerate(_synsets(source) or imagenet_classes()))
            label = _numbered(label, by_number, file)
        labels[name.strip().removeprefix("val/")] = _known_wnid(label, file)
    return labels


def _read_ground_truth(source: Path, file: Path) -> dict[str, str]:
    """One class per line, for ILSVRC2012_val_00000001.JPEG and so on: a WordNet id, or the devkit's number from 1."""
    lines = read_lines(file, DatasetError)
    if lines and lines[0].isdecimal():
        by_number = _devkit_classes(source, file)
        lines = [_numbered(line, by_number, file) for line in lines]
    return {f"ILSVRC2012_val_{i:08d}.JPEG": _known_wnid(label, file) for i, label in enumerate(lines, start=1)}


#: Readers of annotation files by their names; they return the label of each file name.
ANNOTATIONS: dict[str, Callable[[Path, Path], dict[str, str]]] = {
    "LOC_val_solution.csv": _read_solution,
    "val.txt": _read_list,
    "*validation_ground_truth.txt": _read_ground_truth,
    "*validation_synset_labels.txt": _read_ground_truth,
}


def _known_wnid(label: str, file: Path) -> str:
    if not WNID.fullmatch(label):
        raise DatasetError(f"{str(file)!r} names the class {quote(label)}; expected a WordNet id such as 'n01440764'")
    return label


def _numbered(number: str, by_number: Mapping[int, str], file: Path) -> str:
    if not number.isdecimal() or len(number) > 9 or int(number) not in by_number:
        known = f"{min(by_number)} to {max(by_number)}" if by_number else "none, because the list of classes is empty"
        raise DatasetError(f"{str(file)!r} has the class number {quote(number)}; expected {known}")
    return by_number[int(number)]


def _synsets(source: Path) -> list[str]:
    """Classes in the order of the synset file; empty without one."""
    file = _find(source, *SYNSET_FILES)
    return [] if file is None else [line.split(" ")[0] for line in read_lines(file, DatasetError)]


def _devkit_classes(source: Path, truth: Path) -> dict[int, str]:
    text = _find(source, DEVKIT_TEXT)
    if text is not None:
        fields = [line.split() for line in read_lines(text, DatasetError)]  # n02119789 1 kit_fox
        if not all(len(f) > 1 and f[1].isdecimal() and len(f[1]) < 10 for f in fields):
            raise DatasetError(f"{str(text)!r} must have lines of WordNet id, number and name")
        return {int(f[1]): f[0] for f in fields}
    if file := _find(source, *DEVKIT_MATLAB):
        from scipy.io import loadmat
        from scipy.io.matlab import MatReadError

        try:
            synsets = loadmat(file, squeeze_me=True, variable_names=["synsets"])["synsets"]
            return {int(synset[0]): str(synset[1]) for synset in synsets}
        except (MatReadError, KeyError, IndexError, TypeError, ValueError, NotImplementedError) as error:
            raise DatasetError(f"{str(file)!r} is not the devkit's table of synsets: {error}") from None
    lines = _synsets(source)
    # The devkit starts with kit fox, n02119789; a sorted list, the order of val.txt, would mislabel every image.
    if not lines or lines == sorted(lines):
        raise DatasetError(
            f"{str(truth)!r} holds the devkit's class numbers, which are not in alphabetical order; put the devkit's "
            f"{' or '.join((DEVKIT_TEXT, *DEVKIT_MATLAB))} beside it"
            + (" (the synset list that was found is sorted)" * bool(lines))
        )
    return dict(enumerate(lines, start=1))
