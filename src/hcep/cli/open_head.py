"""`hcep open`: a classifier that exists already, as a model of rooted paths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from hcep.cli.console import say
from hcep.cli.data_options import show_notes
from hcep.cli.hierarchy.files import Options, parsed
from hcep.errors import HCEPError


def open_head(
    encoder: Annotated[
        str, typer.Argument(help="efficientnet-lite2, timm:…, onnx:FILE, a .pth, or an .npz with coef and intercept.")
    ],
    *,
    output: Annotated[Path, typer.Option("--output", "-o", help="Model folder to write.")],
    classes: Annotated[
        Path | None, typer.Option(help="Text file, a class per line in the layer's order; ImageNet's by default.")
    ] = None,
    hierarchy: Annotated[
        str | None, typer.Option("--hierarchy", "-H", help="File or name; WordNet's for ImageNet's classes.")
    ] = None,
    options: Options = None,
    images: Annotated[
        Path | None, typer.Option(help="Store or file of typical embeddings: they set the scale and the anchor.")
    ] = None,
    of: Annotated[str | None, typer.Option("--encoder", "-e", help="The encoder that a bare layer goes with.")] = None,
    force: Annotated[bool, typer.Option("--force", help="Replace a model that is there.")] = False,
) -> None:
    """Open a classifier that exists: its own last layer becomes rooted paths, no training image needed.

    The path's class is the classifier's own on at least 99 % of the given images; the command says on how many.
    """
    from hcep.datasets import find_hierarchy
    from hcep.embeddings import read_embeddings
    from hcep.embeddings.encoders.all_encoders import SOURCES
    from hcep.models.opening import linear_head, open_encoder

    if output.exists() and not force:
        raise HCEPError(f"--output: {str(output)!r} is there already; pass --force to replace it, or give another name")
    labels = None if classes is None else [line for line in classes.read_text("utf-8").splitlines() if line.strip()]
    tree = (
        None
        if hierarchy is None
        else find_hierarchy(hierarchy, labels or (), on_note=lambda note: show_notes([note]), **parsed(options))
    )
    X = None if images is None else read_embeddings(images).X
    head = linear_head(encoder)
    model = open_encoder(encoder, head=head, classes=labels, hierarchy=tree, images=X)
    inside = f"#{head.features}" if head.features else ""
    record = of or (encoder + inside if encoder.partition(":")[0] in SOURCES else None)
    model.save(output, encoder=record)
    agreed = "" if model.agreement_ != model.agreement_ else f", agrees with the layer on {model.agreement_:.1%}"
    say(f"{output}: {len(model.classes_):,} classes, {model.hierarchy_.depth} levels, anchor {model.anchor_:g}{agreed}")
