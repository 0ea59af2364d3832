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
from hcep.errors import HCEPError, counted, quote
from hcep.hierarchy import Hierarchy

#: Parameters of the published head.
HEAD = ("epochs", "batch_size", "lr")
#: Files of an earlier model, and what to say when they are replaced.
REPLACED = {
    "model.json": "the model at {} was replaced",
    "atoms.json": "the descriptions of its concepts were deleted",
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
    say_coarse: Annotated[
        Path | None,
        more(
            "Write the likeliest class of each image whose label is a concept above the classes (.csv).",
            "--say-coarse FILE",
        ),
    ] = None,
    from_text: Annotated[bool, more("Make classes from their names (needs a text encoder).", "--from-text")] = False,
    vocabulary: opt.Vocabulary = None,
    unlabelled: Annotated[
        Path | None, more("Unlabelled images or embeddings, for classes made from texts alone.", "--unlabelled DATA")
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
    from hcep.models.fit_data import fit_data, hierarchy_above, texts_by_encoder, texts_in_files

    has_model = (output / "model.json").exists()
    refuse_existing(output, overwrite or not has_model, "--output", folder=True)
    _refuse_say_coarse(say_coarse, overwrite, data, hierarchy, labels, corrections)
    reading = opt.reader_options(options)
    _refuse_text_options(from_text, vocabulary, unlabelled, template, data, hierarchy, encoder)
    tower = embeddings.load_encoder(encoder, preprocessing=preprocessing) if from_text and encoder else None
    texts = texts_in_files(vocabulary, tell) if vocabulary else None
    if tower is not None:
        texts = texts_by_encoder(tower, template, _definitions)
    if data is None and texts is not None:
        if say_coarse is not None:
            raise HCEPError("--say-coarse has no effect without labelled images: give DATA")
        _fit_names(output, hierarchy, reading, texts, tower, unlabelled, as_json, parameter)
        save_resolved(context, output)
        return
    if data is None:
        raise HCEPError("DATA is missing: give embeddings or a folder of photos, or use --from-text or --vocabulary")
    parameters = _parameters(parameter, paper)
    several_objects = parameters.pop("several_objects", False)
    replaced = [file for file in REPLACED if (output / file).is_file()]
    if ray is not None:
        from hcep.classify.coarse_counts import coarse_lines
        from hcep.ray.fitting import fit_model as fit_on_cluster

        others = ("encoder", "vectors", "labels", "vocabulary", "from_text")
        opt.refuse_with_ray(context, "paper", "corrections", "say_coarse", *others)
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
            encoder=tower or encoder,
            preprocessing=preprocessing,
            texts=texts,
            columns=opt.columns(vectors, labels),
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
        raise HCEPError(
            f"--parameter several_objects: expected true or false, got {quote(parameters['several_objects'])}"
        )
    for name in ("anchor", "shrinkage", "power"):
        value, words = parameters.get(name), ("auto", "none") if name == "shrinkage" else ("auto",)
        if isinstance(value, str) and value not in words:
            raise HCEPError(f"--parameter {name}: expected {' or '.join(words)} or a number, got {quote(value)}")
    of_head = {name: parameters.pop(name) for name in HEAD if name in parameters}
    head = parameters.get("head", "adamw" if paper else None)
    if of_head and head != "adamw":
        raise HCEPError("epochs, batch_size and lr are parameters of the head adamw: add head=adamw, or --paper")
    return parameters | ({"head": classify.AdamWHead(**of_head)} if of_head else {})


def _refuse_text_options(
    from_text: bool,
    vocabulary: list[Path] | None,
    unlabelled: Path | None,
    template: list[str] | None,
    data: Path | None,
    hierarchy: str | None,
    encoder: str | None,
) -> None:
    """Refuse options about texts that have no effect, and texts that have no source, before any work."""
    from hcep.embeddings.texts import HOW, is_embedded, text_place

    if template and not from_text:
        raise HCEPError("--template has no effect without --from-text")
    if unlabelled and not (from_text or vocabulary):
        raise HCEPError("--unlabelled has no effect without --from-text or --vocabulary")
    if unlabelled is not None and data is not None:
        raise HCEPError(
            "--unlabelled has no effect if DATA is given, because labelled images are more informative; leave it out"
        )
    if from_text and vocabulary:
        raise HCEPError(
            "--from-text encodes names, and --vocabulary gives vectors that are already encoded: use only one of them"
        )
    if from_text and (hierarchy is None or encoder is None):
        raise HCEPError("--from-text needs --hierarchy, whose leaves are the classes, and an --encoder for text")
    if from_text and hierarchy == "flat":
        raise HCEPError("--from-text: a flat hierarchy has no classes; give a file or `imagenet`")
    for place in vocabulary or ():
        if not is_embedded(place):
            raise HCEPError(f"--vocabulary: {str(place)!r} has no vectors; give embedded texts, or --from-text")
        file, array, _ = text_place(place)
        if data is not None and array is None and file.resolve() == data.resolve():
            raise HCEPError(f"--vocabulary: {str(place)!r} is also DATA, whose vectors are those of images; {HOW}")


def _definitions(tree: Hierarchy) -> dict[str, str]:
    from hcep.taxonomy.naming.phrases import wordnet_words

    return wordnet_words(tree)[0]


def _fit_names(
    output: Path,
    hierarchy: str | None,
    reading: dict[str, Any],
    texts: Any,
    tower: embeddings.Encoder | None,
    unlabelled: Path | None,
    as_json: bool,
    parameter: list[str] | None,
) -> None:
    """Fit a model to texts of classes without labelled images, save it and print what was made."""
    from hcep.datasets.encoding import embeddings_of
    from hcep.models.fitting import fit_text_model

    if hierarchy is None:
        raise HCEPError("--vocabulary without DATA needs --hierarchy, whose leaves are the classes, or `flat`")
    tree = datasets.find_hierarchy(hierarchy, on_note=tell, **reading)
    name = opt.parameters(parameter, also=("name",)).get("name")
    by_concept = texts(tree)
    images = None if unlabelled is None else embeddings_of(unlabelled, encoder=tower, progress=not as_json)
    made = fit_text_model(tree, by_concept, output, encoder=tower, images=images, name=name)
    if as_json:
        facts = {"words": 1.0, "temperature": made.temperature_, "n_text_only": len(made.classes_)}
        say_json({"model": output, "n_classes": len(made.classes_), **facts})
        return
    Console(soft_wrap=True).print(
        f"[bold]{escape(str(output))}[/]: {len(made.classes_):,} classes from their names\n"
        f"Try: hcep {escape(_next_command(output, tower is not None, unlabelled))}"
    )


def _next_command(output: Path, has_encoder: bool, data: Path | None) -> str:
    return f"explain {output} IMAGE" if has_encoder else f"predict {output} {data or 'DATA'} -o predictions.csv"


def _show(output: Path, data: Path, model: classify.HCEPClassifier, as_json: bool) -> None:
    from hcep.explain.answer import percent

    saved = models.read_model(output)
    metrics, n_images = saved.training.metrics, saved.training.n_images
    words, n_text_only = model.words_, int(np.sum(model.images_per_class_ == 0))
    if model.hierarchy is not None and model.hierarchy_.depth == 1:
        columns = "are the columns of the hierarchy really parent and child?"
        tell(f"every class is directly below the root, so each path has one step; {columns}", "warning")
    if as_json:
        facts = {"model": str(output), "n_images": n_images, "n_classes": len(model.classes_)}
        facts |= {} if words is None else {"words": words.share, "n_text_only": n_text_only}
        say_json(facts | {"anchor": model.anchor_, "shrinkage": model.shrinkage_, "metrics": metrics})
        return
    without = f"; {counted(n_text_only, 'class')} without images" if n_text_only else ""
    evidence = "" if words is None else f"Words provide {percent(words.share)} of the evidence{without}\n"
    Console(soft_wrap=True).print(
        f"[bold]{escape(str(output))}[/]: {n_images:,} images of {len(model.classes_):,} classes, "
        f"depth {model.hierarchy_.depth}, anchor {model.anchor_:g}, shrinkage {model.shrinkage_}, "
        f"power {model.power_:g}; training accuracy {metrics['training accuracy']:.3f}\n{evidence}"
        f"Try: hcep {escape(_next_command(output, saved.encoder is not None, data))}"
    )
