import json
import pkgutil
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


#: Packages that only some parts of the library need, and modules that import them; commands and web pages may, too.
LAZY = {
    "matplotlib": (),
    "typer": (),
    "rich": (),
    "jinja2": (),
    "httpx": (),
    "pyarrow": (
        "hcep.datasets.encoding",
        "hcep.embeddings.store",
        "hcep.embeddings.tables",
        "hcep.evaluate",
        "hcep.explain.predictions",
        "hcep.explain.score_tables",
        "hcep.models.fit_data",
        "hcep.ray",
        "hcep.taxonomy.naming.interpretation",
    ),
}

#: scikit-learn imports pandas, and pandas pyarrow, if they are there.
WITHOUT = """
import sys

class Missing:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {missing!r}:
            raise ModuleNotFoundError(name, name=name)

sys.meta_path.insert(0, Missing())
"""

LIBRARY = """
import json, tempfile
import numpy as np
import hcep, hcep.evaluate
from hcep.datasets import load_sample
from hcep.embeddings import Embeddings, read_embeddings, write_embeddings

data, folder = load_sample(), tempfile.mkdtemp()
model = hcep.HCEPClassifier(data.hierarchy).fit(data.X_train[::5], data.y_train[::5])
hcep.save(model, f"{folder}/model")
write_embeddings(f"{folder}/val.npz", Embeddings(data.X_val, data.y_val))
val = read_embeddings(f"{folder}/val.npz")
loaded = hcep.load(f"{folder}/model")
paths = loaded.pursue(val.X[:3]).paths
print(json.dumps([loaded.score(val.X, val.y), loaded.predict_proba(val.X).shape[0], len(paths)]))
"""

MODULES = """
import importlib, json
failed = []
for name in {names!r}:
    try:
        importlib.import_module(name)
    except ImportError:
        failed.append(name)
print(json.dumps(failed))
"""


def in_a_new_process(code):
    return json.loads(subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout)


def test_importing_loads_nothing_heavy_and_is_quick():
    imported = in_a_new_process(IMPORT)
    assert not HEAVY & set(imported["modules"])
    assert imported["seconds"] < 0.5


def test_a_hierarchy_needs_numpy_alone():
    assert HEAVY & set(in_a_new_process(HIERARCHY)) == {"numpy"}


def test_fitting_predicting_and_saving_need_no_package_for_tables_figures_or_commands():
    accuracy, n_images, n_paths = in_a_new_process(WITHOUT.format(missing=["pandas", *LAZY]) + LIBRARY)
    assert accuracy > 0.9
    assert (n_images, n_paths) == (500, 3)


@pytest.mark.parametrize("package", LAZY)
def test_a_package_is_imported_only_by_the_modules_that_use_it(package):
    names = [module.name for module in pkgutil.walk_packages(hcep.__path__, "hcep.")]
    others = [name for name in names if not name.startswith(("hcep.cli", "hcep.web", *LAZY[package]))]
    assert in_a_new_process(WITHOUT.format(missing=["pandas", package]) + MODULES.format(names=others)) == []


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
