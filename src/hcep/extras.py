"""Optional packages: imported by the part that needs them, with the command that installs what is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hcep.errors import MissingExtraError


def require(module: str, extra: str, wanted_by: str) -> Any:
    """Import `module`, which comes with the extra `extra` and which `wanted_by` (the words for a message) needs.

    Raises
    ------
    MissingExtraError
        When it, or something it needs, is not installed.

    Examples
    --------
    >>> from hcep.extras import require
    >>> require("json", "formats", "this example").dumps([1])
    '[1]'
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        missing = (error.name or module).partition(".")[0]
        raise MissingExtraError(
            f'{wanted_by} needs {missing}, which is not installed: pip install "hcep[{extra}]"'
        ) from error
