"""The site: `make docs`.

Sphinx, as numpy, scipy and scikit-learn have it: one tool renders Markdown pages, docstrings in their numpydoc form,
and the gallery's scripts with what they print and draw. Furo because its pages are light (the pydata theme's scripts
alone weigh 2 MB). Nothing on a page comes from another host, and a warning is an error.
"""

from __future__ import annotations

import inspect
import re
from importlib import import_module
from pathlib import Path

from PIL import Image

import hcep

HERE = Path(__file__).parent
ROOT = HERE.parent

project, author = "HCEP", "The HCEP developers"
version = release = hcep.__version__
copyright = "The HCEP developers"
extensions = [
    "myst_parser",
    "numpydoc",
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx_copybutton",
    "sphinx_design",
    "sphinx_gallery.gen_gallery",
]
templates_path = ["_templates"]
exclude_patterns = ["_build", "gallery/**/README.*", "**/sg_execution_times.rst", "sg_execution_times.rst"]
suppress_warnings = ["config.cache"]  # the gallery's settings hold a class
nitpicky = False

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autosummary_generate = True
numpydoc_show_class_members = False
autodoc_default_options = {"members": True, "inherited-members": False, "show-inheritance": True}
autodoc_typehints = "none"  # numpydoc's Parameters say it in words
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True

html_theme = "furo"
html_static_path = ["_static"]
html_css_files = ["hcep.css"]
html_title = "HCEP"
html_show_sourcelink = False
html_copy_source = False

sphinx_gallery_conf = {
    "examples_dirs": str(ROOT / "examples"),
    "gallery_dirs": "gallery",
    "filename_pattern": r"/\d\d_\w+\.py$",
    "within_subsection_order": "FileNameSortKey",
    "abort_on_example_error": True,
    "download_all_examples": False,
    "show_memory": False,
    "remove_config_comments": True,
    "plot_gallery": True,
}

#: Packages of the reference, in the order a reader meets them.
PACKAGES = ("explain", "classify", "hierarchy", "embeddings", "dictionary", "pursuit", "evaluate", "models", "taxonomy",
            "taxonomy.induction", "taxonomy.naming", "taxonomy.llm", "datasets")  # fmt: skip


def _reference() -> None:
    """One page per package with everything it exports; written at each build, so that none goes stale."""
    folder, seen = HERE / "api", set()
    folder.mkdir(exist_ok=True)
    modules = ["hcep", *(f"hcep.{name}" for name in PACKAGES)]
    for name in modules:
        module = import_module(name)
        exported = {n: getattr(module, n) for n in sorted(module.__all__)}
        shown = [n for n, it in exported.items() if callable(it) and id(it) not in seen]
        seen |= {id(it) for it in exported.values()}
        lines = [
            name,
            "=" * len(name),
            "",
            (inspect.getdoc(module) or "").split("\n\n")[0],
            "",
            f".. currentmodule:: {name}",
        ]
        lines += [
            "",
            ".. autosummary::",
            "   :toctree: generated",
            "   :nosignatures:",
            "",
            *(f"   {n}" for n in shown),
            "",
        ]
        _write(folder / f"{name}.rst", "\n".join(lines))
    index = [
        "API reference",
        "=============",
        "",
        ".. toctree::",
        "   :maxdepth: 1",
        "",
        *(f"   {m}" for m in modules),
        "",
    ]
    _write(folder / "index.rst", "\n".join(index))


def _write(path: Path, text: str) -> None:
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


_reference()


def _skip(app: object, what: str, name: str, it: object, skip: bool, options: object) -> bool | None:
    """What scikit-learn puts into every estimator is scikit-learn's to document."""
    module = getattr(it, "__module__", "") or ""
    return True if module.startswith("sklearn") or name.endswith("_request") else None


def _lighter(app: object, exception: Exception | None) -> None:
    """Figures of a few colours need no sixteen million of them: large ones as WebP, in the pages too."""
    site, lighter = Path(app.outdir), []  # type: ignore[attr-defined]
    for path in (site / "_images").glob("*.png"):
        if path.stat().st_size > 20_000:
            with Image.open(path) as image:
                image.convert("RGB").quantize(40).convert("RGB").save(
                    path.with_suffix(".webp"), lossless=True, method=6
                )
            path.unlink()
            lighter.append(path.name)
    for page in site.rglob("*.html") if lighter else ():
        text = page.read_text(encoding="utf-8")
        new = re.sub(r"(_images/[\w.-]+)\.png", lambda m: m[0] if (site / m[0]).exists() else f"{m[1]}.webp", text)
        if new != text:
            page.write_text(new, encoding="utf-8")


def setup(app: object) -> None:
    app.connect("autodoc-skip-member", _skip)  # type: ignore[attr-defined]
    app.connect("build-finished", _lighter)  # type: ignore[attr-defined]
