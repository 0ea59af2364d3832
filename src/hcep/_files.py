"""Files that are written whole or not at all, and never over another one unasked; the folder for what can be remade."""

import functools
import io
import logging
import os
import secrets
import threading
import time
import urllib.request as urls
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from pathlib import Path
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, OpenerDirector, Request

from hcep.errors import HCEPError

logger = logging.getLogger(__name__)
#: Half-written files of this process, which a forced exit removes.
_UNFINISHED: set[Path] = set()
_HELD = threading.local()


def refuse_existing(
    path: str | os.PathLike[str] | None, force: bool = False, option: str = "output", how: str = "--force"
) -> None:
    """Refuse a folder, or a file that is there, before any work; `option` and `how` are what users call these."""
    if path is None:
        return
    if Path(path).is_dir():
        raise HCEPError(f"{option}: {str(path)!r} is a folder; give the name of a file")
    if not force and os.path.lexists(path):
        raise HCEPError(f"{option}: {str(path)!r} is there already; pass {how} to replace it, or give another name")


@contextmanager
def replacing(path: str | os.PathLike[str], error: type[HCEPError] = HCEPError) -> Iterator[Path]:
    """A place beside `path` to write to; it becomes `path` when all is written, and vanishes when that fails.

    Folders above are made; the permissions of a file that is replaced stay. Raises HCEPError: or `error`: when the
    place cannot be written.
    """
    target = Path(path)
    partial = target.with_name(f".{target.name[:100]}.{secrets.token_hex(4)}.part")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        try:
            _UNFINISHED.add(partial)
            yield partial
            if target.exists():
                partial.chmod(target.stat().st_mode & 0o777)
            with partial.open("rb") as file:  # on disk before the name points to it: a power cut leaves old or new
                os.fsync(file.fileno())
            os.replace(partial, target)
        finally:
            partial.unlink(missing_ok=True)
            _UNFINISHED.discard(partial)
    except OSError as failure:
        raise error(f"cannot write {str(path)!r}: {failure.strerror or failure}") from None


def write_bytes(path: str | os.PathLike[str], data: bytes, error: type[HCEPError] = HCEPError) -> None:
    with replacing(path, error) as partial:
        partial.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str, error: type[HCEPError] = HCEPError) -> None:
    """Write UTF-8 in one step; what UTF-8 cannot hold (a file name of other bytes) becomes a question mark."""
    write_bytes(path, text.encode("utf-8", errors="replace"), error)


def cache_folder(*parts: str) -> Path:
    """Where things that can be made again are kept: ``HCEP_CACHE``, or the platform's place for the user's caches."""
    from platformdirs import user_cache_path

    own = os.environ.get("HCEP_CACHE")
    return (Path(own) if own else user_cache_path("hcep", appauthor=False)).joinpath(*parts)


def remove_unfinished() -> None:
    """Remove what this process has half written; for an exit that runs no other clean-up."""
    for partial in list(_UNFINISHED):
        partial.unlink(missing_ok=True)


@contextmanager
def locked(
    folder: Path, busy: str, error: type[HCEPError] = HCEPError, patience: float = 0.0, again: bool = False
) -> Iterator[None]:
    """Be the only writer of a folder, which is made; the system lets go of the lock however the process ends.

    `busy` is what the `error` says where another writer has it for more than `patience` seconds; `again` is whether a
    thread that holds the lock already goes on with it.
    """
    held: set[Path] = _HELD.__dict__.setdefault("folders", set())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.resolve()
    except OSError as failure:
        raise error(f"cannot make the folder {str(folder)!r}: {failure.strerror or failure}") from None
    try:
        import fcntl
    except ImportError:  # not on Windows
        yield
        return
    if again and place in held:
        yield
        return
    descriptor, end = os.open(place, os.O_RDONLY), time.monotonic() + patience
    try:
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if time.monotonic() >= end:
                    raise error(f"{busy} {str(folder)!r}: wait for it or stop it") from None
                time.sleep(0.01)
            except OSError:  # a network file system without locks
                logger.info("%s cannot be locked: take care that only one run writes to it", folder)
                break
        held.add(place)
        yield
    finally:
        held.discard(place)
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Bring a folder's entries to disk, where the platform lets a folder be opened."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


#: Bytes of status lines and headers, of redirects too; the standard library refuses a single long line itself.
_HEADERS = 1 << 20


class TooSlowError(OSError):
    """The exchange is not over when it should be."""


class TooLargeError(OSError):
    """The server sends more than is taken."""


class BrokenOffError(OSError):
    """The connection ended, or failed, in the middle of the answer."""


class WebResponse(NamedTuple):
    """What a server said, whatever its status."""

    status: int
    reason: str
    headers: Any
    body: bytes


class _Bounds:
    """What is left of an exchange's time and bytes."""

    def __init__(self, timeout: float, seconds: float, max_bytes: int) -> None:
        self.timeout, self.seconds, self.n_left = timeout, seconds, max_bytes
        self.end = time.monotonic() + seconds

    def wait(self) -> float:
        """Seconds that the next step may take."""
        left = self.end - time.monotonic()
        if left <= 0:
            raise TooSlowError(f"it takes longer than {self.seconds:g} s")
        return min(self.timeout, left)


def fetch(
    url: str,
    *,
    timeout: float,
    seconds: float,
    max_bytes: int,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    follow: bool = False,
) -> WebResponse:
    """Send a request, by POST where there is `data`, and read the answer; headers also go along redirects.

    It gives up after `timeout` seconds without a byte, and after `seconds` in all; a body of up to `max_bytes` is never
    unpacked. Raises TooSlowError, TooLargeError, BrokenOffError; OSError where the server cannot be reached; ValueError
    for what is no address, http.client.HTTPException for an answer that is not HTTP.
    """
    bounds = _Bounds(timeout, seconds, max_bytes + _HEADERS)
    opener = OpenerDirector()  # of its own: the standard one would also follow a redirect to ftp://
    kinds: list[Any] = [
        urls.ProxyHandler,
        urls.UnknownHandler,
        urls.HTTPDefaultErrorHandler,
        functools.partial(_Handler, bounds),
    ]
    for kind in (*kinds, *((urls.HTTPRedirectHandler, urls.HTTPErrorProcessor) if follow else ())):
        opener.add_handler(kind())
    try:
        answer = opener.open(Request(url, data, dict(headers or {})), timeout=timeout)
    except HTTPError as error:
        error.close()
        return WebResponse(error.code, " ".join(str(error.reason).split()), error.headers, b"")
    except URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else error from None
    except TimeoutError:
        raise TooSlowError("timed out") from None
    with answer:
        return WebResponse(answer.status, answer.reason, answer.headers, _body(answer, max_bytes))


def _body(answer: Any, max_bytes: int) -> bytes:
    data = bytearray()
    expected = answer.headers.get("Content-Length", "")
    try:
        while chunk := answer.read1(65_536):
            data += chunk
            if len(data) > max_bytes:
                raise TooLargeError("too large")
    except (TooSlowError, TooLargeError):
        raise
    except TimeoutError:
        raise TooSlowError("timed out") from None
    except (OSError, ValueError, HTTPException) as error:
        raise BrokenOffError(str(error) or type(error).__name__) from None
    if expected.isdecimal() and len(data) < int(expected):
        raise BrokenOffError(f"it ended after {len(data):,} of {int(expected):,} bytes")
    return bytes(data)


class _BoundedFile(io.RawIOBase):
    """What a socket sends, within bounds: a server that drips byte by byte never times out by itself."""

    def __init__(self, socket: Any, bounds: _Bounds) -> None:
        self._socket, self._bounds, self._raw = socket, bounds, socket.makefile("rb", buffering=0)

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        self._socket.settimeout(self._bounds.wait())
        try:
            n_read: int = self._raw.readinto(buffer) or 0
        except TimeoutError:
            self._bounds.wait()
            raise
        self._bounds.n_left -= n_read
        if self._bounds.n_left < 0:
            raise TooLargeError("too large")
        return n_read

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Handler(HTTPSHandler):
    """Connections, plain and encrypted, whose answers are read within bounds."""

    def __init__(self, bounds: _Bounds) -> None:
        super().__init__()
        self._bounds = bounds

    def http_open(self, request: Request) -> Any:
        return self.do_open(functools.partial(self._connection, HTTPConnection), request)

    def https_open(self, request: Request) -> Any:
        return self.do_open(functools.partial(self._connection, HTTPSConnection), request, context=self._context)  # type: ignore[attr-defined]

    http_request = HTTPSHandler.https_request

    def _connection(self, kind: Any, *arguments: Any, **options: Any) -> Any:
        connection = kind(*arguments, **options)
        connection.response_class = self._response
        return connection

    def _response(self, socket: Any, **options: Any) -> HTTPResponse:
        response = HTTPResponse(socket, **options)
        response.fp.close()
        response.fp = io.BufferedReader(_BoundedFile(socket, self._bounds))
        return response
