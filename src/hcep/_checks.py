"""Check values and records from users and files, import optional packages, and escape text for output."""

import html
import json
import math
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, TypeVar, Union, get_args, get_origin

import msgspec
import numpy as np
from msgspec import Meta, Struct

from hcep.errors import HCEPError, MissingExtraError, cut, near_matches, quote, quoted


def is_number(value: object) -> bool:
    """Whether `value` is a real number; True and False are not."""
    return isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool)


def require_positive(name: str, value: object, none_means: str | None = None) -> None:
    """Require a positive integer; None is allowed if `none_means` says what it means."""
    if value is None and none_means:
        return
    if isinstance(value, bool) or not isinstance(value, int | np.integer) or value < 1:
        alternative = f", or None for {none_means}" if none_means else ""
        raise HCEPError(f"{name} must be a positive integer{alternative}; got {quote(value)}")


def require_not_negative(name: str, value: Any, least: float = 0) -> float:
    """Require a finite number of at least `least`."""
    if is_number(value) and least <= float(value) < float("inf"):
        return float(value)
    raise HCEPError(f"{name} must be a finite number of at least {least:g}, got {quote(value)}")


def require_share(name: str, value: Any) -> float:
    """Require a number in [0, 1]."""
    if is_number(value) and 0.0 <= float(value) <= 1.0:
        return float(value)
    raise HCEPError(f"{name} must be a number from 0 to 1, got {quote(value)}")


def install_command(extra: str) -> str:
    """The command that installs an extra of this package."""
    return f'pip install "hcep[{extra}]"'


def is_installed(module: str) -> bool:
    """Whether a package is installed, without importing it."""
    return find_spec(module) is not None


def require(module: str, extra: str, wanted_by: str) -> Any:
    """Import an optional module; `wanted_by` describes its user in messages, as in "reading OWL".

    Raises
    ------
    MissingExtraError : the module, or a module it needs, is not installed; the message has the install command
    HCEPError : the import fails
    """
    try:
        return import_module(module)
    except ModuleNotFoundError as error:
        message = f"{wanted_by} needs {(error.name or module).partition('.')[0]}, which is not installed"
        raise MissingExtraError(f"{message}: {install_command(extra)}") from error
    except Exception as error:
        reason = (str(error) or type(error).__name__).splitlines()[0]
        message = f"{module} is installed but cannot be imported ({reason}); its versions may not match, reinstall it"
        raise HCEPError(f"{message}: {install_command(extra)}") from error


T = TypeVar("T")
#: The second is raised for lone surrogates, which JSON's escapes can spell.
_FAILURES = (msgspec.ValidationError, UnicodeEncodeError)

_LARGE, _LARGEST = 1 << 60, sys.float_info.max
# An integer stays an integer, so that saving again gives the same text; 1e999 and NaN are refused.
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


def parse_json(data: bytes) -> Any:
    """Parse JSON; ValueError if it is not JSON or too deeply nested."""
    try:
        return json.loads(data.decode("utf-8"))
    except RecursionError as error:
        raise ValueError(f"nested too deeply: {error}") from None


def convert_record(value: Any, kind: type[T], where: str, error: type[HCEPError]) -> T:
    """Convert a parsed JSON value to a msgspec.Struct of a `kind`.

    The `error` names the file (`where`), the field, what is expected (its ``Meta(description=…)``) and what it is.
    """
    try:
        return msgspec.convert(value, kind)
    except _FAILURES as failure:
        raise error(f"{where}: {_problem(value, kind, '', str(failure))}") from None


def _problem(value: Any, kind: Any, path: str, failure: str) -> str:
    """Describe why a value does not convert, by finding the innermost part that does not."""
    choice = _matching_member(kind, value)
    if choice is None:
        return f"{cut(path) or 'the file'} must be {_expected(kind)}, got {quote(value)}"
    if _is_record(choice):
        config, fields = choice.__struct_config__, msgspec.structs.fields(choice)
        tags = [member.__struct_config__.tag for member in map(_bare, _members(kind)) if _is_record(member)]
        if config.tag_field and value.get(config.tag_field, config.tag) not in tags:
            tag = value[config.tag_field]
            return f"{cut(_at(path, config.tag_field))} must be one of {quoted(tags)}, got {quote(tag)}"
        known = [*([config.tag_field] if config.tag_field else ()), *(field.encode_name for field in fields)]
        unknown = [key for key in value if key not in known and config.forbid_unknown_fields]
        if unknown:
            return f"unknown field {quote(_at(path, unknown[0]))}.{near_matches(unknown[0], known)}"
        missing = [field.encode_name for field in fields if field.required and field.encode_name not in value]
        if missing:
            return f"field {quoted(_at(path, key) for key in missing)} is missing"
    for key, inner, part in _parts(value, choice, path):
        try:
            msgspec.convert(value[key], inner)
        except _FAILURES as deeper:
            return _problem(value[key], inner, part, str(deeper))
    if failure.startswith("Expected `"):
        return f"{cut(path)} must be {_expected(kind)}, got {quote(value)}"
    # Each part converts: the record's own check failed.
    return _at(cut(path), failure.partition(" - at `")[0])


def _parts(value: Any, choice: Any, path: str) -> Iterator[tuple[Any, Any, str]]:
    """The key, kind and path of each part of an object or list."""
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
    """The members of a union, or the kind itself."""
    return list(get_args(kind)) if get_origin(kind) in (Union, UnionType) else [kind]


def _bare(kind: Any) -> Any:
    return get_args(kind)[0] if get_origin(kind) is Annotated else kind


def _matching_member(kind: Any, value: Any) -> Any:
    """The member of a union that an object or a list is likely to be; None if there is none."""
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


# Control characters, unusual line ends, marks that change the direction of text, lone surrogates.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_MARKDOWN = re.compile(r"([\\`*_\[\]#~])")


def escape_terminal(text: str, keep: str = "\n\t") -> str:
    r"""Escape text for a terminal: control characters become escapes, undecodable bytes the replacement character.

    >>> escape_terminal("a\x1b[2Jb", keep="")
    'a\\x1b[2Jb'
    """
    return _CONTROL.sub(lambda match: match[0] if match[0] in keep else _escaped(match[0]), text)


def _escaped(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    # \u from DEL on is also valid in a JSON string, in which everything below is escaped already.
    return f"\\x{code:02x}" if code < 0x7F else f"\\u{code:04x}"


def escape_markdown(text: str) -> str:
    r"""Escape text for Markdown, also for table cells, on one line.

    >>> escape_markdown("a|b *<script>*")
    'a&#124;b \\*&lt;script&gt;\\*'
    """
    line = escape_terminal(" ".join(text.split()), keep="")
    return _MARKDOWN.sub(r"\\\1", html.escape(line, quote=False)).replace("|", "&#124;")


def markdown_code(text: str) -> str:
    """Escape text as a code span of Markdown."""
    return f"`{escape_terminal(' '.join(text.split()), keep='').replace('`', chr(39))}`"


def escape_html(text: str) -> str:
    """Escape text for HTML, also for attributes."""
    return html.escape(escape_terminal(text))


def render_html(template: Path, **values: Any) -> str:
    """Fill in a Jinja2 template; every text is escaped, and control characters in it are shown as escapes.

    The template may include others of its folder, and other files as they are with ``file(name)``.
    """
    return str(_html_templates(template.parent).get_template(template.name).render(**values))


@cache
def _html_templates(folder: Path) -> Any:
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def escaped(value: Any) -> Any:
        return escape_terminal(value) if isinstance(value, str) and not isinstance(value, Markup) else value

    environment = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        finalize=escaped,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.globals["file"] = lambda name: Markup((folder / name).read_text("utf-8"))
    return environment


def escape_spreadsheet(text: str) -> str:
    """Escape text as a cell that no spreadsheet reads as a formula.

    >>> escape_spreadsheet("=1+1"), escape_spreadsheet("cat")
    ("'=1+1", 'cat')
    """
    line = escape_terminal(" ".join(text.split()), keep="")
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line


#: Stands for an undefined number.
NO_NUMBER = "–"


def rounded(value: float) -> str:
    """Format a number with three decimals (one from 10 upwards), without the zero before the point.

    >>> rounded(0.5), rounded(1.0), rounded(-0.25), rounded(-0.0001), rounded(12.34), rounded(float("nan"))
    ('.500', '1.000', '-.250', '.000', '12.3', '–')
    """
    if math.isnan(value):
        return NO_NUMBER
    text = f"{value:.3f}" if abs(value) < 10 else f"{value:.1f}"
    text = text.replace("-0.000", "0.000")  # a value that rounds to zero has no sign
    return text.replace("0.", ".", 1) if text.startswith(("0.", "-0.")) else text


def markdown_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    r"""A Markdown table, with bars in cells escaped.

    >>> print(markdown_table(["a", "b"], [["1", "x|y"]]), end="")
    | a | b |
    |---|---|
    | 1 | x\|y |
    """
    lines = [_line(head), "|---" * len(head) + "|", *map(_line, rows)]
    return "\n".join(lines) + "\n"


def html_table(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """An HTML table for a notebook, with every text escaped.

    >>> html_table(["a"], [["1 < 2"]])
    '<table><tr><th>a</th></tr><tr><td>1 &lt; 2</td></tr></table>'
    """
    lines = [("th", head), *(("td", row) for row in rows)]
    cells = ("".join(f"<{tag}>{escape_html(cell)}</{tag}>" for cell in line) for tag, line in lines)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def _line(cells: Sequence[str]) -> str:
    return "| " + " | ".join(cell.replace("|", r"\|") for cell in cells) + " |"
