"""A process that is killed at any moment leaves the old output or the new one: encode and fit."""

import shutil

import numpy as np
import pytest

from hcep import HCEPClassifier
from hcep.embeddings import EmbeddingStore
from hcep.models.loading import load_model
from hcep.models.saving import save_model
from tests.embeddings.tiny import encode, make_images
from tests.safety.kills import kill_at_random

ENCODE = """
import sys
sys.path.insert(0, {root!r})
from pathlib import Path
from tests.embeddings.tiny import TinyEncoder, encode, folder_items
photos, store = map(Path, sys.argv[-2:])
items = folder_items(photos)
encode(items, store.with_name("loaded"), TinyEncoder())  # all that is imported late is there before the first fork
def work():
    encode(items, store, TinyEncoder(delay=0.01), remove_vanished=True)
"""
FIT = """
import sys
from hcep.cli.app import app
data, other, folder = sys.argv[-3:]
options = ["--hierarchy", "flat", "-P", "anchor=0.2", "-P", "shrinkage=none", "--overwrite", "--json"]
sys.stdout, told = open("/dev/null", "w"), sys.stdout
def work(folder=folder):
    app(["fit", data, *options, "-o", folder], standalone_mode=False)
work(other)
sys.stdout = told
"""


@pytest.fixture
def root(pytestconfig):
    return str(pytestconfig.rootpath)


@pytest.mark.slow
def test_kills_while_encoding_lose_nothing_that_was_committed(tmp_path, root):
    items = make_images(tmp_path / "photos", 60)
    store = tmp_path / "store"
    sizes = [0]

    def check():
        if (store / "manifest.json").exists():
            opened = EmbeddingStore(store)
            opened.verify()
            sizes.append(len(opened))
            assert sizes[-1] >= sizes[-2]
            if len(opened) == len(items):
                shutil.rmtree(store)
                sizes.append(0)

    kill_at_random(ENCODE.format(root=root), [tmp_path / "photos", store], check, n_kills=20, longest=0.8)
    assert len(set(sizes)) > 3
    encode(items, store)
    encode(items, tmp_path / "never killed")
    whole = EmbeddingStore(tmp_path / "never killed")
    assert EmbeddingStore(store).ids.tolist() == whole.ids.tolist()
    assert np.array_equal(EmbeddingStore(store).to_numpy(), whole.to_numpy())


@pytest.mark.slow
def test_kills_while_fitting_leave_the_old_model_or_the_new(tmp_path):
    rng = np.random.default_rng(0)
    data, old, model = tmp_path / "x.npz", tmp_path / "old", tmp_path / "m"
    np.savez(data, vectors=rng.normal(size=(200, 16)).astype(np.float32), labels=np.arange(200) % 5)
    save_model(HCEPClassifier(shrinkage=None, anchor=0.2).fit(rng.normal(size=(20, 8)), np.arange(20) % 4), old)
    shutil.copytree(old, model)
    seen = []

    def check():
        seen.append(load_model(model).n_features_in_)
        if seen[-1] == 16:
            shutil.rmtree(model)
            shutil.copytree(old, model)

    kill_at_random(FIT, [data, tmp_path / "other", model], check, n_kills=20, longest=0.8)
    assert set(seen) == {8, 16}
