"""Every example runs: those in docstrings, and the Python blocks of README.md and docs/*.md.

Commands on the pages and in the examples exist with their options, extras can be installed, links lead somewhere.
"""

import doctest
import re
import shlex
import tomllib
from importlib import import_module
from pathlib import Path

import pytest
import typer.main

import hcep
from hcep.cli.app import app

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PROJECT = Path(__file__).parents[1]
PACKAGE = Path(hcep.__file__).parent
PAGES = [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))]
EXAMPLES = sorted((PROJECT / "examples").glob("*.py"))


def modules_with_examples():
    files = sorted(path for path in PACKAGE.rglob("*.py") if ">>> " in path.read_text(encoding="utf-8"))
    return [".".join(("hcep", *path.relative_to(PACKAGE).with_suffix("").parts)) for path in files]


def python_blocks(text):
    """The fenced Python blocks of a page with the lines they start at."""
    found = re.finditer(r"^```python\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    return [(text.count("\n", 0, match.start(1)), match.group(1)) for match in found]


def run_block(block, line, page, namespace):
    """Run one block, its output compared where it is written as a session; return the failures' report."""
    if ">>> " not in block:
        # The leading newlines make a traceback point at the line of the page.
        exec(compile("\n" * line + block, str(page), "exec"), namespace)
        return ""
    report = []
    test = doctest.DocTestParser().get_doctest(block, namespace, page.name, str(page), line)
    doctest.DocTestRunner(optionflags=FLAGS).run(test, out=report.append, clear_globs=False)
    namespace.update(test.globs)
    return "".join(report)


@pytest.mark.parametrize("name", modules_with_examples())
def test_docstring_examples(name, monkeypatch, tmp_path):
    if name.startswith("hcep.web."):
        pytest.importorskip("uvicorn", reason="uvicorn is not installed (extra web)")
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(import_module(name), optionflags=FLAGS).failed == 0


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_pages(page, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "agg")
    namespace = {"__name__": "__main__"}
    reports = [run_block(block, line, page, namespace) for line, block in python_blocks(page.read_text("utf-8"))]
    assert "".join(reports) == ""


def test_a_wrong_output_is_reported():
    assert "Expected:\n    3\nGot:\n    2" in run_block(">>> 1 + 1\n3\n", 4, Path("page.md"), {})


def test_blocks_share_one_namespace():
    namespace = {}
    run_block("x = 1\n", 0, Path("page.md"), namespace)
    assert run_block(">>> x\n1\n", 4, Path("page.md"), namespace) == ""


def commands(text):
    """The `hcep` commands of a page, in shell blocks and in running text."""
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line for block in blocks for line in block.splitlines()]
    prose = re.sub(r"^```.*?^```", "", text, flags=re.MULTILINE | re.DOTALL).replace(
        "\n# ", " "
    )  # a comment of two lines
    return [line for line in [*lines, *re.findall(r"`([^`]+)`", prose)] if re.match(r"hcep( |$)", line)]


def unknown_words(line, command):
    """The subcommand or options of a line that the command does not have."""
    for word in shlex.split(line, comments=True)[1:]:
        if hasattr(command, "commands"):
            if word not in command.commands and not word.startswith("-"):
                return [word]
            command = command.commands.get(word, command)
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        known |= {"--help", "--help-all", "--version"}
        if word.startswith("-") and word not in known:
            return [word]
    return []


@pytest.mark.parametrize("page", [*PAGES, *EXAMPLES], ids=lambda p: p.name)
def test_commands_extras_and_links_exist(page):
    text = page.read_text("utf-8")
    root = typer.main.get_command(app)
    assert [(line, unknown_words(line, root)) for line in commands(text) if unknown_words(line, root)] == []
    extras = tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["optional-dependencies"]
    named = re.findall(r"(?:hcep|pip install \"?\.)\[([a-z-]+)\]", text)
    assert [extra for extra in named if extra not in extras] == []
    links = re.findall(r"\]\(([^)#:\s]+)\)", text)
    assert [link for link in links if not (page.parent / link).exists()] == []


def leaves(group):
    for command in group.commands.values():
        yield from leaves(command) if hasattr(command, "commands") else [command]


#: Options of other programs on the pages, which are named without the program.
OTHERS = {"--only"}  # of benchmarks/run.py


@pytest.mark.parametrize("page", PAGES, ids=lambda p: p.name)
def test_options_in_running_text_exist(page):
    root = typer.main.get_command(app)
    parameters = [parameter for command in (root, *leaves(root)) for parameter in command.params]
    known = {name for parameter in parameters for name in (*parameter.opts, *parameter.secondary_opts)}
    prose = re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.MULTILINE | re.DOTALL)
    codes = [code for code in re.findall(r"`([^`]+)`", prose) if not code.startswith(("python", "pip", "make"))]
    named = {option for code in codes for option in re.findall(r"(?<![\w-])--[a-z][a-z-]*", code)}
    assert named - known - OTHERS - {"--help", "--help-all"} == set()


def test_a_command_that_is_none_is_found():
    root = typer.main.get_command(app)
    assert commands("`hcep fit store/` and\n```sh\nhcep info # all\nls\n```\n") == [
        "hcep info # all",
        "hcep fit store/",
    ]
    assert commands("# See ``hcep hierarchy\n# fix x.csv``.\n") == ["hcep hierarchy fix x.csv"]
    assert unknown_words("hcep hierarchy mend x.csv", root) == ["mend"]
    assert unknown_words("hcep fit store/ -o model/ --beem 8", root) == ["--beem"]


def test_the_version_is_said_once_and_repeated_truly():
    citation = (PROJECT / "CITATION.cff").read_text("utf-8")
    assert re.search(r"^version: (.+)$", citation, flags=re.MULTILINE).group(1) == hcep.__version__
    assert tomllib.loads((PROJECT / "pyproject.toml").read_text("utf-8"))["project"]["dynamic"] == ["version"]
