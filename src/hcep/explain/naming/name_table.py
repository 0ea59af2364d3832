"""The paper's interpretation table: parent → child, top concepts, text interpretation."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Literal

from hcep.errors import HCEPError, near_matches, quoted
from hcep.explain.naming.atom_names import AtomName, Exemplar
from hcep.hierarchy import Hierarchy

TableFormat = Literal["text", "markdown", "latex"]
FORMATS: tuple[TableFormat, ...] = ("text", "markdown", "latex")

_LATEX = {
    "\\": r"\textbackslash{}", "{": r"\{", "}": r"\}", "$": r"\$", "&": r"\&", "#": r"\#", "%": r"\%", "_": r"\_",
    "~": r"\textasciitilde{}", "^": r"\textasciicircum{}",
}  # fmt: skip


def interpretation_table(
    atoms: Iterable[AtomName], hierarchy: Hierarchy, format: TableFormat = "text", *, top_k: int = 10
) -> str:
    """Set names of atoms as a table.

    Parameters
    ----------
    atoms : iterable of AtomName
        Such as an `AtomNames`.
    hierarchy : Hierarchy
        For display names.
    format : {"text", "markdown", "latex"}
        LaTeX needs the packages booktabs and enumitem.
    top_k : int
        Concepts, and images, a row.

    Returns
    -------
    str
        Every text in it escaped for the format. Where an atom has images but no phrases, its concepts are the images;
        where it has both, the text has the images below the phrases.

    Raises
    ------
    HCEPError
        For an unknown format.

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
    if format not in FORMATS:
        raise HCEPError(f"format must be one of {quoted(FORMATS)}, got {format!r}.{near_matches(format, FORMATS)}")
    rows = [(hierarchy.name(atom.parent), hierarchy.name(atom.child), _concepts(atom, top_k), atom) for atom in atoms]
    if format == "text":
        return "\n".join(_text(*row, top_k) for row in rows)
    if format == "markdown":
        head = "| Parent → Child | Top concepts | Text interpretation |\n|---|---|---|"
        return "\n".join([head, *(_markdown(*row) for row in rows)])
    return "\n".join([_LATEX_HEAD, "    \\midrule\n".join(_latex(*row) for row in rows) + _LATEX_FOOT])


def _concepts(atom: AtomName, top_k: int) -> list[tuple[str, float]]:
    if atom.phrases:
        return [(phrase.text, phrase.score) for phrase in atom.phrases[:top_k]]
    return [(image.id, image.projection) for image in atom.exemplars[:top_k]]


def _text(parent: str, child: str, concepts: list[tuple[str, float]], atom: AtomName, top_k: int) -> str:
    lines = [f"{parent} → {child}", f"    {atom.meaning or '(no words for it)'}"]
    if concepts:
        lines.append("    " + ", ".join(f"{text} {value:.2f}" for text, value in concepts))
    if atom.phrases and atom.exemplars:
        lines.append("    images " + _images(atom.exemplars[:top_k]))
    if atom.contrast:
        lines.append("    unlike " + _images(atom.contrast))
    return "\n".join(lines)


def _images(images: Iterable[Exemplar]) -> str:
    return ", ".join(f"{image.id} {image.projection:.2f}" for image in images)


def _markdown(parent: str, child: str, concepts: list[tuple[str, float]], atom: AtomName) -> str:
    cells = (f"{parent} → {child}", "; ".join(text for text, _ in concepts), atom.meaning or "")
    return "| " + " | ".join(_for_markdown(cell) for cell in cells) + " |"


def _for_markdown(text: str) -> str:
    return re.sub(r"([\\`*_\[\]|#~])", r"\\\1", text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;"))


def _latex(parent: str, child: str, concepts: list[tuple[str, float]], atom: AtomName) -> str:
    items = "".join(f"      \\item {_for_latex(text)}\n" for text, _ in concepts)
    listed = f"    \\begin{{enumerate}}[leftmargin=*, nosep]\n{items}    \\end{{enumerate}}" if items else "    "
    pair = f"    \\texttt{{{_for_latex(parent)}}} $\\rightarrow$ \\texttt{{{_for_latex(child)}}} &\n"
    return f"{pair}{listed} &\n    {_for_latex(atom.meaning or '')} \\\\\n"


def _for_latex(text: str) -> str:
    return "".join(_LATEX.get(c, c) for c in text)


_LATEX_HEAD = """\
\\begin{tabular}{l p{0.35\\linewidth} p{0.35\\linewidth}}
    \\toprule
    Parent $\\rightarrow$ Child & Top concepts & Text interpretation \\\\
    \\midrule"""
_LATEX_FOOT = "    \\bottomrule\n\\end{tabular}"
