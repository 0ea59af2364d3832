"""`hcep fit`: embeddings and a hierarchy, or only the names of classes, into a model folder."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer

from hcep import classify, datasets, embeddings, models
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.config import Config, save_resolved
from hcep.cli.console import Console, escape, say_json, tell
from hcep.cli.options import more, option
from hcep.errors import HCEPError
from hcep.hierarchy import Hierarchy

#: Parameters of the published head.
HEAD = ("epochs", "batch_size", "lr")
#: Files of an earlier model, and what to say when they are replaced.
REPLACED = {
    "model.json": "the model at {} was replaced",
    "atoms.json": "the descriptions of its concepts were dropped",
}


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
    say_coarse: Annotated[
        Path | None,
        more("Write the likeliest class of each image labelled above the classes (.csv).", "--say-coarse FILE"),
    ] = None,
    from_text: Annotated[bool, more("Make classes from their names (needs a text encoder).", "--from-text")] = False,
    unlabelled: Annotated[
        Path | None, more("Unlabelled images or embeddings, for --from-text.", "--unlabelled DATA")
    ] = None,
    template: opt.Template = None,
    ray: opt.Ray = None,
    config: Config = None,
) -> None:
    """Fit a model to labelled photos or embeddings, and save it.

    The split `train` is used if there is one. Parameters: anchor, shrinkage, power, refine, priors, beam_width, signed,
    unit_norm, center, tree, collapse, head (path, logistic, adamw), epochs, batch_size, lr, name, several_objects,
    coarse (below, own or drop: what a label above classes means), unlabelled (ignore or use); see docs/defaults.md.
    """
    from hcep.explain.corrections import read_corrections
    from hcep.models.fit_data import fit_data, hierarchy_above

    if (output / "model.json").exists() and not overwrite:
        how = "pass --overwrite to replace it, or give another name"
        raise HCEPError(f"--output: there is already a model at {str(output)!r}; {how}")
    _refuse_say_coarse(say_coarse, overwrite, data, hierarchy, labels, corrections)
    reading = opt.reader_options(options)
    if not from_text and (unlabelled or template):
        raise HCEPError("--unlabelled and --template have no effect without --from-text")
    if from_text:
        if say_coarse is not None:
            raise HCEPError("--say-coarse has no effect on --from-text, which has no images with such labels")
        if images is not None:
            raise HCEPError("--images has no effect on --from-text; unlabelled images are now: --unlabelled DATA")
        if hierarchy is None or encoder is None:
            raise HCEPError("--from-text needs --hierarchy, whose leaves are the classes, and an --encoder for text")
        tree = datasets.find_hierarchy(hierarchy, on_note=tell, **reading)
        if tree is None:
            raise HCEPError("--from-text: a flat hierarchy has no classes; give a file or `imagenet`")
        name = opt.parameters(parameter, also=("name",)).get("name")
        _fit_text(output, tree.collapse(), encoder, unlabelled, data, as_json, templates=template, name=name)
        save_resolved(context, output)
        return
    if data is None:
        raise HCEPError("DATA is missing: give embeddings or a folder of photos, or use --from-text")
    parameters = _parameters(parameter, paper)
    several_objects = parameters.pop("several_objects", False)
    replaced = [file for file in REPLACED if (output / file).is_file()]
    if ray is not None:
        from hcep.classify.coarse_counts import coarse_lines
        from hcep.ray.fitting import fit_model as fit_on_cluster

        opt.refuse_with_ray(context, "paper", "corrections", "say_coarse", "images", "encoder", "vectors", "labels")
        if several_objects:
            raise HCEPError("-P several_objects=true is not supported with --ray")
        where = {"address": ray, "progress": not as_json}
        tree_above = hierarchy_above(data, hierarchy, reading, tell)
        model = fit_on_cluster(data, tree_above, output, split=split, cluster=where, **parameters)
        for line in coarse_lines(model.coarse_counts_ or {}, model.hierarchy_):
            tell(line)
    else:
        model = fit_data(
            data,
            output,
            hierarchy,
            reading=reading,
            split=split,
            encoder=encoder,
            preprocessing=preprocessing,
            columns=opt.columns(vectors, labels),
            photos=images,
            corrections=read_corrections(corrections, None, tell),
            say_coarse=say_coarse,
            progress=not as_json,
            on_note=tell,
            paper=paper,
            several_objects=several_objects,
            **parameters,
        )
    save_resolved(context, output)
    if replaced:
        tell(", and ".join(REPLACED[file].format(output) for file in replaced))
    _show(output, data, model, as_json)


def _refuse_say_coarse(path: Path | None, overwrite: bool, *inputs: str | Path | None) -> None:
    """Refuse a file that is not CSV, that exists, or that the command reads, before any work."""
    if path is None:
        return
    if path.suffix != ".csv":
        raise HCEPError(f"--say-coarse: expected a name ending in .csv, got {str(path)!r}")
    if any(one is not None and Path(one).resolve() == path.resolve() for one in inputs):
        raise HCEPError(f"--say-coarse: {str(path)!r} is an input of this command; give another name")
    refuse_existing(path, overwrite, "--say-coarse")


def _parameters(texts: list[str] | None, paper: bool) -> dict[str, Any]:
    """The parameters of the classifier; those of the published head become that head."""
    parameters = opt.parameters(texts, classify.HCEPClassifier, also=(*HEAD, "name", "several_objects"))
    if not isinstance(parameters.get("several_objects", False), bool):
        raise HCEPError(f"--parameter several_objects: expected true or false, got {parameters['several_objects']!r}")
    for name in ("anchor", "shrinkage", "power"):
        value, words = parameters.get(name), ("auto", "none") if name == "shrinkage" else ("auto",)
        if isinstance(value, str) and value not in words:
            raise HCEPError(f"--parameter {name}: expected {' or '.join(words)} or a number, got {value!r}")
    of_head = {name: parameters.pop(name) for name in HEAD if name in parameters}
    head = parameters.get("head", "adamw" if paper else None)
    if of_head and head != "adamw":
        raise HCEPError("epochs, batch_size and lr are parameters of the head adamw: add head=adamw, or --paper")
    return parameters | ({"head": classify.AdamWHead(**of_head)} if of_head else {})


def _fit_text(
    output: Path, tree: Hierarchy, encoder: str, images: Path | None, data: Path | None, as_json: bool, **words: Any
) -> None:
    """Fit a model to the names of the hierarchy's leaves, save it and print what was made."""
    from hcep.datasets.encoding import embeddings_of
    from hcep.dictionary.from_text import TEMPLATES
    from hcep.models.fitting import fit_text_model
    from hcep.taxonomy.naming.phrases import wordnet_words

    unlabelled, labelled = (
        None if one is None else embeddings_of(one, encoder=encoder, progress=not as_json, on_labels=check)
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


def _show(output: Path, data: Path, model: classify.HCEPClassifier, as_json: bool) -> None:
    saved = models.read_model(output)
    metrics, n_images = saved.training.metrics, saved.training.n_images
    if model.hierarchy is not None and model.hierarchy_.depth == 1:
        columns = "are the columns of the hierarchy parent, child?"
        tell(f"every class hangs from the root, so paths have one step; {columns}", "warning")
    if as_json:
        facts = {"model": str(output), "n_images": n_images, "n_classes": len(model.classes_)}
        say_json(facts | {"anchor": model.anchor_, "shrinkage": model.shrinkage_, "metrics": metrics})
        return
    hint = f"explain {output} IMAGE" if saved.encoder else f"predict {output} {data} -o predictions.csv"
    Console(soft_wrap=True).print(
        f"[bold]{escape(str(output))}[/]: {n_images:,} images of {len(model.classes_):,} classes, "
        f"depth {model.hierarchy_.depth}, anchor {model.anchor_:g}, shrinkage {model.shrinkage_}, "
        f"power {model.power_:g}; training accuracy {metrics['training accuracy']:.3f}\n"
        f"Try: hcep {escape(hint)}"
    )
