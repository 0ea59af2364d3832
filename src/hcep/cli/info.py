"""`hcep info` and `hcep encoders`: what is here, and what a file or folder is."""

from __future__ import annotations

import json
import platform
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.table import Table

from hcep._escape import markup as escape
from hcep.cli.console import Console, say
from hcep.errors import HCEPError

Json = Annotated[bool, typer.Option("--json", help="Print JSON and nothing else.")]
PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow", "safetensors", "torch", "onnxruntime")


def info(
    path: Annotated[Path | None, typer.Argument(help="Model, store, embeddings, hierarchy or images.")] = None,
    as_json: Json = False,
) -> None:
    """Describe this installation, or a model, store, file of embeddings, hierarchy or folder of images."""
    facts = _installation() if path is None else _describe(path)
    if as_json:
        say(json.dumps(facts, indent=2, ensure_ascii=False, default=str))
        return
    table = Table(box=None, show_header=False, padding=(0, 2, 0, 0))
    for key, value in facts.items():
        table.add_row(key.replace("_", " "), str(value))
    Console().print(table)


def encoders(as_json: Json = False) -> None:
    """List encoders: what is installed, what is missing and the command that installs it."""
    from hcep.embeddings.encoders import available_encoders

    found = available_encoders()
    if as_json:
        records = [
            {"source": e.source, "installed": e.installed, "install": e.install, "example": e.example} for e in found
        ]
        say(json.dumps(records, indent=2))
        return
    console = Console(soft_wrap=True, highlight=False)
    for e in found:
        mark = "[green]installed[/]" if e.installed else "[yellow]missing[/]"
        console.print(f"[bold]{e.source}[/]  {mark}  {escape(e.description)}")
        console.print(f"    {escape(e.example)}")
        if not e.installed:
            console.print(f"    [dim]{escape(e.install)}[/]")


def _installation() -> dict[str, Any]:
    from hcep import __version__
    from hcep.embeddings.encoders import available_encoders
    from hcep.pursuit.blocks import n_threads

    facts: dict[str, Any] = {"hcep": __version__, "python": platform.python_version(), "threads": n_threads(None)}
    facts |= {package: _version(package) for package in PACKAGES}
    return facts | {"encoders": ", ".join(e.source for e in available_encoders() if e.installed)}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "not installed"


def _describe(path: Path) -> dict[str, Any]:
    from hcep.embeddings import is_store
    from hcep.embeddings.reading import is_embeddings

    if not path.exists():
        raise HCEPError(f"nothing at {str(path)!r}")
    if (path / "model.json").is_file():
        from hcep.models import load_summary

        return load_summary(path).facts()
    if is_store(path):
        return _store(path)
    if is_embeddings(path):
        return _arrays(path)
    if path.suffix in (".json", ".csv", ".tsv"):
        from hcep.hierarchy import read_described

        hierarchy, told = read_described(path)
        return {"kind": "hierarchy", "read_as": told, "hierarchy": repr(hierarchy)}
    from hcep.datasets import read_images

    return {"kind": "images", "images": repr(read_images(path))}


def _store(path: Path) -> dict[str, Any]:
    from hcep.embeddings import EmbeddingStore

    store = EmbeddingStore(path)
    return {
        "kind": "store",
        "images": len(store),
        "dimensions": store.n_dims,
        "precision": store.dtype.name,
        "encoder": store.encoder.name,
        "shards": len(store.shards),
        "skipped": len(store.skipped),
        "classes": len({label for label in store.labels.tolist() if label is not None}),
    }


def _arrays(path: Path) -> dict[str, Any]:
    from hcep.embeddings import read_arrays

    arrays = read_arrays(path)
    labels = [] if arrays.labels is None else [label for label in arrays.labels.tolist() if label is not None]
    splits = Counter([] if arrays.splits is None else arrays.splits.tolist())
    return {
        "kind": "embeddings",
        "rows": len(arrays),
        "dimensions": arrays.vectors.shape[1],
        "precision": arrays.vectors.dtype.name,
        "labels": f"{len(set(labels)):,} classes" if labels else "none",
        "splits": ", ".join(f"{split} {n:,}" for split, n in splits.items()) or "none",
        **({"read_as": arrays.note} if arrays.note else {}),
    }
