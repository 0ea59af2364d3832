"""Why two pursuits of one image part ways: the step where they do, in numbers and in a sentence."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from hcep.explain.explanation import Explanation, Step
from hcep.pursuit import PathResult


@dataclass(frozen=True)
class Contrast:
    """Where the paths of two explanations of one image part.

    Attributes
    ----------
    shared : names of the synsets both have
    first, second : the step each takes next; None where its path has ended
    cosine : cosine between the two atoms at that step; -1 in a two-way split, NaN where one path has ended
    """

    shared: tuple[str, ...]
    first: Step | None
    second: Step | None
    cosine: float

    def sentence(self, first: str = "the first", second: str = "the second") -> str:
        """What happened at the fork, for a reader."""
        if self.first is None or self.second is None:
            return "Both take the same concepts; one path goes on where the other ends."
        where = f"Below {self.shared[-1]!r}" if self.shared else "At the first step"
        picks = f"{where} {first} takes {self.first.name!r} and {second} takes {self.second.name!r}."
        return f"{picks} {self._reason(first)}"

    def _reason(self, first: str) -> str:
        assert self.first is not None
        taken = self.first
        if self.cosine < -0.999:
            opposite = (
                f"The two are the only children, so their atoms are exactly opposite (cosine {self.cosine:.2f}): "
                "by |cosine| and free-sign least squares they tie"
            )
            if taken.coefficient < 0:
                return (
                    f"{opposite}, and {first} reports {taken.name!r} with coefficient {taken.coefficient:.2f}: "
                    "the image points away from it, that is, to its sibling."
                )
            return f"{opposite}."
        if taken.coefficient < 0:
            return (
                f"The coefficient of {taken.name!r} is {taken.coefficient:.2f}: its atom lowers the residual by "
                "pointing away from the concept it names, which |cosine| does not see."
            )
        return (
            f"With free coefficients ({taken.coefficient:.2f} here, where an image of the concept has 1) the wrong "
            "path reconstructs the image a little better; a prior at 1 charges for that."
        )


def contrast(first: Explanation, second: Explanation, result: PathResult) -> Contrast:
    """Find where two explanations of one image part; `result` is either pursuit, for its dictionary."""
    pairs = list(zip(first.steps, second.steps, strict=False))
    n_shared = next((i for i, (a, b) in enumerate(pairs) if a.synset != b.synset), len(pairs))
    shared = tuple(step.name for step in first.steps[:n_shared])
    a = first.steps[n_shared] if n_shared < len(first.steps) else None
    b = second.steps[n_shared] if n_shared < len(second.steps) else None
    if a is None or b is None:
        return Contrast(shared, a, b, float("nan"))
    dictionary = result.dictionary
    above = first.steps[n_shared - 1].synset if n_shared else dictionary.hierarchy.root
    origin = dictionary.synset_embedding(above)
    u, v = (dictionary.synset_embedding(step.synset) - origin for step in (a, b))
    norms = float(np.linalg.norm(u) * np.linalg.norm(v))
    return Contrast(shared, a, b, float(u @ v) / norms if norms else float("nan"))
