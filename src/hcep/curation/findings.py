"""Findings: what checks of files, graphs and embeddings have to say."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Literal

from hcep.curation.edits import Edit
from hcep.hierarchy.formats.source import counted

Severity = Literal["error", "warning", "note"]


@dataclass(frozen=True)
class Finding:
    """One thing to look at, the synsets it concerns and what to do.

    Attributes
    ----------
    severity : {"error", "warning", "note"}
        An error must be repaired before a model can be fitted; a note may be as wanted.
    message : what is there, then what to do about it
    fixes : edits that would settle it, for `apply_edits`
    safe : whether the edits keep every class and every "is below" of the hierarchy, so that `--fix` may apply them
    examples : the worst cases in words: a pair of names, a cycle, an image
    """

    severity: Severity
    code: str
    message: str
    synsets: tuple[str, ...]
    fixes: tuple[Edit, ...] = ()
    safe: bool = False
    examples: tuple[str, ...] = ()


def found(
    severity: Severity,
    code: str,
    things: Collection[object],
    text: str,
    *,
    noun: str = "concept",
    synsets: Iterable[str] | None = None,
    fixes: Iterable[Edit] = (),
    safe: bool = False,
    examples: Iterable[str] = (),
) -> list[Finding]:
    """The finding about some things, none where there are none; they are counted, with their noun, before the text.

    The `synsets` it concerns are the things themselves when left out; the rest is that of a `Finding`.
    """
    if not things:
        return []
    concerned = tuple(dict.fromkeys(map(str, things) if synsets is None else synsets))
    message = f"{counted(len(things), noun)} {text}"
    return [Finding(severity, code, message, concerned, tuple(fixes), safe, tuple(examples))]
