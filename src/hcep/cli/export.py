"""`hcep export`: a model, or its answers for images, in the files of other programs."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any, NamedTuple

from hcep import models
from hcep._files import refuse_existing
from hcep.cli import options as opt
from hcep.cli.console import say, tell
from hcep.cli.options import argument
from hcep.errors import HCEPError, near_matches, quote


def _onnx(model: Any, output: Path, *, encoder: str | None) -> str:
    from hcep.models.onnx_export import export_onnx, includes_encoder

    export_onnx(model, output, encoder)
    source = "preprocessed photos" if includes_encoder(model, encoder) else "embeddings (the encoder is not ONNX)"
    return f"{output.stat().st_size / 1e6:.1f} MB; its input is {source}"


def _addaxai(model: Any, output: Path, *, encoder: str | None) -> str:
    from hcep.models.onnx_folders import export_addaxai

    export_addaxai(model, output, encoder)
    return "copy it to models/cls/ in AddaxAI's folder, and install onnxruntime in its pytorch environment"


def _space(model: Any, output: Path, *, encoder: str | None) -> str:
    from hcep.models.onnx_folders import export_space

    export_space(model, output, encoder)
    return f"hf upload NAME/SPACE {output} . --repo-type space"


def _fiftyone(model: Any, data: Path, output: Path, **options: Any) -> str:
    from hcep.explain.exports import export_fiftyone

    n = export_fiftyone(model, data, output, **options, progress=True, on_note=tell)
    return f"{n:,} photos; fo.Dataset.from_dir({str(output)!r}, dataset_type=fo.types.LegacyFiftyOneDataset)"


def _atlas(model: Any, data: Path, output: Path, **options: Any) -> str:
    from hcep.explain.predictions import predict_data

    n = predict_data(model, data, output, **options, embeddings=True, progress=True, on_note=tell)
    return f"{n:,} images; embedding-atlas {output} --vector embedding"


class Kind(NamedTuple):
    """What writes a kind of output, the ending of its name ("" for a folder), and whether it holds answers for data."""

    write: Callable[..., str]
    suffix: str
    needs_data: bool


KINDS = {
    "onnx": Kind(_onnx, ".onnx", False),
    "addaxai": Kind(_addaxai, "", False),
    "space": Kind(_space, "", False),
    "fiftyone": Kind(_fiftyone, "", True),
    "atlas": Kind(_atlas, ".parquet", True),
}


def export(
    kind: Annotated[str, argument(f"What to write: {', '.join(KINDS)}.", metavar="KIND")],
    model: opt.Model,
    data: opt.OptionalData = None,
    *,
    output: opt.Output,
    split: opt.Split = None,
    sure: opt.Sure = 0.9,
    encoder: opt.Encoder = None,
    overwrite: opt.Overwrite = False,
) -> None:
    """Export a model, or its answers for images (DATA), to another program.

    A model becomes an ONNX file (onnx), a model folder for AddaxAI (addaxai) or a Space for the Hugging Face hub
    (space). Answers become a FiftyOne dataset with heat maps (fiftyone), or a Parquet file with the embeddings for
    Embedding Atlas (atlas). docs/tools.md describes them.
    """
    if kind not in KINDS:
        raise HCEPError(f"KIND: expected one of {', '.join(KINDS)}, got {quote(kind)}.{near_matches(kind, KINDS)}")
    write, suffix, needs_data = KINDS[kind]
    if needs_data != (data is not None):
        raise HCEPError(f"DATA: {kind} {'needs images to answer for' if needs_data else 'takes a model and no images'}")
    if output.suffix != suffix:
        name = f"a name ending in {suffix}" if suffix else "the name of a folder"
        raise HCEPError(f"--output: {kind} needs {name}, got {str(output)!r}")
    refuse_existing(output, overwrite, "--output", folder=not suffix)
    saved = models.read_model(model)
    if data is None:
        text = write(saved, output, encoder=encoder)
    else:
        text = write(saved, data, output, split=split, sure=sure, encoder=encoder)
    say(f"{output}: {text}")
