"""`hcep explain`: photos into rooted paths of concepts."""

from __future__ import annotations

import base64
import glob
import io
import json
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.markup import escape
from rich.padding import Padding

from hcep.cli.config import Config
from hcep.cli.encode import Preprocessing
from hcep.errors import HCEPError

if TYPE_CHECKING:
    from PIL.Image import Image

    from hcep.classify import PathModel
    from hcep.embeddings import Encoder
    from hcep.explain import Explanation
    from hcep.explain.naming import AtomNames


@dataclass(frozen=True)
class Explained:
    """One image with its class and path."""

    file: Path
    label: str
    name: str
    probability: float
    explanation: Explanation


def explain(
    model: Annotated[Path, typer.Argument(help="Model folder made by `hcep fit`.")],
    images: Annotated[list[str], typer.Argument(help="Images, folders of images, or globs.")],
    encoder: Annotated[str | None, typer.Option("--encoder", "-e", help="The model's own by default.")] = None,
    preprocessing: Preprocessing = None,
    tree: Annotated[bool, typer.Option("--tree", help="Draw each path as a tree.")] = False,
    n_best: Annotated[int, typer.Option("--n-best", "-n", min=1, help="Paths to show for each image.")] = 1,
    html: Annotated[Path | None, typer.Option(help="Write an HTML report with thumbnails.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")] = False,
    strict: Annotated[bool, typer.Option(help="Make an image that cannot be used an error.")] = False,
    config: Config = None,
) -> None:
    """Explain images: one line each, as a tree, as JSON or as an HTML report.

    [bold]Examples[/]

      hcep explain model/ photo.jpg

      hcep explain model/ photos/ --html report.html

      hcep explain model/ 'photos/*.jpg' --tree --n-best 3
    """
    from hcep.models import load_atom_names, load_path_model

    files = find_images(images)
    classifier = load_path_model(model)
    names = load_atom_names(model)
    adapter = encoder_of(model, encoder, preprocessing)
    explained, problems = _explain_files(files, classifier, adapter, names, n_best, strict)
    for file, reason in problems:
        Console(stderr=True).print(f"[yellow]skipped[/] {escape(str(file))}: {escape(reason)}", highlight=False)
    if html is not None:
        _write_html(html, explained, classifier)
    if as_json:
        typer.echo(json.dumps([_record(one) for one in explained], indent=2, ensure_ascii=False))
    else:
        _print(explained, classifier, tree, html)
    if not explained:
        raise typer.Exit(1)


def find_images(patterns: list[str]) -> list[Path]:
    """The files that the arguments mean: files as they are, images below folders, matches of globs.

    Raises
    ------
    HCEPError
        When an argument means no file.
    """
    from hcep.datasets.layouts.listing import IMAGE_SUFFIXES

    files: list[Path] = []
    for pattern in patterns:
        place = Path(pattern)
        if place.is_dir():
            found = sorted(f for f in place.rglob("*") if f.suffix.lower() in IMAGE_SUFFIXES)
        elif glob.has_magic(pattern) and not place.exists():
            found = sorted(Path(f) for f in glob.glob(pattern, recursive=True))
        else:
            found = [place] if place.exists() else []
        if not found:
            raise HCEPError(f"no image at {pattern!r}")
        files += found
    return files


def encoder_of(model: Path, wanted: str | None, preprocessing: str | None) -> Encoder:
    """The model's encoder, made as it was for training; a name given instead must lead to the same one."""
    from hcep.cli.inputs import load_named_encoder
    from hcep.models import EncoderRecord, load_summary

    record = load_summary(model).encoder or EncoderRecord(wanted or "")
    name = wanted or record.name
    if not name:
        raise HCEPError(f"{str(model)!r} does not say which encoder its embeddings are of; pass --encoder")
    try:
        encoder = load_named_encoder(name, preprocessing or record.preprocessing)
    except HCEPError as error:
        hint = "" if wanted else "; the model names this encoder, say with --encoder where it is now"
        raise HCEPError(f"{error}{hint}") from None
    if record.fingerprint not in (None, encoder.fingerprint):
        raise HCEPError(f"encoder {name!r} is not the one the model was fitted with: its fingerprint differs")
    return encoder


def _explain_files(
    files: list[Path], classifier: PathModel, encoder: Encoder, names: AtomNames | None, n_best: int, strict: bool
) -> tuple[list[Explained], list[tuple[Path, str]]]:
    from hcep.embeddings.images import ImageProblem, open_image
    from hcep.explain import explain as explain_paths

    arrays, kept, problems = [], [], []
    for file in files:
        try:
            arrays.append(encoder.preprocess(open_image(file)))
            kept.append(file)
        except ImageProblem as problem:
            if strict:
                raise HCEPError(f"{file}: {problem.reason}") from None
            problems.append((file, problem.reason))
    if not kept:
        return [], problems
    X = np.concatenate([encoder.encode_images(np.stack(arrays[i : i + 32])) for i in range(0, len(arrays), 32)])
    found = classifier.pursue(X, n_best=n_best)
    probabilities = classifier.probabilities(X)
    best = np.argmax(probabilities, axis=1)
    explained = [
        Explained(
            file=file,
            label=str(classifier.classes[c]),
            name=classifier.hierarchy.name(classifier.hierarchy.leaf_of(str(classifier.classes[c]))),
            probability=float(probabilities[i, c]),
            explanation=explanation,
        )
        for i, (file, c, explanation) in enumerate(zip(kept, best, explain_paths(X, found, names=names), strict=True))
    ]
    return explained, problems


def _record(one: Explained) -> dict[str, Any]:
    return {
        "image": str(one.file),
        "class": one.label,
        "name": one.name,
        "probability": one.probability,
        "path": [
            {
                "synset": step.synset,
                "name": step.name,
                "merged": step.merged,
                "coefficient": step.coefficient,
                "explained": step.explained,
                "meaning": step.meaning,
            }
            for step in one.explanation.steps
        ],
        "residual_norm": one.explanation.residual_norm,
        "runners_up": [{"path": h.path, "residual_norm": h.residual_norm} for h in one.explanation.runners_up],
    }


def _print(explained: list[Explained], classifier: PathModel, tree: bool, html: Path | None) -> None:
    from hcep.cli.render import path_tree

    console = Console()
    for one in explained:
        line = f"{escape(one.file.name)}: " if len(explained) > 1 or tree else ""
        if tree:
            console.print(f"{line}[bold]{escape(one.name)}[/] [dim]{one.probability:.2f}[/]")
            console.print(Padding(path_tree(one.explanation), (0, 0, 1, 2)))
        else:
            console.print(f"{line}{escape(one.explanation.trail())}", soft_wrap=True, highlight=False)
            for step in one.explanation.steps:
                if step.meaning:
                    words = f"  {escape(step.name)}: [italic]{escape(step.meaning)}[/]"
                    console.print(words, soft_wrap=True, highlight=False)
        for rival in _rivals(one, classifier):
            console.print(f"  [dim]or {escape(rival)}[/]", soft_wrap=True, highlight=False)
    if html is not None:
        console.print(f"report: [bold]{escape(str(html))}[/]")


def _rivals(one: Explained, classifier: PathModel) -> list[str]:
    """The runners-up by name, the nearest first."""
    return [" → ".join(map(classifier.hierarchy.name, rival.path)) for rival in one.explanation.runners_up]


def _write_html(target: Path, explained: list[Explained], classifier: PathModel) -> None:
    from hcep.embeddings.images import open_image
    from hcep.explain.report import Card, Section, report

    cards = [
        Card(
            title=one.name,
            file=str(one.file),
            verdict=f"{one.probability:.0%}",
            correct=one.probability >= 0.5,
            explanation=one.explanation,
            note="; ".join(f"or {rival}" for rival in _rivals(one, classifier)),
            thumbnail=_thumbnail(open_image(one.file)),
        )
        for one in explained
    ]
    section = Section("Explained images", "Each image's embedding as a rooted path of concepts.", cards)
    target.parent.mkdir(parents=True, exist_ok=True)
    target.write_text(report("HCEP explanations", f"{len(cards):,} images", [], "", [section]), encoding="utf-8")


def _thumbnail(image: Image, size: int = 160) -> str:
    """A small JPEG as a data URI, so that the report stays one file."""
    image.thumbnail((size, size))
    data = io.BytesIO()
    image.save(data, "JPEG", quality=80)
    return "data:image/jpeg;base64," + base64.b64encode(data.getvalue()).decode()
