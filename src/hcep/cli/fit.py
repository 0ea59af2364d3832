"""`hcep fit`: embeddings and a hierarchy, or only the names of classes, into a model folder."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hcep import classify, datasets, embeddings, hierarchy as hi, models, taxonomy
from hcep._checks import escape_markup as escape
from hcep.cli import options as opt
from hcep.cli.console import Console, say_json, show_notes, tell
from hcep.cli.options import more, option
from hcep.errors import HCEPError, HierarchyError

#: Parameters of the published head.
HEAD = ("epochs", "batch_size", "lr")


def fit(
    context: typer.Context,
    *,
    data: opt.OptionalData = None,
    output: opt.Output,
    hierarchy: opt.HierarchyOption = None,
    encoder: opt.Encoder = None,
    split: opt.Split = None,
    parameter: opt.Parameter = None,
    paper: Annotated[bool, option("Use the published configuration.", "--paper")] = False,
    overwrite: opt.Overwrite = False,
    as_json: opt.Json = False,
    options: opt.ReaderOptions = None,
    vectors: opt.Vectors = None,
    labels: opt.Labels = None,
    preprocessing: opt.Preprocessing = None,
    corrections: opt.Corrections = None,
    images: Annotated[
        Path | None, more("Photos of the store; stop if they have changed since.", "--images FOLDER")
    ] = None,
    several_objects: Annotated[
        bool, more("Also learn how many objects a photo shows (`hcep explain --objects auto`).", "--several-objects")
    ] = False,
    from_text: Annotated[bool, more("Make classes from their names (needs a text encoder).", "--from-text")] = False,
    unlabelled: Annotated[
        Path | None, more("Unlabelled images or embeddings, for --from-text.", "--unlabelled DATA")
    ] = None,
    template: opt.Template = None,
    ray: opt.Ray = None,
    config: opt.Config = None,
) -> None:
    """Fit a model to labelled photos or embeddings, and save it.

    The split `train` is used if there is one. Parameters: anchor, shrinkage, power, refine, priors, beam_width, signed,
    unit_norm, center, tree, collapse, head (path, logistic, adamw), epochs, batch_size, lr, name; see docs/defaults.md.
    """
    from hcep.datasets.encoding import refuse_out_of_step, tree_notes
    from hcep.datasets.hierarchies import NAMED
    from hcep.models.fitting import IN_MEMORY

    if (output / "model.json").exists() and not overwrite:
        how = "pass --overwrite to replace it, or give another name"
        raise HCEPError(f"--output: there is already a model at {str(output)!r}; {how}")
    if from_text:
        if hierarchy is None or encoder is None:
            raise HCEPError("--from-text needs --hierarchy, whose leaves are the classes, and an --encoder for text")
        reading = opt.reader_options(options)
        graph = (
            datasets.imagenet_hierarchy() if hierarchy == "imagenet" else taxonomy.read_hierarchy(hierarchy, **reading)
        )
        name = opt.parameters(parameter, also=("name",)).get("name")
        _fit_text(output, graph.collapse(), encoder, unlabelled, data, as_json, templates=template, name=name)
        opt.save_resolved(context, output)
        return
    if data is None:
        raise HCEPError("DATA is missing: give embeddings or a folder of photos, or use --from-text")
    source: hi.Hierarchy | str | None = hierarchy
    if hierarchy not in (None, "flat", *NAMED):  # read now: a file with an error is reported before hours of encoding
        source = datasets.find_hierarchy(hierarchy, on_note=tell, **opt.reader_options(options))

    @cache
    def tree_above(classes: tuple[str, ...]) -> hi.Hierarchy | None:
        return checked_tree(data, classes, datasets.find_hierarchy(source, classes, on_note=tell))

    if images is not None:
        if not embeddings.is_store(data):
            raise HCEPError(f"--images needs a store as DATA, and {str(data)!r} is not one")
        refuse_out_of_step(embeddings.EmbeddingStore(data), images)
    parameters = _parameters(parameter, paper)
    if ray is not None:
        from hcep.ray.fitting import fit_model as fit_on_cluster

        if paper or corrections or several_objects:
            raise HCEPError("--paper, --corrections and --several-objects are not supported with --ray")
        where = {"address": ray, "progress": not as_json}
        fitted = fit_on_cluster(
            data, lambda classes: tree_above(tuple(classes)), output, split=split, cluster=where, **parameters
        )
        _show(context, output, fitted, hierarchy is not None, as_json, f"hcep explain {output} IMAGE")
        return
    place: dict[str, Any] = {"encoder": encoder, "preprocessing": preprocessing, "store": output / "store"}
    place |= {**opt.columns(vectors, labels), "in_memory": IN_MEMORY}
    if corrections is None:  # corrections may give every photo another class
        place["on_labels"] = lambda y: tree_above(classes_of(y))
    read = datasets.embeddings_of(data, split, default_split="train", progress=not as_json, **place)
    show_notes(read.notes)
    changes = opt.read_corrections(corrections, None)
    if changes is not None:
        read, n = changes.corrected(read)
        tell(f"{n:,} of {len(read.X):,} images have another class in {corrections}")
    tree = tree_above(classes_of(read.y))
    if tree is not None and hierarchy not in (None, "imagenet"):
        show_notes(tree_notes(read.y.tolist(), tree))
    with Console(stderr=True).status("fitting … (the first run compiles kernels)"):
        fitted = models.fit_model(read, tree, output, paper=paper, several_objects=several_objects, **parameters)
    if tree is not None:
        show_notes(_merged_note(fitted.model.hierarchy_))
    photos = f"hcep explain {output} IMAGE" if read.encoder else f"hcep predict {output} {data} -o predictions.csv"
    _show(context, output, fitted, tree is not None, as_json, photos)


def classes_of(y: Any) -> tuple[str, ...]:
    """The classes that labels name, sorted."""
    return tuple(sorted(set(y.tolist())))


def checked_tree(data: Path, classes: Sequence[str], graph: hi.Hierarchy | None) -> hi.Hierarchy | None:
    """The hierarchy, if it has all classes; the error names arrays of the file whose names are in the hierarchy."""
    from hcep.classify.base import refuse_unknown
    from hcep.embeddings.files import label_array_in

    try:
        refuse_unknown(graph, classes)
    except HierarchyError as error:
        assert graph is not None
        other = label_array_in(data, {*graph.ids, *map(graph.name, graph)})
        hint = f" The names in {other!r} of {data.name} are in the hierarchy: pass --labels {other}." if other else ""
        raise HierarchyError(f"{error}{hint}") from None
    return graph


def _parameters(texts: list[str] | None, paper: bool) -> dict[str, Any]:
    """The parameters of the classifier; those of the published head become that head."""
    parameters = opt.parameters(texts, classify.HCEPClassifier, also=(*HEAD, "name"))
    for name in ("anchor", "shrinkage", "power"):
        value, words = parameters.get(name), ("auto", "none") if name == "shrinkage" else ("auto",)
        if isinstance(value, str) and value not in words:
            raise HCEPError(f"--parameter {name}: expected {' or '.join(words)} or a number, got {value!r}")
    of_head = {name: parameters.pop(name) for name in HEAD if name in parameters}
    head = parameters.get("head", "adamw" if paper else None)
    if of_head and head != "adamw":
        raise HCEPError("epochs, batch_size and lr are parameters of the head adamw: add head=adamw, or --paper")
    return parameters | ({"head": classify.AdamWHead(**of_head)} if of_head else {})


def _merged_note(tree: hi.Hierarchy) -> list[str]:
    """A note about concepts with a single child, which the model merges into that child."""
    merged = [f"{name!r} in {tree.name(s)!r}" for s in tree.ids for _, name in tree.merged(s)]
    if not merged:
        return []
    shown = ", ".join(merged[:3]) + (f" and {len(merged) - 3:,} more" if len(merged) > 3 else "")
    return [f"{len(merged):,} concepts have a single child and are shown together with it, not as a step: {shown}"]


def _fit_text(
    output: Path, tree: hi.Hierarchy, encoder: str, images: Path | None, data: Path | None, as_json: bool, **words: Any
) -> None:
    """Fit a model to the names of the hierarchy's leaves, save it and print what was made."""
    from hcep.dictionary.from_text import TEMPLATES
    from hcep.models.fitting import fit_text_model
    from hcep.taxonomy.naming.phrases import wordnet_words

    unlabelled, labelled = (
        None if one is None else datasets.embeddings_of(one, encoder=encoder, progress=not as_json, on_labels=check)
        for one, check in ((images, None), (data, lambda y: [tree.leaf_of(label) for label in y.tolist()]))
    )
    words |= {"templates": words["templates"] or TEMPLATES, "descriptions": wordnet_words(tree)[0]}
    tower = embeddings.load_encoder(encoder)
    made = fit_text_model(tree, tower, output, images=unlabelled, labelled=labelled, **words)
    if as_json:
        numbers = {key: getattr(made, key) for key in ("weight", "temperature", "n_text_only", "gap")}
        # JSON has neither infinity nor NaN.
        plain = {key: value if np.isfinite(value) else None for key, value in numbers.items()}
        say_json({"model": output, "n_classes": len(tree.leaves), **plain})
        return
    seen = len(tree.leaves) - made.n_text_only
    mixed = f", {seen:,} of them also from images (weight of the text {made.weight:g})" if seen else ""
    gap = "" if images is None and data is None else f"; removed a gap of {made.gap:.2f} between texts and images"
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
        names = ", and the descriptions of its concepts were dropped" if fitted.names_dropped else ""
        tell(f"the model at {output} was replaced{names}")
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
