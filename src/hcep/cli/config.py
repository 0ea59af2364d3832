"""Options from a TOML file: flags beat it, unknown keys are errors, what was resolved is saved beside the output."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from hcep._files import write_text
from hcep.cli.options import option
from hcep.errors import HCEPError, near_matches

#: What a run resolved to, beside its output.
RESOLVED = "hcep-config.toml"
MAX_BYTES = 1_000_000


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's values the defaults of this command; called before the other options are read."""
    if path is None or context.resilient_parsing:
        return path
    try:
        is_small = path.stat().st_size <= MAX_BYTES and path.is_file()
        table = tomllib.loads(path.read_text(encoding="utf-8")) if is_small else None
    except OSError as error:
        raise HCEPError(f"--config: cannot read {str(path)!r}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise HCEPError(f"--config: {str(path)!r} is not TOML: {error}") from None
    if table is None:
        raise HCEPError(f"--config: {str(path)!r} is no file of at most {MAX_BYTES:,} bytes")
    context.default_map = {**(context.default_map or {}), **_values(context, table, path)}
    return path


Config = Annotated[
    Path | None,
    option(
        "TOML file with options; flags beat it. Keys are the long options, at the top or under [COMMAND].",
        *("--config",),
        callback=_read_config,
        is_eager=True,
    ),
]


def _values(context: typer.Context, table: dict[str, Any], path: Path) -> dict[str, Any]:
    """The keys that concern this command: those at the top and those under its own name."""
    assert context.command.name is not None
    commands = set(getattr(context.parent.command, "commands", ())) if context.parent else set()
    own = table.get(context.command.name, {})
    shared = {key: value for key, value in table.items() if not (isinstance(value, dict) and key in commands)}
    known = {name: parameter.name for parameter in _parameters(context) for name in (parameter.name, *_long(parameter))}
    values: dict[str, Any] = {}
    for key, value in [*shared.items(), *own.items()]:
        if key.replace("-", "_") not in known:
            near = near_matches(key, [name.replace("_", "-") for name in known])
            raise HCEPError(f"--config: unknown key {key!r} in {path.name}.{near}")
        values[known[key.replace("-", "_")]] = value
    return values


def _parameters(context: typer.Context) -> list[Any]:
    return [p for p in context.command.params if p.name not in (None, "config", "help")]


def _long(parameter: Any) -> list[str]:
    """Long options, with underscores."""
    return [option[2:].replace("-", "_") for option in parameter.opts if option.startswith("--")]


def save_resolved(context: typer.Context, place: Path) -> Path:
    """Write every option of the command, as it was resolved, so that ``--config`` runs it again.

    `place` is the output's folder, or the file to write.
    """
    assert context.command.name is not None
    lines = [f"[{context.command.name}]"]
    for parameter in _parameters(context):
        value = context.params.get(parameter.name)
        if parameter.name != "as_json" and value is not None and value != ():
            long = next(iter(_long(parameter)), parameter.name).replace("_", "-")
            lines.append(f"{long} = {_toml(value)}")
    path = place / RESOLVED if place.is_dir() else place
    write_text(path, "\n".join(lines) + "\n")
    return path


def _toml(value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return repr(value)
    if isinstance(value, list | tuple):
        return "[" + ", ".join(_toml(item) for item in value) + "]"
    return json.dumps(str(getattr(value, "value", value)), ensure_ascii=False)  # JSON strings are TOML strings
