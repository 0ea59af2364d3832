"""Folders around a model's ONNX file that run without HCEP: a model of AddaxAI, and a Space of the Hugging Face hub.

AddaxAI classifies the boxes that MegaDetector finds in photos of camera traps; a Space is a web page for photos.
"""

import json
from collections import Counter
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

import hcep
from hcep._files import write_text
from hcep.errors import HCEPError
from hcep.formats.answers import write_rows
from hcep.formats.speciesnet import PARTS as RANKS
from hcep.hierarchy import Hierarchy
from hcep.models.loading import SavedModel
from hcep.models.onnx_export import export_onnx, includes_encoder


def export_addaxai(model: SavedModel, folder: Path, encoder: str | None = None) -> None:
    """Write the folder: ``model.onnx``, ``inference.py``, ``taxonomy.csv``, ``labels.json`` and ``manifest.json``.

    Parameters
    ----------
    model : the saved model, whose encoder must be an ONNX network
    folder : must be new or empty; its name becomes the id of the model
    encoder : instead of the recorded one
    """
    _export(model, folder, "inference.py", "addaxai.py.txt", encoder)
    hierarchy, name = model.hierarchy, folder.resolve().name
    leaves = [hierarchy.leaf_of(str(label)) for label in model.classes.tolist()]
    labels = _labels([hierarchy.name(leaf) for leaf in leaves], leaves)
    rows = ({"model_class": label, **_taxa(hierarchy, leaf)} for label, leaf in zip(labels, leaves, strict=True))
    write_rows(folder / "taxonomy.csv", ("model_class", *RANKS), rows)
    write_text(folder / "labels.json", json.dumps(labels, ensure_ascii=False, indent=1) + "\n")
    manifest = {
        "model_id": name,
        "friendly_name": name,
        "env": "pytorch",
        "model_fname": "model.onnx",
        "description": f"{len(labels):,} classes; exported by hcep {hcep.__version__}. It needs onnxruntime.",
        "developer": "",
        "info_url": "",
        "min_app_version": "0.1.0",
        "species_list": labels,
    }
    write_text(folder / "manifest.json", json.dumps(manifest, ensure_ascii=False, indent=2) + "\n")


def export_space(model: SavedModel, folder: Path, encoder: str | None = None) -> None:
    """Write ``app.py``, ``model.onnx``, ``requirements.txt`` and ``README.md``; parameters as for `export_addaxai`."""
    _export(model, folder, "app.py", "space.py.txt", encoder)
    write_text(folder / "requirements.txt", "numpy\nonnxruntime\npillow\n")
    title = json.dumps(folder.resolve().name, ensure_ascii=False)  # YAML reads JSON's strings
    about = (
        f"{len(model.classes):,} classes, answered as specifically as it is sure. Exported by hcep {hcep.__version__}."
    )
    write_text(folder / "README.md", f"---\ntitle: {title}\nsdk: gradio\napp_file: app.py\n---\n\n{about}\n")


def _export(model: SavedModel, folder: Path, script: str, template: str, encoder: str | None) -> None:
    """Write the ONNX file, and a script that begins with the preprocessing of photos."""
    if not includes_encoder(model, encoder):
        raise HCEPError(f"{script} needs photos as input, but the model's encoder is not an ONNX network")
    export_onnx(model, folder / "model.onnx", encoder)
    sources = files("hcep.embeddings").joinpath("pixels.py"), files("hcep.models").joinpath(template)
    write_text(folder / script, "\n\n".join(source.read_text("utf-8") for source in sources))


def _taxa(hierarchy: Hierarchy, leaf: str) -> dict[str, str]:
    """The names at AddaxAI's ranks, in lower case; a species is its epithet, without the genus."""
    lineage = {rank.lower(): name.lower() for rank, name in hierarchy.lineage(leaf).items()}
    lineage["species"] = lineage.get("species", "").removeprefix(lineage.get("genus", "") + " ")
    return {rank: lineage.get(rank, "") for rank in RANKS}


def _labels(names: Sequence[str], ids: Sequence[str]) -> list[str]:
    """Names in lower case, as AddaxAI compares them; the id follows a name that several classes have."""
    counts = Counter(name.lower() for name in names)
    return [n.lower() if counts[n.lower()] == 1 else f"{n} {i}".lower() for n, i in zip(names, ids, strict=True)]
