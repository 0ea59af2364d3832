"""Optional packages: imported when an encoder asks for them, with the command that installs what is missing."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from hcep.errors import HCEPError, MissingExtraError


def install_command(extra: str) -> str:
    """The command that installs an extra of this package."""
    return f'pip install "hcep[{extra}]"'


def require(module: str, extra: str) -> Any:
    """Import `module`, which comes with the extra `extra`.

    Raises
    ------
    MissingExtraError
        When it, or something it needs, is not installed.
    HCEPError
        When it is installed but its import fails.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtraError(
            f"this encoder needs {error.name or module}, which is not installed: {install_command(extra)}"
        ) from error
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        raise HCEPError(
            f"{module} is installed but does not import ({reason}); its parts may not fit together, "
            f"install them anew: {install_command(extra)}"
        ) from error
