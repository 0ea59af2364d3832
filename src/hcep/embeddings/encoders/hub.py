"""Model hubs: quick to find out that they cannot be reached, one line to say so."""

import logging
import os
import socket
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from importlib import import_module
from typing import Any

from hcep.errors import HCEPError, MissingExtraError

SECONDS_TO_ANSWER = 5.0
SECONDS_OF_SILENCE = 30.0

# Named, not imported: they belong to whichever of httpx, requests and huggingface_hub is installed.
_SILENCE = {
    "ConnectError", "ConnectTimeout", "ConnectionError", "LocalEntryNotFoundError", "NetworkError",
    "OfflineModeIsEnabled", "ProxyError", "ReadTimeout", "SSLError", "Timeout", "TimeoutException"
}  # fmt: skip
_ABSENT = {
    "EntryNotFoundError", "GatedRepoError", "HFValidationError", "RemoteEntryNotFoundError", "RepositoryNotFoundError"
}  # fmt: skip

OFFLINE_CHOICES = (
    "Without a network there are: the encoder 'efficientnet-lite2' (weights in Python packages), 'onnx:file.onnx', "
    "and a folder or checkpoint copied from elsewhere, as in 'transformers:folder' or 'open_clip:ViT-L-14/file.pt'"
)


class HubUnreachableError(HCEPError):
    """A model is not on this machine, and the hub that has it cannot be reached."""


@contextmanager
def loading(name: str, *, local: bool) -> Iterator[None]:
    """Load the encoder `name` in this context: whatever its library raises becomes one line.

    Where the model is not `local` and the hub does not answer at once, the library is told to work offline: what it has
    in its cache is used without a wait, and what it lacks fails without minutes of retries.
    """
    try:
        with ExitStack() as undo:
            undo.callback(socket.setdefaulttimeout, socket.getdefaulttimeout())
            socket.setdefaulttimeout(SECONDS_OF_SILENCE)  # plain urllib downloads have no limit of their own
            if not local and not hub_answers():
                constants: Any = import_module("huggingface_hub.constants")  # reads its environment once, at import
                undo.callback(setattr, constants, "HF_HUB_OFFLINE", constants.HF_HUB_OFFLINE)
                constants.HF_HUB_OFFLINE = True
            yield
    except (HCEPError, MissingExtraError):
        raise
    except Exception as error:
        raise _explained(name, error, local) from error


def hub_answers(seconds: float = SECONDS_TO_ANSWER) -> bool:
    """Whether the Hugging Face hub (or ``HF_ENDPOINT``) answers anything at all within `seconds`."""
    endpoint = os.environ.get("HF_ENDPOINT") or "https://huggingface.co"
    try:
        with urllib.request.urlopen(urllib.request.Request(endpoint, method="HEAD"), timeout=seconds):
            return True
    except urllib.error.HTTPError as answer:
        answer.close()
        return True
    except (OSError, ValueError):
        return False


@contextmanager
def quiet_root_logger() -> Iterator[None]:
    """Drop what is logged on the root logger itself, where open_clip repeats as an error what it then raises."""

    def drop(record: logging.LogRecord) -> bool:
        return False

    logging.getLogger().addFilter(drop)
    try:
        yield
    finally:
        logging.getLogger().removeFilter(drop)


def error_chain(error: BaseException | None) -> Iterator[BaseException]:
    """An error and the errors behind it."""
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def is_silence(error: BaseException) -> bool:
    """Whether an error says that nobody answered, in whichever client's words."""
    if isinstance(error, urllib.error.HTTPError):
        return False
    return isinstance(error, (ConnectionError, TimeoutError, socket.gaierror, urllib.error.URLError)) or any(
        base.__name__ in _SILENCE for base in type(error).__mro__
    )


def _explained(name: str, error: Exception, local: bool) -> HCEPError:
    chain = list(error_chain(error))
    if not local and any(map(is_silence, chain)):
        return HubUnreachableError(f"{name} is not on this machine and its hub cannot be reached. {OFFLINE_CHOICES}.")
    if not local and any(type(e).__name__ in _ABSENT for e in chain):
        return HCEPError(f"{name}: the hub has no such model, or not for you; there is no folder of that name either")
    reason = (str(error) or type(error).__name__).strip().splitlines()[0]
    return HCEPError(f"{name} could not be loaded: {reason}")
