"""Tables that could be read in two ways, or in none: refused, with the file, the line or column, and what to say."""

import io

import pytest

from hcep import HierarchyError
from hcep.hierarchy import read_hierarchy
from hcep.hierarchy.files import read_described

REFUSED = {
    "header-or-data.csv": (
        "Obst,Apfel\nGemüse,Lauch\n",
        r"line 1: the first row, 'Obst', 'Apfel', may be a header or data",
    ),
    "pairs-of-id-and-name.tsv": (
        "wnid\tlabel\nn01\tcat\nn02\tdog\nn03\tcar\n",
        r"every cell of 'wnid', 'label' appears once: are they pairs of an id and a name\?.*-O parent=1 -O child=2",
    ),
    "facets.csv": (
        "Colour,Shape,Toy\nred,round,ball\nred,square,block\nblue,round,marble\nblue,square,dice\ngreen,round,hoop\n",
        r"neither an edge list .* nor level columns: 'round' of column 'Shape' appears below several values of column",
    ),
    "between-two-levels.csv": (
        "Kingdom,Habitat,Family,Species\nAnimalia,land,Felidae,cat\nAnimalia,water,Phocidae,seal\n"
        "Plantae,land,Rosaceae,rose\nPlantae,water,Nymphaeaceae,lotus\nFungi,land,Agaricaceae,cep\n"
        "Fungi,water,Mitrulaceae,bog beacon\n",
        r"is column 'Habitat' a level, .*-O levels=Kingdom,Habitat,Family,Species or -O levels=Kingdom,Family,Species",
    ),
    "another-name-or-a-level.csv": (
        "Sorte,Ding,Dong,Gruppe\nx,a,p,1\nx,b,q,1\ny,c,r,2\ny,d,s,2\n",
        r"line 1: is column 'Dong' a level, or something else about 'Ding'\? .*-O levels=Sorte,Ding,Dong or",
    ),
    "empty-between.csv": (
        "Department,Shelf,Product\nFood,Bread,rye\nFood,,roll\nFood,Dairy,milk\nToys,Blocks,lego\n",
        r"line 3: column 'Shelf' is empty: the same as in the row above, or no such level\? .*-O blank=above or",
    ),
    "empty-and-repeated.csv": (
        "Kingdom,Family,Species\nAnimalia,Felidae,cat\nAnimalia,Felidae,lion\n,Rosaceae,rose\nAnimalia,Canidae,dog\n",
        r"line 4: column 'Kingdom' is empty here and repeats its cell in line 3: .* -O blank=",
    ),
    "nothing-above.csv": (
        "Kingdom,Family,Species\n,Felidae,cat\nAnimalia,Felidae,lion\n",
        r"line 2: column 'Kingdom' is empty",
    ),
    "note-below.csv": (
        "Class,Family,Species\nAves,Corvidae,raven\nAves,Paridae,tit\n\nSource: our museum\n",
        r"line 5: 'Source: our museum' stands alone below the table, after an empty row; remove it",
    ),
    "two-delimiters.csv": (
        "a,b;c\nd,e;f\ng,h;i\n",
        r"its cells may be separated by ',', ';': each splits every line in the same way; pass delimiter=",
    ),
    "one-column.csv": (
        "Species\ncat\ndog\n",
        r"has one column: expected parent, child\[, name\], or a column per level",
    ),
    "no-children.csv": (
        "parent,x,y\na,b,c\na,d,e\n",
        r"column 'parent' has parents, but which of 'parent', 'x', 'y' has the children\?",
    ),
    "classes-named-class.csv": (
        "class,family,order\nfelis,Felidae,Carnivora\ncanis,Canidae,Carnivora\n",
        r"'Carnivora' of column 'order' appears below several values of column 'class'; pass levels=",
    ),
    "numbers-above.csv": (
        "order,product\n1001,milk\n1001,bread\n1002,eggs\n",
        r"nor level columns: column 'order' contains numbers; pass levels=",
    ),
    "ids-like-paths.csv": (
        "/m/0100nhbf,Sprenger's tulip\n/m/0104x9kv,Vinegret\n/g/0105jzwx,Dabu-dabu\n",
        r"line 1: the first row, '/m/0100nhbf', .* may be a header or data",
    ),
    "ids-like-paths-named.csv": (
        "id,label\n/m/0100nhbf,Sprenger's tulip\n/m/0104x9kv,Vinegret\n/g/0105jzwx,Dabu-dabu\n",
        r"every cell of 'id', 'label' appears once: are they pairs of an id and a name",
    ),
    "source-of-a-name.csv": (
        "id,label,source\n1,cat,wikipedia\n2,dog,wikipedia\n3,owl,atlas\n",
        r"neither an edge list .* nor level columns",
    ),
    "code-twice.csv": (
        "code,title\n1,Animals\n1.1,Mammals\n1.1.1,Cats\n1.1.1,Dogs\n",
        r"line \d: its code appears twice",
    ),
    "two-names.tsv": (
        "id\tparent\tname\n1\t\ttop\n2\t1\tcat\n2\t1\tdog\n3\t1\towl\n",
        r"line 4: concept '2' has two names, 'cat' and 'dog'",
    ),
    "self.csv": ("parent,child\na,b\na,a\n", r"line 3: concept 'a' is its own parent"),
    "orphan.csv": (
        "parent,child\nanimal,cat\nanimal,dog\n,horse\n",
        r"line 4: 'horse' has no parent and no children; add its parent, or remove the row",
    ),
    "long-row.csv": (
        "Class,Species\nAves,raven\nAves,tit,extra\n",
        r"line 3: expected 2 cells, as in the header; got 3",
    ),
    "cyrillic.csv": (
        "Группа,Вид\nПтицы,ворона\n".encode("cp1251"),
        r"line 1: is not text in UTF-8: byte 0xc3; save it as UTF-8, or pass encoding= \(-O encoding=cp1251",
    ),
    "old.csv": (b"\xd0\xcf\x11\xe0" + b"\0" * 100, r"is an old Excel workbook \(\.xls\); save it as \.xlsx or \.csv"),
    "broken.xlsx": (b"PK\x03\x04 and no more", r"is not a workbook that can be read .*; save it as \.xlsx or \.csv"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_ambiguous_tables_are_refused_with_advice(name, tmp_path):
    content, match = REFUSED[name]
    (tmp_path / name).write_bytes(content.encode() if isinstance(content, str) else content)
    with pytest.raises(HierarchyError, match=match) as raised:
        read_hierarchy(tmp_path / name)
    assert str(raised.value).startswith(name)


def written(tmp_path, name, text):
    (tmp_path / name).write_text(text, encoding="utf-8")
    return tmp_path / name


def test_each_refusal_is_settled_by_its_option(tmp_path):
    def read(name, **options):
        return read_hierarchy(written(tmp_path, name, REFUSED[name][0]), **options)

    assert set(read("header-or-data.csv", parent="1", child="2", header="no").edges) >= {
        ("Obst", "Apfel"),
        ("Gemüse", "Lauch"),
    }
    assert read("pairs-of-id-and-name.tsv", parent="label", child="wnid").parents("n01") == ("cat",)
    assert read("facets.csv", levels=["Colour", "Shape", "Toy"]).parents("marble") == ("blue/round",)
    assert read("between-two-levels.csv", levels=["Kingdom", "Family", "Species"]).parents("Felidae") == ("Animalia",)
    assert read("empty-between.csv", blank="above").parents("roll") == ("Bread",)
    assert read("empty-between.csv", blank="skip").parents("roll") == ("Food",)
    assert read("empty-and-repeated.csv", blank="above").parents("Rosaceae") == ("Animalia",)
    assert read("two-delimiters.csv", delimiter="semicolon", parent="1", child="2").parents("c") == ("a,b",)
    assert read("no-children.csv", parent="parent", child="x").leaves == ("b", "d")


@pytest.mark.parametrize(
    ("options", "match"),
    [
        ({"header": "maybe"}, "header must be yes or no, got 'maybe'"),
        ({"blank": "fill"}, "blank must be 'above' or 'skip', got 'fill'"),
        ({"parent": "Class"}, "pass parent= and child= together"),
        ({"parent": "Clas", "child": "Species"}, "has no column 'Clas'; .*Near matches: 'Class'"),
        ({"levels": ["Class", "9"]}, "has no column '9'"),
        ({"delimiter": "ab"}, "delimiter must be one character"),
        ({"encoding": "klingon"}, "encoding 'klingon' is unknown"),
    ],
)
def test_options_that_do_not_fit(options, match, tmp_path):
    file = written(tmp_path, "birds.csv", "Class,Family,Species\nAves,Corvidae,raven\nAves,Paridae,tit\n")
    with pytest.raises(HierarchyError, match=match):
        read_hierarchy(file, **options)


def test_a_decision_by_cells_names_the_option_that_changes_it(tmp_path):
    levels = read_described(written(tmp_path, "a.csv", "Type,Sub,Item\nF,C,o\nF,C,l\nV,R,c\n"))[1]
    assert levels == (
        "a.csv: level columns Type > Sub > Item, 3 levels, 3 classes; inferred from its cells; "
        "if it is an edge list, pass -O parent=COLUMN -O child=COLUMN"
    )
    edges = read_described(written(tmp_path, "b.csv", "r,a\nr,b\na,x\n"))[1]
    assert "inferred from its cells; if the columns are levels, pass -O levels=HIGHEST,...,LOWEST" in edges
    known = read_described(written(tmp_path, "c.csv", "Kingdom,Family,Species\nA,F,x\nA,F,y\n"))[1]
    assert known == "c.csv: level columns Kingdom > Family > Species, 3 levels, 2 classes"


def test_notes_say_what_was_guessed_and_left_out(tmp_path):
    told = []
    text = "Family;Species;Note\nCorvidae;Krähe;x\nCorvidae;Krähe;y\nParidae;Meise;z\n"
    (tmp_path / "h.csv").write_bytes(text.encode("cp1252"))
    read_hierarchy(tmp_path / "h.csv", on_note=told.append)
    assert told[1:] == [
        "not UTF-8: read as Windows-1252, 'Krähe' in line 2; if names look wrong, pass -O encoding=NAME",
        "columns that were ignored: 'Note'",
        "skipped: 1 row repeated",
    ]


# -- workbooks ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def workbook(tmp_path):
    openpyxl = pytest.importorskip("openpyxl", reason="comes with the extra formats")

    def write(**sheets):
        book = openpyxl.Workbook()
        book.remove(book.active)
        for title, rows in sheets.items():
            page = book.create_sheet(title)
            for row in rows:
                page.append(row)
        book.save(tmp_path / "book.xlsx")
        return tmp_path / "book.xlsx"

    return write


ROWS = [("Class", "Family", "Species"), ("Aves", "Corvidae", "raven"), ("Aves", "Corvidae", "jay")]


def test_several_sheets_are_not_guessed(workbook):
    file = workbook(Birds=ROWS, Mammals=[ROWS[0], ("Mammalia", "Felidae", "cat"), ("Mammalia", "Felidae", "lion")])
    with pytest.raises(
        HierarchyError, match=r"book\.xlsx: has several sheets, 'Birds', 'Mammals'; choose with sheet= \(-O"
    ):
        read_hierarchy(file)
    assert read_hierarchy(file, sheet="Mammals").leaves == ("cat", "lion")
    with pytest.raises(HierarchyError, match="has no sheet 'Fish'"):
        read_hierarchy(file, sheet="Fish")


def test_a_name_that_became_a_date(workbook):
    import datetime

    file = workbook(Genes=[*ROWS, ("Aves", "Corvidae", datetime.datetime(2026, 3, 1))])
    with pytest.raises(HierarchyError, match=r"cell C4 contains a date, 2026-03-01 00:00:00; Excel turns names"):
        read_hierarchy(file)


def test_a_date_in_another_column_is_left_out(workbook):
    import datetime

    rows = [(*row, "Added" if i == 0 else datetime.date(2026, 1, i)) for i, row in enumerate(ROWS)]
    assert read_hierarchy(workbook(Birds=rows)).leaves == ("raven", "jay")


def test_a_formula_without_its_value(workbook):
    with pytest.raises(
        HierarchyError, match="cell C4 contains a formula without its value; open the file in Excel and save it"
    ):
        read_hierarchy(workbook(Birds=[*ROWS, ("Aves", "Paridae", '="great "&"tit"')]))


def test_an_empty_workbook(workbook):
    with pytest.raises(HierarchyError, match=r"book\.xlsx: is empty; expected a table"):
        read_hierarchy(workbook(Empty=[]))


def test_numbers_and_a_table_that_does_not_start_in_the_corner(workbook):
    rows = [(None, None, None), (None, "parent", "child"), (None, 1.0, 2), (None, 1.0, 3), (None, 2, 4)]
    hierarchy = read_hierarchy(workbook(Sheet=rows))
    assert hierarchy.root == "1"
    assert hierarchy.leaves == ("3", "4")


def test_without_the_library(tmp_path, monkeypatch):
    import sys
    import zipfile

    from hcep.errors import MissingExtraError

    packed = io.BytesIO()
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("x", "y")
    (tmp_path / "h.xlsx").write_bytes(packed.getvalue())
    monkeypatch.setitem(sys.modules, "openpyxl", None)
    with pytest.raises(MissingExtraError, match=r'reading \.xlsx needs openpyxl.* pip install "hcep\[formats\]"'):
        read_hierarchy(tmp_path / "h.xlsx")
