"""`hcep fit`: embeddings and a hierarchy into a model folder."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from hcep._escape import markup as escape
from hcep.cli.config import Config, save_resolved
from hcep.cli.console import Console, say
from hcep.cli.data_options import Label, Labels, OptionalData, Ray, Vectors, show_notes
from hcep.cli.encode import Preprocessing
from hcep.cli.hierarchy.files import HierarchyFormat, Options, parsed
from hcep.cli.predict import CorrectionsFile, kept_corrections
from hcep.errors import HCEPError, quoted

if TYPE_CHECKING:
    from hcep.hierarchy import Hierarchy
    from hcep.models.fitting import FittedModel


def fit(
    context: typer.Context,
    *,
    data: OptionalData = None,
    output: Annotated[Path, typer.Option("--output", "-o", help="Folder of the model.")],
    hierarchy: Annotated[
        str | None,
        typer.Option(help="File (`hcep hierarchy formats` lists what is read), `imagenet` (WordNet's) or `flat`."),
    ] = None,
    hierarchy_format: HierarchyFormat = None,
    option: Options = None,
    split: Annotated[str | None, typer.Option(help="Split to train on; train where there is one.")] = None,
    encoder: Annotated[
        str | None, typer.Option("--encoder", "-e", help="Of photos; the built-in one by default.")
    ] = None,
    preprocessing: Preprocessing = None,
    vectors: Vectors = None,
    label: Label = None,
    labels: Labels = None,
    paper: Annotated[bool, typer.Option(help="The published configuration.")] = False,
    anchor: Annotated[str | None, typer.Option(help="Prior on coefficients: auto or a number.")] = None,
    shrinkage: Annotated[str | None, typer.Option(help="Metric: auto, none (Euclidean) or a number.")] = None,
    power: Annotated[str | None, typer.Option(help="Power of embeddings without negative numbers: auto or 1.")] = None,
    refine: Annotated[bool | None, typer.Option(help="Move classes from their means; from four images on.")] = None,
    priors: Annotated[Literal["uniform", "empirical"] | None, typer.Option(help="How likely classes are.")] = None,
    beam_width: Annotated[int | None, typer.Option(min=1, help="Beam; an exact search by default.")] = None,
    signed: Annotated[bool, typer.Option(help="Children need a positive coefficient.")] = False,
    unit_norm: Annotated[bool, typer.Option(help="Scale embeddings to norm 1 first.")] = False,
    center: Annotated[bool, typer.Option(help="Subtract the mean of the training images.")] = False,
    tree: Annotated[str | None, typer.Option(help="Keep one parent per concept: first, shortest or longest.")] = None,
    head: Annotated[Literal["path", "logistic", "adamw"] | None, typer.Option(help="What names the class.")] = None,
    epochs: Annotated[int | None, typer.Option(min=1, help="Of the head adamw; published: 500, ImageNet 1000.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(min=1, help="Of the head adamw; published: 4096, ImageNet 16384.")
    ] = None,
    lr: Annotated[float | None, typer.Option(min=0, help="Learning rate of the head adamw; published: 0.1.")] = None,
    corrections: CorrectionsFile = None,
    images: Annotated[
        Path | None,
        typer.Option(
            help="Folder of the store's images: refuse where they no longer agree. With --from-text: unlabelled ones."
        ),
    ] = None,
    force: Annotated[bool, typer.Option("--force", "-f", help="Replace a model that is there already.")] = False,
    from_text: Annotated[
        bool,
        typer.Option(help="Classes from the hierarchy's names, by --encoder's text tower; DATA and --images help."),
    ] = False,
    template: Annotated[
        list[str] | None,
        typer.Option(help="With --from-text: what a name, {}, and the concept above, {parent}, go into."),
    ] = None,
    name: Annotated[str | None, typer.Option(help="Name of the model, for its card.")] = None,
    ray: Ray = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print the summary as JSON and nothing else.")] = False,
    config: Config = None,
) -> None:
    """Fit a classifier on embeddings, or straight on a folder of images, and save it."""
    from hcep.datasets import embeddings_of, find_hierarchy
    from hcep.datasets.photo_checks import refuse_out_of_step, tree_notes
    from hcep.embeddings import EmbeddingStore, is_store
    from hcep.models import fit_model
    from hcep.models.streaming import IN_MEMORY

    def tree_of(classes: Sequence[str], told: Callable[[str], None] = lambda note: show_notes([note])) -> Any:
        return find_hierarchy(hierarchy, classes, format=hierarchy_format, on_note=told, **parsed(option))

    if (output / "model.json").exists() and not force:
        raise HCEPError(
            f"--output: there is a model at {str(output)!r} already; pass --force to replace it, or give another name"
        )
    if from_text:
        from hcep.cli.fit_text import fit_from_text

        fit_from_text(output, hierarchy, parsed(option), encoder, images, data, template, name, as_json)
        save_resolved(context, output)
        return
    if data is None:
        raise HCEPError("say what to fit on: embeddings or a folder of photos; or the names of classes, --from-text")
    if hierarchy not in (None, "flat", "imagenet"):
        tree_of((), told=lambda note: None)  # what cannot be read is told before anything is encoded
    if images is not None:
        if not is_store(data):
            raise HCEPError(f"--images is for a store, and {str(data)!r} is none")
        refuse_out_of_step(EmbeddingStore(data), images)
    given = {
        "anchor": _number("--anchor", anchor, ("auto",)),
        "shrinkage": _number("--shrinkage", shrinkage, ("auto", "none")),
        "power": _number("--power", power, ("auto",)),
        "refine": refine,
        "priors": priors,
        "beam_width": beam_width,
        "head": _head(head or ("adamw" if paper else None), epochs=epochs, batch_size=batch_size, lr=lr),
        "tree": tree,
        **{option: True for option, on in {"signed": signed, "unit_norm": unit_norm, "center": center}.items() if on},
    }
    parameters = {key: None if isinstance(value, str) and value == "none" else value for key, value in given.items()}
    parameters = {key: value for key, value in parameters.items() if given[key] is not None}
    if ray is not None:
        from hcep.distributed.fitting import fit_model as fit_on_cluster

        if paper or corrections:
            raise HCEPError("--paper, with its linear head, and --corrections are for one process: leave out --ray")
        where = {"address": ray, "progress": not as_json}
        fitted = fit_on_cluster(data, tree_of, output, split=split, name=name, cluster=where, **parameters)
        _show(context, output, fitted, hierarchy is not None, as_json)
        return
    embeddings = embeddings_of(
        data,
        split,
        default_split="train",
        encoder=encoder,
        preprocessing=preprocessing,
        store=output / "store",
        progress=not as_json,
        in_memory=IN_MEMORY,
        vectors=vectors,
        label=label,
        labels=labels,
    )
    show_notes(embeddings.notes)
    kept = kept_corrections(corrections, None)
    if kept is not None:
        embeddings, n = kept.corrected(embeddings)
        show_notes([f"{n:,} of {len(embeddings.X):,} images have another class by {corrections}"])
    graph = tree_of(sorted(set(embeddings.y.tolist())))
    if graph is not None and hierarchy not in (None, "imagenet"):
        show_notes(tree_notes(embeddings.y.tolist(), graph))
    bars = hasattr(embeddings.X, "batches") and not as_json  # of a store that stays on disk
    with nullcontext() if bars else Console(stderr=True).status("fitting … (the first run compiles kernels)"):
        options: dict[str, Any] = {"paper": paper, "name": name, "progress": bars, **parameters}
        fitted = fit_model(embeddings, graph, output, **options)
    if graph is not None:
        show_notes(merged_notes(fitted.model.hierarchy_))
    takes_photos = embeddings.encoder is not None
    _show(context, output, fitted, graph is not None, as_json, "IMAGE" if takes_photos else None, data)


def merged_notes(tree: Hierarchy) -> Iterator[str]:
    """What the fit made of chains of concepts with one child each: one concept of each."""
    merged = [name for synset in tree.ids for _, name in tree.merged(synset)]
    if merged:
        more = f": {quoted(merged, 3)}"
        yield f"{len(merged):,} concept{'s' * (len(merged) > 1)} with a single one below merged into that{more}"


def _show(
    context: typer.Context,
    output: Path,
    fitted: FittedModel,
    has_tree: bool,
    as_json: bool,
    photos: str | None = "IMAGE",
    data: Path = Path("DATA"),
) -> None:
    save_resolved(context, output)
    model, aside = fitted.model, Console(stderr=True, soft_wrap=True, highlight=False)
    if fitted.replaced:
        names = ", and the names of its atoms dropped" if fitted.names_dropped else ""
        aside.print(f"[yellow]note:[/] the model that was at {escape(str(output))} is replaced{names}")
    if has_tree and model.hierarchy_.depth == 1:
        aside.print(
            "[yellow]warning:[/] every class hangs from the root, so paths have one step; "
            "are the columns of the hierarchy parent, child?"
        )
    summary = {
        "model": str(output),
        "n_images": fitted.n_images,
        "n_classes": len(model.classes_),
        "anchor": model.anchor_,
        "shrinkage": model.shrinkage_,
        "metrics": fitted.metrics,
    }
    if as_json:
        say(json.dumps(summary, indent=2, ensure_ascii=False))
        return
    without = f"hcep predict {output} {data} -o predictions.csv"
    hint = f"hcep explain {output} {photos}" if photos else without
    Console(soft_wrap=True).print(
        f"[bold]{escape(str(output))}[/]: {summary['n_images']:,} images of {summary['n_classes']:,} classes, "
        f"depth {model.hierarchy_.depth}, anchor {model.anchor_:g}, shrinkage {model.shrinkage_}, "
        f"power {model.power_:g}; training accuracy {fitted.metrics['training accuracy']:.3f}\n"
        f"Try: {escape(hint)}"
    )


def _head(name: str | None, **options: Any) -> Any:
    """The head of a name, with its options where there are any."""
    given = {option: value for option, value in options.items() if value is not None}
    if not given:
        return name
    if name != "adamw":
        raise HCEPError("--epochs, --batch-size and --lr are of the head adamw; pass --head adamw, or --paper")
    from hcep.classify.heads import AdamWHead

    return AdamWHead(**given)


def _number(option: str, text: str | None, words: tuple[str, ...]) -> float | str | None:
    if text is None or text in words:
        return text
    try:
        return float(text)
    except ValueError:
        raise HCEPError(f"{option}: expected {' or '.join(words)} or a number, got {text!r}") from None
