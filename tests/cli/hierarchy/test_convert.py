"""`hcep hierarchy show | convert` and `hcep info --formats` on every format; `hcep induce wordnet`."""

import json
import sys

import pytest
from typer.testing import CliRunner

from hcep import HCEPError, Hierarchy, HierarchyError
from hcep.cli.app import app, main
from hcep.hierarchy import read_hierarchy
from hcep.hierarchy.files import in_words
from hcep.hierarchy.formats import FORMATS


def run(*words):
    return CliRunner().invoke(app, ["hierarchy", *map(str, words)])


@pytest.fixture
def file(tmp_path, diamond):
    diamond.to_json(tmp_path / "h.json")
    return tmp_path / "h.json"


@pytest.mark.parametrize("known", [f for f in FORMATS.values() if f.writes], ids=lambda f: f.name)
def test_convert_to_every_format(known, file, tmp_path):
    target = tmp_path / f"out{known.extensions[0]}"
    result = run("convert", file, target, "--lossy")
    assert result.exit_code == 0
    assert target.stat().st_size > 0
    assert "6 concepts" in result.stdout


def test_what_is_lost_goes_to_standard_error(file, tmp_path):
    result = run("convert", file, tmp_path / "h.nwk", "--lossy")
    assert result.stderr == "note: newick keeps one parent per concept: 1 concept loses the others\n"
    assert "note" not in result.stdout


def test_convert_describes_the_written_file(tmp_path):
    both = Hierarchy.from_edges([("r", "a"), ("r", "b"), ("a", "x"), ("b", "x"), ("a", "y")])
    both.to_json(tmp_path / "both.json")
    target = tmp_path / "tree.nwk"
    result = run("convert", tmp_path / "both.json", target, "--lossy")
    assert result.stdout == f"{target}: {in_words(read_hierarchy(target))}\n"
    assert len(read_hierarchy(target)) == len(both) - 1


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("h.nwk",), r"pass lossy=True .*\(`hcep hierarchy convert` has --lossy and --single-parent\)"),
        (("h.csv", "--single-parent", "best"), r"policy must be .* got 'best' \(--single-parent on the command line\)"),
        (("h.xyz",), r"or pass --to \(in Python: format=\): json"),
    ],
)
def test_errors_name_the_options_of_the_command_line(file, tmp_path, words, message):
    with pytest.raises(HierarchyError, match=message):
        raise run("convert", file, tmp_path / words[0], *words[1:]).exception


def test_errors_of_a_reader_name_its_options(tmp_path):
    (tmp_path / "h.xyz").write_text("r,a\n")
    with pytest.raises(HierarchyError, match=r"or pass -O format=NAME \(in Python: format=\): json"):
        raise run("show", tmp_path / "h.xyz").exception
    (tmp_path / "h.nested.json").write_text('{"bird": ["crane", "robin"], "machine": ["crane"]}')
    with pytest.raises(HierarchyError, match=r"\(-O repeated=merge, -O repeated=qualify on the command line\)"):
        raise run("show", tmp_path / "h.nested.json").exception


def test_a_graph_that_the_format_cannot_hold_is_refused(file, tmp_path):
    result = run("convert", file, tmp_path / "h.nwk")
    assert isinstance(result.exception, HierarchyError)
    assert not (tmp_path / "h.nwk").exists()
    assert run("convert", file, tmp_path / "h.nwk", "--single-parent", "first").exit_code == 0


def test_formats_by_name_and_options_of_the_reader(file, tmp_path, diamond):
    run("convert", file, tmp_path / "notes", "--to", "outline")
    again = run("convert", tmp_path / "notes", tmp_path / "h.csv", "-O", "format=outline", "-O", "repeated=merge")
    assert again.exit_code == 0
    assert read_hierarchy(tmp_path / "h.csv") == diamond


def test_show_levels_and_one_branch(tmp_path):
    (tmp_path / "shop.csv").write_text("sku,department,shelf\n17,food,bread\n18,toys,ball\n")
    result = run("show", tmp_path / "shop.csv", "-O", "levels=department,shelf,sku", "-O", "root=food")
    assert result.stdout.startswith("food\n└── bread\n    └── 17\n")


def test_show_a_folder_tree(tmp_path):
    (tmp_path / "animals" / "feline" / "cat").mkdir(parents=True)
    assert run("show", tmp_path / "animals").stdout.startswith("animals\n└── feline\n    └── cat\n")


def test_notes_of_the_reader(tmp_path):
    (tmp_path / "h.nwk").write_text("(a:1,b:1)c;")
    result = run("show", tmp_path / "h.nwk")
    assert result.stderr == "h.nwk: Newick tree, 2 levels, 2 classes\nnote: skipped: 2 branch lengths\n"


@pytest.mark.parametrize(
    ("option", "message"),
    [("repeated", "expected NAME=VALUE"), ("timeout=soon", "timeout must be a number, got 'soon'")],
)
def test_malformed_options(option, message, file):
    with pytest.raises(HCEPError, match=f"--option: {message}"):
        raise run("show", file, "-O", option).exception


def test_an_unknown_target_is_refused_before_anything_is_read(tmp_path):
    result = run("convert", tmp_path / "absent.json", tmp_path / "h.xls")
    assert "its ending does not name a format that can be written" in str(result.exception)


def test_formats_lists_all():
    shown = CliRunner().invoke(app, ["info", "--formats"]).stdout
    assert all(name in shown for name in FORMATS)
    listed = json.loads(CliRunner().invoke(app, ["info", "--formats", "--json"]).stdout)
    assert listed[0]["keeps"] == ["ids", "names", "parents", "order", "merged", "classes", "ranks"]


# -- WordNet -------------------------------------------------------------------------------------------

DATA = """  1 WordNet 3.0 Copyright 2006 by Princeton University.
00000100 03 n 01 entity 0 000 | all there is
00000200 03 n 01 cat 0 001 @ 00000100 n 0000 | feline mammal
00000300 03 n 01 caterpillar 0 001 @ 00000100 n 0000 | a large tracked vehicle
00000400 03 n 01 dog 0 001 @ 00000100 n 0000 | a canine
"""
INDEX = """entity n 1 0 1 0 00000100
cat n 2 1 @ 2 0 00000200 00000300
dog n 1 1 @ 1 0 00000400
"""


@pytest.fixture
def database(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    (tmp_path / "dict").mkdir()
    (tmp_path / "dict" / "data.noun").write_text(DATA)
    (tmp_path / "dict" / "index.noun").write_text(INDEX)
    return tmp_path / "dict"


def test_wordnet(database, tmp_path):
    (tmp_path / "words.txt").write_text("dog\n\n")
    words = ["cat.n.01", tmp_path / "words.txt", "-o", tmp_path / "h.json", "-P", f"database={database}"]
    result = CliRunner().invoke(app, ["induce", "wordnet", *map(str, words)])
    assert result.exit_code == 0
    assert read_hierarchy(tmp_path / "h.json").leaves == ("n00000200", "n00000400")


def test_wordnet_asks_for_the_sense(database, tmp_path, monkeypatch, capsys):
    out = tmp_path / "h.json"
    command = ["hcep", "induce", "wordnet", "cat", "dog", "-o", str(out), "-P", f"database={database}"]
    monkeypatch.setattr(sys, "argv", command)
    with pytest.raises(SystemExit, match="2"):
        main()
    told = capsys.readouterr().err
    assert "cat.n.01 (n00000200): feline mammal; cat.n.02 (n00000300): a large tracked vehicle" in told
    assert not out.exists()
    monkeypatch.setattr(sys, "argv", [*command, "-P", "on_ambiguous=first"])
    with pytest.raises(SystemExit, match="0"):
        main()
    assert "n00000200" in read_hierarchy(out)


def test_wordnet_does_not_overwrite(database, tmp_path):
    (tmp_path / "h.json").write_text("precious")
    with pytest.raises(HCEPError, match=r"--output: .* already exists; pass --overwrite"):
        raise CliRunner().invoke(app, ["induce", "wordnet", "dog", "-o", str(tmp_path / "h.json")]).exception
    assert (tmp_path / "h.json").read_text() == "precious"


@pytest.mark.parametrize(("ending", "reading", "family"), [("json", {}, "Felidae"), ("csv", {"leaf": "label"}, "cats")])
def test_editing_a_file_keeps_ranks_and_names(tmp_path, ending, reading, family):
    """A table that is written has the same columns, and so the same options."""
    table = tmp_path / "taxa.csv"
    rows = ("Felidae,Lynx lynx,1", "Felidae,Lynx rufus,2", "Iridaceae,Iris sibirica,3", "Canidae,Vulpes vulpes,4")
    table.write_text("\n".join(["Family,Species,label", *rows]))
    edited, options = tmp_path / f"edited.{ending}", ["-O", "leaf=label", "--rename", "Felidae:cats"]
    run = CliRunner().invoke(app, ["hierarchy", "edit", str(table), *options, "-o", str(edited)])
    assert run.exit_code == 0, run.output
    h = read_hierarchy(edited, **reading)
    assert [(h.name(s), h.rank(s)) for s in ("1", "2", family)] == [
        ("Lynx lynx", "Species"),
        ("Lynx rufus", "Species"),
        ("cats", "Family"),
    ]
    moved = tmp_path / f"moved.{ending}"
    given = [word for key, value in reading.items() for word in ("-O", f"{key}={value}")]
    again = CliRunner().invoke(app, ["hierarchy", "edit", str(edited), *given, "--move", "3:cats", "-o", str(moved)])
    assert again.exit_code == 0, again.output
    assert read_hierarchy(moved, **reading).lineage("2") == {"Family": "cats", "Species": "Lynx rufus"}
