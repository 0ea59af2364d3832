"""Names that others chose are shown, and never obeyed: not by a terminal, a browser, a Markdown page."""

import re
import sys

import pytest

from hcep import HCEPClassifier, Hierarchy
from hcep._checks import escape_html, escape_markdown, escape_terminal
from hcep.cli.console import escape as escape_markup
from hcep.models import model_card

SCRIPT = "<script>alert(1)</script><img src=x onerror=alert(2)>"
COMMANDS = "cat\x1b[2J\x1b]0;owned\x07\x9b31m\u202e"


@pytest.mark.parametrize("escape", [escape_terminal, escape_markup, escape_markdown, escape_html])
def test_no_control_character_passes(escape):
    shown = escape(COMMANDS + "".join(map(chr, range(32))) + "\x7f\x85\udcff")
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e\ud800-\udfff]", shown)
    assert "x1b" in shown
    assert "\ufffd" in shown


def test_plain_names_of_any_language_stay_as_they_are():
    for name in ("Großer Panda", "北極熊", "דוב קוטב", "café (species 1)", "👩‍🔬"):
        assert escape_terminal(name) == escape_html(name) == escape_markdown(name) == escape_markup(name) == name


def test_a_class_name_cannot_inject_markup_into_a_model_card():
    tree = Hierarchy.from_edges([("top", SCRIPT), ("top", "b")], names={"b": f"*{SCRIPT}* [x](javascript:1)"})
    model = HCEPClassifier(tree).fit([[1.0, 0.0], [0.9, 0.1], [0.0, 1.0], [0.1, 0.9]], [SCRIPT, SCRIPT, "b", "b"])
    card = model_card(model, name=SCRIPT, data=SCRIPT, metrics={SCRIPT: 1.0}, images_per_class={SCRIPT: 2, "b": 2})
    outside_code = re.sub(r"(`{3,})[a-z]*\n.*?\n\1|`[^`\n]*`", "", card, flags=re.S)
    assert "<script" not in outside_code
    assert "<img" not in outside_code
    assert not re.search(r"(?<!\\)\]\(javascript", outside_code)


def test_no_escape_of_a_name_reaches_the_terminal(tmp_path, monkeypatch, capfd):
    from hcep.cli import app as app_module

    tree = tmp_path / "tree.csv"
    tree.write_text(f"parent,child\nlife:bird:owl,{COMMANDS}\nlife:bird:owl,dog\n", "utf-8")
    monkeypatch.setattr(app_module, "answer_interrupts", lambda: None)
    for command in (["show"], ["lint"], ["show", "--json"]):
        monkeypatch.setattr(sys, "argv", ["hcep", "hierarchy", command[0], str(tree), *command[1:]])
        with pytest.raises(SystemExit):
            app_module.main()
        said = "".join(capfd.readouterr())
        assert not set("\x1b\x07\x9b") & set(said)


def test_colons_in_a_name_do_not_become_emoji(capsys):
    from hcep.cli.console import Console

    Console().print(escape_markup("life:bird:owl"))
    assert capsys.readouterr().out == "life:bird:owl\n"
