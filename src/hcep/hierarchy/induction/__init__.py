"""Hierarchies for classes that have none: by a language model, from text, or from the embeddings themselves."""

from typing import TYPE_CHECKING

from hcep.lazy import lazy_names

if TYPE_CHECKING:
    from hcep.hierarchy.induction.geometry import induce_from_embeddings as induce_from_embeddings
    from hcep.hierarchy.induction.induced import Evidence as Evidence
    from hcep.hierarchy.induction.induced import Induced as Induced
    from hcep.hierarchy.induction.induced import Problem as Problem
    from hcep.hierarchy.induction.language_model import induce_with_llm as induce_with_llm
    from hcep.hierarchy.induction.placement import read_answer as read_answer
    from hcep.hierarchy.induction.text import induce_from_text as induce_from_text

__all__ = [
    "Evidence",
    "Induced",
    "Problem",
    "induce_from_embeddings",
    "induce_from_text",
    "induce_with_llm",
    "read_answer",
]

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "Evidence": "hcep.hierarchy.induction.induced",
        "Induced": "hcep.hierarchy.induction.induced",
        "Problem": "hcep.hierarchy.induction.induced",
        "induce_from_embeddings": "hcep.hierarchy.induction.geometry",
        "induce_from_text": "hcep.hierarchy.induction.text",
        "induce_with_llm": "hcep.hierarchy.induction.language_model",
        "read_answer": "hcep.hierarchy.induction.placement",
    },
)
