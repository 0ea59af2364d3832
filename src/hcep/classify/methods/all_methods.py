"""The methods that `hcep evaluate --compare` knows, by name.

To add one: subclass `ConceptMethod`, and add a row to `METHODS`.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from hcep.classify.classifier import PUBLISHED, HCEPClassifier
from hcep.classify.methods.baselines import LDAClassifier, LinearProbe, OMPClassifier
from hcep.classify.methods.nearest import HNNClassifier, NNClassifier
from hcep.errors import HCEPError, near_matches, quote, quoted
from hcep.hierarchy import Hierarchy


@dataclass(frozen=True)
class Method:
    """A named way to classify images by concepts."""

    name: str  # in code and on the command line
    label: str  # in tables and figures
    make: Callable[..., Any]  # ``make(hierarchy, **options)`` returns an unfitted estimator

    def estimator(self, hierarchy: Hierarchy | None = None, **options: Any) -> Any:
        """Return the unfitted estimator; an option that it does not have is an error."""
        made_by: Any = self.make.func if isinstance(self.make, partial) else self.make
        known = [option for option in made_by._get_param_names() if option != "hierarchy"]
        for option in options:
            if option not in known:
                options_known = quoted(known, len(known)) + "." + near_matches(option, known)
                raise HCEPError(
                    f"method {quote(self.name)} has no option {quote(option)}; its options are {options_known}"
                )
        return self.make(hierarchy, **options)


#: Every method by name, in the order of tables. HB-OMP is as published but for its convex head; the nearest mean in our
#: metric is a control, and the last two see no concepts.
METHODS = {
    name: Method(name, label, make)
    for name, label, make in (
        ("omp", "OMP", OMPClassifier),
        ("hb-omp", "HB-OMP", partial(HCEPClassifier, head="logistic", beam_width=8, **PUBLISHED)),
        ("hcep", "HCEP (ours)", HCEPClassifier),
        ("nearest-mean", "Nearest mean in our metric", partial(NNClassifier, shrinkage="auto")),
        ("nn", "NN", NNClassifier),
        ("hnn", "HNN", HNNClassifier),
        ("linear-probe", "Linear probe", LinearProbe),
        ("lda", "Shrinkage LDA", LDAClassifier),
    )
}


def make_method(name: str, hierarchy: Hierarchy | None = None, **options: Any) -> Any:
    """Make an unfitted estimator by the name of its method.

    Parameters
    ----------
    name : a key of `METHODS`
    **options : parameters of the estimator, such as ``max_steps``, ``head``, ``n_jobs``, or ``beam_width`` of "hb-omp"
    """
    if name not in METHODS:
        close = near_matches(name, METHODS)
        raise HCEPError(f"method {quote(name)} is unknown; the methods are {quoted(METHODS, len(METHODS))}.{close}")
    return METHODS[name].estimator(hierarchy, **options)
