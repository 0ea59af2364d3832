"""What all pages share: header, navigation, light and dark theme, notices, progress, and elements for plain text."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import wraps
from inspect import isawaitable
from pathlib import Path
from typing import Any

from hcep._checks import require
from hcep.errors import HCEPError
from hcep.web.batching import ServerBusyError

nicegui = require("nicegui", "web", "the explorer")
ui = nicegui.ui
log = logging.getLogger(__name__)

PAGES = {"Photo": "/", "Collection": "/collection", "Hierarchy": "/hierarchy", "API": "/api"}
#: Where the pages' own styles and scripts are served; nothing is loaded from elsewhere.
STATIC, FILES = "/explorer", Path(__file__).with_name("static")
SORRY = "Something went wrong. Nothing you did is lost; please try again."
BUSY = "The server is busy. Please try again in a moment."


@contextmanager
def frame(here: str, *scripts: str) -> Iterator[Any]:
    """A page of `PAGES`, with style sheets and scripts of the folder "static"; its content is made inside."""
    for name in ("frame.css", "frame.js", *scripts):
        tag = f'<link rel="stylesheet" href="{STATIC}/{name}">' if name.endswith(".css") else ""
        ui.add_head_html(tag or f'<script src="{STATIC}/{name}"></script>')
    with ui.header().classes("top"), text("div", classes="inner"):
        text("a", "hcep explorer", "brand", href="/")
        with text("nav", aria_label="Pages"):
            for name, path in PAGES.items():
                text("a", name, href=path, **({"aria_current": "page"} if name == here else {}))
        with text("button", classes="toggle", type="button", aria_label="Dark theme"):
            ui.icon("light_mode").classes("sun")
            ui.icon("dark_mode").classes("moon")
    with text("div", classes="page") as content:
        yield content
    text("footer", "All computing happens on the machine that serves this page; nothing is sent elsewhere.", "colophon")
    ui.skip_link(target=content)


def text(tag: str, words: str = "", classes: str = "", **attributes: Any) -> Any:
    """An HTML element with plain text, never HTML, in it. Attributes have underscores for dashes."""
    element = ui.label(words)
    element.tag = tag
    element.classes(classes)
    for name, value in attributes.items():
        element.props[name.rstrip("_").replace("_", "-")] = value
    return element


def clickable(words: str, on_click: Callable[[], Any], classes: str, **attributes: Any) -> Any:
    """A button of any look, such as a chip; `guarded` calls or awaits `on_click`."""
    return text("button", words, classes, type="button", **attributes).on("click", guarded(on_click), args=[])


def button(words: str, on_click: Callable[[], Any], kind: str = "", *, icon: str = "", **attributes: Any) -> Any:
    """A "primary", "quiet" or plain button, optionally with a Material icon before the words."""
    element = clickable("" if icon else words, on_click, f"button {kind}", **attributes)
    if icon:
        with element:
            ui.icon(icon)
            text("span", words)
    return element


def on_value(element: Any, event: str, handler: Callable[[str], Any], throttle: float = 0.0) -> None:
    """Call a function, `guarded`, with the value of an input at every event."""
    take = guarded(lambda received: handler(str(received.args).strip()))
    element.on(event, take, js_handler="(e) => emit(e.target.value)", throttle=throttle)


def bar(share: float, classes: str = "") -> Any:
    """A share as a bar; screen readers ignore it, so write the number beside it."""
    return text("span", "", f"bar {classes}", aria_hidden="true").style(f"--share:{min(max(share, 0.0), 1.0):.4f}")


def guarded(handler: Callable[..., Any]) -> Callable[..., Any]:
    """An event handler whose errors become notices in plain words."""
    client = ui.context.client

    @wraps(handler)  # NiceGUI inspects the handler's parameters
    async def run(*args: Any) -> None:
        with client:  # the element itself may be gone when the handler ends
            try:
                result = handler(*args)
                if isawaitable(result):
                    await result
            except HCEPError as error:
                notice(BUSY if isinstance(error, ServerBusyError) else str(error), problem=True)
            except Exception:
                log.exception("a page's handler failed")
                notice(SORRY, problem=True)

    return run


def sentence(words: str) -> str:
    """Words with a capital at the start and a full stop at the end."""
    return words[:1].upper() + words[1:] + ("" if words.endswith((".", "!", "?")) else ".")


def notice(words: str, *, problem: bool = False) -> None:
    look = {"classes": "problem" if problem else "", "position": "top", "close_button": "Close"}
    ui.notify(sentence(words), timeout=9000 if problem else 4000, **look)


@contextmanager
def working(words: str) -> Iterator[None]:
    """Show a message while work is done; work of less than half a second shows nothing."""
    client = ui.context.client
    with client.layout:
        message = text("div", words, "working", role="status")
    try:
        yield
    finally:
        with client:
            message.delete()


def redrawn(container: Any, draw: Callable[[], Any]) -> Callable[[], None]:
    """Draw the content of a container now, and again whenever the returned function is called."""

    def redraw() -> None:
        container.clear()
        with container:
            draw()

    redraw()
    return redraw


def tabs(names: Sequence[str]) -> list[Any]:
    """Panels to fill, one of which is visible; static/frame.js switches them by clicks and arrow keys."""
    key = f"tab{ui.context.client.next_element_id}"
    with text("div", classes="segments", role="tablist"):
        for i, name in enumerate(names):
            own: dict[str, Any] = {"id": f"{key}-{i}", "aria_controls": f"{key}-panel-{i}", "tabindex": -1 if i else 0}
            text("button", name, type="button", role="tab", aria_selected="false" if i else "true", **own)
    panels = []
    for i in range(len(names)):
        own = {"id": f"{key}-panel-{i}", "aria_labelledby": f"{key}-{i}", **({"hidden": True} if i else {})}
        panels.append(text("div", classes="stack", role="tabpanel", **own))
    return panels
