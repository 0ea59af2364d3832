"""Model hubs: notice quickly that a hub cannot be reached, and say so in one line."""

import logging
import os
import socket
import sys
import urllib.error
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from typing import Any

from hcep._files import TooLargeError, fetch
from hcep.errors import HCEPError, MissingExtraError

SECONDS_TO_ANSWER = 5.0
SECONDS_OF_SILENCE = 30.0

# By name, because they belong to whichever of httpx, requests and huggingface_hub is installed.
_SILENCE = {
    "ConnectError", "ConnectTimeout", "ConnectionError", "LocalEntryNotFoundError", "NetworkError",
    "OfflineModeIsEnabled", "ProxyError", "ReadTimeout", "SSLError", "Timeout", "TimeoutException"
}  # fmt: skip
_ABSENT = {
    "EntryNotFoundError", "GatedRepoError", "HFValidationError", "RemoteEntryNotFoundError", "RepositoryNotFoundError"
}  # fmt: skip

OFFLINE_CHOICES = (
    "Without a network, use 'efficientnet-lite2' (its weights are a Python package), 'onnx:file.onnx', or a folder or "
    "checkpoint copied from elsewhere, as in 'transformers:folder' or 'open_clip:ViT-L-14/file.pt'"
)


#: Environment variable that lets encoders which a model names be downloaded; `hcep --allow-download` sets it.
ALLOW_DOWNLOAD = "HCEP_ALLOW_DOWNLOAD"
_NO_NETWORK = ContextVar("no_network", default=False)


class HubUnreachableError(HCEPError):
    """A model is not on this machine, and the hub that has it cannot be reached."""


@contextmanager
def without_network() -> Iterator[None]:
    """Load encoders in this context from this machine alone: hubs are offline, and connections are refused."""
    _watch_connections()
    token = _NO_NETWORK.set(True)
    try:
        yield
    finally:
        _NO_NETWORK.reset(token)


@cache
def _watch_connections() -> None:
    def refuse(event: str, _: tuple[Any, ...]) -> None:
        if event in ("socket.connect", "socket.getaddrinfo") and _NO_NETWORK.get():
            raise ConnectionRefusedError("the encoder's name comes from a file, and files may not cause downloads")

    sys.addaudithook(refuse)  # also sees downloads that are not from the hub


@contextmanager
def loading(name: str, *, local: bool) -> Iterator[None]:
    """Load the encoder `name` in this context, so that any error of its library becomes one line.

    If the model is not `local` and the hub does not answer quickly, the library is switched to offline mode: it uses
    its cache without waiting, and fails without minutes of retries.
    """
    try:
        with ExitStack() as undo:
            undo.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
            socket.setdefaulttimeout(SECONDS_OF_SILENCE)  # downloads by urllib have no limit of their own
            if not local and (_NO_NETWORK.get() or not hub_answers()):
                constants: Any = import_module("huggingface_hub.constants")  # reads its environment once, at import
                undo.callback(setattr, constants, "HF_HUB_OFFLINE", constants.HF_HUB_OFFLINE)
                constants.HF_HUB_OFFLINE = True
            yield
    except (HCEPError, MissingExtraError):
        raise
    except Exception as error:
        raise _explained(name, error, local) from error


def hub_answers(seconds: float = SECONDS_TO_ANSWER) -> bool:
    """Whether the Hugging Face hub (or ``HF_ENDPOINT``) sends any response within `seconds`."""
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        fetch(endpoint, timeout=seconds, max_bytes=0, max_seconds=seconds)
    except TooLargeError:
        return True
    except OSError:
        return False
    return True


@contextmanager
def quiet_root_logger() -> Iterator[None]:
    """Drop messages on the root logger, where open_clip logs an error that it then raises."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    logging.getLogger().addFilter(drop)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(drop)


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and its causes."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_silence(error: BaseException) -> bool:
    """Whether an error means that the server did not respond, whichever client raised it."""
    if isinstance(error, urllib.error.HTTPError):
        return False
    return isinstance(error, (ConnectionError, TimeoutError, socket.gaierror, urllib.error.URLError)) or any(
        base.__name__ in _SILENCE for base in type(error).__mro__
    )


def _explained(name: str, error: Exception, local: bool) -> HCEPError:
    chain = list(error_chain(error))
    if not local and any(map(is_silence, chain)):
        return HubUnreachableError(f"{name} is not on this machine, and the hub cannot be reached. {OFFLINE_CHOICES}.")
    if not local and any(type(e).__name__ in _ABSENT for e in chain):
        return HCEPError(f"{name}: the hub has no such model or denies access, and there is no folder of that name")
    reason = (str(error) or type(error).__name__).strip().splitlines()[0]
    return HCEPError(f"{name} could not be loaded: {reason}")
