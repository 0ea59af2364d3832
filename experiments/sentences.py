"""Sentences about outcomes, checked against the verdicts on the results page.

Each sentence in sentences.toml names its page and the claims that it relies on. It fails if the page does not have it
word for word, if a claim is not on the results page, or if a claim came out otherwise. A sentence that compares methods
and is not in sentences.toml is an error, too.
"""

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from experiments.claims import MARKS
from experiments.records import TEXTS

RESULTS_PAGE = "docs/results.md"
#: Pages by hand on which every sentence that compares methods is checked.
PAGES = ("README.md", "docs/quality.md", "docs/trust.md", "docs/differences.md", "docs/comparison.md")
#: What is compared, and the words that compare.
METHODS = r"\b([Oo]urs?|HCEP|HB-OMP|OMP|HNN|CBM|probe|regression|LDA|Mahalanobis|scores?|thresholds?|estimator|tree)\b"
COMPARING = r"\b(tied|tie|beats?|beaten|loses?|above|below|better|worse|deeper|milder|(as|no) (good|more|less))\b"
_DOCUMENT: dict[str, Any] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text("utf-8"))
SENTENCES: list[dict[str, Any]] = _DOCUMENT["sentence"]
#: Sentences with such words that compare no results.
NO_CLAIMS: list[str] = _DOCUMENT["no_claims"]


def split_sentences(text: str) -> list[str]:
    """Split a text into sentences.

    >>> split_sentences("Ours has .6 of them. HNN has none.")
    ['Ours has .6 of them.', 'HNN has none.']
    """
    return re.split(r"(?<=\.) (?=[A-Z])|(?<=\.\*\*) ", " ".join(text.split()))


def claims_by_experiment(results_page: str) -> dict[str, list[str]]:
    """Return the lines of the claims on the results page, such as ``✓ claim: measured``, by experiment."""
    claims: dict[str, list[str]] = {}
    for section in results_page.split("\n## "):
        command = re.search(r"`python -m experiments ([\w-]+)`\. ", section)
        lines = re.findall(rf"^- ([{''.join(MARKS.values())}] .*)$", section, re.MULTILINE)
        claims.setdefault(command[1] if command else "", []).extend(lines)
    return claims


def contradictions(root: Path) -> Iterator[str]:
    """Yield a message for each sentence that its page does not have, or that a verdict contradicts.

    A claim in sentences.toml starts with the outcomes that agree with the sentence (``✓``, or ``✓≈`` for either). The
    rest is a pattern, with ``*`` for any text, for the beginning of lines on the results page.
    """
    pages = {name: " ".join((root / name).read_text("utf-8").split()) for name in {_page(s) for s in SENTENCES}}
    claims = claims_by_experiment((root / RESULTS_PAGE).read_text("utf-8"))
    for sentence in SENTENCES:
        if sentence["text"] not in pages[_page(sentence)]:
            yield f"{_page(sentence)} does not have the sentence {sentence['text']!r}"
        for claim in sentence.get("claims", ()):
            marks, pattern = claim.split(" ", 1)
            lines = [line for line in claims.get(sentence["experiment"], ()) if fnmatchcase(line[2:], pattern + "*")]
            if not lines:
                yield f"{sentence['experiment']} has no claim {pattern!r}, on which {sentence['text']!r} relies"
            yield from (f"{sentence['text']!r} is contradicted: {line}" for line in lines if line[0] not in marks)


def unchecked(root: Path) -> Iterator[str]:
    """Yield the sentences on the pages that compare methods and are not in sentences.toml."""
    texts = {name: (root / name).read_text("utf-8") for name in PAGES}
    texts[RESULTS_PAGE] = "\n\n".join(
        text[field] for text in TEXTS.values() for field in ("reading", "short") if isinstance(text.get(field), str)
    )
    for page, text in texts.items():
        checked = [*NO_CLAIMS, *(sentence["text"] for sentence in SENTENCES if _page(sentence) == page)]
        comparing = (one for one in _prose(text) if re.search(METHODS, one) and re.search(COMPARING, one))
        for sentence in comparing:
            if not any(one in sentence or sentence in one for one in checked):
                yield f"{page}: {sentence}"


def _prose(page: str) -> Iterator[str]:
    """Yield the sentences of a page in Markdown, without code, tables and headings."""
    for left_out in (r"```.*?```", r"<!-- rows.*?end of rows -->", r"^[ ]*[|#!].*?$"):
        page = re.sub(left_out, "", page, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n- ", page):
        yield from split_sentences(paragraph)


def _page(sentence: dict[str, Any]) -> str:
    return str(sentence.get("page", RESULTS_PAGE))
