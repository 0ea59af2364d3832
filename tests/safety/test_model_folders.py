"""Several processes with one model folder: every save succeeds, every load sees one whole model; a kill loses none."""

import subprocess
import sys
import threading

import numpy as np
import pytest

from hcep import HCEPClassifier
from hcep.errors import HCEPError
from hcep.models.folder import writing
from hcep.models.loading import SavedModel, load_model
from hcep.models.saving import save_model
from tests.safety.kills import kill_at_random

SAVE = """
import sys
from hcep.models.loading import load_model
from hcep.models.saving import save_model
source, folder, n_saves = sys.argv[-3:]
model = load_model(source)
def work():
    for _ in range(int(n_saves)):
        save_model(model, folder)
"""


def small_model(n_dims):
    X = np.random.default_rng(n_dims).normal(size=(40, n_dims))
    return HCEPClassifier(shrinkage=0.5, anchor=1.0).fit(X, np.arange(40) % 4)


@pytest.mark.slow
def test_two_writers_never_fail_nor_leave_no_model(tmp_path):
    folder = save_model(small_model(300), tmp_path / "m")
    sources = [save_model(small_model(n), tmp_path / str(n)) for n in (300, 301)]
    runs = [
        subprocess.Popen([sys.executable, "-c", f"{SAVE}\nwork()", source, folder, "10"], stderr=subprocess.PIPE)
        for source in sources
    ]
    n_loads = 0
    while any(run.poll() is None for run in runs):
        assert load_model(folder).n_features_in_ in (300, 301)
        n_loads += 1
    assert [run.communicate()[1] for run in runs] == [b"", b""]
    assert [run.returncode for run in runs] == [0, 0]
    assert n_loads > 5
    assert load_model(folder).n_features_in_ in (300, 301)


def test_a_reader_never_mixes_two_models(tmp_path):
    folder = save_model(small_model(30), tmp_path / "m")
    opened = SavedModel(folder)
    assert opened.document.n_dims == 30
    save_model(small_model(31), folder)
    assert opened.classifier.n_features_in_ == 30
    assert load_model(folder).n_features_in_ == 31


def test_threads_that_save_and_load_one_folder(tmp_path):
    models = [small_model(30), small_model(31)]
    folder = save_model(models[0], tmp_path / "m")
    failures = []

    def work(i):
        try:
            for _ in range(10):
                save_model(models[i % 2], folder)
                assert load_model(folder).n_features_in_ in (30, 31)
        except Exception as error:
            failures.append(error)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []


def test_a_writer_that_waits_too_long_raises_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr("hcep.models.folder.PATIENCE", 0.1)
    folder = save_model(small_model(30), tmp_path / "m")
    said = []

    def save():
        try:
            save_model(small_model(31), folder)
        except HCEPError as error:
            said.append(str(error))

    with writing(folder):
        thread = threading.Thread(target=save)
        thread.start()
        thread.join()
    assert said == [f"another process is saving to {str(folder)!r}: wait for it or stop it"]
    assert load_model(folder).n_features_in_ == 30


def test_a_model_file_of_another_size_is_refused_unread(tmp_path, monkeypatch):
    folder = save_model(small_model(30), tmp_path / "m")
    with (folder / "model.safetensors").open("r+b") as file:
        file.truncate(20 << 30)  # sparse: it takes no room on disk
    with pytest.raises(HCEPError, match=r"model\.safetensors: 21,474,836,480 bytes where .* were saved"):
        load_model(folder)


@pytest.mark.slow
def test_kills_while_saving_leave_the_old_model_or_the_new(tmp_path):
    folder = save_model(small_model(300), tmp_path / "m")

    def check():
        assert load_model(folder).n_features_in_ in (300, 301)

    source = save_model(small_model(301), tmp_path / "source")
    kill_at_random(SAVE, [source, folder, 20], check, n_kills=25, longest=0.3)
    save_model(small_model(300), folder)
    assert load_model(folder).n_features_in_ == 300
