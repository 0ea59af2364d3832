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


#: Packages that no module imports, except commands and web pages, until it needs them.
LAZY = ["matplotlib", "typer", "rich", "jinja2", "httpx", "pyarrow"]
#: The modules that import pyarrow.
USE_PYARROW = (
    "hcep.datasets.encoding",
    "hcep.embeddings.other_tables",
    "hcep.embeddings.store",
    "hcep.embeddings.tables",
    "hcep.evaluate",
    "hcep.explain.predictions",
    "hcep.explain.score_tables",
    "hcep.models.fit_data",
    "hcep.ray",
    "hcep.taxonomy.naming.interpretation",
)

#: scikit-learn imports pandas, and pandas pyarrow, if they are there.
WITHOUT = """
import sys

class Missing:
    names = {missing!r}

    def find_spec(self, name, *_):
        if name.partition(".")[0] in self.names:
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

#: First the modules that may import none of these packages, then, with pyarrow, those that may import only that.
MODULES = """
import importlib, json
failed = []

def load(names):
    for name in names:
        try:
            importlib.import_module(name)
        except ImportError as error:
            failed.append([name, error.name])

load({plain!r})
Missing.names.remove("pyarrow")
load({with_pyarrow!r})
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


def test_packages_are_imported_only_by_the_modules_that_use_them():
    names = [module.name for module in pkgutil.walk_packages(hcep.__path__, "hcep.")]
    names = [name for name in names if not name.startswith(("hcep.cli", "hcep.web"))]
    with_pyarrow = [name for name in names if name.startswith(USE_PYARROW)]
    plain = [name for name in names if name not in with_pyarrow]
    modules = MODULES.format(plain=plain, with_pyarrow=with_pyarrow)
    assert in_a_new_process(WITHOUT.format(missing=["pandas", *LAZY]) + modules) == []


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
