import json
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import hcep

HEAVY = {
    "torch",
    "matplotlib",
    "plotly",
    "numba",
    "ray",
    "sklearn",
    "scipy",
    "numpy",
    "pandas",
    "rich",
    "typer",
    "nicegui",
}

IMPORT = """
import json, sys, time
start = time.perf_counter()
import hcep
seconds = time.perf_counter() - start
print(json.dumps({"seconds": seconds, "modules": sorted(sys.modules)}))
"""

HIERARCHY = """
import json, sys
import hcep
hcep.Hierarchy.from_edges([("r", "a"), ("r", "b")]).to_json()
print(json.dumps(sorted(sys.modules)))
"""


def in_a_new_process(code):
    return json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def test_importing_loads_nothing_heavy_and_is_quick():
    imported = in_a_new_process(IMPORT)
    assert not HEAVY & set(imported["modules"])
    assert imported["seconds"] < 0.5


def test_a_hierarchy_needs_numpy_alone():
    assert HEAVY & set(in_a_new_process(HIERARCHY)) == {"numpy"}


@pytest.mark.parametrize("name", hcep.__all__)
def test_every_public_name_is_there(name):
    assert callable(getattr(hcep, name))
    assert name in dir(hcep)


def test_public_names_are_listed_once_and_in_order():
    assert hcep.__all__ == sorted(set(hcep.__all__))


@pytest.mark.parametrize("name", sorted(path.parent.name for path in Path(hcep.__file__).parent.glob("*/__init__.py")))
def test_subpackages_come_with_the_package(name):
    assert getattr(hcep, name).__name__ == f"hcep.{name}"


def test_an_unknown_name():
    with pytest.raises(AttributeError, match="No hcep attribute Hierarchies"):
        _ = hcep.Hierarchies


def test_the_version_is_that_of_the_installed_package():
    from importlib.metadata import version

    assert hcep.__version__ == version("hcep")


def test_every_core_dependency_is_imported_somewhere():
    project = Path(__file__).parents[1]
    wanted = tomllib.loads((project / "pyproject.toml").read_text("utf-8"))["project"]["dependencies"]
    modules = {"scikit-learn": "sklearn", "pillow": "PIL"}
    names = [re.split(r"[<>=!~\[]", one)[0] for one in wanted]
    sources = "\n".join(path.read_text("utf-8") for path in (project / "src").rglob("*.py"))
    unused = [n for n in names if not re.search(rf"^\s*(import|from) {modules.get(n, n)}\b", sources, re.MULTILINE)]
    assert unused == []
