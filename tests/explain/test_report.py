"""Reports are templates: every text that somebody else wrote is shown as text, and the page works without a network."""

import json
import re

import numpy as np
import pytest
from PIL import Image

from hcep import HCEPClassifier, Hierarchy, explain_images
from hcep._checks import render_html
from hcep.explain.answer import Answer, PictureObject, Rival, Step, TrainingPhoto
from hcep.explain.corrections import Correction
from hcep.explain.report import TEMPLATES, ReportTable, notebook_cards, photo_report

EVIL = "<img src=x onerror=alert(1)>\"'><script>alert(2)</script>{{ 7 * 7 }}\x1b[31m\u202e&amp;"


def hostile_answer() -> Answer:
    """An answer in which every text is hostile."""
    return Answer(
        file=f"/tmp/{EVIL}.jpg",
        label=EVIL,
        name=EVIL,
        probability=0.5,
        truth="other" + EVIL,
        answer=EVIL + EVIL,
        answer_name=EVIL,
        answer_probability=0.9,
        rank=EVIL,
        promise=EVIL,
        kind=EVIL,
        path=(Step(EVIL, EVIL, (EVIL, EVIL), 1.0, 0.5, EVIL, 0.5),),
        objects=(PictureObject(EVIL, 1.0, (EVIL,), (EVIL,)),),
        rivals=(Rival(EVIL, EVIL, 0.2, ("x", EVIL), ("x", EVIL)),),
        nearest=(TrainingPhoto(EVIL, EVIL, EVIL, 1.0),),
        correction=Correction("0" * 64, who=EVIL, why=EVIL),
    )


@pytest.mark.parametrize(
    "render",
    [
        lambda a: photo_report([a], EVIL, EVIL, [ReportTable(EVIL, EVIL, [[EVIL], [EVIL]])], [(EVIL, EVIL)]),
        lambda a: notebook_cards([a]),
    ],
)
def test_hostile_texts_are_escaped_everywhere(render):
    page = render(hostile_answer())
    own = {(TEMPLATES / name).read_text("utf-8") for name in ("page.css", "page.js")}
    for text in own:
        page = page.replace(text, "")
    assert "<img src=x" not in page
    assert page.count("<script") <= 2  # the report's own two
    assert "alert(2)</script>" not in page
    assert not set("\x1b\u202e") & set(page)
    assert "{{ 7 * 7 }}" in page  # a name is no template
    assert "&lt;img src=x onerror=alert(1)&gt;" in page
    assert "&amp;amp;" in page
    for attribute in re.findall(r'(?:alt|title|data-class|data-file|data-name)="([^"]*)"', page):
        assert not set("<>'") & set(attribute)


def test_only_a_long_report_leaves_out_cards_until_they_are_in_view():
    report = [Answer(file=f"{i}.jpg", label="cat", name="cat", probability=0.9) for i in range(61)]
    assert "<main class=many>" in photo_report(report)
    assert "<main>" in photo_report(report[:60])  # so that a picture or a print of the page has all cards
    style = (TEMPLATES / "page.css").read_text("utf-8")
    assert style.count("content-visibility:auto") == style.count(".many .card{content-visibility:auto") == 1


def test_a_misspelled_value_in_a_template_is_an_error(tmp_path):
    (tmp_path / "page.html").write_text("{{ tilte }}")
    with pytest.raises(Exception, match="'tilte' is undefined"):
        render_html(tmp_path / "page.html", title="a")


@pytest.fixture(scope="module")
def answers(tmp_path_factory):
    """Four photos in folders named after their classes, one of them wrongly."""
    rng, colours = np.random.default_rng(0), {"red": (250, 0, 0), "green": (0, 250, 0), "blue": (0, 0, 250)}
    X = np.repeat(np.array(list(colours.values())) / 255, 8, axis=0) + 0.05 * rng.normal(size=(24, 3))
    tree = Hierarchy.from_edges([("colour", "warm"), ("warm", "red"), ("warm", "green"), ("colour", "blue")])
    model = HCEPClassifier(tree, shrinkage=None, anchor=0.1).fit(X, np.repeat(list(colours), 8))
    folder = tmp_path_factory.mktemp("photos")
    for label, colour in {**colours, "warm": (250, 0, 0)}.items():
        (folder / label).mkdir()
        Image.new("RGB", (20, 20), colour).save(folder / label / "photo.png")
    Image.new("RGB", (20, 20), "red").save(folder / "blue" / "red.png")
    encoder = "function:tests.explain.test_report:mean_colours"
    return explain_images(folder, model, encoder=encoder)


def mean_colours(batch):
    return batch.mean(axis=(2, 3))


def test_a_report_counts_and_marks_what_is_right(answers):
    page = photo_report(answers, "Colours", "Four photos.", [ReportTable("Heads", "", [["head"], ["cell"]])])
    assert page.count("<article ") == len(answers) == 5
    assert [re.findall(r'data-ok="(.?)"', page).count(mark) for mark in ("1", "0", "")] == [3, 1, 1]
    assert "<b>3 of 4</b> right, judging by the folder names (75.0 %)" in page
    assert "<p>Four photos.</p>" in page
    assert "<th>head</th>" in page
    assert "<td>cell</td>" in page
    assert re.findall(r"<option>(\w+)</option>", page) == ["blue", "green", "red"]
    assert "The folder says blue." in page
    assert not re.findall(r'(?:src|href)="(?!data:)', page)  # one file, which fetches nothing


def test_the_json_of_an_answer_has_all_its_fields(answers):
    record = json.loads(json.dumps(answers[0].to_dict()))
    first = ["image", "answer", "answer_name", "answer_probability", "rank", "class", "name", "probability"]
    assert list(record)[:8] == first
    assert record["class_probability"] == record["probability"]
    assert record["doubt"] == answers[0].doubt
    assert [step["name"] for step in record["path"]] == [step.name for step in answers[0].path]
    copy = answers[0].replaced(file="other.png", source=None)
    assert (copy.file, copy.context.source, copy.label) == ("other.png", None, answers[0].label)
    assert answers[0].context.source is not None


def test_what_a_person_said_is_no_guess(answers):
    one = answers[0].corrected(Correction(image="0" * 64, label="scarlet", under=answers[0].path[0].synset, who="Ann"))
    page = photo_report([one])
    assert "corrected by Ann" in page
    assert 'class="chip open"' not in page
    assert "% likely</span>" not in page
