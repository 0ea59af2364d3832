"""One photo, one answer: terminal, JSON, tables, reports, the explorer, its API and Python say the same."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from html import unescape

import msgspec
import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

import hcep
from hcep import HCEPClassifier, Hierarchy, explain_images, roll_up
from hcep.cli.app import app
from hcep.explain.corrections import Corrections
from hcep.explain.predictions import Prediction
from hcep.explain.report import notebook_cards, photo_report
from hcep.web.engine import Engine
from hcep.web.pages.session import PhotoSession

ENCODER = "function:tests.web.test_same_words:mean_colours"
EDGES = [
    ("thing", "warm colour"), ("thing", "cold colour"), ("warm colour", "red"), ("warm colour", "orange"),
    ("cold colour", "blue"), ("cold colour", "indigo"),
]  # fmt: skip
MEANS = {"red": (250, 10, 10), "orange": (250, 120, 10), "blue": (10, 10, 250), "indigo": (10, 120, 250)}
PHOTOS = {"sure": (250, 0, 10), "between": (250, 65, 10), "lost": (130, 65, 130), "strange": (10, 250, 60)}
TEXTS, NUMBERS = ("answer", "answer_name", "rank", "class", "doubt"), ("answer_probability", "class_probability")


def mean_colours(batch):
    return batch.mean(axis=(2, 3))


def colours(n: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    y = np.repeat(list(MEANS), n)
    rng = np.random.default_rng(seed)
    return np.array([MEANS[label] for label in y]) / 255 + 0.08 * rng.standard_normal((len(y), 3)), y


@pytest.fixture(scope="module", params=["plain", "calibrated"])
def folder(request, tmp_path_factory):
    model = HCEPClassifier(Hierarchy.from_edges(EDGES), shrinkage=None, anchor=0.1).fit(*colours(30, 0))
    # As for a model that was opened; only a green photo is unlike the others.
    model.typical_, model.explained_floor_ = np.array([2.0, 0.0, 2.0]), np.full(4, -1.0)
    if request.param == "calibrated":
        model.calibrate(*colours(60, 1))
    folder = tmp_path_factory.mktemp(request.param)
    hcep.save(model, folder / "model", encoder=ENCODER)
    (folder / "photos").mkdir()
    for name, colour in PHOTOS.items():
        Image.new("RGB", (32, 32), colour).save(folder / "photos" / f"{name}.png")
    return folder


@pytest.fixture(scope="module")
def answers(folder):
    return {
        answer.file.split("/")[-1]: answer
        for answer in explain_images(folder / "photos", folder / "model", encoder=ENCODER)
    }


def run(*arguments: object) -> str:
    result = CliRunner().invoke(app, [str(argument) for argument in arguments])
    assert result.exit_code == 0, result.output
    return result.stdout


def explored(folder, file, corrections=None):
    """The answer that the page about a photo shows, and its headline, sentence and concept."""

    async def ask():
        engine = Engine(folder / "model", encoder=ENCODER, corrections=corrections)
        try:
            session = PhotoSession(engine, await engine.add_photo(file.read_bytes(), file.name))
            await session.ask()
            return session.answer, session.headline()
        finally:
            await engine.close()

    return asyncio.run(ask())


def words_of(page: str) -> str:
    """The text of a page as it is read."""
    return unescape(re.sub("<[^>]*>", "", page.replace("</h2>", "\n"))).replace("\N{NO-BREAK SPACE}", " ")


def test_the_photos_are_sure_between_classes_lost_and_strange(answers):
    assert answers["sure.png"].answer == "red"
    assert answers["between.png"].answer == "warm colour"
    assert answers["lost.png"].answer is None
    assert answers["lost.png"].headline().startswith("perhaps ")
    assert answers["strange.png"].answer is None
    assert answers["strange.png"].headline().startswith("unlike anything in training (perhaps ")


def test_the_same_words_everywhere(folder, answers):
    lines = {
        line.partition(": ")[0]: line.partition(": ")[2]
        for line in run("explain", folder / "model", folder / "photos", "--encoder", ENCODER).splitlines()
    }
    page, cards = (words_of(text) for text in (photo_report([*answers.values()]), notebook_cards([*answers.values()])))
    for name, answer in answers.items():
        words = answer.headline()
        assert lines[name] == answer.line()
        assert lines[name].startswith(words)
        assert f"{words}\n" in page
        assert f"{words}\n" in cards
        headline, sentence = explored(folder, folder / "photos" / name)[1][:2]
        first, rest = answer.headline_parts()
        assert headline == first[0].upper() + first[1:]
        assert sentence.casefold().startswith(rest.strip(" ()").casefold())


def test_the_same_numbers_everywhere(folder, answers, tmp_path):
    records = json.loads(run("explain", folder / "model", folder / "photos", "--encoder", ENCODER, "--json"))
    for kind in ("csv", "parquet"):
        run("predict", folder / "model", folder / "photos", "--encoder", ENCODER, "-o", tmp_path / f"p.{kind}")
    from_csv = list(csv.DictReader(io.StringIO((tmp_path / "p.csv").read_text(encoding="utf-8"))))
    from_parquet = pq.read_table(tmp_path / "p.parquet").to_pylist()
    model = hcep.load(folder / "model")
    for record, text, row, answer in zip(records, from_csv, from_parquet, answers.values(), strict=True):
        assert [row[field] for field in TEXTS] == [record[field] for field in TEXTS]
        # A table comes from a store of half precision.
        assert [row[field] or 0 for field in NUMBERS] == pytest.approx(
            [record[field] or 0 for field in NUMBERS], abs=0.01
        )
        assert row["answer"] == record["answer"] == answer.answer == model.predict_concept(answer.context.x[None])[0]
        assert text["answer"] == (answer.answer or "")
        assert (text["class"], text["doubt"]) == (answer.label, answer.doubt)
        assert Prediction.of(answer, "x").answer_probability == answer.answer_probability


RANKED = [("thing", "warm colour"), ("thing", "cold colour"), ("warm colour", "reddish"), ("reddish", "red")]
RANKED += [("warm colour", "orange"), ("cold colour", "bluish"), ("bluish", "blue"), ("cold colour", "indigo")]


def test_merged_concepts_with_a_rank_are_on_the_path_everywhere(folder, tmp_path):
    ranks = {"warm colour": "kind", "cold colour": "kind", "reddish": "group", "bluish": "group"}
    tree = Hierarchy.from_edges(RANKED).with_ranks(ranks | dict.fromkeys(MEANS, "class"))
    model = HCEPClassifier(tree, shrinkage=None, anchor=0.1).fit(*colours(30, 0))
    hcep.save(model, tmp_path / "model", encoder=ENCODER)
    photo, report = folder / "photos" / "sure.png", tmp_path / "report.html"
    question = ("--why-not", "orange", "--objects", "2", "--n-best", "4", "--html", report)
    text = run("explain", tmp_path / "model", photo, "--encoder", ENCODER, *question)
    assert "(warm colour → reddish → red)" in text
    assert "diverge below warm colour: one goes to reddish, the other to orange." in text
    assert "(cold colour → bluish → blue)" in text
    assert "below warm colour, orange instead of reddish" in words_of(report.read_text(encoding="utf-8"))
    forced = run("explain", tmp_path / "model", photo, "--encoder", ENCODER, "--force", "reddish")
    assert "as requested, with reddish" in forced
    for kind in ("csv", "parquet"):
        run("predict", tmp_path / "model", photo.parent, "--encoder", ENCODER, "-o", tmp_path / f"p.{kind}")
    rows = csv.DictReader((tmp_path / "p.csv").read_text(encoding="utf-8").splitlines())
    (row,) = [row for row in rows if row["id"] == "sure.png"]
    (record,) = [row for row in pq.read_table(tmp_path / "p.parquet").to_pylist() if row["id"] == "sure.png"]
    assert row["names"] == " → ".join(record["names"]) == "warm colour → reddish → red"
    # One id and one coefficient for each step of the model.
    assert (record["path"], len(record["coefficients"])) == (["warm colour", "red"], 2)
    (answer,) = explain_images(photo, tmp_path / "model", encoder=ENCODER)
    assert Prediction.of(answer, "x").names == record["names"] == answer.shown_path()


def test_a_promise_is_made_only_with_held_out_photos(folder, answers):
    is_calibrated = folder.name.startswith("calibrated")
    page, (_, sentence, _) = (
        photo_report([*answers.values()]),
        explored(folder, folder / "photos" / "between.png")[1],
    )
    for text in (page, sentence):
        assert ("held-out ones that the model was calibrated with" in text) == is_calibrated
        # A calibrated report mentions the estimate beside its promise, "the model's own estimate is lower".
        assert any(f"own estimate{end}" in text for end in ".;") == (not is_calibrated)
    assert [answer.promise is not None for answer in answers.values()] == [is_calibrated] * len(PHOTOS)


def test_roll_up_is_the_rule_of_a_model_that_is_not_calibrated(folder, answers):
    model = hcep.load(folder / "model")
    model.held_out_ = model.typical_ = None
    X = np.stack([answer.context.x for answer in answers.values()])
    rolled = roll_up(model.predict_proba(X), model.hierarchy_, classes=model.classes_.tolist())
    own = explain_images(X, model)
    assert rolled.answer.tolist() == [answer.answer for answer in own] == model.predict_concept(X).tolist()
    assert rolled.answer_name.tolist() == [answer.answer_name for answer in own]


#: What a person says about a photo, and which photo.
CORRECTIONS = {
    "the class": ("between", {"label": "indigo"}),
    "a concept above it": ("sure", {"label": "cold colour"}),
    "its own class": ("strange", {"label": "red"}),
    "none of the classes": ("lost", {"none": True}),
    "not this": ("sure", {"forbid": ["red"]}),
    "not these": ("between", {"forbid": ["red", "blue"]}),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", CORRECTIONS)
def test_a_corrected_photo_has_the_same_facts_everywhere(folder, tmp_path, kind):
    name, what = CORRECTIONS[kind]
    photo, file = folder / "photos" / f"{name}.png", tmp_path / "corrections.jsonl"
    model = hcep.load(folder / "model")
    Corrections(file, model.hierarchy_, missing=True).add(photo, who="Ann", why="I saw it", **what)
    corrections = Corrections(file, model.hierarchy_)
    (answer,) = explain_images(photo, folder / "model", encoder=ENCODER, corrections=corrections)
    options = ("--encoder", ENCODER, "--corrections", file)
    line = run("explain", folder / "model", photo, *options).strip()
    (record,) = json.loads(run("explain", folder / "model", photo, *options, "--json"))
    run("explain", folder / "model", photo, *options, "--html", tmp_path / "report.html")
    for ending in ("csv", "parquet"):
        run("predict", folder / "model", photo.parent, *options, "-o", tmp_path / f"p.{ending}")
    rows = csv.DictReader((tmp_path / "p.csv").read_text(encoding="utf-8").splitlines())
    (text,) = [row for row in rows if row["id"] == photo.name]
    (row,) = [row for row in pq.read_table(tmp_path / "p.parquet").to_pylist() if row["id"] == photo.name]
    shown, (headline, sentence, _) = explored(folder, photo, file)
    page = words_of((tmp_path / "report.html").read_text(encoding="utf-8"))
    # The records agree in every field: Python, JSON, tables, and the explorer, whose API sends both records.
    for other in (record, row, shown.to_dict(), msgspec.to_builtins(Prediction.of(shown, photo.name))):
        assert [other[field] for field in (*TEXTS, "kind")] == [answer.to_dict()[field] for field in (*TEXTS, "kind")]
        numbers = [answer.to_dict()[field] or 0 for field in NUMBERS]
        assert [other[field] or 0 for field in NUMBERS] == pytest.approx(numbers, abs=0.01)
    assert [text[field] for field in TEXTS] == [row[field] or "" for field in TEXTS]
    path = [step["name"] for step in record["path"]]
    assert (
        path == [step.name for step in shown.path] == row["names"] == [one for one in text["names"].split(" → ") if one]
    )
    assert record["corrected"] == json.loads(msgspec.json.encode(shown.correction))
    assert answer.correction.summary() == "corrected by Ann (I saw it)"
    said = f"{answer.correction.words(model.hierarchy_)}, corrected by Ann (I saw it)"
    assert text["corrected"] == row["corrected"] == Prediction.of(shown, photo.name).corrected == said
    # So do the words: terminal, report and explorer.
    assert line.startswith(answer.summary())
    assert f"{answer.headline()}\n" in page
    assert headline.rstrip(".").casefold() == answer.headline_parts()[0].casefold()
    assert "orrected by Ann (I saw it)" in sentence
    assert "corrected by Ann (I saw it)" in page
    # And no place repeats what the person said is wrong.
    named = {answer.answer_name, answer.label, *path}
    assert not named & set(what.get("forbid", ()))
    assert (answer.doubt, answer.answer_probability) == ("", None) or "forbid" in what
