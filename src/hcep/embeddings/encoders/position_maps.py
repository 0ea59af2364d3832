"""Last feature maps of torch networks: at every position the vector that the head makes of that position alone.

Where the head takes a mean, as most CNNs' does, the image's vector is the mean of these and the map is exact; behind an
attention pooling, a class token or a norm it is a hint.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

Forward = Callable[[Any], Any]


def timm_map(network: Any, head: Forward | None = None) -> Forward:
    """Pixels to maps (n, n_dims, height, width) of a timm network, followed by a `head` of somebody else's."""

    def forward(pixels: Any) -> Any:
        features = network.forward_features(pixels)
        if features.ndim == 3:
            tokens, around = features[:, network.num_prefix_tokens :], network.num_prefix_tokens
            return tokens_map(tokens, pixels, lambda alone: finish(network.forward_head(alone)), around)
        last = getattr(network, "output_fmt", "NCHW") == "NHWC"
        n, height, width, n_channels = (features if last else features.permute(0, 2, 3, 1)).shape
        rows = (features if last else features.permute(0, 2, 3, 1)).reshape(-1, n_channels)
        alone = rows[:, None, None, :] if last else rows[:, :, None, None]
        return finish(network.forward_head(alone)).reshape(n, height, width, -1).permute(0, 3, 1, 2)

    def finish(vectors: Any) -> Any:
        return vectors if head is None else head(vectors)

    return forward


def tokens_map(tokens: Any, pixels: Any, head: Forward, n_before: int = 0) -> Any:
    """The map of patch tokens (n, n_patches, width), each as the head sees it alone.

    Parameters
    ----------
    tokens : of the last layer, row by row of the image, class tokens left out
    pixels : the images, for the proportions of the grid
    head : tokens (n, n_before + 1, width) to vectors (n, n_dims)
    n_before : how many tokens that are no patches the head expects first; they are then the patch's, too
    """
    n, n_patches, width = tokens.shape
    rows = round((n_patches * pixels.shape[2] / pixels.shape[3]) ** 0.5)
    vectors = head(tokens.reshape(-1, 1, width).expand(-1, n_before + 1, -1))
    return vectors.reshape(n, rows, n_patches // rows, -1).permute(0, 3, 1, 2)
