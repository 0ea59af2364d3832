"""A hierarchy from a language model; every answer is checked, and sent back with its problems."""

import json
import tomllib
from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from hcep.errors import HCEPError, quote
from hcep.taxonomy.induction.induced import Fault, Induced, LeafNames
from hcep.taxonomy.induction.placement import Placement, assembled
from hcep.taxonomy.llm.chat import ChatModel
from hcep.taxonomy.llm.endpoint import LLMError

Progress = Callable[[int, Placement], None]
Message = dict[str, str]
#: Characters of an answer that are sent back with its problems.
MAX_SENT_BACK = 60_000
#: Problems listed in one request.
MAX_LISTED = 40

#: Names are inserted as JSON strings: they are data and not part of the request.
PROMPTS: dict[str, str] = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text("utf-8"))


def induce_with_llm(
    leaves: Iterable[str],
    chat: ChatModel,
    *,
    root: str = "entity",
    max_rounds: int = 4,
    progress: Progress | None = None,
) -> Induced:
    """Ask a language model for a hierarchy over some classes.

    The result always has every class as a leaf; it is not `complete` if the model did not place some, or made no
    categories at all. Raises LLMError if the first question gets no answer; after a later failure the best result so
    far is returned.

    Parameters
    ----------
    leaves : the class names
    root : a name for what all classes are
    max_rounds : maximum number of answers; one with problems is sent back with a list of them
    progress : called after each answer with the number of the round and its `Placement`
    """
    if not isinstance(max_rounds, int) or max_rounds < 1:
        raise HCEPError(f"max_rounds must be a positive integer, got {quote(max_rounds)}")
    names, before = LeafNames(leaves, root), chat.usage
    listed = {"root": _json(names.root), "leaves": _json(names.leaves), "n": len(names.leaves)}
    prompt = PROMPTS["whole"].format(**listed, data=PROMPTS["data"])
    question: Message = {"role": "user", "content": prompt}
    messages = [question]
    placements: list[Placement] = []
    transcript: list[dict[str, Any]] = []
    unanswered: list[Fault] = []
    while len(placements) < max_rounds and not (placements and not placements[-1].n_blocking):
        number = len(placements) + 1
        try:
            # A new seed per round: the cache must not answer a repeated question with the same words.
            answer = chat.ask(messages, seed=number if number > 1 else None)
        except LLMError as error:
            if number == 1:
                raise
            unanswered = [Fault("no-answer", f"round {number} got no answer: {error}")]
            break
        placement = Placement(answer.text, names, truncated=answer.truncated)
        placements.append(placement)
        facts = {name: getattr(answer, name) for name in ("model", "finish_reason", "cached")}
        problems = [{"kind": fault.kind, "message": fault.message} for fault in placement.problems]
        turn = {"messages": [dict(message) for message in messages], "answer": answer.text, **facts}
        transcript.append({**turn, "n_placed": len(placement.paths), "problems": problems})
        if progress is not None:
            progress(number, placement)
        messages = _asked_again(question, answer.text, placement)
    best = max(placements, key=lambda p: (len(p.placed), len(p.paths), -p.n_blocking))
    paths = best.placed
    for other in placements[::-1]:  # leaves that the best answer lacks come from the others, the latest first
        paths = {**other.paths, **paths}
    settled = [f for f in best.problems if f.kind == "missing" and all(leaf in paths for leaf in f.names)]
    induced = assembled(paths, names, tuple(fault for fault in best.problems if fault not in settled))
    return replace(
        induced,
        problems=(*induced.problems, *unanswered),
        rounds=len(transcript),
        usage=chat.usage - before,
        transcript=tuple(transcript),
    )


def _asked_again(question: Message, answer: str, placement: Placement) -> list[Message]:
    """Return the messages that ask the same question again, with the problems of the last answer."""
    problems = "\n".join(f"- {problem}" for problem in placement.problems[:MAX_LISTED])
    complaint: Message = {"role": "user", "content": PROMPTS["repair"].format(problems=problems)}
    if not answer.strip():  # many servers refuse an empty message
        return [{"role": "user", "content": f"{question['content']}\n\n{complaint['content']}"}]
    return [question, {"role": "assistant", "content": answer[:MAX_SENT_BACK]}, complaint]


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
