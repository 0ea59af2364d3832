"""`hcep fit` does each piece of work once: one parse of the hierarchy, one open store, one path basis, one save."""

from __future__ import annotations

from pathlib import Path

from tests.calls import counting
from tests.cli.test_own_data import COLOURS, ENCODER, TREE, picture, run

#: Functions that are counted.
COUNTED = {
    "parses": ("hierarchy/files.py", "read_hierarchy"),
    "matches": ("hierarchy/files.py", "match_classes"),
    "listings": ("datasets/layouts/__init__.py", "read_images"),
    "opens": ("embeddings/store/embedding_store.py", "EmbeddingStore.__init__"),
    "bases": ("dictionary/path_problem.py", "build_path_problem"),
    "searches for several objects": ("pursuit/several.py", "search_several"),
    "saves": ("models/folder.py", "write_folder"),
}


def photos_and_tree(folder: Path) -> tuple[Path, Path]:
    """Forty photos of four classes, and the tree above them."""
    for seed, (label, colour) in enumerate(COLOURS.items()):
        (folder / "photos" / label).mkdir(parents=True)
        for i in range(10):
            picture(colour, 10 * seed + i).save(folder / "photos" / label / f"{i}.png")
    (folder / "tree.csv").write_text(TREE)
    return folder / "photos", folder / "tree.csv"


def test_a_fit_on_photos_does_each_piece_of_work_once(tmp_path: Path) -> None:
    photos, tree = photos_and_tree(tmp_path)
    with counting(COUNTED) as counts:
        run("fit", photos, "-o", tmp_path / "model", "--hierarchy", tree, "--encoder", ENCODER)
    expected = {what: 1 for what in COUNTED if what != "searches for several objects"}
    assert dict(counts) == {**expected, "matches": 2}  # once as it is read, once with the labels


def test_several_objects_are_searched_for_only_on_request(tmp_path: Path) -> None:
    photos, tree = photos_and_tree(tmp_path)
    options = ("--hierarchy", tree, "--encoder", ENCODER, "-P", "anchor=0.3", "-P", "several_objects=true")
    with counting(COUNTED) as counts:
        run("fit", photos, "-o", tmp_path / "model", *options)
    assert counts["searches for several objects"] > 0
    assert counts["parses"] == counts["opens"] == counts["saves"] == 1
