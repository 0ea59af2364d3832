"""SpeciesNet's ``predictions.json``: the likeliest classes of each photo or, since version 5, of each box."""

from pathlib import Path

from msgspec import Struct

from hcep.errors import HCEPError, quote
from hcep.formats import decode
from hcep.formats.annotations import Region
from hcep.formats.scores import ClassScores, Lineage, Scores, scores_of

#: What the parts of a label between its identifier and its common name are.
PARTS = ("class", "order", "family", "genus", "species")
NO_RESULT = "no cv result"
ANIMAL = "animal"
#: The category of a box that stands for the whole photo.
WHOLE = "0"


class _Classifications(Struct):
    classes: list[str]
    scores: list[float]


class _Processed(Struct):
    source: str = ""


class _Detection(Struct):
    category: str = ""
    raw_classifications: _Classifications | None = None
    processed_classification: _Processed | None = None


class _Prediction(Struct):
    filepath: str
    classifications: _Classifications | None = None
    prediction_source: str = ""
    detections: list[_Detection] | None = None


class _Predictions(Struct):
    predictions: list[_Prediction]


def read_scores(source: Path) -> Scores:
    """The scores of the classifier; those of the whole ensemble are of one class only."""
    images = decode(source, _Predictions, "SpeciesNet predictions").predictions
    scores = [one for image in images for one in _scores(source, image)]
    sources = [one.source for image in images for one in _processed(image)]
    fenced = sum("geofence" in one for one in sources)
    note = (
        f"SpeciesNet's geofence changed {fenced:,} of {len(sources):,} predictions; these scores are from before that, "
        "so list the possible classes with --only"
    )
    labels = {label for one in scores for label, _ in one.scores}
    return scores_of(source, scores, {label: lineage(label) for label in sorted(labels)}, [note] if fenced else [])


def _scores(source: Path, image: _Prediction) -> list[ClassScores]:
    """The scores of each box that was classified; of the photo if its boxes were not, also if it has no scores."""
    file = image.filepath
    boxes = [
        ClassScores(Region(file, 0 if box.category == WHOLE else n).id, file, _pairs(source, file, own))
        for n, box in enumerate(image.detections or (), start=1)
        if (own := box.raw_classifications)
    ]
    return boxes or [ClassScores(file, file, _pairs(source, file, image.classifications))]


def _processed(image: _Prediction) -> list[_Processed]:
    boxes = [own for box in image.detections or () if (own := box.processed_classification)]
    return boxes or [_Processed(image.prediction_source)]


def _pairs(source: Path, file: str, own: _Classifications | None) -> list[tuple[str, float]]:
    own = own or _Classifications([], [])
    if len(own.classes) != len(own.scores):
        counts = f"{len(own.classes)} classes and {len(own.scores)} scores"
        raise HCEPError(f"{source.name}: image {quote(file)} has {counts}; the two numbers must be equal")
    return list(zip(own.classes, own.scores, strict=True))


def lineage(label: str) -> Lineage:
    """The lineage in a label such as ``uuid;mammalia;carnivora;felidae;panthera;leo;lion``.

    Labels without a taxon, such as blank and vehicle, are at the top, and taxa are below the animals.
    """
    parts = [part.strip() for part in label.split(";")]
    if len(parts) != len(PARTS) + 2 or NO_RESULT in parts:
        return Lineage(() if NO_RESULT in parts else (("", label),))
    taxa = dict(zip(PARTS, parts[1:-1], strict=True))
    if taxa["genus"] and taxa["species"]:
        taxa["species"] = f"{taxa['genus']} {taxa['species']}"
    steps = [(rank, name) for rank, name in taxa.items() if name]
    if not steps:
        return Lineage((("", parts[-1] or label),))
    return Lineage((("", ANIMAL), *steps), parts[-1])
