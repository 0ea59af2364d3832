"""`hcep info` and `hcep encoders`: what is here, and what a file or folder is."""

import platform
from collections import Counter
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

from hcep import __version__, datasets, embeddings, models, taxonomy
from hcep._checks import escape_markup as escape
from hcep.cli.console import Console, say_json, table_of
from hcep.cli.options import Json, argument
from hcep.errors import HCEPError, quoted

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow", "safetensors", "torch", "onnxruntime")


def info(
    path: Annotated[Path | None, argument("Model, store, embeddings, hierarchy or images.")] = None,
    as_json: Json = False,
) -> None:
    """Describe this installation, or a model, store, file of embeddings, hierarchy or folder of images."""
    facts = _installation() if path is None else _describe(path)
    if as_json:
        say_json(facts)
    else:
        Console().print(table_of(None, [(key.replace("_", " "), str(value)) for key, value in facts.items()]))


def encoders(as_json: Json = False) -> None:
    """List encoders: what is installed, what is missing and the command that installs it."""
    found = embeddings.available_encoders()
    if as_json:
        say_json([{key: getattr(e, key) for key in ("source", "installed", "install", "example")} for e in found])
        return
    console = Console(soft_wrap=True, highlight=False)
    for e in found:
        mark = "[green]installed[/]" if e.installed else "[yellow]missing[/]"
        console.print(f"[bold]{e.source}[/]  {mark}  {escape(e.description)}\n    {escape(e.example)}")
        if not e.installed:
            console.print(f"    [dim]{escape(e.install)}[/]")


def _installation() -> dict[str, Any]:
    from hcep.pursuit.blocks import n_threads

    facts: dict[str, Any] = {"hcep": __version__, "python": platform.python_version(), "threads": n_threads(None)}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts | {"encoders": ", ".join(e.source for e in embeddings.available_encoders() if e.installed)}


def _describe(path: Path) -> dict[str, Any]:
    from hcep.embeddings.arrays import usual_label_names
    from hcep.embeddings.reading import is_embeddings

    if not path.exists():
        raise HCEPError(f"nothing at {str(path)!r}")
    if (path / "model.json").is_file():
        return models.load_summary(path).facts()
    if embeddings.is_store(path):
        store = embeddings.EmbeddingStore(path)
        facts = {"kind": "store", "images": len(store), "dimensions": store.n_dims, "precision": store.dtype.name}
        facts |= {"encoder": store.encoder.name, "shards": len(store.shards), "skipped": len(store.skipped)}
        return facts | {"classes": len({label for label in store.labels.tolist() if label is not None})}
    if is_embeddings(path):
        return _arrays(embeddings.read_arrays(path, label_names=usual_label_names(path)))
    if path.suffix in (".json", ".csv", ".tsv"):
        found, told = taxonomy.read_described(path)
        return {"kind": "hierarchy", "read_as": told, "hierarchy": repr(found)}
    return {"kind": "images", "images": repr(datasets.read_images(path))}


def _arrays(arrays: Any) -> dict[str, Any]:
    labels = [] if arrays.labels is None else [label for label in arrays.labels.tolist() if label is not None]
    splits = Counter([] if arrays.splits is None else arrays.splits.tolist())
    vectors = arrays.vectors
    return {
        "kind": "embeddings",
        "rows": len(arrays),
        "dimensions": vectors.shape[1],
        "precision": vectors.dtype.name,
        "labels": f"{len(set(labels)):,} classes: {quoted(sorted(set(labels)), 3)}" if labels else "none",
        "splits": ", ".join(f"{split} {n:,}" for split, n in splits.items()) or "none",
        **({"read_as": arrays.note} if arrays.note else {}),
    }
