"""Corrections that are kept: nothing acknowledged is lost, nothing torn is read, whatever kills the writer."""

import json
import os
import random
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from hcep import HCEPClassifier, explain_images
from hcep.errors import HCEPError
from hcep.explain.corrections import Correction, Corrections, image_hash
from hcep.pursuit.limits import PathLimits, Request
from tests.taxonomy.naming.bear_space import BEARS, bear_images

A, B = "a" * 64, "b" * 64

WRITER = """
import io, sys, time
import hcep.explain.corrections as corrections

class Slow(io.FileIO):
    def write(self, data):
        half = len(data) // 2
        super().write(data[:half])
        time.sleep(0.01)
        return half + super().write(data[half:])

corrections.open = lambda path, mode, buffering: Slow(path, "a+")
kept, first = corrections.Corrections(sys.argv[1], missing=True), int(sys.argv[2])
for i in range(first, first + 100_000):
    kept.add(f"{i:064x}", label=f"class {i}", why="x" * 1000)
    print(i, flush=True)
"""


def killed_writer(file, first, seconds):
    """What a writer said is written until it was killed."""
    command = [sys.executable, "-c", WRITER, str(file), str(first)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as writer:
        said = [int(writer.stdout.readline())]
        time.sleep(seconds)
        os.kill(writer.pid, signal.SIGKILL)
        return said + [int(line) for line in writer.stdout.read().split("\n")[:-1]]


@pytest.mark.parametrize("n_kills", [2, pytest.param(30, marks=pytest.mark.slow)])
def test_acknowledged_corrections_survive_a_kill_while_writing(tmp_path, n_kills):
    file, rng, n_kept, n_torn = tmp_path / "kept.jsonl", random.Random(0), 0, 0
    for kill in range(50):
        if kill >= n_kills and n_torn:  # on a busy machine a kill may miss the middle of a line
            break
        said = killed_writer(file, n_kept + 1, rng.uniform(0.01, 0.1))
        kept = Corrections(file)
        n_torn += kept.torn
        known = [f"{i:064x}" for i in range(1, said[-1] + 1)]
        assert kept.labels(known, ["lost"] * len(known)) == [f"class {i}" for i in range(1, said[-1] + 1)]
        assert len(kept) in (said[-1], said[-1] + 1)  # one may be on disk whose writer died before it said so
        n_kept = len(kept)
    assert n_torn > 0


def test_an_incomplete_last_line_is_ignored_and_removed(tmp_path):
    whole = tmp_path / "whole.jsonl"
    kept = Corrections(whole, missing=True)
    kept.add(A, label="Bär", why="«é»\n newline")
    first = len(whole.read_bytes())
    kept.add(B, force=["x"], why="schön")
    data = whole.read_bytes()
    torn = tmp_path / "torn.jsonl"
    for cut in range(first, len(data)):
        torn.write_bytes(data[:cut])
        found = Corrections(torn)
        assert A in found
        # Without its last brace a line is no record; without its end of line alone it is a whole one.
        assert (B in found) == (cut == len(data) - 1)
        assert found.torn == (first < cut < len(data) - 1)
        found.add("c" * 64, label="fox")
        again = Corrections(torn)
        assert not again.torn
        assert A in again
        assert "c" * 64 in again
        assert (B in again) == (cut == len(data) - 1)


@settings(max_examples=20)
@given(said=st.lists(st.tuples(st.sampled_from([A, B]), st.sampled_from(["cat", "dog", None])), max_size=9))
def test_the_last_correction_is_in_force_and_can_be_undone(tmp_path_factory, said):
    file = tmp_path_factory.mktemp("kept") / "kept.jsonl"
    kept, stacks = Corrections(file, missing=True), {A: ["?"], B: ["?"]}
    for image, label in said:
        kept.add(image, label=label, undo=label is None)
        stacks[image] = (stacks[image][:-1] or ["?"]) if label is None else [*stacks[image], label]
    for found in (kept, Corrections(file, missing=True)):
        assert found.labels([A, B], ["?", "?"]) == [stacks[A][-1], stacks[B][-1]]
        assert [image in found for image in (A, B)] == [len(stacks[image]) > 1 for image in (A, B)]


def test_a_line_has_who_when_and_why(tmp_path):
    file = tmp_path / "kept.jsonl"
    Corrections(file, missing=True).add(A, force="bear", forbid=["panda"], file="b.jpg", who="Ann", why="claws")
    line = json.loads(file.read_text("utf-8"))
    assert line.pop("when").endswith("+00:00")
    assert line == {
        "image": A, "force": ["bear"], "forbid": ["panda"], "file": "b.jpg", "who": "Ann", "why": "claws",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("line", "match"),
    [
        ('{"image": "aa"}', "kept.jsonl line 2: image must be 64 hexadecimal digits, got 'aa'"),
        (f'{{"image": "{A}", "forced": []}}', "line 2: unknown field 'forced'. Near matches: 'force'"),
        ("[1]", "line 2: the file must be a JSON object"),
        ("{oh", "line 2: not JSON"),
        (
            f'{{"image": "{A}", "force": ["beer"]}}',
            "line 2: 'beer' is not a concept of this hierarchy. Near matches: 'bear'",
        ),
        (f'{{"image": "{A}", "class": "beer"}}', "line 2: 'beer' is not a concept"),
        (f'{{"image": "{A}", "force": ["bus"], "forbid": ["vehicle"]}}', "line 2: forbid: no path has 'bus' without"),
    ],
)
def test_an_invalid_line_is_named_in_the_error(tmp_path, line, match):
    file = tmp_path / "kept.jsonl"
    file.write_text(f'{{"image": "{B}", "force": ["bus"]}}\n{line}\n\n', encoding="utf-8")
    with pytest.raises(HCEPError, match=match) as told:
        Corrections(file, BEARS)
    assert str(told.value).count("line 2") == 1


def test_only_corrections_in_force_must_be_known_to_the_hierarchy(tmp_path):
    file, wrong = tmp_path / "kept.jsonl", f'{{"image": "{A}", "class": "beer", "who": "Ann"}}\n'
    for later in ('"undo": true', '"class": "bus"'):  # taken back, superseded
        file.write_text(f'{wrong}{{"image": "{A}", {later}}}\n', encoding="utf-8")
        assert not Corrections(file, BEARS).problems
    assert Corrections(file, BEARS).requests([A]) == [Request(("bus",))]
    file.write_text(f'{wrong}{{"image": "{B}", "force": ["bus"]}}\n', encoding="utf-8")
    kept = Corrections(file, BEARS, lenient=True)
    assert len(kept.problems) == 1
    assert kept.problems[0].startswith(f"{file} line 1: 'beer' is not a concept")
    assert kept.requests([A, B]) == [Request(), Request(("bus",))]
    assert kept.applied(A) is None
    assert kept.applied(B).force == ("bus",)
    kept.add(A, label="bus")
    kept.add(A, undo=True)  # the wrong one stands again
    assert kept.requests([A]) == [Request()]
    assert A in kept


def test_a_missing_file_is_an_error_unless_it_is_allowed(tmp_path):
    with pytest.raises(HCEPError, match=r"cannot read corrections from .*none\.jsonl"):
        Corrections(tmp_path / "none.jsonl")
    assert len(Corrections(tmp_path / "none.jsonl", missing=True)) == 0
    (tmp_path / "file").touch()
    with pytest.raises(HCEPError, match=r"cannot write corrections to .*new\.jsonl"):
        Corrections(tmp_path / "file" / "new.jsonl", missing=True).add(A)


def test_a_correction_is_in_force_at_once_and_an_invalid_one_is_not_written(tmp_path):
    file, x = tmp_path / "kept.jsonl", np.arange(4.0)
    kept = Corrections(file, BEARS, missing=True)
    with pytest.raises(HCEPError, match="'beer' is not a concept"):
        kept.add(x, label="beer")
    with pytest.raises(HCEPError, match="no such file"):
        kept.add("photo.jpg", label="bus")
    assert not file.exists()
    kept.add(x, label="bus")
    assert kept.requests([x, x + 1]) == [Request(("bus",)), Request()]
    assert Corrections(file, BEARS).requests([x]) == kept.requests([x])


def test_images_are_recognised_by_their_content(tmp_path):
    photo = Image.new("RGB", (3, 2), "red")
    photo.save(tmp_path / "a.png")
    photo.save(tmp_path / "b.png")
    assert image_hash(tmp_path / "a.png") == image_hash(str(tmp_path / "b.png"))
    assert image_hash(photo) == image_hash(photo.copy()) != image_hash(Image.new("RGB", (2, 3), "red"))
    x = np.arange(4.0)
    assert image_hash(x) == image_hash(x.astype(np.float16)) != image_hash(x + 1)


def test_answers_follow_corrections_and_other_answers_stay(tmp_path):
    X, y = bear_images(24)
    model = HCEPClassifier(BEARS, shrinkage=None, anchor=0.1).fit(X, y)
    free = explain_images(X[:6], model)
    file = tmp_path / "kept.jsonl"
    Corrections(file, missing=True).add(image_hash(X[2]), label="bus", why="it is one")
    Corrections(file).add(image_hash(X[4]), forbid=[free[4].label])
    kept = explain_images(X[:6], model, corrections=Corrections(file, BEARS))
    assert kept[2].label == "bus"
    assert (kept[2].force, kept[2].forbid) == (("bus",), ())
    assert [one.correction and one.correction.why for one in kept] == [None, None, "it is one", None, "", None]
    assert kept[4].label != free[4].label
    assert [kept[i].line() for i in (0, 1, 3, 5)] == [free[i].line() for i in (0, 1, 3, 5)]
    assert PathLimits.of_images(BEARS, Corrections(file, BEARS).requests(X[:2])) is None
    both = explain_images(X[:6], model, corrections=Corrections(file, BEARS), forbid="grizzly")
    assert both[2].label == "bus"
    assert "grizzly" not in {one.label for one in both}


def test_labels_are_corrected_if_the_correction_gives_the_class(tmp_path):
    kept = Corrections(tmp_path / "kept.jsonl", missing=True)
    kept.add(A, label="cat")
    kept.add(B, force=["animal", "dog"])
    kept.add("c" * 64, force=["animal"], forbid=["fox"])
    hashes = [A, B, "c" * 64, "d" * 64]
    assert kept.labels(hashes, ["dog", None, "dog", "fox"]) == ["cat", "dog", "dog", "fox"]


def test_the_schema_of_a_line_matches_the_file():
    assert set(Correction.__struct_encode_fields__) == {
        "image", "force", "forbid", "class", "undo", "file", "who", "when", "why",
    }  # fmt: skip
