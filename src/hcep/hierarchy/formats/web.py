"""Fetching a hierarchy over HTTP: bounded in size and waiting, and clear about what failed."""

from __future__ import annotations

from http.client import HTTPException

from hcep._web import BrokenOffError, TooLargeError, TooSlowError, exchange
from hcep.errors import HierarchyError
from hcep.hierarchy.formats.source import refuse_large

PATIENCE = 10  # timeouts that a whole answer may take: a server that drips byte by byte never times out


def fetch(url: str, max_bytes: int, timeout: float) -> bytes:
    """The body at an address.

    Raises HierarchyError: no answer within `timeout` seconds, an answer that is an error, too long, or cut off.
    """
    try:
        answer = exchange(url, timeout=timeout, seconds=PATIENCE * timeout, max_bytes=max_bytes, follow=True)
    except TooLargeError:
        refuse_large(max_bytes + 1, url, max_bytes)
        raise
    except TooSlowError as error:
        raise HierarchyError(f"cannot fetch {url!r}: {error}; pass a longer timeout=") from None
    except BrokenOffError as error:
        raise HierarchyError(f"cannot fetch {url!r}: {error}; try again") from None
    except (OSError, ValueError, HTTPException) as error:
        raise HierarchyError(f"cannot fetch {url!r}: {str(error) or type(error).__name__}") from None
    if answer.status >= 300:
        raise HierarchyError(f"cannot fetch {url!r}: the server answered {answer.status} {answer.reason}")
    return answer.body
