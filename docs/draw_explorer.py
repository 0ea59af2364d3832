"""Take the picture of the explorer on its page: `python docs/draw_explorer.py` (needs the extras web and test-web).

The photo comes with scikit-learn: china.jpg by danielbuechele, CC BY 2.0.
"""

from __future__ import annotations

import io
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

TARGET = Path(__file__).parent / "images" / "explorer.png"


def picture(url: str) -> bytes:
    """The page of the first example, one concept chosen, light."""
    with sync_playwright() as playwright:
        chromium = shutil.which("chromium") or shutil.which("google-chrome")
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 980}, color_scheme="light")
        page.goto(url)
        page.wait_for_function("window.did_handshake === true")
        page.click("[data-example='china.jpg']")
        page.wait_for_selector(".map.shown", timeout=60_000)
        page.click(".stop:has(.concept:has-text('structure')) .concept")
        page.wait_for_selector("text=Where the model sees “structure”")
        page.mouse.move(0, 0)
        page.wait_for_timeout(800)
        found = page.screenshot()
        browser.close()
        return found


def main() -> None:
    """Start a server, look at it, keep the picture with as many colours as it needs."""
    command = [sys.executable, "-c", "from hcep.cli import main; main()", "serve", "--port", "0", "--no-browser"]
    with tempfile.TemporaryDirectory() as folder:
        command += ["--corrections", f"{folder}/corrections.jsonl"]
        server = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        try:
            assert server.stdout is not None
            url = next(found[1] for line in server.stdout if (found := re.search(r"open (http://\S+)", line)))
            image = Image.open(io.BytesIO(picture(url))).convert("RGB")
        finally:
            server.terminate()
            server.wait(30)
    image.quantize(256, kmeans=4).save(TARGET, optimize=True)
    print(f"{TARGET}: {TARGET.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main()
