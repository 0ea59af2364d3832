"""Two models on the same photos: where they part, who is right, and two encoders."""

from __future__ import annotations

from importlib import import_module

import numpy as np
import pytest
from PIL import Image

from hcep import HCEPClassifier, Hierarchy
from hcep.embeddings.encoders import FunctionEncoder
from hcep.embeddings.images import ImageProblem
from hcep.web.collection import Photos, answer_photos
from tests.web.at_hand import looks_well

pytest.importorskip("nicegui", reason="NiceGUI is not installed (extra web)")
pages = import_module("hcep.web.pages.compare")
COLOURS = {"red": (250, 20, 20), "green": (20, 250, 20), "blue": (20, 20, 250), "navy": (10, 10, 120)}


class Squares(Photos):
    """Squares of one colour; the last one cannot be read."""

    key, title = "squares", "squares"

    def __init__(self):
        self.labels = [*COLOURS] * 5
        self.names = [f"{i}.png" for i in range(20)]

    def vectors(self, rows):
        return np.array([COLOURS[self.labels[row]] for row in rows], dtype=np.float32)

    def picture(self, row):
        if row == 19:
            raise ImageProblem("no such file")
        return Image.new("RGB", (8, 8), COLOURS[self.labels[row]])


@pytest.fixture(scope="module")
def pair():
    """A model of colours, and one that takes navy for blue."""
    h = Hierarchy.from_edges(
        [("r", "warm"), ("r", "cold"), ("warm", "red"), ("warm", "green"), ("cold", "blue"), ("cold", "navy")]
    )
    photos = Squares()
    X = photos.vectors(np.arange(20)) + np.random.default_rng(0).normal(0, 3, (20, 3))
    y = np.array(photos.labels)
    one = HCEPClassifier(h, shrinkage=0.5, anchor=0.1, refine=False).fit(X, y).path_model()
    known = y != "navy"
    other = HCEPClassifier(h, shrinkage=0.5, anchor=0.1, refine=False).fit(X[known], y[known]).path_model()
    return pages.Pair(answer_photos(one, photos), answer_photos(other, photos))


def test_models_are_judged_only_on_classes_that_both_know(pair):
    navy = np.array(pair.one.photos.labels) == "navy"
    assert (pair.masks["differ"] == navy).all()
    assert not pair.known[navy].any()
    assert not (pair.masks["one"] | pair.masks["other"] | pair.masks["neither"]).any()
    assert pair.parting.confusions() == [("cold", 5, "blue", "navy", 5)]
    assert pair.tile(3)["note"].startswith("blue")
    assert pair.tile(0)["note"] == "both agree"


def test_photos_are_encoded_again_and_an_unreadable_one_is_zeros():
    encoder = FunctionEncoder(lambda batch: batch.mean(axis=(2, 3)) * 255, name="mean", preprocessing={"size": 8})
    photos = pages.EncodedPhotos(Squares(), encoder)
    X = np.concatenate(list(photos.blocks()))
    assert np.allclose(X[:19], Squares().vectors(np.arange(19)), atol=0.5)
    assert not X[19].any()
    assert photos.key != Squares.key


@pytest.mark.slow
def test_two_models_are_compared_on_the_shared_photos(served, page):
    page.goto(served.url + "compare")
    page.wait_for_selector(".tile img")
    assert page.get_by_role("heading", level=1).inner_text() == "Model and other"
    assert "95 % interval" in page.locator(".page").inner_text()
    n = int(page.locator("[role=group] [role=status]").inner_text().split()[0])
    assert 0 < n < 300
    page.get_by_role("list", name="By the concept above both").get_by_role("button").first.click()
    page.wait_for_function("n => parseInt(document.querySelector('[role=group] [role=status]').innerText) <= n", arg=n)
    page.wait_for_timeout(700)  # the tiles are made anew
    page.locator(".tile").first.click()
    page.wait_for_selector(".sides .path li")
    assert page.locator(".sides .path").count() == 2
    page.keyboard.press("Escape")
    page.get_by_role("button", name="All 300").click()
    page.wait_for_selector("text=300 shown")


@pytest.mark.slow
def test_the_compare_page_is_accessible_in_light_and_dark_and_fits_a_phone(served, new_page):
    looks_well(new_page, served.url + "compare", ".tile img")
