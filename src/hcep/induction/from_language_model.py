"""A hierarchy by a language model: asked for the whole, or for one layer after the other, and never believed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any, Literal

from hcep.errors import HCEPError
from hcep.induction.induced import Fault, Induced
from hcep.induction.layers import Layers
from hcep.induction.leaf_names import LeafNames
from hcep.induction.placement import Placement, assembled, place
from hcep.induction.prompts import Message, conversation, whole_prompt
from hcep.llm.answer import LLMError
from hcep.llm.chat import ChatModel

Strategy = Literal["whole", "layers"]
Progress = Callable[[int, Placement], None]


def induce_with_llm(
    leaves: Iterable[str],
    chat: ChatModel,
    *,
    root: str = "entity",
    strategy: Strategy = "whole",
    max_rounds: int = 4,
    progress: Progress | None = None,
) -> Induced:
    """Ask a language model for a hierarchy above some classes.

    Raises HierarchyError: leaves that are no list of different names. Raises LLMError: the first question got no
    answer. A later failure keeps what there is.

    Parameters
    ----------
    leaves : the classes
    root : what all classes are
    strategy : {"whole", "layers"}; "whole": the taxonomy in one answer, sent back with what is wrong with it until it
        is right. "layers": from the root down, one layer an answer, after Chain-of-Layer (Zeng et al., 2024).
    max_rounds : most answers asked for; with "layers" also the most levels
    progress : called with the number of the round and its `Placement` after each answer

    Returns
    -------
    Induced
        Always with every class as a leaf. `complete` is false where the model failed to place some, or made no
        categories at all; `missing` and `problems` say what is wrong, `transcript` has the conversation.

    References
    ----------
    Zeng, Q., Bai, Y., Tan, Z., et al. (2024). Chain-of-Layer: iteratively prompting large language models for taxonomy
    induction from limited examples. *CIKM*.

    Notes
    -----
    An answer is parsed leniently (numbered, bulleted, indented, JSON, code fences, sentences around it) and checked
    strictly: every leaf once and spelled as given, nothing else at the bottom, no category above and below another.
    What is not in the list is left out. Leaves that differ in case, spacing or number alone are sent back like the
    others; when the rounds are used up they count as what they plainly mean.
    """
    if strategy not in ("whole", "layers"):
        raise HCEPError(f"strategy must be 'whole' or 'layers', got {strategy!r}")
    if not isinstance(max_rounds, int) or max_rounds < 1:
        raise HCEPError(f"max_rounds must be a whole number of at least 1, got {max_rounds!r}")
    names = LeafNames(leaves, root)
    talk = _Talk(chat, names, progress or (lambda _round, _placement: None))
    induced = (_whole if strategy == "whole" else _layers)(names, talk, max_rounds)
    return replace(
        induced,
        problems=(*induced.problems, *talk.failures),
        rounds=len(talk.transcript),
        usage=chat.usage - talk.before,
        transcript=tuple(talk.transcript),
    )


class _Talk:
    """The conversation so far: the transcript, and the failure that ended it, if one did."""

    def __init__(self, chat: ChatModel, names: LeafNames, progress: Progress) -> None:
        self.chat, self.names, self.progress = chat, names, progress
        self.before = chat.usage
        self.transcript: list[dict[str, Any]] = []
        self.failures: list[Fault] = []

    def round(self, messages: Sequence[Message]) -> tuple[str, Placement] | None:
        """Ask and read the answer; None where no answer comes any more."""
        number = len(self.transcript) + 1
        try:
            # Another seed per round: a question asked twice is not answered from disk with the same words.
            answer = self.chat.ask(messages, seed=number if number > 1 else None)
        except LLMError as error:
            if number == 1:
                raise
            self.failures.append(Fault("no-answer", f"round {number} got no answer: {error}"))
            return None
        placement = place(answer.text, self.names)
        if answer.truncated:
            cut = Fault("truncated", "the answer was cut off at the limit of tokens (max_tokens)")
            placement = replace(placement, problems=(cut, *placement.problems))
        self.transcript.append(
            {
                "messages": [dict(message) for message in messages],
                "answer": answer.text,
                "model": answer.model,
                "finish_reason": answer.finish_reason,
                "cached": answer.cached,
                "n_placed": len(placement.paths),
                "problems": [{"kind": fault.kind, "message": fault.message} for fault in placement.problems],
            }
        )
        self.progress(number, placement)
        return answer.text, placement


def _whole(names: LeafNames, talk: _Talk, max_rounds: int) -> Induced:
    prompt = whole_prompt(names.leaves, names.root)
    placements: list[Placement] = []
    text: str | None = None
    while len(placements) < max_rounds and not (placements and not placements[-1].n_blocking):
        heard = talk.round(conversation(prompt, text, placements[-1].problems if placements else ()))
        if heard is None:
            break
        text, placement = heard
        placements.append(placement)
    best = max(placements, key=lambda p: (len(p.placed), len(p.paths), -p.n_blocking))
    paths = best.placed
    for other in placements[::-1]:  # what the best answer forgot, where another one put it, the latest first
        paths = {**other.paths, **paths}
    settled = [f for f in best.problems if f.kind == "missing" and all(leaf in paths for leaf in f.names)]
    return assembled(paths, names, tuple(fault for fault in best.problems if fault not in settled))


def _layers(names: LeafNames, talk: _Talk, max_rounds: int) -> Induced:
    layers = Layers(names)
    problems: tuple[Fault, ...] = ()
    for _ in range(max_rounds):
        if layers.finished:
            break
        heard = talk.round([{"role": "user", "content": layers.prompt(problems)}])
        if heard is None:
            break
        problems = layers.add(heard[1])
    return assembled(layers.paths, names, problems)
