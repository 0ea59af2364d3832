"""Names for groups of classes: the nearest phrase of a vocabulary, a language model's word, or their members' names."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from hcep.dictionary.transform import unit_rows
from hcep.errors import HCEPError
from hcep.induction.clustering import Cluster
from hcep.induction.induced import Fault, free_name
from hcep.induction.leaf_names import clean_label, normal_form
from hcep.induction.outline import without_thinking
from hcep.induction.prompts import name_prompt
from hcep.llm.answer import Answer, LLMError
from hcep.llm.chat import ChatModel, Messages, RejectedError, ask_until_accepted

MAX_NAME, MAX_WORDS, MAX_TRIES = 40, 5, 3
#: Class names shown to the model from inside and from outside of a group.
N_SHOWN = 40


def members_name(members: Sequence[str], taken: set[str]) -> str:
    """``cat + dog + 3 more``: the first members, one more of them where the name is taken."""
    n_all = len(members)
    shown = [" + ".join(members[:n]) + f" + {n_all - n} more" * (n < n_all) for n in range(2, n_all + 1)]
    return free_name(taken, *shown, shown[-1].replace("{", "{{").replace("}", "}}") + " ({})")


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
            "names_from must be (phrases, embeddings) with one row per phrase, of as many dimensions as "
            f"class_embeddings ({vectors.shape[1]:,}); got {len(phrases):,} phrases and an array of shape {texts.shape}"
            " (--vocabulary on the command line: embed it with the encoder of the images)"
        )
    means = np.stack([vectors[list(group.members)].mean(axis=0) for group in groups])
    cosine = unit_rows(means - vectors.mean(axis=0)) @ unit_rows(texts - texts.mean(axis=0)).T
    names: list[str | None] = [None] * len(groups)
    used = {normal_form(name) for name in (*class_names, root)}
    for flat in np.argsort(-cosine, axis=None, kind="stable"):
        group, phrase = divmod(int(flat), len(phrases))
        form = normal_form(phrases[phrase])
        if names[group] is None and form and form not in used:
            names[group] = str(phrases[phrase])
            used.add(form)
    return names


def name_by_llm(
    members: Sequence[str], others: Sequence[str], chat: ChatModel, taken: set[str], transcript: list[dict[str, Any]]
) -> tuple[str | None, Fault | None]:
    """Ask for the name of one group; an answer that is no fit name is sent back, three times at most."""

    def accept(text: str) -> str:
        first_line = without_thinking(text).strip().partition("\n")[0]
        name = clean_label(first_line.strip().rstrip(".")).rstrip(".")
        if fault := _fault(name, members, taken):
            raise RejectedError(fault)
        return name

    def heard(messages: Messages, answer: Answer, fault: str) -> None:
        transcript.append({"messages": messages, "answer": answer.text, "problems": [fault] if fault else []})

    question = [{"role": "user", "content": name_prompt(members[:N_SHOWN], others[:N_SHOWN])}]
    try:
        return ask_until_accepted(chat, question, accept, MAX_TRIES, heard=heard), None
    except LLMError as error:
        return None, Fault("no-answer", f"no name for {members_name(members, set())}: {error}")
    except RejectedError as fault:
        return None, Fault("name", f"no fit name for {members_name(members, set())}: it {fault}")


def _fault(name: str, members: Sequence[str], taken: set[str]) -> str:
    """What is wrong with a name, the end of "it …", or ''."""
    if not name or not any(character.isalpha() for character in name):
        return "holds no name: there is no name in the answer"
    if len(name) > MAX_NAME or len(name.split()) > MAX_WORDS:
        return f"is longer than {MAX_WORDS} words or {MAX_NAME} characters"
    if normal_form(name) in {normal_form(other) for other in taken}:
        return "is the name of a class or of another group"
    return "is a list" if len(members) > 1 and "," in name else ""
