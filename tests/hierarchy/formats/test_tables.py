"""Tables as spreadsheets produce them, each read as a person would or refused with a reason; none silently wrong.

Beside each table stands what is expected of it: what it is taken for, then the tree, indented.
"""

from pathlib import Path

import pytest

from hcep.hierarchy.files import read_described

HERE = Path(__file__).parent / "tables"
TABLES = sorted(path.name for path in HERE.iterdir() if path.suffix != ".expected")


def paths_of(hierarchy):
    """Every synset by the names from the top down to it, the root that only joins several tops left out."""
    top = [] if hierarchy.root == "(root)" else [hierarchy.root]
    chains = [[*top, *path] for synset in hierarchy for path in hierarchy.paths(synset)]
    return {tuple(map(hierarchy.name, chain)) for chain in [top, *chains] if chain}


def expected_paths(lines):
    above, found = [], set()
    for line in lines:
        depth = (len(line) - len(line.lstrip())) // 2
        above[depth:] = [line.strip()]
        found.add(tuple(above))
    return found


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_as_a_person_would(name):
    pytest.importorskip("openpyxl", reason="comes with the extra formats")
    understood, _, *tree = (HERE / f"{name}.expected").read_text("utf-8").splitlines()
    hierarchy, told = read_described(HERE / name)
    assert paths_of(hierarchy) == expected_paths(tree)
    assert told.removeprefix(f"{name}: ").partition(";")[0] == understood


def test_names_come_from_the_column_of_names_and_never_from_an_id(tmp_path):
    (tmp_path / "dwc.csv").write_text(
        "taxonID,parentNameUsageID,acceptedNameUsageID,scientificName,taxonRank\n"
        "1,,,Animalia,kingdom\n2,1,,Felidae,family\n3,2,,Felis catus,species\n4,2,,Felis silvestris,species\n",
        encoding="utf-8",
    )
    hierarchy, told = read_described(tmp_path / "dwc.csv")
    assert [hierarchy.name(leaf) for leaf in hierarchy.leaves] == ["Felis catus", "Felis silvestris"]
    assert "name in 'scientificName'" in told


def test_a_tab_a_bar_and_a_tab_are_one_delimiter(tmp_path):
    rows = ["uid|parent_uid|name|rank|", "805080||life|no rank|", "93302|805080|cellular|no rank|"]
    rows += ["5246131|93302|Foo|genus|", "52|93302|Bar|genus|"]
    text = "".join("\t|\t".join(row.split("|")).removesuffix("\t") + "\n" for row in rows)
    (tmp_path / "taxonomy.tsv").write_text(text, encoding="utf-8")
    (tmp_path / "taxonomy.txt").write_text(text, encoding="utf-8")
    for name in ("taxonomy.tsv", "taxonomy.txt"):
        hierarchy, told = read_described(tmp_path / name)
        assert [hierarchy.name(leaf) for leaf in hierarchy.leaves] == ["Foo", "Bar"]
        assert "parent in 'parent_uid', child in 'uid', name in 'name'" in told
