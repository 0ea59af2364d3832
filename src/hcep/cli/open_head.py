"""`hcep open`: a classifier that exists already, as a model of rooted paths."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from hcep import datasets, embeddings
from hcep.cli.console import say, tell
from hcep.cli.hierarchy.files import Options, parsed
from hcep.cli.options import argument, option
from hcep.errors import HCEPError

Source = Annotated[str, argument("efficientnet-lite2, timm:…, onnx:FILE, a .pth, or an .npz with coef and intercept.")]
Classes = Annotated[Path | None, option("Text file, a class per line in the layer's order; ImageNet's by default.")]
Typical = Annotated[Path | None, option("Store or file of typical embeddings: they set the scale and the anchor.")]


def open_head(
    encoder: Source,
    *,
    output: Annotated[Path, option("Model folder to write.", "--output", "-o")],
    classes: Classes = None,
    hierarchy: Annotated[
        str | None, option("File or name; WordNet's for ImageNet's classes.", "--hierarchy", "-H")
    ] = None,
    options: Options = None,
    images: Typical = None,
    of: Annotated[str | None, option("The encoder that a bare layer goes with.", "--encoder", "-e")] = None,
    force: Annotated[bool, option("Replace a model that is there.", "--force")] = False,
) -> None:
    """Open a classifier that exists: its own last layer becomes rooted paths, no training image needed.

    The path's class is the classifier's own on at least 99 % of the given images; the command says on how many.
    """
    from hcep.embeddings.encoders import SOURCES
    from hcep.models.opening import linear_head, open_encoder

    if output.exists() and not force:
        raise HCEPError(f"--output: {str(output)!r} is there already; pass --force to replace it, or give another name")
    labels = None if classes is None else [line for line in classes.read_text("utf-8").splitlines() if line.strip()]
    tree = None
    if hierarchy is not None:
        tree = datasets.find_hierarchy(hierarchy, labels or (), on_note=tell, **parsed(options))
    X = None if images is None else embeddings.read_embeddings(images).X
    head = linear_head(encoder)
    model = open_encoder(encoder, head=head, classes=labels, hierarchy=tree, images=X)
    inside = f"#{head.features}" if head.features else ""
    model.save(output, encoder=of or (encoder + inside if encoder.partition(":")[0] in SOURCES else None))
    agreed = "" if model.agreement_ != model.agreement_ else f", agrees with the layer on {model.agreement_:.1%}"
    say(f"{output}: {len(model.classes_):,} classes, {model.hierarchy_.depth} levels, anchor {model.anchor_:g}{agreed}")
