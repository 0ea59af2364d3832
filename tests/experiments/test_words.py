"""Words, names for atoms, and public sets: each experiment on a small task with texts, from cells to verdicts."""

from dataclasses import replace

import numpy as np
import pytest

from experiments import atom_names, public_sets, words
from experiments.baselines.words import Vocabulary
from experiments.experiment import run
from experiments.tasks import CLASS_NAMES, LVIS_NAMES, task_from_arrays
from hcep.hierarchy.imagenet import imagenet_hierarchy

#: Polar bear, brown bear, tabby, orange, lemon, crate.
WNIDS = ("n02134084", "n02132136", "n02123045", "n07747607", "n07749582", "n03127925")


@pytest.fixture(scope="module")
def task():
    rng = np.random.default_rng(0)
    means = 2.0 * rng.standard_normal((len(WNIDS), 16))
    y, y_val = np.repeat(WNIDS, 4), np.repeat(WNIDS, 5)
    X, X_val = (np.repeat(means, n, axis=0) + 0.3 * rng.standard_normal((n * len(WNIDS), 16)) for n in (4, 5))
    one = task_from_arrays("small", "none", imagenet_hierarchy(), (X, y), (X_val, y_val))
    classes = Vocabulary(CLASS_NAMES, WNIDS, means / 3 + 5.0, are_synsets=True)
    names = ("bear", "orange_(fruit)", "bow_(weapon)", "lemon")
    vectors = np.array([means[:2].mean(axis=0), means[3], rng.standard_normal(16), means[4]]) / 3 + 5.0
    lvis = Vocabulary(LVIS_NAMES, names, vectors)
    return replace(one, vocabularies={CLASS_NAMES: classes, LVIS_NAMES: lvis}, tuning=(one.X_val, one.y_val))


def rows_of(experiment, config, task, folder):
    records = run(replace(experiment, config=config), [task], folder)
    assert (folder / "figure.png").is_file()
    assert experiment.table(records.rows).count("\n|") > 1
    assert all(verdict.claim and verdict.measured for verdict in experiment.verdicts(records.rows))
    return records.rows


@pytest.mark.slow
def test_words_and_pictures(task, tmp_path):
    pytest.importorskip("skglm", reason="SpLiCE's lasso is skglm's")
    config = words.Config(shots=(2,), methods=("hb-omp:convex", "hcep"), beam=2, sparsity=2, n_unseen=2)
    rows = {row["label"]: row for row in rows_of(words.EXPERIMENT, config, task, tmp_path)}
    assert set(rows) >= {
        words.TEXT_ALONE,
        words.BOTH,
        words.UNSEEN,
        words.TIP,
        *words.BY_IMAGES,
        "SpLiCE over class names",
        "IP-OMP over LVIS names",
    }
    assert rows["SpLiCE over LVIS names"]["support_precision"] is None
    assert rows["SpLiCE over class names"]["support_precision"] > 0
    assert rows[words.UNSEEN]["unseen_accuracy"] > 0.5
    assert 0.0 <= rows[words.BOTH]["words_share"] <= 1.0


def test_class_names_alone_are_the_cosine(task):
    texts = words.class_texts(task)
    model = words.zero_shot(task, texts)
    cosines = task.X_val @ np.transpose([texts[label] for label in model.classes_])
    assert model.predict(task.X_val).tolist() == model.classes_[cosines.argmax(axis=1)].tolist()


def test_names_of_atoms_are_graded(task, tmp_path):
    rows = rows_of(atom_names.EXPERIMENT, atom_names.Config(dictionaries=(atom_names.OURS,)), task, tmp_path)
    own = atom_names.graded(rows, vocabulary=CLASS_NAMES, center=True, leaf=True)[0]
    assert own["n_atoms"] == len(own[atom_names.OWN]) >= len(WNIDS)
    assert atom_names.share([own], atom_names.OWN, 1) > atom_names.chance([own], 1) > 0
    assert atom_names.share([own], atom_names.OWN, 10) == 1.0


def test_words_of_a_vocabulary_name_concepts_by_their_lemmas(task):
    names = atom_names.names_in(task.vocabularies[LVIS_NAMES], task.hierarchy)
    assert names["n02131653"] == {"bear"}
    assert names["n07747607"] == {"orange_(fruit)"}
    assert "n03127925" not in names


@pytest.mark.parametrize(("phrases", "rank"), [(["a", "b"], 1), (["b", "a"], 2), (["b", "c"], 3)])
def test_the_rank_of_a_name(phrases, rank):
    assert atom_names.rank_of({"a", "z"}, phrases) == rank


def test_public_sets_compare_all_methods(task, tmp_path):
    rows = rows_of(public_sets.EXPERIMENT, public_sets.Config(shots=(2,), seeds=(0,)), task, tmp_path)
    assert [row["label"] for row in rows] == [*public_sets.METHODS, *public_sets.SHARED]
    assert min(row["accuracy"] for row in rows) > 0.6
