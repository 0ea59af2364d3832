"""`hcep hierarchy show | lint | convert`."""

import json

import pytest
from typer.testing import CliRunner

from hcep import HCEPError, HierarchyError
from hcep.cli.app import app
from hcep.hierarchy import read_hierarchy


def run(*words):
    return CliRunner().invoke(app, ["hierarchy", *map(str, words)])


@pytest.fixture
def file(tmp_path, pets):
    pets.to_json(tmp_path / "pets.json")
    return tmp_path / "pets.json"


def test_show_draws_the_tree(file):
    result = run("show", file)
    assert result.exit_code == 0
    assert "├── animal" in result.stdout
    assert result.stdout.endswith("\n\n8 concepts, 5 classes, 7 edges, 3 levels, root 'thing'\n")


def test_show_starts_with_how_the_file_was_read(tmp_path):
    (tmp_path / "animals.csv").write_text("Group,Species\nmammal,cat\nmammal,dog\nbird,parrot\n")
    first = run("show", tmp_path / "animals.csv").stderr
    assert first.startswith("animals.csv: level columns Group > Species, 2 levels, 3 classes")


def test_show_a_part(file):
    result = run("show", file, "--concept", "animal", "--depth", "1")
    assert "vehicle" not in result.stdout
    assert "cat" in result.stdout
    both = run("show", file, "--concept", "animal", "--concept", "vehicle", "--depth", "1")
    assert both.stdout.startswith(result.stdout)
    assert "bus" in both.stdout
    assert "thing" in run("show", file, "--concept", "thing", "--depth", "0").stdout
    assert "cat" in run("show", file, "--concept", "cat").stdout


def test_show_imagenet_and_a_model_folder(file, tmp_path):
    assert "entity" in run("show", "imagenet", "--depth", "1").stdout
    file.rename(tmp_path / "hierarchy.json")
    assert "├── animal" in run("show", tmp_path).stdout


def test_show_json(file):
    summary = json.loads(run("show", file, "--json").stdout)
    assert summary["depth"] == 2
    assert ["animal", "cat"] in summary["edges"]


def test_the_exit_code_of_lint_is_1_for_an_error(file, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\nunicorn\n")
    assert run("lint", file).exit_code == 0
    result = run("lint", file, "--classes", labels)
    assert result.exit_code == 1
    assert "unicorn" in result.stdout
    findings = json.loads(run("lint", file, "--classes", labels, "--json").stdout)["findings"]
    assert findings[0]["code"] == "missing-class"


def test_convert_and_refuse_to_overwrite(file, tmp_path, pets):
    target = tmp_path / "pets.tsv"
    assert run("convert", file, target).exit_code == 0
    assert read_hierarchy(target) == pets
    with pytest.raises(HCEPError, match=r"TARGET: .* already exists; pass --overwrite"):
        raise run("convert", file, target).exception
    assert run("convert", file, target, "--overwrite", "--collapse", "--single-parent", "first").exit_code == 0


def test_unknown_policy_is_an_input_error(file, tmp_path):
    result = run("convert", file, tmp_path / "x.json", "--single-parent", "second")
    assert isinstance(result.exception, HierarchyError)
    assert not (tmp_path / "x.json").exists()
