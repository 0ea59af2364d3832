"""Fetching over HTTP with the standard library: bounded in size and waiting, and clear about what failed."""

from __future__ import annotations

import time
from http.client import HTTPException
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.request import (
    HTTPDefaultErrorHandler,
    HTTPErrorProcessor,
    HTTPHandler,
    HTTPRedirectHandler,
    HTTPSHandler,
    OpenerDirector,
    ProxyHandler,
    UnknownHandler,
)

from hcep.errors import HierarchyError
from hcep.hierarchy.formats.source import refuse_large

PATIENCE = 10  # timeouts that a whole answer may take: a server that drips byte by byte never times out
HANDLERS = (
    ProxyHandler,
    UnknownHandler,
    HTTPHandler,
    HTTPSHandler,
    HTTPDefaultErrorHandler,
    HTTPRedirectHandler,
    HTTPErrorProcessor,
)


def fetch(url: str, max_bytes: int, timeout: float) -> bytes:
    """The body at an address.

    Raises
    ------
    HierarchyError
        No answer within `timeout` seconds, an answer that is an error, too long, or cut off.
    """
    # An opener of its own: the standard one would also follow a redirect to ftp://.
    opener = OpenerDirector()
    for handler in HANDLERS:
        opener.add_handler(handler())
    try:
        with opener.open(url, timeout=timeout) as answer:
            data = _body(answer, url, max_bytes, PATIENCE * timeout)
            expected = answer.headers.get("Content-Length", "")
    except HierarchyError:
        raise
    except HTTPError as error:
        error.close()
        reason = " ".join(str(error.reason).split())  # of a redirect it is several lines
        raise HierarchyError(f"cannot fetch {url!r}: the server answered {error.code} {reason}") from None
    except (OSError, ValueError, HTTPException) as error:
        reason = str(error.reason if isinstance(error, URLError) else error) or type(error).__name__
        raise HierarchyError(f"cannot fetch {url!r}: {reason}") from None
    if expected.isdecimal() and len(data) < int(expected):
        raise HierarchyError(
            f"cannot fetch {url!r}: it ended after {len(data):,} of {int(expected):,} bytes; try again"
        )
    return data


def _body(answer: Any, url: str, max_bytes: int, seconds: float) -> bytes:
    data = bytearray()
    end = time.monotonic() + seconds
    while chunk := answer.read1(65_536):
        data += chunk
        refuse_large(len(data), url, max_bytes)
        if time.monotonic() > end:
            raise HierarchyError(f"cannot fetch {url!r}: it takes longer than {seconds:g} s; pass a longer timeout=")
    return bytes(data)
