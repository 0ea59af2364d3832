"""The options and arguments of the commands, each declared once, and what is made of their values.

An option means the same in every command that has it: a command picks it from here, and a test compares its type, help
and placeholder over all commands. Options that only one command has are declared with that command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from itertools import zip_longest
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from hcep._files import read_lines
from hcep.cli.help import MORE
from hcep.errors import HCEPError, near_matches, quote
from hcep.taxonomy import llm


def option(text: str, name: str, *others: str, **settings: Any) -> Any:
    """An option: its help; its name and the placeholder of its value, if it takes one; other names.

    >>> _ = option("Number of levels to draw.", "--depth N", min=0)
    """
    long, _, placeholder = name.partition(" ")
    return typer.Option(long, *others, help=text, metavar=placeholder, **settings)


def more(text: str, name: str, *others: str, **settings: Any) -> Any:
    """An option that is rarely needed: only `--help-all` shows it."""
    return option(text, name, *others, rich_help_panel=MORE, **settings)


def argument(text: str, **settings: Any) -> Any:
    """An argument, its help first."""
    return typer.Argument(help=text, **settings)


Names = list[str] | None
_DATA = "Photos (a folder, or a tool's list: docs/tools.md) or embeddings (a store, file or Hugging Face dataset)."
Data = Annotated[Path, argument(_DATA, metavar="DATA")]
OptionalData = Annotated[Path | None, argument(_DATA, metavar="DATA")]
Model = Annotated[Path, argument("Model folder made by `hcep fit`.", metavar="MODEL")]
Images = Annotated[
    list[str],
    argument("Images, folders or globs, or a file of boxes; a model folder may come first.", metavar="IMAGES"),
]
Tree = Annotated[
    str,
    argument("Hierarchy: a file, folder tree or http(s):// address, a model folder, or `imagenet`.", metavar="TREE"),
]

# -- outputs ---------------------------------------------------------------------------------------------------------

Output = Annotated[Path, option("File or folder to write.", "--output PATH", "-o")]
OptionalOutput = Annotated[Path | None, option("File or folder to write.", "--output PATH", "-o")]
Overwrite = Annotated[bool, option("Overwrite existing output.", "--overwrite")]
Json = Annotated[bool, option("Print JSON.", "--json")]

# -- data ------------------------------------------------------------------------------------------------------------

Split = Annotated[str | None, option("Use only this split of the data.", "--split NAME")]
TrainSplit = Annotated[str, more("Split to fit the baselines on.", "--train-split NAME")]
Vectors = Annotated[
    str | None,
    more("Array, key or columns that hold the vectors, such as 'f*', 'a,b,c' or f0:f511.", "--vectors NAMES"),
]
Labels = Annotated[
    str | None,
    more(
        "Column, key or array that holds the labels, or a file with one label per line (.txt, .csv, .npy).",
        "--labels NAME|FILE",
    ),
]
LabelledData = Annotated[Path | None, option("Labelled photos or embeddings, as for `hcep fit`.", "--data DATA")]
Classes = Annotated[Path | None, option("Text file of class labels, one per line.", "--classes FILE")]
Corrections = Annotated[Path | None, more("Corrections file (see `hcep correct`).", "--corrections FILE")]
CorrectionsFile = Annotated[Path, option("Corrections file (see `hcep correct`).", "--corrections FILE")]
Strict = Annotated[bool, more("Treat an unreadable image as an error.", "--strict")]
Store = Annotated[Path | None, option("Store made by `hcep encode`, whose photos are shown.", "--store FOLDER")]

# -- models ----------------------------------------------------------------------------------------------------------

Encoder = Annotated[
    str | None, option("Image encoder (default: the model's, or the built-in one).", "--encoder NAME", "-e")
]
Preprocessing = Annotated[
    str | None,
    more(
        "Preprocessing, if the encoder does not record it: clip, siglip, imagenet or a JSON file.",
        "--preprocessing NAME|FILE",
    ),
]
ModelOption = Annotated[Path | None, option("Model folder (default: ImageNet's classes).", "--model FOLDER", "-m")]
Parameter = Annotated[
    Names, option("Parameter, one of those listed above. Repeatable.", "--parameter NAME=VALUE", "-P")
]
Compare = Annotated[
    Names, option("Method, model folder, `decoders` or `all` to compare with. Repeatable.", "--compare NAME|FOLDER")
]


def _share(value: float) -> float:
    if not 0.0 < value < 1.0:
        raise HCEPError(f"--sure: expected a number between 0 and 1, such as 0.9 for 90 %, got {value:g}")
    return value


Sure = Annotated[
    float,
    option("Answer with the most specific concept that is at least this likely.", "--sure SHARE", callback=_share),
]
Decode = Annotated[
    Literal["class", "distance", "f1", "sure"],
    option("How to choose the answer: by class, distance, f1 or sure (default).", "--decode RULE", show_default=False),
]
Rank = Annotated[str | None, option("Answer at this rank (the title of a level column) or above it.", "--rank RANK")]
Group = Annotated[
    str | None,
    more(
        "Give one answer per burst or observation: a column, `folder`, or a table of ids and groups.",
        "--group NAME|FILE",
    ),
]
NBest = Annotated[int | None, option("Number of best results to show.", "--n-best N", "-n", min=1)]
Force = Annotated[Names, option("Concept that must be on the path. Repeatable.", "--force CONCEPT")]
Forbid = Annotated[Names, option("Concept that must not be on the path. Repeatable.", "--forbid CONCEPT")]
Only = Annotated[
    Path | None, option("File that lists the only possible classes or concepts (.csv, .txt).", "--only FILE")
]
Concept = Annotated[Names, option("Show only this concept, given by id or name. Repeatable.", "--concept CONCEPT")]
Class = Annotated[str | None, option("Label of the class.", "--class LABEL")]
Under = Annotated[str | None, option("Concept above a new class.", "--under CONCEPT")]

# -- hierarchies -----------------------------------------------------------------------------------------------------

HierarchyOption = Annotated[
    str | None,
    option(
        "Hierarchy: a file (`hcep info --formats` lists formats), `everyday`, `wordnet` or `flat`.",
        "--hierarchy FILE|NAME",
        "-H",
    ),
]
ReaderOptions = Annotated[
    Names,
    more("How to read the hierarchy: format=csv, root=animal, levels=family,genus.", "--option NAME=VALUE", "-O"),
]  # fmt: skip
Collapse = Annotated[bool, option("Merge chains of concepts with a single child.", "--collapse")]
Move = Annotated[Names, option("Move a concept below another parent.", "--move CONCEPT[:OLD]:NEW")]
Remove = Annotated[Names, option("Remove a concept; its children move up.", "--remove CONCEPT")]
Rename = Annotated[Names, option("Give a concept another name.", "--rename CONCEPT:NAME")]

# -- language models -------------------------------------------------------------------------------------------------

Vocabulary = Annotated[
    list[Path] | None,
    option(
        "Texts, one per line, or embedded texts: FILE or FILE:VECTORS,NAMES (.npz, .parquet, .csv). Repeatable.",
        "--vocabulary FILE",
    ),
]
Template = Annotated[Names, more("Template for names and phrases, such as 'a photo of {}'.", "--template TEXT")]
Llm = Annotated[str | None, option("Name of the language model on the server.", "--llm NAME")]
BaseUrl = Annotated[str | None, option("Server of the language model (default: OpenAI's).", "--base-url URL")]
Cache = Annotated[Path | None, more("Folder that keeps the language model's answers.", "--cache FOLDER")]
Offline = Annotated[bool, more("Use only answers from the cache.", "--offline")]

# -- Ray -------------------------------------------------------------------------------------------------------------

_RAY = "Run on a Ray cluster at this address (default: RAY_ADDRESS, or else this machine)."
Ray = Annotated[str | None, more(_RAY, "--ray [ADDRESS]")]
#: What may follow --ray as its address; any other word is the next argument.
_ADDRESS = re.compile(r"auto|local|(ray://)?[\w.-]+:\d+")


def with_ray_address(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, with an empty address after a --ray that has none."""
    words: list[str] = []
    for word, following in zip_longest(arguments, arguments[1:], fillvalue=""):
        words += [word, ""] if word == "--ray" and not _ADDRESS.fullmatch(following) else [word]
    return words


def refuse_with_ray(context: typer.Context, *names: str) -> None:
    """Raise HCEPError if one of these options, which the cluster does not support, has a value."""
    flags = [f"--{name.replace('_', '-')}" for name in names if context.params[name]]
    if flags:
        raise HCEPError(f"{', '.join(flags)} {'is' if len(flags) == 1 else 'are'} not supported with --ray")


# -- what is made of values ------------------------------------------------------------------------------------------

#: Endings by which --labels is a file; any other value names a column.
_LABEL_FILES = (".npy", ".txt", ".csv")


def columns(vectors: str | None, labels: str | None) -> dict[str, Any]:
    """The values of --vectors and --labels, as the readers of embeddings take them."""
    is_file = labels is not None and Path(labels).suffix in _LABEL_FILES
    return {"vectors": vectors, "label": None if is_file else labels, "labels": labels if is_file else None}


def pairs(texts: Iterable[str] | None, flag: str) -> dict[str, str]:
    """Texts of the form NAME=VALUE as a dict; raises HCEPError for any other text."""
    values: dict[str, str] = {}
    for text in texts or ():
        name, equals, value = text.partition("=")
        if not (name and equals):
            raise HCEPError(f"{flag}: expected NAME=VALUE, got {quote(text)}")
        values[name.strip().replace("-", "_")] = value
    return values


def parameters(texts: Names, *functions: Callable[..., Any], also: Iterable[str] = ()) -> dict[str, Any]:
    """The values of --parameter, for functions that have keyword parameters of these names.

    Parameters
    ----------
    texts : of the form NAME=VALUE. A value is a number, `true`, `false`, `none` or text.
    *functions : only their keyword-only parameters are allowed
    also : names that are allowed as well
    """
    allowed = {p.name for f in functions for p in signature(f).parameters.values() if p.kind is p.KEYWORD_ONLY}
    allowed |= set(also)
    values = pairs(texts, "--parameter")
    for name in values:
        if name not in allowed:
            close = near_matches(name, allowed) or f" The parameters are {', '.join(sorted(allowed))}."
            raise HCEPError(f"--parameter: there is no parameter {quote(name)}.{close}")
    return {name: _value(text) for name, text in values.items()}


def _value(text: str) -> Any:
    words = {"none": None, "true": True, "false": False}
    if text.lower() in words:
        return words[text.lower()]
    for number in (int, float):
        try:
            return number(text)
        except ValueError:
            continue
    return text


def chat_model(model: str | None, base_url: str | None, **options: Any) -> llm.ChatModel | None:
    """The language model of that name, or None; options about a language model need its name."""
    if model is not None:
        return llm.ChatModel(model, base_url, **options)
    if base_url or any(options.values()):
        raise HCEPError("--base-url, --cache and --offline need the name of a language model: pass --llm as well")
    return None


def reader_options(texts: Iterable[str] | None) -> dict[str, Any]:
    """The values of --option as the readers of hierarchies take them: lists split at commas, numbers as numbers."""
    numbers = {"max_bytes": int, "timeout": float}
    options: dict[str, Any] = {}
    for name, value in pairs(texts, "--option").items():
        try:
            options[name] = value.split(",") if name in ("levels", "relationships") else numbers.get(name, str)(value)
        except ValueError:
            raise HCEPError(f"--option: {name} must be a number, got {quote(value)}") from None
    return options


def lines_in(file: Path | None, flag: str = "--classes") -> list[str] | None:
    """The non-empty lines of a text file; None without a file."""
    return None if file is None else read_lines(file, option=f"{flag}: ")
