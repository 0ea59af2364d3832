"""Working through photos by keyboard: one group of look-alikes after the other, each with one decision."""

import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from hcep.errors import HCEPError, counted
from hcep.explain.corrections import Correction
from hcep.hierarchy.names import with_article
from hcep.web.collection import Collection
from hcep.web.pages import many
from hcep.web.pages.frame import button, clickable, guarded, notice, redrawn, text, ui, working
from hcep.web.pages.photo import PhotoView
from hcep.web.pages.search import correction_of, name_search, places_for_a_class, who_and_why
from hcep.web.pages.session import PhotoSession

KEYS = (
    "Keys: A accept, 1 to 9 choose a concept, C correct, N none of these, X not this, O only this photo, W reason, "
    "S or → skip, ← back, U undo, E explain"
)
FORGET_REASON = "document.querySelector('.work > .fields input[name=why]').value = ''"
TO_EXPLANATION = "setTimeout(() => document.querySelector('.explanation')?.scrollIntoView(), 120)"


class Work:
    """A dialog that shows groups of photos, one after the other, and saves what the visitor says about them."""

    def __init__(
        self,
        collections: many.Collections,
        collection: Collection,
        groups: Sequence[Sequence[int]],
        on_close: Callable[[], Any],
        at: int = 0,
    ) -> None:
        self.engine, self.collections, self.collection = collections.engine, collections, collection
        self.groups, self.at, self.left_out, self.thumbs = list(groups), at, set[int](), dict[int, Any]()
        self.decided: list[tuple[int, list[Correction]]] = []  # where, and what; the last is undone first
        self.began, self.facts, self.saving = time.monotonic(), {"who": "", "why": ""}, False
        with ui.dialog(value=True) as self.dialog, text("div", classes="card work", tabindex="-1"):
            with text("div", classes="line apart"):
                self.progress = text("p", "", "small", role="status")
                button("Close", self.close, "quiet")
            self.redraw = redrawn(text("div", classes="photo-card"), self.draw)
            # The field stays while photos change, so that nothing that is typed early gets lost.
            h = collection.model.hierarchy
            with text("div", classes="search"):
                self.search = name_search(
                    h,
                    "Correct it to",
                    partial(self.do, self.find, self.choose),
                    add=lambda name, under: self.do(self.find, partial(self.say, label=name, under=under)),
                    new=lambda: self.engine.corrections.new_classes(h),
                    places=lambda: places_for_a_class(h, self.path),
                )
            who_and_why(self.facts, "work-")
            text("p", KEYS, "small soft keys")
            self.explanation, self.is_explained = text("div", classes="stack wide explanation"), False
            ui.keyboard(on_key=guarded(self.key), repeating=False, ignore=["input", "select", "textarea"])
        self.on_close = on_close
        self.dialog.on("hide", guarded(self.closed), args=[]).props["aria-label"] = "Work through photos"

    def close(self) -> None:
        self.dialog.close()

    def closed(self) -> Any:
        self.dialog.delete()
        return self.on_close()

    @property
    def rows(self) -> Sequence[int]:
        return self.groups[self.at] if self.at < len(self.groups) else ()

    @property
    def row(self) -> int:
        """The photo that is shown large."""
        return self.rows[0]

    @property
    def path(self) -> list[str]:
        """The concepts of the model's path, from the class up; none after the last photo."""
        if not self.rows:
            return []
        h, node = self.collection.model.hierarchy, int(self.collection.node[self.row])
        return [h.ids[h.path_tree.synset[v]] for v in self.collection.trail(node)][::-1]

    @property
    def choices(self) -> list[str]:
        """Concepts that a number key chooses: those of the path, and what a model without the photo would say."""
        model, best = self.collection.model, int(self.collection.left_out[self.row])
        without = [str(model.leaves[best])] if best >= 0 else []
        return list(dict.fromkeys([*self.path, *without]))[:9]

    def draw(self) -> None:
        collection, h = self.collection, self.collection.model.hierarchy
        n = sum(len(corrections) for _, corrections in self.decided)
        words = f"{min(self.at + 1, len(self.groups)):,} of {len(self.groups):,}; {counted(n, 'photo')} decided"
        if self.decided and self.rows:
            left = (time.monotonic() - self.began) / len(self.decided) * (len(self.groups) - self.at) / 60
            words += f"; about {counted(max(round(left), 1), 'minute')} left"
        self.progress.set_text(f"{words}.")
        if not self.rows:
            text("h2", "That was the last one.")
            text("p", "Close this dialog to learn from your decisions, or press ← or U to go back.", "soft")
            return
        photos, key = collection.photos, collection.photos.key
        with text("div", classes="stack"):
            text("img", classes="large", src=f"/collection/{key}/large/{self.row}.jpg", alt=photos.names[self.row])
            if len(self.rows) > 1:
                text(
                    "p",
                    f"{len(self.rows):,} photos look alike: your decision applies to all. Click one to leave it out.",
                    "small",
                )
                with text("div", classes="strip alike"):
                    for row in self.rows:
                        pressed = str(row not in self.left_out).lower()
                        thumb = clickable("", partial(self.toggle, row), "bare", aria_pressed=pressed)
                        self.thumbs[row] = thumb
                        with thumb:
                            text("img", src=f"/collection/{key}/small/{row}.jpg", alt=photos.names[row])
        with text("div", classes="stack"):
            many.answer_details(collection, self.row)
            text("p", photos.names[self.row], "small soft wrap")
            with text("div", classes="line", role="group", aria_label="Correct at any level"):
                for i, concept in enumerate(self.choices, start=1):
                    clickable(f"{i} {h.name(concept)}", partial(self.do, self.choose, concept), "chip wrap")
            with text("div", classes="line"):
                if (name := collection.answer_name(self.row)) is not None:
                    button(f"Accept “{name}”", partial(self.do, self.accept), "primary", icon="check")
                button("None of these", partial(self.do, self.none), icon="block")
                button(f"Not {with_article(h.name(self.path[0]))}", partial(self.do, self.forbid), icon="close")
            with text("div", classes="line"):
                button("Previous", partial(self.do, self.go, -1), icon="arrow_back", disabled=self.at == 0)
                button("Skip", partial(self.do, self.skip), icon="arrow_forward")
                button("Undo", partial(self.do, self.undo), icon="undo", disabled=not self.decided)
                button("Explain", partial(self.do, self.explain), icon="account_tree")
        if self.at + 1 < len(self.groups):  # the browser loads the next photo ahead
            text(
                "img",
                "",
                "ahead",
                src=f"/collection/{key}/large/{self.groups[self.at + 1][0]}.jpg",
                alt="",
                hidden=True,
            )

    def do(self, act: Callable[..., Any], *args: Any) -> Any:
        """Act, unless the last decision is still being saved: the visitor has not seen the next photo yet."""
        return None if self.saving else act(*args)

    def key(self, event: Any) -> Any:
        """What a key does; keys that mean nothing are ignored."""
        held = event.modifiers
        if not event.action.keydown or held.ctrl or held.alt or held.meta:
            return None
        name = event.key.name
        if not self.rows:
            keys: dict[str, Callable[[], Any]] = {"u": self.undo, "ArrowLeft": partial(self.go, -1)}
        else:
            keys = {str(i): partial(self.choose, concept) for i, concept in enumerate(self.choices, start=1)}
            keys |= {"a": self.accept, "n": self.none, "x": self.forbid, "o": self.only, "u": self.undo}
            keys |= dict.fromkeys(("s", "ArrowRight"), self.skip) | {"ArrowLeft": partial(self.go, -1)}
            keys["e"] = self.explain
        return self.do(keys[name]) if name in keys else None

    def only(self) -> None:
        """Leave out all look-alikes of the large photo, or take them in again."""
        others = set(self.rows[1:])
        for row in others - self.left_out or others:
            self.toggle(row)

    def toggle(self, row: int) -> None:
        self.left_out ^= {row}
        self.thumbs[row].props["aria-pressed"] = str(row not in self.left_out).lower()

    def go(self, by: int) -> None:
        self.at, self.left_out = min(max(self.at + by, 0), len(self.groups)), set()
        self.hide_explanation()
        self.redraw()
        self.search()

    def skip(self) -> None:
        """Go on; photos that were left out come next."""
        rows = [row for row in self.rows if row not in self.left_out]
        if rows and self.left_out:
            self.groups[self.at : self.at + 1] = [rows, [row for row in self.rows if row in self.left_out]]
        self.go(1)

    def accept(self) -> Any:
        synset = int(self.collection.answer[self.row])
        if not synset:
            notice("The model is not sure of anything; choose a concept", problem=True)
            return None
        return self.choose(self.collection.model.hierarchy.ids[synset])

    async def find(self, act: Callable[..., Any], *args: Any) -> None:
        """Take what was found by its name; static/frame.js leaves the field when the next photo is shown."""
        await act(*args)
        self.search("")

    def choose(self, concept: str) -> Any:
        return self.say(**correction_of(self.collection.model.hierarchy, concept))

    def none(self) -> Any:
        return self.say(none=True)

    def forbid(self) -> Any:
        return self.say(forbid=self.path[0])

    async def say(self, **what: Any) -> None:
        """Save a decision about the group, and go on."""
        photos = self.collection.photos
        rows = [row for row in self.rows if row not in self.left_out and photos.ids[row] is not None]
        if not rows:
            raise HCEPError("there is no photo to decide on: all are left out")
        pairs = [(photos.ids[row], str(photos.files[row])) for row in rows]
        self.decided.append((self.at, await self.save(pairs, **what, **self.facts)))
        if self.facts["why"]:  # it was about these photos
            self.facts["why"] = ""
            ui.run_javascript(FORGET_REASON)
        self.skip()

    async def undo(self) -> None:
        """Undo the last decision, except for photos about which somebody has said something else since."""
        if not self.decided:
            return
        (at, corrections), in_force = self.decided[-1], self.engine.corrections.in_force
        mine = [(one.image, "") for one in corrections if in_force.get(one.image) == one]
        if len(mine) < len(corrections):
            notice(f"{counted(len(corrections) - len(mine), 'photo')}: somebody has changed the decision since")
        if mine:
            await self.save(mine, undo=True, who=self.facts["who"])
        del self.decided[-1]
        self.at = at
        self.go(0)

    async def save(self, photos: Sequence[tuple[str, str]], **what: Any) -> list[Correction]:
        self.saving = True
        try:
            return await self.engine.correct_all(photos, **what)
        finally:
            self.saving = False

    async def explain(self) -> None:
        """Show all that the page of a photo shows, below the photo; or hide it again."""
        if self.is_explained:
            self.hide_explanation()
            return
        row = self.row
        with working("Reading the photo …"):
            photo = await self.collections.photo(self.collection.photos, row)
            session = PhotoSession(self.engine, photo)
            await session.ask()
        if self.is_explained or self.rows[:1] != [row]:  # the visitor has asked twice, or has gone on meanwhile
            return
        self.is_explained = True
        session.on_answer.append(self.redraw)  # it may have been corrected
        with self.explanation:
            PhotoView(session, "Open as a page", f"/?photo={photo.id}")
        ui.run_javascript(TO_EXPLANATION)

    def hide_explanation(self) -> None:
        self.is_explained = False
        self.explanation.clear()
