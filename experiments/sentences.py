"""Sentences about outcomes, checked against the verdicts and tables on the results page.

Each sentence in sentences.toml names its page, and the claims and rows of tables that it relies on. It fails if the
page does not have it word for word, if a claim or row is not on the results page, if a claim came out otherwise, or if
it has a figure that none of them has. A sentence that compares methods or has a figure and is not in sentences.toml is
an error, too.
"""

import re
import tomllib
from collections.abc import Iterator
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from experiments.claims import MARKS

RESULTS_PAGE = "docs/results.md"
#: Pages by hand on which every sentence that compares methods, or has a figure, is checked.
PAGES = ("README.md", *(f"docs/{name}.md" for name in ("quality", "trust", "differences", "comparison", "methods")))
#: What is compared, and the words that compare.
METHODS = (
    r"\b([Oo]urs?|HCEP|HB-OMP|OMP|HNN|NN|CBM|SpLiCE|HiClass|SPAMS|skglm|LDA|GDA|RanPAC|ViM|GEN|Mahalanobis|[Rr]idge|"
    r"[Ee]nergy|kNN|[Nn]earest|([Pp]robe|[Rr]egression|[Cc]ache|[Ss]core|[Tt]hreshold|[Ee]stimator|[Tt]ree|[Cc]ontrol|"
    r"[Bb]aseline|[Dd]ecoder|[Rr]ule|[Mm]ethod|[Ss]earch)(es|s)?)\b"
)
COMPARING = (
    r"\b(tied|tie|beats?|beaten|loses?|lost|wins?|won|above|below|better|best|worse|worst|deeper|deepest|milder|higher|"
    r"highest|lower|lowest|ahead|behind|outperforms?|exceeds?|surpass(es)?|improves?|gains?|stronger|strongest|weaker|"
    r"weakest|superior|inferior|(as|no) (good|well|more|less)|(more|less) (accurate|precise|often))\b"
)
#: A figure: a decimal, a percentage, or a number of points.
FIGURE = re.compile(r"(?<![\w.])(\d*\.\d+|\d+(?= %| points?\b))( %| points?\b)?")
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


def lines_by_experiment(results_page: str) -> dict[str, list[str]]:
    """Return the claims and rows of the results page by experiment.

    A claim is such as ``✓ claim: measured``. The row of a table follows its data and its caption, if it has them:
    ``Data | caption | method | .5 |``.
    """
    lines: dict[str, list[str]] = {}
    for section in results_page.split("\n## "):
        command = re.search(r"`python -m experiments ([\w-]+)`\. ", section)
        own = lines.setdefault(command[1] if command else "", [])
        data = caption = ""
        for line in filter(None, section.splitlines()):
            if line.startswith("|"):
                own.append(" ".join(filter(None, (data and f"{data} |", caption, line))))
            elif re.match(f"- [{''.join(MARKS.values())}] ", line):
                own.append(line[2:])
            elif re.match(r"\*\*(?!The paper:|Explanation:)", line):
                data, caption = line.replace("**", ""), ""
            else:
                caption = line
    return lines


def contradictions(root: Path) -> Iterator[str]:
    """Yield a message for each sentence that its page does not have, or that a verdict or figure contradicts.

    A claim in sentences.toml starts with the outcomes that agree with the sentence (``✓``, or ``✓≈`` for either). The
    rest, and a row of a table, is a pattern, with ``*`` for any text, for the beginning of lines on the results page.
    """
    pages = {name: " ".join((root / name).read_text("utf-8").split()) for name in {_page(s) for s in SENTENCES}}
    lines_of = lines_by_experiment((root / RESULTS_PAGE).read_text("utf-8"))
    for sentence in SENTENCES:
        text, lines = sentence["text"], lines_of.get(sentence["experiment"], [])
        if text not in pages[_page(sentence)]:
            yield f"{_page(sentence)} does not have the sentence {text!r}"
        relied: list[str] = []
        for claim in sentence.get("claims", ()):
            marks, pattern = claim.split(" ", 1)
            found = [line for line in lines if line[0] in MARKS.values() and fnmatchcase(line[2:], pattern + "*")]
            if not found:
                yield f"{sentence['experiment']} has no claim {pattern!r}, on which {text!r} relies"
            yield from (f"{text!r} is contradicted: {line}" for line in found if line[0] not in marks)
            relied += found
        for pattern in sentence.get("rows", ()):
            found = [line for line in lines if fnmatchcase(line, pattern + "*")]
            if not found:
                yield f"{sentence['experiment']} has no row {pattern!r}, on which {text!r} relies"
            relied += found
        known = [abs(_value(match)) for match in FIGURE.finditer(" ".join(relied))]
        yield from (
            f"{text!r} has the figure {match[0]}, which is not in what it relies on"
            for match in FIGURE.finditer(text)
            if not any(_rounds_to(match, value) for value in known)
        )


def _value(figure: re.Match[str]) -> float:
    """Return a figure as a number; a percentage and a number of points are hundredths."""
    return float(figure[1]) / (100.0 if figure[2] else 1.0)


def _rounds_to(figure: re.Match[str], value: float) -> bool:
    """Whether a value on the results page, which has three decimals, is the figure but for rounding."""
    unit = 10.0 ** -(len(figure[1].partition(".")[2]) + 2 * bool(figure[2]))
    return abs(_value(figure) - value) <= (0.5 * unit + 0.0005 if unit > 0.0011 else 1e-9)


def unchecked(root: Path) -> Iterator[str]:
    """Yield the sentences on the pages that compare methods or have a figure, and are not in sentences.toml."""
    texts = {name: (root / name).read_text("utf-8") for name in PAGES}
    results = (root / RESULTS_PAGE).read_text("utf-8")
    texts[RESULTS_PAGE] = "\n\n".join(
        re.findall(r"^(?:\*\*Explanation:\*\*|\| \[`.*\|) (.*?)(?: \|)?$", results, re.MULTILINE)
    )
    for page, text in texts.items():
        checked = [*NO_CLAIMS, *(sentence["text"] for sentence in SENTENCES if _page(sentence) == page)]
        for sentence in _prose(text):
            rest = "" if any(sentence in one for one in checked) else sentence
            for one in checked:
                rest = rest.replace(one, " ")
            rest = re.sub(r"`[^`]*`|\]\([^)]*\)", " ", rest)
            if FIGURE.search(rest) or (re.search(METHODS, rest) and re.search(COMPARING, rest)):
                yield f"{page}: {sentence}"


def _prose(page: str) -> Iterator[str]:
    """Yield the sentences of a page in Markdown, without code, tables and headings."""
    for left_out in (r"```.*?```", r"<!-- rows.*?end of rows -->", r"^[ ]*[|#!].*?$"):
        page = re.sub(left_out, "", page, flags=re.DOTALL | re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n|\n- ", page):
        yield from split_sentences(paragraph)


def _page(sentence: dict[str, Any]) -> str:
    return str(sentence.get("page", RESULTS_PAGE))
