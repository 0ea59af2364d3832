"""JSON into typed records: msgspec checks it, and one sentence names the field that is wrong."""

import json
import sys
from collections.abc import Iterator
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
from msgspec import Meta, Struct

from hcep.errors import HCEPError, near_matches, quoted

T = TypeVar("T")
#: The second for half a pair of surrogates, which JSON's escapes can spell.
_FAILURES = (msgspec.ValidationError, UnicodeEncodeError)

_LARGE, _LARGEST = 1 << 60, sys.float_info.max
# An integer stays one, so that what is saved again is the same text; JSON's 1e999 and Python's NaN are refused.
_Whole = Annotated[int, Meta(ge=-_LARGE, le=_LARGE)]
_FromZero = Annotated[int, Meta(ge=0, le=_LARGE)]
_AboveZero = Annotated[int, Meta(gt=0, le=_LARGE)]
_Bit = Annotated[int, Meta(ge=0, le=1)]
_One = Annotated[int, Meta(gt=0, le=1)]
Finite = _Whole | Annotated[float, Meta(ge=-_LARGEST, le=_LARGEST, description="a finite number")]
NotNegative = _FromZero | Annotated[float, Meta(ge=0, le=_LARGEST, description="a finite number of at least 0")]
Positive = _AboveZero | Annotated[float, Meta(gt=0, le=_LARGEST, description="a finite number above 0")]
Share = _Bit | Annotated[float, Meta(ge=0, le=1, description="a finite number of at least 0 and at most 1")]
PositiveShare = _One | Annotated[float, Meta(gt=0, le=1, description="a finite number above 0 and at most 1")]
Count = Annotated[int, Meta(ge=0, le=_LARGE, description="an integer of at least 0")]
PositiveCount = Annotated[int, Meta(ge=1, le=_LARGE, description="an integer of at least 1")]


def parse(data: bytes) -> Any:
    """The value that JSON text holds; ValueError where it is not JSON, or too deeply nested."""
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError(f"nested too deeply: {error}") from None


def convert(value: Any, kind: type[T], where: str, error: type[HCEPError]) -> T:
    """A parsed JSON value as a `kind` of record, a msgspec.Struct.

    The `error` names the file (`where`), the field, what it must be (its ``Meta(description=…)``) and what it is.
    """
    try:
        return msgspec.convert(value, kind)
    except _FAILURES as failure:
        raise error(f"{where}: {_problem(value, kind, '', str(failure))}") from None


def shown(value: object) -> str:
    """A value for a message, not longer than 60 characters."""
    text = repr(value)
    return text if len(text) <= 60 else text[:57] + "..."


def _problem(value: Any, kind: Any, path: str, failure: str) -> str:
    """Say what is wrong with a value that is not of a kind, by going down to the part that is not."""
    choice = _meant(kind, value)
    if choice is None:
        return f"{path or 'the file'} must be {_expected(kind)}, got {shown(value)}"
    if _is_record(choice):
        config, fields = choice.__struct_config__, msgspec.structs.fields(choice)
        tags = [member.__struct_config__.tag for member in map(_bare, _members(kind)) if _is_record(member)]
        if config.tag_field and value.get(config.tag_field, config.tag) not in tags:
            tag = value[config.tag_field]
            return f"{_at(path, config.tag_field)} must be one of {quoted(tags)}, got {shown(tag)}"
        known = [*([config.tag_field] if config.tag_field else ()), *(field.encode_name for field in fields)]
        unknown = [key for key in value if key not in known and config.forbid_unknown_fields]
        if unknown:
            return f"unknown field {_at(path, unknown[0])!r}.{near_matches(unknown[0], known)}"
        missing = [field.encode_name for field in fields if field.required and field.encode_name not in value]
        if missing:
            return f"field {quoted(_at(path, key) for key in missing)} is missing"
    for key, inner, part in _parts(value, choice, path):
        try:
            msgspec.convert(value[key], inner)
        except _FAILURES as deeper:
            return _problem(value[key], inner, part, str(deeper))
    if failure.startswith("Expected `"):
        return f"{path} must be {_expected(kind)}, got {shown(value)}"
    # Each part is right by itself: the record's own check failed.
    return _at(path, failure.partition(" - at `")[0])


def _parts(value: Any, choice: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """Key, kind and place of what an object or a list holds."""
    if isinstance(value, list):
        yield from ((i, get_args(choice)[0], f"{path}[{i}]") for i in range(len(value)))
    elif _is_record(choice):
        fields = {field.encode_name: field.type for field in msgspec.structs.fields(choice)}
        yield from ((key, kind, _at(path, key)) for key, kind in fields.items() if key in value)
    else:
        yield from ((key, get_args(choice)[1], _at(path, key)) for key in value)


def _is_record(kind: Any) -> bool:
    return isinstance(kind, type) and issubclass(kind, Struct)


def _members(kind: Any) -> list[Any]:
    """The kinds of a union, or the one."""
    return list(get_args(kind)) if get_origin(kind) in (Union, UnionType) else [kind]


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _meant(kind: Any, value: Any) -> Any:
    """The member of a union that an object or a list was meant to be; None where there is none."""
    if isinstance(value, list):
        return next((m for m in map(_bare, _members(kind)) if get_origin(m) in (list, tuple)), None)
    if not isinstance(value, dict):
        return None
    members = [member for member in map(_bare, _members(kind)) if _is_record(member) or get_origin(member) is dict]
    configs = {m: m.__struct_config__ for m in members if _is_record(m)}
    tagged = (m for m, config in configs.items() if value.get(config.tag_field) == config.tag)
    return next(tagged, members[0] if members else None)


def _expected(kind: Any) -> str:
    members = _members(kind)
    for member in members:
        notes = [note.description for note in get_args(member)[1:] if isinstance(note, Meta) and note.description]
        if get_origin(member) is Annotated and notes:
            return str(notes[0])
    words = [word for member in members if get_origin(member) is Literal for word in get_args(member)]
    if words:
        return f"one of {quoted([*words, *([None] if NoneType in members else [])], 10)}"
    return next((_name(member) for member in map(_bare, members) if member is not NoneType), "null")


def _name(kind: Any) -> str:
    plain = {str: "a string", bool: "true or false", int: "an integer", float: "a finite number"}
    if kind in plain:
        return plain[kind]
    if (get_origin(kind) or kind) in (list, tuple):
        return "a list of strings" if str in get_args(kind) else "a list"
    return "a JSON object"


def _at(path: str, key: str) -> str:
    return f"{path}.{key}" if path else key
