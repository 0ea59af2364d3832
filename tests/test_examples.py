"""The gallery's scripts run as they are, and the check of the built site finds what is wrong."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
NOTEBOOKS = sorted((ROOT / "examples" / "notebooks").glob("*.ipynb"))
SCRIPTS = sorted((ROOT / "examples").glob("*.py"))
WITH_PHOTOS = {"01_photo", "02_own_photos"}


@pytest.mark.slow
@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_an_example_runs(script, tmp_path):
    if script.stem in WITH_PHOTOS:
        pytest.importorskip("onnxruntime", reason="the built-in encoder needs the photos extra")
    environment = os.environ | {"MPLBACKEND": "agg"}
    done = subprocess.run(
        [sys.executable, "-W", "error", script],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


def printed(book):
    """What the cells of a notebook printed, whatever the figures."""
    streams = [out.text for cell in book.cells for out in cell.get("outputs", []) if out.output_type == "stream"]
    return re.sub(r"[\d.]+|nan", "#", "".join(streams))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_is_its_script_and_runs(path, tmp_path, monkeypatch):
    nbformat = pytest.importorskip("nbformat", reason="notebooks need the notebooks extra")
    monkeypatch.setenv("MPLBACKEND", "module://matplotlib_inline.backend_inline")
    tools = runpy.run_path(str(ROOT / "docs" / "make_notebooks.py"))
    if path.stem in WITH_PHOTOS:
        pytest.importorskip("onnxruntime", reason="the built-in encoder needs the photos extra")
    kept = nbformat.read(path, as_version=4)
    made = tools["notebook"]((ROOT / "examples" / f"{path.stem}.py").read_text("utf-8"))
    assert [cell.source for cell in made.cells] == [cell.source for cell in kept.cells]
    assert printed(tools["executed"](made, tmp_path)) == printed(kept) != ""


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_a_notebook_names_no_folder_of_the_machine_it_ran_on(path):
    assert re.findall(r"/(?:tmp|home|root|work)/\w+", path.read_text("utf-8")) == []


def said(picture):
    return re.findall(r">([^<>]*\w[^<>]*)</text>", picture.read_text("utf-8"))


@pytest.mark.slow
def test_the_pictures_of_the_method_are_what_their_script_draws(tmp_path):
    runpy.run_path(str(ROOT / "docs" / "draw_method.py"))["draw"](tmp_path)
    words = {path.name: said(path) for path in tmp_path.iterdir()}
    assert words == {path.name: said(path) for path in (ROOT / "docs" / "images").glob("*.svg")}
    assert all(words.values())


@pytest.fixture
def check_site():
    return runpy.run_path(str(ROOT / "docs" / "check_site.py"))


def test_a_sound_site_has_no_problem(check_site, tmp_path):
    (tmp_path / "a.html").write_text(
        '<h1 id="top-of-a"></h1><a href="sub/b.html#x">b</a><a href="https://elsewhere.org">c</a>'
    )
    (tmp_path / "sub").mkdir()
    (tmp_path / "sub" / "b.html").write_text(
        '<p id="x"></p><a href="../a.html#top-of-a">a</a><img src="data:image/png,">'
    )
    assert check_site["problems"](tmp_path) == []


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ('<a href="gone.html">x</a>', "leads nowhere"),
        ('<a href="#gone">x</a>', "no anchor"),
        ('<script src="https://elsewhere.org/x.js"></script>', "fetches"),
        ('<link rel="stylesheet" href="//elsewhere.org/x.css">', "fetches"),
        ('<img src="gone.png">', "is missing"),
        ("x" * 2_000_001, "more than 2 MB"),
    ],
)
def test_what_is_wrong_with_a_site_is_said(check_site, tmp_path, page, said):
    (tmp_path / "a.html").write_text(page)
    assert [said in problem for problem in check_site["problems"](tmp_path)] == [True]


def test_a_site_without_pages_is_wrong(check_site, tmp_path):
    assert check_site["problems"](tmp_path)
