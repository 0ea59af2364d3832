"""One photo, one answer: terminal, JSON, tables, reports, the explorer, its API and Python say the same."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import re
from html import unescape

import numpy as np
import pyarrow.parquet as pq
import pytest
from PIL import Image
from typer.testing import CliRunner

import hcep
from hcep import HCEPClassifier, Hierarchy, explain_images, roll_up
from hcep.cli.app import app
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
PHOTOS = {"sure": (250, 0, 10), "between": (250, 65, 10), "lost": (130, 65, 130)}
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


def explorer(folder, file) -> tuple[str, str]:
    """Headline and sentence of the page about a photo."""

    async def ask():
        engine = Engine(folder / "model", encoder=ENCODER)
        try:
            session = PhotoSession(engine, await engine.add_photo(file.read_bytes(), file.name))
            await session.ask()
            return session.headline()[:2]
        finally:
            await engine.close()

    return asyncio.run(ask())


def words_of(page: str) -> str:
    """The text of a page as it is read."""
    return unescape(re.sub("<[^>]*>", "", page.replace("</h2>", "\n"))).replace("\N{NO-BREAK SPACE}", " ")


def test_the_photos_are_sure_between_classes_and_lost(answers):
    assert answers["sure.png"].answer == "red"
    assert answers["between.png"].answer == "warm colour"
    assert answers["lost.png"].answer is None


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
        headline, sentence = explorer(folder, folder / "photos" / name)
        sure, perhaps = answer.headline_parts()
        assert headline == sure[0].upper() + sure[1:]
        assert perhaps.strip(" ()").removeprefix("perhaps ") in sentence


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


def test_a_promise_is_made_only_with_held_out_photos(folder, answers):
    is_calibrated = folder.name.startswith("calibrated")
    page, (_, sentence) = photo_report([*answers.values()]), explorer(folder, folder / "photos" / "between.png")
    for text in (page, sentence):
        assert ("held-out ones that the model was calibrated with" in text) == is_calibrated
        assert ("own estimate" in text) == (not is_calibrated)
    assert [answer.promise is not None for answer in answers.values()] == [is_calibrated] * 3


def test_roll_up_is_the_rule_of_a_model_that_is_not_calibrated(folder, answers):
    model = hcep.load(folder / "model")
    model.held_out_ = None
    X = np.stack([answer.context.x for answer in answers.values()])
    rolled = roll_up(model.predict_proba(X), model.hierarchy_, classes=model.classes_.tolist())
    own = explain_images(X, model)
    assert rolled.answer.tolist() == [answer.answer for answer in own] == model.predict_concept(X).tolist()
    assert rolled.answer_name.tolist() == [answer.answer_name for answer in own]
