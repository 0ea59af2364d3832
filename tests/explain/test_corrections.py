"""Corrections that are kept: nothing acknowledged is lost, nothing torn is read, whatever kills the writer."""

import csv
import itertools
import json
import os
import random
import signal
import subprocess
import sys
import threading
import time

import numpy as np
import pytest
from hypothesis import given, settings, strategies as st
from PIL import Image

from hcep import HCEPClassifier, Hierarchy, explain_images
from hcep.errors import HCEPError
from hcep.explain.corrections import Correction, Corrections, image_hash
from hcep.explain.predictions import write_predictions
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


@pytest.mark.slow
def test_acknowledged_corrections_survive_a_kill_while_writing(tmp_path):
    file, rng, n_kept, n_torn = tmp_path / "kept.jsonl", random.Random(0), 0, 0
    for kill in range(50):
        if kill >= 30 and n_torn:  # on a busy machine a kill may miss the middle of a line
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
        ("{oh", "line 2 is not JSON; a corrections file"),
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


CORRECTIONS = [
    ({"label": "vehicle"}, "vehicle", "a vehicle (vehicle)", "vehicle"),
    ({"force": "vehicle"}, "vehicle", "a vehicle (vehicle)", "vehicle"),
    ({"none": True}, None, "none of the known classes", "none of the known classes"),
    ({"force": BEARS.root}, None, "none of the known classes", "none of the known classes"),
    ({"label": "lorry", "under": "vehicle"}, "lorry", "a lorry (vehicle)", "lorry"),
    ({"label": "bus"}, "bus", "a bus (vehicle → bus)", "bus"),
]


@pytest.mark.parametrize(("what", "answer", "line", "words"), CORRECTIONS)
def test_an_answer_says_exactly_what_a_person_said(tmp_path, what, answer, line, words):
    X, y = bear_images(24)
    model = HCEPClassifier(BEARS, shrinkage=None, anchor=0.1).fit(X, y)
    corrections = Corrections(tmp_path / "kept.jsonl", BEARS, missing=True)
    corrections.add(image_hash(X[0]), who="Ann", **what)
    corrected = explain_images(X[:1], model, corrections=Corrections(tmp_path / "kept.jsonl", BEARS))[0]
    assert (corrected.answer, corrected.line()) == (answer, line)
    assert corrected.answer_probability is None
    assert (corrected.doubt, corrected.kind, corrected.promise) == ("", None, None)
    assert corrected.correction.words(BEARS) == words
    write_predictions(
        model.path_model(), X[:2], tmp_path / "p.csv", ids=np.arange(2), corrections={0: corrected.correction}
    )
    rows = list(csv.DictReader((tmp_path / "p.csv").read_text("utf-8").splitlines()))
    said = rows[0]["answer"] or None, rows[0]["answer_probability"], rows[0]["corrected"]
    assert said == (answer, "", f"{words}, corrected by Ann")
    assert rows[0]["names"] == corrected.names().replace("no concept", "")
    assert rows[1]["corrected"] == ""


def test_a_merged_rank_stays_what_was_named(tmp_path):
    table = [("Rosales", "Rosaceae", "Rosa", "canina"), ("Rosales", "Rosaceae", "Rosa", "arvensis"),
             ("Asterales", "Asteraceae", "Bellis", "perennis")]  # fmt: skip
    edges = [edge for path in table for edge in itertools.pairwise(("plant", *path))]
    h = Hierarchy.from_edges(list(dict.fromkeys(edges)))
    corrections = Corrections(tmp_path / "kept.jsonl", h.collapse(), missing=True)
    corrections.add(A, label="Rosaceae")
    assert corrections.in_force[A].label == "Rosaceae"
    assert corrections.in_force[A].words(h.collapse()) == "Rosaceae"


def test_a_new_class_is_below_the_merged_concept_that_was_named(tmp_path):
    edges = [("thing", "artefact"), ("artefact", "building"), ("building", "church"), ("artefact", "car")]
    h = Hierarchy.from_edges([*edges, ("thing", "animal")])
    corrections = Corrections(tmp_path / "kept.jsonl", h.collapse(), missing=True)
    corrections.add(A, label="cathedral", under="Building")
    corrections.add(B, label="church", under="building")  # it is a class already
    assert [(one.label, one.under) for one in corrections.in_force.values()] == [
        ("cathedral", "building"),
        ("church", None),
    ]
    assert corrections.new_classes(h) == {"cathedral": "building"}
    with pytest.raises(HCEPError, match="'building' is already in the hierarchy, and not under 'church'"):
        corrections.add(A, label="building", under="church")


def test_a_place_where_a_known_class_is_not_is_refused(tmp_path):
    corrections = Corrections(tmp_path / "kept.jsonl", BEARS, missing=True)
    with pytest.raises(
        HCEPError, match="'bus' is already in the hierarchy, and not under 'grizzly'; leave out --under"
    ):
        corrections.add(A, label="bus", under="grizzly")
    assert A not in corrections


def test_an_unknown_class_names_near_matches_and_how_to_add_it(tmp_path):
    corrections = Corrections(tmp_path / "kept.jsonl", BEARS, missing=True)
    with pytest.raises(HCEPError, match=r"Near matches: 'bus'.*To add 'buss' as a class, also give .*--under CONCEPT"):
        corrections.add(A, label="buss")
    with pytest.raises(HCEPError, match="'vehikle' is not a concept"):
        corrections.add(A, label="buss", under="vehikle")
    corrections.add(A, label="lorry", under="vehicle")
    corrections.add(B, label="bus", under="vehicle")  # it is a class already
    assert [(one.label, one.under) for one in corrections.in_force.values()] == [("lorry", "vehicle"), ("bus", None)]


def test_two_writers_see_each_other_and_lose_nothing(tmp_path):
    file = tmp_path / "kept.jsonl"
    first, second = (Corrections(file, BEARS, missing=True) for _ in range(2))
    threads = [
        threading.Thread(target=lambda one=one, k=k: [one.add(f"{i:063x}{k}", label="bus") for i in range(20)])
        for k, one in enumerate((first, second))
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    second.add(A, label="car")
    first.add(A, label="bus", why="last")
    for one in (first, second):
        one.refresh()
        assert len(one) == 41
        assert one.in_force[A].why == "last"
        assert [line.label for line in one.history if line.image == A] == ["car", "bus"]
    file.write_text("")  # replaced by hand
    assert not first.refresh()
    assert len(first) == 0


def test_labels_are_corrected_if_the_correction_gives_the_class(tmp_path):
    kept = Corrections(tmp_path / "kept.jsonl", missing=True)
    kept.add(A, label="cat")
    kept.add(B, force=["animal", "dog"])
    kept.add("c" * 64, force=["animal"], forbid=["fox"])
    hashes = [A, B, "c" * 64, "d" * 64]
    assert kept.labels(hashes, ["dog", None, "dog", "fox"]) == ["cat", "dog", "dog", "fox"]


def test_the_schema_of_a_line_matches_the_file():
    assert set(Correction.__struct_encode_fields__) == {
        "image", "force", "forbid", "class", "undo", "file", "who", "when", "why", "none", "under",
    }  # fmt: skip
