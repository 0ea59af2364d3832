"""The loop in a real browser, with real photos: look, correct by keyboard, learn, look again, undo."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import shutil
import threading
import time
import urllib.request
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from hcep import explain_images
from hcep.embeddings import Embeddings, EmbeddingStore, import_embeddings
from hcep.errors import HCEPError
from hcep.explain.corrections import Corrections, image_hash
from hcep.hierarchy import Hierarchy
from hcep.models import read_model
from hcep.web.project import OF_PHOTOS, Project
from tests.web.at_hand import BUILT_IN, looks_well
from tests.web.conftest import PATIENCE


def corrections_in(file):
    lines = [json.loads(line) for line in file.read_text("utf-8").splitlines()]
    return [{key: line[key] for key in ("class", "none", "under", "forbid", "undo") if key in line} for line in lines]


def at(page, n):
    """Wait until the work dialog shows group n."""
    page.locator(".work [role=status]").get_by_text(re.compile(f"^{n} of")).wait_for()


def wait_until(is_done):
    while not is_done():
        time.sleep(0.1)


@pytest.fixture(scope="module")
def working(start_server, ten, tmp_path_factory):
    """A server whose model and corrections may change, and their files."""
    folder = tmp_path_factory.mktemp("loop")
    shutil.copytree(ten.model, folder / "model")
    file = folder / "corrections.jsonl"
    return start_server(folder / "model", "--store", ten.store, "--corrections", file), folder / "model", file


@pytest.mark.slow
def test_photos_are_decided_by_keyboard_learned_and_undone(working, page):
    server, model, file = working
    page.goto(server.url + "collection")
    page.get_by_role("button", name="Most informative").click()
    page.wait_for_selector(".work .large")
    before = page.locator(".work .large").get_attribute("src")
    page.keyboard.press("s")
    page.wait_for_function("src => document.querySelector('.work .large').getAttribute('src') !== src", arg=before)
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("src => document.querySelector('.work .large').getAttribute('src') === src", arg=before)
    page.keyboard.press("w")
    page.keyboard.type("the label on the drawer")
    page.keyboard.press("Enter")
    for n, key in enumerate(("2", "n", "x", "1"), start=1):
        page.keyboard.press(key)
        at(page, n + 1)
    whys = [json.loads(line).get("why") for line in file.read_text("utf-8").splitlines()]
    assert whys[0] == "the label on the drawer"
    assert whys[-1] is None  # the reason was for one decision
    page.keyboard.press("u")
    at(page, 4)
    page.keyboard.press("c")
    page.keyboard.type("kitchen thing")
    page.get_by_role("button", name="At the top of the tree").wait_for()
    page.get_by_role("button", name="Add “kitchen thing” as a new class below").click()
    at(page, 5)
    said = [list(line) for line in corrections_in(file)]
    assert [kind for i, kind in enumerate(said) if i == 0 or kind != said[i - 1]] == [
        ["class"], ["none"], ["forbid"], ["class"], ["undo"], ["class", "under"],
    ]  # fmt: skip
    page.get_by_role("button", name="Close").first.click()
    page.get_by_text("photos decided.").wait_for()
    learn = page.get_by_role("button", name="Learn from")
    n_before = len(read_model(model).classes)
    learn.click()
    page.get_by_text("The model learned from").wait_for()
    assert page.get_by_text("held-out photos").count() == 1
    assert len(read_model(model).classes) == n_before + 1
    page.get_by_role("button", name="Undo", exact=True).click()
    page.get_by_role("button", name="Learn from").wait_for()
    assert len(read_model(model).classes) == n_before


def test_a_new_class_can_go_below_other_concepts_than_the_guess():
    pytest.importorskip("nicegui", reason="NiceGUI is not installed (extra web)")
    from hcep.web.pages.search import places_for_a_class

    edges = [("r", "animal"), ("r", "thing"), ("r", "sky"), ("animal", "feline"), ("feline", "cat"), ("feline", "lion")]
    h = Hierarchy.from_edges([*edges, ("thing", "car"), ("thing", "cup"), ("animal", "dog")])
    assert places_for_a_class(h, ["cat", "feline", "animal"]) == ["feline", "animal", "thing", "r"]
    assert places_for_a_class(h, ["sky"]) == ["animal", "thing", "r"]


@pytest.mark.slow
@pytest.mark.parametrize("width", [390, 1280])
def test_a_notice_can_be_read_on_every_page(start_server, new_page, tmp_path, width):
    server, page = start_server(tmp_path / "project"), new_page(width=width)
    page.goto(server.url + "project")
    page.get_by_role("button", name="Use this tree").click()
    notice = page.locator(".q-notification")
    notice.get_by_text("Paste a table").wait_for()
    ground = notice.evaluate("one => getComputedStyle(one).backgroundColor")
    assert ground.startswith("rgb(")  # with an alpha it would be rgba(
    words = notice.locator(".q-notification__message").bounding_box()
    assert words["width"] > 0.6 * notice.bounding_box()["width"]


@pytest.mark.slow
def test_photos_that_are_dropped_while_others_are_sent_are_taken_too(start_server, photos, tmp_path, page):
    server = start_server(tmp_path / "project")
    page.goto(server.url + "project")
    several = page.locator("input[type=file]:not([webkitdirectory])")
    several.set_input_files(photos[:4])
    several.set_input_files(photos[4:6])
    page.get_by_text("6 photos in").wait_for()
    page.goto(server.url)
    page.get_by_text("Drop a photo here").wait_for()
    kept = f"They are kept in {tmp_path / 'project' / 'photos'}."
    assert page.get_by_text(kept).count() == 0  # off by default
    page.goto(server.url + "project")
    page.get_by_label("Keep dropped photos").check()
    wait_until(lambda: json.loads((tmp_path / "project" / "project.json").read_bytes())["keep"])
    page.goto(server.url)
    page.get_by_text(kept).wait_for()


@pytest.mark.slow
def test_two_browsers_correct_at_once_and_nothing_is_lost(working, new_page):
    """Ada and Ben decide on the same photos and on different ones, in turns and at the same moment."""
    server, _, file = working
    n_before = len(file.read_text("utf-8").splitlines()) if file.exists() else 0

    def opened(name):
        page = new_page()
        page.goto(server.url + "collection")
        page.get_by_role("button", name="Least sure").click()
        page.get_by_label("Your name").fill(name)
        page.locator(".work").focus()
        return page

    def lines():
        return [json.loads(line) for line in file.read_text("utf-8").splitlines()][n_before:]

    ada, ben = opened("Ada"), opened("Ben")
    ada.keyboard.press("1")
    at(ada, 2)
    ben.keyboard.press("n")
    at(ben, 2)
    ada.keyboard.press("u")  # Ben has decided since, so that nothing is undone
    ada.get_by_text("somebody has changed the decision since").wait_for()
    at(ada, 1)
    photo = lines()[0]["image"]
    assert [(one["who"], list(one)[1]) for one in lines() if one["image"] == photo] == [
        ("Ada", "class"),
        ("Ben", "file"),
    ]
    ada.keyboard.press("s")
    at(ada, 2)
    for n in range(3, 9):  # both at the same moment, on the same photos and then on different ones
        ada.keyboard.press("1")
        ben.keyboard.press("n" if n < 6 else "s")
        at(ada, n)
        at(ben, n)
    by_name = {name: [one for one in lines() if one["who"] == name] for name in ("Ada", "Ben")}
    assert {one["image"] for one in by_name["Ben"]} < {one["image"] for one in by_name["Ada"]}
    assert all(one["none"] for one in by_name["Ben"])
    in_force = Corrections(file).in_force
    assert all(in_force[one["image"]].who == one["who"] for one in {one["image"]: one for one in lines()}.values())
    ben.keyboard.press("ArrowLeft")
    at(ben, 7)
    ben.get_by_text("corrected by Ada").wait_for()
    ada.locator(".work").get_by_role("button", name="Close").click()
    ada.get_by_text(f"{len(in_force)} of ").wait_for()  # closing draws the page anew, with its buttons
    ada.get_by_role("button", name=re.compile("^Corrected")).click()
    ada.get_by_role("button", name=re.compile("none of the known classes.*corrected by Ben", re.DOTALL)).first.click()
    ada.wait_for_selector(".work .large")
    ada.keyboard.press("e")
    ada.get_by_role("tab", name="This is wrong").click()
    history = ada.get_by_label("History of this photo").inner_text()
    assert "Ada" in history
    assert "none of the known classes, Ben" in history


#: In the browser: a visitor who is faster than the pages, with the key C as soon as there is a dialog, and with the
#: key S as soon as other words are shown after a name.
HURRY = """() => {
  const press = (key) => document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
  const words = () => document.querySelector(".work [role=status]")?.innerText;
  let has_typed = false, is_named = false;
  new MutationObserver(() => {
    if (!has_typed && document.querySelector(".work .large")) [has_typed] = [true, press("c")];
    if (!is_named && words()?.startsWith("2 of")) [is_named] = [true, press("s")];
  }).observe(document.documentElement, { subtree: true, childList: true, characterData: true });
}"""


#: In the browser: some keys at the same moment.
PRESS = """keys => {
  for (const key of keys) document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}"""


@pytest.mark.slow
def test_no_key_of_a_hurried_visitor_is_lost(working, page):
    server, _, file = working
    page.goto(server.url + "collection")
    queue = page.get_by_role("button", name="Most different from training")
    queue.wait_for()
    n_before = len(corrections_in(file)) if file.exists() else 0
    page.evaluate(HURRY)
    queue.click()
    page.wait_for_function("document.activeElement.id === 'find-correct'")
    page.wait_for_timeout(200)  # nothing takes the keyboard from the field later on
    page.keyboard.type("church")
    assert page.input_value("#find-correct") == "church"
    page.keyboard.press("Enter")
    at(page, 3)
    new = corrections_in(file)[n_before:]  # one for each of the look-alikes
    assert new == [{"class": "n03028079"}] * max(len(new), 1)
    assert page.input_value("#find-correct") == ""
    page.evaluate(PRESS, "ee")
    page.get_by_role("tab", name="Why not").wait_for()
    assert page.get_by_role("tab", name="Why not").count() == 1
    page.keyboard.press("c")
    page.keyboard.press("Escape")
    page.keyboard.press("e")
    page.get_by_role("tab", name="Why not").wait_for(state="detached")
    page.evaluate(PRESS, "es")
    at(page, 4)
    page.wait_for_timeout(1000)
    assert page.get_by_role("tab", name="Why not").count() == 0  # it would explain the photo before
    page.keyboard.press("u")
    at(page, 1)


@pytest.mark.slow
def test_the_work_dialog_is_accessible_and_fits_a_phone(working, new_page):
    server, _, _ = working

    def work(page):
        page.get_by_role("button", name="Least sure").click()
        page.wait_for_selector(".work .large")

    def explain(page):
        page.keyboard.press("e")
        page.get_by_role("tab", name="Why not").wait_for()

    looks_well(new_page, server.url + "collection", ".gallery .tile", work, explain)


@pytest.mark.slow
def test_the_photo_dialog_has_next_previous_and_every_action_of_the_photo_page(working, page):
    server, _, file = working
    page.goto(server.url + "collection")
    page.locator(".gallery .tile").nth(3).click()
    status, card = page.locator(".work [role=status]").first, page.locator(".work > .photo-card")
    status.get_by_text("4 of 300").wait_for()
    page.keyboard.press("ArrowRight")
    status.get_by_text("5 of 300").wait_for()
    page.keyboard.press("ArrowLeft")
    status.get_by_text("4 of 300").wait_for()
    page.keyboard.press("e")
    page.get_by_label("Why is it a tench and not").fill("church")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="For church").wait_for()
    page.get_by_role("tab", name="Why not").press("ArrowRight")
    page.get_by_role("button", name="Without animal").click()
    page.locator(".explanation").get_by_text("what if: without animal").wait_for()
    status.get_by_text("4 of 300").wait_for()  # the arrow went from tab to tab, not from photo to photo
    page.locator(".explanation").get_by_role("button", name="Reset").first.click()
    page.locator(".explanation").get_by_text("what if: without animal").wait_for(state="detached")
    page.get_by_role("tab", name="This is wrong").click()
    page.get_by_role("button", name="None of the known classes", exact=True).click()
    card.get_by_text("none of the known classes: corrected by").wait_for()
    n_lines = len(corrections_in(file))
    page.get_by_role("tab", name="How it searched").click()
    page.get_by_role("button", name="Start").click()
    page.get_by_text("Level 1 of").wait_for()
    page.locator(".work").focus()
    page.keyboard.press("ArrowRight")
    status.get_by_text("5 of 300").wait_for()
    assert page.get_by_role("tab", name="Why not").count() == 0
    assert len(corrections_in(file)) == n_lines


CLASSES = {"n01440764": "tench", "n02102040": "springer", "n03417042": "truck", "n03028079": "church"}
TABLE = "kind\tclass\nanimal\ttench\nanimal\tspringer\nartefact\ttruck\nartefact\tchurch\n"
#: Photos of no class of the tree: those of parachutes stay so, those of chain saws become a class.
OTHERS = {"n03888257": "parachute", "n03000684": "chain saw"}


@pytest.fixture
def folder(photos, tmp_path):
    """Photos of four classes, a third of them in a wrong folder, and of two others; also held-out photos by class."""
    names, held_out = list(CLASSES.values()), {}
    for wnid, name in (CLASSES | OTHERS).items():
        own = [photo for photo in photos if photo.parent.name == wnid]
        held_out[name] = own[9:17]
        for i, photo in enumerate(own[: 9 if name in names else 4]):
            label = names[i] if name in OTHERS.values() else names[(names.index(name) + 1) % 4] if i < 3 else name
            target = tmp_path / "photos" / label / f"{name}-{i}.jpg"
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(photo, target)
    return tmp_path / "photos", {name: held_out[name] for name in names}, held_out["chain saw"]


def accuracy(model, held_out):
    return np.mean([
        answer.label == name for name, photos in held_out.items() for answer in explain_images(photos, model)
    ])  # fmt: skip


def shown_photos(page):
    """The folder and the true name of the large photo, and then of its look-alikes."""
    photos = page.locator(".work .large, .work .alike .bare:not(:first-child) img")
    return [
        re.search(r"([^/]+)/([^/]+)-\d+\.jpg$", alt).groups()
        for alt in photos.evaluate_all("all => all.map(one => one.alt)")
    ]


def decide_by_keyboard(page, known, at_family):
    """Decide about the photo, with its look-alikes if they have the same label and the same name; skip right labels.

    Names that the search has are typed without a look at the matches; others are added as a class.
    """
    before = page.locator(".work [role=status]").first.inner_text()
    (label, name), *others = shown_photos(page)
    if any(other != (label, name) for other in others):
        page.keyboard.press("o")
        page.wait_for_function("() => document.querySelector('.work .alike .bare:last-child').ariaPressed === 'false'")
    if label == name:
        page.keyboard.press("s")
    elif name == "parachute":
        page.keyboard.press("n")
    else:
        page.keyboard.press("c")
        page.keyboard.type("animal" if at_family else name)
        if name not in known:
            page.get_by_role("button", name=f"Add “{name}” as a new class").wait_for()
            page.keyboard.press("Tab")
            known.add(name)
        page.keyboard.press("Enter")
    page.wait_for_function("words => document.querySelector('.work [role=status]').innerText !== words", arg=before)


@pytest.mark.slow
def test_a_project_from_nothing_learns_from_twenty_corrections(start_server, folder, new_page, tmp_path):
    photos, held_out, saws = folder
    project = tmp_path / "project"
    server, page = start_server(project), new_page()
    page.goto(server.url + "project")
    page.locator("input[type=file][webkitdirectory]").set_input_files(photos)
    page.get_by_text("44 photos in 4 classes.").wait_for()
    page.get_by_label("Table of the tree").fill(TABLE)
    page.get_by_role("button", name="Use this tree").click()
    page.get_by_text("In use: 4 classes").wait_for()
    page.get_by_role("button", name="Fit the model").click()
    page.wait_for_selector("progress[aria-label=Fitting][value]")
    page.get_by_text("The model has 4 classes.").wait_for()
    before = accuracy(project / "model", held_out)
    page.goto(server.url + "collection")
    page.get_by_role("button", name="Least sure").click()
    page.wait_for_selector(".work .large")
    known, families = {*CLASSES.values()}, {"tench": 1, "springer": 1}  # the first of each is corrected to "animal"
    while page.locator(".work .large").count():
        label, name = shown_photos(page)[0]
        at_family = label != name and bool(families.pop(name, 0))
        decide_by_keyboard(page, known, at_family)
    corrections = corrections_in(project / "corrections.jsonl")
    assert len(corrections) == 20
    assert sum("none" in one for one in corrections) == 4
    assert sum(one.get("class") == "animal" for one in corrections) >= 2
    assert {one["class"] for one in corrections if "under" in one} == {"chain saw"}
    page.get_by_role("button", name="Close").first.click()
    page.get_by_text("20 of 44 photos decided.").wait_for()
    page.get_by_text("People corrected 20 photos.").wait_for()
    assert page.get_by_role("heading", level=1).inner_text() == "44 photos in project"
    page.get_by_role("button", name="Learn from 20 corrections").click()
    page.wait_for_selector("progress[aria-label=Learning]")
    page.get_by_text("The model learned from 20 corrections").wait_for()
    learned = read_model(project / "model")
    assert accuracy(project / "model", held_out) > before
    assert accuracy(project / "model", {"chain saw": saws}) > 0.5
    page.goto("about:blank")
    server.stop()
    again, page = start_server(project), new_page()
    page.goto(again.url + "collection")
    page.get_by_role("button", name="Corrected 20").wait_for()
    assert read_model(project / "model").document.checksum == learned.document.checksum
    page.goto(again.url + "hierarchy")
    page.get_by_role("tab", name="Versions").click()
    page.get_by_role("button", name="Undo the last change").click()
    page.get_by_text("The last change was undone").first.wait_for()
    assert accuracy(project / "model", held_out) == before
    assert len(read_model(project / "model").classes) == 4
    page.goto(again.url + "collection")
    page.get_by_role("button", name="Learn from 20 corrections").wait_for()


#: In the browser: milliseconds from each key to the next words of the dialog.
WATCH = """() => {
  const words = () => document.querySelector(".work [role=status]")?.innerText;
  let began = 0, last = words();
  window.steps = [];
  addEventListener("keydown", () => { began = performance.now(); }, true);
  new MutationObserver(() => {
    if (!began || words() === last) return;
    window.steps.push(performance.now() - began);
    [began, last] = [0, words()];
  }).observe(document.body, { subtree: true, childList: true, characterData: true });
}"""


@pytest.mark.slow
@pytest.mark.alone
def test_a_queue_of_ten_thousand_photos_opens_in_two_seconds_and_steps_in_a_tenth(start_server, ten, page, tmp_path):
    small, rng, n = EmbeddingStore(ten.store), np.random.default_rng(0), 10_000
    rows = rng.integers(0, len(small), n)
    X, y = small.to_numpy(np.float32)[rows], small.labels[rows]
    X += 0.8 * X.std() * rng.normal(size=X.shape).astype(np.float32)
    files = np.array([str(tmp_path / f"{i}.jpg") for i in range(n)])
    for file in files:
        Image.fromarray(rng.integers(0, 255, (8, 8, 3), dtype=np.uint8)).save(file)
    import_embeddings(
        Embeddings(X, y, paths=files), tmp_path / "store", encoder=BUILT_IN, fingerprint=small.encoder.fingerprint
    )
    corrections = Corrections(tmp_path / "corrections.jsonl", missing=True)
    corrections.add_all([(image_hash(file), file) for file in files[:3000].tolist()], none=True, who="Ada")
    server = start_server(ten.model, "--store", tmp_path / "store", "--corrections", corrections.path)
    page.goto(server.url + "collection")
    queue = page.get_by_role("button", name="Least sure")
    queue.wait_for()  # the first visit computes the answers
    page.goto(server.url + "collection")
    queue.wait_for()
    page.wait_for_timeout(2000)
    start = time.monotonic()
    queue.click()
    page.wait_for_selector(".work .large")
    assert time.monotonic() - start < 2
    page.wait_for_timeout(1000)
    page.evaluate(WATCH)
    keys = {"next": "s", "back": "ArrowLeft", "accept": "1", "none": "n", "not this": "x", "undo": "u"}
    for key in keys.values():
        for n_steps in range(1, 6):
            page.keyboard.press(key)
            page.wait_for_function("n => window.steps.length % 5 === n % 5", arg=n_steps)
    times = np.array(page.evaluate("window.steps")).reshape(len(keys), 5)
    typical = np.sort(times, axis=1)[:, 1]  # the second fastest, as the browser itself uses the same cores
    assert {name: float(row) for name, row in zip(keys, typical, strict=True) if row >= 100} == {}


@pytest.mark.slow
def test_kills_while_correcting_learning_and_fitting_leave_the_old_or_the_new(start_server, photos, browser, tmp_path):
    """`HCEP_FUZZ_SEED` repeats the moments of a run."""
    rng, project = random.Random(int(os.environ["HCEP_FUZZ_SEED"])), Project(tmp_path / "project")
    of_class = {name: [p for p in photos if p.parent.name == wnid] for wnid, name in CLASSES.items()}
    for name, own in of_class.items():
        for photo in own[:3]:
            project.keep_photo(photo.read_bytes(), f"{name}/{photo.name}")
    with pytest.raises(HCEPError, match="paste a tree of them first"):
        project.fit(print)
    project.set_tree(TABLE)
    notes, steps = [], []
    project.fit(notes.append, on_progress=lambda *step: steps.append(step))
    assert [words for _, words in steps][:2] == ["Encoding the photos: 12 of 12", "Fitting the model"]
    assert [share for share, _ in steps] == sorted(share for share, _ in steps)
    assert notes == ["tree.tsv: level columns kind > class, 2 levels, 4 classes"]
    acknowledged = []

    def correct(server, page):
        """Correct until the server is gone."""
        names = list(CLASSES.values())
        with suppress(OSError):
            for i in itertools.count():
                photo = of_class[names[i % 4]][rng.randrange(2)]  # the third keeps every class in the model
                what = {"image": image_hash(photo), "class": rng.choice(names), "who": str(len(acknowledged))}
                request = urllib.request.Request(server.url + "api/v1/corrections", json.dumps(what).encode())
                request.add_header("Content-Type", "application/json")
                urllib.request.urlopen(request, timeout=30).close()
                acknowledged.append(what["who"])

    def learn(server, page):
        page.goto(server.url + "collection")
        page.get_by_role("button", name="Learn from").click()

    def fit(server, page):
        name, own = rng.choice(list(of_class.items()))
        photo = own[3 + len(fitted)]
        project.keep_photo(photo.read_bytes(), f"{name}/{photo.name}")
        fitted.append(name)
        page.goto(server.url + "project")
        page.get_by_role("button", name="Fit the model").click()

    fitted, server = [], start_server(project.folder)
    for round_, (act, longest) in enumerate([(correct, 1.5), (learn, 2.0), (fit, 4.0)] * 3):
        before, n_stored = read_model(project.model).document.checksum, len(project.store)
        page = browser.new_context().new_page()
        page.set_default_timeout(PATIENCE)
        killer = threading.Timer(rng.uniform(0.05, longest), server.process.kill) if act is correct else None
        if killer is not None:
            killer.start()
        act(server, page)
        if killer is None:
            time.sleep(rng.uniform(0, longest))
            server.process.kill()
        server.process.wait(30)
        page.context.close()
        history = Corrections(project.corrections, missing=True).history
        assert [one.who for one in history][: len(acknowledged)] == acknowledged
        assert len(history) - len(acknowledged) in (0, 1)  # one may be on disk that was not acknowledged yet
        acknowledged[:] = [one.who for one in history]
        model = read_model(project.model)
        assert len(model.classifier.classes_) == 4
        assert act is not correct or model.document.checksum == before
        assert len(project.store) in ((n_stored, 12 + len(fitted)) if act is fit else (n_stored,))
        server = start_server(project.folder)
        facts = json.loads(urllib.request.urlopen(server.url + "api/v1/model", timeout=60).read())
        assert (facts["classes"], facts["read_only"]) == (4, False), round_
    project.fit(print)  # what a kill left is no obstacle
    assert len(project.store) == 12 + len(fitted)


def test_a_project_keeps_photos_only_in_its_own_folder(tmp_path):
    project = Project(tmp_path / "p")
    assert not project.keep
    for name in ("../../evil.jpg", "/etc/passwd", "cats\\a.jpg", "cats/a.jpg", "", "a/../..", "x\0y.jpg"):
        file = project.keep_photo(name.encode(), name)
        assert file.resolve().is_relative_to(project.photos.resolve())
    assert project.n_photos()[0] == 7
    project.set_keep(True)
    assert Project(tmp_path / "p").keep


def test_a_folder_of_photos_is_a_project_that_leaves_the_photos_alone(photos, tmp_path, monkeypatch):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra photos)")
    monkeypatch.chdir(tmp_path)
    of_class = {name: [p for p in photos if p.parent.name == wnid][:3] for wnid, name in CLASSES.items()}
    for name, own in of_class.items():
        (tmp_path / "museum" / name).mkdir(parents=True)
        for photo in own:
            shutil.copy(photo, tmp_path / "museum" / name)
    project = Project("museum")
    assert project.n_photos() == (12, 4)
    assert project.photos == tmp_path / "museum"
    hierarchy = project.set_tree(TABLE.replace("church", "chapel"))
    assert project.missing_classes(hierarchy) == ["church"]
    project.set_tree(TABLE)
    project.fit(print)
    assert sorted(file.name for file in (tmp_path / "museum").iterdir()) == sorted([*CLASSES.values(), OF_PHOTOS])
    again = Project(tmp_path / "museum")
    assert all(Path(path).is_absolute() for path in again.store.paths)
    assert (again.n_photos(), again.has_model, len(again.store)) == ((12, 4), True, 12)
    again.fit(print)  # what the project has written is not a class
    assert len(again.store) == 12
    moved = Project(shutil.move(tmp_path / "museum", tmp_path / "attic"))
    assert all(Path(path).is_file() and Path(path).is_relative_to(moved.photos) for path in moved.store.paths)


def test_photos_without_a_folder_and_new_classes_of_corrections_do_not_stop_a_fit(photos, tmp_path):
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra photos)")
    project = Project(tmp_path / "p")
    with pytest.raises(HCEPError, match="no photos yet"):
        project.fit(print)
    of_class = {name: [p for p in photos if p.parent.name == wnid] for wnid, name in (CLASSES | OTHERS).items()}
    for name in CLASSES.values():
        for photo in of_class[name][:3]:
            project.keep_photo(photo.read_bytes(), f"{name}/{photo.name}")
    kept = [project.keep_photo(photo.read_bytes(), photo.name) for photo in of_class["chain saw"][:3]]
    project.set_tree(TABLE)
    corrections = Corrections(project.corrections, missing=True)
    for photo in kept[:2]:
        corrections.add(photo, label="chain saw", under="artefact")
    notes = []
    project.fit(notes.append)
    assert any("3 images without a class" in note for note in notes)
    model = read_model(project.model)
    assert model.training.images_per_class == dict.fromkeys(CLASSES.values(), 3) | {"chain saw": 2}
    assert model.hierarchy.parents("chain saw") == ("artefact",)
    assert project.tree.read_text("utf-8") == TABLE


def test_a_tree_that_cannot_be_read_leaves_the_earlier_one(tmp_path):
    project = Project(tmp_path / "p")
    project.set_tree(TABLE)
    with pytest.raises(HCEPError, match="cycle"):
        project.set_tree("parent,child\na,b\nb,a\n")
    with pytest.raises(HCEPError, match="the table has one column; it needs one column per level"):
        project.set_tree("just one word")
    with pytest.raises(HCEPError) as raised:
        project.set_tree("a,b\n1,2,3\n,\n")
    assert "-O" not in str(raised.value)
    assert "draft" not in str(raised.value)
    assert project.tree.read_text("utf-8") == TABLE
    assert sorted(file.name for file in project.folder.iterdir()) == ["project.json", "tree.tsv"]
    with pytest.raises(HCEPError, match="there are no photos yet"):
        project.fit(print)
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "file").touch()
    with pytest.raises(HCEPError, match="neither a model nor a project, and has no photos"):
        Project(tmp_path / "other")
    (tmp_path / "other" / "file").unlink()
    (tmp_path / "other" / "project.json").write_text("[1")
    with pytest.raises(HCEPError, match="does not hold the settings of a project"):
        Project(tmp_path / "other")
