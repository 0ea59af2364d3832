"""Axes for the plots of geometric diagnostics; matplotlib is imported when something is plotted."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.errors import MissingExtraError

#: An `Axes` of matplotlib, or None for new ones.
Axes = Any
#: The number of bars of a histogram.
N_BARS = 20


def new_axes(n_plots: int = 1) -> NDArray[Any]:
    """Return axes in a new figure, as a flat array."""
    try:
        import matplotlib.pyplot as plt
    except ModuleNotFoundError as error:
        message = "plotting needs matplotlib, which is not installed: pip install matplotlib"
        raise MissingExtraError(message) from error
    n_columns = min(n_plots, 3)
    shape = -(-n_plots // n_columns), n_columns
    figsize = (4.0 * shape[1], 3.0 * shape[0])
    _, axes = plt.subplots(*shape, figsize=figsize, layout="constrained", squeeze=False)
    return np.asarray(axes.ravel())


def histogram(values: Mapping[str, NDArray[Any]], ax: Axes, mark: float | None, **labels: str) -> Axes:
    """Draw the finite values of each name as a histogram, and return the axes; `mark` is the value to compare with."""
    ax = new_axes()[0] if ax is None else ax
    finite = {name: numbers[np.isfinite(numbers)] for name, numbers in values.items()}
    bars = np.histogram_bin_edges(np.concatenate(list(finite.values())), N_BARS)
    for name, numbers in finite.items():
        ax.hist(numbers, bars, alpha=0.6, label=name)
    if mark is not None:
        ax.axvline(mark, color="black", linestyle=":")
    if len(finite) > 1:
        ax.legend(frameon=False)
    ax.set(**labels)
    return ax
