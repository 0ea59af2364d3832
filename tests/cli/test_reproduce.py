"""`hcep reproduce` as a user runs it."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from hcep.cli.app import app
from hcep.datasets import load_sample
from hcep.errors import HCEPError
from hcep.experiments.tasks import SHARED

NO_DATA = "nothing here"


@pytest.fixture(autouse=True)
def nothing_shared(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv(SHARED, NO_DATA)


def hcep(*args):
    return CliRunner().invoke(app, ["reproduce", *map(str, args)], catch_exceptions=False)


def sample_file(folder: Path) -> Path:
    """The bundled sample as an .npz of a user."""
    data = load_sample()
    file = folder / "mine.npz"
    X, y = np.concatenate([data.X_train, data.X_val]), np.concatenate([data.y_train, data.y_val])
    split = np.repeat(["train", "test"], [len(data.y_train), len(data.y_val)])
    np.savez(file, embeddings=X, labels=y, split=split)
    return file


def test_without_a_name_the_experiments_are_listed():
    assert "wrong-tree" in hcep().output
    assert json.loads(hcep("--json").output)["synthetic"] == "Support recovery on synthetic hierarchies"


def test_one_experiment_on_the_bundled_sample(tmp_path):
    result = hcep("beam-ablation", "--smoke")
    assert result.exit_code == 0
    assert "ImageNette sample" in result.stdout
    assert (tmp_path / "experiments/smoke/beam-ablation/figure.png").is_file()


def test_a_users_own_file(tmp_path):
    report = json.loads(hcep("beam-ablation", "--smoke", "--data", sample_file(tmp_path), "-o", "out", "--json").stdout)
    assert report["beam-ablation"]["data"] == ["mine.npz"]
    assert report["beam-ablation"]["rows"] == 8


def test_another_data_set_has_a_folder_of_its_own(tmp_path):
    file = sample_file(tmp_path)
    command = ("beam-ablation", "--smoke", "-o", "out", "--json")
    first = json.loads(hcep(*command, "--data", file).stdout)["beam-ablation"]["folder"]
    second = json.loads(hcep(*command, "--data", file, "--hierarchy", "flat").stdout)["beam-ablation"]["folder"]
    hcep(*command)
    assert first != second
    assert all((Path(folder) / "rows.json").is_file() for folder in (first, second, "out/beam-ablation"))
    assert hcep("-o", "out", "--page", "results.md").exit_code == 0
    assert Path("results.md").read_text(encoding="utf-8").count("figure.png") == 3


def test_a_page_is_written_and_a_strange_one_left_alone(tmp_path):
    hcep("beam-ablation", "--smoke")
    assert hcep("--smoke", "--page", "docs/results.md").exit_code == 0
    assert "Ablation of the beam" in Path("docs/results.md").read_text(encoding="utf-8")
    Path("docs/own.md").write_text("# Mine\n", encoding="utf-8")
    with pytest.raises(HCEPError, match=r"own\.md' was not written by this command; nothing is overwritten"):
        hcep("--smoke", "--page", "docs/own.md")


def test_an_unknown_experiment():
    with pytest.raises(HCEPError, match=r"'fewshots'.* Near matches: 'fewshot'"):
        hcep("fewshots")


def test_data_that_is_not_at_hand():
    with pytest.raises(HCEPError, match="no data: tinyimagenet200"):
        hcep("imagenet", "--smoke")


def test_images_without_an_encoder(tmp_path):
    (tmp_path / "photos").mkdir()
    with pytest.raises(HCEPError, match="is a folder of images: say with --encoder"):
        hcep("imagenette", "--data", "photos")


def test_an_encoder_without_data():
    with pytest.raises(HCEPError, match="--encoder and --hierarchy belong to data of your own"):
        hcep("imagenette", "--encoder", "onnx:x.onnx")


def test_synthetic_data_is_its_own(tmp_path):
    with pytest.raises(HCEPError, match="synthetic makes its own data; leave --data out"):
        hcep("synthetic", "--smoke", "--data", sample_file(tmp_path))


def test_data_without_a_split(tmp_path):
    data = load_sample()
    np.savez("flat.npz", embeddings=data.X_val, labels=data.y_val)
    with pytest.raises(HCEPError, match=r"must have a train split .* it has none"):
        hcep("imagenette", "--data", "flat.npz")


def test_all_skips_what_has_no_data(monkeypatch):
    """Only the lists are shortened: two experiments, one of which has no data here."""
    from hcep.experiments import all_experiments

    kept = {name: all_experiments.EXPERIMENTS[name] for name in ("beam-ablation", "siglip")}
    monkeypatch.setattr(all_experiments, "EXPERIMENTS", kept)
    result = hcep("--all", "--smoke")
    assert result.exit_code == 0
    assert "skipped siglip: no data: cifar10_500" in result.stderr.replace("\n", " ")
    assert "beam-ablation" in result.stdout


def test_a_stand_in_says_so_in_title_folder_and_output(monkeypatch, tmp_path):
    from hcep.experiments import all_experiments

    own = replace(all_experiments.EXPERIMENTS["beam-ablation"], name="imagenet", stand_in="sample-standin")
    monkeypatch.setattr(all_experiments, "EXPERIMENTS", {"imagenet": own})
    result = hcep("sample-standin", "--smoke")
    assert "imagenet on other data than the paper's: sample-standin, ImageNette sample" in result.stderr
    assert "ImageNette sample standing in" in " ".join(result.stdout.split())
    assert (tmp_path / "experiments/smoke/sample-standin/rows.json").is_file()
    hcep("--smoke", "--page", "docs/results.md")
    assert "standing in" in Path("docs/results.md").read_text(encoding="utf-8")


def test_shots_and_methods(tmp_path):
    command = ("beam-ablation", "--smoke", "--json")
    first = json.loads(hcep(*command, "--shots", "3").stdout)["beam-ablation"]
    assert first["folder"].endswith("beam-ablation/shots-3")
    assert first["verdicts"][0]["outcome"] in ("better", "tied", "worse")
    again = json.loads(hcep(*command, "--shots", "3", "--methods", "hb-omp").stdout)["beam-ablation"]
    assert again["rows"] == first["rows"]
    with pytest.raises(HCEPError, match="--shots: a number of images per class or `all`, got '0'"):
        hcep(*command, "--shots", "0")
    with pytest.raises(HCEPError, match=r"--methods: no method 'hbomp'. Near matches: 'hb-omp'"):
        hcep(*command, "--methods", "hbomp")


def test_tables_of_a_page_are_filled_from_the_rows():
    assert hcep("sample", "--smoke").exit_code == 0
    page = "# Mine\n<!-- rows: sample -->\nold\n<!-- end of rows -->\nrest\n"
    Path("README.md").write_text(page, encoding="utf-8")
    hcep("--smoke", "--readme", "README.md")
    filled = Path("README.md").read_text(encoding="utf-8")
    assert "| HCEP (ours) | " in filled
    assert "old" not in filled
    assert filled.endswith("<!-- end of rows -->\nrest\n")
    for name, told in (("samples", "no table 'samples'. Near matches: 'sample'"), ("bench", "table 'bench': no rows")):
        Path("README.md").write_text(page.replace("rows: sample", f"rows: {name}"), encoding="utf-8")
        with pytest.raises(HCEPError, match=told):
            hcep("--smoke", "--readme", "README.md")


def test_the_short_settings_say_how_long_they_take():
    assert "short settings: about" in hcep("beam-ablation", "--smoke").stderr
