"""Time against size for every reader; run as a program for the table in the documentation.

``python -m tests.safety.growing [NAME ...]`` prints a row for each file that grows: size, time, and how many times as
long a file of twice the size takes.
"""

# ruff: noqa: E501

from __future__ import annotations

import gc
import io
import json
import sys
import tempfile
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hcep._checks import markdown_table
from hcep.errors import HCEPError
from tests.embeddings.torch_files import state, tensor, zipped
from tests.safety.reading import ANNOTATIONS, LION, MEGADETECTOR, READERS, SAMPLE, as_bytes, packed

#: A file grows until it takes this many seconds to read, or until it has this many parts.
LEAST, MOST = 0.02, 1 << 17
#: Twice the size may take this many times as long.
RATIO = 2.5
Content = Callable[[int], str | bytes | object]


class Growing(NamedTuple):
    """A file that grows: its reader and kind, as in `tests.safety.reading`, and its content at a size."""

    reader: str
    kind: str
    content: Content

    def data(self, n: int) -> bytes:
        content = self.content(n)
        text = content if isinstance(content, str | bytes) else json.dumps(content)
        return text.encode() if isinstance(text, str) else text


class Measured(NamedTuple):
    """How long a file takes to read, in seconds of this process, and how many times as long one of twice the size."""

    n_bytes: int
    seconds: float
    ratio: float


def rows(head: str, row: str, n: int) -> str:
    """A table or text: a head, and a row for each number i, with the number of a group of nine as g."""
    return head + "".join(row.format(i=i, g=i // 9) for i in range(n))


CRUMBS = "animal > cat > siamese\nanimal > cat > tabby\nanimal > dog > pug\nanimal > dog > husky\n"
SKOS = "@prefix s: <http://www.w3.org/2004/02/skos/core#> .\n"
BROADER = "http://www.w3.org/2004/02/skos/core#broader"
RDF = '<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" '
RDFS, OWL = 'xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#" ', 'xmlns:owl="http://www.w3.org/2002/07/owl#"'
CLASS = '<owl:Class rdf:about="#c{i}"><rdfs:subClassOf rdf:resource="#r"/></owl:Class>'
HIERARCHIES: dict[str, tuple[str, Content]] = {
    "edges": ("csv", lambda n: rows("parent,child\n", "g{g},c{i}\n", n)),
    "parents of one concept": ("csv", lambda n: rows("parent,child\n", "p{i},x\n", n)),
    "repeated header": ("csv", lambda n: "parent,child\na,b\na,c\n" + "parent,child\n" * n),
    "unlike ranks": ("csv", lambda n: rows("parent,child,rank\n", "g{g},c{i},r{i}\n", n)),
    "blanks in a path": ("csv", lambda n: f"path\n{CRUMBS}animal > x{' ' * n}y > z\n"),
    "colons in a path": ("csv", lambda n: f"path\n{CRUMBS.replace(' > ', '::')}animal{':' * n}y\n"),
    "digits in a cell": ("csv", lambda n: f"parent,child\n{'1' * n}x,b\nb,c\nb,d\n"),
    "open quotation": ("csv", lambda n: 'parent,child\na,"' + "b\n" * n),
    "cells in a row": ("csv", lambda n: "a," * n + "a\nb,c\n"),
    "levels": ("levels.csv", lambda n: rows("order,family,name\n", "o{g},f{g},c{i}\n", n)),
    "depths": ("depth.csv", lambda n: rows("level,name\n1,top\n", "2,g{i}\n3,c{i}\n", n)),
    "tabs in a row": ("tsv", lambda n: "parent\tchild\na\tb\n" + "\t" * n + "\n"),
    "codes": ("codes.tsv", lambda n: rows("code\tname\n1\ttop\n", "1.{i}\tc{i}\n", n)),
    "breadcrumbs": ("crumbs.txt", lambda n: rows("", "top > g{g} > c{i}\n", n)),
    "breadcrumbs with ids": ("crumbs.txt", lambda n: rows("", "{i} - top > g{g} > c{i}\n", n)),
    "a long line": ("crumbs.txt", lambda n: CRUMBS + "x" * n + "\n"),
    "a deep line": ("crumbs.txt", lambda n: CRUMBS + " > ".join(["a"] * n) + "\n"),
    "tabs in a line": ("crumbs.txt", lambda n: CRUMBS + "a" + "\t" * n + "\n"),
    "outline": ("txt", lambda n: rows("top\n", "  c{i}\n", n)),
    "a long number": ("txt", lambda n: "1. a\n1.1 b\n" + "1." * n + " c\n"),
    "marks": ("txt", lambda n: "* a\n** b\n" + "*" * n + " " * n + "\n"),
    "dashes": ("txt", lambda n: "a\n  b\n" + "|-- " * n + "\n"),
    "headings": ("md", lambda n: rows("# top\n", "## g{i}\n- c{i}\n", n)),
    "leaves": ("nwk", lambda n: "(" + ",".join(f"c{i}" for i in range(n)) + ")top;"),
    "digits of a name": ("nwk", lambda n: f"((a,b){'1' * n}x,c)top;"),
    "quotation marks": ("nwk", lambda n: "(a,'" + "''" * n + "b)top;"),
    "words": ("nwk", lambda n: "(a," + "b " * n + ")top;"),
    "comments": ("nwk", lambda n: "(a," + "[x]" * n + "b)top;"),
    "quoted names": ("nex", lambda n: "#NEXUS begin trees; tree a = (" + "'a''b'," * n),
    "blanks in a tree": ("nex", lambda n: "#NEXUS begin trees; tree" + " " * n + "a b;"),
    "translation": ("nex", lambda n: rows("#NEXUS begin trees; translate ", "{i} c{i}, ", n) + "x y; tree t = (0,1)r; end;"),
    "names": ("json", lambda n: {"top": [f"c{i}" for i in range(n)]}),
    "objects": ("json", lambda n: {"name": "r", "children": [{"name": f"c{i}", f"f{i}": ["x"]} for i in range(n)]}),
    "brackets": ("json", lambda n: "[" * n),
    "records": ("records.json", lambda n: [{"id": i, "name": f"c{i}", "parent": i // 9 or None} for i in range(1, n)]),
    "nested objects": ("nested.json", lambda n: {"top": {f"g{i}": [f"c{i}"] for i in range(n)}}),
    "terms": ("obo", lambda n: rows("[Term]\nid: r\n", "[Term]\nid: c{i}\nis_a: r\n", n)),
    "blanks in a name": ("obo", lambda n: f"[Term]\nid: r\n[Term]\nid: c\nis_a: r\nname: x{' ' * n}y\n"),
    "braces in a name": ("obo", lambda n: f"[Term]\nid: r\n[Term]\nid: c\nis_a: r\nname: x{'{' * n}y\n"),
    "triples": ("ttl", lambda n: rows(SKOS, "<c{i}> s:broader <r> .\n", n // 9)),
    "triples in lines": ("nt", lambda n: rows("", f"<c:{{i}}> <{BROADER}> <r:r> .\n", n // 9)),
    "described": ("rdf", lambda n: rows(RDF + RDFS + OWL + ">", CLASS, n // 9) + "</rdf:RDF>"),
    "classes": ("owl", lambda n: rows(RDF + RDFS + OWL + ">", CLASS, n // 9) + "</rdf:RDF>"),
    "linked objects": ("jsonld", lambda n: [{"@id": f"b:{i}", BROADER: [{"@id": "a:1"}]} for i in range(n // 9)]),
}  # fmt: skip


def saved(save: Callable[..., Any], *args: Any, **options: Any) -> bytes:
    out = io.BytesIO()
    save(out, *args, **options)
    return out.getvalue()


def vectors(n: int) -> Any:
    return np.ones((n, 8), np.float32)


def table(n: int) -> pa.Table:
    flat = pa.array(vectors(n).reshape(-1))
    return pa.table({"embedding": pa.FixedSizeListArray.from_arrays(flat, 8), "label": [f"c{i}" for i in range(n)]})


def torch_file(n: int) -> bytes:
    values = np.ones(3 * n, "<f4")
    content = state(vectors=tensor(n_items=3 * n, shape=(n, 3), view=b""))
    return zipped(content, {"archive/data/0": values.tobytes()})


NPY = saved(np.save, vectors(1)[0])
ARRAYS: dict[str, tuple[str, Content]] = {
    "vectors": ("npy", lambda n: saved(np.save, vectors(n))),
    "compressed": ("npz", lambda n: saved(np.savez_compressed, vectors=vectors(n), labels=np.arange(n))),
    "rows": ("parquet", lambda n: saved(lambda out: pq.write_table(table(n), out))),
    "rows of text": ("csv", lambda n: rows("label,f0,f1\n", "c{i},0.5,{i}\n", n)),
    "columns": ("csv", lambda n: ",".join(f"f{i}" for i in range(n)) + "\n" + ",".join(["0.5"] * n) + "\n"),
    "a long number": ("csv", lambda n: "label,f0,f1\na,0.5," + "9" * n + "\nb,1,2\n"),
    "quotation marks": ("csv", lambda n: "label,f0,f1\n" + '"' * n),
    "rows with tabs": ("tsv", lambda n: rows("label\tf0\tf1\n", "c{i}\t0.5\t{i}\n", n)),
    "tensor": ("pt", torch_file),
    "the same": ("pth", torch_file),
    "photos": ("json", lambda n: {"model": "m", "embeddings": {f"{i}.jpg": [0.5, 1.0] for i in range(n)}}),
    "samples": ("tar", lambda n: packed({f"{i}.npy": NPY for i in range(n // 9)})),
}
SAVED: dict[str, tuple[str, str, Content]] = {
    "concepts": ("models", "hierarchy.json", lambda n: {"format": "hcep-hierarchy", "version": 1, "synsets": [
        {"id": f"c{i}", "parents": [f"c{i // 9}"] if i else []} for i in range(n)]}),
    "a long text": ("models", "model.json", lambda n: '{"format": "' + "x" * n),
    "lists in lists": ("models", "model.json", lambda n: "[" * n),
    "zeros": ("models", "model.safetensors", lambda n: b"\0" * n),
    "shards": ("stores", "manifest.json", lambda n: {"format": "hcep-embeddings", "version": 1, "shards": [
        {"file": f"shard-{i:06d}.parquet", "n_images": 1} for i in range(n)]}),
    "bytes": ("stores", "shard-000000.parquet", lambda n: b"PAR1" * n),
    "keys": ("config", "toml", lambda n: rows("", "k{i} = 1\n", n // 9)),
    "a long string": ("config", "toml", lambda n: f'anchor = "{"x" * n}"\n'),
    "opened lists": ("config", "toml", lambda n: "anchor = " + "[" * n),
}  # fmt: skip


def some(content: Any, key: str, n: int, **changes: str) -> Any:
    """A JSON file with n entries like the first one of a list, whose texts have the number of the entry as {i}."""
    first = content[key][0]
    return content | {key: [{**first, **{k: v.format(i=i) for k, v in changes.items()}} for i in range(n)]}


CVAT = '<image id="{i}" name="{i}.jpg" width="20" height="10"><tag label="cat"/></image>'
XMP = as_bytes(ANNOTATIONS)["sidecar.xmp"].decode()
OBSERVED = "observationID,mediaID,observationLevel,scientificName\n"
BIOCLIP = "file_name,kingdom,phylum,class,order,family,genus,species,common_name,score\n"
DATA: dict[str, tuple[str, str, Content]] = {
    "boxes": ("annotations", "megadetector.json", lambda n: some(MEGADETECTOR, "images", n, file="{i}.jpg")),
    "images": ("annotations", "coco.json", lambda n: {
        "images": [{"id": i, "file_name": f"{i}.jpg"} for i in range(n)], "categories": [{"id": 1, "name": "cat"}],
        "annotations": [{"image_id": i, "category_id": 1} for i in range(n)]}),
    "tasks": ("annotations", "label_studio.json", lambda n: [
        {"data": {"image": f"{i}.jpg"}, "annotations": [{"result": [{"value": {"choices": ["a"]}}]}]} for i in range(n)]),
    "a deep value": ("annotations", "label_studio.json", lambda n: '[{"data": ' + "[" * n),
    "samples of a dataset": ("annotations", "samples.json", lambda n: some({"samples": [SAMPLE]}, "samples", n, filepath="{i}.jpg")),
    "labels of images": ("annotations", "labels.json", lambda n: {"classes": ["cat"], "labels": {f"{i}": 0 for i in range(n)}}),
    "media": ("annotations", "media.csv", lambda n: rows("mediaID,filePath,fileName\nm1,a.jpg,a.jpg\nm2,b.jpg,b.jpg\n", "x{i},{i}.jpg,{i}.jpg\n", n)),
    "observations": ("annotations", "observations.csv", lambda n: rows(OBSERVED, "o{i},m1,media,cat\n", n)),
    "an open quotation": ("annotations", "observations.csv", lambda n: OBSERVED + '"' + "a," * n),
    "tags": ("annotations", "cvat.xml", lambda n: rows("<annotations>", CVAT, n) + "</annotations>"),
    "elements in elements": ("annotations", "cvat.xml", lambda n: "<annotations>" + "<a>" * n),
    "attributes": ("annotations", "cvat.xml", lambda n: rows("<annotations ", 'a{i}="" ', n) + "/>"),
    "keywords": ("annotations", "sidecar.xmp", lambda n: XMP.replace("<rdf:li>cat</rdf:li>", rows("", "<rdf:li>k{i}</rdf:li>", n))),
    "predictions": ("scores", "speciesnet.json", lambda n: {"predictions": [
        {"filepath": f"{i}.jpg", "classifications": {"classes": [LION], "scores": [0.5]}} for i in range(n)]}),
    "classes of predictions": ("scores", "speciesnet.json", lambda n: {"predictions": [
        {"filepath": f"{i}.jpg", "classifications": {"classes": [f"{i};a;b;c;d;s{i};x"], "scores": [0.5]}} for i in range(n)]}),
    "classified boxes": ("scores", "megadetector.json", lambda n: some(MEGADETECTOR, "images", n, file="{i}.jpg")),
    "taxa": ("scores", "pybioclip.csv", lambda n: rows(BIOCLIP, "{g}.jpg,a,b,c,d,e,f,s{i},n,0.1\n", n)),
    "scores of classes": ("scores", "wide.csv", lambda n: rows("image,cat,dog,owl\n", "{i}.jpg,0.5,0.3,0.2\n", n)),
    "columns of classes": ("scores", "wide.csv", lambda n: "image," + ",".join(f"c{i}" for i in range(n)) + "\na" + ",0" * n + "\n"),
    "rows of classes": ("scores", "long.tsv", lambda n: rows("image\tclass\tscore\n", "{i}.jpg\tcat\t0.6\n", n)),
    "true labels": ("scores", "truth.csv", lambda n: rows("image,label\na.jpg,cat\n", "{i}.jpg,cat\n", n)),
    "possible names": ("scores", "only.txt", lambda n: rows("cat\n", "c{i}\n", n)),
    "possible by image": ("scores", "only.csv", lambda n: rows("image,class\na.jpg,cat\nb.jpg,cat\n", "{i}.jpg,cat\n", n)),
    "labels": ("lists", "labels.txt", lambda n: rows("", "c{i}\n", n)),
    "labels in a column": ("lists", "labels.csv", lambda n: rows("id,label\n", "{i},c{g}\n", n)),
    "corrections": ("lists", "corrections.jsonl", lambda n: rows("", '{{"image": "{i:064d}", "class": "cat"}}\n', n)),
    "corrections of one image": ("lists", "corrections.jsonl", lambda n: n * ('{"image": "' + "0" * 64 + '", "class": "cat"}\n')),
    "listed images": ("lists", "images.csv", lambda n: rows("path,label\n", "a.jpg,c{i}\n", n)),
    "groups": ("lists", "groups.csv", lambda n: rows("id,burst\na.jpg,1\nb.jpg,2\n", "{i},{g}\n", n)),
    "phrases": ("lists", "phrases.txt", lambda n: rows("", "phrase {i}\n", n)),
    "names of classes": ("lists", "names.txt", lambda n: rows("", "c{i}\n", n)),
    "names in a list": ("lists", "names.json", lambda n: [f"c{i}" for i in range(n)]),
    "fields": ("lists", "preprocessor.json", lambda n: {"preset": "clip", **{f"f{i}": 1 for i in range(n)}}),
    "ids": ("lists", "wnids.txt", lambda n: rows("", "n{i:08d}\n", n)),
    "annotated photos": ("lists", "val_annotations.txt", lambda n: rows("", "val_{i}.JPEG\tn02124075\t0\n", n)),
    "solutions": ("lists", "LOC_val_solution.csv", lambda n: rows("ImageId,PredictionString\n", "{i},n01440764 1\n", n)),
    "photos and classes": ("lists", "val.txt", lambda n: rows("", "{i}.JPEG n01440764\n", n)),
    "numbers of classes": ("lists", "ILSVRC2012_validation_ground_truth.txt", lambda n: "1\n" * n),
    "numbered classes": ("lists", "map_clsloc.txt", lambda n: rows("", "n{i:08d} {i} c{i}\n", n)),
    "settings": ("lists", "project.json", lambda n: {"keep": True, **{f"f{i}": 1 for i in range(n)}}),
}  # fmt: skip
#: By reader, kind of file and what grows in it.
GROWING = {
    f"{reader} {kind}: {name}": Growing(reader, kind, content)
    for name, reader, kind, content in (
        *((name, "hierarchies", *row) for name, row in HIERARCHIES.items()),
        *((name, "arrays", *row) for name, row in ARRAYS.items()),
        *((name, *row) for name, row in {**SAVED, **DATA}.items()),
    )
}


def seconds_to_read(growing: Growing, data: bytes, repeats: int) -> float:
    """The least of several readings, in seconds of this process: others on the machine do not count.

    The garbage collector is off, because it runs at steps of the number of objects.
    """
    times, read = [], READERS[growing.reader][1]
    gc.disable()
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            start = time.process_time()
            with suppress(HCEPError):
                read(Path(folder), growing.kind, data)
            times.append(time.process_time() - start)
    gc.enable()
    return min(times)


def measure(growing: Growing) -> Measured:
    """Grow a file until it takes `LEAST` seconds, and compare with one of twice the size.

    A ratio that is too high is measured again, because other work on the machine makes it higher, and together with the
    ratio of the file to one of half the size, less what the smallest file takes: where the data no longer fit into a
    processor's cache, even Python's own JSON parser takes three times as long for twice the size, but only there. A
    reader whose time grows with the square of the size takes four times as long at both. The ratio is 0 for a file that
    is read, or refused, in less time at any size.
    """
    n, seconds = 1 << 8, 0.0
    seconds_to_read(growing, growing.data(2), 1)  # imports
    while seconds < LEAST and n < MOST:
        n *= 4 if seconds < LEAST / 8 else 2
        seconds = seconds_to_read(growing, growing.data(n), 1)
    sizes = [growing.data(size) for size in (2, n // 2, n, 2 * n)]
    measured = Measured(len(sizes[-1]), seconds, float(seconds >= LEAST) * 99)
    for _ in range(5):
        if measured.ratio > RATIO:
            least, half, once, twice = (seconds_to_read(growing, data, 2) for data in sizes)
            before = (once - least) / max(half - least, 1e-9)
            measured = Measured(len(sizes[-1]), twice, min(measured.ratio, twice / once, before))
    return measured


def main(names: list[str]) -> None:
    """Print the table of the documentation."""
    lines = []
    for name in names or GROWING:
        measured = measure(GROWING[name])
        ratio = f"{measured.ratio:.1f}" if measured.ratio else "–"
        lines.append([name, f"{measured.n_bytes / 1e6:.2f} MB", f"{measured.seconds:.2f} s", ratio])
        print(*lines[-1], sep="\t", file=sys.stderr, flush=True)
    print(markdown_table(["file and what grows in it", "size", "time", "ratio"], lines), end="")


if __name__ == "__main__":
    main(sys.argv[1:])
