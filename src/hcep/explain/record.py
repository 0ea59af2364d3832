"""Explanations as JSON: what `hcep explain --json` prints, with a schema (docs/explanations.schema.json)."""

from types import SimpleNamespace, UnionType
from typing import Any, get_args, get_origin

import msgspec
from msgspec import Struct, field

from hcep.classify.hedging import Hedged
from hcep.errors import HCEPError
from hcep.explain.corrections import Correction
from hcep.explain.evidence import Contributions
from hcep.explain.explained import ExplainedImage, PictureObject, Rival
from hcep.explain.explanation import Step
from hcep.explain.neighbours import TrainingPhoto


class FlipRecord(Struct):
    """The smallest change of the embedding that makes two classes equal: its norm, and as a share of the embedding's.

    `prepared`: of the embedding after the model's power and unit norm. `class`: the answer just beyond it.
    """

    norm: float
    share: float
    prepared: bool
    label: str = field(name="class")
    name: str


class ContrastRecord(Struct):
    """Why this class and not another: the scores' totals differ by `margin`; `shared` concepts count for both."""

    chosen: Contributions
    rival: Contributions
    margin: float
    shared: list[str]
    path: list[str]
    rival_path: list[str]
    probability: float
    rival_probability: float
    barred: list[str]
    flip: FlipRecord | None
    photos: list[list[TrainingPhoto]]


class ImageRecord(Struct):
    """One explained image. `force` and `forbid`: concepts that were asked for, by hand or by a correction."""

    file: str = field(name="image")
    label: str = field(name="class")
    name: str
    probability: float
    unlike: bool | None = field(name="unlike_training")
    doubt: str
    truth: str | None
    hedged: Hedged | None
    force: list[str]
    forbid: list[str]
    path: list[Step]
    objects: list[PictureObject]
    residual_norm: float
    contributions: Contributions | None
    contrasts: list[ContrastRecord]
    runners_up: list[Rival]
    nearest: list[TrainingPhoto]
    maps: str | None
    corrected: Correction | None = None  # what somebody said of the image, and the answer obeys


def record(one: ExplainedImage) -> dict[str, Any]:
    """An explained image as JSON has it."""
    try:
        contributions = one.contributions
    except HCEPError:  # a head that is not linear
        contributions = None
    elsewhere = {
        "force": one.request.force,
        "forbid": one.request.forbid,
        "path": one.explanation.steps,
        "residual_norm": one.explanation.residual_norm,
        "contributions": contributions,
        "runners_up": one.rivals,
        "maps": None if one.maps is None else one.maps.how,
        "corrected": one.correction,
    }
    known = {**{part.name: getattr(one, part.name, None) for part in msgspec.structs.fields(ImageRecord)}, **elsewhere}
    return dict(msgspec.to_builtins(_as(ImageRecord, SimpleNamespace(**known))))


def schema() -> dict[str, Any]:
    """The JSON Schema of a list of explained images."""
    found = msgspec.json.schema(list[ImageRecord])
    for part in found["$defs"].values():
        part["description"] = part["description"].partition("\n")[0]
    return found


def _as(kind: Any, value: Any) -> Any:
    """A value as a kind of record, part by part."""
    if get_origin(kind) is list:
        return [_as(get_args(kind)[0], part) for part in value]
    if get_origin(kind) is UnionType:
        return None if value is None else _as(get_args(kind)[0], value)
    if not (isinstance(kind, type) and issubclass(kind, Struct)) or isinstance(value, kind):
        return value
    return kind(**{part.name: _as(part.type, getattr(value, part.name)) for part in msgspec.structs.fields(kind)})
