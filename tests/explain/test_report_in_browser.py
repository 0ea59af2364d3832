"""The report's script in Chromium: a map at once, others and typical photos on pointing, filters, keys."""

import shutil
import subprocess

import pytest
from PIL import Image

from hcep import HCEPClassifier, explain_images
from hcep.explain.answer import TrainingPhoto
from hcep.explain.report import photo_report
from tests.explain.test_where_photos import encoder, half_red
from tests.taxonomy.naming.bear_space import BEARS, bear_images

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [pytest.mark.slow, pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")]

ASK = """<script>
const told = document.createElement("pre"), [plain, button] = document.querySelectorAll(".trail [aria-pressed]");
const map = document.querySelector(".map"), like = document.querySelector(".like"), own = map.src;
const legend = document.querySelector(".legend b");
const say = (...words) => { told.textContent += words.join(" ") + "\\n"; };
say("before", map.hidden, legend.textContent, like.firstChild.textContent);
const turn = (kind) => button.dispatchEvent(new FocusEvent(kind, { bubbles: true }));  // no window has it
turn("focusin");
const small = button.querySelector("img").src;
say("focus", map.src === small, like.firstChild.textContent, like.querySelectorAll("img").length);
turn("focusout");
say("blur", map.src === own, like.firstChild.textContent);
plain.click();
say("photo", map.hidden, plain.getAttribute("aria-pressed"));
button.click();
say("click", map.hidden, legend.textContent, button.getAttribute("aria-pressed"));
document.querySelector("[name=show]").value = "doubtful";
document.querySelector("form").dispatchEvent(new Event("input"));
say(document.querySelector("output").textContent);
told.id = "told";
document.body.append(told);
</script>"""


def test_maps_and_typical_photos_appear_on_focus_and_click(tmp_path):
    model = HCEPClassifier(BEARS, shrinkage=0.5, anchor=0.1).fit(*bear_images(24))
    found = explain_images(
        [half_red(), Image.new("RGB", (40, 40), "blue")], model, encoder=encoder("exact"), where=True
    )
    Image.new("RGB", (20, 20), "red").save(tmp_path / "a.png")
    photo = TrainingPhoto(str(tmp_path / "a.png"), "polar_bear", "polar bear", 1.0)
    found = [found[0].replaced(nearest=(photo,), typical={"bear": (photo, photo)}), found[1]]
    doubtful = sum(bool(one.doubt) for one in found)
    page = tmp_path / "report.html"
    page.write_text(photo_report(found).replace("</body>", ASK + "</body>"))
    words = [CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path / 'profile'}"]
    run = subprocess.run([*words, "--dump-dom", f"file://{page}"], capture_output=True, text=True, timeout=120)
    told = run.stdout.partition('<pre id="told">')[2].partition("</pre>")[0]
    assert told.splitlines() == [
        "before false bear Nearest training photos",
        "focus true Typical training photos: bear 2",
        "blur true Nearest training photos",
        "photo true true",
        "click false bear true",
        f"{doubtful} of 2 shown",
    ]
