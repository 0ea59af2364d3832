"""`hcep open`: a classifier that exists already, as a model of rooted paths."""

from typing import Annotated

import numpy as np

from hcep import datasets, embeddings, models
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.console import say, tell
from hcep.cli.options import argument

Source = Annotated[
    str,
    argument("efficientnet-lite2, timm:…, onnx:FILE, a .pth, or an .npz with coef and intercept.", metavar="SOURCE"),
]


def open(
    source: Source,
    data: opt.OptionalData = None,
    *,
    output: opt.Output,
    classes: opt.Classes = None,
    hierarchy: opt.HierarchyOption = None,
    encoder: opt.Encoder = None,
    overwrite: opt.Overwrite = False,
    options: opt.ReaderOptions = None,
) -> None:
    """Turn an existing classifier into a model of rooted paths, without training images.

    The last layer becomes the model. --classes lists its classes in order; the default is ImageNet's classes. Typical
    images (DATA) set the scale and the anchor; the command prints for how many of them the path ends in the
    classifier's own class (at least 99 %). A bare layer needs --encoder, the encoder of its inputs.
    """
    from hcep.embeddings.encoders import SOURCES
    from hcep.models.opening import linear_head, open_encoder

    refuse_existing(output, overwrite, "--output", folder=True)
    labels, tree = opt.lines_in(classes), None
    if hierarchy is not None:
        tree = datasets.find_hierarchy(hierarchy, labels or (), on_note=tell, **opt.reader_options(options))
    X = None if data is None else embeddings.read_embeddings(data).X
    head = linear_head(source)
    model = open_encoder(source, head=head, classes=labels, hierarchy=tree, images=X)
    inside = f"#{head.features}" if head.features else ""
    name = encoder or (source + inside if source.partition(":")[0] in SOURCES else None)
    models.save(model, output, encoder=name)
    agreed = "" if np.isnan(model.agreement_) else f", agrees with the layer on {model.agreement_:.1%}"
    say(f"{output}: {len(model.classes_):,} classes, {model.hierarchy_.depth} levels, anchor {model.anchor_:g}{agreed}")
