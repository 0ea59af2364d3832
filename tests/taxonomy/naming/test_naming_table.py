"""The interpretation table, and nothing in it that its format obeys."""

from dataclasses import replace

import pytest

from hcep.errors import HCEPError
from hcep.models.atom_names import AtomName, Exemplar, Phrase
from hcep.taxonomy.naming import interpretation_table
from tests.taxonomy.naming.bear_space import BEARS

NAMED = AtomName(
    "bear", "polar_bear", (Phrase("matte white", 0.31), Phrase("pale | snow", 0.3)), summary="thick white fur"
)
SHOWN = AtomName("bear", "grizzly", exemplars=(Exemplar("a_1.jpg", 1.25),), contrast=(Exemplar("b.jpg", -0.9),))
HOSTILE = AtomName("vehicle", "car", (Phrase("<script>_x_ [a](b) `c`", 0.1),), summary=r"50% of $x_1$ & #2 \input{a}~^")


def test_text():
    assert interpretation_table([NAMED, SHOWN], BEARS).splitlines() == [
        "bear → polar bear",
        "    thick white fur",
        "    matte white 0.31, pale | snow 0.30",
        "bear → grizzly",
        "    (no words)",
        "    a_1.jpg 1.25",
        "    unlike b.jpg -0.90",
    ]


def test_text_shows_the_images_of_an_atom_that_has_phrases_too():
    both = replace(SHOWN, phrases=(Phrase("brown fur", 0.2),), exemplars=(*SHOWN.exemplars, Exemplar("c.jpg", 1.1)))
    assert interpretation_table([both], BEARS, top_k=1).splitlines()[2:] == [
        "    brown fur 0.20",
        "    images a_1.jpg 1.25",
        "    unlike b.jpg -0.90",
    ]


def test_markdown_has_three_cells_a_row_and_no_markup():
    lines = interpretation_table([NAMED, SHOWN, HOSTILE], BEARS, "markdown").splitlines()
    assert lines[2] == r"| bear → polar bear | matte white; pale &#124; snow | thick white fur |"
    assert lines[3] == r"| bear → grizzly | a\_1.jpg |  |"
    assert r"&lt;script&gt;\_x\_ \[a\](b) \`c\`" in lines[4]


def test_latex_is_the_papers_table_and_escaped():
    text = interpretation_table([NAMED, HOSTILE], BEARS, "latex", top_k=1)
    assert text.startswith("\\begin{tabular}{l p{0.35\\linewidth} p{0.35\\linewidth}}\n    \\toprule\n")
    assert text.endswith("    \\bottomrule\n\\end{tabular}")
    assert "\\texttt{bear} $\\rightarrow$ \\texttt{polar bear} &" in text
    assert text.count("\\item") == 2
    assert text.count("\\midrule") == 2
    assert "pale" not in text
    assert r"50\% of \$x\_1\$ \& \#2 \textbackslash{}input\{a\}\textasciitilde{}\textasciicircum{} \\" in text


def test_latex_without_concepts_has_an_empty_cell():
    assert "enumerate" not in interpretation_table([AtomName("bear", "grizzly", gloss="a bear")], BEARS, "latex")


def test_an_unknown_format_is_named():
    with pytest.raises(HCEPError, match=r"format must be one of 'text', 'markdown', 'latex', got 'latx'.*'latex'"):
        interpretation_table([NAMED], BEARS, "latx")
