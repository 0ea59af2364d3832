"""`hcep fit --from-text`: names of classes through a text tower into a model folder."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from hcep._escape import markup as escape
from hcep.cli.console import Console, say
from hcep.errors import HCEPError


def fit_from_text(
    output: Path,
    hierarchy: str | None,
    options: dict[str, Any],
    encoder: str | None,
    images: Path | None,
    data: Path | None,
    templates: Sequence[str] | None,
    name: str | None,
    as_json: bool,
) -> None:
    """Fit, save and say what was made of the texts.

    Parameters
    ----------
    output : folder of the model
    hierarchy, options : file and how it is read; needed, as it names the classes
    encoder : needed: one with a text tower
    images, data : stores or files without and with labels
    templates : what names are put into
    name : of the model
    as_json : print JSON and nothing else
    """
    from hcep.datasets import embeddings_of, imagenet_hierarchy
    from hcep.dictionary.from_text import TEMPLATES
    from hcep.embeddings import load_encoder
    from hcep.explain.naming.pools import wordnet_words
    from hcep.hierarchy import read_hierarchy
    from hcep.models.text_fitting import fit_text_model

    if hierarchy is None or encoder is None:
        raise HCEPError("--from-text needs --hierarchy, whose leaves are the classes, and --encoder with a text tower")
    graph = imagenet_hierarchy() if hierarchy == "imagenet" else read_hierarchy(hierarchy, **options)
    unlabelled, labelled = (
        None if place is None else embeddings_of(place, encoder=encoder, progress=not as_json)
        for place in (images, data)
    )
    graph = graph.collapse()
    found = fit_text_model(
        graph,
        load_encoder(encoder),
        output,
        images=unlabelled,
        labelled=labelled,
        templates=templates or TEMPLATES,
        descriptions=wordnet_words(graph)[0],
        name=name,
    )
    if as_json:
        numbers = {key: getattr(found, key) for key in ("weight", "temperature", "n_text_only", "gap")}
        # JSON has neither infinity nor NaN.
        plain = {key: value if np.isfinite(value) else None for key, value in numbers.items()}
        say(json.dumps({"model": str(output), "n_classes": len(graph.leaves), **plain}, indent=2))
        return
    seen = len(graph.leaves) - found.n_text_only
    mixed = f", {seen:,} of them with images (a text counts for {found.weight:g})" if seen else ""
    gap = "" if images is None and data is None else f"; gap to the images {found.gap:.2f}, removed"
    Console(soft_wrap=True).print(
        f"[bold]{escape(str(output))}[/]: {len(graph.leaves):,} classes from their names{mixed}{gap}\n"
        f"Try: hcep explain {escape(str(output))} IMAGE"
    )
