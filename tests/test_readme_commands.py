"""Every `hcep` command of README.md in a plain `pip install .`: it ends well, or with one clear sentence."""

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

PROJECT = Path(__file__).parents[1]
#: Commands that would measure for an hour or fetch gigabytes: their --help must be there, the rest is tested elsewhere.
LONG = ("data ", "serve")


def commands(text):
    blocks = re.findall(r"^```sh\n(.*?)^```", text, flags=re.MULTILINE | re.DOTALL)
    lines = [line.partition("  #")[0].strip() for block in blocks for line in block.splitlines()]
    return [line for line in lines if line.startswith("hcep ")]


def test_there_are_commands_to_run():
    assert len(commands((PROJECT / "README.md").read_text("utf-8"))) > 8
    assert commands("```sh\nhcep demo   # shows it\npip install x\n```\n") == ["hcep demo"]


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    """The command in an environment of its own with the core alone, and a folder with what README's commands name."""
    folder = tmp_path_factory.mktemp("plain")
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    install = [folder / "venv/bin/python", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", PROJECT]
    subprocess.run(install, check=True, capture_output=True)
    rng = np.random.default_rng(0)
    for split in ("train", "val"):
        for name in ("n01440764", "n02102040", "n03000684"):
            place = folder / "work" / "photos" / split / name
            place.mkdir(parents=True)
            for i in range(3):
                Image.fromarray(rng.integers(0, 255, (40, 40, 3), np.uint8)).save(place / f"{i}.jpg")
    work = folder / "work"
    (work / "animals.csv").write_text("parent,child\nanimal,cat\nanimal,dog\n", encoding="utf-8")
    (work / "classes.txt").write_text("cat\ndog\n", encoding="utf-8")
    Image.new("RGB", (60, 40), "red").save(work / "photo.jpg")
    return folder


@pytest.mark.slow
def test_every_command_ends_well_or_with_one_sentence(plain):
    text = (PROJECT / "README.md").read_text("utf-8")
    environment = {**os.environ, "HCEP_SHARED": str(plain / "nothing"), "HCEP_CACHE": str(plain / "cache")}
    environment.pop("PYTHONPATH", None)
    bad = []
    for command in commands(text):
        words = shlex.split(command)[1:]
        if any(f" {long}" in f" {' '.join(words)} " for long in LONG):
            words = [*words[:1], "--help"]
        run = subprocess.run(
            [plain / "venv/bin/hcep", *words], cwd=plain / "work", env=environment, capture_output=True, text=True,
            timeout=300, check=False,
        )  # fmt: skip
        errors = [line for line in run.stderr.splitlines() if line.startswith("error:")]
        well = run.returncode == 0 or (run.returncode in (1, 2) and len(errors) == 1)
        if not well or "Traceback" in run.stderr:
            bad.append((command, run.returncode, run.stderr[-600:]))
    assert bad == []
