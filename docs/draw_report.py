"""The pictures of reports in README and on the pages: cards of the demo's report, as Chromium shows them.

python docs/draw_report.py [FOLDER]        # needs the test-web extra and Chromium; writes docs/_static/*.jpg
"""

import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

STATIC = Path(__file__).parent / "_static"
#: The cards of each picture, by their numbers in the demo.
PICTURES = {"report": (1, 2), "why_not": (3,), "objects": (4,), "own_photos": (7,), "grow": (8, 9), "sure": (2, 5)}
STYLE = ".card{margin:0!important}"


def draw(target: Path) -> None:
    """Run the demo and write a picture of some of its cards each."""
    with tempfile.TemporaryDirectory() as folder, sync_playwright() as play:
        command = [sys.executable, "-c", "from hcep.cli import main; main()", "demo", "-o", folder]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        browser = play.chromium.launch(
            executable_path=shutil.which("chromium") or shutil.which("google-chrome"), args=["--no-sandbox"]
        )
        page = browser.new_page(viewport={"width": 980, "height": 900}, device_scale_factor=1.4)
        page.goto(f"file://{folder}/report.html")
        page.add_style_tag(content=STYLE)
        cards = page.locator(".card")
        for name, numbers in PICTURES.items():
            parts = []
            for number in numbers:
                cards.nth(number - 1).screenshot(path=f"{folder}/{number}.png")
                parts.append(Image.open(f"{folder}/{number}.png").convert("RGB"))
            stacked(parts).save(target / f"{name}.jpg", quality=78, optimize=True)


def stacked(parts: list[Image.Image], gap: int = 12) -> Image.Image:
    """Pictures of one width below each other."""
    height = sum(part.height + gap for part in parts) - gap
    picture, top = Image.new("RGB", (parts[0].width, height), "white"), 0
    for part in parts:
        picture.paste(part, (0, top))
        top += part.height + gap
    return picture


if __name__ == "__main__":
    draw(Path(sys.argv[1]) if len(sys.argv) > 1 else STATIC)
