"""Options that commands share, and what is made of them."""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from hcep.cli.console import show_notes
from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.embeddings import Embeddings
    from hcep.explain.corrections import Corrections
    from hcep.hierarchy import Hierarchy
    from hcep.llm import ChatModel
    from hcep.pursuit.limits import PathLimits


def option(text: str, *names: str, **settings: Any) -> Any:
    """An option, its help first."""
    return typer.Option(*names, help=text, **settings)


def argument(text: str, **settings: Any) -> Any:
    """An argument, its help first."""
    return typer.Argument(help=text, **settings)


_DATA = argument(
    "Embeddings: a store, .npy, .npz, .parquet, .csv or .pt file, folder of a Hugging Face dataset; or a folder of "
    "photos.",
    metavar="DATA",
)
Data = Annotated[Path, _DATA]
OptionalData = Annotated[Path | None, _DATA]
Vectors = Annotated[
    str | None, option("Array, key or columns of the vectors in a file: a name, 'f*', 'a,b,c' or f0:f511.")
]
Label = Annotated[str | None, option("Array, key or column of the labels in a file.")]
Labels = Annotated[Path | None, option("File of labels, one per vector: .npy, .txt or .csv.")]
Split = Annotated[str | None, option("Only this split; all images by default.")]
Encoder = Annotated[str | None, option("Of photos; the model's own by default.", "--encoder", "-e")]
OwnEncoder = Annotated[str | None, option("The model's own by default.", "--encoder", "-e")]
Preprocessing = Annotated[
    str | None,
    option("For models that do not say it themselves: clip, siglip, imagenet, efficientnet-lite2 or a JSON file."),
]
Model = Annotated[Path, argument("Model folder made by `hcep fit`.")]
ModelOption = Annotated[Path | None, option("Model folder; ImageNet's by default.", "--model", "-m")]
Images = Annotated[list[str], argument("Images, folders of images, or globs; a model folder first.")]
Json = Annotated[bool, option("Print JSON and nothing else.", "--json")]
Strict = Annotated[bool, option("Make an image that cannot be used an error.")]
Coverage = Annotated[
    float | None,
    option("Stop at the lowest concept that is right so often, such as 0.9 (calibrated models).", min=0.01, max=0.999),
]
CorrectionsFile = Annotated[
    Path | None, option("File of `hcep correct`: what people said of single images.", "--corrections")
]
BaseUrl = Annotated[str | None, option("Its server, as a rule ending in /v1; OpenAI's by default.")]
Cache = Annotated[Path | None, option("Folder that keeps its answers; a second run replays them.")]
Offline = Annotated[bool, option("Answers from the cache alone.")]
Ray = Annotated[
    str | None,
    option(
        "Work on a Ray cluster: at this address, RAY_ADDRESS's, or one on this machine. docs/scale.md tells more.",
        "--ray",
        metavar="[ADDRESS]",
    ),
]
#: What follows --ray where it is an address; anything else is not its value.
_ADDRESS = re.compile(r"auto|local|(ray://)?[\w.-]+:\d+")


def with_ray_address(arguments: Sequence[str]) -> list[str]:
    """The arguments of a command, with the default for a --ray that has no address.

    >>> with_ray_address(["encode", "--ray", "photos/"]), with_ray_address(["encode", "--ray", "head:6379"])
    (['encode', '--ray', '', 'photos/'], ['encode', '--ray', 'head:6379'])
    """
    made: list[str] = []
    for one, after in zip_longest(arguments, arguments[1:], fillvalue=""):
        made += [one, ""] if one == "--ray" and not _ADDRESS.fullmatch(after) else [one]
    return made


def chat_model(model: str | None, base_url: str | None, refusal: str, **options: Any) -> ChatModel | None:
    """The model of that name; without one, other options about it are refused."""
    if model is not None:
        from hcep.llm import ChatModel

        return ChatModel(model, base_url, **options)
    if base_url or any(options.get(name) for name in ("cache", "offline", "prices")):
        raise HCEPError(refusal)
    return None


def embeddings_for(model: Any, data: Path, split: str | None, **options: Any) -> Embeddings:
    """What a model takes of the data; notes about it are shown."""
    from hcep.models import model_encoder

    found = model_encoder.embeddings_for(model, data, split, **options)
    show_notes(found.notes)
    return found


def kept_corrections(path: Path | None, hierarchy: Hierarchy | None) -> Corrections | None:
    """The corrections of a file that hold in a hierarchy, with notes about those that do not."""
    from hcep.explain.corrections import Corrections

    if path is None:
        return None
    kept = Corrections(path, hierarchy, lenient=True)
    more = len(kept.problems) - 3
    show_notes(f"{problem}; this correction does not count" for problem in kept.problems[:3])
    show_notes([f"{more:,} more corrections in {path} do not count"] if more > 0 else [])
    if kept.torn:
        show_notes([f"the last line of {path} was not written to its end and does not count"])
    return kept


def corrected_limits(path: Path | None, hierarchy: Hierarchy, found: Embeddings) -> PathLimits | None:
    """Paths that corrections leave open to each image, with a note how many they are about."""
    kept = kept_corrections(path, hierarchy)
    if kept is None:
        return None
    limits, n = kept.limits(hierarchy, found.hashes), sum(map(any, kept.requests(found.hashes)))
    show_notes([f"{n:,} of {len(found.X):,} images have a correction in {path}"])
    return limits
