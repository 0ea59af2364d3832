"""Corrections of single images: a file of JSON lines that is only ever appended to.

A line counts as written once it is on disk. A process that is killed while writing leaves an incomplete last line,
which readers ignore and the next writer removes. Several processes may write to one file: each reads what the others
have written before it applies a correction.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from errno import ENOSPC
from hashlib import sha256
from operator import ne
from pathlib import Path
from threading import RLock
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import msgspec
import numpy as np
from msgspec import Meta, Struct

from hcep._checks import convert_record, parse_json
from hcep._files import regular, sync_folder
from hcep.errors import HCEPError, HierarchyError, quote
from hcep.explain.possible import Possible
from hcep.hierarchy import Hierarchy
from hcep.hierarchy.names import spelling_key
from hcep.pursuit.limits import Concepts, PathLimits, Request

if TYPE_CHECKING:
    from hcep.embeddings import Embeddings

HASH = re.compile(r"[0-9a-f]{64}")
NONE_OF_THESE = "none of the known classes"


class Correction(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of the file: what a person says about an image; the last correction of an image is in force.

    A correction names the right class or a concept above it (``class``), says that the image is of none of the classes
    (``none``), or says what it is not (``forbid``). ``under`` says that the class is new, and which concept is above
    it. ``force`` lists concepts that are right; the lowest of them is what the correction names.

    `image` is the SHA-256 of the photo's file (for an embedding without a file: of its numbers as little-endian
    float32), `file` its name at the time. ``undo`` withdraws the last correction of the image.
    """

    image: Annotated[str, Meta(pattern=f"^{HASH.pattern}\\Z", description="64 hexadecimal digits")]
    force: tuple[str, ...] = ()
    forbid: tuple[str, ...] = ()
    label: str | None = msgspec.field(default=None, name="class")
    undo: bool = False
    file: str = ""
    who: str = ""
    when: str = ""
    why: str = ""
    none: bool = False
    under: str | None = None

    def summary(self) -> str:
        """Who made the correction, and why."""
        return f"corrected by {self.who or 'somebody'}" + (f" ({self.why})" if self.why else "")

    def decision(self, hierarchy: Hierarchy) -> Decision | None:
        """What the correction says that the image is; None if it only says what the image is not."""
        if self.none or hierarchy.root in self.force:
            return Decision(None, None, None, hierarchy.root)
        if self.label is not None:
            return _decision(hierarchy, self.label, self.under)
        forced = [_decision(hierarchy, name) for name in self.force]
        return max(forced, key=lambda one: hierarchy.level(one.synset), default=None)

    def said(self, hierarchy: Hierarchy) -> str:
        """What the correction says, who made it, and why."""
        return f"{self.words(hierarchy)}, {self.summary()}"

    def words(self, hierarchy: Hierarchy) -> str:
        """What the correction says, by name: "Iridaceae", "none of the known classes" or "not Iris"."""
        decision, parts = self.decision(hierarchy), [f"not {_name(hierarchy, concept)}" for concept in self.forbid]
        if decision is not None:
            parts.insert(0, decision.name or NONE_OF_THESE)
        return ", ".join(parts)


class Decision(NamedTuple):
    """What a correction says that an image is: the label of a class or the id of a concept, its name and its rank.

    All three are None if the image is of none of the classes. `synset` is the lowest concept of the model's hierarchy
    on the path to it: the concept itself, the one that a new class is below, or the root.
    """

    id: str | None
    name: str | None
    rank: str | None
    synset: str


def image_hash(image: Any) -> str:
    """The hash that identifies an image: of a photo's file, of a PIL image's pixels, or of an embedding's numbers.

    A hash is returned as it is.
    """
    from hcep.embeddings.images import ImageItem, content_hash
    from hcep.embeddings.vectors import vector_hash

    if isinstance(image, str) and HASH.fullmatch(image):
        return image
    if isinstance(image, str | os.PathLike):
        return content_hash(image)
    if isinstance(image, ImageItem):
        return content_hash(image.path, image.box)
    if isinstance(image, np.ndarray):
        return vector_hash(image)
    return sha256(f"{image.size}".encode() + image.convert("RGB").tobytes()).hexdigest()


class Corrections:
    """The corrections in a file.

    `torn` says whether the last line is incomplete and ignored; `problems` lists corrections that cannot be applied.
    Raises HCEPError, with the number of the line: a missing file, a line that is not a correction, a correction with
    unknown concepts or with concepts that are on no path together.

    >>> corrections = Corrections("corrections.jsonl", missing=True)
    >>> corrections.add("a" * 64, label="cat", why="the tail")
    >>> Corrections("corrections.jsonl").labels(["a" * 64, "b" * 64], ["dog", "dog"])
    ['cat', 'dog']

    Parameters
    ----------
    path : path of the file
    hierarchy : the hierarchy of the model that will apply them; concepts are then looked up by id, name or synonym
    missing : accept that the file does not exist yet
    lenient : list corrections that the hierarchy cannot apply in `problems` instead of raising an error. Corrections
        that were withdrawn or superseded need not be known to the hierarchy in any case.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        hierarchy: Hierarchy | None = None,
        *,
        missing: bool = False,
        lenient: bool = False,
    ) -> None:
        self.path, self.hierarchy = Path(path), hierarchy
        self._lock = RLock()
        self._forget()
        if missing and not self.path.exists():
            return
        self.refresh()
        if self.problems and not lenient:
            raise HCEPError(self.problems[0])

    def _forget(self) -> None:
        """Start as with an empty file."""
        self.torn, self.history, self._by_problem = False, list[Correction](), dict[str, str]()
        self._by_image: dict[str, list[tuple[Correction, str]]] = {}  # the last is in force; each with its line
        self._requests: dict[str, Request] = {}
        self._file, self._n_bytes, self._n_line_ends = (0, 0), 0, 0

    @property
    def problems(self) -> list[str]:
        return list(self._by_problem.values())

    def refresh(self) -> bool:
        """Read the lines that were added since the last reading, by any process; return whether there were any."""
        with self._lock:
            try:
                with regular(self.path).open("rb") as file:
                    status = os.fstat(file.fileno())
                    if self._file != (status.st_dev, status.st_ino) or status.st_size < self._n_bytes:
                        self._forget()  # the first reading, or another file has replaced the one that was read
                        self._file = status.st_dev, status.st_ino
                    if status.st_size == self._n_bytes:
                        return False
                    file.seek(self._n_bytes)
                    data = file.read()
            except OSError as error:
                raise HCEPError(f"cannot read corrections from {str(self.path)!r}: {error.strerror}") from None
            return self._read(data)

    def _read(self, data: bytes) -> bool:
        *lines, tail = data.split(b"\n")
        self.torn = bool(tail) and not _is_whole(tail)
        if not self.torn:
            lines.append(tail)
        new = []
        for number, line in enumerate(lines, start=1 + self._n_line_ends):
            where = f"{self.path} line {number}"
            if line.strip():
                try:
                    value = parse_json(line)
                except ValueError:
                    raise HCEPError(
                        f"{where} is not JSON; a corrections file, as `hcep correct` writes it, has one JSON object "
                        "per line"
                    ) from None
                new.append((convert_record(value, Correction, where, HCEPError), where))
        self._n_bytes += len(data) - (len(tail) if self.torn else 0)
        self._n_line_ends += data.count(b"\n")
        for correction, where in new:
            self.history.append(correction)
            stack = self._by_image.setdefault(correction.image, [])
            stack[-1:] = [] if correction.undo else [*stack[-1:], (correction, where)]
        for image in dict.fromkeys(correction.image for correction, _ in new):
            self._apply(image)
        return bool(new)

    def _apply(self, image: str) -> None:
        """Work out what the correction in force asks of the search for a path."""
        self._by_problem.pop(image, None)
        self._requests.pop(image, None)
        for correction, where in self._by_image[image][-1:]:
            try:
                self._requests[image] = self._request(correction)
            except HCEPError as error:
                self._by_problem[image] = f"{where}: {error}"

    def __len__(self) -> int:
        return sum(map(bool, self._by_image.values()))

    def __contains__(self, image: str) -> bool:
        return bool(self._by_image.get(image))

    def add(self, image: Any, *, file: str = "", **what: Any) -> None:
        """Append a `Correction` of an image, given as `image_hash` takes it; see `add_all`."""
        self.add_all([(image, file)], **what)

    def add_all(
        self,
        images: Sequence[tuple[Any, str]],
        *,
        label: str | None = None,
        none: bool = False,
        under: str | None = None,
        force: Concepts = (),
        forbid: Concepts = (),
        undo: bool = False,
        who: str = "",
        why: str = "",
    ) -> list[Correction]:
        """Append the same `Correction` of images, each with the name of its file; on return all are on disk.

        With a hierarchy, classes and concepts may be given by id, name or synonym, and are checked first. An unknown
        class needs `under`, the concept above it; for a known one, `under` must be above it, and is not kept.
        """
        now, request, h = datetime.now(UTC).isoformat(timespec="seconds"), Request.of(force, forbid), self.hierarchy
        if h is not None:
            if h.root in map(h.find, request.force):
                none, request = True, request._replace(force=())
            request = _limits(h, request.force, request.forbid)
            if label is not None:
                label, under = _checked_label(h, label, under)
        what = (request.force, request.forbid, label, undo)
        new = [Correction(image_hash(image), *what, file, who, now, why, none, under) for image, file in images]
        for correction in new[:1]:
            self._request(correction)
        _append(self.path, b"".join(msgspec.json.encode(correction) + b"\n" for correction in new))
        self.refresh()
        return new

    def requests(self, images: Iterable[Any], beside: Request | None = None) -> list[Request]:
        """Concepts to force and forbid for each image (photo, embedding or hash), with those of `beside` for all."""
        more, requests = beside or Request(), []
        for image in images:
            own = self._requests.get(image_hash(image), Request())
            requests.append(Request(own.force + more.force, own.forbid + more.forbid, more.only))
        return requests

    def corrected(self, embeddings: Embeddings, hierarchy: Hierarchy | None = None) -> tuple[Embeddings, int]:
        """Embeddings with corrected labels, and the number of labels that changed; see `labels`."""
        old = [None] * len(embeddings.X) if embeddings.labels is None else embeddings.labels.tolist()
        new = self.labels(embeddings.hashes, old, hierarchy)
        return replace(embeddings, labels=np.array(new, dtype=object)), sum(map(ne, new, old))

    def labels(self, images: Sequence[str], labels: Sequence[Any], hierarchy: Hierarchy | None = None) -> list[Any]:
        """Labels of images by hash, as corrections fix them.

        A correction that gives a class, or a concept above classes, gives the label. One that forces a concept does so
        if the concept is a label already or, with a hierarchy, unless the image's own label is below the concept. With
        a hierarchy, an image of none of the classes is labelled with the root, which no class learns from, and an image
        that is not what its own label says with all other classes (see `any_but`).
        """
        known, new = set(labels), list(labels)
        for i, image in enumerate(images):
            for correction, _ in self._by_image.get(image, [])[-1:]:
                is_none = hierarchy is not None and (correction.none or hierarchy.root in correction.force)
                if is_none:
                    new[i] = hierarchy.root  # type: ignore[union-attr]
                    continue
                label = correction.label or _forced_label(correction.force, new[i], known, hierarchy)
                if hierarchy is not None and label == new[i] and _is_below(hierarchy, label, correction.forbid):
                    classes = [
                        one
                        for one in known
                        if one in hierarchy.own_leaves or (one in hierarchy and hierarchy.is_leaf(one))
                    ]
                    label = any_but(hierarchy, sorted(classes), correction.forbid) or hierarchy.root
                new[i] = label
        return new

    @property
    def in_force(self) -> dict[str, Correction]:
        """The correction in force of each image, by hash."""
        return {image: stack[-1][0] for image, stack in list(self._by_image.items()) if stack}

    def new_classes(self, hierarchy: Hierarchy) -> dict[str, str]:
        """Classes that people named and that a hierarchy does not have, and the concept above each."""
        known = {None, *hierarchy.ids, *map(hierarchy.name, hierarchy)}
        new = (one for one in self.in_force.values() if one.under is not None and one.label not in known)
        return {str(one.label): str(one.under) for one in new}

    def applied(self, image: Any) -> Correction | None:
        """The correction that an image's answer follows."""
        key = image_hash(image)
        last = self._by_image.get(key, [])[-1:]  # a copy, as it may be withdrawn meanwhile
        return last[0][0] if last and key in self._requests else None

    def _request(self, correction: Correction) -> Request:
        h = self.hierarchy
        if h is None or correction.undo or correction.none or h.root in correction.force:
            return Request()
        own = [] if correction.label is None else [_decision(h, correction.label, correction.under).synset]
        return _limits(h, [*correction.force, *(one for one in own if one != h.root)], correction.forbid)


def read_corrections(
    path: Path | None, hierarchy: Hierarchy | None, on_note: Callable[[str], object]
) -> Corrections | None:
    """The corrections of a file that the hierarchy can apply, or None without a file; `on_note` gets the others."""
    if path is None:
        return None
    corrections = Corrections(path, hierarchy, lenient=True)
    for problem in corrections.problems[:3]:
        on_note(f"{problem.rstrip('.')}; this correction is ignored")
    if len(corrections.problems) > 3:
        on_note(f"{len(corrections.problems) - 3:,} more corrections in {path} are ignored")
    if corrections.torn:
        on_note(f"the last line of {path} is incomplete and is ignored")
    return corrections


def corrected_limits(
    path: Path | None,
    hierarchy: Hierarchy,
    images: Embeddings,
    on_note: Callable[[str], object],
    only: Possible | None = None,
) -> tuple[PathLimits | None, dict[int, Correction]]:
    """The paths that the corrections of a file, and a list of what is possible, leave open to each image.

    Also the correction of each image that has one, by the image's row; `on_note` gets how many have one.
    """
    corrections = read_corrections(path, hierarchy, on_note)
    everywhere = Request() if only is None or only.by_image is not None else Request(only=only.everywhere)
    if corrections is None and (only is None or only.by_image is None):
        return PathLimits.of(hierarchy, *everywhere), {}
    requests = [everywhere] * len(images.X)
    if only is not None and only.by_image is not None:
        requests = [Request(only=only.of(str(key))) for key in images.image_ids.tolist()]
    if corrections is None:
        return PathLimits.of_images(hierarchy, requests), {}
    hashes = images.hashes
    applied = {row: one for row, one in enumerate(map(corrections.applied, hashes)) if one is not None}
    requests = [corrections.requests([key], request)[0] for key, request in zip(hashes, requests, strict=True)]
    on_note(f"{len(applied):,} of {len(images.X):,} images have a correction in {path}")
    return PathLimits.of_images(hierarchy, requests), applied


def _limits(hierarchy: Hierarchy, force: Concepts = (), forbid: Concepts = ()) -> Request:
    """Concepts by id; raises as `PathLimits.of`."""
    forced, forbidden = ([hierarchy.find(name) for name in names] for names in Request.of(force, forbid)[:2])
    PathLimits.of(hierarchy, forced, forbidden)
    return Request.of(forced, forbidden)


def any_but(hierarchy: Hierarchy, classes: Iterable[Any], forbidden: Iterable[str]) -> str | None:
    """The label of an image of any class but those below some concepts, such as "oak|beech".

    None if fewer than two classes are left: a single one would be a class that nobody named.
    """
    from hcep.classify.coarse import EITHER  # here: explaining a photo needs no compiler

    wrong = list(forbidden)
    left = [label for label in map(str, classes) if not _is_below(hierarchy, hierarchy.leaf_of(label), wrong)]
    return EITHER.join(left) if len(left) > 1 else None


def _forced_label(forced: Sequence[str], own: Any, known: set[Any], hierarchy: Hierarchy | None) -> Any:
    """The label of an image that must be below some concepts: its own if that is below them, else the lowest."""
    if hierarchy is None:
        return next((concept for concept in reversed(forced) if concept in known), own)
    concepts = sorted((one for one in forced if one in hierarchy), key=hierarchy.level)
    if not concepts or concepts[-1] == hierarchy.root:  # the root says nothing of the class
        return own
    return own if _is_below(hierarchy, own, concepts[-1:]) else concepts[-1]


def _is_below(hierarchy: Hierarchy, label: Any, concepts: Iterable[str]) -> bool:
    """Whether a label is one of some concepts or below it."""
    return label in hierarchy and any(
        label == one or label in hierarchy.descendants(one) for one in concepts if one in hierarchy
    )


def _decision(hierarchy: Hierarchy, name: str, under: str | None = None) -> Decision:
    """A class or concept by its label, id, name or synonym, or a new class below the concept `under`.

    A concept that is merged into its single child stays the concept that was named. Raises HierarchyError.
    """
    h = hierarchy
    try:
        synset = h.own_leaves.get(name) or h.find(name)
    except HierarchyError:
        if under is None:
            raise
        return Decision(name, name, None, h.find(under))
    key, merged = spelling_key(name), dict(h.merged(synset))
    if name != synset and spelling_key(h.name(synset)) != key:
        for one, called in merged.items():
            if name == one or spelling_key(called) == key:
                return Decision(one, called, h.rank(one), synset)
    label = h.class_of(synset) if h.is_leaf(synset) else synset
    return Decision(label, h.name(synset), h.rank(label), synset)


def _checked_label(hierarchy: Hierarchy, name: str, under: str | None) -> tuple[str | None, str | None]:
    """The label of a class or concept, and the id of the concept above it if the class is new."""
    above = None if under is None else _decision(hierarchy, under)  # may be a concept that is merged into its child
    try:
        known = _decision(hierarchy, name)
    except HierarchyError as error:
        if above is not None:
            return name, above.id
        new = f"To add {quote(name)} as a class, also give the concept above it (--under CONCEPT)."
        raise HierarchyError(f"{error} {new}") from None
    if above is not None and not _is_at_or_above(hierarchy, above, known):
        raise HierarchyError(
            f"{quote(known.name)} is already in the hierarchy, and not under {quote(above.name)}; leave out --under, "
            "or give the new class another name"
        )
    return known.id, None


def _is_at_or_above(hierarchy: Hierarchy, above: Decision, below: Decision) -> bool:
    if above.synset != below.synset:
        return above.synset in hierarchy.ancestors(below.synset)
    chain = [*(one for one, _ in hierarchy.merged(below.synset)), hierarchy.class_of(below.synset)]
    return chain.index(str(above.id)) <= chain.index(str(below.id))


def _name(hierarchy: Hierarchy, concept: str) -> str:
    return hierarchy.name(concept) if concept in hierarchy else concept


def _is_whole(line: bytes) -> bool:
    """Whether a line without a line end is complete: an object is, once its last brace is written."""
    with suppress(ValueError):
        return isinstance(parse_json(line), dict)
    return False


def _append(path: Path, lines: bytes) -> None:
    """Append lines to a file, one writer at a time, after removing an incomplete last line."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        is_new = not path.exists()
        with open(path, "a+b", buffering=0) as file:
            with suppress(ImportError):  # not on every platform
                import fcntl

                fcntl.flock(file, fcntl.LOCK_EX)  # until the file is closed
            file.seek(0)
            data = file.read() or b""
            tail = data[data.rfind(b"\n") + 1 :]
            size = len(data) if _is_whole(tail) else len(data) - len(tail)
            file.truncate(size)
            wanted = (b"\n" if tail and size == len(data) else b"") + lines
            try:
                if file.write(wanted) != len(wanted):
                    raise OSError(ENOSPC, os.strerror(ENOSPC))
                os.fsync(file.fileno())
            except OSError:
                file.truncate(size)  # a quota may be noticed only when the line goes to disk
                raise
        if is_new:
            sync_folder(path.parent)
    except OSError as error:
        raise HCEPError(f"cannot write corrections to {str(path)!r}: {error.strerror}") from error
