"""The content that a hierarchy is read from: a file, or a `file://` or `http(s)://` address, also in gzip."""

import gzip
import io
import json
import os
import re
import zlib
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from hcep._files import BrokenOffError, TooLargeError, TooSlowError, WebError, fetch
from hcep.errors import HierarchyError, quote
from hcep.hierarchy.formats import find_format

Place = str | os.PathLike[str]
MAX_BYTES = 50_000_000
#: Most characters of a line; the csv module has a similar limit for cells.
MAX_LINE = 100_000
MARKS = (
    (b"\xef\xbb\xbf", "utf-8"),
    (b"\xff\xfe\0\0", "utf-32"),
    (b"\0\0\xfe\xff", "utf-32"),
    (b"\xff\xfe", "utf-16"),
    (b"\xfe\xff", "utf-16"),
)
WORD = re.compile(r"\w+")
PATIENCE = 10  # timeouts for a whole response: a server that sends byte by byte never times out


@dataclass
class Source:
    """The uncompressed content of a file, and its reader's remarks."""

    name: str  # the last part of the path, for messages
    data: bytes
    format: str = ""
    place: Path = field(default_factory=Path)  # of a web address, the name alone
    notes: list[str] = field(default_factory=list)  # what the reader skipped
    encoding: str | None = None  # if the user names one
    understood: str = ""  # what the reader took the file for
    otherwise: str = ""  # how the user can have it read differently

    def fail(self, message: str, line: int | None = None) -> HierarchyError:
        """The error to raise, with the file and the line before the message."""
        return HierarchyError(f"{self.name}{f', line {line:,}' if line else ''}: {message}")

    def text(self) -> str:
        """The content as text, in Unicode or else in Windows-1252, which is noted."""
        text = self._decoded().removeprefix("\ufeff")
        if "\0" in text:
            raise self.fail("contains a NUL character; it is not text", text.count("\n", 0, text.index("\0")) + 1)
        if not text.strip():
            raise self.fail("is empty; expected a hierarchy")
        return text

    def _decoded(self) -> str:
        data, named = self.data, self.encoding
        marked = next((name for mark, name in MARKS if data.startswith(mark)), None)
        zeros = [data[start:1000:2].count(0) * 5 > len(data[start:1000:2]) * 2 for start in (0, 1)]
        guessed = "utf-16-le" if zeros == [False, True] else "utf-16-be" if zeros == [True, False] else "utf-8"
        encoding = named or marked or guessed
        try:
            return data.decode(encoding)
        except LookupError:
            message = f"encoding {quote(named)} is unknown; expected a name such as utf-8, cp1252 or latin-1"
            raise self.fail(message) from None
        except UnicodeDecodeError as error:
            line = data.count(b"\n", 0, error.start) + 1
            text = None if encoding != "utf-8" or named else _western(data)
            if text is None:
                message = f"is not text in {encoding.upper()}: byte 0x{data[error.start]:02x}; save it as UTF-8, or "
                raise self.fail(f"{message}pass encoding= (-O encoding=cp1251 on the command line)", line) from None
        word = next(word for word in WORD.findall(text) if not word.isascii())
        note = f"not UTF-8: read as Windows-1252, {quote(word)} in line {line:,}"
        note += "; if names look wrong, pass -O encoding=NAME"
        self.notes += [] if note in self.notes else [note]
        return text

    def lines(self) -> list[str]:
        """The lines of the text, with any line ending."""
        return list(self.short(self.text().replace("\r\n", "\n").replace("\r", "\n").split("\n")))

    def short(self, lines: Iterable[str]) -> Iterator[str]:
        """The lines as they are; one that is too long for names is refused."""
        for number, line in enumerate(lines, start=1):
            if len(line) > MAX_LINE:
                message = f"the line has {len(line):,} characters, more than {MAX_LINE:,}; is a line end missing?"
                raise self.fail(message, number)
            yield line

    def json(self, text: str | None = None) -> Any:
        """The content as JSON; a key must not appear twice in one object."""

        def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
            data = dict(pairs)
            if len(data) < len(pairs):
                twice = Counter(key for key, _ in pairs).most_common(1)[0][0]
                raise self.fail(f"{quote(twice)} appears twice in one object; remove one of them")
            return data

        try:
            return json.loads(self.text() if text is None else text, object_pairs_hook=unique)
        except json.JSONDecodeError as error:
            raise self.fail(f"is not JSON: {error.msg}", error.lineno) from None
        except ValueError as error:  # a number of thousands of digits
            failure = self.fail("is not JSON that can be read: a number has thousands of digits")
            raise (error if isinstance(error, HierarchyError) else failure) from None
        except RecursionError:
            raise self.fail("is nested too deeply to be read; write it as an edge list (.csv)") from None


def _western(data: bytes) -> str | None:
    """The text in Windows-1252 if that gives words in Latin letters, else None."""
    try:
        text = data.decode("cp1252")
    except UnicodeDecodeError:
        return None
    words = [word for word in WORD.findall(text) if not word.isascii()]
    strange = [c for c in text if c > "\x7f" and not c.isalpha() and c not in "‘’“”–—…•°®™©€£§×«»´·½¼±\xa0"]
    n_high = sum(not c.isascii() for word in words for c in word)
    return text if words and not strange and 2 * n_high <= sum(map(len, words)) else None


def open_source(place: Place, format: str | None = None, max_bytes: int = MAX_BYTES, timeout: float = 20.0) -> Source:
    """Read a file or an address, at most `max_bytes` compressed and uncompressed, and find its format.

    The content of a folder is read later.
    """
    place = os.fspath(place)
    parts = urlsplit(place)
    is_web = parts.scheme in ("http", "https")
    if parts.scheme == "file" and parts.netloc not in ("", "localhost"):
        raise HierarchyError(f"{place!r}: a file address must be on this machine, as in file:///data/h.json")
    if "://" in place and not is_web and parts.scheme != "file":
        raise HierarchyError(f"{place!r}: expected a path, or an address that starts with file://, http:// or https://")
    path = Path(unquote(parts.path) if is_web or parts.scheme == "file" else place)
    is_folder = not is_web and path.is_dir()
    if format == "folder" or (is_folder and format is None):
        if not is_folder:
            raise HierarchyError(f"{place!r} is not a directory, which format 'folder' needs")
        return Source(path.resolve().name or str(path), b"", "folder", path)
    name = path.name or place
    known = find_format(place.split("?")[0].split("#")[0] if is_web else name, format, to="read")
    if is_web:
        data = _fetch(place, max_bytes, timeout)
    else:
        try:
            if path.exists() and not path.is_file():  # reading a pipe might never end
                raise HierarchyError(f"cannot read {str(path)!r}: it is not a regular file; give a file or a folder")
            with path.open("rb") as file:
                data = _read_bounded(file, name, max_bytes)
        except HierarchyError:
            raise
        except (OSError, ValueError) as error:  # ValueError: a NUL in the path
            raise HierarchyError(f"cannot read {str(path)!r}: {getattr(error, 'strerror', None) or error}") from None
    if data.startswith(b"\x1f\x8b"):
        try:
            with gzip.GzipFile(fileobj=io.BytesIO(data)) as packed:
                data = _read_bounded(packed, f"{name}, uncompressed,", max_bytes)
        except (OSError, EOFError, zlib.error) as error:
            raise HierarchyError(f"{name}: is not a complete gzip file ({error})") from None
    return Source(name, data, known.name, Path(name) if is_web else path)


def _read_bounded(file: IO[bytes] | gzip.GzipFile, name: str, max_bytes: int) -> bytes:
    """The content of a file, which must not exceed `max_bytes`."""
    data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise _too_large(name, max_bytes)
    return data


def _too_large(name: str, max_bytes: int) -> HierarchyError:
    advice = "pass max_bytes= to read it anyway, or keep the part you need"
    return HierarchyError(f"{name} has more than {max_bytes:,} bytes; {advice}")


def _fetch(url: str, max_bytes: int, timeout: float) -> bytes:
    """The content at an address, within limits of size and time."""
    try:
        response = fetch(url, timeout=timeout, max_seconds=PATIENCE * timeout, max_bytes=max_bytes, follow=True)
    except TooLargeError:
        raise _too_large(url, max_bytes) from None
    except WebError as error:
        hints = ((TooSlowError, "; pass a longer timeout="), (BrokenOffError, "; try again"))
        hint = next((text for kind, text in hints if isinstance(error, kind)), "")
        raise HierarchyError(f"cannot fetch {url!r}: {error}{hint}") from None
    if response.status >= 300:
        raise HierarchyError(f"cannot fetch {url!r}: the server answered {response.status} {response.reason}")
    return response.body
