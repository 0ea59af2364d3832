"""`hcep demo` in a process of its own."""

import json
import os
import re
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from hcep import __version__
from hcep.cli.app import app, main
from hcep.errors import HCEPError


def run(*words, cwd=None, env=None):
    return subprocess.run(
        [sys.executable, "-c", "from hcep.cli import main; main()", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=120,
        env=env,
    )


@pytest.fixture(scope="module")
def as_json(tmp_path_factory):
    folder = tmp_path_factory.mktemp("json")
    return run("demo", "--json", cwd=folder), folder


@pytest.fixture(scope="module")
def shown(as_json, tmp_path_factory):
    """After a run, before the clock starts: kernels are compiled on the very first one of an installation."""
    folder = tmp_path_factory.mktemp("demo")
    start = time.perf_counter()
    done = run("demo", cwd=folder)
    return done, time.perf_counter() - start, folder


def test_demo_shows_table_trees_and_the_contrast(shown):
    done, _, _ = shown
    assert done.returncode == 0, done.stderr
    for method in ("OMP", "HNN", "NN", "HB-OMP (paper)", "HCEP (ours)"):
        assert re.search(rf"^{re.escape(method)}\s+0?\.\d{{3}}", done.stdout, re.M)
    assert "└── " in done.stdout
    assert "Where the paper's rule goes wrong and ours does not" in done.stdout
    assert "exactly opposite" in done.stdout
    assert "\x1b[" not in done.stdout  # a pipe gets no colour codes


@pytest.mark.slow
@pytest.mark.alone
def test_demo_takes_seconds(shown):
    assert shown[1] < 15


def test_demo_writes_the_report_and_says_where(shown):
    done, _, folder = shown
    report = folder / "hcep-demo" / "report.html"
    assert "hcep-demo/report.html" in done.stdout.replace("\n", "")
    text = report.read_text(encoding="utf-8")
    assert "HCEP (ours)" in text
    assert len(text) < 100_000


def test_json_is_nothing_but_json(as_json):
    done, folder = as_json
    rows = json.loads(done.stdout)
    assert [row["method"] for row in rows][-1] == "HCEP (ours)"
    assert not list(folder.iterdir())


def test_help_has_examples():
    result = CliRunner().invoke(app, ["demo", "--help"])
    assert result.exit_code == 0
    assert "hcep demo -o report/" in result.stdout


def test_version():
    result = CliRunner().invoke(app, ["--version"])
    assert result.stdout.strip() == f"hcep {__version__}"


def test_bad_option_exits_with_2():
    assert CliRunner().invoke(app, ["hierarchy", "show", "imagenet", "--depth", "-1"]).exit_code == 2


def test_a_terminal_without_arrows_gets_no_traceback(tmp_path):
    done = run("hierarchy", "show", "imagenet", "--depth", "1", env={**os.environ, "PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0, done.stderr
    assert "physical entity" in done.stdout


def test_report_folder_that_is_a_file_is_one_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "taken").write_text("")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["hcep", "demo", "--output", "taken"])
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("error:")
    assert "Traceback" not in told


def test_an_input_error_is_one_line(monkeypatch, capsys):
    def fail(*_):
        raise HCEPError("no such synset")

    monkeypatch.setattr("hcep.cli.app.app", fail)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: no such synset\n"
