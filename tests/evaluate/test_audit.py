"""Checks that can fail do fail: on a head that is given the embedding, on shuffled work, on groups that fall behind."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression
from typer.testing import CliRunner

from experiments.tasks import imagenette
from hcep import HCEPClassifier, save
from hcep.classify.path_model import Inference
from hcep.cli.app import app
from hcep.datasets import load_sample
from hcep.errors import HCEPError
from hcep.evaluate import audit
from hcep.evaluate.audit_checks import Subject, leakage, raw_images, run_checks
from hcep.evaluate.audit_report import Audit
from hcep.models.loading import load_model

SETTINGS = {"shrinkage": 0.6, "anchor": 0.3, "power": 1.0, "refine": False}


class Leaky(HCEPClassifier):
    """Shows the path, and answers by a linear head on the embedding."""

    def fit(self, X, y):
        super().fit(X, y)
        self.probe_ = LogisticRegression(C=0.01, max_iter=500).fit(X, y)
        return self

    def infer(self, X, **asked) -> Inference:
        likely = self.probe_.predict_proba(X)
        return replace(super().infer(X, **asked), probabilities=likely, class_index=likely.argmax(axis=1))

    def predict(self, X, **asked):
        return self.probe_.predict(X)


@pytest.fixture(scope="module")
def sample():
    """The bundled sample, a tenth of its dimensions."""
    data = load_sample()
    data.X_train, data.X_val = data.X_train[:, ::10], data.X_val[:, ::10]
    return data


@pytest.fixture(scope="module")
def model(sample) -> HCEPClassifier:
    return HCEPClassifier(sample.hierarchy, **SETTINGS).fit(sample.X_train, sample.y_train)


@pytest.fixture(scope="module")
def found(sample, model) -> Audit:
    half = np.where(np.arange(len(sample.y_val)) % 2, "left", "right")
    train = (sample.X_train, sample.y_train)
    return audit(model, sample.X_val, sample.y_val, train=train, groups=half, name="<i>sample</i>")


def by_name(found: Audit):
    return {check.name: check for check in found.checks}


def test_a_head_that_sees_the_embedding_fails(sample) -> None:
    leaky = Leaky(sample.hierarchy, **SETTINGS).fit(sample.X_train, sample.y_train)
    result = audit(leaky, sample.X_val, sample.y_val)
    assert "leakage" in result.failed
    assert any("must not be shown as the reason for its answers" in text for text in result.sentences)


def test_an_honest_model_passes(found) -> None:
    assert found.failed == ()
    assert any("can be shown as the reason" in text for text in found.sentences)
    assert found.accuracy > 0.95


def test_answers_change_with_the_concepts(found) -> None:
    figures = by_name(found)["concepts removed"].figures
    assert figures["without"] < 0.2
    assert figures["exchanged"] < 0.1
    assert figures["follow"] > 0.9
    curve = by_name(found)["deletion and insertion"]
    assert curve.figures["deleted"] < 0.5 * curve.figures["others deleted"]
    assert curve.rows[-1]["inserted"] > curve.rows[0]["inserted"]


def test_an_honest_linear_head_passes_the_leakage_check(sample) -> None:
    headed = HCEPClassifier(sample.hierarchy, **SETTINGS, head="logistic")
    headed.fit(sample.X_train, sample.y_train)
    assert run_checks(Subject(headed, sample.X_val, sample.y_val), [leakage])[0].passed


def test_without_training_images_controls_are_not_decided(model, sample) -> None:
    checks = by_name(audit(model, sample.X_val, sample.y_val))
    open_ones = {name for name, check in checks.items() if check.passed is None}
    assert open_ones == {"other training images", "shuffled labels", "random tree"}


def test_undecided_checks_lead_to_no_conclusion(model, sample) -> None:
    easy = model.predict(sample.X_val) == sample.y_val  # no mistakes: a random tree cannot be told from this one
    result = audit(model, sample.X_val[easy], sample.y_val[easy], train=(sample.X_train, sample.y_train))
    assert by_name(result)["shuffled labels"].passed
    assert by_name(result)["random tree"].passed is None
    assert not any("can be read as knowledge" in text for text in result.sentences)
    assert any("Not decided: random tree (only 0 mistakes, too few to compare)" in text for text in result.sentences)


def test_coverage_is_not_measured_on_calibration_images(sample, tmp_path: Path) -> None:
    first, n = HCEPClassifier(sample.hierarchy, **SETTINGS).fit(sample.X_train, sample.y_train), len(sample.y_val)
    half = np.arange(n) < 100
    first.calibrate(sample.X_val[half], sample.y_val[half])
    saved = load_model(save(first, tmp_path / "model"))
    for model in (first, saved):
        check = by_name(audit(model, sample.X_val[half][::-1], sample.y_val[half][::-1]))["calibration and coverage"]
        assert check.passed is None
        assert "all images were used to calibrate the model" in check.measured
    result = audit(saved, sample.X_val[:20], sample.y_val[:20])
    assert not any("can be relied on" in text for text in result.sentences)
    mixed = by_name(audit(saved, sample.X_val, sample.y_val))["calibration and coverage"]
    others = by_name(audit(saved, sample.X_val[~half], sample.y_val[~half]))["calibration and coverage"]
    assert f"100 of {n:,} images were used to calibrate the model" in mixed.measured
    assert "used to calibrate" not in others.measured
    assert mixed.figures["coverage"] == others.figures["coverage"]
    wrong = np.roll(np.unique(sample.y_val), 1)[np.searchsorted(np.unique(sample.y_val), sample.y_val)]
    assert "calibration and coverage" in audit(saved, sample.X_val, wrong).failed  # other labels: a broken promise


def test_a_group_that_falls_behind_is_named(model, sample) -> None:
    rng = np.random.default_rng(0)
    y, broken = sample.y_val.copy(), rng.permutation(len(sample.y_val)) < 60
    y[broken] = rng.permutation(y[broken])
    groups = np.where(broken, "camera 2", "camera 1")
    check = by_name(audit(model, sample.X_val, y, groups=groups))["groups"]
    assert check.passed is False
    assert "camera 2" in check.measured
    assert "camera 1" not in check.measured


def test_thin_classes_are_listed(sample) -> None:
    rows = np.concatenate([np.flatnonzero(sample.y_train == c)[: 3 if i == 0 else 20] for i, c in
                           enumerate(np.unique(sample.y_train))])  # fmt: skip
    thin = HCEPClassifier(sample.hierarchy, **SETTINGS).fit(sample.X_train[rows], sample.y_train[rows])
    check = by_name(audit(thin, sample.X_val, sample.y_val))["thin classes"]
    assert check.passed is False
    assert [row["images"] for row in check.rows] == [3]


def test_overconfidence_fails_the_audit(model, sample) -> None:
    class Sure(HCEPClassifier):
        def infer(self, X, **asked) -> Inference:
            one = super().infer(X, **asked)
            return replace(one, probabilities=np.eye(len(one.classes))[one.class_index])

    sure = Sure(sample.hierarchy, **SETTINGS).fit(sample.X_train[::8], sample.y_train[::8])
    rng = np.random.default_rng(1)
    y = np.where(rng.random(len(sample.y_val)) < 0.3, rng.permutation(sample.y_val), sample.y_val)
    assert "calibration and coverage" in audit(sure, sample.X_val, y).failed


def test_the_report_is_escaped_and_complete(found) -> None:
    page = found.to_html()
    assert "&lt;i&gt;sample" in page
    assert "<i>sample" not in page
    assert "http" not in page
    assert all(check.name in page for check in found.checks)
    record = json.loads(found.to_json())
    assert [check["name"] for check in record["checks"]] == [check.name for check in found.checks]
    assert record["sentences"] == list(found.sentences)


def test_invalid_images_and_groups_are_rejected(model, sample) -> None:
    with pytest.raises(HCEPError, match="labels are not classes of the model, such as 'cow'"):
        audit(model, sample.X_val[:1], ["cow"])
    with pytest.raises(HCEPError, match="groups must have one value for each of"):
        audit(model, sample.X_val, sample.y_val, groups=["a"])
    with pytest.raises(HCEPError, match="no images"):
        audit(model, sample.X_val[:0], sample.y_val[:0])


@pytest.mark.parametrize("options", [{"power": 0.5}, {"center": True, "shrinkage": None}, {}])
def test_the_transform_can_be_inverted(sample, options) -> None:
    fitted = HCEPClassifier(sample.hierarchy, **{**SETTINGS, **options})
    fitted.fit(sample.X_train, sample.y_train)
    X = sample.X_val[:5].astype(np.float64)
    back = raw_images(fitted.dictionary_.transform, fitted.dictionary_.embed(X))
    np.testing.assert_allclose(back, X, atol=1e-6)


def test_the_command(model, sample, tmp_path: Path) -> None:
    folder = save(model, tmp_path / "model")
    X, y = np.vstack([sample.X_train, sample.X_val]), np.concatenate([sample.y_train, sample.y_val])
    split = np.repeat(["train", "val"], [len(sample.y_train), len(sample.y_val)])
    np.savez(tmp_path / "data.npz", X=X, y=y, split=split)
    cameras = "".join(f"{i % 2}\n" for i in range(len(sample.y_val)))
    (tmp_path / "photos.csv").write_text("camera\n" + cameras, encoding="utf-8")
    words = ["audit", folder, tmp_path / "data.npz", "--by", "camera", "--groups", tmp_path / "photos.csv"]
    result = CliRunner().invoke(app, [*map(str, words), "-o", str(tmp_path / "audit.html")], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    assert "✓ leakage" in result.output
    assert "can be shown as the reason" in result.output
    record = json.loads((tmp_path / "audit.json").read_text(encoding="utf-8"))
    assert [row["group"] for row in record["checks"][-1]["rows"]] == ["0", "1"]
    CliRunner().invoke(app, ["model", "calibrate", str(folder), str(tmp_path / "data.npz")], catch_exceptions=False)
    again = CliRunner().invoke(app, list(map(str, words[:3])), catch_exceptions=False)
    assert "– calibration and coverage" in again.output  # the same images
    assert "coverage nan" not in again.output
    with pytest.raises(HCEPError, match=r"has no column 'camra'.*camera"):
        CliRunner().invoke(app, list(map(str, [*words[:3], "--by", "camra", *words[5:]])), catch_exceptions=False)


@pytest.mark.slow
def test_imagenette_passes_and_the_leaky_one_does_not() -> None:
    task = imagenette().shots(50, 0)
    X_train, X, y = task.X[:, ::4], task.X_val[::3, ::4], task.y_val[::3]
    honest, leaky = HCEPClassifier(task.hierarchy, refine=False), Leaky(task.hierarchy, **SETTINGS)
    assert audit(honest.fit(X_train, task.y), X, y, train=(X_train, task.y)).failed == ()
    assert "leakage" in audit(leaky.fit(X_train, task.y), X, y).failed


def test_coverage_is_also_measured_as_a_mean_over_classes(sample) -> None:
    model = HCEPClassifier(sample.hierarchy, shrinkage=0.6, anchor=0.3).fit(sample.X_train[::4], sample.y_train[::4])
    model.calibrate(sample.X_val[::2], sample.y_val[::2])
    X, y = sample.X_val[1::2], sample.y_val[1::2]
    check = by_name(audit(model, X, y, sure=0.9))["calibration and coverage"]
    above = {c: {None, c, *model.hierarchy_.ancestors(c)} for c in model.classes_.tolist()}
    right = np.array([concept in above[c] for concept, c in zip(model.predict_concept(X), y.tolist(), strict=True)])
    by_class = sorted(right[y == c].mean() for c in model.classes_)
    assert check.figures["coverage"] == pytest.approx(right.mean())
    assert check.figures["macro_coverage"] == pytest.approx(np.mean(by_class))
    assert check.figures["worst_tenth_of_classes"] == pytest.approx(by_class[0])
    assert "as a mean over classes" in check.measured


def test_a_model_that_is_not_calibrated_promises_nothing(model, sample) -> None:
    result = audit(model, sample.X_val, sample.y_val)
    check = by_name(result)["calibration and coverage"]
    assert "where 0.9 was asked for, on half of the images after calibration with the other half" in check.measured
    assert "promises nothing until it is calibrated (hcep model calibrate)" in check.measured
    assert "promised" not in check.measured
    assert not any("promised coverage can be relied on" in text for text in result.sentences)
    assert any("It promises no coverage itself" in text for text in result.sentences)
    calibrated = HCEPClassifier(sample.hierarchy, **SETTINGS).fit(sample.X_train, sample.y_train)
    calibrated.calibrate(sample.X_val[::2], sample.y_val[::2])
    again = audit(calibrated, sample.X_val[1::2], sample.y_val[1::2])
    assert "promised 0.9" in by_name(again)["calibration and coverage"].measured
    assert not any("It promises no coverage" in text for text in again.sentences)
