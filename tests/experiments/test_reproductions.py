"""Every experiment runs in its short settings, is drawn from its rows, and says what holds."""

from dataclasses import replace

import pytest

from experiments.all_experiments import EXPERIMENTS
from experiments.experiment import run
from experiments.page import MARK, results_page
from experiments.synthetic import Config, cells, measure
from experiments.tasks import SHARED, imagenette
from tests.conftest import shared_file

ON_SAMPLE = ("imagenette", "fewshot", "beam-ablation", "runtime", "geometry", "wrong-tree", "heads", "ties")


@pytest.fixture(scope="module")
def sample(tmp_path_factory):
    """A part of the bundled sample."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(SHARED, str(tmp_path_factory.mktemp("nothing")))
        return imagenette().first_classes(6).first_images(90)


@pytest.fixture(scope="module")
def results(sample, tmp_path_factory):
    """The short settings of every experiment on the bundled sample."""
    folder = tmp_path_factory.mktemp("results")
    for name in ON_SAMPLE:
        run(EXPERIMENTS[name], [sample], folder / name, smoke=True)
    run(EXPERIMENTS["synthetic"], [None], folder / "synthetic", smoke=True)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("name", [*ON_SAMPLE, "synthetic"])
def test_rows_figures_tables_and_verdicts(name, results):
    experiment, folder = EXPERIMENTS[name], results / name
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")
    assert b"<svg" in (folder / "figure.svg").read_bytes()
    from experiments.records import Records

    rows = Records(folder, name).rows
    assert rows
    assert experiment.table(rows).count("\n|") > 1
    assert all(verdict.claim and verdict.measured for verdict in experiment.verdicts(rows))


@pytest.mark.slow
def test_metrics_are_shares(results):
    from experiments.records import Records

    rows = Records(results / "imagenette", "imagenette").rows
    names = ("accuracy", "support_precision", "support_recall")
    values = [r[name] for r in rows for name in names if r[name] is not None]  # a black box has no supports
    assert all(0.0 <= value <= 1.0 for value in values)
    assert all(r["accuracy_low"] <= r["accuracy"] <= r["accuracy_high"] for r in rows)


@pytest.mark.slow
def test_a_method_is_better_than_chance_on_the_sample(results):
    from experiments.records import Records

    rows = Records(results / "imagenette", "imagenette").rows
    full = {r["label"]: r["accuracy"] for r in rows if r["sparsity"] == r["depth"]}
    assert min(full.values()) > 0.5


@pytest.mark.slow
def test_the_page_is_made_from_the_rows(results, tmp_path):
    page = results_page(EXPERIMENTS, results, tmp_path / "docs" / "results.md")
    assert page.startswith(MARK)
    assert "`imagenet` was not run" in page
    assert page.count("figure.png") == len(ON_SAMPLE) + 1
    assert "the sample bundled with the package" in page
    assert page == results_page(EXPERIMENTS, results, tmp_path / "docs" / "results.md")


def test_every_experiment_has_all_texts():
    assert list(EXPERIMENTS) == [
        "synthetic",
        "sample",
        "imagenette",
        "cifar100",
        "imagenet",
        "fewshot",
        "beam-ablation",
        "runtime",
        "geometry",
        "siglip",
        "wrong-tree",
        "heads",
        "words",
        "atom-names",
        "fewshot-public",
        "where",
        "trust",
        "quality",
        "several",
        "labels",
        "right-level",
        "decoders",
        "ties",
        "planted-atoms",
        "learned-atoms",
        "packages",
    ]
    assert all(e.paper and e.question and e.title for e in EXPERIMENTS.values())


@pytest.mark.slow
def test_claims_hold_at_the_synthetic_defaults(tmp_path):
    """The paper's own settings, one image a leaf; depths and convex programs are left to the full run."""
    config = Config(seeds=(0,), depths=(), convex_images=0, samples_per_leaf=1)
    rows = [row for cell in cells(config, None) for row in measure(config, None, cell)]
    verdicts = EXPERIMENTS["synthetic"].verdicts(rows)
    assert len(verdicts) > 6
    assert [verdict.claim for verdict in verdicts if not verdict.holds and "above NN" not in verdict.claim] == []


@pytest.mark.slow
def test_claims_hold_for_few_shots_on_tiny_imagenet(tmp_path, monkeypatch):
    """HB-OMP above OMP and HNN as published, ours above HB-OMP, at 1 and 5 images a class."""
    from experiments.sparsity import FEWSHOT as EXPERIMENT, FewShotConfig
    from experiments.tasks import tiny_imagenet

    monkeypatch.setenv(SHARED, str(shared_file("data/tinyimagenet200_efficientnet_lite2.npz").parents[1]))
    methods = ("omp", "hnn", "hb-omp", "hcep")
    config = FewShotConfig(shots=(1, 5), seeds=(0,), methods=methods, once=(), n_val=1000)
    few = replace(EXPERIMENT, config=config)
    rows = run(few, [tiny_imagenet()], tmp_path).rows
    failed = [v.claim for v in few.verdicts(rows) if not v.holds and "every other" not in v.claim]
    assert failed == []
