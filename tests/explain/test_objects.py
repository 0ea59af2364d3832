import json

import numpy as np
import pytest

from hcep import HCEPClassifier, explain_images
from hcep.datasets import load_sample
from hcep.explain.report import photo_report


@pytest.fixture(scope="module")
def sample():
    return load_sample()


@pytest.fixture(scope="module")
def model(sample):
    fitted = HCEPClassifier(sample.hierarchy, anchor=0.3, shrinkage=0.6, power=0.5, refine=False)
    return fitted.fit(sample.X_train, sample.y_train).fit_objects(sample.X_train, sample.y_train)


def test_both_objects_of_a_mixed_picture_are_found(sample, model):
    mixed = (sample.X_val[0] + sample.X_val[-1]) / 2
    one = explain_images(np.array([mixed]), model, n_paths="auto")[0]
    assert {part.path[-1] for part in one.objects} == {str(sample.y_val[0]), str(sample.y_val[-1])}
    assert sum(part.share for part in one.objects) == pytest.approx(1.0)
    assert all(part.names[-1] == part.name for part in one.objects)
    kept = json.loads(json.dumps(one.to_dict()))["objects"]
    assert [part["name"] for part in kept] == [part.name for part in one.objects]


def test_an_object_that_auto_would_not_add_is_doubtful(sample, model):
    mixed = (sample.X_val[0] + sample.X_val[-1]) / 2
    two, one, three = explain_images(np.array([mixed, sample.X_val[0]]), model, n_paths=2) + explain_images(
        sample.X_val[:1], model, n_paths=3
    )
    assert [part.doubtful for part in two.objects] == [False, False]
    assert two.objects_doubt() == ""
    assert [part.doubtful for part in one.objects] == [False, True]
    assert one.objects_doubt() == "the second is doubtful: one object explains the photo about as well"
    assert three.objects_doubt() == "the last 2 are doubtful: one object explains the photo about as well"
    assert one.objects_doubt() in photo_report([one])


def test_a_model_of_weights_says_that_it_cannot_tell_how_many_objects_there_are(sample):
    rng = np.random.default_rng(0)
    weights = rng.standard_normal((len(sample.hierarchy.leaves), sample.X_val.shape[1]))
    opened = HCEPClassifier.from_linear_head(weights, np.zeros(len(weights)), classes=sample.hierarchy.leaves)
    (one,) = explain_images(sample.X_val[:1], opened, n_paths=2)
    assert one.objects_doubt() == f"this model cannot tell whether there really are {len(one.objects)} objects"


def test_objects_are_searched_for_only_on_request(sample, model):
    assert len(explain_images(sample.X_val[:1], model, n_paths="auto")[0].objects) == 1
    assert explain_images(sample.X_val[:1], model)[0].objects == ()
