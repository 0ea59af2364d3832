"""The photo page in a real browser, against a real server with the built-in model and real photos."""

from __future__ import annotations

import base64
import json
import os
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

from tests.web.at_hand import is_accessible

pytestmark = pytest.mark.slow
HOSTILE = "<img src=x onerror=window.hacked=1>.jpg"
#: Puts a file into an event that a page takes it from.
GIVE = """([kind, data, name, type]) => {
  const bytes = Uint8Array.from(atob(data), (c) => c.charCodeAt(0)), given = new DataTransfer();
  given.items.add(new File([bytes], name, { type }));
  const event = kind === "paste" ? new ClipboardEvent(kind, { clipboardData: given, bubbles: true })
                                 : new DragEvent(kind, { dataTransfer: given, bubbles: true, cancelable: true });
  document.body.dispatchEvent(event);
}"""


def example(name: str) -> Path:
    return Path(find_spec("sklearn").origin).parent / "datasets" / "images" / name


def give(page, kind: str, data: bytes, name: str, type: str = "image/jpeg") -> None:
    page.evaluate(GIVE, [kind, base64.b64encode(data).decode(), name, type])


def own(data: bytes, n: int) -> bytes:
    """The same picture as another file, so that tests do not see each other's corrections."""
    return data + bytes(n)


#: The headlines of the two examples.
PALACE, FLOWER = "A building, 95 %", "Perhaps a honeycomb, 81 %"


@pytest.fixture
def first(new_page, server):
    """Open the first page, ready to use."""

    def opens(**options):
        page = new_page(**options)
        page.goto(server.url)
        page.wait_for_function("window.did_handshake === true")
        return page

    return opens


@pytest.fixture
def palace(first):
    """Open the page of a palace, dropped as a file of the given number of more bytes."""

    def opens(n: int = 0, name: str = "china.jpg", **options):
        page = first(**options)
        give(page, "drop", own(example("china.jpg").read_bytes(), n), name)
        shown(page, PALACE)
        page.wait_for_selector(".map.shown")
        return page

    return opens


def shown(page, headline: str) -> None:
    page.wait_for_selector(f".answer h1:text-is({json.dumps(headline)})")


def give_no_picture(page) -> None:
    """Drop a file that is not a picture; the page shows why, and the browser logs the status of the one response."""
    give(page, "drop", b"not a picture", "notes.jpg")
    page.wait_for_selector(".q-notification.problem:has-text('picture'), .q-notification.problem:has-text('image')")
    assert ["422" in problem for problem in page.problems] == [True]
    page.problems.clear()


def pictures_are_wider(page, selector: str, pixels: int) -> None:
    """Wait until all pictures are loaded and are wider than this."""
    wide = "([selector, n]) => [...document.querySelectorAll(selector)].every((one) => one.naturalWidth > n)"
    page.wait_for_function(wide, arg=[selector, pixels])


def headline(page) -> str:
    return page.inner_text(".answer h1")


def test_invalid_photos_are_refused_in_plain_words_and_names_are_plain_text(first):
    page = first()
    give_no_picture(page)
    assert "Traceback" not in page.inner_text("body")
    give(page, "drop", own(example("flower.jpg").read_bytes(), 1), HOSTILE)
    shown(page, FLOWER)
    assert HOSTILE in page.inner_text(".answer")
    assert page.evaluate("window.hacked") is None
    page.goto(page.url.partition("?")[0] + "?photo=<b>gone</b>")
    page.wait_for_selector(".q-notification.problem:has-text('upload it again')")


def test_examples_paste_choose_and_camera(first):
    page = first()
    pictures_are_wider(page, ".example img", 100)
    page.click("[data-example='flower.jpg']")
    shown(page, FLOWER)
    page.wait_for_function("document.activeElement.tagName === 'H1'")  # the focus follows the answer
    page.reload()  # the address keeps the photo
    shown(page, FLOWER)
    page.click("text=Another photo")
    page.wait_for_selector(".drop")
    page.wait_for_function("window.did_handshake === true")
    give(page, "paste", example("china.jpg").read_bytes(), "pasted.jpg")
    shown(page, PALACE)
    page.wait_for_url("**/?photo=*")
    page.go_back()
    page.wait_for_selector(".drop")
    page.wait_for_function("window.did_handshake === true")
    with page.expect_file_chooser() as chooser:
        page.click("[data-choose]")
    chooser.value.set_files(example("flower.jpg"))
    shown(page, FLOWER)
    page.click("text=Another photo")
    page.wait_for_function("window.did_handshake === true && document.querySelector('.drop')")
    page.click("[data-camera]")
    page.wait_for_function("document.querySelector('.camera video')?.videoWidth > 0")
    page.click("text=Take the photo")
    page.wait_for_selector(".answer h1")
    assert "camera.jpg" in page.inner_text(".answer")


def test_path_siblings_maps_and_meanings(palace):
    page = palace()
    assert "Perhaps a palace, 80 %; bell cote, 6 %; castle, 6 %." in page.inner_text(".answer .lead")
    names = page.locator(".concept .wrap").all_inner_texts()
    assert names[0] == "structure"
    assert names[-1] == "palace"
    assert page.get_attribute(".concept >> nth=-1", "aria-pressed") == "true"
    of_palace = page.get_attribute(".map", "src")
    page.click(".concept:has-text('dwelling')")
    page.wait_for_selector("text=Where the model sees “dwelling”: red areas support it")
    assert page.get_attribute(".map", "src") not in (of_palace, "data:,")
    card = "[aria-label='The chosen concept']"
    page.wait_for_selector(f"{card} h2:text-is('dwelling')")
    assert "A kind of building" in page.inner_text(card)
    assert re.search(r"Strength in this photo: [01]\.\d\d", page.inner_text(card))
    page.click(".stop:has(.concept:has-text('structure')) .chip:has-text('animal')")
    page.wait_for_selector("text=Red areas support palace, blue areas support animal")
    below = page.locator(".branch .chip")
    assert "vertebrate" in below.first.inner_text()
    n_shown = below.count()
    page.click(".branch .button")  # the folded ones
    below.nth(n_shown).wait_for()
    below.first.click()
    page.wait_for_selector(".branch .branch .chip")
    page.click("text=Photo only")
    page.wait_for_selector(".map:not(.shown)", state="attached")


def test_training_photos_give_typical_photos_and_the_usual_range(served, page, photos):
    page.goto(served.url)
    page.wait_for_function("window.did_handshake === true")
    assert page.get_attribute("a:has-text('From the collection')", "href") == "/collection"
    church = next(photo for photo in photos if photo.parts[-3:-1] == ("val", "n03028079"))
    give(page, "drop", church.read_bytes(), church.name)
    page.click(".concept:has-text('artifact')")
    page.wait_for_selector("[aria-label='The chosen concept'] h2:text-is('artifact')")
    page.wait_for_selector("text=the usual range of")
    typical = page.locator("[aria-label='The chosen concept'] img")
    assert typical.count() == 4
    assert "tench" not in typical.evaluate_all("all => all.map((one) => one.title)")
    pictures_are_wider(page, "[aria-label='The chosen concept'] img", 40)


def test_why_not(palace):
    page = palace()
    page.fill("#find-why", "chur")
    page.wait_for_selector("[role=tabpanel] .chip:has-text('church')")
    page.press("#find-why", "Enter")
    page.wait_for_selector("text=diverge below building: one goes to dwelling, the other to place of worship.")
    sides = page.locator(".sides > div")
    assert [side.split("\n")[0] for side in sides.all_inner_texts()] == ["For palace", "For church"]
    assert "place of worship" in sides.nth(1).inner_text()
    page.wait_for_selector("text=Red areas support palace, blue areas support church")
    page.fill("#find-why", "no such thing")
    page.wait_for_selector("text=No class or concept has this name.")


def test_what_if_forbids_and_forces_at_once_and_resets(palace, first):
    page, other = palace(), palace()
    page.click("role=tab[name='What if …?']")
    page.click("[aria-label='Without palace']")
    page.wait_for_selector(".answer h1:has-text('Perhaps a bell cote')")
    assert page.locator(".answer .chip.lit").all_inner_texts() == ["what if: without palace"]
    assert "Before: a building, 95 % (perhaps a palace, 80 %; bell cote, 6 %; castle, 6 %)." in page.inner_text(
        ".answer"
    )
    page.fill("#find-require", "castle")
    page.press("#find-require", "Enter")
    shown(page, "A castle, >99 %")
    assert "own estimate" in page.inner_text(".answer .lead")
    page.fill("#find-require", "lakeside")  # no path has both
    page.press("#find-require", "Enter")
    page.wait_for_selector(".q-notification.problem:has-text('no path has')")
    assert headline(page) == "A castle, >99 %"
    page.click(".answer >> text=Reset")
    shown(page, PALACE)
    page.click(".stop:has(.concept:has-text('dwelling')) .chip:has-text('castle')")
    page.click("text=What if it were a castle?")
    shown(page, "A castle, >99 %")
    assert headline(other) == PALACE  # somebody else's page


def test_corrections_are_saved_listed_and_undone(palace, server):
    page = palace(3)
    page.click("role=tab[name='This is wrong']")
    page.fill("#who", "Ada")
    page.fill("#why", "the <b>tower</b>")
    page.fill("#find-right", "church")
    page.wait_for_selector("[role=tabpanel]:visible .chip:has-text('church')")
    page.press("#find-right", "Enter")
    shown(page, "A church.")
    assert "Corrected by Ada (the <b>tower</b>)." in page.inner_text(".answer")
    listed = page.inner_text(".kept .here")
    assert re.search(r"china.jpg: church\s*Ada, 20\d\d-\d\d-\d\d \d\d:\d\d, the <b>tower</b>", listed)
    assert page.input_value("#who") == "Ada"  # the browser remembers
    kept = [json.loads(line) for line in (server.log.parent / "corrections.jsonl").read_text().splitlines()]
    assert (kept[-1]["who"], kept[-1]["file"], kept[-1]["class"]) == ("Ada", "china.jpg", "n03028079")
    page.reload()
    shown(page, "A church.")
    page.click("role=tab[name='This is wrong']")
    page.click("button:has-text('None of the known classes') >> visible=true")
    shown(page, "None of the known classes.")
    assert "The model's guess: a palace" in page.inner_text(".answer")
    page.click(".kept .here >> text=Undo")
    shown(page, "A church.")
    page.click(".kept .here >> text=Undo")
    shown(page, PALACE)
    page.fill("#find-right", "building")
    page.press("#find-right", "Enter")
    shown(page, "A building.")
    kept = json.loads((server.log.parent / "corrections.jsonl").read_text().splitlines()[-1])
    assert "force" not in kept  # a label of that level, which a fit learns from
    assert kept["class"].startswith("n")
    page.click(".kept .here >> text=Undo")
    shown(page, PALACE)
    assert page.locator(".kept .here").count() == 0


def test_the_slider_moves_the_answer_up_the_tree(palace):
    page, n_lit = palace(), []
    assert page.input_value("#sureness") == "90"
    for percent in (50, 80, 95):
        page.locator("#sureness").fill(str(percent))
        page.wait_for_selector(f"text=at least {percent} % sure")
        assert page.input_value("#sureness") == str(percent)
        n_lit.append(page.locator(".stop:not(.beyond)").count())
        assert page.locator(".stop:not(.beyond) .wrap >> nth=0").count() == 1
    assert n_lit == sorted(n_lit, reverse=True)
    assert n_lit[0] > n_lit[-1]
    assert "not checked on held-out photos" in page.inner_text(".answer .lead")
    page.locator("#sureness").fill("99")
    shown(page, "Perhaps a palace, 80 %; bell cote, 6 %; castle, 6 %")
    page.locator("#sureness").fill("70")
    shown(page, "A palace, 80 %")
    assert page.locator(".stop.beyond").count() == 0


def test_the_search_step_by_step(palace):
    page = palace()
    page.click("role=tab[name='How it searched']")
    page.click("text=Start >> visible=true")
    page.wait_for_selector("text=Level 1 of 5")
    assert page.is_disabled("text=Back >> visible=true")
    for level in range(2, 6):
        page.click("text=Next >> visible=true")
        page.wait_for_selector(f"text=Level {level} of 5")
    kept, dropped = page.locator(".tried").all_inner_texts()
    assert kept.startswith("palace\nunder residence\nbest")
    assert "explains less than the 8 paths that were kept" in dropped
    assert "The best path ends at palace." in page.inner_text("[role=tabpanel]:visible")


def test_keyboard_only(first):
    page = first()
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to main content"
    page.keyboard.press("Enter")
    until(page, "document.activeElement.dataset.example === 'china.jpg'")
    page.keyboard.press("Enter")
    shown(page, PALACE)
    page.wait_for_selector(".map.shown")
    page.wait_for_function("document.activeElement.tagName === 'H1'")
    until(page, "document.activeElement.textContent.startsWith('residence')")
    page.keyboard.press("Enter")
    page.wait_for_selector("text=Where the model sees “residence”")
    until(page, "document.activeElement.role === 'tab'")
    page.keyboard.press("ArrowRight")
    until(page, "document.activeElement.id === 'find-require'")
    page.keyboard.type("castle")
    page.keyboard.press("Enter")
    shown(page, "A castle, >99 %")
    outline = page.evaluate(
        "(document.querySelector('.toggle').focus(), getComputedStyle(document.activeElement).outlineStyle)"
    )
    assert outline == "solid"


def until(page, condition: str) -> None:
    """Press Tab until something has the keyboard."""
    for _ in range(60):
        if page.evaluate(condition):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"not reached by Tab: {condition}")


def test_theme_follows_the_system_until_chosen_and_is_remembered(first):
    page = first(dark=True)
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.click(".toggle")
    assert page.evaluate("document.documentElement.dataset.theme") == "light"
    page.reload()
    assert page.evaluate("document.documentElement.dataset.theme") == "light"


def test_accessible_in_light_and_dark_and_no_wider_than_a_phone(palace, first):
    pictures = os.environ.get("HCEP_PICTURES")

    def fine(page, name: str, themes: tuple[str, ...] = ("light", "dark")) -> None:
        is_accessible(page, themes, f"{pictures}/{name}" if pictures else "")

    def each_part(page):
        page.click("[role=tabpanel]:visible .chip >> nth=0")
        page.wait_for_selector(".sides")
        yield "why"
        page.click("role=tab[name='What if …?']")
        yield "what-if"
        page.click("role=tab[name='This is wrong']")
        yield "wrong"
        page.click("role=tab[name='How it searched']")
        page.click("text=Start >> visible=true")
        page.wait_for_selector("text=Level 1 of 5")
        yield "search"

    page = first()
    give_no_picture(page)
    fine(page, "first")
    page = palace()
    for name in each_part(page):
        fine(page, name, ("light", "dark") if name == "wrong" else ("light",))
    phone = first(width=390, height=844)
    assert phone.evaluate("document.documentElement.scrollWidth") == 390
    phone = palace(name=100 * "x" + ".jpg", width=390, height=844)
    for _ in each_part(phone):
        assert phone.evaluate("document.documentElement.scrollWidth") == 390
    fine(phone, "phone")
