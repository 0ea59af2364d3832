"""Answers at a rank: the same in Python, JSON, the report and the table; ranks of merged concepts are never lost."""

import csv
import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hcep import HCEPClassifier, HierarchyError, explain_images, read_hierarchy
from hcep.cli.app import app
from hcep.explain.report import photo_report
from hcep.models.saving import save_model

TAXA = """Kingdom,Class,Family,Genus,Species
Animalia,Mammalia,Felidae,Lynx,Lynx lynx
Animalia,Mammalia,Felidae,Lynx,Lynx rufus
Animalia,Mammalia,Felidae,Felis,Felis catus
Animalia,Mammalia,Canidae,Vulpes,Vulpes vulpes
Plantae,Liliopsida,Iridaceae,Iris,Iris sibirica
Plantae,Liliopsida,Iridaceae,Gladiolus,Gladiolus palustris
"""
SPECIES = [line.rpartition(",")[2] for line in TAXA.splitlines()[1:]]


@pytest.fixture(scope="module")
def taxa(tmp_path_factory):
    file = tmp_path_factory.mktemp("taxa") / "taxa.csv"
    file.write_text(TAXA)
    return read_hierarchy(file)


@pytest.fixture(scope="module")
def means(taxa):
    rng = np.random.default_rng(0)
    steps = {synset: rng.normal(size=24) / (1 + taxa.level(synset)) for synset in taxa}
    return {leaf: 3 + sum(steps[s] for s in taxa.paths(leaf)[0]) for leaf in taxa.leaves}


@pytest.fixture(scope="module")
def model(taxa, means):
    rng = np.random.default_rng(1)
    y = np.repeat(SPECIES, 12)
    X = np.stack([means[label] for label in y]) + 0.15 * rng.normal(size=(len(y), 24))
    return HCEPClassifier(taxa).fit(X, y)


def images_of(means, *labels):
    return np.stack([np.mean([means[one] for one in label.split("|")], axis=0) for label in labels])


def test_the_rank_of_an_answer(model, means):
    sure, between = explain_images(images_of(means, "Felis catus", "Lynx lynx|Lynx rufus"), model)
    assert (sure.answer, sure.rank, sure.at_rank, sure.doubt) == ("Felis catus", "Species", None, "")
    assert (between.answer, between.rank) == ("Lynx", "Genus")
    assert (sure.to_dict()["rank"], between.to_dict()["rank"]) == ("Species", "Genus")


@pytest.mark.parametrize(
    ("image", "rank", "answer", "answer_rank"),
    [
        ("Felis catus", "family", "Felidae", "Family"),
        ("Lynx lynx|Lynx rufus", "family", "Felidae", "Family"),
        ("Lynx lynx|Lynx rufus", "species", "Lynx", "Genus"),
        ("Vulpes vulpes", "family", "Canidae", "Family"),  # merged into the species
        ("Iris sibirica", "class", "Liliopsida", "Class"),
        ("Iris sibirica", "kingdom", "Plantae", "Kingdom"),
    ],
)
def test_answers_stop_at_a_rank(model, means, image, rank, answer, answer_rank):
    one = explain_images(images_of(means, image), model, rank=rank)[0]
    assert (one.answer, one.answer_name, one.rank) == (answer, answer, answer_rank)
    assert one.answer_probability >= max(0.9, one.probability - 1e-9)
    assert one.headline().startswith(answer)


def test_an_answer_at_the_rank_that_was_asked_for_is_not_in_doubt(model, means):
    family, genus = (
        explain_images(images_of(means, "Lynx lynx|Lynx rufus"), model, rank=r)[0] for r in ("family", "species")
    )
    assert family.doubt == ""
    assert genus.doubt == "which one is unclear"


def test_merged_ranks_are_part_of_the_path_for_people(model, means):
    one = explain_images(images_of(means, "Vulpes vulpes"), model)[0]
    assert [step.name for step in one.path][-1] == "Vulpes vulpes"
    assert one.path[-1].merged_ranks == ("Family", "Genus")
    assert one.names().endswith("Canidae → Vulpes → Vulpes vulpes")
    page = photo_report([one])
    assert "Canidae → Vulpes → Vulpes vulpes" in page
    assert "Species" in page


def test_unknown_ranks_are_refused_before_anything_is_explained(model, means):
    with pytest.raises(HierarchyError, match="'famly' is not a rank of this hierarchy"):
        explain_images(images_of(means, "Iris sibirica"), model, rank="famly")


def test_the_table_has_a_column_per_rank(model, means, tmp_path):
    save_model(model, tmp_path / "model")
    X = images_of(means, "Felis catus", "Vulpes vulpes", "Lynx lynx|Lynx rufus")
    np.savez(tmp_path / "new.npz", embeddings=X)
    for name, more in (("plain", []), ("family", ["--rank", "family"])):
        arguments = ["predict", tmp_path / "model", tmp_path / "new.npz", "-o", tmp_path / f"{name}.csv", *more]
        run = CliRunner().invoke(app, list(map(str, arguments)))
        assert run.exit_code == 0, run.output
    plain, family = (
        list(csv.DictReader((tmp_path / f"{n}.csv").read_text("utf-8").splitlines())) for n in ("plain", "family")
    )
    assert plain[0]["class"] == "Felis catus"
    ranks = ("Kingdom", "Class", "Family", "Genus", "Species")
    assert [plain[1][f"rank_{r}"] for r in ranks] == ["Animalia", "Mammalia", "Canidae", "Vulpes", "Vulpes vulpes"]
    assert [plain[2][f"rank_{r}"] for r in ranks] == ["Animalia", "Mammalia", "Felidae", "Lynx", ""]
    assert [row["answer"] for row in family] == ["Felidae", "Canidae", "Felidae"]
    assert {row["rank"] for row in family} == {"Family"}
    assert {row["doubt"] for row in family} == {""}
    assert [family[1][f"rank_{r}"] for r in ranks] == ["Animalia", "Mammalia", "Canidae", "", ""]


def test_a_hierarchy_without_ranks_has_no_such_columns(tmp_path, taxa, means):
    y = np.repeat(SPECIES, 12)
    X = np.stack([means[label] for label in y]) + 0.05 * np.random.default_rng(1).normal(size=(len(y), 24))
    save_model(HCEPClassifier(taxa.with_ranks({})).fit(X, y), tmp_path / "model")
    np.savez(tmp_path / "new.npz", embeddings=X[:2])
    arguments = ["predict", tmp_path / "model", tmp_path / "new.npz", "-o", tmp_path / "p.csv"]
    assert CliRunner().invoke(app, list(map(str, arguments))).exit_code == 0
    assert not [name for name in (tmp_path / "p.csv").read_text().split("\n")[0].split(",") if "rank_" in name]
    refused = CliRunner().invoke(app, [*map(str, arguments), "--overwrite", "--rank", "family"])
    assert "the hierarchy has no ranks" in str(refused.exception)


def test_json_has_the_rank(model, means):
    one = explain_images(images_of(means, "Vulpes vulpes"), model, rank="genus")[0]
    record = json.loads(json.dumps(one.to_dict()))
    assert (record["answer"], record["rank"], record["at_rank"]) == ("Vulpes", "Genus", "Genus")
    assert record["path"][-1]["rank"] == "Species"
