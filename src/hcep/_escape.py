"""Text that others wrote, made harmless where it is shown: one function per medium."""

import html as _html
import re

# Controls of ASCII and beyond, line ends that only some obey, marks that reorder what is read, half pairs.
_CONTROL = re.compile("[\x00-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]")
_MARKDOWN = re.compile(r"([\\`*_\[\]#~])")


def terminal(text: str, keep: str = "\n\t") -> str:
    r"""Text for a terminal: controls are shown as escapes, bytes of no encoding as the replacement character.

    >>> terminal("a\x1b[2Jb", keep="")
    'a\\x1b[2Jb'
    """
    return _CONTROL.sub(lambda found: found[0] if found[0] in keep else _shown(found[0]), text)


def _shown(character: str) -> str:
    code = ord(character)
    if 0xD800 <= code < 0xE000:
        return "\ufffd"
    # \u from DEL on: also right inside a JSON string, where anything below stands escaped already.
    return f"\\x{code:02x}" if code < 0x7F else f"\\u{code:04x}"


def markup(text: str) -> str:
    """Text inside rich's markup, on one line."""
    from rich.markup import escape

    return escape(terminal(text, keep=""))


def markdown(text: str) -> str:
    r"""Text inside Markdown, on one line, table cells too.

    >>> markdown("a|b *<script>*")
    'a&#124;b \\*&lt;script&gt;\\*'
    """
    line = terminal(" ".join(text.split()), keep="")
    return _MARKDOWN.sub(r"\\\1", _html.escape(line, quote=False)).replace("|", "&#124;")


def markdown_code(text: str) -> str:
    """Text as a code span of Markdown, which nothing in it ends."""
    return f"`{terminal(' '.join(text.split()), keep='').replace('`', chr(39))}`"


def html(text: str) -> str:
    """Text inside an HTML document, in attributes too."""
    return _html.escape(terminal(text))


def spreadsheet(text: str) -> str:
    """Text as a cell that no spreadsheet takes for a formula.

    >>> spreadsheet("=1+1"), spreadsheet("cat")
    ("'=1+1", 'cat')
    """
    line = terminal(" ".join(text.split()), keep="")
    return f"'{line}" if line.startswith(("=", "+", "-", "@")) else line
