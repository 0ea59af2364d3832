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
    """Folders of a store, of a model of its classes and of another one."""

    store: Path
    model: Path
    other: Path


def looks_well(new_page, url: str, ready: str, *steps) -> None:
    """Nothing serious for axe in light and dark, at first and after each step; no sideways scrolling on a phone."""
    axe = pytest.importorskip("axe_playwright_python.sync_playwright", reason="axe is not installed (extra test-web)")
    for dark in (False, True):
        page = new_page(dark=dark)
        page.goto(url)
        page.wait_for_selector(ready)
        for step in (lambda page: None, *steps):
            step(page)
            page.wait_for_timeout(400)  # what appears has appeared
            found = axe.Axe().run(page).response["violations"]
            bad = [one for one in found if one["impact"] in ("serious", "critical")]
            assert not bad, [(one["id"], one["nodes"][0]["html"][:200]) for one in bad]
    page = new_page(width=390, height=844)
    page.goto(url)
    page.wait_for_selector(ready)
    for step in steps:
        step(page)
    assert page.evaluate("document.documentElement.scrollWidth") <= 390
