"""Names for groups of classes: the nearest phrase of a vocabulary, a language model's word, or their members' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.errors import HCEPError
from hcep.induction.clustering import Cluster
from hcep.induction.induced import Problem
from hcep.induction.leaf_names import clean_label, normal_form
from hcep.induction.outline import without_thinking
from hcep.induction.prompts import name_prompt
from hcep.llm.answer import LLMError
from hcep.llm.chat import ChatModel

MAX_NAME, MAX_WORDS, MAX_TRIES = 40, 5, 3
#: Class names shown to the model from inside and from outside of a group.
N_SHOWN = 40


def members_name(members: Sequence[str], taken: set[str]) -> str:
    """``cat + dog + 3 more``: the first members, one more of them where the name is taken."""
    for n_shown in range(2, len(members) + 1):
        rest = len(members) - n_shown
        name = " + ".join([*members[:n_shown], *([f"{rest} more"] if rest else [])])
        if name not in taken:
            return name
    number = 2
    while f"{name} ({number})" in taken:
        number += 1
    return f"{name} ({number})"


def names_from_vocabulary(
    groups: Sequence[Cluster],
    vectors: NDArray[np.float64],
    class_names: Sequence[str],
    phrases: Sequence[str],
    phrase_embeddings: Any,
    root: str,
) -> list[str | None]:
    """The nearest phrase to the mean of each group's classes; no phrase twice, no class name, no root.

    Both sides are centred first, groups on the mean class and phrases on the mean phrase: images and texts of one
    encoder lie in two distant cones, and what is common to all classes names none of them. The surest pairs choose
    first. None where the phrases are used up.
    """
    texts = np.asarray(phrase_embeddings, dtype=np.float64)
    if texts.shape != (len(phrases), vectors.shape[1]) or not len(phrases):
        raise HCEPError(
            "names_from must be (phrases, embeddings) with one row a phrase, of as many dimensions as "
            f"class_embeddings ({vectors.shape[1]:,}); got {len(phrases):,} phrases and an array of shape {texts.shape}"
            " (--vocabulary on the command line: embed it with the encoder of the images)"
        )
    means = np.stack([vectors[list(group.members)].mean(axis=0) for group in groups])
    cosine = _units(means - vectors.mean(axis=0)) @ _units(texts - texts.mean(axis=0)).T
    refused = {normal_form(name) for name in (*class_names, root)}
    names: list[str | None] = [None] * len(groups)
    used = set(refused)
    for flat in np.argsort(-cosine, axis=None, kind="stable"):
        group, phrase = divmod(int(flat), len(phrases))
        form = normal_form(phrases[phrase])
        if names[group] is None and form and form not in used:
            names[group] = str(phrases[phrase])
            used.add(form)
    return names


def name_by_llm(
    members: Sequence[str], others: Sequence[str], chat: ChatModel, taken: set[str], transcript: list[dict[str, Any]]
) -> tuple[str | None, Problem | None]:
    """Ask for the name of one group; an answer that is no fit name is sent back, three times at most."""
    prompt = name_prompt(members[:N_SHOWN], others[:N_SHOWN])
    messages = [{"role": "user", "content": prompt}]
    fault = ""
    for attempt in range(MAX_TRIES):
        try:
            answer = chat.ask(messages, seed=attempt if attempt else None)
        except LLMError as error:
            return None, Problem("no-answer", f"no name for {members_name(members, set())}: {error}")
        first_line = without_thinking(answer.text).strip().partition("\n")[0]
        name = clean_label(first_line.strip().rstrip(".")).rstrip(".")
        fault = _fault(name, members, taken)
        transcript.append({"messages": messages, "answer": answer.text, "problems": [fault] if fault else []})
        if not fault:
            return name, None
        messages = [{"role": "user", "content": f"{prompt}\n\nNot {name[:MAX_NAME]!r}: {fault}."}]
    return None, Problem("name", f"no fit name for {members_name(members, set())}: {fault}")


def _fault(name: str, members: Sequence[str], taken: set[str]) -> str:
    """What is wrong with a name, or ''."""
    if not name or not any(character.isalpha() for character in name):
        return "there is no name in the answer"
    if len(name) > MAX_NAME or len(name.split()) > MAX_WORDS:
        return f"it is longer than {MAX_WORDS} words or {MAX_NAME} characters"
    if normal_form(name) in {normal_form(other) for other in taken}:
        return "it is the name of a class or of another group"
    if len(members) > 1 and "," in name:
        return "it is a list"
    return ""


def _units(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    norms = np.linalg.norm(rows, axis=1, keepdims=True)
    units: NDArray[np.float64] = np.divide(rows, norms, out=np.zeros_like(rows), where=norms > 0)
    return units
