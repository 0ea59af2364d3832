"""No command writes over a file that it did not make, unless it is told to."""

import os
import sys

import numpy as np
import pytest
import typer.main
from PIL import Image
from typer.testing import CliRunner

from hcep import HCEPClassifier
from hcep.cli.app import app
from hcep.embeddings import load_encoder
from hcep.errors import HCEPError
from hcep.models.saving import save_model
from tests.cli.test_workflow import run
from tests.taxonomy.naming.bear_space import BEARS, bear_images

ENCODER = "function:tests.taxonomy.naming.bear_space:colour_vectors"
MINE = "what I wrote myself\n"
#: What a command says of a file of the user's, by command and output; {mine} is the file, {x} another input.
REFUSED = {
    ("predict", "output"): "predict {model} {x} -o {mine}.csv",
    ("rollup", "output"): "rollup {x} --hierarchy {tree} -o {mine}.csv",
    ("explain", "html"): "explain {model} {photo} --html {mine}.html",
    ("explain", "where_png"): "explain {model} {photo} --where-png {mine}.png",
    ("evaluate", "output"): "evaluate {model} {x} -o {mine}.md",
    ("evaluate", "per_image"): "evaluate {model} {x} --per-image {mine}.csv",
    ("audit", "output"): "audit {model} {x} -o {mine}.html",
    ("audit", "figures"): "audit {model} {x} --figures {mine}",
    ("hierarchy convert", "target"): "hierarchy convert {tree} {mine}.json",
    ("hierarchy lint", "output"): "hierarchy lint {tree} --fix -o {mine}.json",
    ("hierarchy edit", "output"): "hierarchy edit {tree} --rename cat=dog -o {mine}.json",
    ("induce", "output"): "induce llm {x} -o {mine}.json --llm m",
    ("induce", "record"): "induce llm {x} -o {new}.json --llm m --record {mine}.json",
    ("interpret", "output"): "interpret {model} -o {mine}.md",
    ("fit", "output"): "fit {data} --hierarchy flat -o {mine}",
    ("open", "output"): "open {x} -o {mine}",
    ("encode", "output"): "encode {photos} -e " + ENCODER + " -o {mine}",
}
#: Outputs that are a folder of the command's own.
OWN = {("demo", "output"), ("data", "output")}
OUTPUTS = {"output", "target", "html", "where_png", "per_image", "figures", "record"}


def commands(group, above=()):
    for name, command in group.commands.items():
        path = (*above, name)
        if hasattr(command, "commands"):
            yield from commands(command, path)
        else:
            yield " ".join(path), command


def test_every_output_of_every_command_is_in_the_table():
    known = {
        (name, option.name)
        for name, command in commands(typer.main.get_command(app))
        for option in command.params
        if option.name in OUTPUTS
    }
    assert known == set(REFUSED) | OWN


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    X, y = bear_images(20)
    model = save_model(HCEPClassifier(BEARS).fit(X, y), folder / "model", encoder=load_encoder(ENCODER))
    (folder / "tree.csv").write_text("parent,child\nanimal,cat\nanimal,cat2\n")
    np.savez(folder / "data.npz", vectors=X, labels=y)
    (folder / "photos" / "red").mkdir(parents=True)
    photo = folder / "photos" / "red" / "red.png"
    Image.new("RGB", (8, 8), (255, 0, 0)).save(photo)
    given = {name.split(".")[0]: folder / name for name in ("tree.csv", "data.npz", "photos")}
    return {"model": model, "photo": photo, **given}


@pytest.mark.parametrize(("command", "option"), REFUSED)
def test_an_existing_file_is_refused(inputs, tmp_path, command, option):
    given = {"x": tmp_path / "x.txt", "new": tmp_path / "new", "mine": tmp_path / "mine", **inputs}
    (tmp_path / "x.txt").write_text("a\nb\n")
    words = [word.format(**given) for word in REFUSED[command, option].split()]
    mine = next(word for word in words if os.path.basename(word).startswith("mine"))
    with open(mine, "w") as file:
        file.write(MINE)
    with pytest.raises(HCEPError, match=r"exists already|not a folder|is a file|create the folder"):
        CliRunner().invoke(app, words, catch_exceptions=False)
    with open(mine) as file:
        assert file.read() == MINE
    assert sorted(os.listdir(tmp_path)) == sorted([os.path.basename(mine), "x.txt"])


# -- names of other bytes ------------------------------------------------------------------------------------------


@pytest.fixture
def oddly_named(inputs, tmp_path):
    path = os.fsencode(tmp_path) + b"/caf\xe9 \xff.png"
    try:
        with open(path, "wb") as file:
            file.write(inputs["photo"].read_bytes())
    except OSError as refusal:
        pytest.skip(f"this file system takes only UTF-8 names: {refusal}")
    return os.fsdecode(path)


def test_a_name_of_other_bytes_in_a_report(inputs, oddly_named, tmp_path):
    report = tmp_path / "report.html"
    words = ["explain", inputs["model"], oddly_named, "--encoder", ENCODER, "--html", report]
    report.write_text(MINE)
    with pytest.raises(HCEPError, match="exists already; pass --overwrite"):
        CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)
    assert report.read_text() == MINE
    run(*words, "--overwrite")
    text = report.read_bytes().decode("utf-8")  # strictly
    assert "caf\ufffd \ufffd.png" in text
    assert MINE not in text


@pytest.mark.parametrize("form", [[], ["--tree"], ["--json"]])
def test_a_name_of_other_bytes_on_the_terminal(inputs, oddly_named, monkeypatch, capfd, form):
    from hcep.cli import app as app_module

    monkeypatch.setattr(app_module, "answer_interrupts", lambda: None)
    words = ["explain", inputs["model"], oddly_named, inputs["photo"], "--encoder", ENCODER, *form]
    monkeypatch.setattr(sys, "argv", ["hcep", *map(str, words)])
    with pytest.raises(SystemExit) as ended:
        app_module.main()
    said, aside = capfd.readouterr()
    assert (ended.value.code or 0, aside) == (0, "")
    assert "caf\ufffd \ufffd.png" in said
