"""Every reader of a user's file, with valid content for each kind of file that it reads.

The tests of time, of quotations and of corrupt files go through this table, and `test_readers.py` checks that every
format and every module of the package that opens files is in it.
"""

from __future__ import annotations

import io
import json
import tarfile
import tempfile
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from hcep import Hierarchy
from hcep.cli.config import Config
from tests.embeddings.torch_files import state, tensor, zipped

#: Reads bytes as a kind of file in an empty folder, and returns the sentences for the user.
Reader = Callable[[Path, str, bytes], Iterable[str]]

TREES = {
    "csv": b"parent,child\nanimal,mammal\nanimal,bird\nmammal,cat\nmammal,dog\nbird,owl\n",
    "tsv": b"kingdom\torder\tspecies\nAnimalia\tCarnivora\tcat\nAnimalia\tStrigiformes\towl\n",
    "json": b'{"name": "animal", "children": [{"name": "cat"}, {"name": "dog", "children": [{"name": "pug"}]}]}',
    "nwk": b"((cat:1,lion:2)feline,(dog,'big ''wolf''')canine)animal;",
    "txt": b"animal\n  mammal\n    cat\n    dog\n  bird\n    owl\n",
    "obo": b"format-version: 1.2\n\n[Term]\nid: A:1\nname: animal\n\n[Term]\nid: A:2\nname: cat\nis_a: A:1\n",
    "nex": b"#NEXUS\nbegin trees;\ntranslate 1 cat, 2 'big dog';\ntree * best = [&R] ((1,2)pet:1,owl)animal;\nend;\n",
    "md": b"# animal\n- cat\n  - siamese\n- dog\n\n## bird\n1. owl\n",
    "nested.json": b'{"animal": {"mammal": ["cat", "dog"], "bird": null}}',
    "jsonld": b'[{"@id": "b:1", "http://www.w3.org/2004/02/skos/core#broader": [{"@id": "a:1"}]}]',
    "ttl": b"@prefix s: <http://www.w3.org/2004/02/skos/core#> .\n<a> a s:Concept .\n<b> s:broader <a> .\n",
    "owl": b"""<?xml version="1.0"?><!DOCTYPE rdf:RDF [<!ENTITY owl "http://www.w3.org/2002/07/owl#">]>
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#" xmlns:rdfs="http://www.w3.org/2000/01/rdf-schema#"
 xmlns:owl="&owl;"><owl:Class rdf:about="#cat"><rdfs:subClassOf rdf:resource="#animal"/></owl:Class></rdf:RDF>""",
}
#: Tables and texts of other shapes, by their endings.
TREES |= {
    "levels.csv": b"order,family,name\nCarnivora,Felidae,cat\n,Canidae,dog\nStrigiformes,Strigidae,owl\n",
    "depth.csv": b"level,name\n1,animal\n2,mammal\n3,cat\n2,bird\n",
    "crumbs.txt": b"1 - Animals\n2 - Animals > Birds\n3 - Animals > Birds > Owls\n4 - Animals > Cats\n",
    "codes.tsv": b"code\tname\n1\tanimal\n1.1\tcat\n1.2\tdog\n1.2.1\tpug\n",
    "records.json": b'[{"id": 1, "name": "animal", "parent": null}, {"id": 2, "name": "cat", "parent": 1}]',
    "nt": b"<b:2> <http://www.w3.org/2004/02/skos/core#broader> <a:1> .\n",
    "rdf": b"""<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"
 xmlns:s="http://www.w3.org/2004/02/skos/core#"><rdf:Description rdf:about="b"><s:broader rdf:resource="a"/>
</rdf:Description></rdf:RDF>""",
}


def packed(content: dict[str, bytes]) -> bytes:
    """A .tar archive of files."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name, data in content.items():
            member = tarfile.TarInfo(name)
            member.size = len(data)
            archive.addfile(member, io.BytesIO(data))
    return out.getvalue()


def array_files() -> dict[str, bytes]:
    X, y = np.eye(6, dtype=np.float32), np.array(list("abcabc"))
    npy, npz, parquet = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(npy, X)
    np.savez_compressed(npz, vectors=X, labels=y)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 6)
    pq.write_table(pa.table({"embedding": vectors, "label": y.tolist()}), parquet)
    rows = "\n".join(f"{label},{i},0.5" for i, label in enumerate(y))
    table = f"label,f0,f1\n{rows}\n".encode()
    torch = zipped(state(vectors=tensor(view=b"")))
    bioclip = json.dumps({"model": "m", "embeddings": {"a.jpg": [0.5, 1.0], "b.jpg": [1.0, 0.5]}}).encode()
    return {
        "npy": npy.getvalue(),
        "npz": npz.getvalue(),
        "parquet": parquet.getvalue(),
        "csv": table,
        "tsv": table.replace(b",", b"\t"),
        "pt": torch,
        "pth": torch,
        "json": bioclip,
        "tar": packed({"a.npy": npy.getvalue(), "a.cls": b"cat"}),
    }


def read_array(folder: Path, suffix: str, data: bytes) -> Iterable[str]:
    from hcep.embeddings import read_embeddings
    from hcep.embeddings.files import is_embeddings

    (folder / f"x.{suffix}").write_bytes(data)
    is_embeddings(folder / f"x.{suffix}")
    embeddings = read_embeddings(folder / f"x.{suffix}")
    _ = embeddings.labels
    return embeddings.notes


def read_tree(folder: Path, suffix: str, data: bytes) -> Iterable[str]:
    from hcep.hierarchy import read_hierarchy

    notes: list[str] = []
    (folder / f"tree.{suffix}").write_bytes(data)
    read_hierarchy(folder / f"tree.{suffix}", on_note=notes.append)
    return notes


@cache
def model_files() -> dict[str, bytes]:
    from hcep import HCEPClassifier
    from hcep.models.saving import pack

    return pack(HCEPClassifier(shrinkage=None, anchor=0.1).fit(np.eye(6), list("abcabc")))


def read_model(folder: Path, name: str, data: bytes) -> Iterable[str]:
    from hcep.models.loading import load_model

    for file, content in model_files().items():
        (folder / file).write_bytes(content)
    (folder / name).write_bytes(data)
    load_model(folder)
    return ()


@cache
def store_files() -> dict[str, bytes]:
    from hcep.embeddings import Embeddings
    from hcep.embeddings.store.writer import import_embeddings

    with tempfile.TemporaryDirectory() as folder:
        import_embeddings(Embeddings(np.eye(6, dtype=np.float32), labels=np.array(list("abcabc"))), folder, encoder="e")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def read_store(folder: Path, name: str, data: bytes) -> Iterable[str]:
    from hcep.embeddings import EmbeddingStore

    for file, content in store_files().items():
        (folder / file).write_bytes(content)
    (folder / name).write_bytes(data)
    store = EmbeddingStore(folder)
    store.damaged_shards()
    store.to_numpy()
    _ = store.labels
    return ()


def read_config(folder: Path, name: str, data: bytes) -> Iterable[str]:
    import typer
    from typer.testing import CliRunner

    def bake(config: Config = None, anchor: str = "", batch_size: int = 1) -> None:
        """Nothing."""

    app = typer.Typer()
    app.command()(bake)
    app.command("eat")(bake)
    (folder / "c.toml").write_bytes(data)
    result = CliRunner().invoke(app, ["bake", "--config", str(folder / "c.toml")])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception
    return ()


# -- files of other tools ----------------------------------------------------------------------------------------------

LION = "ddf59264-185a;mammalia;carnivora;felidae;panthera;leo;lion"
MEGADETECTOR = {
    "info": {"format_version": "1.5", "detector_metadata": {"typical_detection_threshold": 0.3}},
    "detection_categories": {"1": "animal"},
    "classification_categories": {"0": "lion"},
    "classification_category_descriptions": {"0": LION},
    "images": [{"file": "a.jpg", "detections": [{"category": "1", "conf": 0.9, "bbox": [0.1, 0.1, 0.5, 0.5],
        "classifications": [["0", 0.8]]}]}, {"file": "b.jpg", "failure": "truncated"}],
}  # fmt: skip
COCO = {
    "images": [{"id": 1, "file_name": "a.jpg", "width": 20, "height": 10}],
    "annotations": [{"image_id": 1, "category_id": 1, "bbox": [2, 2, 8, 6]}],
    "categories": [{"id": 1, "name": "cat"}],
}
RECTANGLE = {"x": 10, "y": 20, "width": 30, "height": 40, "rectanglelabels": ["cat"]}
LABEL_STUDIO = [
    {"data": {"image": "/data/local-files/?d=a.jpg"}, "annotations": [{"result": [{"id": "r", "value": RECTANGLE}]}]}
]
SAMPLE = {"filepath": "data/a.jpg", "tags": ["train"], "ground_truth": {"_cls": "Detections", "detections": [
    {"_cls": "Detection", "label": "cat", "bounding_box": [0.1, 0.2, 0.3, 0.4]}]}}  # fmt: skip
ANNOTATIONS: dict[str, object] = {
    "megadetector.json": MEGADETECTOR,
    "coco.json": COCO,
    "label_studio.json": LABEL_STUDIO,
    "samples.json": {"samples": [SAMPLE]},
    "labels.json": {"classes": ["cat", "dog"], "labels": {"a": 0, "b": [{"label": 1, "bounding_box": [0, 0, 1, 1]}]}},
    "media.csv": b"mediaID,deploymentID,filePath,fileName\nm1,d,a.jpg,a.jpg\nm2,d,https://x.org/b.jpg,b.jpg\n",
    "observations.csv": b"observationID,mediaID,observationLevel,scientificName,bboxX,bboxY,bboxWidth,bboxHeight\n"
    b"o1,m1,media,Felis catus,0.1,0.1,0.5,0.5\no2,m2,media,Canis lupus,,,,\n",
    "cvat.xml": b"""<?xml version="1.0"?><annotations><image id="0" name="a.jpg" width="20" height="10" subset="train">
<tag label="cat"/><box label="cat" xtl="2" ytl="2" xbr="8" ybr="6"/></image></annotations>""",
    "sidecar.xmp": b"""<x:xmpmeta xmlns:x="adobe:ns:meta/" xmlns:dc="http://purl.org/dc/elements/1.1/">
<rdf:RDF xmlns:rdf="http://www.w3.org/1999/02/22-rdf-syntax-ns#"><rdf:Description rdf:about=""><dc:subject><rdf:Bag>
<rdf:li>cat</rdf:li></rdf:Bag></dc:subject></rdf:Description></rdf:RDF></x:xmpmeta>""",
}
#: Files of a folder that is read as a whole.
IN_FOLDERS = ("media.csv", "observations.csv", "samples.json", "labels.json")
SCORES: dict[str, object] = {
    "speciesnet.json": {"predictions": [
        {"filepath": "a.jpg", "classifications": {"classes": [LION, ";;;;;;blank"], "scores": [0.7, 0.3]},
         "prediction_source": "classifier+geofence"}]},
    "megadetector.json": MEGADETECTOR,
    "pybioclip.csv": b"file_name,kingdom,phylum,class,order,family,genus,species,common_name,score\n"
    b"a.jpg,Animalia,Chordata,Mammalia,Carnivora,Felidae,Felis,Felis catus,Cat,0.9\n",
    "wide.csv": b"image,cat,dog,owl\na.jpg,0.6,0.3,0.1\nb.jpg,0.1,0.1,0.8\n",
    "long.tsv": b"image\tclass\tscore\na.jpg\tcat\t0.6\na.jpg\tdog\t0.4\nb.jpg\towl\t0.9\n",
    "truth.csv": b"image,label\na.jpg,cat\nb.jpg,owl\n",
    "only.txt": b"cat\nbird\n",
    "only.csv": b"image,class\na.jpg,cat\nb.jpg,owl\nb.jpg,dog\n",
}  # fmt: skip
PETS = Hierarchy.from_edges(
    [("animal", "mammal"), ("mammal", "cat"), ("mammal", "dog"), ("animal", "bird"), ("bird", "owl")]
)


def as_bytes(files: dict[str, object]) -> dict[str, bytes]:
    return {name: data if isinstance(data, bytes) else json.dumps(data).encode() for name, data in files.items()}


def read_annotation(folder: Path, name: str, data: bytes) -> Iterable[str]:
    """Read labels and boxes; then write answers into the file itself, if its format is written, too."""
    from hcep.datasets import read_images
    from hcep.formats.annotations import Region
    from hcep.formats.answers import AnsweredImage, Concept, Writing, write_answers

    (folder / "data").mkdir()
    for photo in ("a.jpg", "data/a.jpg"):
        (folder / photo).touch()
    valid = as_bytes(ANNOTATIONS)
    for other in ("media.csv", "observations.csv") if name in ("media.csv", "observations.csv") else ():
        (folder / other).write_bytes(valid[other])
    (folder / name).write_bytes(data)
    notes: list[str] = []
    cat = Concept(("animal", "cat"), None, {}, 0.9)
    answers = [AnsweredImage(Region("a.jpg", 1, box=(0.1, 0.1, 0.5, 0.5)), folder / "a.jpg", cat, cat)]
    if name == "sidecar.xmp":
        (folder / name).rename(folder / "a.jpg.xmp")
        write_answers(answers, folder, "xmp", Writing(folder, "m", notes.append))
        return notes
    source = folder if name in IN_FOLDERS else folder / name
    dataset = read_images(source)
    if name == "megadetector.json":
        write_answers(answers, folder / "out.json", "megadetector", Writing(source, "m", notes.append))
    return [*notes, *(reason for _, reason in dataset.unused)]


def read_score_table(folder: Path, name: str, data: bytes) -> Iterable[str]:
    """Answers from a table of scores, with labels and a list of what is possible."""
    from hcep.explain.score_tables import roll_up_table

    wide = as_bytes(SCORES)["wide.csv"]
    (folder / "scores.csv").write_bytes(wide)
    (folder / name).write_bytes(data)
    is_list = name in ("truth.csv", "only.txt", "only.csv")
    options = {"labels": folder / name} if name == "truth.csv" else {"only": folder / name} if is_list else {}
    own_tree = name in ("speciesnet.json", "megadetector.json", "pybioclip.csv")
    notes: list[str] = []
    scores = folder / ("scores.csv" if is_list else name)
    roll_up_table(scores, folder / "out.csv", None if own_tree else PETS, on_note=notes.append, **options)
    return notes


# -- lists, labels and layouts -----------------------------------------------------------------------------------------

IMAGE = "0" * 64
LISTS: dict[str, object] = {
    "labels.txt": b"cat\ndog\n",
    "labels.csv": b"id,label\n1,cat\n2,dog\n",
    "corrections.jsonl": json.dumps({"image": IMAGE, "class": "cat", "who": "me"}).encode() + b"\n"
    + json.dumps({"image": "1" * 64, "force": ["mammal"], "forbid": ["dog"]}).encode() + b"\n",
    "images.csv": b"path,label,split,id\na.jpg,cat,train,1\n",
    "groups.csv": b"id,burst\na.jpg,1\nb.jpg,2\n",
    "phrases.txt": b"# parts\nwhite fur\nlong neck\n",
    "names.txt": b"cat\ndog\n",
    "names.json": ["cat", "dog"],
    "preprocessor.json": {"preset": "clip", "size": 224},
    "wnids.txt": b"n02124075\nn01443537\n",
    "val_annotations.txt": b"val_0.JPEG\tn02124075\t0\t32\t44\t62\n",
    "LOC_val_solution.csv": b"ImageId,PredictionString\nILSVRC2012_val_00000001,n01440764 1 2 3 4\n",
    "val.txt": b"ILSVRC2012_val_00000001.JPEG 0\n",
    "ILSVRC2012_validation_ground_truth.txt": b"1\n",
    "map_clsloc.txt": b"n02119789 1 kit_fox\n",
    "project.json": {"keep": True},
}  # fmt: skip


def read_list(folder: Path, name: str, data: bytes) -> Iterable[str]:
    from hcep.datasets.layouts.table import group_values
    from hcep.embeddings.files import read_labels
    from hcep.embeddings.preprocessing import as_preprocessing
    from hcep.explain.corrections import read_corrections
    from hcep.taxonomy.induction.induced import read_names
    from hcep.taxonomy.naming.phrases import read_phrases
    from hcep.web.project import Project

    path, notes = folder / name, list[str]()
    path.write_bytes(data)
    by_name: dict[str, Callable[[], object]] = {
        "labels.txt": lambda: read_labels(path),
        "labels.csv": lambda: read_labels(path),
        "corrections.jsonl": lambda: read_corrections(path, PETS, notes.append),
        "images.csv": lambda: read_layout(folder, name, data),
        "groups.csv": lambda: group_values(path, "burst", ["a.jpg", "b.jpg"]),
        "phrases.txt": lambda: read_phrases(path),
        "names.txt": lambda: read_names(path),
        "names.json": lambda: read_names(path),
        "preprocessor.json": lambda: as_preprocessing(path),
        "project.json": lambda: Project(folder),
    }
    by_name.get(name, lambda: read_layout(folder, name, data))()
    return notes


def read_layout(folder: Path, name: str, data: bytes) -> None:
    from hcep.datasets import read_images

    tiny, imagenet = (
        ("train/n02124075/images/a.JPEG", "val/images/val_0.JPEG"),
        ("train/n01440764/a.JPEG", "val/ILSVRC2012_val_00000001.JPEG"),
    )
    is_tiny = name in ("wnids.txt", "val_annotations.txt")
    for photo in ("a.jpg",) if name == "images.csv" else tiny if is_tiny else imagenet:
        (folder / photo).parent.mkdir(parents=True, exist_ok=True)
        (folder / photo).touch()
    beside = {
        "wnids.txt": {"val/val_annotations.txt": "val_annotations.txt"},
        "val_annotations.txt": {"wnids.txt": "wnids.txt"},
        "map_clsloc.txt": {"ILSVRC2012_validation_ground_truth.txt": "ILSVRC2012_validation_ground_truth.txt"},
        "ILSVRC2012_validation_ground_truth.txt": {"map_clsloc.txt": "map_clsloc.txt"},
    }
    for place, other in beside.get(name, {}).items():
        (folder / place).write_bytes(as_bytes(LISTS)[other])
    if name == "val_annotations.txt":
        (folder / name).rename(folder / "val" / name)
    read_images(folder / name if name == "images.csv" else folder)


CONFIG = {"toml": b'anchor = "auto"\nbatch-size = 3\n[bake]\nanchor = "1"\n'}
#: By name, what makes valid content by the kind of file, and what reads it.
READERS: dict[str, tuple[Callable[[], dict[str, bytes]], Reader]] = {
    "hierarchies": (lambda: TREES, read_tree),
    "arrays": (array_files, read_array),
    "models": (model_files, read_model),
    "stores": (store_files, read_store),
    "config": (lambda: CONFIG, read_config),
    "annotations": (lambda: as_bytes(ANNOTATIONS), read_annotation),
    "scores": (lambda: as_bytes(SCORES), read_score_table),
    "lists": (lambda: as_bytes(LISTS), read_list),
}
