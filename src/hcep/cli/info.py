"""`hcep info`: what is installed, what a file or folder is, and whether a store is intact."""

import platform
from collections import Counter
from dataclasses import asdict
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Annotated, Any

import typer

from hcep import __version__, datasets, embeddings, models
from hcep.cli.console import Console, escape, say, say_json, table_of
from hcep.cli.options import Json, argument, option
from hcep.embeddings.encoders import available_encoders
from hcep.embeddings.files import is_store
from hcep.errors import HCEPError, quoted
from hcep.hierarchy import read_described
from hcep.hierarchy.formats import FORMATS

PACKAGES = ("numpy", "scipy", "scikit-learn", "numba", "pyarrow", "safetensors", "torch", "onnxruntime")


def info(
    path: Annotated[Path | None, argument("Model, store, embeddings, hierarchy or images.", metavar="PATH")] = None,
    *,
    encoders: Annotated[bool, option("List the encoders and how to install them.", "--encoders")] = False,
    formats: Annotated[bool, option("List the formats of hierarchies.", "--formats")] = False,
    check: Annotated[bool, option("Check every file of a store; exit code 1 if one is damaged.", "--check")] = False,
    repair: Annotated[bool, option("Remove the damaged files of a store.", "--repair")] = False,
    as_json: Json = False,
) -> None:
    """Describe the installation, or a model, store, data file, hierarchy or image folder."""
    if encoders + formats + check + repair > 1:
        raise HCEPError("give only one of --encoders, --formats, --check and --repair")
    if encoders or formats:
        (_list_encoders if encoders else _list_formats)(as_json)
    elif check or repair:
        if path is None:
            raise HCEPError("--check and --repair need the folder of a store: hcep info STORE --check")
        (_check if check else _repair)(path, as_json)
    else:
        facts = _installation() if path is None else _describe(path)
        if as_json:
            say_json(facts)
        else:
            Console().print(table_of(None, [(key.replace("_", " "), _in_lines(value)) for key, value in facts.items()]))


def _in_lines(value: Any) -> str:
    """A value as text; a dict has one line per entry."""
    return "\n".join(f"{key}: {one}" for key, one in value.items()) or "none" if isinstance(value, dict) else str(value)


def _list_encoders(as_json: bool) -> None:
    known = available_encoders()
    if as_json:
        say_json([{key: getattr(e, key) for key in ("source", "installed", "install", "example")} for e in known])
        return
    console = Console(soft_wrap=True, highlight=False)
    for e in known:
        mark = "[green]installed[/]" if e.installed else "[yellow]missing[/]"
        console.print(f"[bold]{e.source}[/]  {mark}  {escape(e.description)}\n    {escape(e.example)}")
        if not e.installed:
            console.print(f"    [dim]{escape(e.install)}[/]")


def _list_formats(as_json: bool) -> None:
    known = FORMATS.values()
    if as_json:
        say_json([asdict(one) for one in known])
        return
    rows = []
    for one in known:
        does = ("yes" if one.reads else "-", "yes" if one.writes else "-")
        rows.append((one.name, " ".join(one.extensions) or "-", *does, " ".join(one.keeps), one.about))
    Console().print(table_of(("format", "endings", "reads", "writes", "keeps", ""), rows, n_left=6, gap=1))


def _check(path: Path, as_json: bool) -> None:
    """Read every file of a store and compare it with its checksum."""
    store = embeddings.EmbeddingStore(path)
    damage = store.damaged_shards()
    if not damage:
        try:
            store.verify()
        except HCEPError as error:
            damage = {"copy": str(error)}
    if as_json:
        say_json({"store": path, "n_images": len(store), "damaged": damage})
    else:
        for file, what in damage.items():
            say(f"damaged: {file}: {what}")
        result = f"to repair it: hcep info {path} --repair" if damage else f"{len(store.shards):,} files, none damaged"
        say(f"{path}: {len(store):,} images; {result}")
    raise typer.Exit(int(bool(damage)))


def _repair(path: Path, as_json: bool) -> None:
    """Remove the damaged files of a store; `hcep encode` then encodes their images again, and no others."""
    dropped = embeddings.EmbeddingStore(path).repair()
    left = len(embeddings.EmbeddingStore(path))
    if as_json:
        say_json({"store": path, "n_images": left, "dropped": dropped})
    else:
        n_files = f"{len(dropped):,} damaged file{'' if len(dropped) == 1 else 's'} removed"
        say(f"{path}: {n_files}, {left:,} images left" + ("; run `hcep encode` again" if dropped else ""))


def _installation() -> dict[str, Any]:
    from hcep.pursuit.blocks import n_threads

    facts: dict[str, Any] = {"hcep": __version__, "python": platform.python_version(), "threads": n_threads(None)}
    for package in PACKAGES:
        try:
            facts[package] = version(package)
        except PackageNotFoundError:
            facts[package] = "not installed"
    return facts | {"encoders": ", ".join(e.source for e in available_encoders() if e.installed)}


def _describe(path: Path) -> dict[str, Any]:
    from hcep.embeddings.files import is_embeddings

    if not path.exists():
        raise HCEPError(f"there is nothing at {str(path)!r}")
    if (path / "model.json").is_file():
        return models.read_model(path).facts()
    if is_store(path):
        store = embeddings.EmbeddingStore(path)
        facts = {"kind": "store", "images": len(store), "dimensions": store.n_dims, "precision": store.dtype.name}
        facts |= {"encoder": store.encoder.name, "shards": len(store.shards), "skipped": len(store.skipped)}
        return facts | {"classes": len({label for label in store.labels.tolist() if label is not None})}
    if is_embeddings(path):
        return _arrays(embeddings.read_embeddings(path))
    if path.suffix in (".json", ".csv", ".tsv"):
        hierarchy, description = read_described(path)
        return {"kind": "hierarchy", "read_as": description, "hierarchy": repr(hierarchy)}
    return {"kind": "images", "images": repr(datasets.read_images(path))}


def _arrays(arrays: Any) -> dict[str, Any]:
    labels = [] if arrays.labels is None else [label for label in arrays.labels.tolist() if label is not None]
    splits = Counter([] if arrays.splits is None else arrays.splits.tolist())
    vectors = arrays.X
    return {
        "kind": "embeddings",
        "rows": len(arrays),
        "dimensions": vectors.shape[1],
        "precision": vectors.dtype.name,
        "labels": f"{len(set(labels)):,} classes: {quoted(sorted(set(labels)), 3)}" if labels else "none",
        "splits": ", ".join(f"{split} {n:,}" for split, n in splits.items()) or "none",
        **({"read_as": "; ".join(arrays.notes)} if arrays.notes else {}),
    }
