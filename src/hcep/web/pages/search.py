"""A field to find a class or concept by its name; a name that no concept has can become a class."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any

from hcep.errors import close_names
from hcep.explain.answer import percent
from hcep.hierarchy import Hierarchy
from hcep.web.pages.frame import button, clickable, guarded, on_value, redrawn, text

#: Concepts that are shown.
MATCHES = 8
UNKNOWN = "No class or concept has this name."


@lru_cache(maxsize=4)
def _names(h: Hierarchy) -> tuple[dict[str, str], Counter[str]]:
    """All names of every concept but the root, in lower case, and how many concepts have each name."""
    names = {c: "\n".join([h.name(c), *(name for _, name in h.merged(c))]).casefold() for c in h.ids if c != h.root}
    return names, Counter(map(h.name, h.ids))


def correction_of(h: Hierarchy, concept: str) -> dict[str, str]:
    """A correction to a class or concept, as arguments of `Corrections.add`."""
    is_label = h.is_leaf(concept) or concept not in h.own_leaves
    return {"label": h.class_of(concept)} if is_label else {"force": concept}


def places_for_a_class(h: Hierarchy, path: Sequence[str]) -> list[str]:
    """Concepts that a new class may be put below: those of a path that are above its class, then the most general.

    Parameters
    ----------
    path : concepts from a class up
    """
    general = [concept for concept in h.children(h.root) if not h.is_leaf(concept)]
    return [*list(dict.fromkeys([*path[1:], *general]))[:MATCHES], h.root]


def who_and_why(facts: dict[str, Any], place: str = "") -> None:
    """Fields for the visitor's name, which the browser remembers, and for a reason; `place` makes their ids unique."""
    with text("div", classes="fields"):
        for key, label in (("who", "Your name"), ("why", "Reason (optional)")):
            with text("div"):
                text("label", label, "name", for_=place + key)
                field = text("input", classes="field", id=place + key, name=key, maxlength=200, data_remember=key)
                on_value(field, "input", partial(facts.__setitem__, key))


def name_search(
    h: Hierarchy,
    label: str,
    pick: Callable[[str], Any],
    suggested: Sequence[str] = (),
    *,
    probability: Callable[[str], float] | None = None,
    add: Callable[[str, str], Any] | None = None,
    new: Callable[[], Mapping[str, str]] = dict,
    places: Callable[[], Sequence[str]] = tuple,
) -> Callable[..., None]:
    """A field with the matches as buttons below it; Enter picks the first.

    Returns a function that shows the matches again, or those of other words if it gets them. Every letter is sent
    before the key or click that follows it, and only what is offered for the last letter counts, so that typing fast
    gives the same as typing slowly.

    Parameters
    ----------
    label : of the field; its first word also makes the id of the field
    pick : called with a concept
    suggested : concepts that are shown before anything is typed
    probability : of a concept; it is shown, and likelier matches come first
    add : called with a name that no concept has, if it may become a class, and the concept above it
    new : classes that others have added already, which the model does not know yet, and the concept above each
    places : concepts that a new class may be put below, the likeliest first
    """
    names, n_named = _names(h)
    typed = ""
    key = "find-" + label.split()[0].lower()
    text("label", label, "name", for_=key)
    field = text("input", classes="field", id=key, type="search", autocomplete="off", placeholder="Type a name")
    message, line = text("p", "", "soft small", role="status"), text("div", classes="line matches")

    def matching() -> list[str]:
        words = typed.casefold()
        if not words:
            return list(suggested)
        likely = probability or (lambda c: -len(names[c]))
        concepts = [c for c, known in names.items() if words in known]
        concepts.sort(key=lambda c: (not names[c].startswith(words), -likely(c), names[c]))
        return concepts[:MATCHES]

    def near() -> list[str]:
        close = close_names(typed.casefold(), {name for known in names.values() for name in known.split("\n")})
        return [next(c for c, known in names.items() if one in known.split("\n")) for one in close]

    def new_matching() -> list[str]:
        return [] if add is None or not typed else [name for name in new() if typed.casefold() in name.casefold()]

    def offered(act: Callable[..., Any], *args: Any) -> Callable[[], Any]:
        words = typed
        return lambda: act(*args) if words == typed else None

    def draw() -> None:
        matches, added = matching(), new_matching()
        is_unknown = bool(typed) and not matches and not added
        matches = near() if is_unknown else matches
        question = " Did you mean one of these?" if matches else ""
        message.text = UNKNOWN + question if is_unknown else ""
        for concept in matches:
            parent = f" ({h.name(h.parents(concept)[0])})" if n_named[h.name(concept)] > 1 else ""
            with clickable("", offered(pick, concept), "chip near" if is_unknown else "chip"):
                text("span", h.name(concept) + parent, "wrap")
                if probability is not None:
                    text("span", percent(probability(concept)), "number")
        for name in added:
            assert add is not None
            clickable(f"{name} (new)", offered(add, name, new()[name]), "chip wrap")
        known = {name.casefold() for name in [*map(h.name, matches), *added]}
        if add is not None and typed and typed.casefold() not in known:
            for i, place in enumerate(places()):
                below = "at the top of the tree" if place == h.root else f"below {h.name(place)}"
                words = below if i else f"Add “{typed}” as a new class {below}"
                button(words[:1].upper() + words[1:], offered(add, typed, place), icon="add")

    def show(words: str | None = None) -> None:
        nonlocal typed
        typed = typed if words is None else words
        redraw()

    def enter() -> Any:
        if typed and (matches := matching()):
            return pick(matches[0])
        added = new_matching()
        return add(added[0], new()[added[0]]) if add is not None and added else None

    redraw = redrawn(line, draw)
    on_value(field, "input", show)
    field.on("keydown.enter", guarded(enter), args=[])
    return show
