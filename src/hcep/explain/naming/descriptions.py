"""Candidate phrases that a language model writes for every parent and child."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hcep.errors import HCEPError
from hcep.explain.naming.asking import Failure, RejectedError, ask_until_accepted, check_rounds, for_atoms, messages_of
from hcep.explain.naming.bars import bar
from hcep.explain.naming.phrase_rules import cleaned, names_of, violation, without_marker
from hcep.explain.naming.pools import merge_pools
from hcep.hierarchy import Hierarchy

if TYPE_CHECKING:
    from hcep.llm import ChatModel

MAX_WORDS = 8


def _rules(n_phrases: int) -> tuple[str, ...]:
    return (
        "You list what can be seen in photos of a narrower group and sets it apart from the rest of a broader group.",
        f"Reply with {n_phrases} phrases of at most {MAX_WORDS} words, one a line, and with nothing else.",
        "Every phrase names one visible thing: a shape, colour, texture, part, posture or surrounding.",
        "Neither group's name may appear, nor a plural or another spelling of it.",
    )


@dataclass(frozen=True)
class Descriptions:
    """Phrases by (parent, child), and the pairs that got none.

    Attributes
    ----------
    by_edge : mapping of (parent, child) to tuple of str
    failures : tuple of Failure
    """

    by_edge: Mapping[tuple[str, str], tuple[str, ...]]
    failures: tuple[Failure, ...]

    @property
    def pool(self) -> tuple[str, ...]:
        """All phrases, each once: the candidates for every atom, whichever pair they were written for."""
        return merge_pools(*self.by_edge.values())


def describe_atoms(
    hierarchy: Hierarchy,
    chat: ChatModel,
    *,
    edges: Sequence[tuple[str, str]] | None = None,
    n_phrases: int = 5,
    aliases: Mapping[str, Sequence[str]] | None = None,
    rounds: int = 3,
    seed: int | None = None,
    progress: bool = False,
) -> Descriptions:
    """Let a language model write candidate phrases for every edge of a hierarchy.

    Parameters
    ----------
    hierarchy : Hierarchy
    chat : ChatModel
    edges : sequence of (parent, child), optional
        Ask about these only.
    n_phrases : int
        Phrases a pair.
    aliases, rounds, seed, progress
        As in `summarize_atoms`.

    Returns
    -------
    Descriptions
        Phrases that break the rules are left out; when fewer than half of `n_phrases` are left, the answer goes back.

    Raises
    ------
    HCEPError
        When `n_phrases` or `rounds` is below 1.
    """
    check_rounds(rounds)
    if n_phrases < 1:
        raise HCEPError(f"n_phrases must be at least 1, got {n_phrases}")
    wanted = hierarchy.edges if edges is None else tuple(edges)

    def ask(parent: str, child: str) -> tuple[str, ...]:
        forbidden = names_of(hierarchy, (child, parent), aliases or {})
        data = {"broader group": hierarchy.name(parent), "narrower group": hierarchy.name(child)}
        messages = messages_of(_rules(n_phrases), data)
        return ask_until_accepted(chat, messages, lambda text: _accepted(text, forbidden, n_phrases), rounds, seed)

    with bar(progress, len(wanted), "describing atoms") as advance:
        found, failures = for_atoms(wanted, ask, advance)
    return Descriptions(found, failures)


def _accepted(answer: str, forbidden: Sequence[str], n_phrases: int) -> tuple[str, ...]:
    """The usable lines of an answer; a model that never stops is read no further than twice what was asked for."""
    lines = [line for line in answer.splitlines() if line.strip()][: 2 * n_phrases]
    phrases = [cleaned(without_marker(line)) for line in lines]
    reasons = [violation(phrase, forbidden, min_words=1, max_words=MAX_WORDS) for phrase in phrases]
    usable = merge_pools(phrase for phrase, reason in zip(phrases, reasons, strict=True) if reason is None)[:n_phrases]
    if 2 * len(usable) >= n_phrases:
        return usable
    why = next((f"; one {reason}" for reason in reasons if reason), "")
    raise RejectedError(f"has {len(usable)} usable phrases where {n_phrases} are asked for{why}")
