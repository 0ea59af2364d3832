"""The right level for anyone's scores: tables of probabilities or logits into tables of answers, block by block."""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cached_property, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hcep._files import replacing
from hcep.classify.groups import from_log_evidence, log_evidence, with_rest
from hcep.classify.right_level import (
    ROUNDING,
    SURE,
    HeldOutLevels,
    Levels,
    among,
    class_indices,
    levels_of,
    promise,
    require_sure,
    softmax,
)
from hcep.datasets import find_hierarchy
from hcep.embeddings.tables import DELIMITERS, csv_options
from hcep.errors import HCEPError, near_matches, quoted
from hcep.explain.answer import doubt_about
from hcep.explain.possible import Possible, read_possible
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
#: A block of a table: the ids of its images, and their scores, (n_images, n_classes).
Block = tuple[list[str], Floats]
#: Usual names of the column of ids; the columns of a table with one row per image and class.
IDS = ("id", "image", "image_id", "file", "file_name", "filename", "filepath", "path")
CLASS, SCORES = ("class", "label", "species"), ("score", "probability", "confidence")
#: Numbers in memory at a time.
IN_MEMORY = 1 << 21
COLUMNS = {
    **{name: pa.string() for name in ("id", "answer", "answer_name")},
    "answer_probability": pa.float64(),
    **{name: pa.string() for name in ("rank", "class")},
    "class_probability": pa.float64(),
    "doubt": pa.string(),
}
OUTPUTS = (".csv", ".parquet", ".json")


class RolledUpTable(NamedTuple):
    """What `roll_up_table` wrote: numbers of images, of those with an answer, and with a class as answer."""

    n_images: int
    n_answered: int
    n_classes: int
    promise: str | None


def roll_up_table(
    scores: str | Path,
    output: str | Path,
    hierarchy: Hierarchy | str | Path | None = None,
    *,
    sure: float = SURE,
    temperature: float | None = None,
    labels: str | Path | None = None,
    only: Path | None = None,
    group: str | None = None,
    on_note: Callable[[str], object] = lambda note: None,
    **reading: Any,
) -> RolledUpTable:
    """Write the most specific concept that is sure enough for every image of a table of scores (see `hcep.roll_up`).

    Parameters
    ----------
    scores : .csv, .tsv or .parquet file of probabilities
        Either one row per image, with a column of ids and one column per class, or one row per image and class, with
        columns such as image, class and score, where the rows of an image follow each other. Classes that are not
        listed for an image are unassigned: their probability belongs to no concept.
    output : .csv, .parquet or .json file, replaced in one step
    hierarchy, reading : as `hcep.datasets.find_hierarchy` takes them
    sure : how sure answers are
    temperature : take the scores as logits, and divide them by this number before the softmax
    labels : .csv or .tsv file with the columns image and label, or a column of `scores`
        Labelled images turn the rule into a promise. Empty labels are ignored.
    only : a list of the classes or concepts that are possible (see `hcep.explain.possible.read_possible`)
    group : column of `scores` with the burst, observation or specimen of each photo; its rows follow each other
        Groups take the place of images: in the output, among the labels, and in the list (see `combine_photos`).
    on_note : called with each sentence about how the files were read
    """
    target = Path(output)
    if target.suffix not in OUTPUTS:
        raise HCEPError(f"--output: expected a name ending in {', '.join(OUTPUTS)}, got {str(output)!r}")
    require_sure(sure)
    is_file = labels is not None and Path(labels).suffix in DELIMITERS
    table = ScoreFile(Path(scores), None if is_file or labels is None else str(labels), group)
    what = "photos" if group is None else "groups of photos"
    tree = find_hierarchy(hierarchy, table.classes, on_note=on_note, **reading)
    if tree is None:
        raise HCEPError("--hierarchy: without concepts above the classes there is nothing to answer with but classes")
    classes = table.classes if table.is_wide else _with_leaves(table, tree)
    levels = _known_levels(table, tree, classes)
    possible = None if only is None else read_possible(only, tree, on_note)
    read = partial(_probabilities, table, classes, temperature, levels, possible)
    held_out = None
    if labels is not None:
        known = read_image_labels(Path(labels)) if is_file else table.labels()
        held_out = _calibrated(table, levels, read(), known, on_note)
        if promise(sure, held_out) is None:
            on_note(f"{len(held_out):,} labelled images are too few for a promise of {sure:g}")
    n_images = n_answered = n_classes = 0
    with replacing(target) as unfinished, _writer(unfinished, target.suffix) as write:
        for ids, values in read():
            columns = _answers(levels, classes, values, sure, held_out)
            write(pa.table({"id": ids, **columns}, schema=pa.schema(list(COLUMNS.items()))))
            n_images += len(ids)
            n_answered += sum(answer is not None for answer in columns["answer"])
            n_classes += sum(not doubt for doubt in columns["doubt"])
        if not n_images:
            raise HCEPError(f"{str(scores)!r} has no rows")
    return RolledUpTable(n_images, n_answered, n_classes, promise(sure, held_out, what))


def _answers(
    levels: Levels, classes: Sequence[str], values: Floats, sure: float, held_out: HeldOutLevels | None
) -> dict[str, list[Any]]:
    """The columns of a block, without the ids; an answer that is a class is called as in the table."""
    h, index = levels.hierarchy, np.argmax(values, axis=1)
    synsets, chosen = levels.choose(values, index, sure, held_out)
    own = {int(synset): label for synset, label in zip(levels.own, classes, strict=True)}
    ids = {i: h.class_of(h.ids[i]) for i in np.unique(synsets[synsets > 0]).tolist()}
    answers = [own.get(i, ids.get(i)) for i in synsets.tolist()]
    best = values[np.arange(len(values)), index]
    # A row without any probability has no likeliest class.
    labels = [classes[c] if p > 0.0 else None for c, p in zip(index.tolist(), best.tolist(), strict=True)]
    return {
        "answer": answers,
        "answer_name": [h.name(ids[i]) if i else None for i in synsets.tolist()],
        "answer_probability": [p if i else None for i, p in zip(synsets.tolist(), chosen.tolist(), strict=True)],
        "rank": [h.rank(ids[i]) if i else None for i in synsets.tolist()],
        "class": labels,
        "class_probability": best.tolist(),
        "doubt": [doubt_about(answer, str(label), None) for answer, label in zip(answers, labels, strict=True)],
    }


def _calibrated(
    table: ScoreFile,
    levels: Levels,
    blocks: Iterator[Block],
    labels: dict[str, str],
    on_note: Callable[[str], object],
) -> HeldOutLevels:
    """What the labelled images of a table say about its answers; only their rows are kept in memory."""
    rows: dict[str, Floats] = {}
    for ids, values in blocks:
        for i, key in enumerate(ids):
            if key in labels:
                if key in rows:
                    raise HCEPError(f"--labels: image {key!r} is there twice in {table.name!r}; which one is labelled?")
                rows[key] = values[i]
    missing = [key for key in labels if key not in rows]
    if not rows:
        example = f", such as {missing[0]!r}" if missing else ""
        raise HCEPError(f"--labels: none of the {len(labels):,} labelled images{example}, is in {table.name!r}")
    if missing:
        on_note(f"{len(missing):,} of {len(labels):,} labelled images are not in {table.name}: {quoted(missing, 3)}")
    values, own = np.array(list(rows.values())), class_indices(levels, [labels[key] for key in rows])
    return levels.held_out(values, np.argmax(values, axis=1), own)


def _probabilities(
    table: ScoreFile, classes: Sequence[str], temperature: float | None, levels: Levels, possible: Possible | None
) -> Iterator[Block]:
    """Blocks of checked probabilities of the classes, among those that are possible, by image or by group."""
    blocks = _possible(table, classes, temperature, levels, possible)
    return blocks if table.group is None else _combined(table, blocks, len(classes))


def _combined(table: ScoreFile, blocks: Iterator[Block], n_classes: int) -> Iterator[Block]:
    """Blocks of the probabilities of groups, whose photos follow each other."""
    n_rows = max(1, IN_MEMORY // n_classes)
    ids: list[str] = []
    groups: list[tuple[Floats, NDArray[np.bool_], int]] = []
    seen: set[int] = set()  # hashes, which need less memory than ids
    for keys, values in blocks:
        evidence = log_evidence(values)
        possible = with_rest(values) > 0.0
        for i, key in enumerate(keys):
            if not key:
                raise HCEPError(f"{table.name}: column {table.group!r} has an empty cell; give every photo a group")
            if ids and key == ids[-1]:
                sums, some, n = groups[-1]
                groups[-1] = (sums + evidence[i], some | possible[i], n + 1)
                continue
            if hash(key) in seen:
                raise HCEPError(f"{table.name}: the rows of group {key!r} do not follow each other; sort them")
            seen.add(hash(key))
            if len(ids) >= n_rows:
                yield ids, _of_groups(groups)
                ids, groups = [], []
            ids.append(key)
            groups.append((evidence[i], possible[i], 1))
    if ids:
        yield ids, _of_groups(groups)


def _of_groups(groups: list[tuple[Floats, NDArray[np.bool_], int]]) -> Floats:
    means = np.array([sums / n for sums, _, n in groups])
    return from_log_evidence(means, np.array([some for _, some, _ in groups]))


def _possible(
    table: ScoreFile, classes: Sequence[str], temperature: float | None, levels: Levels, possible: Possible | None
) -> Iterator[Block]:
    masks: dict[tuple[str, ...], NDArray[np.bool_]] = {}
    for ids, values in _checked(table, classes, temperature):
        if possible is None:
            yield ids, values
            continue
        lists = [possible.of(key) for key in ids]
        masks |= {names: levels.possible(names) for names in set(lists) if names not in masks}
        yield ids, among(values, np.array([masks[names] for names in lists]))


def _checked(table: ScoreFile, classes: Sequence[str], temperature: float | None) -> Iterator[Block]:
    """Blocks of checked probabilities of all classes."""
    if temperature is not None and not table.is_wide:
        raise HCEPError("--temperature needs a score for every class of an image: pass a table with a column per class")
    for ids, values in table.blocks(classes):
        _check(table, classes, ids, ~np.isfinite(values), "is missing or not a finite number")
        sums = values.sum(axis=1)
        if temperature is None:
            logits = "for logits, pass --temperature 1, or the temperature they were calibrated with"
            _check(table, classes, ids, values < 0.0, f"is negative; {logits}")
            above = np.flatnonzero(sums > 1.0 + ROUNDING)
            if len(above):
                i = int(above[0])
                raise HCEPError(f"{table.name}, image {ids[i]!r}: probabilities add up to {sums[i]:.4g}; {logits}")
            yield ids, values
        elif len(classes) > 1 and (values >= 0.0).all() and (np.abs(sums - 1.0) < ROUNDING).all():
            raise HCEPError(f"{table.name}: rows add up to 1, so they are probabilities; --temperature is for logits")
        else:
            yield ids, softmax(values, temperature)


def _check(table: ScoreFile, classes: Sequence[str], ids: list[str], is_wrong: NDArray[np.bool_], problem: str) -> None:
    """Raise HCEPError for the first score of a block that is wrong."""
    if is_wrong.any():
        i, c = (int(place[0]) for place in np.nonzero(is_wrong))
        raise HCEPError(f"{table.name}, image {ids[i]!r}: the score of {classes[c]!r} {problem}")


# -- reading -----------------------------------------------------------------------------------------------------------


class ScoreFile:
    """A table of scores on disk; see `roll_up_table` for its two forms.

    Attributes
    ----------
    is_wide : whether it has one row per image, and one column per class
    """

    def __init__(self, path: Path, label: str | None = None, group: str | None = None) -> None:
        self.path, self.name, self.label, self.group = path, path.name, label, group
        if not path.is_file():
            raise HCEPError(f"there is no file {str(path)!r}; expected a table of scores (.csv, .tsv or .parquet)")
        if path.suffix.lower() not in (*DELIMITERS, ".parquet"):
            raise HCEPError(f"{str(path)!r}: expected a table of scores in a .csv, .tsv or .parquet file")
        columns = self._columns()
        twice = next((name for i, name in enumerate(columns) if name in columns[:i]), None)
        if twice is not None:
            raise HCEPError(f"{self.name}: column {twice!r} is there twice")
        if label is not None and label not in columns:
            raise HCEPError(
                f"--labels: {self.name} has no column {label!r}.{near_matches(label, columns)} Give a column, or a "
                ".csv file with the columns image and label"
            )
        if group is not None and group not in columns:
            raise HCEPError(f"--group: {self.name} has no column {group!r}.{near_matches(group, columns)}")
        columns = [name for name in columns if name not in (label, group)]
        self.id = _first_of(IDS, columns) or (columns[0] if columns else "")
        rest = [name for name in columns if name != self.id]
        self._class, self._score = _first_of(CLASS, rest), _first_of(SCORES, rest)
        self.is_wide = self._class is None or self._score is None
        if self.is_wide and len(rest) < 2:
            raise HCEPError(
                f"{self.name} has the columns {quoted(columns, 10)}; expected a column of ids and one column per "
                "class, or the columns image, class and score"
            )
        self._scores = rest

    @cached_property
    def classes(self) -> list[str]:
        """The classes that have a column, or all that are listed, in order."""
        if self.is_wide:
            return self._scores
        assert self._class is not None
        known: dict[str, None] = {}
        for batch in self._batches([self._class]):
            known |= dict.fromkeys(_texts(batch.column(0).unique()))
        return [name for name in known if name]

    def labels(self) -> dict[str, str]:
        """The labels in the table itself, by image."""
        assert self.label is not None
        labels: dict[str, str] = {}
        for batch in self._batches([self.group or self.id, self.label]):
            for key, label in zip(*(_texts(batch.column(i)) for i in range(2)), strict=True):
                if label and labels.setdefault(key, label) != label:
                    raise HCEPError(f"--labels: {key!r} has the labels {labels[key]!r} and {label!r}")
        return labels

    def blocks(self, classes: Sequence[str]) -> Iterator[Block]:
        """Blocks of scores, whose columns are `classes`."""
        return self._wide_blocks() if self.is_wide else self._long_blocks(classes)

    def _wide_blocks(self) -> Iterator[Block]:
        for batch in self._batches([self.group or self.id, *self._scores], self._scores):
            columns = [self._numbers(batch.column(i), name) for i, name in enumerate(self._scores, 1)]
            yield _texts(batch.column(0)), np.column_stack(columns)

    def _long_blocks(self, classes: Sequence[str]) -> Iterator[Block]:
        assert self._class is not None
        assert self._score is not None
        place, n_rows = {name: c for c, name in enumerate(classes)}, max(1, IN_MEMORY // len(classes))
        ids: list[str] = []
        groups: list[str] = []
        rows: list[dict[int, float]] = []
        seen: set[int] = set()  # hashes, which need less memory than ids
        columns = [self.id, self._class, self._score, *([self.group] if self.group else [])]
        for batch in self._batches(columns, [self._score]):
            names = [_texts(batch.column(i)) for i in (0, 1, len(columns) - 1 if self.group else 0)]
            scores = self._numbers(batch.column(2), self._score).tolist()
            for key, name, group, score in zip(*names, scores, strict=True):
                if not ids or key != ids[-1]:
                    if hash(key) in seen:
                        raise HCEPError(f"{self.name}: the rows of image {key!r} do not follow each other; sort them")
                    seen.add(hash(key))
                    if len(ids) >= n_rows:
                        yield groups, _dense(rows, len(classes))
                        ids, groups, rows = [], [], []
                    ids.append(key)
                    groups.append(group)
                    rows.append({})
                if group != groups[-1]:
                    raise HCEPError(f"{self.name}: image {key!r} is in the groups {groups[-1]!r} and {group!r}")
                if not key:
                    raise HCEPError(f"{self.name}: column {self.id!r} has an empty cell; every row needs an image")
                if not name:
                    raise HCEPError(f"{self.name}, image {key!r}: column {self._class!r} is empty")
                if place[name] in rows[-1]:
                    raise HCEPError(f"{self.name}, image {key!r}: class {name!r} is there twice")
                rows[-1][place[name]] = score
        if ids:
            yield groups, _dense(rows, len(classes))

    def _columns(self) -> list[str]:
        with self._readable():
            if self.path.suffix.lower() == ".parquet":
                return list(pq.read_schema(self.path).names)
            read, parse, _ = csv_options(self.path, None)
            if read.column_names:
                raise HCEPError(f"{self.name} has no header; name its columns in the first line")
            with self.path.open(encoding=read.encoding if "16" in read.encoding else "utf-8-sig", newline="") as file:
                return next(csv.reader(file, delimiter=parse.delimiter), [])

    def _batches(self, columns: Sequence[str], numbers: Sequence[str] = ()) -> Iterator[pa.RecordBatch]:
        """Batches of some columns, in this order; cells of a CSV file are text unless they are numbers."""
        n_rows = max(1, IN_MEMORY // len(columns))
        with self._readable():
            if self.path.suffix.lower() == ".parquet":
                with pq.ParquetFile(self.path) as file:
                    for batch in file.iter_batches(n_rows, columns=list(columns)):
                        yield batch.select(list(columns))
                return
            read, parse, convert = csv_options(self.path, None)
            convert.include_columns = list(columns)
            convert.column_types = {c: pa.float64() if c in numbers else pa.string() for c in columns}
            with arrow_csv.open_csv(self.path, read, parse, convert) as reader:
                for batch in reader:
                    yield from (batch.slice(start, n_rows) for start in range(0, len(batch), n_rows))

    def _numbers(self, column: pa.Array, name: str) -> Floats:
        """A column as floats; missing values are nan."""
        if not (pa.types.is_floating(column.type) or pa.types.is_integer(column.type)):
            raise HCEPError(f"{self.name}: column {name!r} must hold numbers, not {column.type}")
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, UnicodeError) as error:
            message = str(error).partition("\n")[0][:300]
            bad = re.search(r"invalid value '(.*)'", message)
            if bad:
                message = f"expected a number, got {bad[1]!r}{self._named_column(message)}"
            raise HCEPError(f"cannot read {str(self.path)!r}: {message}") from None

    def _named_column(self, message: str) -> str:
        number = re.search(r"CSV column #(\d+)", message)
        return f" in column {self._columns()[int(number[1])]!r}" if number else ""


def read_image_labels(path: Path) -> dict[str, str]:
    """The label of each image in a .csv or .tsv file with the columns image and label; empty labels are left out."""
    if not path.is_file():
        raise HCEPError(f"--labels: there is no file {str(path)!r}")
    with path.open(encoding="utf-8-sig", newline="") as file:
        head = file.readline()
        rows = csv.DictReader(
            file, next(csv.reader([head], delimiter=(mark := _delimiter(path, head)))), delimiter=mark
        )
        names = list(rows.fieldnames or ())
        image, label = _first_of(IDS, names), _first_of(CLASS, names)
        if image is None or label is None:
            raise HCEPError(
                f"--labels: {str(path)!r} must have the columns image and label; it has {quoted(names, 10)}"
            )
        labels: dict[str, str] = {}
        for row in rows:
            key, value = row[image], row[label] or ""
            if labels.get(key, value) != value:
                raise HCEPError(f"--labels: image {key!r} has the labels {labels[key]!r} and {value!r}")
            if value:
                labels[key] = value
    return labels


def _delimiter(path: Path, head: str) -> str:
    return max(DELIMITERS[path.suffix.lower()], key=head.count)


def _first_of(usual: Sequence[str], columns: Iterable[str]) -> str | None:
    """The first column with a usual name, in the order of the usual names."""
    by_name = {name.strip().lower(): name for name in columns}
    return next((by_name[name] for name in usual if name in by_name), None)


def _texts(column: Any) -> list[str]:
    return ["" if value is None else str(value) for value in column.to_pylist()]


def _dense(rows: list[dict[int, float]], n_classes: int) -> Floats:
    values = np.zeros((len(rows), n_classes))
    for row, scores in zip(values, rows, strict=True):
        row[list(scores)] = list(scores.values())
    return values


def _with_leaves(table: ScoreFile, tree: Hierarchy) -> list[str]:
    """The listed classes, and all other leaves of the hierarchy, which some image may be although no row lists them."""
    listed = table.classes
    known = _known_levels(table, tree, listed).own.tolist()
    ids = set(known)
    return [*listed, *(tree.class_of(leaf) for leaf in tree.leaves if tree.index(leaf) not in ids)]


def _known_levels(table: ScoreFile, tree: Hierarchy, classes: Sequence[str]) -> Levels:
    try:
        return levels_of(tree, classes)
    except HCEPError as error:
        where = "classes must be concepts"
        if table.is_wide:
            where = f"columns other than {table.id!r} must be classes (name others with --labels or --group)"
        raise HCEPError(f"{table.name}: {where}: {error}") from None


# -- writing -----------------------------------------------------------------------------------------------------------


@contextmanager
def _writer(path: Path, kind: str) -> Iterator[Callable[[pa.Table], None]]:
    """A function that appends a table to a file of this kind."""
    schema = pa.schema(list(COLUMNS.items()))
    if kind == ".json":
        with path.open("w", encoding="utf-8") as file:
            mark = "[\n"

            def append(table: pa.Table) -> None:
                nonlocal mark
                for row in table.to_pylist():
                    file.write(mark + json.dumps(row, ensure_ascii=False))
                    mark = ",\n"

            yield append
            file.write("\n]\n")
        return
    with (arrow_csv.CSVWriter if kind == ".csv" else pq.ParquetWriter)(path, schema) as writer:
        yield writer.write_table
