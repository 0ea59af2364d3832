"""Small files that would take the machine down: every reader is linear, within limits, and says what is wrong."""

import csv
import io
import re
import resource
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest

from hcep import HCEPClassifier, Hierarchy, HierarchyError, formats
from hcep.embeddings import files as embedding_files, read_embeddings
from hcep.embeddings.vectors import StoreError
from hcep.errors import HCEPError
from hcep.hierarchy import formats as hierarchy_formats, read_hierarchy
from hcep.hierarchy.edges import many_paths
from hcep.hierarchy.files import in_words
from hcep.taxonomy.checks import lint, lint_file
from tests.hierarchy.test_path_tree import diamonds
from tests.safety.growing import GROWING, RATIO, measure
from tests.safety.reading import ANNOTATIONS, READERS, SCORES, TREES, array_files

COMMAND = [sys.executable, "-c", "from hcep.cli import main; main()"]


def chain(n_levels):
    return "parent,child\n" + "".join(f"c{i},c{i + 1}\n" for i in range(n_levels))


def hcep(*words, n_bytes=1 << 30):
    """Run the command in a process of bounded memory."""
    limit = (n_bytes, n_bytes)
    return subprocess.run(
        [*COMMAND, *map(str, words)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_AS, limit),
    )


# -- 1: a chain of concepts ----------------------------------------------------------------------------


def test_a_chain_of_concepts_is_refused_with_its_depth(tmp_path):
    (tmp_path / "chain.csv").write_text(chain(5_000))
    with pytest.raises(HierarchyError, match=r"5,000 levels deep, more than 1,000, down to concept 'c5000'"):
        read_hierarchy(tmp_path / "chain.csv")


@pytest.mark.slow
@pytest.mark.parametrize("command", ["show", "lint"])
def test_a_chain_of_200_001_concepts_is_refused_within_a_gigabyte(tmp_path, command):
    (tmp_path / "chain.csv").write_text(chain(200_000))
    done = hcep("hierarchy", command, tmp_path / "chain.csv")
    said = done.stdout + done.stderr
    assert done.returncode in (1, 2), said
    assert "200,000 levels deep, more than 1,000" in " ".join(said.split())
    assert len(said) < 1_000


@pytest.mark.parametrize("ending", ["txt", "nwk", "json"])
def test_depth_is_limited_in_formats_that_nest(tmp_path, ending):
    n = 1_002
    content = {
        "txt": "\n".join(f"{' ' * i}c{i}" for i in range(n)),
        "nwk": "(" * (n - 1) + "leaf" + "".join(f")c{i}" for i in range(n - 1)) + ";",
        "json": "[" + ",".join(f'{{"id": "c{i}", "parent": "{f"c{i - 1}" if i else ""}"}}' for i in range(n)) + "]",
    }
    (tmp_path / f"deep.{ending}").write_text(content[ending])
    with pytest.raises(HierarchyError, match=r"more than 1,000|1,001 levels deep"):
        read_hierarchy(tmp_path / f"deep.{ending}")


def test_a_deep_hierarchy_is_drawn_in_text_that_grows_with_its_concepts():
    drawn = [Hierarchy.from_edges((f"c{i}", f"c{i + 1}") for i in range(n)).format_tree() for n in (500, 1_000)]
    assert len(drawn[1]) < 2.5 * len(drawn[0])


# -- 2: time against size ------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("what", GROWING)
def test_twice_the_size_takes_at_most_two_and_a_half_times_as_long(what):
    assert measure(GROWING[what]).ratio <= RATIO


@pytest.mark.parametrize("reader", READERS)
def test_time_is_measured_for_every_kind_of_file(reader):
    kinds = set(READERS[reader][0]())
    assert {growing.kind for growing in GROWING.values() if growing.reader == reader} == kinds


def test_every_format_is_among_the_files_that_are_measured_and_corrupted():
    endings = {f".{kind}" for kind in TREES}
    read = [known for known in hierarchy_formats.FORMATS.values() if known.reads and known.extensions]
    assert [known.name for known in read if not endings & set(known.extensions)] == ["xlsx"]  # read through openpyxl
    assert {f".{kind}" for kind in array_files()} == set(embedding_files.READERS) - {"folder"}
    others = {Path(name).stem for name in (*ANNOTATIONS, *SCORES)}
    folders = {"camtrap_dp": "observations", "fiftyone": "samples", "fiftyone_labels": "labels"}
    assert {folders.get(name, name) for name in formats.FORMATS} <= others


#: Modules that open the files in the table of readers.
READ = {
    "cli/config", "datasets/cifar", "embeddings/files", "embeddings/other_tables", "embeddings/preprocessing",
    "embeddings/store/embedding_store", "embeddings/store/encoding", "embeddings/store/manifest", "embeddings/tables",
    "embeddings/torch_file", "explain/corrections", "explain/score_tables", "formats/__init__", "formats/cvat",
    "formats/megadetector", "formats/xml_files", "formats/xmp", "hierarchy/formats/outline", "hierarchy/formats/source",
    "hierarchy/formats/table_file", "hierarchy/serial", "models/atom_names", "models/folder", "taxonomy/checks",
    "taxonomy/induction/induced", "taxonomy/naming/phrases", "web/project",
}  # fmt: skip
#: Modules that open other files, and which.
OTHER_FILES = {
    "explain/exports", "formats/answers", "embeddings/store/writer",  # only written
    "hierarchy/names", "hierarchy/imagenet", "datasets/sample_data", "models/opening", "models/card", "cli/demo_story",
    "cli/help", "pursuit/compiled", "taxonomy/induction/from_language_model", "models/onnx_folders",  # our own
    "embeddings/images", "datasets/image_dataset", "web/engine", "web/collection", "web/decoding",  # photos
    "_files", "_checks", "datasets/download", "ray/places", "ray/encoding", "ray/fitting", "web/security",  # by others
    "embeddings/encoders/onnx_adapter",  # looked through for names of operators; onnxruntime reads it
    "taxonomy/wordnet", "taxonomy/llm/chat", "taxonomy/llm/endpoint", "cli/evaluate", "cli/rollup",  # caches, answers
    "cli/induce", "cli/open",
}  # fmt: skip
OPENED = re.compile(r"\.read_text\(|\.read_bytes\(|\bopen\(|np\.load\(|json\.loads?\(|json\.decode\(|parse_xml\(")


def test_every_module_that_opens_a_file_is_known():
    package = Path(formats.__file__).parents[1]
    opening = {path for path in package.rglob("*.py") if OPENED.search(path.read_text("utf-8"))}
    opening = {path.relative_to(package).with_suffix("").as_posix() for path in opening}
    opening = {name for name in opening if not name.startswith("web/pages/")}  # they open dialogs
    assert opening - OTHER_FILES - READ == set(), "add its file to tests/safety/reading.py and growing.py"


def test_a_line_above_the_limit_is_refused_with_its_number(tmp_path):
    for name, content in (
        ("a.txt", f"a\n  b\n{'x' * 100_001}\n"),
        ("a.csv", f"parent,child\na,b\na,{'x' * 100_001}\n"),
    ):
        (tmp_path / name).write_text(content)
        with pytest.raises(HierarchyError, match=r"line 3: the line has 100,0\d\d characters, more than 100,000"):
            read_hierarchy(tmp_path / name)


def sheet(content):
    """A workbook with a sheet of this XML, in a folder of its own."""
    package = "http://schemas.openxmlformats.org/package/2006"
    office = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    main = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"

    def relationship(to, target):
        link = f'<Relationship Id="r" Type="{office}/{to}" Target="{target}"/>'
        return f'<Relationships xmlns="{package}/relationships">{link}</Relationships>'

    parts = {
        "[Content_Types].xml": f'<Types xmlns="{package}/content-types"><Override PartName="/book.xml" '
        f'ContentType="{kind}.sheet.main+xml"/><Override PartName="/own/s.xml" ContentType="{kind}.worksheet+xml"/>'
        f'<Default Extension="rels" ContentType="application/vnd.openxmlformats-package.relationships+xml"/></Types>',
        "_rels/.rels": relationship("officeDocument", "book.xml"),
        "_rels/book.xml.rels": relationship("worksheet", "own/s.xml"),
        "book.xml": f'<workbook xmlns="{main}" xmlns:r="{office}"><sheets><sheet name="s" sheetId="1" r:id="r"/>'
        "</sheets></workbook>",
        "own/s.xml": f'<worksheet xmlns="{main}"><sheetData>{content}</worksheet>'.encode("utf-16"),
    }
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as packed:
        for name, part in parts.items():
            packed.writestr(name, part)
    return file.getvalue()


@pytest.mark.parametrize(
    ("content", "n_cells"),
    [
        ("<row><c r='A1'><v>1</v></c></row><row><c r='&#88;FD1048576'><v>2</v></c></row></sheetData>", 16384 * 1048576),
        ("<row>" + "<c/>" * 1_000_000 + "</row></sheetData>", 1_000_001),
        ("<row/>" * 1_000_001 + "</sheetData>", 1_000_001),
        ("</sheetData><mergeCells><mergeCell ref='A1:ZZ9999'/></mergeCells>", 702 * 9999),
        ("</sheetData><hyperlinks><hyperlink ref='A1:ZZ9999'/></hyperlinks>", 702 * 9999),
    ],
    ids=["far cell", "cells without names", "rows without cells", "merged cells", "link"],
)
def test_a_sheet_of_too_many_cells_is_refused_before_they_are_made(tmp_path, content, n_cells):
    pytest.importorskip("openpyxl", reason="comes with the extra formats")
    (tmp_path / "small.xlsx").write_bytes(sheet(content))
    assert (tmp_path / "small.xlsx").stat().st_size < 50_000
    with pytest.raises(HierarchyError, match=rf"a sheet of {n_cells:,} cells, more than 1,000,000, with the empty"):
        read_hierarchy(tmp_path / "small.xlsx")


# -- 3: the limit of the csv module --------------------------------------------------------------------


@pytest.fixture
def usual_limit():
    """The csv module's own limit of a cell, which packages such as frictionless raise for the whole process."""
    before = csv.field_size_limit(131_072)
    yield
    csv.field_size_limit(before)


@pytest.mark.usefixtures("usual_limit")
def test_a_quotation_that_is_not_closed_is_a_sentence_about_the_cell(tmp_path):
    (tmp_path / "open.csv").write_text('parent,child\na,"' + "b,c\n" * 50_000)
    with pytest.raises(
        HierarchyError, match=r"open\.csv, line [\d,]+: a cell has more than 131,072 characters; is a quot"
    ):
        read_hierarchy(tmp_path / "open.csv")
    (tmp_path / "x.csv").write_text('label,f0,f1\n"' + "b" * 200_000)
    with pytest.raises(StoreError, match="a cell has more than 131,072 characters"):
        read_embeddings(tmp_path / "x.csv")


# -- 4: quotations -------------------------------------------------------------------------------------

LONG = "x" * 5_000


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("loop.csv", f"parent,child\n{LONG},{LONG}\na,b\na,c\n"),
        ("cycle.csv", "parent,child\n" + "".join(f"{LONG}{i},{LONG}{(i + 1) % 99}\n" for i in range(99))),
        ("names.csv", f"parent,child,name\na,b,{LONG}\na,b,{LONG}y\nb,c,c\n"),
        ("twice.txt", f"a\n  {LONG}\n  {LONG}\n"),
        ("quote.txt", f'a\n  "{LONG}\\"\n'),
        ("crumbs.txt", f"a > b\na > c\na > {LONG} > > d\n"),
        ("level.csv", f"order,family,name\n{LONG},a,b\n{LONG}y,a,c\nz,b,d\n"),
        ("header.csv", f"{LONG},{LONG}\n{LONG},{LONG}\n"),
        ("tree.nwk", f"(a,b:{LONG})c;"),
        ("twice.json", f'{{"{LONG}": 1, "{LONG}": 2}}'),
        ("number.json", f'{{"name": "a", "children": [{{"id": 1.5, "name": "{LONG}", "children": 3}}]}}'),
        ("parent.obo", f"[Term]\nid: a\nis_a: {LONG}\n"),
        ("line.nt", f"<a> <b> {LONG} .\n"),
        ("bad.ttl", f"<a> {LONG} <b> .\n"),
        ("entity.owl", f'<!DOCTYPE r [<!ENTITY {LONG} SYSTEM "{LONG}">]><r/>'),
        ("doctype.owl", f'<!DOCTYPE r SYSTEM "{LONG}"><r/>'),
        ("context.jsonld", f'{{"@context": "{LONG}"}}'),
    ],
)
def test_a_refusal_quotes_at_most_80_characters(tmp_path, name, content):
    (tmp_path / name).write_text(content)
    with pytest.raises(HierarchyError) as failure:
        read_hierarchy(tmp_path / name)
    assert "x" * 81 not in str(failure.value)
    findings, _ = lint_file(tmp_path / name)
    assert all("x" * 81 not in finding.message for finding in findings)


def positions(data):
    """The file with a long word in place of each of its words, and after each."""
    text = data.decode()
    for word in list(re.finditer(r"[\w.-]+", text))[:60]:
        yield f"{text[: word.start()]}{LONG}{text[word.end() :]}".encode()
        yield f"{text[: word.end()]}{LONG}{text[word.end() :]}".encode()


@pytest.mark.slow
@pytest.mark.parametrize("reader", ["hierarchies", "annotations", "scores", "lists", "config"])
def test_a_long_word_anywhere_in_a_file_is_cut_in_messages(tmp_path, reader):
    make, read = READERS[reader]
    cases = [(kind, data) for kind, valid in make().items() for data in positions(valid)]
    for number, (kind, data) in enumerate(cases):
        (tmp_path / str(number)).mkdir()
        try:
            messages = list(read(tmp_path / str(number), kind, data))
        except HCEPError as error:
            messages = [str(error)]
        assert all("x" * 81 not in message for message in messages), (kind, data[:200])


# -- 5: rooted paths -----------------------------------------------------------------------------------


def test_the_number_of_rooted_paths_is_known_at_once(pets):
    assert pets.n_paths == len(pets) - 1
    assert diamonds(10).n_paths == diamonds(10).path_tree.n_nodes - 1
    assert diamonds(40).n_paths == pytest.approx(4.4e12, rel=0.01)
    assert "262,140 rooted paths" in in_words(diamonds(16))
    assert "paths" not in in_words(pets)


@pytest.fixture
def dag(tmp_path):
    def write(n):
        """A chain of diamonds whose sides have a class each, so that none is merged."""
        edges = [*diamonds(n).edges, *((f"{side}{i}", f"class {side}{i}") for i in range(n) for side in "lr")]
        (tmp_path / "dag.csv").write_text("parent,child\n" + "".join(f"{p},{c}\n" for p, c in edges))
        return tmp_path / "dag.csv"

    return write


def test_many_rooted_paths_are_a_warning(dag):
    notes = []
    hierarchy = read_hierarchy(dag(16), on_note=notes.append)
    assert "393,210 rooted paths" in notes[0]
    assert any("as_tree" in note and "--single-parent" in note for note in notes[1:])
    assert many_paths(Hierarchy.from_edges(("r", f"c{i}") for i in range(50_001))) == ""  # a tree has no fewer
    codes = {finding.code: finding.severity for finding in lint(hierarchy)}
    assert codes["many-paths"] == "warning"


def test_too_many_rooted_paths_are_refused_at_once_by_show_lint_and_fit(dag):
    place = dag(40)
    (finding,), _ = lint_file(place)
    assert (finding.severity, finding.code) == ("error", "too-many-paths")
    shown = hcep("hierarchy", "show", place)
    assert shown.returncode == 2
    with pytest.raises(HierarchyError) as failure:
        HCEPClassifier(place).fit(np.eye(81), read_hierarchy(place).leaves)
    for message in (finding.message, " ".join(shown.stderr.split()), str(failure.value)):
        assert "rooted paths, more than 5,000,000" in message
        assert "as_tree" in message
