"""Every example runs: those in docstrings, and the Python blocks of README.md and docs/*.md."""

import doctest
import re
from importlib import import_module
from pathlib import Path

import pytest

import hcep

FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
PROJECT = Path(__file__).parents[1]
PACKAGE = Path(hcep.__file__).parent


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
    monkeypatch.chdir(tmp_path)
    assert doctest.testmod(import_module(name), optionflags=FLAGS).failed == 0


@pytest.mark.parametrize(
    "page", [PROJECT / "README.md", *sorted((PROJECT / "docs").glob("*.md"))], ids=lambda p: p.name
)
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
