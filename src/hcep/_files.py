"""Write files completely or not at all, lock folders, and fetch data over HTTP."""

import asyncio
import codecs
import csv
import errno
import logging
import os
import secrets
import threading
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from hcep.errors import HCEPError, counted, csv_problem, quote

if TYPE_CHECKING:
    import ssl

    import httpx

logger = logging.getLogger(__name__)
MAX_REDIRECTS = 10
#: Reasons of the system why a file cannot be written: the disk is full, a quota or the largest size of a file is
#: reached, or the folder is read-only or damaged.
NOT_WRITABLE = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EROFS, errno.EACCES, errno.EPERM, errno.EIO))
#: Most characters of the first line of a table that are looked at for its delimiter.
MAX_LINE = 1 << 20
#: Unfinished files of this process, which a forced exit removes.
_UNFINISHED: set[Path] = set()
_HELD = threading.local()


def refuse_existing(
    path: str | os.PathLike[str] | None, overwrite: bool = False, option: str = "output", *, folder: bool = False
) -> None:
    """Refuse a file that exists, or a folder, before any work; for a `folder`, one that is not empty, or a file.

    `option` is the name of the option in messages.
    """
    if path is None:
        return
    if folder and Path(path).is_file():
        raise HCEPError(f"{option}: {str(path)!r} is a file; give a folder")
    if not folder and Path(path).is_dir():
        raise HCEPError(f"{option}: {str(path)!r} is a folder; give the name of a file")
    if not overwrite and os.path.lexists(path) and not (folder and not any(Path(path).iterdir())):
        raise HCEPError(f"{option}: {str(path)!r} already exists; pass --overwrite to replace it, or give another name")


def not_writable(error: BaseException | None) -> int:
    """The system's number of the reason, if an error or its cause says that a file cannot be written; 0 otherwise."""
    while error is not None:
        if isinstance(error, OSError) and error.errno in NOT_WRITABLE:
            return error.errno
        error = error.__cause__
    return 0


@contextmanager
def replacing(path: str | os.PathLike[str], error: type[HCEPError] = HCEPError) -> Iterator[Path]:
    """Give a temporary file beside `path`, which replaces `path` at the end, or is removed after an error.

    Missing folders are created, and the permissions of a replaced file are kept. Raises `error` if the file cannot be
    written.
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
            with partial.open("rb") as file:  # after a power cut, the name has the old or the new file
                os.fsync(file.fileno())
            os.replace(partial, target)
            sync_folder(target.parent)
        finally:
            partial.unlink(missing_ok=True)
            _UNFINISHED.discard(partial)
    except OSError as failure:
        raise error(f"cannot write {str(path)!r}: {failure.strerror or failure}") from failure


def write_bytes(path: str | os.PathLike[str], data: bytes | memoryview, error: type[HCEPError] = HCEPError) -> None:
    with replacing(path, error) as partial:
        partial.write_bytes(data)


def write_text(path: str | os.PathLike[str], text: str, error: type[HCEPError] = HCEPError) -> None:
    """Write UTF-8 in one step; characters that UTF-8 cannot hold become question marks."""
    write_bytes(path, text.encode("utf-8", errors="replace"), error)


def regular(path: str | os.PathLike[str]) -> Path:
    """The path, or an OSError if it leads to a pipe, for which a reader would wait, or to a device without an end."""
    place = Path(path)
    if place.exists() and not (place.is_file() or place.is_dir()):
        raise OSError(errno.EINVAL, "it is not a regular file", str(path))
    return place


def json_bytes(path: Path) -> bytes:
    """The content of a JSON file in UTF-8, also if it is in UTF-16 or has a byte-order mark, as on Windows."""
    content = regular(path).read_bytes()
    if content.startswith((codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)):
        return content.decode("utf-16").encode()
    return content.removeprefix(codecs.BOM_UTF8)


def json_keys(path: Path) -> set[str]:
    """The keys of the object in a JSON file, or of the first entry of a list; empty if it has none."""
    import msgspec

    try:
        content = json_bytes(path)
        if content.lstrip()[:1] == b"[":
            entries = msgspec.json.decode(content, type=list[msgspec.Raw])
            content = bytes(entries[0]) if entries else b"{}"
        return set(msgspec.json.decode(content, type=dict[str, msgspec.Raw]))
    except (OSError, UnicodeError, msgspec.MsgspecError, RecursionError):
        return set()


def read_lines(path: Path, error: type[HCEPError] = HCEPError, option: str = "") -> list[str]:
    """The lines of a text file in UTF-8, without blanks around them and without blank lines."""
    try:
        text = regular(path).read_text(encoding="utf-8-sig")
    except OSError as failure:
        raise error(f"{option}{str(path)!r} cannot be read: {failure.strerror}") from None
    except UnicodeError as failure:
        raise error(f"{option}{str(path)!r} is not text in UTF-8: {failure}") from None
    return [line for line in map(str.strip, text.splitlines()) if line]


def read_csv(path: Path, error: type[HCEPError] = HCEPError, marks: str = ",", option: str = "") -> list[list[str]]:
    """The rows of a CSV file in UTF-8, without blank ones; `error` is raised unless all are as long as the first.

    Parameters
    ----------
    marks : possible delimiters; the one that the first line has most of is used
    option : what messages start with
    """
    rows: list[list[str]] = []
    where, n_lines = f"{option}{str(path)!r}", 0
    try:
        with regular(path).open(encoding="utf-8-sig", newline="") as file:
            mark = max(marks, key=file.readline(MAX_LINE).count)
            file.seek(0)
            reader = csv.reader(file, delimiter=mark, strict=True)
            for row in reader:
                n_lines = reader.line_num
                if rows and row and len(row) != len(rows[0]) and any(map(str.strip, row)):
                    cells = f"{counted(len(row), 'cell')}, but the first line has {len(rows[0]):,}"
                    raise error(f"{where}, line {n_lines:,}: {cells}: {quote(row)}")
                rows += [row] if row and len(row) == len((rows or [row])[0]) else []
    except OSError as failure:
        raise error(f"{where} cannot be read: {failure.strerror}") from None
    except UnicodeError:
        raise error(f"{where} cannot be read as a table: it is not text in UTF-8") from None
    except csv.Error as failure:
        raise error(f"{where} cannot be read as a table: line {n_lines + 1:,}: {csv_problem(failure)}") from None
    return rows


def cache_folder(*parts: str) -> Path:
    """The cache folder: ``HCEP_CACHE``, or the platform's folder for caches."""
    from platformdirs import user_cache_path

    own = os.environ.get("HCEP_CACHE")
    return (Path(own) if own else user_cache_path("hcep", appauthor=False)).joinpath(*parts)


def remove_unfinished() -> None:
    """Remove the unfinished files of this process, for an exit without other clean-up."""
    for partial in list(_UNFINISHED):
        partial.unlink(missing_ok=True)


@contextmanager
def locked(
    folder: Path, busy: str, error: type[HCEPError] = HCEPError, patience: float = 0.0, again: bool = False
) -> Iterator[None]:
    """Be the only writer of a folder, which is created; the lock ends with the process in any case.

    Parameters
    ----------
    busy : the start of the error message if another process has the lock
    patience : seconds to wait for another process
    again : let a thread that already has the lock continue
    """
    held: set[Path] = _HELD.__dict__.setdefault("folders", set())
    try:
        folder.mkdir(parents=True, exist_ok=True)
        place = folder.resolve()
    except OSError as failure:
        raise error(f"cannot create the folder {str(folder)!r}: {failure.strerror or failure}") from failure
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
                logger.info("%s cannot be locked: make sure that only one run writes to it", folder)
                break
        held.add(place)
        yield
    finally:
        held.discard(place)
        os.close(descriptor)


def sync_folder(folder: Path) -> None:
    """Write a folder's entries to disk, if the platform supports it."""
    if not hasattr(os, "O_DIRECTORY"):
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        with suppress(OSError):  # some network file systems cannot
            os.fsync(descriptor)
    finally:
        os.close(descriptor)


class WebError(OSError):
    """A server cannot be reached."""


class AddressError(WebError):
    """An address is not one that HTTP can use."""


class TooSlowError(WebError):
    """A response has not come in time."""


class TooLargeError(WebError):
    """A response has more bytes than allowed."""


class BrokenOffError(WebError):
    """A connection ended before the whole response came, or the response is not HTTP."""


class WebResponse(NamedTuple):
    """A server's response, whatever its status; the keys of `headers` ignore case."""

    status: int
    reason: str
    headers: Mapping[str, str]
    body: bytes = b""


#: Called with a response without its body; returns the function that takes the body piece by piece.
Saver = Callable[[WebResponse], Callable[[bytes], object]]


def fetch(
    url: str,
    *,
    timeout: float,
    max_bytes: int,
    max_seconds: float | None = None,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    follow: bool = False,
    save: Saver | None = None,
) -> WebResponse:
    """Send an HTTP request and read the response, within limits that hold whatever the server does.

    Parameters
    ----------
    url : an address that starts with http:// or https://
    timeout : seconds of silence after which to give up
    max_bytes : maximum size of the body, which is never decompressed
    max_seconds : maximum seconds for the whole exchange, including redirects; None for no limit
    data : sent by POST; without it the method is GET
    headers : sent with the request; those that carry credentials never go to another host
    follow : follow redirects, to web addresses only
    save : receives the body instead of `WebResponse.body`

    Raises
    ------
    TooSlowError, TooLargeError, BrokenOffError : a limit was reached, or the connection failed halfway
    WebError : the server cannot be reached
    AddressError : `url` is not a web address
    """
    import httpx

    exchange = _exchange(url, timeout, max_bytes, max_seconds, data, headers, follow, save)
    try:
        return _run(exchange)
    except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
        raise AddressError(str(error)) from None
    except httpx.TimeoutException:
        raise TooSlowError("timed out") from None
    except TimeoutError:
        raise TooSlowError(f"it takes longer than {max_seconds:g} s") from None
    except (httpx.ConnectError, httpx.ProxyError) as error:
        raise WebError(_reason(error)) from None
    except httpx.HTTPError as error:
        raise BrokenOffError(str(error) or type(error).__name__) from None


def _reason(error: BaseException) -> str:
    """The system's words for a failed connection, such as "Connection refused", which httpx keeps as the cause."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.errno:
            # asyncio writes its own text over the system's; a failed lookup of a name has a negative number.
            return os.strerror(cause.errno) if cause.errno > 0 else str(cause.strerror)
        cause = cause.__cause__ or cause.__context__
    return str(error) or type(error).__name__


def _run(exchange: Coroutine[Any, Any, WebResponse]) -> WebResponse:
    """Wait for an exchange, also inside a running event loop, such as a notebook's."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(exchange)
    with ThreadPoolExecutor(max_workers=1) as threads:
        return threads.submit(asyncio.run, exchange).result()


async def _exchange(
    url: str,
    timeout: float,
    max_bytes: int,
    max_seconds: float | None,
    data: bytes | None,
    headers: Mapping[str, str] | None,
    follow: bool,
    save: Saver | None,
) -> WebResponse:
    import httpx

    certificates = _certificates()  # loaded before the clock starts
    async with asyncio.timeout(max_seconds), httpx.AsyncClient(timeout=timeout, verify=certificates) as client:
        method, own = "GET" if data is None else "POST", {"Accept-Encoding": "identity"}
        request = client.build_request(method, url, content=data, headers={**own, **(headers or {})})
        # httpx would follow redirects too, but reads each one's body whole, however large it is.
        for _ in range(MAX_REDIRECTS + 1):
            response = await client.send(request, stream=True)
            async with aclosing(response):
                if not follow or response.next_request is None:
                    return await _read_response(response, max_bytes, save)
            request = response.next_request
            if request.url.scheme not in ("http", "https"):
                location = response.headers["Location"]
                raise WebError(f"it redirects to {quote(location)}, which is not a web address")
        raise WebError(f"it redirects more than {MAX_REDIRECTS} times")


@cache
def _certificates() -> "ssl.SSLContext":
    """The system's certificates, to which companies add their own."""
    import ssl

    return ssl.create_default_context()


async def _read_response(response: "httpx.Response", max_bytes: int, save: Saver | None) -> WebResponse:
    head = WebResponse(response.status_code, response.reason_phrase, response.headers)
    body, n_bytes = bytearray(), 0
    write = body.extend if save is None else save(head)
    async for chunk in response.aiter_raw():
        n_bytes += len(chunk)
        if n_bytes > max_bytes:
            raise TooLargeError(f"it sends more than {max_bytes:,} bytes")
        write(chunk)
    return head._replace(body=bytes(body))
