"""Collections: photos by concept, what is doubtful or wrong, and files of it; a hundred thousand stay smooth."""

from __future__ import annotations

import csv
import io
import os
import shutil
import time
from pathlib import Path
from types import SimpleNamespace
from urllib.error import HTTPError
from urllib.request import urlopen

import numpy as np
import pytest
from PIL import Image

from hcep import HCEPClassifier, Hierarchy, save
from hcep.datasets import load_sample, make_hierarchical_concepts
from hcep.embeddings import Embeddings, EmbeddingStore, import_embeddings
from hcep.embeddings.images import ImageProblem
from hcep.explain.corrections import Corrections
from hcep.hierarchy.names import with_article
from hcep.models import read_model
from hcep.web import charts, collection as collections
from hcep.web.collection import (
    Photos,
    StorePhotos,
    View,
    answer_photos,
    cached_answers,
    class_numbers,
    flat_map,
    look_alikes,
)
from tests.cli.test_own_data import COLOURS, ENCODER, picture, run
from tests.web.at_hand import looks_well

HOSTILE = "=cmd|' /C calc'!A0<script>alert(1)</script>"


class Vectors(Photos):
    """Photos without pictures."""

    key, title = "0" * 20, "vectors"

    def __init__(self, X, names, labels):
        self.X, self.names, self.labels, self.n_read = X, names, labels, 0
        self.ids = [f"{i:064x}" for i in range(1, len(X) + 1)]

    def blocks(self):
        for start in range(0, len(self.X), 7):
            self.n_read += 1
            yield self.X[start : start + 7]

    def vectors(self, rows):
        return self.X[rows]

    def picture(self, row):
        raise ImageProblem("no such file")


@pytest.fixture(scope="module")
def animals():
    """animal -> (cat, dog); vehicle -> (car, bus); six photos of each, one dog called a cat, one without a label."""
    h = Hierarchy.from_edges(
        [
            ("r", "animal"),
            ("r", "vehicle"),
            ("animal", "cat"),
            ("animal", "dog"),
            ("vehicle", "car"),
            ("vehicle", "bus"),
        ],
        {"cat": HOSTILE},
    )
    means = {"cat": [4, 1, 0, 0], "dog": [4, -1, 0, 0], "car": [0, 0, 4, 1], "bus": [0, 0, 4, -1]}
    y = np.repeat(list(means), 6)
    X = np.array([means[c] for c in y]) + np.random.default_rng(0).normal(0, 0.1, (24, 4))
    model = HCEPClassifier(h, shrinkage=0.5, anchor=0.1).fit(X, y).path_model()
    labels = [*y.tolist()]
    labels[6], labels[18] = "cat", None
    return model, Vectors(X.astype(np.float32), [HOSTILE, *(f"{i}.jpg" for i in range(1, 24))], labels)


@pytest.fixture(scope="module")
def looked(animals):
    return answer_photos(*animals)


def test_every_photo_is_answered_as_the_model_answers_it(animals, looked):
    model, photos = animals
    found = model.infer(photos.X)
    assert (looked.predicted == found.class_index).all()
    assert (looked.node == found.nodes).all()
    assert np.allclose(looked.probability, found.probabilities.max(axis=1))


def test_a_view_filters_and_sorts_photos(looked):
    h = looked.model.hierarchy
    animal = next(v for v in range(h.path_tree.n_nodes) if looked.node_name(v) == "animal")
    assert looked.rows(View()).tolist() == list(range(24))
    assert looked.rows(View(node=animal)).tolist() == list(range(12))
    assert looked.rows(View(show="mistakes")).tolist() == [6]
    assert looked.rows(View(common=h.index("animal"))).tolist() == [6]
    assert not len(looked.rows(View(common=h.index("r"))))
    assert looked.rows(View(group=(3, 20), node=animal)).tolist() == [3]
    assert (np.diff(looked.probability[looked.rows(View(sort="unsure"))]) >= 0).all()
    assert looked.rows(View(sort="worst"))[0] == 6
    assert looked.distance[6] == 2


def test_mistakes_are_grouped_by_the_concept_above_truth_and_answer(looked):
    assert looked.confusions() == [("animal", 1, HOSTILE, "dog", 1)]


def test_the_score_separates_photos_that_the_model_was_fitted_on(tmp_path):
    model = tmp_path / "own"
    for c, (label, colour) in enumerate(COLOURS.items()):
        for i in range(9):
            folder = tmp_path / "photos" / ("train" if i < 6 else "val") / label
            folder.mkdir(parents=True, exist_ok=True)
            picture(colour, 10 * c + i).save(folder / f"{i}.png")
    run("fit", tmp_path / "photos", "--encoder", ENCODER, "--hierarchy", "flat", "-o", model)
    saved, store = read_model(model), EmbeddingStore(model / "store")
    found = answer_photos(saved.path_model, StorePhotos(store))
    right = int(found.masks["right"].sum())
    new = int((found.masks["right"] & (store.splits == "val")).sum())
    assert found.score(saved) == (
        f"{right} of 36 answers match the labels ({100 * right / 36:.1f} %). But 24 of them are photos that the model "
        f"was fitted on. Of the others, {new} of 12 answers match the labels ({100 * new / 12:.1f} %)."
    )
    alone = shutil.copytree(model, tmp_path / "model", ignore=shutil.ignore_patterns("store"))
    assert "But 24 of them are photos of the split train. Of the others," in found.score(read_model(alone))
    old = answer_photos(saved.path_model, StorePhotos(store.select(splits="train")))
    assert old.score(saved).endswith(
        "but all are photos that the model was fitted on, so this says nothing about new photos."
    )
    out = cached_answers(saved, StorePhotos(store.select(splits="train")), lambda n: None)
    right = int((out.left_out == out.truth).sum())
    assert out.score(saved) == (
        "The model was fitted on these photos. Without each photo in turn, "
        f"{right} of 24 answers match the labels ({100 * right / 24:.1f} %)."
    )
    assert (cached_answers(saved, StorePhotos(store.select(splits="val")), lambda n: None).left_out == -1).all()
    assert answer_photos(saved.path_model, StorePhotos(store.select(splits="val"))).score(saved) == (
        f"{new} of 12 answers match the labels ({100 * new / 12:.1f} %)."
    )


def test_corrected_photos_count_as_corrected_and_say_what_was_said(animals, tmp_path):
    model, photos = animals
    corrections = Corrections(tmp_path / "corrections.jsonl", model.hierarchy, missing=True)
    collection = answer_photos(model, photos, corrections=corrections)
    wrong = int(np.flatnonzero(collection.masks["mistakes"])[0])
    assert not collection.masks["corrected"].any()
    vehicle = next(v for v in range(model.hierarchy.path_tree.n_nodes) if collection.node_name(v) == "vehicle")
    n_vehicles = collection.counts(np.arange(len(collection)))[vehicle]
    corrections.add(photos.ids[wrong], label="vehicle", who="Ann")
    corrections.add(photos.ids[0], none=True, who="Bea", why="a toy")
    assert np.flatnonzero(collection.masks["corrected"]).tolist() == [0, wrong]
    assert not collection.masks["mistakes"][wrong]
    assert collection.tile(0) | {"tone": ""} == {
        "name": "none of the known classes", "sure": "", "row": 0, "note": "corrected by Bea (a toy)", "tone": "",
    }  # fmt: skip
    assert (collection.headline(wrong), collection.path(wrong), collection.doubt(wrong)) == (
        "a vehicle",
        ["vehicle"],
        "",
    )
    rows = list(csv.DictReader(io.StringIO(collection.table(np.array([0, wrong, 2])))))
    assert [row["answer"] for row in rows[:2]] == ["", "vehicle"]
    assert [row["corrected"] for row in rows] == [
        "none of the known classes, corrected by Bea (a toy)", "vehicle, corrected by Ann", "",
    ]  # fmt: skip
    page = collection.report(np.array([0, wrong]), "two photos")
    assert "none of the known classes" in page
    assert "corrected by Ann" in page
    assert wrong in collection.rows(View(node=vehicle))
    counts = collection.counts(np.arange(len(collection)))
    assert (counts[vehicle], counts[0]) == (n_vehicles + 1, len(collection))
    assert collection.at_level(np.array([0, wrong]), 1).tolist() == [0, vehicle]  # a photo of no class is at the root
    corrections.add(photos.ids[wrong], undo=True)
    assert collection.counts(np.arange(len(collection)))[vehicle] == n_vehicles
    corrections.add(photos.ids[wrong], label="vehicle", who="Ann")
    fitted = SimpleNamespace(training=SimpleNamespace(data=""), folder=tmp_path)
    assert collection.score(fitted).endswith("People corrected 2 photos.")
    assert "21 of 21 answers" in collection.score(fitted)


def test_a_photo_that_is_not_a_class_is_nowhere_answered_with_it(animals, tmp_path):
    model, photos = animals
    corrections = Corrections(tmp_path / "corrections.jsonl", model.hierarchy, missing=True)
    collection = answer_photos(model, photos, corrections=corrections)
    row = int(np.flatnonzero(collection.sureness > 0.9)[0])
    name = collection.class_names[collection.predicted[row]]
    assert name in collection.headline(row)
    corrections.add(photos.ids[row], forbid=[name], who="Ann")
    cells = next(csv.DictReader(io.StringIO(collection.table(np.array([row])))))
    assert name not in collection.headline(row)
    assert name not in collection.path(row)
    assert name not in (cells["answer_name"], cells["name"])
    assert cells["corrected"] == f"not {name}, corrected by Ann"
    answer = collection.explained([row])[row]
    assert (cells["class"], cells["class_probability"]) == (answer.label, f"{answer.probability:.4f}")


def test_labels_above_the_classes_are_scored_too(animals):
    model, photos = animals
    labels = [*photos.labels]
    labels[0], labels[1], labels[13], labels[14] = "animal", "vehicle", "Vehicle", "furniture"
    collection = answer_photos(model, Vectors(photos.X, photos.names, labels))
    right, mistakes = collection.masks["right"], collection.masks["mistakes"]
    assert right[[0, 13]].all()
    assert np.flatnonzero(mistakes).tolist() == [1, 6]
    assert collection.is_wrong[1]
    assert not collection.is_wrong[[0, 13]].any()
    assert not collection.masks["known"][14]
    assert collection.label_words(0) == ("The label says animal.", "good")
    assert collection.label_words(1) == ("The label says vehicle.", "bad")
    assert collection.tile(1)["note"].endswith("label: vehicle")
    assert {row[:3] for row in collection.confusions()} == {("r", 1, "vehicle"), ("animal", 1, HOSTILE)}
    assert collection.distance[1] == 3
    assert [1] in collection.queue("mislabelled")
    cells = list(csv.DictReader(io.StringIO(collection.table(np.array([0, 1, 14])))))
    assert [row["right"] for row in cells] == ["yes", "no", ""]
    saved = SimpleNamespace(training=SimpleNamespace(data=""), folder=Path("nowhere"))
    assert collection.score(saved) == "20 of 22 answers match the labels (90.9 %)."


def test_queues_put_look_alikes_together_and_find_wrong_labels(animals, tmp_path):
    model, photos = animals
    corrections = Corrections(tmp_path / "corrections.jsonl", model.hierarchy, missing=True)
    collection = answer_photos(model, photos, corrections=corrections)
    assert collection.queue("mislabelled") == [[6]]  # the dog called a cat, left out of the cats
    for kind in collections.QUEUES:
        groups = collection.queue(kind)
        assert all(len({int(collection.predicted[row]) for row in rows}) == 1 for rows in groups)
        assert len({row for rows in groups for row in rows}) == sum(map(len, groups))
    unsure = [row for rows in collection.queue("unsure") for row in rows]
    assert collection.probability[unsure[0]] == collection.probability.min()
    corrections.add(photos.ids[unsure[0]], label="cat")
    assert unsure[0] not in [row for rows in collection.queue("unsure") for row in rows]


def test_wrong_labels_are_found_although_the_model_was_fitted_to_them():
    sample, rng = load_sample(), np.random.default_rng(0)
    names = np.unique(sample.y_train)[:4]
    rows = np.concatenate([np.flatnonzero(sample.y_train == name)[:10] for name in names])
    X, labels, wrong = sample.X_train[rows], sample.y_train[rows].copy(), [0, 1, 12, 13, 24, 25, 36, 37]
    labels[wrong] = [rng.choice(names[names != label]) for label in labels[wrong]]
    model = HCEPClassifier(sample.hierarchy).fit(X, labels).path_model()
    photos = Vectors(X, [str(i) for i in range(40)], labels.tolist())
    collection = answer_photos(model, photos, fitted=np.ones(40, dtype=bool))
    found = [row for group in collection.queue("mislabelled") for row in group]
    assert set(found) <= set(wrong)
    assert len(found) >= 6
    row = found[0]
    words, tone = collection.label_words(row)
    name = sample.hierarchy.name(str(sample.y_train[rows[row]]))
    assert f"The label agrees, but without this photo the model would say: {with_article(name)}, " in words
    assert tone == "warn"
    least = [one for group in collection.queue("unsure") for one in group]
    assert collection.unseen[1][least[0]] == collection.unseen[1].min()
    assert collection.probability[least[0]] > collection.unseen[1][least[0]]  # the model has seen the photo
    groups = [group for kind in ("unsure", "informative") for group in collection.queue(kind)]
    assert all(len({str(sample.y_train[rows[row]]) for row in group}) == 1 for group in groups)


def test_groups_of_look_alikes_are_small_and_of_one_class():
    rng = np.random.default_rng(0)
    centres = rng.normal(size=(5, 8))
    points = np.repeat(centres, 40, axis=0) + rng.normal(0, 0.01, (200, 8))
    predicted = np.repeat([0, 0, 1, 1, 2], 40).astype(np.int32)
    group, alike = look_alikes(points.astype(np.float32), predicted, np.arange(200) == 7)
    sizes = np.bincount(group)
    assert sizes.max() == 20
    assert all(len(set((np.flatnonzero(group == g) // 40).tolist())) == 1 for g in np.unique(group))
    assert alike.max() < 40
    assert (group == group[7]).sum() == 1


@pytest.mark.slow
def test_ten_thousand_photos_are_queued_at_once(animals):
    model, _ = animals
    rng = np.random.default_rng(0)
    X = rng.normal(size=(10_000, 4)).astype(np.float32)
    collection = answer_photos(model, Vectors(X, [str(i) for i in range(len(X))], [None] * len(X)))
    start = time.thread_time()
    for kind in collections.QUEUES:
        collection.queue(kind)
    assert time.thread_time() - start < 2.0


def test_counts_add_up_and_the_outline_has_parents_first(looked):
    counts = looked.counts(looked.rows(View()))
    assert counts[0] == 24
    names = [looked.node_name(v) for v in looked.outline(counts)]
    assert names.index("animal") < names.index("dog")


def test_a_chart_begins_where_paths_part(looked):
    counts = looked.counts(looked.rows(View()))
    animal = next(v for v in looked.children(0, counts) if looked.node_name(v) == "animal")
    dogs = looked.counts(np.flatnonzero(looked.predicted == looked.class_names.index("dog")))
    assert looked.fork(0, counts) == 0
    assert looked.fork(0, dogs) == animal  # nothing else has photos; the leaf itself has nothing below
    assert charts.concepts(looked, dogs, animal)["data"][0]["values"] == [6, 6]
    nobody = looked.counts(np.empty(0, dtype=np.int64))
    assert charts.concepts(looked, nobody, animal)["data"][0]["values"] == [0]


def test_no_cell_of_the_table_is_a_formula(looked):
    rows = list(csv.DictReader(io.StringIO(looked.table(np.array([0, 6, 18])))))
    assert not [cell for row in rows for cell in row.values() if cell[:1] in "=+-@" and cell]
    assert [row["right"] for row in rows] == ["yes", "no", ""]


def test_names_are_escaped_in_reports_and_charts(looked):
    page = looked.report(np.array([6, 0]), "two")
    assert "<script>alert" not in page
    assert page.index("6.jpg") < page.index("data-n=1")
    figure = charts.concepts(looked, looked.counts(looked.rows(View())), 0)
    assert not [label for label in figure["data"][0]["labels"] if "<" in label]
    assert not [word for word in charts.map_of(looked, ["#000000"] * 24, None)["data"][0]["text"] if "<" in word]


def unrecorded(model, checksum):
    """A saved model that does not say what it was fitted on."""
    training = SimpleNamespace(data=None, images_per_class={})
    document = SimpleNamespace(checksum=checksum)
    return SimpleNamespace(path_model=model, document=document, training=training, folder=Path("nowhere"))


def test_a_collection_is_answered_without_a_cache(animals, tmp_path, monkeypatch):
    model, photos = animals
    (tmp_path / "file").touch()
    monkeypatch.setattr(collections, "cache_folder", lambda *_: tmp_path / "file")
    saved = unrecorded(model, "a" * 64)
    assert len(cached_answers(saved, photos, lambda n: None).predicted) == len(photos.names)


def test_a_collection_is_answered_once_per_model(animals, tmp_path, monkeypatch):
    model, photos = animals
    monkeypatch.setattr(collections, "cache_folder", lambda *_: tmp_path)
    seen = []

    def found_with(checksum):
        saved = unrecorded(model, checksum)
        return cached_answers(saved, photos, seen.append)

    first = found_with("a" * 64)
    assert sum(seen) == 24
    again = found_with("a" * 64)
    assert sum(seen) == 24
    assert (again.predicted == first.predicted).all()
    found_with("b" * 64)
    assert sum(seen) == 48
    next(tmp_path.glob("*-aaaa*")).write_bytes(b"PK\x03\x04 cut short")
    assert (found_with("a" * 64).predicted == first.predicted).all()


def test_labels_are_matched_to_classes_by_label_or_name(animals):
    assert class_numbers(animals[0], ["DOG", None, "wolf", HOSTILE]).tolist() == [3, -1, -1, 2]


def test_a_map_is_the_same_in_every_run_and_separates_groups():
    points = np.repeat(np.eye(5, dtype=np.float32)[:2], 20, axis=0)
    found = flat_map(points)
    assert (found == flat_map(points)).all()
    assert np.linalg.norm(found[0] - found[-1]) > 1
    assert flat_map(points[:, :1]).shape == (40, 2)


def test_umap_is_used_where_it_is_installed(monkeypatch):
    class UMAP:
        def __init__(self, random_state):
            assert random_state == 0

        def fit_transform(self, flat):
            return flat[:, 1:3]

    points = np.random.default_rng(0).normal(size=(80, 6)).astype(np.float32)
    plain = flat_map(points)
    monkeypatch.setattr(collections, "is_installed", lambda name: name == "umap")
    monkeypatch.setattr(collections, "require", lambda *_: type("umap", (), {"UMAP": UMAP}))
    assert np.allclose(flat_map(points)[:, 0], plain[:, 1])


def test_a_store_only_serves_its_own_photos_by_row(tmp_path):
    Image.new("RGB", (9, 9), "red").save(tmp_path / "a.png")
    paths = np.array([str(tmp_path / "a.png"), str(tmp_path / "gone.png")])
    import_embeddings(Embeddings(np.eye(2, dtype=np.float32), paths=paths), tmp_path / "store", encoder="none")
    photos = StorePhotos(EmbeddingStore(tmp_path / "store"))
    assert photos.picture(0).getpixel((0, 0)) == (255, 0, 0)
    assert photos.names[0].endswith("/a.png")
    with pytest.raises(ImageProblem, match="no such file"):
        photos.picture(1)
    with pytest.raises(IndexError):
        photos.picture(2)


# -- in a browser ----------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_gallery_can_be_filtered_and_downloaded(served, page, tmp_path):
    page.goto(served.url + "collection")
    page.wait_for_selector(".tile img")
    assert page.get_by_role("heading", level=1).inner_text() == "300 photos in store"

    page.get_by_role("list", name="Concepts below").get_by_role("button", name="animal").click()
    page.wait_for_selector("text=60 shown")
    page.get_by_role("navigation", name="Concept").get_by_role("button", name="All concepts").click()
    page.wait_for_selector("text=300 shown")

    page.locator(".chart .slice", has_text="church").click()  # the chart says the same as the list
    page.wait_for_selector("text=30 shown")
    page.locator(".chart .slice", has_text="artifact").first.click()  # in its middle: up
    page.wait_for_selector("text=240 shown")
    page.get_by_role("button", name="All concepts").click()
    page.wait_for_selector("text=300 shown")

    page.get_by_role("button", name="Mistakes").first.click()
    page.wait_for_selector(".toolbar .chip[aria-pressed=true]:has-text('Mistakes')")
    n = int(page.locator(".toolbar [role=status]").inner_text().split()[0])
    with page.expect_download() as saving:
        page.get_by_role("button", name="Download the photos shown as CSV").click()
    rows = list(csv.DictReader(io.StringIO(saving.value.path().read_text(encoding="utf-8-sig"))))
    assert len(rows) == n
    assert {row["right"] for row in rows} == {"no"}
    with page.expect_download() as saving:
        page.get_by_role("button", name="Download a report of the photos").click()
    assert saving.value.path().read_text(encoding="utf-8").count("<article") == n

    page.locator(".tile").first.click()
    page.wait_for_selector(".photo-card .path li")
    assert "The label says" in page.locator(".photo-card").inner_text()
    page.get_by_role("button", name="Close").click()

    page.get_by_role("tab", name="Mistakes").click()
    page.get_by_role("list", name="By the concept above both").get_by_role("button").first.click()
    page.wait_for_selector("text=mistakes within")


@pytest.mark.slow
def test_a_lasso_on_the_map_shows_the_paths_of_a_group(served, page):
    page.goto(served.url + "collection")
    page.wait_for_selector(".tile img")
    page.get_by_role("tab", name="Map").click()
    page.wait_for_selector(".chart .nsewdrag:visible")
    area, before = page.locator(".chart .nsewdrag:visible").bounding_box(), None
    while area != before:  # until the chart has found its place
        page.wait_for_timeout(300)
        area, before = page.locator(".chart .nsewdrag:visible").bounding_box(), area
    x, y, width, height = (area[side] for side in ("x", "y", "width", "height"))
    page.mouse.move(x + 4, y + 4)
    page.mouse.down()
    for across, down in ((0.99, 0.02), (0.99, 0.5), (0.02, 0.5), (0.02, 0.02)):
        page.mouse.move(x + across * width, y + down * height, steps=6)
    page.mouse.up()
    page.wait_for_selector("text=selected on the map")
    n = int(page.locator(".toolbar [role=status]").inner_text().split()[0])
    assert 0 < n < 300
    assert page.get_by_role("heading", name=f"Paths of {n} photos").is_visible()
    assert page.get_by_role("list", name="Paths of the group").get_by_role("button").count() > 1


@pytest.mark.slow
def test_a_dropped_folder_becomes_a_collection(served, photos, new_page, tmp_path):
    page = new_page()
    folder = tmp_path / "mine"
    for i, photo in enumerate(photos[::30]):
        target = folder / photo.parent.name / f"{i}.jpg"
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(photo.read_bytes())
    (folder / "notes.jpg").write_text("no photo")
    page.goto(served.url + "collection?photos=other")
    page.get_by_label("A folder of photos").set_input_files(folder)
    page.wait_for_selector(".tile img")
    assert page.get_by_role("heading", level=1).inner_text() == "10 photos in your selection"
    assert "of 10 answers match the labels" in page.locator(".lead").inner_text()  # folders say what is right
    assert [problem for problem in page.problems if "422" in problem] == page.problems[:1]  # the one that is no photo
    page.problems.clear()
    page.locator(".tile").first.click()
    page.get_by_role("button", name="Explain").click()
    page.get_by_role("link", name="Open as a page").click()
    page.wait_for_url("**/?photo=*")


@pytest.mark.slow
def test_the_collection_page_is_accessible_in_light_and_dark_and_fits_a_phone(served, new_page):
    tabs = [lambda page, name=name: page.get_by_role("tab", name=name).click() for name in ("Mistakes", "Map")]
    looks_well(
        new_page, served.url + "collection", ".tile img", *tabs, lambda page: page.locator(".tile").first.click()
    )
    looks_well(new_page, served.url + "collection?photos=none", ".drop")


@pytest.mark.slow
def test_the_gallery_works_with_the_keyboard(served, page):
    page.goto(served.url + "collection")
    page.wait_for_selector(".tile img")
    page.get_by_role("region", name="Photos").last.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_selector(".tile[data-at='0']:focus")
    page.keyboard.press("End")
    page.wait_for_selector(".tile[data-at='299']:focus")
    page.keyboard.press("Enter")
    page.wait_for_selector(".photo-card")


@pytest.mark.slow
def test_only_photos_of_a_collection_are_served(served, ten):
    base = served.url + f"collection/{StorePhotos(EmbeddingStore(ten.store)).key}/small/"

    def status(url):
        try:
            with urlopen(url, timeout=20) as answer:
                return answer.status
        except HTTPError as error:
            return error.code

    assert status(base + "0.jpg") == 200
    for place in (
        "300.jpg",
        "-1.jpg",
        "..%2f..%2f..%2fetc%2fpasswd",
        "../../../etc/passwd",
        "%2fetc%2fpasswd.jpg",
        "0",
    ):
        assert status(base + place) == 404, place
    assert status(served.url + "collection/0000/small/0.jpg") == 404


N = 100_000


@pytest.fixture(scope="module")
def many(start_server, tmp_path_factory):
    """A hundred thousand rows of eight dimensions, of forty small pictures."""
    folder = tmp_path_factory.mktemp("many")
    (folder / "eight_colours.py").write_text(
        "import numpy as np\n\ndef encode(batch):\n    return np.repeat(batch.mean(axis=(2, 3)), 3, axis=1)[:, :8]\n"
    )
    rng = np.random.default_rng(0)
    data = make_hierarchical_concepts(branching=4, depth=3, dim=8, noise=0.05, samples_per_leaf=5)
    save(HCEPClassifier(data.hierarchy, shrinkage=0.5, anchor=0.1).fit(data.X, data.y), folder / "model")
    for i in range(40):
        Image.new("RGB", (64, 64), tuple(rng.integers(0, 255, 3).tolist())).save(folder / f"{i}.png")
    rows = rng.integers(0, len(data.X), N)
    X = (data.X[rows] + rng.normal(0, 0.1, (N, 8))).astype(np.float32)
    paths, ids = np.array([str(folder / f"{i % 40}.png") for i in range(N)]), np.arange(N).astype(str)
    import_embeddings(Embeddings(X, data.y[rows], ids, paths), folder / "store", encoder="eight colours")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYTHONPATH", str(folder), prepend=os.pathsep)
        return start_server(folder / "model", "--store", folder / "store", "--encoder", "function:eight_colours:encode")


#: Whether every tile in sight is there.
IN_SIGHT = """() => {
    const box = document.querySelector('.gallery').getBoundingClientRect()
    const seen = [...document.querySelectorAll('.gallery li')].filter((tile) => {
        const place = tile.getBoundingClientRect()
        return place.bottom > box.top && place.top < box.bottom
    })
    return seen.length > 0 && seen.every((tile) => tile.querySelector('button'))
}"""
JUMP = "(share) => { const box = document.querySelector('.gallery'); box.scrollTop = share * box.scrollHeight }"


@pytest.mark.slow
@pytest.mark.alone
def test_a_hundred_thousand_photos_stay_smooth(many, page):
    page.goto(many.url + "collection")
    page.wait_for_selector(".tile img")
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    seconds = []
    for share in (0.5, 0.999, 0.01, 0.7, 0.33):
        before = page.locator(".gallery li").first.get_attribute("aria-posinset")
        start = time.perf_counter()
        page.evaluate(JUMP, share)
        page.wait_for_function(
            "before => document.querySelector('.gallery li').getAttribute('aria-posinset') !== before", arg=before
        )
        page.wait_for_function(IN_SIGHT)
        seconds.append(time.perf_counter() - start)
        assert page.locator(".gallery li").count() < 100
    print("seconds until all in sight is there:", [round(one, 2) for one in seconds])
    assert np.median(seconds) < 1.5
    assert len([url for url in asked if url.endswith(".jpg")]) < 6 * 100
    assert many.memory() < 1.5e9
    page.get_by_role("list", name="Concepts below").get_by_role("button").first.click()
    page.wait_for_selector(".crumb:nth-of-type(2)")
    assert page.locator(".gallery li").count() < 100
