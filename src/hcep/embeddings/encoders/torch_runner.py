"""What the adapters of torch models share: device, precision, the forward pass, a hash of the weights, and texts."""

import hashlib
import json
import logging
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.embeddings.encoders.function import FunctionEncoder
from hcep.embeddings.encoders.hub import loading
from hcep.embeddings.preprocessing import Preprocessing
from hcep.errors import HCEPError, near_matches, quote

Forward = Callable[[Any], Any]
_log = logging.getLogger(__name__)
#: Prefixes of names in open_clip and timm that are a folder, or a repository on the hub.
FOLDER, HUB = "local-dir:", "hf-hub:"

PRECISIONS = {"fp32": None, "fp16": "float16", "bf16": "bfloat16"}


@dataclass(frozen=True)
class TorchRunner:
    """Runs a module on one device; on CUDA the forward pass may be autocast to a lower precision."""

    torch: Any
    device: Any
    precision: str

    @classmethod
    def choose(cls, device: str | None, precision: str | None) -> "TorchRunner":
        """Choose a device (CUDA by default, if there is one) and a precision ('fp16' on CUDA, otherwise 'fp32')."""
        import torch

        try:
            chosen = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        except RuntimeError as error:
            raise HCEPError(f"device must be 'cpu', 'cuda' or another device of torch, got {quote(device)}") from error
        on_cuda = chosen.type == "cuda"
        if on_cuda and not torch.cuda.is_available():
            raise HCEPError(f"device {quote(device)}: torch finds no CUDA device; leave out device, or give 'cpu'")
        wanted = precision or ("fp16" if on_cuda else "fp32")
        if wanted not in PRECISIONS:
            raise HCEPError(
                f"precision must be 'fp32', 'fp16' or 'bf16', got {quote(wanted)}.{near_matches(wanted, PRECISIONS)}"
            )
        if wanted != "fp32" and not on_cuda:
            raise HCEPError(
                f"precision {quote(wanted)} needs a CUDA device, but the device is {str(chosen)!r}; leave out precision"
            )
        return cls(torch, chosen, wanted)

    def run(self, forward: Callable[..., Any], *arrays: Any) -> NDArray[np.float32]:
        """`forward` of arrays or tensors, as a float32 array."""
        inputs = [self.torch.as_tensor(array).to(self.device) for array in arrays]
        mixed = PRECISIONS[self.precision]
        autocast = self.torch.autocast(self.device.type, dtype=getattr(self.torch, mixed)) if mixed else nullcontext()
        with self.torch.inference_mode(), autocast:
            vectors: NDArray[np.float32] = forward(*inputs).float().cpu().numpy()
        return vectors


def torch_encoder(
    name: str,
    runner: TorchRunner,
    network: Any,
    forward: Callable[..., Any],
    preprocessing: Preprocessing,
    architecture: object,
    texts: Callable[[Sequence[str]], Any] | str = "the model has no text tower",
    maps: Callable[..., Any] | None = None,
) -> FunctionEncoder:
    """An encoder from a torch module.

    Parameters
    ----------
    network : moved to the runner's device here
    forward : the network's function from pixels to vectors
    architecture : everything that determines the vectors, besides the weights
    texts : function from texts to vectors, or the reason why there is none
    maps : function from pixels to feature maps, see `FunctionEncoder`; whether they are exact is tested
    """
    network = network.float().to(runner.device).eval()  # its weights stay float32
    return FunctionEncoder(
        lambda batch: runner.run(forward, batch),
        name=name,
        preprocessing=preprocessing,
        fingerprint=weights_hash(network, architecture),
        texts=texts,
        maps=None if maps is None else lambda batch: runner.run(maps, batch),
        maps_are_exact=None,
    )


def text_tower(
    model: str, local: bool, load_tokenizer: Callable[[], Any], encode: Callable[[Any, list[str]], Any]
) -> Callable[[Sequence[str]], Any] | str:
    """A function from texts to vectors, or the reason why there is none: the tokenizer may be missing."""
    try:
        with loading(f"the tokenizer of {model}", local=local):
            tokenizer = load_tokenizer()
    except HCEPError as error:
        _log.warning("texts cannot be encoded: %s", error)
        return str(error)
    return lambda texts: encode(tokenizer, list(texts))


def is_place(library: str, model: str) -> bool:
    """Whether the name of a model is a folder, which must exist, or a repository on the hub."""
    if model.startswith(FOLDER) and not Path(model.removeprefix(FOLDER)).is_dir():
        raise HCEPError(f"{library}:{model}: no such folder")
    return model.startswith((FOLDER, HUB))


def weights_hash(model: Any, architecture: object) -> str:
    """Hash of a module's floating-point tensors and of its architecture.

    Tensors count by content and not by name, and integer buffers do not count, so that stores stay valid when a library
    renames a parameter or drops a buffer of positions.
    """
    tensors = [t.detach().cpu() for t in model.state_dict().values() if t.is_floating_point()]
    # As float32, so that a checkpoint in half precision and its copy in full precision are the same weights.
    arrays = (np.ascontiguousarray(tensor.float().numpy()) for tensor in tensors)
    hashes = [hashlib.sha256(json.dumps(a.shape).encode() + a.tobytes()).hexdigest() for a in arrays]
    text = json.dumps([architecture, sorted(hashes)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()


# The last feature map has, at every position, the vector that the head makes from that position alone. If the head
# takes a mean, as in most CNNs, the image's vector is the mean of these and the map is exact. After attention pooling,
# a class token or a norm, the map is a hint.


def timm_map(network: Any, head: Forward | None = None) -> Forward:
    """A function from pixels to maps (n, n_dims, height, width) of a timm network, followed by an optional `head`."""

    def forward(pixels: Any) -> Any:
        features = network.forward_features(pixels)
        if features.ndim == 3:
            tokens, around = features[:, network.num_prefix_tokens :], network.num_prefix_tokens
            return tokens_map(tokens, pixels, lambda alone: finish(network.forward_head(alone)), around)
        last = getattr(network, "output_fmt", "NCHW") == "NHWC"
        features = features if last else features.permute(0, 2, 3, 1)
        n, height, width, n_channels = features.shape
        alone = features.reshape(-1, 1, 1, n_channels) if last else features.reshape(-1, n_channels, 1, 1)
        return finish(network.forward_head(alone)).reshape(n, height, width, -1).permute(0, 3, 1, 2)

    def finish(vectors: Any) -> Any:
        return vectors if head is None else head(vectors)

    return forward


def tokens_map(tokens: Any, pixels: Any, head: Forward, n_before: int = 0) -> Any:
    """The map of the last layer's patch tokens (n, n_patches, width), each of which goes through the head alone.

    The head takes tokens (n, n_before + 1, width); tokens before the patch, such as a class token, are copies of it.
    """
    n, n_patches, width = tokens.shape
    rows = round((n_patches * pixels.shape[2] / pixels.shape[3]) ** 0.5)
    vectors = head(tokens.reshape(-1, 1, width).expand(-1, n_before + 1, -1))
    return vectors.reshape(n, rows, n_patches // rows, -1).permute(0, 3, 1, 2)
