"""What an edit of the hierarchy does to held-out images, without fitting a model again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from hcep.curation.edits import Edit, apply_edits
from hcep.curation.held_out import HeldOut as HeldOut
from hcep.evaluate.outcome import Outcome, class_f1
from hcep.evaluate.statistics import Difference, paired_draws
from hcep.hierarchy import Hierarchy

Floats = NDArray[np.float64]


class Change(NamedTuple):
    """A metric before and after, and the standard error of the difference over images (paired)."""

    before: float
    after: float
    difference: float
    error: float


@dataclass(frozen=True, eq=False)
class Effect:
    """Two outcomes on the same images, before and after some edits.

    The support F1 after is against the class's path in the hierarchy *after*, so a hierarchy whose paths share more
    scores higher with the same mistakes. Three of the metrics do not have this bias: accuracy; ``f1_above_chance``,
    which is 0 for a class drawn at random and 1 for a perfect path in either hierarchy; and ``class_f1_before``, the F1
    of the predicted *class's* path in the hierarchy before, for both models.

    Attributes
    ----------
    edits : tuple of Edit
    """

    edits: tuple[Edit, ...]
    before: Outcome
    after: Outcome

    @cached_property
    def metrics(self) -> Mapping[str, Change]:
        """Every metric by name, with its paired difference."""
        return {name: _change(*pair) for name, pair in self._per_image.items()}

    def interval(self, metric: str, level: float = 0.95) -> Difference:
        """Paired difference of a metric, after less before, with its confidence interval over images."""
        before, after = self._per_image[metric]
        return paired_draws(after[None], before[None], level=level)

    @property
    def support_f1(self) -> Change:
        """The metric moves are chosen by."""
        return self.metrics["support_f1"]

    @property
    def accuracy(self) -> Change:
        return self.metrics["accuracy"]

    @cached_property
    def _per_image(self) -> dict[str, tuple[Floats, Floats]]:
        before, after = self._scores(self.before), self._scores(self.after)
        return {name: (before[name], after[name]) for name in before}

    def _scores(self, outcome: Outcome) -> dict[str, Floats]:
        classes, index = np.unique(np.concatenate([outcome.y, outcome.predicted]), return_inverse=True)
        truth, predicted = np.split(index, 2)
        support, chance = outcome.support, outcome.chance_f1
        return {
            "accuracy": (outcome.predicted == outcome.y) * 1.0,
            "support_precision": support.precision,
            "support_recall": support.recall,
            "support_f1": support.f1,
            "f1_above_chance": (support.f1 - chance) / max(1.0 - chance, 1e-12),
            "class_f1_before": class_f1(self.before.hierarchy, classes.tolist())[predicted, truth],
        }


def what_if(held_out: HeldOut, edits: Iterable[Edit]) -> Effect:
    """Measure edits of the hierarchy on held-out images.

    Parameters
    ----------
    held_out : images and class means, from `HeldOut.from_images` or `HeldOut.from_model`
    edits : iterable of Edit; applied to ``held_out.hierarchy``, in their order

    Notes
    -----
    Class means and the metric of the within-class covariance do not depend on the hierarchy: they are kept, and so are
    the shrinkage and the anchor. Only inner synsets, atoms, path basis and the search are done again.

    Examples
    --------
    >>> from hcep.datasets import make_hierarchical_concepts
    >>> from hcep.curation.what_if import HeldOut, what_if
    >>> from hcep.curation import Move
    >>> data = make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=0.02, samples_per_leaf=20)
    >>> held_out = HeldOut.from_images(data.hierarchy, data.X, data.y)
    >>> leaf, other = data.hierarchy.leaves[0], data.hierarchy.parents(data.hierarchy.leaves[-1])[0]
    >>> effect = what_if(held_out, [Move(leaf, other)])
    >>> effect.metrics["accuracy"].before
    1.0
    """
    edits = tuple(edits)
    return compare(held_out, apply_edits(held_out.hierarchy, edits, held_out.classes), edits)


def compare(held_out: HeldOut, after: Hierarchy, edits: tuple[Edit, ...] = ()) -> Effect:
    """The effect of another hierarchy over the same classes, however it came about."""
    return Effect(edits, held_out.baseline, held_out.outcome(after))


def _change(before: Floats, after: Floats) -> Change:
    difference = after - before
    error = float(difference.std() / np.sqrt(len(difference)))
    return Change(float(before.mean()), float(after.mean()), float(difference.mean()), error)
