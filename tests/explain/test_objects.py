import json

import numpy as np
import pytest

from hcep import HCEPClassifier, explain_images
from hcep.datasets import load_sample


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


def test_objects_are_searched_for_only_on_request(sample, model):
    assert len(explain_images(sample.X_val[:1], model, n_paths="auto")[0].objects) == 1
    assert explain_images(sample.X_val[:1], model)[0].objects == ()
