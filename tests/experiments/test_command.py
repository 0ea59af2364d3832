"""`python -m experiments`, as a user runs it."""

import json
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from typer.testing import CliRunner

from experiments.command import app
from experiments.tasks import SHARED
from hcep.datasets import load_sample
from hcep.errors import HCEPError

NO_DATA = "nothing here"
RESULTS = Path(__file__).parents[2] / "experiments" / "results"


@pytest.fixture(autouse=True)
def nothing_shared(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SHARED, NO_DATA)


def run(*args):
    return CliRunner().invoke(app, [*map(str, args)], catch_exceptions=False)


def sample_file(folder: Path) -> Path:
    """Every fifth image of the bundled sample as an .npz of a user."""
    data = load_sample()
    data = {name: data[name][::5] for name in ("X_train", "y_train", "X_val", "y_val")}
    data = SimpleNamespace(**data)
    file = folder / "mine.npz"
    X, y = np.concatenate([data.X_train, data.X_val]), np.concatenate([data.y_train, data.y_val])
    split = np.repeat(["train", "test"], [len(data.y_train), len(data.y_val)])
    np.savez(file, embeddings=X, labels=y, split=split)
    return file


def test_without_a_name_the_experiments_are_listed():
    assert "wrong-tree" in run().output
    assert json.loads(run("--json").output)["synthetic"] == "Support recovery on synthetic hierarchies"


def test_an_unknown_experiment():
    with pytest.raises(HCEPError, match=r"'fewshots'.* Near matches: 'fewshot'"):
        run("fewshots")


def test_missing_data_is_an_error():
    with pytest.raises(HCEPError, match="no data: tinyimagenet200"):
        run("imagenet", "--smoke")


def test_a_folder_of_images_needs_an_encoder(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(HCEPError, match="is a folder of images; pass --encoder"):
        run("imagenette", "--data", "photos")


def test_an_encoder_needs_data():
    with pytest.raises(HCEPError, match="--encoder and --hierarchy describe your own data"):
        run("imagenette", "--encoder", "onnx:x.onnx")


def test_an_experiment_on_synthetic_data_rejects_other_data(tmp_path):
    with pytest.raises(HCEPError, match="synthetic generates its own data; leave --data out"):
        run("synthetic", "--smoke", "--data", sample_file(tmp_path))


def test_data_without_splits_are_rejected(tmp_path):
    data = load_sample()
    np.savez("flat.npz", embeddings=data.X_val, labels=data.y_val)
    with pytest.raises(HCEPError, match=r"must have a train split and a val or test split; its splits: none"):
        run("imagenette", "--data", "flat.npz")


def test_all_skips_experiments_without_data():
    result = run("--all", "beam-ablation", "siglip", "--smoke")
    assert result.exit_code == 0
    assert "skipped siglip: no data: cifar10_500" in result.stderr.replace("\n", " ")
    assert "beam-ablation" in result.stdout


def test_other_data_than_the_papers_are_named_in_title_folder_and_output(monkeypatch, tmp_path):
    from experiments import all_experiments

    own = replace(all_experiments.EXPERIMENTS["beam-ablation"], name="imagenet", stand_in="sample-standin")
    monkeypatch.setattr(all_experiments, "EXPERIMENTS", {"imagenet": own})
    result = run("sample-standin", "--smoke")
    assert "imagenet does not run on the paper's data but on sample-standin, ImageNette sample" in result.stderr
    assert "on ImageNette sample instead" in " ".join(result.stdout.split())
    assert (tmp_path / "experiments/smoke/sample-standin/rows.json").is_file()
    run("--smoke", "--page", "docs/results.md")
    assert "on ImageNette sample instead" in Path("docs/results.md").read_text(encoding="utf-8")


def test_shots_and_methods(tmp_path):
    command = ("beam-ablation", "--smoke", "--json")
    first = json.loads(run(*command, "--shots", "3").stdout)["beam-ablation"]
    assert first["folder"].endswith("beam-ablation/shots-3")
    assert first["verdicts"][0]["outcome"] in ("better", "tied", "worse")
    again = json.loads(run(*command, "--shots", "3", "--methods", "hb-omp").stdout)["beam-ablation"]
    assert again["rows"] == first["rows"]
    with pytest.raises(HCEPError, match="--shots must be a positive number of images per class or `all`, got '0'"):
        run(*command, "--shots", "0")
    with pytest.raises(HCEPError, match=r"--methods: no method 'hbomp'. Near matches: 'hb-omp'"):
        run(*command, "--methods", "hbomp")


def test_one_experiment_on_the_bundled_sample_and_a_page_of_it(tmp_path):
    result = run("beam-ablation", "--smoke")
    assert result.exit_code == 0
    assert "short settings: about" in result.stderr
    assert "ImageNette sample" in result.stdout
    assert (tmp_path / "experiments/smoke/beam-ablation/figure.png").is_file()
    assert run("--smoke", "--page", "docs/results.md").exit_code == 0
    assert "Ablation of the beam" in Path("docs/results.md").read_text(encoding="utf-8")
    Path("docs/own.md").write_text("# Mine\n", encoding="utf-8")
    with pytest.raises(HCEPError, match=r"own\.md' was not written by this command and is not overwritten"):
        run("--smoke", "--page", "docs/own.md")


def test_a_users_own_file_has_a_folder_for_each_hierarchy(tmp_path):
    file = sample_file(tmp_path)
    command = ("beam-ablation", "--smoke", "-o", "out", "--json")
    first = json.loads(run(*command, "--data", file).stdout)["beam-ablation"]
    assert first["data"] == ["mine.npz"]
    assert first["rows"] == 8
    second = json.loads(run(*command, "--data", file, "--hierarchy", "flat").stdout)["beam-ablation"]
    assert first["folder"] != second["folder"]
    assert all((Path(found["folder"]) / "rows.json").is_file() for found in (first, second))
    assert run("-o", "out", "--page", "results.md").exit_code == 0
    assert Path("results.md").read_text(encoding="utf-8").count("figure.png") == 2


def test_tables_of_a_page_are_filled_from_the_rows():
    shutil.copytree(RESULTS / "sample", "experiments/smoke/sample")
    page = "# Mine\n<!-- rows: sample -->\nold\n<!-- end of rows -->\nrest\n"
    Path("README.md").write_text(page, encoding="utf-8")
    run("--smoke", "--readme", "README.md")
    filled = Path("README.md").read_text(encoding="utf-8")
    assert "| HCEP (ours) | " in filled
    assert "old" not in filled
    assert filled.endswith("<!-- end of rows -->\nrest\n")
    for name, message in (
        ("samples", "no table 'samples'. Near matches: 'sample'"),
        ("bench", "table 'bench': no rows"),
    ):
        Path("README.md").write_text(page.replace("rows: sample", f"rows: {name}"), encoding="utf-8")
        with pytest.raises(HCEPError, match=message):
            run("--smoke", "--readme", "README.md")


def test_help_shows_options_and_examples():
    shown = run("--help")
    assert shown.exit_code == 0
    assert "python -m experiments" in shown.stdout
    assert "--smoke" in shown.stdout


@pytest.mark.slow
def test_the_module_runs_and_an_error_is_one_line():
    command = [sys.executable, "-m", "experiments", "fewshots"]
    unknown = subprocess.run(command, cwd=RESULTS.parents[1], capture_output=True, text=True, check=False)
    assert unknown.returncode == 2
    assert unknown.stderr.startswith("error: no experiment 'fewshots'")
    assert "Traceback" not in unknown.stderr
