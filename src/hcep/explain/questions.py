"""What people ask next of an explained image: why, why not, what if."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError, quoted
from hcep.explain.evidence import Contributions, Evidence, WhyNot
from hcep.pursuit.limits import Concepts, Request, find_concept
from hcep.pursuit.result import path_codes

if TYPE_CHECKING:
    from hcep.embeddings import EmbeddingStore
    from hcep.explain.explained import ExplainedImage
    from hcep.explain.photos import Explainer


@dataclass(frozen=True, eq=False)
class Questions:
    """An image as it was searched: its raw embedding, the node of its path, its class (a position), what was forced."""

    explainer: Explainer
    x: NDArray[Any]
    node: int
    label: int
    request: Request

    @property
    def evidence(self) -> Evidence:
        return self.explainer.evidence

    def is_answer(self, concept: str) -> bool:
        """Whether the image was taken for a class or concept."""
        return self.evidence.is_answer(concept, self.node, self.label)

    def contributions(self) -> Contributions:
        """The score of the image's class, concept by concept."""
        return self.evidence.contributions(self.x, self.node, self.label)

    def why_not(self, concept: str, training: EmbeddingStore | None = None) -> WhyNot:
        """The image's class against another (see `Evidence.why_not`); `training` has photos to show of both."""
        found = self.evidence.why_not(self.x, self.node, self.label, concept)
        if training is None:
            return found
        from hcep.explain.neighbours import nearest_photos

        x, labels = np.stack([self.x, self.x]), [found.chosen.label, found.rival.label]
        return replace(found, photos=tuple(nearest_photos(training, self.explainer.model, x, classes=labels)))

    def what_if(
        self,
        one: ExplainedImage,
        force: Concepts,
        forbid: Concepts,
        coefficients: Mapping[str, float],
        scale: Mapping[str, float],
    ) -> ExplainedImage:
        """The image explained again; parameters are those of `ExplainedImage.what_if`."""
        model, request = self.explainer.model, Request.of(force, forbid)
        limits = model.limits(*request)
        if not coefficients and not scale:
            return self.explainer.again(one, self.x, limits=limits, request=request)
        h, steps = model.hierarchy, {step.synset: step for step in one.explanation.steps}
        values, factors = ({find_concept(h, n): v for n, v in given.items()} for given in (coefficients, scale))
        absent = [h.name(synset) for synset in values | factors if synset not in steps]
        if absent:
            raise HCEPError(
                f"coefficients: {quoted(absent)} is not on the path of this image, which has "
                f"{quoted([step.name for step in steps.values()], 20)}; force it first"
            )
        new = np.array([values.get(s, factors.get(s, 1.0) * step.coefficient) for s, step in steps.items()])
        change = new - [step.coefficient for step in steps.values()]
        if model.head is None:
            # The image itself is moved along the atoms, what the path leaves unexplained stays.
            atoms = model.dictionary.atoms[self.explainer._atoms(self.node)]
            moved = replace(self.explainer, model=self.evidence.in_metric)
            return moved.again(one, self.evidence.metric(self.x) + change @ atoms, limits=limits, request=request)
        found, row = model.infer(self.x[None], limits=limits, explained=True), np.zeros((1, h.path_tree.depth))
        if int(found.paths.nodes[0]) != self.node:
            raise HCEPError("coefficients are those of a path; force or forbid first, then change them")
        row[0, : len(new)] = new
        codes = path_codes(model.dictionary, found.paths.nodes, row)
        odds = np.asarray(model.head.predict_proba(codes))  # type: ignore[attr-defined]
        changed = replace(
            found, paths=replace(found.paths, codes=codes), probabilities=odds, class_index=odds.argmax(axis=1)
        )
        return self.explainer.again(one, self.x, inferred=changed, request=request)


def changed(one: ExplainedImage, texts: Iterable[str]) -> ExplainedImage:
    """An image with new coefficients of concepts, as people write them: ``dog=0``, or ``dog*2``; "--set" in errors."""
    values: dict[str, float] = {}
    factors: dict[str, float] = {}
    for text in texts:
        sign = max("=*", key=text.rfind)
        name, _, number = text.rpartition(sign)
        try:
            (values if sign == "=" else factors)[name] = float(number)
        except ValueError:
            raise HCEPError(
                f"--set: expected a concept and its new coefficient, dog=0 or dog*2, got {text!r}"
            ) from None
    return one.what_if(force=one.request.force, forbid=one.request.forbid, coefficients=values, scale=factors)
