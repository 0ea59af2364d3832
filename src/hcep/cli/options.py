"""Options that commands share, from flags or a TOML file, and what is made of them."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer

from hcep import embeddings, hierarchy
from hcep._files import write_text
from hcep.cli.console import show_notes
from hcep.errors import HCEPError, near_matches
from hcep.taxonomy import llm


def option(text: str, *names: str, **settings: Any) -> Any:
    """An option, its help first."""
    return typer.Option(*names, help=text, **settings)


def argument(text: str, **settings: Any) -> Any:
    """An argument, its help first."""
    return typer.Argument(help=text, **settings)


def group(text: str, **settings: Any) -> typer.Typer:
    """A command of commands."""
    plain: dict[str, Any] = {"no_args_is_help": True, "rich_markup_mode": "rich", "pretty_exceptions_enable": False}
    return typer.Typer(help=text, **plain, **settings)


_DATA = "Embeddings: a store, .npy, .npz, .parquet, .csv or .pt file, a Hugging Face dataset; or a folder of photos."
Data = Annotated[Path, argument(_DATA, metavar="DATA")]
OptionalData = Annotated[Path | None, argument(_DATA, metavar="DATA")]
Vectors = Annotated[str | None, option("Vectors in a file: an array, key or columns, as 'f*', 'a,b,c' or f0:f511.")]
Label = Annotated[str | None, option("Array, key or column of the labels in a file.")]
Labels = Annotated[Path | None, option("File of labels, one per vector: .npy, .txt or .csv.")]
Split = Annotated[str | None, option("Only this split; all images by default.")]
Encoder = Annotated[str | None, option("Of photos; the model's own by default.", "--encoder", "-e")]
OwnEncoder = Annotated[str | None, option("The model's own by default.", "--encoder", "-e")]
Preprocessing = Annotated[
    str | None, option("Where a model does not say it: clip, siglip, imagenet, efficientnet-lite2 or a JSON file.")
]
Model = Annotated[Path, argument("Model folder made by `hcep fit`.")]
ModelOption = Annotated[Path | None, option("Model folder; ImageNet's by default.", "--model", "-m")]
Images = Annotated[list[str], argument("Images, folders of images, or globs; a model folder first.")]
Json = Annotated[bool, option("Print JSON and nothing else.", "--json")]
Strict = Annotated[bool, option("Make an image that cannot be used an error.")]
Coverage = Annotated[
    float | None, option("Stop at the lowest concept right so often, as 0.9 (calibrated models).", min=0.01, max=0.999)
]
Force = Annotated[bool, option("Replace what is there already.", "--force", "-f")]
_READER = "Option of the hierarchy's reader, such as root=animal, levels=family,genus, parent=1, encoding=cp1252."
ReaderOptions = Annotated[list[str] | None, option(_READER, "--option", "-O", metavar="KEY=VALUE")]
CorrectionsFile = Annotated[Path | None, option("File of `hcep correct`: what people said of single images.")]
BaseUrl = Annotated[str | None, option("Its server, as a rule ending in /v1; OpenAI's by default.")]
Cache = Annotated[Path | None, option("Folder that keeps its answers; a second run replays them.")]
Offline = Annotated[bool, option("Answers from the cache alone.")]
_RAY = "Work on a Ray cluster: at this address, RAY_ADDRESS's, or one on this machine. docs/scale.md tells more."
Ray = Annotated[str | None, option(_RAY, "--ray", metavar="[ADDRESS]")]
#: What follows --ray where it is an address; anything else is not its value.
_ADDRESS = re.compile(r"auto|local|(ray://)?[\w.-]+:\d+")


def with_ray_address(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, with the default for a --ray that has no address."""
    made: list[str] = []
    for one, after in zip_longest(arguments, arguments[1:], fillvalue=""):
        made += [one, ""] if one == "--ray" and not _ADDRESS.fullmatch(after) else [one]
    return made


def chat_model(model: str | None, base_url: str | None, refusal: str, **options: Any) -> llm.ChatModel | None:
    """The model of that name; without one, other options about it are refused."""
    if model is not None:
        return llm.ChatModel(model, base_url, **options)
    if base_url or any(options.get(name) for name in ("cache", "offline", "prices")):
        raise HCEPError(refusal)
    return None


def reader_options(given: Sequence[str] | None) -> dict[str, Any]:
    """What --option says, as the hierarchy's reader takes it: lists apart by commas, numbers as such."""
    found: dict[str, Any] = {}
    for one in given or ():
        key, equals, value = one.partition("=")
        if not equals:
            raise typer.BadParameter(f"expected KEY=VALUE, got {one!r}", param_hint="--option")
        try:
            numbers = {"max_bytes": int, "timeout": float}
            found[key] = value.split(",") if key in ("levels", "relationships") else numbers.get(key, str)(value)
        except ValueError:
            raise typer.BadParameter(f"{key} must be a number, got {value!r}", param_hint="--option") from None
    return found


def lines_in(file: Path | None, flag: str = "--classes") -> list[str] | None:
    """The lines of a text file, such as labels; None without one."""
    try:
        return [line.strip() for line in file.read_text("utf-8-sig").splitlines() if line.strip()] if file else None
    except UnicodeDecodeError as error:
        told = f"{flag}: {str(file)!r} is not text in UTF-8 ({error}); expected one label per line"
        raise HCEPError(told) from None


def embeddings_for(model: Any, data: Path, split: str | None, **options: Any) -> embeddings.Embeddings:
    """What a model takes of the data; notes about it are shown."""
    from hcep.models import model_encoder

    found = model_encoder.embeddings_for(model, data, split, **options)
    show_notes(found.notes)
    return found


def kept_corrections(path: Path | None, tree: hierarchy.Hierarchy | None) -> Any:
    """The corrections of a file that hold in a hierarchy, with notes about those that do not; None without a file."""
    from hcep.explain.corrections import Corrections

    if path is None:
        return None
    kept = Corrections(path, tree, lenient=True)
    notes = [f"{problem}; this correction does not count" for problem in kept.problems[:3]]
    if len(kept.problems) > 3:
        notes.append(f"{len(kept.problems) - 3:,} more corrections in {path} do not count")
    if kept.torn:
        notes.append(f"the last line of {path} was not written to its end and does not count")
    show_notes(notes)
    return kept


def corrected_limits(path: Path | None, tree: hierarchy.Hierarchy, found: embeddings.Embeddings) -> Any:
    """Paths that corrections leave open to each image, with a note how many they are about."""
    from hcep.pursuit.limits import PathLimits

    kept = kept_corrections(path, tree)
    if kept is None:
        return None
    asked = kept.requests(found.hashes)
    show_notes([f"{sum(map(any, asked)):,} of {len(found.X):,} images have a correction in {path}"])
    return PathLimits.of_images(tree, asked)


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


_CONFIG = "TOML file with options; flags beat it. Keys are the long options, at the top or under [COMMAND]."
Config = Annotated[Path | None, option(_CONFIG, "--config", callback=_read_config, is_eager=True)]


def _values(context: typer.Context, table: dict[str, Any], path: Path) -> dict[str, Any]:
    """The keys that concern this command: those at the top and those under its own name; unknown ones are errors."""
    commands = set(getattr(context.parent.command, "commands", ())) if context.parent else set()
    own = table.get(str(context.command.name), {})
    shared = {key: value for key, value in table.items() if not (isinstance(value, dict) and key in commands)}
    known = {name: p.name for p, long in _parameters(context) for name in (p.name, *long)}
    values: dict[str, Any] = {}
    for key, value in [*shared.items(), *own.items()]:
        if key.replace("-", "_") not in known:
            near = near_matches(key, [name.replace("_", "-") for name in known])
            raise HCEPError(f"--config: unknown key {key!r} in {path.name}.{near}")
        values[known[key.replace("-", "_")]] = value
    return values


def _parameters(context: typer.Context) -> list[tuple[Any, list[str]]]:
    """Parameters of the command, with their long options, with underscores."""
    found = [p for p in context.command.params if p.name not in (None, "config", "help")]
    return [(p, [name[2:].replace("-", "_") for name in p.opts if name.startswith("--")]) for p in found]


def save_resolved(context: typer.Context, place: Path) -> Path:
    """Write every option of the command, as it was resolved, so that ``--config`` runs it again.

    `place` is the output's folder, or the file to write.
    """
    lines = [f"[{context.command.name}]"]
    for parameter, long in _parameters(context):
        value = context.params.get(parameter.name)
        if parameter.name != "as_json" and value is not None and value != ():
            lines.append(f"{(long or [parameter.name])[0].replace('_', '-')} = {_toml(value)}")
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
