"""Encoders by name: a name carries its source, one adapter per library (`all_encoders` lists them).

========================================  ==========================================================
``open_clip:ViT-L-14/openai``             open_clip: a tag, a checkpoint, ``local-dir:``, ``hf-hub:``
``transformers:google/siglip-base-…``     transformers: the hub's name or a folder of CLIP or SigLIP
``timm:resnet50.a1_in1k``                 timm: a tag, a checkpoint, ``local-dir:``, ``hf-hub:``
``onnx:models/encoder.onnx``              onnxruntime; ``encoder.onnx#tensor`` for one inside it
``efficientnet-lite2``                    the built-in one; ``efficientnet-lite0`` is quicker
``function:package.module:attribute``     a Python function of a batch
========================================  ==========================================================
"""

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any

from hcep.embeddings.encoders.all_encoders import SOURCES, EncoderInfo
from hcep.embeddings.encoders.function import FunctionEncoder, ImageFunction
from hcep.embeddings.encoders.hub import HubUnreachableError
from hcep.embeddings.preprocessing import PreprocessingLike
from hcep.embeddings.protocol import Encoder
from hcep.errors import HCEPError, near_matches, quoted

__all__ = [
    "SOURCES",
    "EncoderInfo",
    "FunctionEncoder",
    "HubUnreachableError",
    "absolute_name",
    "available_encoders",
    "load_encoder",
]


def available_encoders() -> list[EncoderInfo]:
    """What encoders there are, whether they are installed and how to install them; imports none of them.

    >>> from hcep.embeddings.encoders import available_encoders
    >>> {info.source: info.install for info in available_encoders()}["onnx"]
    'pip install "hcep[onnx]"'
    """
    return list(SOURCES.values())


def load_encoder(
    name: str | ImageFunction,
    *,
    device: str | None = None,
    precision: str | None = None,
    preprocessing: PreprocessingLike | None = None,
    **options: Any,
) -> Encoder:
    """Load an encoder by the name that carries its source.

    Parameters
    ----------
    name : str or callable; see the table of this module; or a function of a preprocessed batch, for `FunctionEncoder`
    device : such as 'cpu' or 'cuda:1'; a GPU where there is one by default
    precision : {'fp32', 'fp16', 'bf16'}; mixed precision on CUDA, 'fp16' there by default
    preprocessing : Preprocessing, mapping, str or path-like, optional
        What differs from the model's own, see `hcep.embeddings.preprocessing.as_preprocessing`. The `preprocessing` of
        a loaded encoder, given here, makes the same one again.
    **options : the adapter's own, such as ``output`` and ``threads`` for ONNX files or ``revision`` for transformers

    >>> from hcep.embeddings.encoders import load_encoder
    >>> encoder = load_encoder(lambda batch: batch.mean(axis=(2, 3)), preprocessing={"size": 32})
    >>> encoder.n_dims, encoder.preprocessing["size"]
    (3, [32, 32])
    """
    if callable(name):
        return _of_function(name, device, precision, {"preprocessing": preprocessing, **options})
    name = absolute_name(name)
    source, _, model = name.partition(":")
    load = _adapter(name, source, model)
    _check_options(name, load, options)
    encoder: Encoder = load(model or source, device=device, precision=precision, preprocessing=preprocessing, **options)
    return encoder


def absolute_name(name: str) -> str:
    """A name that leads to the same file or folder from everywhere: what a store and a model remember."""
    source, _, place = name.partition(":")
    file, mark, inner = (place, "", "") if Path(place).exists() else place.partition("#")
    return f"{source}:{Path(file).resolve()}{mark}{inner}" if file and Path(file).exists() else name


def _of_function(
    function: ImageFunction, device: str | None, precision: str | None, options: dict[str, Any]
) -> FunctionEncoder:
    if device is not None or precision is not None:
        raise HCEPError("device and precision are the function's own affair; leave them out for a function")
    name = (
        f"function:{getattr(function, '__module__', '')}:{getattr(function, '__qualname__', type(function).__name__)}"
    )
    options = {"name": name, **options}
    _check_options("a function", FunctionEncoder, options)
    return FunctionEncoder(function, **options)


def _adapter(name: str, source: str, model: str) -> Callable[..., Encoder]:
    if source not in SOURCES:
        raise HCEPError(
            f"unknown encoder {name!r}: a name carries its source, such as "
            f"{quoted(s.example for s in SOURCES.values())}.{near_matches(source, SOURCES)}"
        )
    if bool(model) != (":" in SOURCES[source].example):
        raise HCEPError(f"encoder {name!r}: expected a name such as {SOURCES[source].example!r}")
    load: Callable[..., Encoder] = import_module(f"{__name__}.{SOURCES[source].adapter}").load
    return load


def _check_options(name: str, load: Callable[..., Any], options: dict[str, Any]) -> None:
    known = [p.name for p in inspect.signature(load).parameters.values() if p.kind is p.KEYWORD_ONLY]
    for option in options:
        if option not in known:
            raise HCEPError(
                f"{name} has no option {option!r}, it has {quoted(known, limit=10)}.{near_matches(option, known)}"
            )
