"""What people said of single images, kept: a file of JSON lines that is only ever appended to.

A line is on disk before it counts as written. A process that is killed in the middle of one leaves a torn last line,
which no reader takes for a record and the next writer removes.
"""

import os
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from errno import ENOSPC
from hashlib import sha256
from operator import ne
from pathlib import Path
from typing import Annotated, Any

import msgspec
import numpy as np
from msgspec import Meta, Struct

from hcep._checks import convert_record, parse_json
from hcep._files import sync_folder
from hcep.embeddings import Embeddings
from hcep.errors import HCEPError, quoted
from hcep.hierarchy import Hierarchy
from hcep.pursuit.limits import Concepts, PathLimits, Request

HASH = re.compile(r"[0-9a-f]{64}")


class Correction(Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """One line: what was said of an image; of several about one image the last holds.

    `image` is the SHA-256 of the photo's file (of an embedding without one: of its numbers as little-endian float32),
    `file` what it was called then. ``undo`` takes the last correction of the image back.
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
    """What an image is known by: the hash of a photo's file, of a PIL image's pixels, of an embedding's numbers.

    A hash stands for itself.
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
    """The corrections of a file that hold.

    `torn` says whether the last line is half written (it does not count), `problems` what is left out and why. Raises
    HCEPError: no file, a line that is no correction, one with concepts that are unknown or that no path has together;
    with the number of the line.

    >>> kept = Corrections("corrections.jsonl", missing=True)
    >>> kept.add("a" * 64, label="cat", why="the tail")
    >>> Corrections("corrections.jsonl").labels(["a" * 64, "b" * 64], ["dog", "dog"])
    ['cat', 'dog']

    Parameters
    ----------
    path : path of the file
    hierarchy : of the model that is to honour them; each concept is then looked up, by id, name or synonym
    missing : whether the file need not exist
    lenient : whether corrections that the hierarchy cannot honour are left out, and told in `problems`, not raised;
        those that were taken back or that another one followed need not be known to it
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
        self._standing: dict[str, list[tuple[Correction, str]]] = {}  # with the line that it is of
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
                self._stand(convert_record(value, Correction, where, HCEPError), where)
        for one, where in [said[-1] for said in self._standing.values() if said]:
            try:
                self._requests[one.image] = self._request(one)
            except HCEPError as error:
                self.problems.append(f"{where}: {error}")
        if self.problems and not lenient:
            raise HCEPError(self.problems[0])

    def __len__(self) -> int:
        return sum(map(bool, self._standing.values()))

    def __contains__(self, image: str) -> bool:
        return bool(self._standing.get(image))

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
        """Append a `Correction` of an image, which is what `image_hash` takes; on return it is on disk."""
        now, asked = datetime.now(UTC).isoformat(timespec="seconds"), Request.of(force, forbid)
        one = Correction(image_hash(image), *asked, label, undo, file, who, now, why)
        request = self._request(one)
        _append(self.path, msgspec.json.encode(one) + b"\n")
        self._stand(one)
        if undo and self._standing[one.image]:
            with suppress(HCEPError):  # of another hierarchy: it is not honoured
                request = self._request(self._standing[one.image][-1][0])
        self._requests[one.image] = request

    def requests(self, images: Iterable[Any], beside: Request | None = None) -> list[Request]:
        """What is forced and forbidden of each image (a photo, an embedding, or a hash), and of all of them beside."""
        more, found = beside or Request(), []
        for image in images:
            one = self._requests.get(image_hash(image), Request())
            found.append(Request(one.force + more.force, one.forbid + more.forbid))
        return found

    def corrected(self, embeddings: Embeddings) -> tuple[Embeddings, int]:
        """Embeddings with the labels that corrections fix, to learn from, and how many they changed."""
        given = [None] * len(embeddings.X) if embeddings.labels is None else embeddings.labels.tolist()
        new = self.labels(embeddings.hashes, given)
        return replace(embeddings, labels=np.array(new, dtype=object)), sum(map(ne, new, given))

    def labels(self, images: Sequence[str], labels: Sequence[Any]) -> list[Any]:
        """Labels of images by hash, another one where a correction fixes the class: by name, or by forcing a label."""
        known, new = set(labels), list(labels)
        for i, image in enumerate(images):
            for one, _ in self._standing.get(image, [])[-1:]:
                forced = [concept for concept in one.force if concept in known]
                new[i] = one.label or (forced[-1] if forced else new[i])
        return new

    @property
    def standing(self) -> dict[str, Correction]:
        """What holds, by image."""
        return {image: said[-1][0] for image, said in list(self._standing.items()) if said}

    def honoured(self, image: Any) -> Correction | None:
        """The correction that an image's answer obeys."""
        key = image_hash(image)
        said = self._standing.get(key, [])[-1:]  # a copy: it may be taken back meanwhile
        return said[0][0] if said and any(self._requests.get(key, ())) else None

    def _request(self, one: Correction) -> Request:
        known = self.hierarchy is not None and not one.undo
        return request_of(self.hierarchy, one.force, one.forbid, one.label) if known else Request()  # type: ignore[arg-type]

    def _stand(self, one: Correction, where: str = "") -> None:
        standing = self._standing.setdefault(one.image, [])
        if one.undo:
            standing[-1:] = []
        else:
            standing.append((one, where))


def request_of(hierarchy: Hierarchy, force: Concepts = (), forbid: Concepts = (), label: str | None = None) -> Request:
    """Concepts by id, those of a class among the forced ones; raises as `PathLimits.of`."""
    forced, forbidden = ([hierarchy.find(name) for name in names] for names in Request.of(force, forbid))
    own = [] if label is None else [hierarchy.leaf_of(class_meant(hierarchy, label))]
    PathLimits.of(hierarchy, [*forced, *own], forbidden)
    return Request.of([*forced, *own], forbidden)


def class_meant(hierarchy: Hierarchy, name: str) -> str:
    """The label of a class by its label, name or synonym; a concept above classes is refused."""
    concept = hierarchy.own_leaves.get(name) or hierarchy.find(name)
    if not hierarchy.is_leaf(concept):
        raise HCEPError(f"{name!r} is no class but a concept above {quoted(hierarchy.children(concept), 3)}; force it")
    return hierarchy.class_of(concept)


def _is_whole(line: bytes) -> bool:
    """Whether a line without an end is all there: an object is, once its last brace is written."""
    with suppress(ValueError):
        return isinstance(parse_json(line), dict)
    return False


def _append(path: Path, lines: bytes) -> None:
    """Add lines to a file, one writer at a time; a torn last line of a writer that died is removed first."""
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
