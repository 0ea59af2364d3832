"""`hcep evaluate`, alone and with --compare, on the bundled sample."""

import csv
import json
from io import StringIO

import numpy as np
import pyarrow.csv
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner

from hcep.classify.methods.all_methods import METHODS
from hcep.cli.app import app
from hcep.datasets import load_sample
from hcep.dictionary import DependentAtomsWarning
from hcep.errors import HCEPError
from hcep.models import read_model

N_DIMS = 160


def invoke(*words, **options):
    result = CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False, **options)
    assert result.exit_code == 0, result.output
    return result


def run(*words, **options):
    return invoke(*words, **options).stdout


def fails(match, *words, error=HCEPError):
    with pytest.raises(error, match=match):
        CliRunner().invoke(app, [str(word) for word in words], catch_exceptions=False)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Twenty training and twenty validation images of each class, in few dimensions: fits take no time."""
    sample = load_sample()
    path = tmp_path_factory.mktemp("arrays") / "sample.npz"
    rows = [np.concatenate([np.flatnonzero(y == c)[:20] for c in np.unique(y)]) for y in (sample.y_train, sample.y_val)]
    np.savez(
        path,
        embeddings=np.concatenate([sample.X_train[rows[0], :N_DIMS], sample.X_val[rows[1], :N_DIMS]]),
        labels=np.concatenate([sample.y_train[rows[0]], sample.y_val[rows[1]]]),
        split=np.repeat(["train", "val"], 200),
    )
    return path


@pytest.fixture(scope="module")
def model(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "ours"
    run("fit", data, "-o", folder, "-P", "anchor=0.03", "-P", "shrinkage=none", "-P", "tree=first")
    return folder


@pytest.fixture(scope="module")
def paper(data, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models") / "paper"
    run("fit", data, "-o", folder, "--paper", "-P", "tree=first")
    return folder


def test_one_model_as_json(model, data):
    facts = json.loads(run("evaluate", model, data, "--json"))
    assert facts["n_images"] == 200
    assert facts["accuracy"] == facts["top_1"] > 0.9
    assert facts["top_5"] >= facts["accuracy"]
    assert facts["one_path"] == 1.0
    assert len(facts["prefix_accuracy"]) == 4
    assert facts["prefix_accuracy"][0] > 0.9
    low, high = facts["intervals"]["accuracy"]
    assert low <= facts["accuracy"] <= high
    assert facts["mistake_tree_distance"] >= 2
    assert facts["classes"] is None


def test_one_model_is_printed_in_plain_words(model, data):
    text = run("evaluate", model, data, "--by-class")
    for words in ("accuracy", "accuracy down to level 1, 2, …", "(ECE)", "docs/metrics.md", " to ", "tench"):
        assert words in text
    for insider in ("lca", "n atoms", "support", "prefix", "energy"):
        assert insider not in text
    assert "†" not in text
    assert "top-1" not in text  # it is the accuracy


def test_the_evaluated_split_is_named(model, data):
    result = invoke("evaluate", model, data, "--json")
    assert json.loads(result.stdout)["data"] == f"{data}, split val"
    assert result.stderr == ""


def test_training_images_give_a_warning(model, data, tmp_path, monkeypatch):
    again = invoke("evaluate", model, data, "--split", "train", "--json")
    assert f"warning: {data}, split train is what the model was fitted on" in again.stderr
    assert again.stderr.count("\n") == 1
    with np.load(data) as arrays:
        np.savez(tmp_path / "x.npz", embeddings=arrays["embeddings"], labels=arrays["labels"])
        np.savez(tmp_path / "y.npz", **{**arrays, "split": np.repeat(["train", "test"], 200)})
    monkeypatch.chdir(tmp_path)
    for name in ("x", "y"):
        run("fit", f"{name}.npz", "-o", name, "-P", "anchor=0.03", "-P", "shrinkage=none", "-P", "tree=first")
    assert "x.npz is what the model was fitted on" in invoke("evaluate", "x", tmp_path / "x.npz").stderr
    assert "y.npz includes what the model was fitted on" in invoke("evaluate", "y", "y.npz").stderr
    assert invoke("evaluate", "y", "y.npz", "--split", "test").stderr == ""
    invoke("audit", "x", "x.npz", "-o", "audit.html")
    record = json.loads((tmp_path / "audit.json").read_text())
    assert record["sentences"] == [record["warnings"][0]]
    assert record["sentences"][0].startswith("This audit allows no conclusions")
    assert record["warnings"][1].startswith("400 of 400 images are training images of the model")
    assert {check["passed"] for check in record["checks"]} == {None}


def test_top_k_is_chosen(model, data, tmp_path):
    facts = json.loads(run("evaluate", model, data, "--json", "--top-k", "2", "--top-k", "10"))
    assert facts["top_10"] == 1.0
    assert facts["accuracy"] <= facts["top_2"] <= 1.0
    assert "top_5" not in facts
    run("evaluate", model, data, "--compare", "nn", "--top-k", "2", "-o", tmp_path / "t.md")
    assert "top-2" in (tmp_path / "t.md").read_text(encoding="utf-8")


def test_compare_with_baselines_and_another_model(model, paper, data):
    text = run("evaluate", model, data, "--compare", "omp", "--compare", "nn", "--compare", paper, "--json")
    table = json.loads(text)
    scores = {(score["method"], score["metric"]): score for score in table["scores"]}
    assert list(dict.fromkeys(score["method"] for score in table["scores"])) == ["ours", "OMP", "NN", str(paper)]
    assert table["reference"] == "ours"
    assert table["skipped"] == []
    assert scores["ours", "support_precision"]["mean"] > scores["OMP", "support_precision"]["mean"]
    assert scores["OMP", "support_precision"]["p_holm"] < 0.01
    assert scores["ours", "support_precision"]["best"]
    assert not scores["OMP", "support_precision"]["best"]
    alone = json.loads(run("evaluate", paper, data, "--json"))
    assert scores[str(paper), "correct"]["mean"] == alone["accuracy"]
    assert [scores[str(paper), "ece"]["low"], scores[str(paper), "ece"]["high"]] == alone["intervals"]["ece"]


@pytest.fixture(scope="module")
def decoders(model, data, tmp_path_factory):
    """The rows per image of `--compare decoders`, and for each decoder the rows that `hcep predict --decode` writes."""
    folder = tmp_path_factory.mktemp("decoders")
    run("evaluate", model, data, "--compare", "decoders", "--per-image", folder / "i.parquet", "-o", folder / "t.md")
    answers = {}
    for rule in ("class", "distance", "f1", "sure"):
        run("predict", model, data, "--split", "val", "--decode", rule, "-o", folder / f"{rule}.parquet")
        answers[rule] = pq.read_table(folder / f"{rule}.parquet").to_pylist()
    return pq.read_table(folder / "i.parquet").to_pylist(), answers, (folder / "t.md").read_text(encoding="utf-8")


def test_decoders_are_scored_by_what_predict_answers(decoders, model):
    rows, answers, text = decoders
    labels = {"class": "ours", **{rule: f"ours --decode {rule}" for rule in ("distance", "f1", "sure")}}
    root = read_model(model).hierarchy.root
    for rule, label in labels.items():
        own = [row for row in rows if row["method"] == label]
        assert [row["predicted"] for row in own] == [row["answer"] or root for row in answers[rule]]
        assert f"| {label} |" in text
    assert "distance ↓" in text


def test_each_decoder_is_no_worse_than_the_others_at_what_it_aims_at(decoders):
    rows, _, _ = decoders
    methods = list(dict.fromkeys(row["method"] for row in rows))
    means = {
        metric: [np.mean([row[metric] for row in rows if row["method"] == method]) for method in methods]
        for metric in ("correct", "answer_distance", "support_f1", "support_precision")
    }
    assert methods == ["ours", "ours --decode distance", "ours --decode f1", "ours --decode sure"]
    assert means["correct"][0] == max(means["correct"])
    assert means["answer_distance"][1] == min(means["answer_distance"])
    assert means["support_precision"][3] == max(means["support_precision"])
    assert min(means["support_f1"]) == means["support_f1"][3]


def test_a_decoder_changes_the_answer_and_not_the_class(decoders):
    _, answers, _ = decoders
    same = ("id", "label", "class", "class_probability", "path", "coefficients")
    tables = [[[row[name] for name in same] for row in rows] for rows in answers.values()]
    assert all(table == tables[0] for table in tables)
    assert [row["answer"] for row in answers["class"]] == [row["class"] for row in answers["class"]]
    likely = [row["answer_probability"] for row in answers["class"]]
    assert likely == pytest.approx([row["class_probability"] for row in answers["class"]])
    assert all(row["answer_probability"] > 0.5 for row in answers["distance"])
    assert {row["doubt"] for row in answers["class"]} <= {"", "unlike anything in training"}


def test_a_level_of_sureness_needs_the_decoder_that_uses_it(model, data, tmp_path):
    words = ("predict", model, data, "--decode", "f1", "--sure", "0.8", "-o", tmp_path / "p.csv")
    fails("--sure has no effect with --decode f1; leave out one of them", *words)


def test_compare_prints_a_table_that_fits_the_terminal(model, data):
    narrow = run("evaluate", model, data, "--compare", "omp", "--by-class")
    assert "precision" in narrow
    assert "†" in narrow
    assert "tench" in narrow
    wide = run("evaluate", model, data, "--compare", "omp", env={"COLUMNS": "200"})
    assert "mistake distance" in wide
    assert "[1.000, 1.000]" in wide
    assert "[1.000, 1.000]" not in narrow


def test_bold_type_is_explained_where_it_shows_and_nothing_is_left_on_stderr(model, data):
    piped = invoke("evaluate", model, data, "--compare", "nn")
    assert "Bold" not in piped.stdout
    assert "† differs from ours" in " ".join(piped.stdout.split())
    assert piped.stderr == ""
    coloured = run("evaluate", model, data, "--compare", "nn", env={"FORCE_COLOR": "1", "COLUMNS": "200"})
    assert "Bold: the best of a column" in coloured


def test_the_name_of_a_file_chooses_the_form(model, data, tmp_path):
    words = ["evaluate", model, data, "--compare", "nn"]
    forms = (("t.md", "| method |"), ("t.tex", r"\toprule"), ("t.csv", "method,metric,"))
    for name, start in forms:
        assert run(*words, "-o", tmp_path / name) == f"{tmp_path / name}\n"
        assert start in (tmp_path / name).read_text(encoding="utf-8")
    run(*words, "-o", tmp_path / "t.json")
    assert json.loads((tmp_path / "t.json").read_text(encoding="utf-8"))["reference"] == "ours"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["t.csv", "t.json", "t.md", "t.tex"]


def test_one_model_as_a_table(model, data, tmp_path):
    run("evaluate", model, data, "-o", tmp_path / "t.csv")
    rows = list(csv.DictReader(StringIO((tmp_path / "t.csv").read_text(encoding="utf-8"))))
    assert {row["method"] for row in rows} == {"ours"}
    summary = json.loads(run("evaluate", model, data, "--json", "-o", tmp_path / "facts.txt"))
    assert summary == {"table": str(tmp_path / "facts.txt"), "n_images": 200}
    assert "intervals" in json.loads((tmp_path / "facts.txt").read_text(encoding="utf-8"))


def test_files_are_overwritten_only_on_request(model, data, tmp_path):
    path, images = tmp_path / "t.md", tmp_path / "i.parquet"
    path.write_text("mine")
    images.write_text("mine")
    fails("--output: .* already exists; pass --overwrite", "evaluate", model, data, "-o", path)
    fails("--per-image: .* already exists; pass --overwrite", "evaluate", model, data, "--per-image", images)
    assert path.read_text() == images.read_text() == "mine"
    run("evaluate", model, data, "-o", path, "--per-image", images, "--overwrite")
    assert "| ours |" in path.read_text(encoding="utf-8")
    assert pq.read_table(images).num_rows == 200


def test_every_metric_of_every_image(model, data, tmp_path):
    run("evaluate", model, data, "--compare", "omp", "--per-image", tmp_path / "i.parquet")
    rows = pq.read_table(tmp_path / "i.parquet").to_pylist()
    assert [row["method"] for row in rows] == ["ours"] * 200 + ["OMP"] * 200
    own = rows[:200]
    facts = json.loads(run("evaluate", model, data, "--json"))
    assert np.mean([row["correct"] for row in own]) == pytest.approx(facts["accuracy"])
    assert np.mean([row["label"] == row["predicted"] for row in own]) == pytest.approx(facts["accuracy"])
    assert all(row["tree_distance"] is None for row in own if row["correct"])
    run("evaluate", model, data, "--per-image", tmp_path / "i.csv")
    assert pyarrow.csv.read_csv(tmp_path / "i.csv").num_rows == 200


def test_images_of_a_deeper_model_are_written_beside_the_others(model, data, tmp_path):
    run("fit", data, "-o", tmp_path / "flat", "--hierarchy", "flat", "-P", "anchor=0.03", "-P", "shrinkage=none")
    run("evaluate", model, data, "--compare", tmp_path / "flat", "--per-image", tmp_path / "i.parquet")
    rows = pq.read_table(tmp_path / "i.parquet").to_pylist()
    assert rows[0]["prefix_1"] == rows[200]["prefix_1"] == 1.0
    assert all(row["prefix_2"] is None for row in rows[200:])


def test_options_come_from_a_file(model, data, tmp_path):
    (tmp_path / "e.toml").write_text(f'[evaluate]\ncompare = ["nn"]\noutput = "{tmp_path / "t.csv"}"\n')
    run("evaluate", model, data, "--config", tmp_path / "e.toml")
    assert "NN,correct," in (tmp_path / "t.csv").read_text(encoding="utf-8")


def test_two_models_of_one_name_are_told_apart(model, data, tmp_path):
    run("fit", data, "-o", tmp_path / "NN", "-P", "anchor=0.03", "-P", "shrinkage=none", "-P", "tree=first")
    table = json.loads(run("evaluate", tmp_path / "NN", data, "--compare", "nn", "--json"))
    assert {score["method"] for score in table["scores"]} == {"NN", str(tmp_path / "NN")}


def test_all_methods(model, data, monkeypatch):
    few = {name: METHODS[name] for name in ("omp", "hb-omp", "nn", "linear-probe")}
    monkeypatch.setattr("hcep.classify.methods.all_methods.METHODS", few)
    table = json.loads(run("evaluate", model, data, "--compare", "all", "--compare", "nn", "--json"))
    methods = list(dict.fromkeys(score["method"] for score in table["scores"]))
    assert methods == ["ours", "NN", "OMP", "HB-OMP", "Linear probe"]
    assert table["skipped"] == []


@pytest.mark.slow
def test_every_method_runs_or_is_skipped_with_a_reason(model, data):
    table = json.loads(run("evaluate", model, data, "--compare", "all", "--json"))
    methods = {score["method"] for score in table["scores"]} | {one["method"] for one in table["skipped"]}
    assert methods == {"ours", *(method.label for method in METHODS.values())}


def test_a_method_that_cannot_run_is_skipped_under_all_and_an_error_by_name(model, data, monkeypatch):
    few = {name: METHODS[name] for name in ("nn", "omp")}
    monkeypatch.setattr("hcep.classify.methods.all_methods.METHODS", few)
    monkeypatch.setattr("hcep.pursuit.flat.MAX_ATOMS", 3)
    result = invoke("evaluate", model, data, "--compare", "all", "--json")
    (skipped,) = json.loads(result.stdout)["skipped"]
    assert skipped["method"] == "OMP"
    assert "atoms are more than its limit of 3" in skipped["reason"]
    assert f"skipped: OMP: {skipped['reason']}" in result.stderr
    fails("atoms are more than its limit of 3", "evaluate", model, data, "--compare", "omp")


def test_one_warning_of_several_methods_is_shown_once(data, tmp_path):
    run("fit", data, "-o", tmp_path / "dag", "-P", "anchor=0.03", "-P", "shrinkage=none")
    paper = tmp_path / "paper"
    with pytest.warns(DependentAtomsWarning):
        run("fit", data, "-o", paper, "--paper", "-P", "epochs=2")
    result = invoke("evaluate", tmp_path / "dag", data, "--compare", "hb-omp", "--compare", paper, "--json")
    assert result.stderr.count("warning:") == 1
    assert f"warning: HB-OMP, {paper}: 2 of 18 atoms are zero or lie in the span" in result.stderr


def test_unknown_names_list_near_matches(model, data):
    fails("'hbomp' is neither a method nor a model folder. Near matches: 'hb-omp'", "evaluate", model, data,
          "--compare", "hbomp")  # fmt: skip
    fails(
        "'xyz' is neither .* The methods are 'all', 'decoders', 'omp', 'hb-omp'",
        "evaluate",
        model,
        data,
        "--compare",
        "xyz",
    )


def test_a_folder_without_a_model(model, data, tmp_path):
    fails("no complete model at", "evaluate", model, data, "--compare", tmp_path)


def test_training_images_are_needed_only_for_methods(model, paper, data, tmp_path):
    sample = load_sample()
    np.savez(tmp_path / "x.npz", embeddings=sample.X_val[:50, :N_DIMS], labels=sample.y_val[:50])
    words = ["evaluate", model, tmp_path / "x.npz", "--compare", "nn"]
    fails(
        r"--compare fits methods to the training images of '.*x.npz' \(--train-split train\): .* has no splits, so "
        r"none of its images is in split 'train'; give data with that split",
        *words,
    )
    run("evaluate", model, tmp_path / "x.npz", "--compare", paper)
    fails("no image of .* is in split 'trian'", "evaluate", model, data, "--compare", "nn", "--train-split", "trian")
    rows = np.flatnonzero(sample.y_val != sample.y_val[0])
    np.savez(
        tmp_path / "y.npz",
        embeddings=sample.X_val[rows, :N_DIMS],
        labels=sample.y_val[rows],
        split=np.repeat("train", len(rows)),
    )
    fails("1 classes of the model have no image in .*; compare on the data that the model was fitted on",
          "evaluate", model, tmp_path / "y.npz", "--compare", "nn")  # fmt: skip


def test_compared_models_need_the_same_classes(model, data, tmp_path):
    sample = load_sample()
    rows = np.flatnonzero(sample.y_val != sample.y_val[0])
    np.savez(tmp_path / "y.npz", embeddings=sample.X_val[rows, :N_DIMS], labels=sample.y_val[rows])
    run("fit", tmp_path / "y.npz", "-o", tmp_path / "nine", "-P", "anchor=0.03", "-P", "shrinkage=none")
    fails("1 labels are not classes of the model '.*nine'", "evaluate", model, data, "--compare", tmp_path / "nine")


def test_unknown_file_types_are_rejected(model, data, tmp_path):
    words = ["evaluate", model, data]
    fails(r"--output: expected a name ending in .md, .tex, .csv, .json, got", *words, "-o", tmp_path / "t")
    fails(r"--per-image: expected a name ending in .parquet or .csv", *words, "--per-image", tmp_path / "t.json")


def test_names_are_checked_before_any_work(tmp_path):
    words = ["evaluate", tmp_path / "absent", tmp_path / "absent", "--compare"]
    fails("'opm' is neither a method", *words, "opm")
    fails("no complete model at", *words, "nn", "--compare", tmp_path)


def test_help_shows_options_and_an_example():
    text = run("evaluate", "--help-all", env={"COLUMNS": "160"})
    for words in (
        "--compare",
        "--per-image",
        "--train-split",
        "hcep evaluate model/ store/ --compare all -o table.tex",
    ):
        assert words in text
