"""A hierarchy from a language model, as a whole or layer by layer; every answer is checked."""

import json
import tomllib
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

from hcep.errors import HCEPError, quote
from hcep.taxonomy.induction.induced import Fault, Induced, LeafNames
from hcep.taxonomy.induction.placement import Groups, Placement, assembled, missing_fault
from hcep.taxonomy.llm.chat import ChatModel
from hcep.taxonomy.llm.endpoint import LLMError

Strategy = Literal["whole", "layers"]
Progress = Callable[[int, Placement], None]
Message = dict[str, str]
#: Characters of an answer that are sent back with its problems.
MAX_SENT_BACK = 60_000
#: Problems listed in one request.
MAX_LISTED = 40
#: Smaller groups are not divided further.
SMALLEST_DIVIDED = 3

#: Names are inserted as JSON strings: they are data and not part of the request.
PROMPTS: dict[str, str] = tomllib.loads(Path(__file__).with_name("prompts.toml").read_text("utf-8"))
DATA = PROMPTS["data"]


def induce_with_llm(
    leaves: Iterable[str],
    chat: ChatModel,
    *,
    root: str = "entity",
    strategy: Strategy = "whole",
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
    strategy : "whole" asks for the whole taxonomy and sends it back with its problems until it is right; "layers" asks
        for one layer per answer, from the root down, after Chain-of-Layer (Zeng et al., *CIKM* 2024)
    max_rounds : maximum number of answers; with "layers" also of levels
    progress : called after each answer with the number of the round and its `Placement`
    """
    if strategy not in ("whole", "layers"):
        raise HCEPError(f"strategy must be 'whole' or 'layers', got {quote(strategy)}")
    if not isinstance(max_rounds, int) or max_rounds < 1:
        raise HCEPError(f"max_rounds must be a positive integer, got {quote(max_rounds)}")
    names = LeafNames(leaves, root)
    talk = _Conversation(chat, names, progress or (lambda _round, _placement: None))
    induced = (_whole if strategy == "whole" else _layers)(names, talk, max_rounds)
    problems, transcript = (*induced.problems, *talk.failures), tuple(talk.transcript)
    usage = chat.usage - talk.before
    return replace(induced, problems=problems, rounds=len(transcript), usage=usage, transcript=transcript)


class _Conversation:
    """The conversation so far: its transcript, and the failure that ended it, if any."""

    def __init__(self, chat: ChatModel, names: LeafNames, progress: Progress) -> None:
        self.chat, self.names, self.progress = chat, names, progress
        self.before = chat.usage
        self.transcript: list[dict[str, Any]] = []
        self.failures: list[Fault] = []

    def round(self, messages: Sequence[Message]) -> tuple[str, Placement] | None:
        """Ask and read the answer; None if the server no longer answers."""
        number = len(self.transcript) + 1
        try:
            # A new seed per round: the cache must not answer a repeated question with the same words.
            answer = self.chat.ask(messages, seed=number if number > 1 else None)
        except LLMError as error:
            if number == 1:
                raise
            self.failures.append(Fault("no-answer", f"round {number} got no answer: {error}"))
            return None
        placement = Placement(answer.text, self.names, truncated=answer.truncated)
        facts = {name: getattr(answer, name) for name in ("model", "finish_reason", "cached")}
        problems = [{"kind": fault.kind, "message": fault.message} for fault in placement.problems]
        turn = {"messages": [dict(message) for message in messages], "answer": answer.text, **facts}
        self.transcript.append({**turn, "n_placed": len(placement.paths), "problems": problems})
        self.progress(number, placement)
        return answer.text, placement


def _whole(names: LeafNames, talk: _Conversation, max_rounds: int) -> Induced:
    root, leaves = _json(names.root), _json(names.leaves)
    prompt = PROMPTS["whole"].format(root=root, n=len(names.leaves), leaves=leaves, data=DATA)
    placements: list[Placement] = []
    question: Message = {"role": "user", "content": prompt}
    messages = [question]
    while len(placements) < max_rounds and not (placements and not placements[-1].n_blocking):
        reply = talk.round(messages)
        if reply is None:
            break
        text, placement = reply
        placements.append(placement)
        listed = "\n".join(f"- {problem}" for problem in placement.problems[:MAX_LISTED])
        complaint: Message = {"role": "user", "content": PROMPTS["repair"].format(problems=listed)}
        messages = [question, {"role": "assistant", "content": text[:MAX_SENT_BACK]}, complaint]
        if not text.strip():  # many servers refuse an empty message
            messages = [{"role": "user", "content": f"{prompt}\n\n{complaint['content']}"}]
    best = max(placements, key=lambda p: (len(p.placed), len(p.paths), -p.n_blocking))
    paths = best.placed
    for other in placements[::-1]:  # leaves that the best answer lacks come from the others, the latest first
        paths = {**other.paths, **paths}
    settled = [f for f in best.problems if f.kind == "missing" and all(leaf in paths for leaf in f.names)]
    return assembled(paths, names, tuple(fault for fault in best.problems if fault not in settled))


def _layers(names: LeafNames, talk: _Conversation, max_rounds: int) -> Induced:
    """From the root down: in each round a leaf goes at most one group deeper, and only within its present group.

    A group that would hold one leaf, or all leaves of the group above, divides nothing and is left out.
    """
    paths: dict[str, Groups] = {}  # the groups above each leaf that was placed
    to_divide: set[Groups] = set()
    problems: tuple[Fault, ...] = ()
    for _ in range(max_rounds):
        groups: dict[Groups, list[str]] = {}  # leaves that were not placed are under the root
        for leaf in names.leaves:
            if leaf not in paths or paths[leaf] in to_divide:
                groups.setdefault(paths.get(leaf, ()), []).append(leaf)
        to_ask = {path: leaves for path, leaves in groups.items() if not path or len(leaves) >= SMALLEST_DIVIDED}
        top = list(dict.fromkeys(path[0] for path in paths.values() if path))
        reply = talk.round([_layer_question(names, to_ask, top, problems)]) if to_ask else None
        if reply is None:
            break
        placed = reply[1].placed
        for path, leaves in to_ask.items():
            # The first group of an answered path that is not already above the leaf; '' if there is none.
            above = {group.casefold() for group in (*path, " > ".join(path), names.root)}
            narrower = {
                leaf: next((g for g in placed[leaf] if g.casefold() not in above), "")
                for leaf in leaves
                if leaf in placed
            }
            sizes = Counter(group.casefold() for group in narrower.values())
            spelling = {group.casefold(): group for group in reversed(narrower.values()) if group}
            divisions = {key: group for key, group in spelling.items() if 1 < sizes[key] < len(leaves)}
            divisions |= {} if path else {group.casefold(): group for group in top}
            for leaf, group in narrower.items():
                paths[leaf] = (*path, divisions[group.casefold()]) if group.casefold() in divisions else path
            to_divide -= {path} if narrower else set()
        to_divide |= {path for path in paths.values() if path and path not in to_ask and path[:-1] in to_ask}
        # Leaves that were not asked about are not missing from the layer.
        missing = (leaf for leaf in names.leaves if leaf not in paths)
        others = (fault for fault in reply[1].problems if fault.kind not in ("missing", "flat"))
        problems = (*others, *missing_fault(missing, "names"))
    return assembled(paths, names, problems)


def _layer_question(
    names: LeafNames, to_ask: dict[Groups, list[str]], top: list[str], problems: Sequence[Fault]
) -> Message:
    """The question for the next layer, with the problems of the last answer."""
    root = _json(names.root)
    groups = _json({" > ".join(path) or names.root: leaves for path, leaves in to_ask.items()})
    joining = f"Names still under {root} may join these categories below it: {_json(top)}. "
    text = PROMPTS["layer"].format(
        root=root, groups=groups, existing=joining if top and () in to_ask else "", data=DATA
    )
    listed = "\n".join(f"- {problem}" for problem in problems[:20])
    faults = f"\n\nYour last answer had faults; avoid them:\n{listed}" if listed else ""
    return {"role": "user", "content": text + faults}


def name_prompt(members: Sequence[str], others: Sequence[str]) -> str:
    """The question for the name of one group."""
    return PROMPTS["one_name"].format(members=_json(list(members)), others=_json(list(others)), data=DATA)


def _json(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)
