import numpy as np
import pytest

from hcep import HCEPClassifier, HCEPError
from hcep.classify.objects import stopping_rule
from hcep.datasets import load_sample
from hcep.pursuit import PathSums


@pytest.fixture(scope="module")
def sample():
    return load_sample()


@pytest.fixture(scope="module")
def fitted(sample):
    model = HCEPClassifier(sample.hierarchy, anchor=0.3, shrinkage=0.6, power=0.5, refine=False)
    return model.fit(sample.X_train, sample.y_train).fit_objects(sample.X_train, sample.y_train)


def averages(sample, n, seed=0):
    rng = np.random.default_rng(seed)
    a, b = rng.permutation(len(sample.y_val))[:n], rng.permutation(len(sample.y_val))[:n]
    different = sample.y_val[a] != sample.y_val[b]
    a, b = a[different], b[different]
    pairs = zip(sample.y_val[a].tolist(), sample.y_val[b].tolist(), strict=True)
    return (sample.X_val[a] + sample.X_val[b]) / 2, [set(pair) for pair in pairs]


def test_single_pictures_get_one_path_and_averages_two(fitted, sample):
    assert np.mean(fitted.pursue(sample.X_val, n_paths="auto").n_paths == 1) >= 0.95
    X, truth = averages(sample, 200)
    found = fitted.pursue(X, n_paths="auto")
    assert np.mean([set(leaves) == pair for leaves, pair in zip(found.leaves, truth, strict=True)]) > 0.8


def test_the_rule_sees_no_validation_image_and_is_saved(fitted, sample, tmp_path):
    from hcep.models import read_model
    from hcep.models.loading import load_model
    from hcep.models.saving import save_model

    save_model(fitted, tmp_path / "model")
    again = load_model(tmp_path / "model")
    assert again.stopping_ == fitted.stopping_ == read_model(tmp_path / "model").path_model.stopping
    X, _ = averages(sample, 20)
    np.testing.assert_array_equal(again.pursue(X, n_paths="auto").nodes, fitted.pursue(X, n_paths="auto").nodes)


def test_without_the_rule_a_fixed_gain_is_required(sample):
    few = slice(None, None, 10)
    model = HCEPClassifier(sample.hierarchy).fit(sample.X_train[few], sample.y_train[few])
    assert model.stopping_ is None
    assert isinstance(model.pursue(sample.X_val[:3], n_paths="auto"), PathSums)


def test_too_few_images_give_no_rule(sample):
    rows = np.concatenate([np.flatnonzero(sample.y_train == c)[:2] for c in np.unique(sample.y_train)])
    model = HCEPClassifier(sample.hierarchy).fit(sample.X_train[rows], sample.y_train[rows])
    index = np.searchsorted(model.classes_, sample.y_train[rows])
    assert stopping_rule(model.path_model(), sample.X_train[rows], index) is None


@pytest.mark.filterwarnings("ignore:.*atoms are zero")
def test_the_published_configuration_has_no_anchor_and_says_so(sample):
    model = HCEPClassifier.paper(sample.hierarchy, head="path").fit(sample.X_train[::10], sample.y_train[::10])
    assert model.fit_objects(sample.X_train[::10], sample.y_train[::10]).stopping_ is None
    with pytest.raises(HCEPError, match="n_paths needs an anchor above 0"):
        model.pursue(sample.X_val[:1], n_paths=2)


def test_labels_must_be_classes_of_the_model(fitted, sample):
    with pytest.raises(HCEPError, match="y contains labels that are not classes of the model: 'unicorn', 'griffin'"):
        fitted.fit_objects(sample.X_val[:2], ["unicorn", "griffin"])
    with pytest.raises(HCEPError, match="n_paths cannot be combined with n_best, trace, force or forbid"):
        fitted.pursue(sample.X_val[:1], n_paths=2, forbid="n02102040")
