"""`hcep fit`: embeddings and a hierarchy into a model folder."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer
from rich.console import Console
from rich.markup import escape

from hcep.cli.config import Config, save_resolved
from hcep.cli.encode import Preprocessing
from hcep.errors import HCEPError

if TYPE_CHECKING:
    from hcep.classify import HCEPClassifier
    from hcep.cli.inputs import Embeddings


def fit(
    context: typer.Context,
    data: Annotated[Path, typer.Argument(help="Store, .npy/.npz/.parquet file, or image folder (with --encoder).")],
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the model.")],
    hierarchy: Annotated[
        str | None,
        typer.Option(help="File (`hcep hierarchy formats` lists what is read), `imagenet` (WordNet's) or `flat`."),
    ] = None,
    split: Annotated[str | None, typer.Option(help="Split to train on; train where there is one.")] = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", "-e", help="To fit straight from an image folder.")
    ] = None,
    preprocessing: Preprocessing = None,
    paper: Annotated[bool, typer.Option(help="The published configuration.")] = False,
    anchor: Annotated[str | None, typer.Option(help="Prior on coefficients: auto or a number.")] = None,
    shrinkage: Annotated[str | None, typer.Option(help="Metric: auto, none (Euclidean) or a number.")] = None,
    beam_width: Annotated[int | None, typer.Option(min=1, help="Beam; an exact search by default.")] = None,
    signed: Annotated[bool, typer.Option(help="Children need a positive coefficient.")] = False,
    unit_norm: Annotated[bool, typer.Option(help="Scale embeddings to norm 1 first.")] = False,
    center: Annotated[bool, typer.Option(help="Subtract the mean of the training images.")] = False,
    tree: Annotated[str | None, typer.Option(help="Keep one parent a synset: first, shortest or longest.")] = None,
    head: Annotated[Literal["path", "logistic", "adamw"] | None, typer.Option(help="What names the class.")] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model, for its card.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
    config: Config = None,
) -> None:
    """Fit a classifier on embeddings, or straight on a folder of images, and save it.

    [bold]Examples[/]

      hcep fit store/ -o model/

      hcep fit store/ --hierarchy animals.csv -o model/

      hcep fit photos/ --encoder onnx:encoder.onnx --hierarchy animals.csv -o model/

      hcep fit embeddings.npz --hierarchy imagenet --paper --beam-width 32 -o model/
    """
    from hcep.cli.inputs import find_hierarchy

    embeddings = _embeddings(data, split, encoder, preprocessing, output, as_json)
    y = embeddings.y
    graph = find_hierarchy(hierarchy, sorted(set(y.tolist())))
    had_model, had_names = ((output / name).is_file() for name in ("model.json", "atoms.json"))
    with Console(stderr=True).status("fitting … (the first run compiles kernels)"):
        model = _estimator(graph, paper, anchor, shrinkage, beam_width, signed, unit_norm, center, tree, head)
        model.fit(embeddings.X, y)
        summary = _save(model, embeddings, output, name)
    save_resolved(context, output)
    if had_model:
        names = ", and the names of its atoms dropped" if had_names else ""
        Console(stderr=True, soft_wrap=True).print(
            f"[yellow]note:[/] the model that was at {escape(str(output))} is replaced{names}", highlight=False
        )
    if graph is not None and model.hierarchy_.depth == 1:
        Console(stderr=True, soft_wrap=True).print(
            "[yellow]warning:[/] every class hangs from the root, so paths have one step; "
            "are the columns of the hierarchy parent, child?"
        )
    if as_json:
        typer.echo(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    Console(soft_wrap=True).print(
        f"[bold]{escape(str(output))}[/]: {summary['n_images']:,} images of {summary['n_classes']:,} classes, "
        f"depth {model.hierarchy_.depth}, anchor {model.anchor_:g}, shrinkage {model.shrinkage_}; "
        f"training accuracy {summary['metrics']['training accuracy']:.3f}\n"
        f"Try: hcep explain {escape(str(output))} IMAGE"
    )


def _embeddings(
    data: Path, split: str | None, encoder: str | None, preprocessing: str | None, output: Path, quiet: bool
) -> Embeddings:
    from hcep.cli.inputs import ARRAY_SUFFIXES, image_items, is_store, load_named_encoder, read_embeddings

    if is_store(data) or data.suffix in ARRAY_SUFFIXES or not data.exists():
        return read_embeddings(data, split, default_split="train")
    if encoder is None:
        raise HCEPError(
            f"{str(data)!r} is no store; to fit straight from images pass --encoder (`hcep encoders` lists them)"
        )
    from hcep.datasets import read_images
    from hcep.embeddings import encode_to_store

    store = output / "store"
    store.mkdir(parents=True, exist_ok=True)
    items = image_items(read_images(data), store / "images")
    encode_to_store(items, load_named_encoder(encoder, preprocessing), store, progress=not quiet)
    return read_embeddings(store, split, default_split="train")


def _estimator(
    graph: Any,
    paper: bool,
    anchor: str | None,
    shrinkage: str | None,
    beam_width: int | None,
    signed: bool,
    unit_norm: bool,
    center: bool,
    tree: str | None,
    head: str | None,
) -> HCEPClassifier:
    from hcep.classify import HCEPClassifier

    options: dict[str, Any] = {
        "anchor": _number("--anchor", anchor, ("auto",)),
        "shrinkage": _number("--shrinkage", shrinkage, ("auto", "none")),
        "beam_width": beam_width,
        "head": head,
        "tree": tree,
    }
    given = {key: value for key, value in options.items() if value is not None}
    given = {key: None if value == "none" else value for key, value in given.items()}
    flags = {"signed": signed, "unit_norm": unit_norm, "center": center}
    given |= {key: True for key, value in flags.items() if value}
    return HCEPClassifier.paper(graph, **given) if paper else HCEPClassifier(graph, **given)


def _number(option: str, text: str | None, words: tuple[str, ...]) -> float | str | None:
    if text is None or text in words:
        return text
    try:
        return float(text)
    except ValueError:
        raise HCEPError(f"{option}: expected {' or '.join(words)} or a number, got {text!r}") from None


def _save(model: HCEPClassifier, embeddings: Embeddings, output: Path, name: str | None) -> dict[str, Any]:
    from hcep.models import save_model

    y = embeddings.y
    metrics = {"training accuracy": float(model.score(embeddings.X, y))}
    if model.leave_one_out_:
        chosen = [s for s in model.leave_one_out_ if (s.shrinkage, s.anchor) == (model.shrinkage_, model.anchor_)]
        metrics["leave-one-out accuracy"] = chosen[0].accuracy
    save_model(
        model,
        output,
        encoder=embeddings.encoder,
        data=embeddings.source,
        images_per_class=Counter(y.tolist()),
        metrics=metrics,
        name=name,
    )
    return {
        "model": str(output),
        "n_images": len(y),
        "n_classes": len(model.classes_),
        "anchor": model.anchor_,
        "shrinkage": model.shrinkage_,
        "metrics": metrics,
    }
