"""Answers for photos as a dataset of FiftyOne."""

import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hcep._files import replacing
from hcep.classify.right_level import SURE
from hcep.datasets import read_images
from hcep.embeddings.files import is_embeddings
from hcep.embeddings.images import ImageItem, not_used
from hcep.errors import HCEPError
from hcep.explain.answer import Answer
from hcep.explain.map_drawing import common_limit, heat_map
from hcep.explain.photos import ExplainOptions, answer_batches
from hcep.formats.fiftyone import GROUND_TRUTH, classification
from hcep.models.loading import SavedModel
from hcep.models.model_encoder import load_model_encoder

#: Photos in one folder of heat maps.
PER_FOLDER = 10_000


def export_fiftyone(
    model: SavedModel,
    data: Path,
    folder: Path,
    split: str | None = None,
    *,
    sure: float = SURE,
    encoder: str | None = None,
    progress: bool = False,
    on_note: Callable[[str], object] = lambda note: None,
) -> int:
    """Write the answers for photos as a folder that FiftyOne opens, and return their number.

    ``samples.json`` has a sample per photo: ``filepath`` (photos are not copied), the split as a tag, ``ground_truth``
    if it is known, ``answer``, ``best_class``, ``doubt``, ``kind`` and ``path``. If the encoder has feature maps, there
    is a heat map for each step of the path, ``where_1`` and so on, as a file below ``fields/``.

    Parameters
    ----------
    data : photos, as `hcep.datasets.read_images` reads them
    sure, encoder : as for `hcep.explain_images`
    on_note : called with each sentence for the user
    """
    if is_embeddings(data):
        raise HCEPError(f"{str(data)!r} has embeddings, but FiftyOne shows photos; give the photos")
    dataset = read_images(data, split=split)
    photos = {photo.id: photo for photo in dataset}
    if any(photo.box for photo in photos.values()):
        raise HCEPError(f"{str(data)!r} has boxes, but the export to FiftyOne takes whole photos; give their folder")
    adapter = load_model_encoder(model.encoder, model.folder, encoder)
    has_maps = bool(getattr(adapter, "has_maps", False))
    if not has_maps:
        on_note(f"there are no heat maps, because the encoder {adapter.name} has no feature maps")
    h = model.hierarchy
    names = {str(label): h.name(h.leaf_of(str(label))) for label in model.classes.tolist()}
    skipped, n_samples = list(dataset.unused), 0
    options = ExplainOptions(where=has_maps, encoder=adapter, sure=sure, progress=progress)
    with replacing(folder / "samples.json") as partial, partial.open("w", encoding="utf-8") as file:
        file.write('{"samples": [')
        for batch in answer_batches(list(photos.values()), model, options, skipped):
            for answer in batch:
                sample = _sample(answer, photos[answer.file], names) | dict(_heat_maps(answer, folder, n_samples))
                file.write((",\n" if n_samples else "\n") + json.dumps(sample, ensure_ascii=False))
                n_samples += 1
        file.write("\n]}\n")
    if skipped:
        reasons, n_files = [reason for _, reason in skipped], len(photos) + len(dataset.unused)
        on_note(not_used(reasons, n_files, names=[name for name, _ in skipped]))
    return n_samples


def _sample(answer: Answer, photo: ImageItem, names: Mapping[str, str]) -> dict[str, Any]:
    """The fields of a photo that have a value; `names` has the display name of each label."""
    fields = {
        "filepath": str(photo.path.resolve()),
        "tags": [photo.split] if photo.split else [],
        GROUND_TRUTH: classification(names.get(photo.label or "", photo.label)),
        "answer": classification(answer.answer_name, answer.answer_probability),
        "best_class": classification(answer.name, answer.probability),
        "doubt": answer.doubt or None,
        "kind": answer.kind,
        "path": [step.name for step in answer.path],
    }
    return {name: value for name, value in fields.items() if value is not None}


def _heat_maps(answer: Answer, folder: Path, number: int) -> Iterator[tuple[str, dict[str, str]]]:
    """Write the maps of a photo, and yield their fields."""
    maps = answer.context.maps
    if maps is None:
        return
    limit = common_limit(list(maps.concepts.values()))
    for level, (concept, evidence) in enumerate(zip(maps.names, maps.concepts.values(), strict=True), start=1):
        name = f"where_{level}"
        place = Path("fields", name, str(number // PER_FOLDER), f"{number}.png")
        with replacing(folder / place) as partial:
            heat_map(evidence, limit, maps.region, maps.size).save(partial, "PNG")
        yield name, {"_cls": "Heatmap", "map_path": place.as_posix(), "concept": concept}
