"""`hcep fit`: embeddings and a hierarchy, or the names of classes alone, into a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import typer

from hcep import classify, datasets, embeddings, hierarchy as hi, models, taxonomy
from hcep._checks import escape_markup as escape
from hcep.cli import options as opt
from hcep.cli.console import Console, say_json, show_notes, tell
from hcep.cli.options import option
from hcep.errors import HCEPError, HierarchyError


def fit(
    context: typer.Context,
    *,
    data: opt.OptionalData = None,
    output: Annotated[Path, option("Folder of the model.", "--output", "-o")],
    hierarchy: Annotated[
        str | None, option("File (`hcep hierarchy formats` lists what is read), `imagenet`, `flat`.")
    ] = None,
    hierarchy_format: Annotated[str | None, option("Its format, where the ending does not tell it.")] = None,
    options: opt.ReaderOptions = None,
    split: Annotated[str | None, option("Split to train on; train where there is one.")] = None,
    encoder: Annotated[str | None, option("Of photos; the built-in one by default.", "--encoder", "-e")] = None,
    preprocessing: opt.Preprocessing = None,
    vectors: opt.Vectors = None,
    label: opt.Label = None,
    labels: opt.Labels = None,
    paper: Annotated[bool, option("The published configuration.")] = False,
    anchor: Annotated[str | None, option("Prior on coefficients: auto or a number.")] = None,
    shrinkage: Annotated[str | None, option("Metric: auto, none (Euclidean) or a number.")] = None,
    power: Annotated[str | None, option("Power of embeddings without negative numbers: auto or 1.")] = None,
    refine: Annotated[bool | None, option("Move classes from their means; from four images on.")] = None,
    priors: Annotated[Literal["uniform", "empirical"] | None, option("How likely classes are.")] = None,
    beam_width: Annotated[int | None, option("Beam; an exact search by default.", min=1)] = None,
    signed: Annotated[bool, option("Children need a positive coefficient.")] = False,
    unit_norm: Annotated[bool, option("Scale embeddings to norm 1 first.")] = False,
    center: Annotated[bool, option("Subtract the mean of the training images.")] = False,
    tree: Annotated[str | None, option("Keep one parent per concept: first, shortest or longest.")] = None,
    head: Annotated[Literal["path", "logistic", "adamw"] | None, option("What names the class.")] = None,
    epochs: Annotated[int | None, option("Of the head adamw; published: 500, ImageNet 1000.", min=1)] = None,
    batch_size: Annotated[int | None, option("Of the head adamw; published: 4096, ImageNet 16384.", min=1)] = None,
    lr: Annotated[float | None, option("Learning rate of the head adamw; published: 0.1.", min=0)] = None,
    corrections: opt.CorrectionsFile = None,
    several_objects: Annotated[bool, option("Also learn how many objects a photo shows (--objects auto).")] = False,
    images: Annotated[Path | None, option("The store's images, which must agree; of --from-text unlabelled.")] = None,
    force: opt.Force = False,
    from_text: Annotated[bool, option("Classes from the hierarchy's names, by --encoder's text tower.")] = False,
    template: Annotated[list[str] | None, option("Of --from-text: what {}, a name, and {parent} go into.")] = None,
    name: Annotated[str | None, option("Name of the model, for its card.")] = None,
    ray: opt.Ray = None,
    as_json: opt.Json = False,
    config: opt.Config = None,
) -> None:
    """Fit a classifier on embeddings, or straight on a folder of images, and save it."""
    from hcep.datasets.encoding import refuse_out_of_step, tree_notes
    from hcep.datasets.hierarchies import NAMED
    from hcep.models.fitting import IN_MEMORY

    if (output / "model.json").exists() and not force:
        how = "pass --force to replace it, or give another name"
        raise HCEPError(f"--output: there is a model at {str(output)!r} already; {how}")
    if from_text:
        if hierarchy is None or encoder is None:
            leaves = "--hierarchy, whose leaves are the classes,"
            raise HCEPError(f"--from-text needs {leaves} and --encoder with a text tower")
        reading = opt.reader_options(options)
        graph = (
            datasets.imagenet_hierarchy() if hierarchy == "imagenet" else taxonomy.read_hierarchy(hierarchy, **reading)
        )
        _fit_text(output, graph.collapse(), encoder, images, data, as_json, templates=template, name=name)
        opt.save_resolved(context, output)
        return
    if data is None:
        raise HCEPError("say what to fit on: embeddings or a folder of photos; or the names of classes, --from-text")
    source: hi.Hierarchy | str | None = hierarchy
    if hierarchy not in (None, "flat", *NAMED):  # read now: a file with an error is reported before hours of encoding
        reading = {"format": hierarchy_format, **opt.reader_options(options)}
        source = datasets.find_hierarchy(hierarchy, on_note=tell, **reading)

    @cache
    def tree_above(classes: tuple[str, ...]) -> hi.Hierarchy | None:
        return checked_tree(data, classes, datasets.find_hierarchy(source, classes, on_note=tell))

    if images is not None:
        if not embeddings.is_store(data):
            raise HCEPError(f"--images is for a store, and {str(data)!r} is none")
        refuse_out_of_step(embeddings.EmbeddingStore(data), images)
    given: dict[str, Any] = {"refine": refine, "priors": priors, "beam_width": beam_width, "tree": tree}
    given |= {"anchor": _number("--anchor", anchor), "power": _number("--power", power)}
    given["shrinkage"] = _number("--shrinkage", shrinkage, "auto", "none")
    given["head"] = _head(head or ("adamw" if paper else None), epochs=epochs, batch_size=batch_size, lr=lr)
    given |= {"signed": signed or None, "unit_norm": unit_norm or None, "center": center or None}
    parameters: dict[str, Any] = {
        key: None if isinstance(v, str) and v == "none" else v for key, v in given.items() if v is not None
    }
    if ray is not None:
        from hcep.ray.fitting import fit_model as fit_on_cluster

        if paper or corrections or several_objects:
            raise HCEPError("--paper, --corrections and --several-objects are not supported with --ray")
        where = {"address": ray, "progress": not as_json}
        fitted = fit_on_cluster(
            data,
            lambda classes: tree_above(tuple(classes)),
            output,
            split=split,
            name=name,
            cluster=where,
            **parameters,
        )
        _show(context, output, fitted, hierarchy is not None, as_json, f"hcep explain {output} IMAGE")
        return
    columns: dict[str, Any] = {"vectors": vectors, "label": label, "labels": labels, "in_memory": IN_MEMORY}
    place: dict[str, Any] = {"encoder": encoder, "preprocessing": preprocessing, "store": output / "store"}
    if corrections is None:  # which may give every photo another class
        place["on_labels"] = lambda y: tree_above(classes_of(y))
    found = datasets.embeddings_of(data, split, default_split="train", progress=not as_json, **place, **columns)
    show_notes(found.notes)
    kept = opt.kept_corrections(corrections, None)
    if kept is not None:
        found, n = kept.corrected(found)
        tell(f"{n:,} of {len(found.X):,} images have another class by {corrections}")
    tree_of_classes = tree_above(classes_of(found.y))
    if tree_of_classes is not None and hierarchy not in (None, "imagenet"):
        show_notes(tree_notes(found.y.tolist(), tree_of_classes))
    with Console(stderr=True).status("fitting … (the first run compiles kernels)"):
        asked: dict[str, Any] = {"paper": paper, "name": name, "several_objects": several_objects}
        fitted = models.fit_model(found, tree_of_classes, output, **asked, **parameters)
    if tree_of_classes is not None:
        fitted_tree = fitted.model.hierarchy_
        merged = [f"{n!r} in {fitted_tree.name(s)!r}" for s in fitted_tree.ids for _, n in fitted_tree.merged(s)]
        shown = ", ".join(merged[:3]) + (f" and {len(merged) - 3:,} more" if len(merged) > 3 else "")
        single = f"{len(merged):,} of the concepts have a single one below: no step of their own in answers"
        show_notes([f"{single}, they are shown as part of that one: {shown}"] if merged else ())
    photos = f"hcep explain {output} IMAGE" if found.encoder else f"hcep predict {output} {data} -o predictions.csv"
    _show(context, output, fitted, tree_of_classes is not None, as_json, photos)


def classes_of(y: Any) -> tuple[str, ...]:
    """The classes that labels name, sorted."""
    return tuple(sorted(set(y.tolist())))


def checked_tree(data: Path, classes: Sequence[str], graph: hi.Hierarchy | None) -> hi.Hierarchy | None:
    """The hierarchy, if it has all classes; the error names arrays of the file whose names are in the hierarchy."""
    from hcep.classify.base import refuse_unknown
    from hcep.embeddings.arrays import label_array_in

    try:
        refuse_unknown(graph, classes)
    except HierarchyError as error:
        assert graph is not None
        other = label_array_in(data, {*graph.ids, *map(graph.name, graph)})
        hint = f" The names in {other!r} of {data.name} are in the hierarchy: pass --label {other}." if other else ""
        raise HierarchyError(f"{error}{hint}") from None
    return graph


def _fit_text(
    output: Path, tree: hi.Hierarchy, encoder: str, images: Path | None, data: Path | None, as_json: bool, **words: Any
) -> None:
    """Fit to the names of the hierarchy's leaves, save and say what was made of them."""
    from hcep.dictionary.from_text import TEMPLATES
    from hcep.models.fitting import fit_text_model
    from hcep.taxonomy.naming.phrases import wordnet_words

    unlabelled, labelled = (
        None if one is None else datasets.embeddings_of(one, encoder=encoder, progress=not as_json, on_labels=check)
        for one, check in ((images, None), (data, lambda y: [tree.leaf_of(label) for label in y.tolist()]))
    )
    words |= {"templates": words["templates"] or TEMPLATES, "descriptions": wordnet_words(tree)[0]}
    tower = embeddings.load_encoder(encoder)
    found = fit_text_model(tree, tower, output, images=unlabelled, labelled=labelled, **words)
    if as_json:
        numbers = {key: getattr(found, key) for key in ("weight", "temperature", "n_text_only", "gap")}
        # JSON has neither infinity nor NaN.
        plain = {key: value if np.isfinite(value) else None for key, value in numbers.items()}
        say_json({"model": output, "n_classes": len(tree.leaves), **plain})
        return
    seen = len(tree.leaves) - found.n_text_only
    mixed = f", {seen:,} of them with images (a text counts for {found.weight:g})" if seen else ""
    gap = "" if images is None and data is None else f"; gap to the images {found.gap:.2f}, removed"
    Console(soft_wrap=True).print(
        f"[bold]{escape(str(output))}[/]: {len(tree.leaves):,} classes from their names{mixed}{gap}\n"
        f"Try: hcep explain {escape(str(output))} IMAGE"
    )


def _show(
    context: typer.Context, output: Path, fitted: models.FittedModel, has_tree: bool, as_json: bool, hint: str
) -> None:
    opt.save_resolved(context, output)
    model, place = fitted.model, escape(str(output))
    if fitted.replaced:
        names = ", and the names of its atoms dropped" if fitted.names_dropped else ""
        tell(f"the model that was at {output} is replaced{names}")
    if has_tree and model.hierarchy_.depth == 1:
        columns = "are the columns of the hierarchy parent, child?"
        tell(f"every class hangs from the root, so paths have one step; {columns}", "warning")
    summary = {"model": str(output), "n_images": fitted.n_images, "n_classes": len(model.classes_)}
    if as_json:
        chosen = {"anchor": model.anchor_, "shrinkage": model.shrinkage_, "metrics": fitted.metrics}
        say_json(summary | chosen)
        return
    Console(soft_wrap=True).print(
        f"[bold]{place}[/]: {summary['n_images']:,} images of {summary['n_classes']:,} classes, "
        f"depth {model.hierarchy_.depth}, anchor {model.anchor_:g}, shrinkage {model.shrinkage_}, "
        f"power {model.power_:g}; training accuracy {fitted.metrics['training accuracy']:.3f}\n"
        f"Try: {escape(hint)}"
    )


def _head(name: str | None, **options: Any) -> Any:
    """The head of a name, with its options where there are any."""
    given = {key: value for key, value in options.items() if value is not None}
    if given and name != "adamw":
        raise HCEPError("--epochs, --batch-size and --lr are of the head adamw; pass --head adamw, or --paper")
    return classify.AdamWHead(**given) if given else name


def _number(flag: str, text: str | None, *known: str) -> float | str | None:
    words = known or ("auto",)
    if text is None or text in words:
        return text
    try:
        return float(text)
    except ValueError:
        raise HCEPError(f"{flag}: expected {' or '.join(words)} or a number, got {text!r}") from None
