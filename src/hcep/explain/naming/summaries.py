"""A language model's summary of the phrases nearest to an atom, in 3 to 10 words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from hcep.explain.naming.asking import Failure, RejectedError, ask_until_accepted, check_rounds, for_atoms, messages_of
from hcep.explain.naming.atom_names import AtomNames
from hcep.explain.naming.bars import bar
from hcep.explain.naming.phrase_rules import MAX_WORDS, MIN_WORDS, cleaned, names_of, violation
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.llm import ChatModel

RULES = (
    "You say in words what sets a narrower group of photos apart from the broader group it belongs to.",
    f"Reply with one phrase of {MIN_WORDS} to {MAX_WORDS} words on one line, and with nothing else: no quotation "
    "marks, no list, no markup, no introduction.",
    "Take it from the given phrases, the closest of which come first; one that does not fit the rest may be ignored.",
    "Speak only of what a camera sees: shape, colour, texture, parts, posture, surroundings.",
    "Be so concrete that somebody who reads the phrase alone could pick out the narrower group's photos.",
    "Neither group's name may appear, nor a plural, a synonym or another spelling of it.",
)


@dataclass(frozen=True)
class Summaries:
    """Names with the summaries that passed.

    Attributes
    ----------
    names : AtomNames
        An atom whose summary failed keeps its phrases.
    failures : tuple of Failure
    """

    names: AtomNames
    failures: tuple[Failure, ...]


def summarize_atoms(
    names: AtomNames,
    hierarchy: Hierarchy,
    chat: ChatModel,
    *,
    aliases: Mapping[str, Sequence[str]] | None = None,
    rounds: int = 3,
    seed: int | None = None,
    progress: bool = False,
) -> Summaries:
    """Sum up the phrases of every atom that has some, by the rules of the paper.

    Parameters
    ----------
    names : AtomNames
        With phrases, as `name_atoms` gives them.
    hierarchy : Hierarchy
        For the names that a summary may not use.
    chat : ChatModel
        With a cache, a second run replays the answers of the first.
    aliases : mapping of synset to names, optional
        Further names that may not be used, such as WordNet's lemmas.
    rounds : int
        Answers to ask for at most; a rejected one goes back with what is wrong with it.
    seed : int, optional
        For servers that draw by it.
    progress : bool
        Show a progress bar.

    Returns
    -------
    Summaries

    Raises
    ------
    HCEPError
        When `rounds` is below 1. A server that fails raises nothing: atoms without an answer are in ``failures``.

    Notes
    -----
    An answer passes when it is one line of 3 to 10 words without quotation marks, markup, control characters, chatter
    or the names of either synset (their merged chains and aliases included; whatever the case, plural or hyphens).
    """
    check_rounds(rounds)
    todo = {(atom.parent, atom.child): atom for atom in names if atom.phrases}

    def ask(parent: str, child: str) -> str:
        forbidden = names_of(hierarchy, (child, parent), aliases or {})
        data = {
            "broader group": hierarchy.name(parent),
            "narrower group": hierarchy.name(child),
            "phrases": [phrase.text for phrase in todo[parent, child].phrases],
        }
        return ask_until_accepted(chat, messages_of(RULES, data), lambda text: _accepted(text, forbidden), rounds, seed)

    with bar(progress, len(todo), "summarising atoms") as advance:
        found, failures = for_atoms(todo, ask, advance)
    atoms = (replace(atom, summary=found.get((atom.parent, atom.child), atom.summary)) for atom in names)
    return Summaries(replace(names, atoms=tuple(atoms), llm=chat.model), failures)


def _accepted(answer: str, forbidden: Sequence[str]) -> str:
    phrase = cleaned(answer)
    reason = violation(phrase, forbidden)
    if reason is not None:
        raise RejectedError(reason)
    return phrase
