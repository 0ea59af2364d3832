"""Optional packages: imported by the part that needs them, with the command that installs what is missing."""

from importlib import import_module
from importlib.util import find_spec
from typing import Any

from hcep.errors import HCEPError, MissingExtraError


def install_command(extra: str) -> str:
    """The command that installs an extra of this package."""
    return f'pip install "hcep[{extra}]"'


def is_installed(module: str) -> bool:
    """Whether a package is there, without importing it."""
    return find_spec(module) is not None


def require(module: str, extra: str, wanted_by: str) -> Any:
    """Import `module`, which comes with the extra `extra` and which `wanted_by` (the words for a message) needs.

    Raises MissingExtraError when it, or something it needs, is not installed; HCEPError when its import fails.
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        told = f"{wanted_by} needs {(error.name or module).partition('.')[0]}, which is not installed"
        raise MissingExtraError(f"{told}: {install_command(extra)}") from error
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        told = f"{module} is installed but does not import ({reason}); its parts may not fit together, "
        raise HCEPError(told + f"install them anew: {install_command(extra)}") from error
