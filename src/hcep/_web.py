"""One exchange over HTTP by the standard library, never larger and never longer than said, whatever the server does."""

import io
import time
import urllib.request as urls
from collections.abc import Mapping
from functools import partial
from http.client import HTTPConnection, HTTPException, HTTPResponse, HTTPSConnection
from typing import Any, NamedTuple
from urllib.error import HTTPError, URLError
from urllib.request import HTTPSHandler, OpenerDirector, Request

#: Bytes of status lines and headers, of redirects too; the standard library refuses a single long line itself.
_HEADERS = 1 << 20


class TooSlowError(OSError):
    """The exchange is not over when it should be."""


class TooLargeError(OSError):
    """The server sends more than is taken."""


class BrokenOffError(OSError):
    """The connection ended, or failed, in the middle of the answer."""


class Answer(NamedTuple):
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


def exchange(
    url: str,
    *,
    timeout: float,
    seconds: float,
    max_bytes: int,
    data: bytes | None = None,
    headers: Mapping[str, str] | None = None,
    follow: bool = False,
) -> Answer:
    """Send a request, by POST where there is `data`, and read the answer; headers also go along redirects.

    It gives up after `timeout` seconds without a byte, and after `seconds` in all; a body of up to `max_bytes` is never
    unpacked. Raises TooSlowError, TooLargeError, BrokenOffError; OSError where the server cannot be reached; ValueError
    for what is no address, http.client.HTTPException for an answer that is not HTTP.
    """
    bounds = _Bounds(timeout, seconds, max_bytes + _HEADERS)
    opener = OpenerDirector()  # of its own: the standard one would also follow a redirect to ftp://
    kinds: list[Any] = [urls.ProxyHandler, urls.UnknownHandler, urls.HTTPDefaultErrorHandler, partial(_Handler, bounds)]
    for kind in (*kinds, *((urls.HTTPRedirectHandler, urls.HTTPErrorProcessor) if follow else ())):
        opener.add_handler(kind())
    try:
        answer = opener.open(Request(url, data, dict(headers or {})), timeout=timeout)
    except HTTPError as error:
        error.close()
        return Answer(error.code, " ".join(str(error.reason).split()), error.headers, b"")
    except URLError as error:
        raise error.reason if isinstance(error.reason, OSError) else error from None
    except TimeoutError:
        raise TooSlowError("timed out") from None
    with answer:
        return Answer(answer.status, answer.reason, answer.headers, _body(answer, max_bytes))


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
        return self.do_open(partial(self._connection, HTTPConnection), request)

    def https_open(self, request: Request) -> Any:
        return self.do_open(partial(self._connection, HTTPSConnection), request, context=self._context)  # type: ignore[attr-defined]

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
