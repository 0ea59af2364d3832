"""The right level for anyone's scores: tables of probabilities or logits into tables of answers, block by block."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import cache, cached_property, partial
from itertools import groupby, islice
from operator import itemgetter
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
from numpy.typing import NDArray

from hcep._files import read_csv, replacing
from hcep.classify.groups import combine_photos
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
from hcep.datasets.layouts.table import FOLDER, GROUP_TABLES, find_groups
from hcep.embeddings.tables import DELIMITERS, csv_options
from hcep.errors import HCEPError, near_matches, quote, quoted, reason_of
from hcep.explain.answer import doubt_about
from hcep.explain.possible import Possible, read_possible
from hcep.explain.predictions import answer_columns, answer_fields
from hcep.formats import read_scores
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]
#: A block of a table: the ids of its images, and their scores, (n_images, n_classes).
Block = tuple[list[str], Floats]
#: Which classes are possible for the image or group of an id, (n_classes,).
Mask = Callable[[str], NDArray[np.bool_]]
#: Usual names of the column of ids; the columns of a table with one row per image and class.
IDS = ("id", "image", "image_id", "file", "file_name", "filename", "filepath", "path")
CLASS, SCORES = ("class", "label", "species", "classification"), ("score", "probability", "confidence")
#: Rows with a column for every class whose probabilities add up to less than this are mentioned in a note.
SHORT = 0.95
#: Numbers in memory at a time.
IN_MEMORY = 1 << 21
OUTPUTS = (".csv", ".parquet", ".json")


class RolledUpTable(NamedTuple):
    """What `roll_up_table` wrote: numbers of images, of those with an answer, and with a class as answer."""

    n_images: int
    n_answered: int
    n_classes: int
    promise: str | None
    hierarchy: Hierarchy


def roll_up_table(
    scores: str | Path,
    output: str | Path,
    hierarchy: Hierarchy | str | Path | None = None,
    *,
    sure: float = SURE,
    temperature: float | None = None,
    labels: str | Path | None = None,
    only: Path | None = None,
    rank: str | None = None,
    group: str | None = None,
    on_note: Callable[[str], object] = lambda note: None,
    **reading: Any,
) -> RolledUpTable:
    """Write the most specific concept that is sure enough for every image of a table of scores (see `hcep.roll_up`).

    Parameters
    ----------
    scores : .csv, .tsv or .parquet file of probabilities, or a file of `hcep.formats` that has scores
        Either one row per image, with a column of ids and one column per class, or one row per image and class, with
        columns such as image, class and score, where the rows of an image follow each other. Classes that are not
        listed for an image are unassigned: their probability belongs to no concept.
    output : .csv, .parquet or .json file, replaced in one step
    hierarchy, reading : as `hcep.datasets.find_hierarchy` takes them; by default the lineages in the file, if any
    sure : how sure answers are
    temperature : take the scores as logits, and divide them by this number before the softmax
    labels : .csv or .tsv file with the columns image and label, or a column of `scores`
        Labelled images turn the rule into a promise. Empty labels are ignored.
    only : a list of the classes or concepts that are possible (see `hcep.explain.possible.read_possible`)
    rank : answer at this rank of the hierarchy, such as "family", or above it
    group : the burst, observation or specimen of each photo, whose rows follow each other: a column of `scores`,
        "folder", or a table of ids and groups (see `hcep.datasets.layouts.table.find_groups`)
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
    for note in table.other.notes if table.other else ():
        on_note(note)
    tree = table.other.hierarchy if table.other and hierarchy is None else None
    has_own_tree = tree is not None
    if tree is None:
        tree = find_hierarchy(hierarchy, table.classes, on_note=on_note, **reading)
    if tree is None:
        raise HCEPError(
            "--hierarchy: there are no concepts above the classes, so the only possible answers are classes"
        )
    at_rank = None if rank is None else tree.find_rank(rank)
    classes = table.classes if table.is_wide else _with_leaves(table, tree)
    levels = _known_levels(table, tree, classes)
    mask = None if only is None else _class_masks(read_possible(only, tree, on_note), levels)
    read = partial(_probabilities, table, classes, temperature, mask)
    held_out = None
    if labels is not None:
        known = read_image_labels(Path(labels)) if is_file else table.labels()
        held_out = _calibrated(table, levels, read(), known, mask, on_note)
        if promise(sure, held_out) is None:
            on_note(f"{len(held_out):,} labelled images are too few to promise {sure:g}")
    n_images = n_answered = n_classes = n_short = 0
    schema, own = _schema(tree), set(classes)
    with replacing(target) as unfinished, _writer(unfinished, target.suffix, schema) as write:
        for ids, values in read():
            columns = _answers(levels, classes, values, sure, held_out, at_rank)
            if has_own_tree:  # its ids are scientific names, and some of its names are common ones
                columns |= _scientific_names(tree, columns["answer"])
            write(pa.table({"id": ids, **columns}, schema=schema))
            n_images += len(ids)
            n_answered += sum(answer is not None for answer in columns["answer"])
            n_classes += sum(answer in own for answer in columns["answer"])
            n_short += int((values.sum(axis=1) < SHORT).sum())
        if not n_images:
            raise HCEPError(f"{str(scores)!r} has no rows")
    if n_short and table.is_wide:
        on_note(
            f"the probabilities of {n_short:,} of {n_images:,} rows add up to less than {SHORT:g}; what they lack "
            "belongs to no concept"
        )
    return RolledUpTable(n_images, n_answered, n_classes, promise(sure, held_out, what), tree)


def _schema(hierarchy: Hierarchy) -> pa.Schema:
    text, number = pa.string(), pa.float64()
    columns = {"id": text, **answer_fields(hierarchy), "class": text, "class_probability": number, "doubt": text}
    columns["answer_estimate"] = number
    return pa.schema(list(columns.items()))


def _answers(
    levels: Levels,
    classes: Sequence[str],
    values: Floats,
    sure: float,
    held_out: HeldOutLevels | None,
    rank: str | None,
) -> dict[str, list[Any]]:
    """The columns of a block, without the ids; an answer that is a class is called as in the table."""
    index = np.argmax(values, axis=1)
    answers = levels.concepts(levels.choose(values, index, sure, held_out), values, classes, rank)
    best = values[np.arange(len(values)), index]
    # A row without any probability has no likeliest class.
    labels = [classes[c] if p > 0.0 else None for c, p in zip(index.tolist(), best.tolist(), strict=True)]
    return {
        **answer_columns(levels.hierarchy, answers),
        "class": labels,
        "class_probability": best.tolist(),
        "doubt": [
            doubt_about(one and one.id, str(label), None, rank is not None and one is not None and one.rank == rank)
            for one, label in zip(answers.concepts, labels, strict=True)
        ],
    }


def _scientific_names(tree: Hierarchy, answers: Sequence[str | None]) -> dict[str, list[str | None]]:
    """The columns of the ranks, with the ids of concepts in place of their names."""
    taxa = {one: {tree.rank(above): above for above, *_ in tree.trail(one)} for one in set(answers) if one}
    return {f"rank_{rank}": [taxa[one].get(rank) if one else None for one in answers] for rank in tree.rank_names}


def _calibrated(
    table: ScoreFile,
    levels: Levels,
    blocks: Iterator[Block],
    labels: dict[str, str],
    mask: Mask | None,
    on_note: Callable[[str], object],
) -> HeldOutLevels:
    """What the labelled images of a table say about its answers; only their rows are kept in memory.

    An image that is labelled with a class that is not possible for it is ignored.
    """
    rows: dict[str, Floats] = {}
    for ids, values in blocks:
        for i, key in enumerate(ids):
            if key in labels:
                rows[key] = values[i]
    missing = [key for key in labels if key not in rows]
    if not labels:
        raise HCEPError("--labels: no image has a label")
    if not rows:
        raise HCEPError(
            f"--labels: none of the {len(labels):,} labelled images, such as {quote(missing[0])}, is in "
            f"{quote(table.name)}"
        )
    if missing:
        on_note(f"{len(missing):,} of {len(labels):,} labelled images are not in {table.name}: {quoted(missing, 3)}")
    try:
        own = class_indices(levels, [labels[key] for key in rows])
    except HCEPError as error:
        raise HCEPError(f"--labels: {error}") from None
    values, listed = np.array(list(rows.values())), np.ones(len(own), dtype=bool)
    if mask is not None:
        listed = np.array([mask(key)[c] for key, c in zip(rows, own.tolist(), strict=True)])
    if not listed.all():
        on_note(f"{(~listed).sum():,} of {len(own):,} labelled images are of classes that --only excludes")
    return levels.held_out(values[listed], np.argmax(values[listed], axis=1), own[listed])


def _class_masks(possible: Possible, levels: Levels) -> Mask:
    of_list = cache(levels.possible)
    return lambda key: of_list(possible.of(key))


def _probabilities(
    table: ScoreFile, classes: Sequence[str], temperature: float | None, mask: Mask | None
) -> Iterator[Block]:
    """Blocks of checked probabilities, by image or by group, among the classes that are possible for each."""
    blocks = _checked(table, classes, temperature)
    if mask is not None:
        blocks = ((ids, among(values, np.array(list(map(mask, ids))))) for ids, values in blocks)
    return blocks if table.group is None else _by_group(table, blocks, max(1, IN_MEMORY // (8 * len(classes))))


def _by_group(table: ScoreFile, blocks: Iterator[Block], n_groups: int) -> Iterator[Block]:
    """Blocks of the probabilities of so many groups, whose photos follow each other."""
    photos = ((key, row) for keys, values in blocks for key, row in zip(keys, values, strict=True))
    groups = ((key, [row for _, row in run]) for key, run in groupby(photos, itemgetter(0)))
    seen: set[int] = set()  # hashes, which need less memory than ids
    while some := list(islice(groups, n_groups)):
        for key, _ in some:
            if not key:
                raise HCEPError(
                    f"{table.name}: column {quote(table.group)} has an empty cell; give every photo a group"
                )
            if hash(key) in seen:
                raise HCEPError(f"{table.name}: the rows of group {quote(key)} are not consecutive; sort the table")
            seen.add(hash(key))
        rows, keys = [row for _, run in some for row in run], [key for key, run in some for _ in run]
        yield combine_photos(np.array(rows), keys)


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
                i, how = int(above[0]), f"divide percentages by 100; {logits}"
                raise HCEPError(f"{table.name}, image {quote(ids[i])}: probabilities add up to {sums[i]:.4g}; {how}")
            yield ids, values
        elif len(classes) > 1 and (values >= 0.0).all() and (np.abs(sums - 1.0) < ROUNDING).all():
            raise HCEPError(f"{table.name}: rows add up to 1, so they are probabilities; --temperature is for logits")
        else:
            yield ids, softmax(values, temperature)


def _check(table: ScoreFile, classes: Sequence[str], ids: list[str], is_wrong: NDArray[np.bool_], problem: str) -> None:
    """Raise HCEPError for the first score of a block that is wrong."""
    if is_wrong.any():
        i, c = (int(place[0]) for place in np.nonzero(is_wrong))
        raise HCEPError(f"{table.name}, image {quote(ids[i])}: the score of {quote(classes[c])} {problem}")


# -- reading -----------------------------------------------------------------------------------------------------------


class ScoreFile:
    """A table of scores on disk; see `roll_up_table` for its two forms.

    Attributes
    ----------
    is_wide : whether it has one row per image, and one column per class
    other : the scores of a file of another tool, which has the columns image, class and score
    """

    def __init__(self, path: Path, label: str | None = None, group: str | None = None) -> None:
        self.path, self.name, self.label, self.group = path, path.name, label, group
        if not path.is_file():
            raise HCEPError(f"there is no file {str(path)!r}; expected a table of scores (.csv, .tsv or .parquet)")
        self.other = read_scores(path)
        if self.other is None and path.suffix.lower() not in (*DELIMITERS, ".parquet"):
            raise HCEPError(
                f"{str(path)!r}: expected a table of scores in a .csv, .tsv or .parquet file, or a file of SpeciesNet, "
                "MegaDetector or pybioclip"
            )
        columns = self._columns()
        if not columns:
            raise HCEPError(f"{self.name} is empty; expected a header and one row per image, or per image and class")
        twice = next((name for name, n in Counter(columns).items() if n > 1), None)
        if twice is not None:
            raise HCEPError(f"{self.name}: column {quote(twice)} occurs twice")
        if label is not None and label not in columns:
            raise HCEPError(
                f"--labels: {self.name} has no column {quote(label)}.{near_matches(label, columns)} Give a column, or "
                "a .csv file with the columns image and label"
            )
        self._find_groups: Callable[[Sequence[str]], NDArray[Any]] | None = None
        if group is not None and group not in columns:
            if group != FOLDER and Path(group).suffix not in GROUP_TABLES:
                raise HCEPError(f"--group: {self.name} has no column {quote(group)}.{near_matches(group, columns)}")
            self._find_groups = find_groups(None, group)
        others = [name for name in columns if name not in (label, group)]
        first = columns[0] if columns[0] in others else group if group in columns else label
        self.id = _first_of(IDS, others) or str(first)
        rest = [name for name in others if name != self.id]
        self._class, self._score = _first_of(CLASS, rest), _first_of(SCORES, rest)
        self.is_wide = self._class is None or self._score is None
        if self.id == group and not self.is_wide:
            self.group = None  # the rows of an image are one answer already
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

    @property
    def _key(self) -> str:
        """The column that says which rows are one answer, or from which groups are found."""
        return self.id if self.group is None or self._find_groups else self.group

    def _keys(self, column: pa.Array) -> list[str]:
        """The images of some rows, or their groups."""
        texts = _texts(column)
        return texts if self._find_groups is None else list(map(str, self._find_groups(texts)))

    def labels(self) -> dict[str, str]:
        """The labels in the table itself, by image."""
        assert self.label is not None
        labels: dict[str, str] = {}
        for batch in self._batches([self._key, self.label]):
            for key, label in zip(self._keys(batch.column(0)), _texts(batch.column(1)), strict=True):
                if label and labels.setdefault(key, label) != label:
                    raise HCEPError(f"--labels: {quote(key)} has the labels {quote(labels[key])} and {quote(label)}")
        return labels

    def blocks(self, classes: Sequence[str]) -> Iterator[Block]:
        """Blocks of scores, whose columns are `classes`."""
        return self._wide_blocks() if self.is_wide else self._long_blocks(classes)

    def _wide_blocks(self) -> Iterator[Block]:
        seen: set[int] = set()  # hashes, which need less memory than ids
        for batch in self._batches([self._key, *self._scores], self._scores):
            columns = [self._numbers(batch.column(i), name) for i, name in enumerate(self._scores, 1)]
            keys = self._keys(batch.column(0))
            for key in () if self.group else keys:
                if not key or hash(key) in seen:
                    problem = "has an empty cell" if not key else f"has {quote(key)} twice"
                    how = f"give every row an id of its own, or combine rows with --group {self.id}"
                    raise HCEPError(f"{self.name}: column {quote(self.id)} {problem}; {how}")
                seen.add(hash(key))
            yield keys, np.column_stack(columns)

    def _long_blocks(self, classes: Sequence[str]) -> Iterator[Block]:
        assert self._class is not None
        assert self._score is not None
        place, n_rows = {name: c for c, name in enumerate(classes)}, max(1, IN_MEMORY // len(classes))
        ids: list[str] = []
        groups: list[str] = []
        rows: list[dict[int, float]] = []
        seen: set[int] = set()  # hashes, which need less memory than ids
        columns = [self.id, self._class, self._score, *([self._key] if self._key != self.id else [])]
        for batch in self._batches(columns, [self._score]):
            names = [_texts(batch.column(0)), _texts(batch.column(1))]
            names.append(self._keys(batch.column(len(columns) - 1 if self._key != self.id else 0)))
            scores = self._numbers(batch.column(2), self._score).tolist()
            for key, name, group, score in zip(*names, scores, strict=True):
                if not ids or key != ids[-1]:
                    if hash(key) in seen:
                        raise HCEPError(
                            f"{self.name}: the rows of image {quote(key)} are not consecutive; sort the table"
                        )
                    seen.add(hash(key))
                    if len(ids) >= n_rows:
                        yield groups, _dense(rows, len(classes))
                        ids, groups, rows = [], [], []
                    ids.append(key)
                    groups.append(group)
                    rows.append({})
                if group != groups[-1]:
                    raise HCEPError(
                        f"{self.name}: image {quote(key)} is in the groups {quote(groups[-1])} and {quote(group)}"
                    )
                if not key:
                    raise HCEPError(f"{self.name}: column {quote(self.id)} has an empty cell; every row needs an image")
                if not name:
                    raise HCEPError(f"{self.name}, image {quote(key)}: column {quote(self._class)} is empty")
                if place[name] in rows[-1]:
                    raise HCEPError(f"{self.name}, image {quote(key)}: class {quote(name)} occurs twice")
                rows[-1][place[name]] = score
        if ids:
            yield groups, _dense(rows, len(classes))

    def _columns(self) -> list[str]:
        if self.other is not None:
            return list(self.other.table.column_names)
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
        if self.other is not None:
            yield from self.other.table.select(list(columns)).to_batches(n_rows)
            return
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
            raise HCEPError(f"{self.name}: column {quote(name)} must hold numbers, not {column.type}")
        return np.asarray(column.cast(pa.float64()).to_numpy(zero_copy_only=False))

    @contextmanager
    def _readable(self) -> Iterator[None]:
        try:
            yield
        except (pa.ArrowException, UnicodeError) as error:
            message = reason_of(error)
            bad = re.search(r"invalid value '(.*)'", str(error))
            if bad:
                message = f"expected a number, got {quote(bad[1])}{self._named_column(message)}"
            raise HCEPError(f"cannot read {str(self.path)!r}: {message}") from None

    def _named_column(self, message: str) -> str:
        number = re.search(r"CSV column #(\d+)", message)
        return f" in column {quote(self._columns()[int(number[1])])}" if number else ""


def read_image_labels(path: Path) -> dict[str, str]:
    """The label of each image in a .csv or .tsv file with the columns image and label; empty labels are left out."""
    if not path.is_file():
        raise HCEPError(f"--labels: there is no file {str(path)!r}")
    names, *rows = read_csv(path, marks=DELIMITERS[path.suffix.lower()], option="--labels: ") or [[]]
    image, label = _first_of(IDS, names), _first_of(CLASS, names)
    if image is None or label is None:
        raise HCEPError(f"--labels: {str(path)!r} must have the columns image and label; it has {quoted(names, 10)}")
    labels: dict[str, str] = {}
    for row in rows:
        key, value = row[names.index(image)], row[names.index(label)]
        if labels.get(key, value) != value:
            raise HCEPError(f"--labels: image {quote(key)} has the labels {quote(labels[key])} and {quote(value)}")
        if value:
            labels[key] = value
    return labels


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
    if table.id.strip().lower() not in IDS and table.id in tree:
        raise HCEPError(
            f"{table.name}: the first column, {quote(table.id)}, is a class; add a column of ids, such as image"
        )
    try:
        return levels_of(tree, classes)
    except HCEPError as error:
        where = "classes must be concepts"
        if table.is_wide:
            where = f"columns other than {quote(table.id)} must be classes (name others with --labels or --group)"
        raise HCEPError(f"{table.name}: {where}: {error}") from None


# -- writing -----------------------------------------------------------------------------------------------------------


@contextmanager
def _writer(path: Path, kind: str, schema: pa.Schema) -> Iterator[Callable[[pa.Table], None]]:
    """A function that appends a table to a file of this kind."""
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
