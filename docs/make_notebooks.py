"""Two of the gallery's scripts as notebooks, with their outputs: examples/notebooks/.

python docs/make_notebooks.py [FOLDER]        # needs the docs extra
"""

from __future__ import annotations

import re
import sys
import tempfile
from pathlib import Path

import nbformat
from nbclient import NotebookClient
from nbformat.v4 import new_code_cell, new_markdown_cell, new_notebook

EXAMPLES = Path(__file__).parents[1] / "examples"
SCRIPTS = ("02_own_photos", "07_open_a_classifier")
KERNEL = {"kernelspec": {"name": "python3", "display_name": "Python 3", "language": "python"}}


def notebook(script: str) -> nbformat.NotebookNode:
    """The docstring of a script and its blocks as cells; comments at the head of a block are text."""
    docstring, *blocks = re.split(r"^# %%\n", script, flags=re.MULTILINE)
    title, _, text = docstring.strip().strip('"').strip().partition("\n")
    cells = [new_markdown_cell(f"# {title}\n\n" + _markdown(text.lstrip("=\n")))]
    for block in blocks:
        lines = block.strip().splitlines()
        n_text = next(i for i, line in enumerate(lines) if not line.startswith("# "))
        if n_text:
            cells.append(new_markdown_cell(_markdown("\n".join(line[2:] for line in lines[:n_text]))))
        cells.append(new_code_cell("\n".join(lines[n_text:])))
    for number, cell in enumerate(cells):
        cell.id = f"cell-{number}"  # else random, and every build another file
    return nbformat.from_dict(new_notebook(cells=cells, metadata=KERNEL))


def executed(book: nbformat.NotebookNode, folder: Path) -> nbformat.NotebookNode:
    """The notebook, run in `folder`, with what it printed and drew."""
    NotebookClient(book, timeout=600, resources={"metadata": {"path": str(folder)}}, record_timing=False).execute()
    return book


def _markdown(text: str) -> str:
    return text.replace("``", "`").strip()


if __name__ == "__main__":
    target = Path(sys.argv[1]) if len(sys.argv) > 1 else EXAMPLES / "notebooks"
    target.mkdir(parents=True, exist_ok=True)
    for name in SCRIPTS:
        book = notebook((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
        text = nbformat.writes(executed(book, target))
        # Temporary folders have another name in every run.
        text = re.sub(re.escape(tempfile.gettempdir()) + r"/\w+/", "", text)
        (target / f"{name}.ipynb").write_text(text + "\n", encoding="utf-8")
