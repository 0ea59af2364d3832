"""The hierarchy: found, checked, moved with what it would do before, grown from photos, and undone."""

from __future__ import annotations

import shutil
from importlib import import_module
from types import SimpleNamespace

import numpy as np
import pytest

from hcep import HCEPClassifier, Hierarchy
from hcep.classify.coarse_counts import CoarseCount
from hcep.datasets import make_hierarchical_concepts
from hcep.embeddings import Embeddings, EmbeddingStore, import_embeddings
from hcep.models.saving import change_model
from hcep.taxonomy import Move, apply_edits
from tests.web.at_hand import looks_well

pytest.importorskip("nicegui", reason="NiceGUI is not installed (extra web)")
pages = import_module("hcep.web.pages.hierarchy")


@pytest.fixture(scope="module")
def data():
    return make_hierarchical_concepts(branching=3, depth=2, dim=10, noise=0.02, samples_per_leaf=8)


@pytest.fixture
def engine(data, tmp_path):
    """What a page asks for moves: a model that knows no encoder, and a store of which half is for training."""
    model = HCEPClassifier(data.hierarchy, shrinkage=0.5, anchor=0.1, refine=False).fit(data.X, data.y)
    splits = np.where(np.arange(len(data.X)) % 2, "train", "val")
    ids = np.arange(len(data.X)).astype(str)
    import_embeddings(Embeddings(data.X, data.y, ids, splits=splits), tmp_path / "store", encoder="none")
    saved = SimpleNamespace(classifier=model, encoder=None)
    return SimpleNamespace(model=model.path_model(), saved=saved, store=EmbeddingStore(tmp_path / "store"))


def test_a_move_is_measured_outside_the_training_split(engine, data):
    engine = _Hashable(engine)
    h = engine.model.hierarchy
    leaf, elsewhere = h.leaves[0], h.parents(h.leaves[-1])[0]
    what, effect = pages.measure(engine, Move(leaf, elsewhere))
    assert what == f"{len(data.X) // 2} labelled photos of the collection outside the training split"
    assert len(effect.before.y) == len(data.X) // 2
    assert effect.accuracy.before == 1.0


def test_without_labelled_photos_nothing_is_measured(engine):
    engine.store = None
    assert pages.measure(_Hashable(engine), Move("a", "b")) is None


def test_photos_speak_against_a_misplaced_concept(engine, data):
    h, engine = data.hierarchy, _Hashable(engine)
    leaf, elsewhere = h.leaves[0], h.parents(h.leaves[-1])[0]

    def named(tree):
        model = HCEPClassifier(tree, shrinkage=0.5, anchor=0.1, refine=False).fit(data.X, data.y)
        engine.model, engine.saved = model.path_model(), _Same(SimpleNamespace(classifier=model, encoder=None))
        engine.hierarchy = model.hierarchy_
        return {synset for finding in pages.photo_findings(engine) for synset in finding.synsets}

    assert leaf not in named(h)
    assert leaf in named(apply_edits(h, [Move(leaf, elsewhere)]))


def test_the_tree_has_merged_ranks_and_counts_of_photos():
    """Iris, the only genus of its family; two photos labelled by the family, none of the rose."""
    h = Hierarchy.from_edges([("plants", "Iridaceae"), ("Iridaceae", "Iris"), ("plants", "Rosa"), ("plants", "Poa")])
    h = h.with_ranks({"Iridaceae": "family", "Iris": "genus", "Rosa": "genus"}).collapse()
    training = SimpleNamespace(images_per_class={"Iris": 1200, "Poa": 5})
    counts = {"Iridaceae": CoarseCount(2, {"Iris": 2.0})}
    saved = SimpleNamespace(path_model=SimpleNamespace(hierarchy=h), training=training, coarse_counts=counts)
    nodes = {node["name"]: node["photos"] for node in pages.checked_nodes(_Same(saved))[1]}
    assert nodes == {"plants": "1,205", "Rosa": "no photos", "Poa": "5", "Iridaceae → Iris": "1,200 + 2 coarse"}


class _Hashable:
    """An engine is known by itself, not by what it holds."""

    def __init__(self, engine):
        self.model, self.saved, self.store = engine.model, _Same(engine.saved), engine.store


class _Same:
    def __init__(self, saved):
        vars(self).update(vars(saved))


# -- in a browser ----------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def changed(start_server, ten, tmp_path_factory):
    """A server whose model may be changed."""
    folder = tmp_path_factory.mktemp("changed") / "model"
    shutil.copytree(ten.model, folder)
    return start_server(folder, "--store", ten.store)


def concept(page, name):
    return page.locator(f".concepts li:has(.name:text-is('{name}'))").first


def is_below(page, name, above):
    return (
        concept(page, above).get_attribute("data-id") in concept(page, name).get_attribute("data-key").split("/")[1:-1]
    )


@pytest.mark.slow
def test_a_dragged_class_is_measured_saved_and_undone(changed, page):
    page.goto(changed.url + "hierarchy")
    concept(page, "tench").wait_for()
    concept(page, "tench").drag_to(concept(page, "artifact"))
    page.get_by_text("Move “tench” to “artifact”?").wait_for()
    assert "100 labelled photos of the collection outside the training split" in page.locator(".side").inner_text()
    assert page.locator(".effect tbody tr").count() == 3
    page.get_by_role("button", name="Cancel").click()
    page.get_by_text("Move “tench” to “artifact”?").wait_for(state="detached")
    page.get_by_role("tab", name="Versions").click()
    assert page.locator(".versions li").count() == 1  # looking changes nothing

    concept(page, "tench").drag_to(concept(page, "artifact"))
    page.get_by_role("button", name="Save the move").click()
    page.locator(".versions li", has_text="moved 'tench' under 'artifact'").wait_for()
    assert concept(page, "tench").get_attribute("data-key").split("/")[1] == concept(page, "artifact").get_attribute(
        "data-id"
    )

    page.get_by_role("button", name="Undo the last change").click()
    page.locator(".versions li", has_text="moved").wait_for(state="detached")
    assert concept(page, "tench").get_attribute("data-key").split("/")[1] != concept(page, "artifact").get_attribute(
        "data-id"
    )


@pytest.mark.slow
def test_a_concept_shows_where_its_coarse_labels_went(start_server, ten, tmp_path, page):
    train = EmbeddingStore(ten.store).select(splits="train")
    X, y = train.to_numpy(np.float32), train.labels
    folder = shutil.copytree(ten.model, tmp_path / "model")
    tench = X[y == "n01440764"][:3]
    change_model(folder, "added fish", lambda model: model.partial_fit(tench, ["n01471682"] * 3))
    page.goto(start_server(folder).url + "hierarchy")
    concept(page, "vertebrate").click()
    page.get_by_text("Training images: exact 40, coarse 3 (they went to: tench 3)").wait_for()
    concept(page, "tench").click()
    page.get_by_text("Training images: exact 20, from coarse labels 3").wait_for()


@pytest.mark.slow
def test_the_hierarchy_is_checked_with_photos(changed, page):
    page.goto(changed.url + "hierarchy")
    page.get_by_role("button", name="Check with photos").click()
    page.get_by_text("look different from the others").first.wait_for()
    assert page.get_by_role("heading", name="Possible problems").is_visible()


@pytest.mark.slow
def test_a_class_is_moved_with_the_keyboard_and_never_below_itself(changed, page):
    page.goto(changed.url + "hierarchy")
    page.get_by_role("searchbox", name="Search concepts").fill("vertebr")
    page.get_by_role("list", name="Matches").get_by_role("button", name="vertebrate").press("Enter")
    page.get_by_role("heading", name="vertebrate").wait_for()
    page.get_by_role("button", name="Move to …").press("Enter")
    page.get_by_text("Choose the new parent of “vertebrate”").wait_for()
    concept(page, "tench").focus()
    page.keyboard.press("Enter")
    page.locator(".q-notification.problem").wait_for()  # it is below it
    assert page.get_by_role("button", name="Save the move").count() == 0

    page.get_by_role("treeitem").first.focus()
    page.keyboard.press("ArrowLeft")
    page.wait_for_function("document.querySelectorAll('[role=treeitem]').length === 1")
    page.keyboard.press("ArrowRight")
    page.keyboard.press("ArrowDown")
    page.wait_for_selector(".concepts li[aria-level='2']:focus")


@pytest.mark.slow
def test_a_class_is_added_from_photos_and_found_afterwards(changed, page, photos):
    page.goto(changed.url + "hierarchy")
    concept(page, "animal").click()
    page.get_by_role("heading", name="animal").wait_for()
    page.get_by_role("tab", name="Add a class").click()
    page.get_by_role("button", name="Add the class").click()
    page.locator(".q-notification.problem").wait_for()  # without a name and photos
    page.get_by_label("Name of the class").fill("<b>newt</b>")
    page.get_by_label("Photos", exact=True).set_input_files(photos[:3])
    page.get_by_text("3 of 3 photos added.").wait_for()
    page.get_by_role("button", name="Add the class").click()
    concept(page, "<b>newt</b>").wait_for()  # as text
    assert page.locator(".concepts b").count() == 0
    page.get_by_role("tab", name="Versions").click()
    page.get_by_role("button", name="Undo the last change").click()
    concept(page, "<b>newt</b>").wait_for(state="detached")


@pytest.mark.slow
def test_the_hierarchy_page_is_accessible_in_light_and_dark_and_fits_a_phone(changed, new_page):
    looks_well(new_page, changed.url + "hierarchy", ".concepts li", lambda page: concept(page, "chain saw").click())
