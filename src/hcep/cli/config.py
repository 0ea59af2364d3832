"""`--config`: the options of a command from a TOML file, and the file that a run leaves beside its output."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Annotated, Any

import typer

from hcep._files import write_text
from hcep.cli.options import more
from hcep.errors import HCEPError, near_matches, quote

#: The options of a run, written beside its output.
RESOLVED = "hcep-config.toml"
MAX_BYTES, MAX_LINE = 1_000_000, 30_000


def _read_config(context: typer.Context, path: Path | None) -> Path | None:
    """Make the file's values the defaults of this command; called before the other options are parsed."""
    if path is None or context.resilient_parsing:
        return path
    try:
        is_small = path.stat().st_size <= MAX_BYTES and path.is_file()
        text = path.read_text(encoding="utf-8") if is_small else ""
        longest = max(map(len, text.splitlines()), default=0)
        # The time and memory of a key with many dots grow with the square of their number.
        table = tomllib.loads(text) if is_small and longest <= MAX_LINE else None
    except OSError as error:
        raise HCEPError(f"--config: cannot read {str(path)!r}: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise HCEPError(f"--config: {str(path)!r} is not TOML: {error}") from None
    if longest > MAX_LINE:
        raise HCEPError(f"--config: {str(path)!r} has a line of {longest:,} characters, more than {MAX_LINE:,}")
    if table is None:
        raise HCEPError(f"--config: {str(path)!r} is not a file of at most {MAX_BYTES:,} bytes")
    context.default_map = {**(context.default_map or {}), **_values(context, table, path)}
    return path


_CONFIG = "TOML file of options by their long names; flags on the command line take precedence."
Config = Annotated[Path | None, more(_CONFIG, "--config FILE", callback=_read_config, is_eager=True)]


def _values(context: typer.Context, table: dict[str, Any], path: Path) -> dict[str, Any]:
    """The values for this command, by parameter: those at the top of the file, then those under its name."""
    commands = set(getattr(context.parent.command, "commands", ())) if context.parent else set()
    shared = {key: value for key, value in table.items() if not (isinstance(value, dict) and key in commands)}
    return _named(context, shared, path) | _named(context, table.get(str(context.command.name), {}), path)


def _named(context: typer.Context, table: dict[str, Any], path: Path) -> dict[str, Any]:
    """The values of one table by the name of their parameter; unknown keys are errors."""
    known = {name: p.name for p, long in _parameters(context) for name in (p.name, *long)}
    values: dict[str, Any] = {}
    for key, value in table.items():
        if key.replace("-", "_") not in known:
            near = near_matches(key, [name.replace("_", "-") for name in known])
            raise HCEPError(f"--config: unknown key {quote(key)} in {path.name}.{near}")
        name = known[key.replace("-", "_")]
        if isinstance(value, dict):  # [fit.parameter] anchor = 0.3
            value = [f"{part}={_text(one)}" for part, one in value.items()]
        values[name] = [*values.get(name, []), *value] if isinstance(value, list) else value
    return values


def _parameters(context: typer.Context) -> list[tuple[Any, list[str]]]:
    """The parameters of the command, with their long options, with underscores."""
    own = [p for p in context.command.params if p.name not in (None, "config", "help")]
    return [(p, [name[2:].replace("-", "_") for name in p.opts if name.startswith("--")]) for p in own]


def save_resolved(context: typer.Context, place: Path) -> Path:
    """Write the value of every option of the command, so that ``--config`` runs it again.

    `place` is the output's folder, or the file to write.
    """
    lines = [f"[{context.command.name}]"]
    for parameter, long in _parameters(context):
        value = context.params.get(parameter.name)
        if parameter.name != "as_json" and value is not None and value != () and value != []:
            text = json.dumps(value, ensure_ascii=False, default=str)  # TOML writes such values as JSON does
            lines.append(f"{(long or [parameter.name])[0].replace('_', '-')} = {text}")
    path = place / RESOLVED if place.is_dir() else place
    write_text(path, "\n".join(lines) + "\n")
    return path


def _text(value: Any) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
