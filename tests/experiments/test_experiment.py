"""The runner on a small experiment of its own: cells are measured once, kept, drawn from the rows alone."""

from dataclasses import dataclass, replace

import numpy as np
import pytest
from matplotlib.figure import Figure

from experiments import synthetic
from experiments.all_experiments import EXPERIMENTS
from experiments.claims import Verdict, by_method
from experiments.experiment import Experiment, draw, run
from experiments.figures import panels
from experiments.records import OF_IMAGES, PER_IMAGE, packed
from experiments.tasks import task_from_arrays
from hcep import Hierarchy
from hcep.errors import HCEPError, MissingExtraError
from hcep.evaluate.image_scores import ImageScores

HIERARCHY = Hierarchy.from_edges([("r", "cat"), ("r", "dog")])


@dataclass(frozen=True)
class Config:
    xs: tuple[int, ...] = (1, 2, 3)


class Counting:
    """Measures x squared, counts how often it is asked, and stops at an x on request."""

    def __init__(self, stop_at=None):
        self.measured, self.stop_at = [], stop_at

    def measure(self, config, task, cell):
        if cell["x"] == self.stop_at:
            raise KeyboardInterrupt
        self.measured.append(cell["x"])
        yield {"label": "OMP", **cell, "accuracy": cell["x"] ** 2 / 10}


def squares(counting, config=Config()):
    return Experiment(
        name="squares",
        title="Squares",
        paper="Nowhere.",
        question="How much is x squared?",
        config=config,
        smoke=Config(xs=(1,)),
        data=(),
        cells=lambda config, task: [{"x": x} for x in config.xs],
        measure=counting.measure,
        draw=lambda rows: panels({"": rows}, "x", ("accuracy",), "x"),
        verdicts=lambda rows: [Verdict("grows", "better", "yes")],
        table=lambda rows: by_method(rows, "x", ("accuracy",)),
    )


def task(scale=1.0):
    X = scale * np.eye(2)
    return task_from_arrays("eye", "none", HIERARCHY, (X, ["cat", "dog"]), (X, ["cat", "dog"]))


def test_every_cell_is_measured_and_drawn(tmp_path):
    records = run(squares(Counting()), [None], tmp_path)
    assert [row["accuracy"] for row in records.rows] == [0.1, 0.4, 0.9]
    assert {file.name for file in tmp_path.iterdir()} == {"rows.json", "rows.parquet", "figure.png", "figure.svg"}


def test_nothing_is_measured_twice(tmp_path):
    run(squares(Counting()), [None], tmp_path)
    again = Counting()
    assert len(run(squares(again), [None], tmp_path).rows) == 3
    assert again.measured == []


def test_a_stopped_run_resumes(tmp_path):
    with pytest.raises(KeyboardInterrupt):
        run(squares(Counting(stop_at=3)), [None], tmp_path)
    again = Counting()
    records = run(squares(again), [None], tmp_path)
    assert again.measured == [3]
    assert [row["x"] for row in records.rows] == [1, 2, 3]


def test_a_changed_setting_adds_new_cells_and_drops_old_ones(tmp_path):
    run(squares(Counting()), [None], tmp_path)
    again = Counting()
    records = run(squares(again, Config(xs=(2, 5))), [None], tmp_path)
    assert again.measured == [5]
    assert sorted(row["x"] for row in records.rows) == [2, 5]


def test_fresh_measures_everything_again(tmp_path):
    run(squares(Counting()), [None], tmp_path)
    again = Counting()
    run(squares(again), [None], tmp_path, fresh=True)
    assert again.measured == [1, 2, 3]


def test_other_data_are_measured_separately(tmp_path):
    run(squares(Counting()), [task()], tmp_path)
    again = Counting()
    records = run(squares(again), [task(2.0)], tmp_path)
    assert again.measured == [1, 2, 3]
    assert {row["data"] for row in records.rows} == {"eye"}


def test_the_short_settings(tmp_path):
    assert len(run(squares(Counting()), [None], tmp_path, smoke=True).rows) == 1


def test_provenance_names_the_data(tmp_path):
    data = run(squares(Counting()), [task()], tmp_path).provenance["data"]
    assert data[0]["digest"] == task().digest
    assert (data[0]["n_train"], data[0]["n_val"]) == (2, 2)


def test_a_cell_without_its_package_is_skipped_with_the_reason_and_measured_later(tmp_path):
    class Lacking(Counting):
        def measure(self, config, task, cell):
            if cell["x"] == 2:
                raise MissingExtraError("install it")
            yield from super().measure(config, task, cell)

    records = run(squares(Lacking()), [None], tmp_path)
    assert [row["x"] for row in records.rows] == [1, 3]
    assert records.provenance["skipped"] == {"x 2": "install it"}
    again = Counting()
    assert run(squares(again), [None], tmp_path).provenance["skipped"] == {}
    assert again.measured == [2]


def test_progress_is_reported(tmp_path):
    told = []
    run(squares(Counting()), [None], tmp_path, on_cell=lambda *args: told.append(args))
    assert told == [("x 1", 0, 3), ("x 2", 1, 3), ("x 3", 2, 3), ("drawing", 3, 3)]


def test_drawing_the_same_rows_twice_gives_the_same_bytes(tmp_path):
    counting = squares(Counting())
    rows = run(counting, [None], tmp_path).rows
    first = [(tmp_path / name).read_bytes() for name in ("figure.png", "figure.svg")]
    assert [file.read_bytes() for file in draw(counting, rows, tmp_path)] == first


def by_method_of(counting):
    """The same experiment with a method in every cell."""
    whole = squares(counting)
    cells = [{"x": x, "method": "omp" if x < 3 else "nn"} for x in (1, 2, 3)]
    return replace(whole, cells=lambda config, task: cells)


def test_one_method_is_measured_again_and_the_other_rows_stay(tmp_path):
    first = run(by_method_of(Counting()), [None], tmp_path).rows
    again = Counting()
    assert run(by_method_of(again), [None], tmp_path, methods=["nn"]).rows == first
    assert again.measured == [3]


def test_an_unknown_method_is_an_error(tmp_path):
    with pytest.raises(HCEPError, match="squares has no cells of hcep; it has omp, nn"):
        run(by_method_of(Counting()), [None], tmp_path, methods=["hcep"])


def test_scores_of_images_are_stored_with_the_rows(tmp_path):
    scores = ImageScores(("cat",) * 3, None, {name: np.array([1.0, 0.0, np.nan]) for name in PER_IMAGE})
    images = packed(scores)
    kept = replace(
        squares(Counting()), measure=lambda config, task, cell: [{"label": "OMP", **cell, OF_IMAGES: images}],
        draw=lambda rows: Figure(),
    )  # fmt: skip
    run(kept, [None], tmp_path)
    again = run(kept, [None], tmp_path).rows
    assert len(again) == 3
    assert all((row[OF_IMAGES][name] == images[name]).all() for row in again for name in PER_IMAGE)
    assert OF_IMAGES not in (tmp_path / "rows.json").read_text()


def test_the_number_of_shots_can_be_changed():
    changed = EXPERIMENTS["imagenet"].with_shots(None)
    assert (changed.config.shots, changed.smoke.shots) == (None, None)
    for name in ("fewshot", "synthetic"):
        with pytest.raises(HCEPError, match=f"{name} has no single number of images per class; leave --shots out"):
            EXPERIMENTS[name].with_shots(5)


def test_a_missing_package_is_reported_before_anything_runs(monkeypatch):
    monkeypatch.setattr("experiments.measuring.find_spec", lambda module: None if module == "skglm" else module)
    (sentence,) = EXPERIMENTS["synthetic"].missing([None])
    assert sentence.endswith("left out: skglm is not installed; pip install skglm")


def test_the_synthetic_figure_works_with_missing_rows(tmp_path, monkeypatch):
    def lacking(*args, **options):
        raise MissingExtraError("install skglm")

    monkeypatch.setattr(synthetic, "lasso", lacking)
    tiny = synthetic.Config(depth=2, dim=10, depths=(2,), noises=(1e-5,), seeds=(0,), samples_per_leaf=1)
    records = run(replace(EXPERIMENTS["synthetic"], config=tiny), [None], tmp_path)
    assert len(records.provenance["skipped"]) == 2
    assert "Tree l1" in EXPERIMENTS["synthetic"].table(records.rows)
    assert EXPERIMENTS["synthetic"].verdicts(records.rows)
    assert EXPERIMENTS["synthetic"].verdicts([]) == []
