"""The rooms of the package: one list, in the import contract, which CONTRIBUTING.md and the folders must match."""

import re
import tomllib
from pathlib import Path

ROOT = Path(__file__).parents[1]


def layers():
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["importlinter"]["contracts"]
    return [re.findall(r"hcep\.([\w.]+)", layer) for layer in contracts[0]["layers"]]


def test_contributing_lists_the_rooms_of_the_contract_in_its_order():
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    block = text.partition("```text\n")[2].partition("```")[0]
    assert [re.split(r"\s{2,}", line)[0] for line in block.splitlines()] == [" ".join(layer) for layer in layers()]


def parts_of(folder):
    paths = [path for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").is_file()]
    return {path.stem for path in paths} - {"__init__"}


def test_the_contract_names_every_module_at_the_top():
    assert {room for layer in layers() for room in layer} == parts_of(ROOT / "src" / "hcep")
