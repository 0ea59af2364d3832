"""Stores and models that several tests of pages look at, and how a page must look."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from hcep import HCEPClassifier, save
from hcep.embeddings import Embeddings, import_embeddings, load_encoder
from hcep.hierarchy.imagenet import imagenet_hierarchy
from tests.conftest import SHARED, shared_file

BUILT_IN = "efficientnet-lite2"


def store_of_shared_photos(folder: Path) -> Path:
    """The 300 shared photos with the embeddings that the built-in encoder gave them."""
    data = np.load(shared_file("data/imagenette_efficientnet_lite2.npz"), allow_pickle=False)
    images = SHARED / "data/imagenette_images"
    files = np.array([images / path for path in data["paths"].tolist()])
    here = np.array([file.is_file() for file in files])
    if not here.any():
        pytest.skip("needs data/imagenette_images in HCEP_SHARED (default ../shared)")
    X, y = data["embeddings"][here].astype(np.float32), data["wnids"][data["labels"][here]]
    splits = np.array([file.parent.parent.name for file in files[here]])
    arrays = Embeddings(X, y, paths=files[here].astype(str), splits=splits)
    import_embeddings(arrays, folder, encoder=BUILT_IN, fingerprint=load_encoder(BUILT_IN).fingerprint)
    return folder


def model_of(store: Path, folder: Path, n_train: int = 200, **options) -> Path:
    """A model of ten classes, fitted on training photos of a store."""
    from hcep.embeddings import EmbeddingStore

    train = EmbeddingStore(store).select(splits="train")
    every = slice(None, None, len(train) // n_train)
    given = {"shrinkage": 0.6, "anchor": 0.3, "power": 0.5, "refine": False, **options}
    model = HCEPClassifier(imagenet_hierarchy(), **given).fit(train.to_numpy(np.float32)[every], train.labels[every])
    save(model, folder, encoder=load_encoder(BUILT_IN), data="ten classes", name="ten")
    return folder


class Ten(NamedTuple):
    """Folders of a store, and of a model of its classes."""

    store: Path
    model: Path


def settled(page) -> None:
    """Wait until nothing fades or moves any more."""
    page.wait_for_function(
        "document.getAnimations().every((one) => one.playState !== 'running'"
        " || one.effect.getComputedTiming().iterations === Infinity)"
    )


def is_accessible(page, themes: tuple[str, ...] = ("light", "dark"), picture: str = "") -> None:
    """Nothing serious for axe; in dark, it checks contrasts alone."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (extra test-web)")
    for theme in themes:
        page.emulate_media(color_scheme=theme)
        page.wait_for_function("theme => document.documentElement.dataset.theme === theme", arg=theme)
        page.wait_for_timeout(200)
        settled(page)
        if picture:
            page.screenshot(path=f"{picture}-{theme}.png", full_page=True)
        rules = {} if theme == "light" else {"options": {"runOnly": ["color-contrast"]}}
        found = axe.Axe().run(page, **rules).response["violations"]
        bad = [one for one in found if one["impact"] in ("serious", "critical")]
        assert not [(theme, one["id"], [node["html"][:150] for node in one["nodes"][:3]]) for one in bad]


def looks_well(new_page, url: str, ready: str, *steps) -> None:
    """The page is accessible in light and dark, at first and after each step; a phone need not scroll sideways."""
    page = new_page()
    page.goto(url)
    page.wait_for_selector(ready)
    for step in (lambda page: None, *steps):
        step(page)
        is_accessible(page)
    page = new_page(width=390, height=844)
    page.goto(url)
    page.wait_for_selector(ready)
    for step in steps:
        step(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
