"""`hcep hierarchy lint` and `hcep hierarchy edit`: findings, repairs, and what they do to images."""

import json

import numpy as np
import pytest
from typer.testing import CliRunner

from hcep import HCEPClassifier, HCEPError, Hierarchy, HierarchyError, save
from hcep.cli.app import app
from hcep.hierarchy import read_hierarchy
from hcep.taxonomy import Add, Merge, Move, Remove, Rename
from hcep.taxonomy.edits import parse_edits

LABELS = ["cat", "dog", "fox", "bat", "car", "bus", "van"]


def run(*words):
    return CliRunner().invoke(app, ["hierarchy", *map(str, words)])


def loaded(*words):
    return json.loads(run(*words, "--json").stdout)


@pytest.fixture
def pets_file(tmp_path, pets):
    pets.to_json(tmp_path / "pets.json")
    return tmp_path / "pets.json"


@pytest.fixture
def broken(tmp_path):
    """A chain, a shortcut, a self-loop and an edge that appears twice."""
    file = tmp_path / "broken.csv"
    file.write_text("r,a\na,feline\nfeline,cat\na,dog\nr,dog\ndog,dog\nr,b\nb,x\nb,y\nb,x\n")
    return file


@pytest.fixture
def cycle(tmp_path):
    file = tmp_path / "cycle.csv"
    file.write_text("r,a\na,b\nb,c\nc,a\nr,dog\n")
    return file


@pytest.fixture
def odd_one(tmp_path):
    """A hierarchy with "bat" among the animals, and images where it lies with the vehicles."""
    rng = np.random.default_rng(0)
    tree = Hierarchy.from_edges(
        [
            ("thing", "animal"),
            ("thing", "vehicle"),
            *(("animal", c) for c in LABELS[:4]),
            *(("vehicle", c) for c in LABELS[4:]),
        ]
    )
    tree.to_json(tmp_path / "odd.json")
    centres = {c: np.r_[5.0, 0.0, rng.normal(size=6)] for c in LABELS[:3]}
    centres |= {c: np.r_[0.0, 5.0, rng.normal(size=6)] for c in LABELS[3:]}
    labels = np.repeat(LABELS, 18)
    X = np.stack([centres[c] for c in labels.tolist()]) + 1.4 * rng.normal(size=(len(labels), 8))
    split = np.tile(np.repeat(["train", "val"], [12, 6]), len(LABELS))
    ids = np.array([f"{label}/{i % 18}" for i, label in enumerate(labels.tolist())])
    np.savez(tmp_path / "odd.npz", embeddings=X, labels=labels, split=split, ids=ids)
    return tmp_path / "odd.json", tmp_path / "odd.npz"


def test_a_cycle_is_reported_and_nothing_is_written(cycle, tmp_path):
    result = run("lint", cycle, "--fix", "-o", tmp_path / "out.csv")
    assert result.exit_code == 1
    assert "'a' → 'b' → 'c' → 'a'" in result.stdout
    assert "not a hierarchy: 1 finding; names, depth and classes are checked once the errors are fixed" in result.stdout
    assert result.stdout.endswith("nothing was written; fix the errors above by hand first\n")
    assert "no change" not in result.stdout
    assert not (tmp_path / "out.csv").exists()


def test_a_hierarchy_without_errors_is_written_unchanged(pets, pets_file, tmp_path):
    out = tmp_path / "out.csv"
    result = run("lint", pets_file, "--fix", "-o", out)
    assert result.exit_code == 0
    assert "no change" in result.stdout
    assert result.stdout.endswith(f"{out}: 8 concepts, 5 classes, 7 edges, 3 levels, root 'thing', unchanged\n")
    assert read_hierarchy(out) == pets
    assert loaded("lint", pets_file, "--fix", "-o", out, "--overwrite")["output"] == str(out)
    assert loaded("lint", pets_file, "--fix", "--in-place")["output"] is None


def test_fix_shows_what_changed_and_writes_on_request_only(broken, tmp_path):
    before = broken.read_text()
    shown = run("lint", broken, "--fix")
    assert shown.exit_code == 0
    for line in (
        "- self-loop, line 6: 'dog'",
        "- duplicate-edge, line 10: 'b', 'x'",
        "- r → dog",
    ):
        assert line in shown.stdout
    assert "merged" not in shown.stdout
    assert "nothing was written" in shown.stdout
    assert broken.read_text() == before
    result = run("lint", broken, "--fix", "-o", tmp_path / "out.csv")
    assert result.exit_code == 0
    assert set(read_hierarchy(tmp_path / "out.csv").edges) == {
        ("r", "a"),
        ("r", "b"),
        ("a", "feline"),
        ("feline", "cat"),
        ("a", "dog"),
        ("b", "x"),
        ("b", "y"),
    }
    assert run("lint", tmp_path / "out.csv", "--fix").stdout.endswith("no change\n")


def test_chains_are_merged_only_on_request_and_lost_names_are_listed(broken, tmp_path):
    asked = run("lint", broken, "--collapse", "-o", tmp_path / "out.csv")
    assert "= feline merged into cat" in asked.stdout
    assert "csv: the names merged into 1 concept are lost ('feline')" in asked.stderr
    kept = run("lint", broken, "--collapse", "-o", tmp_path / "out.json")
    assert "lost" not in kept.stderr
    assert read_hierarchy(tmp_path / "out.json").merged("cat") == (("feline", "feline"),)


@pytest.fixture
def shop(tmp_path):
    file = tmp_path / "shop.csv"
    file.write_text("parent,child\nfood,berry\nfood,herb\nberry,rasberry\nberry,blueberry\nherb,dill\nherb,basil\n")
    return file


def labels_file(place, *labels):
    (place / "labels.txt").write_text("\n".join(labels))
    return place / "labels.txt"


def test_a_renamed_concept_of_a_file_without_ids_is_not_a_missing_class(shop, tmp_path):
    labels = labels_file(tmp_path, "raspberry", "blueberry", "dill", "basil")
    assert "missing-class" in run("lint", shop, "--classes", labels).stdout
    result = run("edit", shop, "--rename", "rasberry:raspberry", "-o", tmp_path / "v2.csv")
    assert "~ rasberry: 'rasberry' → 'raspberry'" in result.stdout
    lines = (tmp_path / "v2.csv").read_text().splitlines()
    assert (lines[0], "berry,raspberry" in lines) == ("parent,child", True)
    assert run("lint", tmp_path / "v2.csv", "--classes", labels).exit_code == 0


def test_an_id_is_kept_if_the_file_has_ids_or_images_are_labelled_by_it(shop, tmp_path):
    kept = labels_file(tmp_path, "rasberry", "dill")
    run(
        "edit",
        shop,
        "--rename",
        "rasberry:raspberry",
        "--rename",
        "berry:berries",
        "--classes",
        kept,
        "-o",
        tmp_path / "a.csv",
    )
    after = read_hierarchy(tmp_path / "a.csv")
    assert after.name("rasberry") == "raspberry"
    assert "berries" in after
    run("edit", tmp_path / "a.csv", "--rename", "dill:Dill", "-o", tmp_path / "b.csv")
    assert read_hierarchy(tmp_path / "b.csv").name("dill") == "Dill"


def test_two_concepts_of_one_name_keep_their_ids(shop, tmp_path):
    run("edit", shop, "--rename", "rasberry:blueberry", "-o", tmp_path / "v2.csv")
    assert set(read_hierarchy(tmp_path / "v2.csv").leaves) == {"rasberry", "blueberry", "dill", "basil"}


def test_classes_are_found_by_name_as_fit_finds_them(tmp_path):
    file = tmp_path / "ids.csv"
    file.write_text("parent,child,name\nn0,n1,sea bird\nn0,n2,owl\nn0,n3,hen house\nn3,n4,hen\n")
    names = labels_file(tmp_path, "sea_bird", "owl", "hen house", "gull")
    (missing,) = [f for f in loaded("lint", file, "--classes", names)["findings"] if f["severity"] == "error"]
    assert missing["synsets"] == ["gull"]
    assert loaded("lint", file, "--classes", names, "--collapse")["diff"] == []
    with pytest.raises(HierarchyError, match="class 'n2' would be lost"):
        raise run("edit", file, "--remove", "owl", "--classes", names).exception


def test_images_labelled_by_name_are_checked(odd_one, tmp_path):
    file, data = odd_one
    tree = read_hierarchy(file)
    edges = [(f"id of {a}", f"id of {b}") for a, b in tree.edges]
    named = Hierarchy.from_edges(edges, {f"id of {s}": s for s in tree})
    named.to_json(tmp_path / "named.json")
    result = run("lint", tmp_path / "named.json", "--data", data)
    assert result.exit_code == 0
    assert "photos of 'bat' look, on average, more like 'vehicle'" in result.stdout
    effect = loaded("edit", tmp_path / "named.json", "--move", "bat:vehicle", "--data", data)["effects"]
    assert next(iter(effect.values()))["support_f1"]["difference"] > 0


def test_children_nearer_to_another_parent_without_a_clear_gain_are_named(odd_one, tmp_path):
    file, data = odd_one
    arrays = dict(np.load(data))
    np.savez(tmp_path / "few.npz", **{name: arrays[name][::6] for name in ("embeddings", "labels")})
    shown = run("lint", file, "--data", tmp_path / "few.npz").stdout
    assert "1 concept with photos that look more like another parent; moving them brings no clear improvement" in shown
    assert "'bat' is more like 'vehicle' than 'animal'" in shown
    assert "1 more" not in shown


def test_compare_shows_what_changed_between_two_files(shop, tmp_path):
    run("edit", shop, "--move", "dill:berry", "-o", tmp_path / "v2.json")
    result = run("compare", shop, tmp_path / "v2.json")
    assert (result.exit_code, result.stdout.splitlines()) == (0, ["- herb → dill", "+ berry → dill"])
    assert loaded("compare", shop, tmp_path / "v2.json")["diff"] == ["- herb → dill", "+ berry → dill"]
    same = run("compare", shop, shop)
    assert (same.exit_code, same.stdout) == (0, "no change\n")


def test_without_fix_a_self_loop_is_an_error(broken):
    result = run("lint", broken)
    assert result.exit_code == 1
    assert "self-loop" in result.stdout


def test_in_place(broken):
    assert run("lint", broken, "--fix", "--in-place").exit_code == 0
    assert ("dog", "dog") not in read_hierarchy(broken).edges
    assert not list(broken.parent.glob("*.partial*"))


def test_a_chain_that_is_a_class_stays(broken, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\nfeline\ndog\n\n")
    changes = loaded("lint", broken, "--classes", labels, "--fix")["diff"]
    assert not any("feline" in line for line in changes)


def test_invalid_outputs_are_rejected(broken, monkeypatch):
    monkeypatch.chdir(broken.parent)
    (broken.parent / "there.csv").write_text("kept")
    with pytest.raises(HCEPError, match=r"--output: 'there.csv' already exists; pass --overwrite"):
        raise run("lint", broken, "--fix", "-o", "there.csv").exception
    with pytest.raises(HCEPError, match="give --output or --in-place, not both"):
        raise run("lint", broken, "--fix", "-o", "new.csv", "--in-place").exception
    assert (broken.parent / "there.csv").read_text() == "kept"


def test_imagenet_cannot_be_overwritten():
    with pytest.raises(HCEPError, match="--in-place: 'imagenet' is not a file that can be overwritten"):
        raise run("lint", "imagenet", "--fix", "--in-place").exception


def test_a_format_that_cannot_hold_the_graph_leaves_nothing(tmp_path, diamond):
    diamond.to_json(tmp_path / "diamond.json")
    result = run("edit", tmp_path / "diamond.json", "--rename", "cat:tom", "-o", tmp_path / "out.nwk")
    assert isinstance(result.exception, HierarchyError)
    assert not (tmp_path / "out.nwk").exists()


def test_lint_with_images_names_them_and_the_move(odd_one):
    file, data = odd_one
    result = run("lint", file, "--data", data)
    assert result.exit_code == 0
    assert "photos of 'bat' look, on average, more like 'vehicle' than like its parent 'animal'" in result.stdout
    assert "bat/" in result.stdout
    record = loaded("lint", file, "--data", data, "-P", "n_images=1")
    (move,) = [f for f in record["findings"] if f["code"] == "nearer-parent" and f["severity"] == "warning"]
    assert move["fixes"] == ["move 'bat' from 'animal' to 'vehicle'"]
    assert move["effect"]["support_f1"]["difference"] > 0
    (cone,) = [f for f in record["findings"] if f["code"] == "containment"]
    assert len(cone["examples"]) == 1
    assert record["output"] is None


def test_fix_moves_measures_them_together_and_on_the_other_split(odd_one, tmp_path):
    file, data = odd_one
    record = loaded("lint", file, "--data", data, "--fix-moves", "3", "-o", tmp_path / "moved.json")
    assert record["diff"] == ["- animal → bat", "+ vehicle → bat"]
    chosen, val = record["effects"].values()
    assert chosen["support_f1"]["difference"] > 0
    assert val["support_f1"]["difference"] >= 0
    assert record["output"] == str(tmp_path / "moved.json")
    assert read_hierarchy(tmp_path / "moved.json").parents("bat") == ("vehicle",)


def test_moves_need_images(pets_file):
    with pytest.raises(HCEPError, match="--fix-moves: moves are measured on images; give --data"):
        raise run("lint", pets_file, "--fix-moves", "1").exception


def test_a_missing_class_is_an_error_and_the_others_are_checked(odd_one, tmp_path):
    file, data = odd_one
    read_hierarchy(file).restrict([c for c in LABELS if c != "fox"]).to_json(tmp_path / "less.json")
    result = run("lint", tmp_path / "less.json", "--data", data)
    assert result.exit_code == 1
    assert "'fox'" in result.stdout
    assert "nearer-parent" in result.stdout


def test_images_of_unknown_classes_are_not_measured(pets_file, tmp_path):
    np.savez(tmp_path / "x.npz", embeddings=np.eye(4), labels=np.array(["a", "a", "b", "b"]))
    record = loaded("lint", pets_file, "--data", tmp_path / "x.npz")
    assert {f["code"] for f in record["findings"]} == {"missing-class", "extra-leaf"}


def test_nothing_to_write_without_a_repair(pets_file, tmp_path):
    with pytest.raises(HCEPError, match="give --fix or --fix-moves as well"):
        raise run("lint", pets_file, "-o", tmp_path / "out.json").exception


def test_labels_that_are_not_text_are_rejected(pets_file, tmp_path):
    (tmp_path / "labels.txt").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(HCEPError, match=r"--classes: .* is not text in UTF-8"):
        raise run("lint", pets_file, "--classes", tmp_path / "labels.txt").exception


def test_edit_shows_without_writing(pets_file):
    before = pets_file.read_text()
    result = run("edit", pets_file, "--move", "fox:vehicle")
    assert result.exit_code == 0
    assert result.stdout.splitlines()[:2] == ["- animal → fox", "+ vehicle → fox"]
    assert "nothing was written" in result.stdout
    assert pets_file.read_text() == before


def test_edit_applies_all_edits_at_once_and_writes(pets_file, tmp_path):
    out = tmp_path / "out.csv"
    words = [
        "--add",
        "pet:animal:cat,dog",
        "--move",
        "fox:pet",
        "--rename",
        "car:motor car",
        "--merge",
        "vehicle:thing",
    ]
    assert run("edit", pets_file, *words, "-o", out).exit_code == 0
    after = read_hierarchy(out)
    assert after.children("thing") == ("animal", "motor car", "bus")
    assert after.children("pet") == ("cat", "dog", "fox")
    with pytest.raises(HCEPError, match=r"--output: .* already exists; pass --overwrite"):
        raise run("edit", pets_file, *words, "-o", out).exception


def test_edit_with_images_prints_the_metrics(odd_one):
    file, data = odd_one
    result = run("edit", file, "--move", "bat:vehicle", "--data", data)
    assert "84 held-out images" in result.stdout
    assert "support F1 above chance" in result.stdout
    (effect,) = loaded("edit", file, "--move", "bat:vehicle", "--data", data)["effects"].values()
    assert effect["accuracy"]["before"] > 0.5
    assert effect["support_f1"]["difference"] > 0


def test_edit_a_model_measures_on_images_it_has_not_seen(odd_one, tmp_path):
    file, data = odd_one
    arrays = np.load(data)
    train = arrays["split"] == "train"
    model = HCEPClassifier(read_hierarchy(file)).fit(arrays["embeddings"][train], arrays["labels"][train])
    save(model, tmp_path / "model")
    record = loaded("edit", tmp_path / "model", "--move", "bat:vehicle", "--data", data)
    ((where, effect),) = record["effects"].items()
    assert where.startswith("42 held-out images")
    assert effect["accuracy"]["before"] == pytest.approx(
        model.score(arrays["embeddings"][~train], arrays["labels"][~train])
    )


def test_a_leaf_that_is_not_a_class_may_be_removed(pets_file, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("cat\ncar\n")
    with pytest.raises(HierarchyError, match=r"class 'dog' would be lost.* \(--classes on the command line\)"):
        raise run("edit", pets_file, "--remove", "dog").exception
    assert run("edit", pets_file, "--remove", "dog", "--classes", labels).exit_code == 0


def test_concepts_may_move_below_a_leaf_that_is_not_a_class_or_below_a_new_concept(pets_file, tmp_path):
    labels = tmp_path / "labels.txt"
    labels.write_text("dog\ncar\n")
    assert run("edit", pets_file, "--move", "dog:cat", "--classes", labels).exit_code == 0
    done = run("edit", pets_file, "--add", "pet:animal:cat", "--move", "dog:pet", "-o", tmp_path / "out.csv")
    assert done.exit_code == 0
    assert set(read_hierarchy(tmp_path / "out.csv").leaves) == set(read_hierarchy(pets_file).leaves)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "nothing to do: give --move"),
        (("--move", "fox"), "--move: expected CONCEPT"),
        (("--move", "fix:vehicle"), "'fix' is neither the id nor the name of a concept. Near matches: 'fox'"),
        (("--add", "pet"), "--add: expected NAME:PARENT"),
        (("--merge", ":"), "--merge: expected CONCEPT:INTO"),
        (("--move", "animal:cat"), "create a cycle"),
        (("--move", "dog:cat"), r"class 'cat' would be lost: with 'dog' below it.* \(--add NAME:PARENT:cat"),
    ],
)
def test_invalid_edits_are_rejected(pets_file, words, message):
    with pytest.raises(HCEPError, match=message):
        raise run("edit", pets_file, *words).exception


def test_ids_with_colons_are_split_if_there_is_one_way():
    hierarchy = Hierarchy.from_edges([("HP:1", "HP:2"), ("HP:1", "HP:3"), ("HP:2", "HP:4"), ("HP:2", "HP:5")])
    assert parse_edits(hierarchy, move=["HP:4:HP:3"]) == [Move("HP:4", "HP:3")]
    assert parse_edits(hierarchy, move=["HP:4:HP:2:HP:3"]) == [Move("HP:4", "HP:3", "HP:2")]
    assert parse_edits(hierarchy, add=["HP:9:HP:2:HP:4,HP:5"]) == [Add("HP:9", "HP:2", ("HP:4", "HP:5"))]
    assert parse_edits(hierarchy, add=["HP:9:HP:2"]) == [Add("HP:9", "HP:2")]
    assert parse_edits(hierarchy, merge=["HP:2:HP:3"], remove=["HP:4"], rename=["HP:5:eye: left"]) == [
        Merge("HP:2", "HP:3"),
        Remove("HP:4"),
        Rename("HP:5", "eye: left"),
    ]


def test_ids_with_colons_that_can_be_split_in_two_ways_are_rejected():
    hierarchy = Hierarchy.from_edges([("r", "a"), ("r", "a:b"), ("r", "b:c"), ("r", "c")])
    with pytest.raises(HCEPError, match="can be split in several ways"):
        parse_edits(hierarchy, move=["a:b:c"])


def test_help_has_examples():
    for command in ("lint", "edit"):
        assert "hcep hierarchy" in run(command, "--help").stdout
