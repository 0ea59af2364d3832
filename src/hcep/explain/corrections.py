"""Corrections of single images: a file of JSON lines that is only ever appended to.

A line counts as written once it is on disk. A process that is killed while writing leaves an incomplete last line,
which readers ignore and the next writer removes.
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
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from hcep._checks import convert_record, parse_json
from hcep._files import sync_folder
from hcep.errors import HCEPError
from hcep.explain.possible import Possible
from hcep.hierarchy import Hierarchy
from hcep.pursuit.limits import Concepts, PathLimits, Request

if TYPE_CHECKING:
    from hcep.embeddings import Embeddings

HASH = re.compile(r"[0-9a-f]{64}")


class Correction(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line of the file: a correction of an image; the last correction of an image is in force.

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

    def summary(self) -> str:
        """Who made the correction, and why."""
        return f"corrected by {self.who or 'somebody'}" + (f" ({self.why})" if self.why else "")


def image_hash(image: Any) -> str:
    """The hash that identifies an image: of a photo's file, of a PIL image's pixels, or of an embedding's numbers.

    A hash is returned as it is.
    """
    from hcep.embeddings.images import content_hash
    from hcep.embeddings.vectors import vector_hash

    if isinstance(image, str) and HASH.fullmatch(image):
        return image
    if isinstance(image, str | os.PathLike):
        return content_hash(image)
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
        self.path, self.hierarchy, self.torn = Path(path), hierarchy, False
        self._by_image: dict[str, list[tuple[Correction, str]]] = {}  # the last is in force; each with its line
        self._requests: dict[str, Request] = {}
        self.problems: list[str] = []
        if missing and not self.path.exists():
            return
        try:
            data = self.path.read_bytes()
        except OSError as error:
            raise HCEPError(f"cannot read corrections from {str(path)!r}: {error.strerror}") from None
        *lines, tail = data.split(b"\n")
        self.torn = bool(tail) and not _is_whole(tail)
        for number, line in enumerate([*lines, *([] if self.torn else [tail])], start=1):
            where = f"{path} line {number}"
            if line.strip():
                try:
                    value = parse_json(line)
                except ValueError as error:
                    raise HCEPError(f"{where}: not JSON: {error}") from None
                self._record(convert_record(value, Correction, where, HCEPError), where)
        for correction, where in [stack[-1] for stack in self._by_image.values() if stack]:
            try:
                self._requests[correction.image] = self._request(correction)
            except HCEPError as error:
                self.problems.append(f"{where}: {error}")
        if self.problems and not lenient:
            raise HCEPError(self.problems[0])

    def __len__(self) -> int:
        return sum(map(bool, self._by_image.values()))

    def __contains__(self, image: str) -> bool:
        return bool(self._by_image.get(image))

    def add(
        self,
        image: Any,
        *,
        force: Concepts = (),
        forbid: Concepts = (),
        label: str | None = None,
        undo: bool = False,
        file: str = "",
        who: str = "",
        why: str = "",
    ) -> None:
        """Append a `Correction` of an image, given as `image_hash` takes it; on return it is on disk.

        With a hierarchy, classes and concepts may be given by id, name or synonym, and are checked first.
        """
        now, request = datetime.now(UTC).isoformat(timespec="seconds"), Request.of(force, forbid)
        if self.hierarchy is not None:
            request = _limits(self.hierarchy, request.force, request.forbid)
            label = None if label is None else _label(self.hierarchy, label)
        correction = Correction(image_hash(image), request.force, request.forbid, label, undo, file, who, now, why)
        key, in_force = correction.image, self._request(correction)
        _append(self.path, msgspec.json.encode(correction) + b"\n")
        self._record(correction)
        if undo and self._by_image[key]:
            with suppress(HCEPError):  # a correction in the concepts of another hierarchy is not applied
                in_force = self._request(self._by_image[key][-1][0])
        self._requests[key] = in_force

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
        if the concept is a label already or, with a hierarchy, unless the image's own label is below the concept.
        """
        known, new = set(labels), list(labels)
        for i, image in enumerate(images):
            for correction, _ in self._by_image.get(image, [])[-1:]:
                new[i] = correction.label or _forced_label(correction.force, new[i], known, hierarchy)
        return new

    @property
    def in_force(self) -> dict[str, Correction]:
        """The correction in force of each image, by hash."""
        return {image: stack[-1][0] for image, stack in list(self._by_image.items()) if stack}

    def applied(self, image: Any) -> Correction | None:
        """The correction that an image's answer follows."""
        key = image_hash(image)
        last = self._by_image.get(key, [])[-1:]  # a copy, as it may be withdrawn meanwhile
        return last[0][0] if last and any(self._requests.get(key, ())) else None

    def _request(self, correction: Correction) -> Request:
        if self.hierarchy is None or correction.undo:
            return Request()
        return _limits(self.hierarchy, correction.force, correction.forbid, correction.label)

    def _record(self, correction: Correction, where: str = "") -> None:
        stack = self._by_image.setdefault(correction.image, [])
        if correction.undo:
            stack[-1:] = []
        else:
            stack.append((correction, where))


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
) -> PathLimits | None:
    """The paths that the corrections of a file, and a list of what is possible, leave open to each image.

    `on_note` gets how many images have a correction.
    """
    corrections = read_corrections(path, hierarchy, on_note)
    everywhere = Request() if only is None or only.by_image is not None else Request(only=only.everywhere)
    if corrections is None and (only is None or only.by_image is None):
        return PathLimits.of(hierarchy, *everywhere)
    requests = [everywhere] * len(images.X)
    if only is not None and only.by_image is not None:
        requests = [Request(only=only.of(str(key))) for key in images.image_ids.tolist()]
    if corrections is None:
        return PathLimits.of_images(hierarchy, requests)
    hashes = images.hashes
    n_corrected = sum(corrections.applied(key) is not None for key in hashes)
    requests = [corrections.requests([key], request)[0] for key, request in zip(hashes, requests, strict=True)]
    on_note(f"{n_corrected:,} of {len(images.X):,} images have a correction in {path}")
    return PathLimits.of_images(hierarchy, requests)


def _limits(hierarchy: Hierarchy, force: Concepts = (), forbid: Concepts = (), label: str | None = None) -> Request:
    """Concepts by id, with the leaf of a class among the forced ones; raises as `PathLimits.of`."""
    forced, forbidden = ([hierarchy.find(name) for name in names] for names in Request.of(force, forbid)[:2])
    own = [] if label is None else [_synset(hierarchy, label)]
    PathLimits.of(hierarchy, [*forced, *own], forbidden)
    return Request.of([*forced, *own], forbidden)


def _forced_label(forced: Sequence[str], own: Any, known: set[Any], hierarchy: Hierarchy | None) -> Any:
    """The label of an image that must be below some concepts: its own if that is below them, else the lowest."""
    if hierarchy is None:
        return next((concept for concept in reversed(forced) if concept in known), own)
    concepts = sorted((one for one in forced if one in hierarchy), key=hierarchy.level)
    if not concepts or concepts[-1] == hierarchy.root:  # the root says nothing of the class
        return own
    is_below = own in hierarchy and own in (concepts[-1], *hierarchy.descendants(concepts[-1]))
    return own if is_below else concepts[-1]


def _synset(hierarchy: Hierarchy, name: str) -> str:
    """The leaf of a class, or a concept above classes, by its label, name or synonym."""
    return hierarchy.own_leaves.get(name) or hierarchy.find(name)


def _label(hierarchy: Hierarchy, name: str) -> str:
    """The label of a class, or of a concept above classes, by its label, name or synonym."""
    synset = _synset(hierarchy, name)
    return hierarchy.class_of(synset) if hierarchy.is_leaf(synset) else synset


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
            if file.write(wanted) != len(wanted):
                file.truncate(size)
                raise OSError(ENOSPC, os.strerror(ENOSPC))
            os.fsync(file.fileno())
        if is_new:
            sync_folder(path.parent)
    except OSError as error:
        raise HCEPError(f"cannot write corrections to {str(path)!r}: {error.strerror}") from None
