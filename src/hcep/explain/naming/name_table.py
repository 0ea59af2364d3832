"""The paper's interpretation table: parent → child, top concepts, text interpretation."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal

from hcep import _escape as escape
from hcep.errors import HCEPError, near_matches, quoted
from hcep.hierarchy import Hierarchy
from hcep.models.atom_names import AtomName

TableFormat = Literal["text", "markdown", "latex"]
_ESCAPED = str.maketrans({
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
})  # fmt: skip


def interpretation_table(
    atoms: Iterable[AtomName], hierarchy: Hierarchy, format: TableFormat = "text", *, top_k: int = 10
) -> str:
    """Set names of atoms as a table.

    Raises HCEPError: for an unknown format.

    Parameters
    ----------
    atoms : such as an `AtomNames`
    hierarchy : for display names
    format : "text", "markdown" or "latex", which needs the packages booktabs and enumitem
    top_k : concepts, and images, per row

    Returns
    -------
    str
        Every text in it escaped for the format. Where an atom has images but no phrases, its concepts are the images;
        where it has both, the text has the images below the phrases.

    Examples
    --------
    >>> from hcep import Hierarchy
    >>> from hcep.explain.naming import AtomName, Phrase, interpretation_table
    >>> h = Hierarchy.from_edges([("bear", "polar bear"), ("bear", "panda")])
    >>> atom = AtomName("bear", "polar bear", (Phrase("matte white texture", 0.31),), summary="thick white winter fur")
    >>> print(interpretation_table([atom], h, "markdown"))
    | Parent → Child | Top concepts | Text interpretation |
    |---|---|---|
    | bear → polar bear | matte white texture | thick white winter fur |
    """
    if format not in _ROWS:
        raise HCEPError(f"format must be one of {quoted(_ROWS)}, got {format!r}.{near_matches(format, _ROWS)}")
    rows = [_ROWS[format](hierarchy.name(atom.parent), hierarchy.name(atom.child), atom, top_k) for atom in atoms]
    if format == "latex":
        return _LATEX_HEAD + "    \\midrule\n".join(rows) + _LATEX_FOOT
    return "\n".join([_MARKDOWN_HEAD, *rows] if format == "markdown" else rows)


def _concepts(atom: AtomName, top_k: int) -> list[tuple[str, float]]:
    if atom.phrases:
        return [(phrase.text, phrase.score) for phrase in atom.phrases[:top_k]]
    return [(image.id, image.projection) for image in atom.exemplars[:top_k]]


def _text(parent: str, child: str, atom: AtomName, top_k: int) -> str:
    def listed(pairs: Iterable[tuple[str, float]]) -> str:
        return ", ".join(f"{text} {value:.2f}" for text, value in pairs)

    images = atom.exemplars[:top_k] if atom.phrases else ()
    lists = {
        "": listed(_concepts(atom, top_k)),
        "images ": listed((image.id, image.projection) for image in images),
        "unlike ": listed((image.id, image.projection) for image in atom.contrast),
    }
    lines = [atom.meaning or "(no words for it)", *(title + items for title, items in lists.items() if items)]
    return "\n    ".join([f"{parent} → {child}", *lines])


def _markdown(parent: str, child: str, atom: AtomName, top_k: int) -> str:
    cells = (f"{parent} → {child}", "; ".join(text for text, _ in _concepts(atom, top_k)), atom.meaning or "")
    return "| " + " | ".join(map(escape.markdown, cells)) + " |"


def _latex(parent: str, child: str, atom: AtomName, top_k: int) -> str:
    items = "".join(f"      \\item {text.translate(_ESCAPED)}\n" for text, _ in _concepts(atom, top_k))
    listed = f"    \\begin{{enumerate}}[leftmargin=*, nosep]\n{items}    \\end{{enumerate}}" if items else "    "
    pair = " $\\rightarrow$ ".join(f"\\texttt{{{name.translate(_ESCAPED)}}}" for name in (parent, child))
    return f"    {pair} &\n{listed} &\n    {(atom.meaning or '').translate(_ESCAPED)} \\\\\n"


_ROWS = {"text": _text, "markdown": _markdown, "latex": _latex}
_MARKDOWN_HEAD = "| Parent → Child | Top concepts | Text interpretation |\n|---|---|---|"
_LATEX_HEAD = r"""\begin{tabular}{l p{0.35\linewidth} p{0.35\linewidth}}
    \toprule
    Parent $\rightarrow$ Child & Top concepts & Text interpretation \\
    \midrule
"""
_LATEX_FOOT = "    \\bottomrule\n\\end{tabular}"
