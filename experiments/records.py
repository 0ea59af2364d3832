"""The rows of an experiment on disk, written after every cell, so that a stopped run can resume.

The scores of each validation image are stored with the rows: the paired intervals need them, and they make it possible
to measure the rows of one method again.
"""

import ast
import json
import math
import os
import platform
import tomllib
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from functools import cache
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

import hcep
from experiments.files import replacing, write_text
from hcep.errors import HCEPError

Row = dict[str, Any]
#: Texts of the results page and names in figures.
TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))
Bytes = NDArray[np.uint8]
ROWS, TABLE, IMAGES = "rows.json", "rows.parquet", "images.parquet"
#: The key of a row that holds the scores of its images, as bytes by column.
OF_IMAGES = "images"
#: One byte per image: shares in steps of 1/254, distances unchanged, and 255 for values that are not defined.
PER_IMAGE = {"correct": 254, "support_precision": 254, "support_recall": 254, "confidence": 254, "tree_distance": 1}
#: Packages whose version can change a result.
PACKAGES = ("hcep", "numpy", "scipy", "scikit-learn", "numba", "skglm", "spams-bin", "hiclass", "torch")
#: Parts of the package whose code can change a result.
MEASURED_CODE = ("hierarchy", "dictionary", "pursuit", "classify", "evaluate")


class Records:
    """The rows of one experiment in one folder: `rows.json` with their provenance, and `rows.parquet` for analysis.

    Every row has the key of its cell: a hash of the experiment, the cell's settings and the data. The values under
    `OF_IMAGES` are stored in `images.parquet` (see `packed`). The provenance has the digest of the code that measured
    each cell (see `code_digest`), because cells that are measured at different times stand in the same tables.
    """

    def __init__(self, folder: str | os.PathLike[str], experiment: str) -> None:
        self.folder, self.experiment = Path(folder), experiment
        document = self._read()
        self.provenance: dict[str, Any] = document["provenance"]
        self._rows: list[Row] = document["rows"]
        self._read_images()

    @property
    def rows(self) -> list[Row]:
        """All rows, without the keys of their cells."""
        return [{name: value for name, value in row.items() if name != "cell"} for row in self._rows]

    @property
    def done(self) -> set[str]:
        """Keys of the cells that have rows."""
        return {row["cell"] for row in self._rows}

    @property
    def code(self) -> dict[str, int]:
        """Number of cells by the digest of the code that measured them; "" if the rows do not record it."""
        digests = self.provenance.get("code", {})
        return dict(Counter(digests.get(cell, "") for cell in sorted(self.done)))

    def key(self, settings: Mapping[str, Any], data: str) -> str:
        """Return the key of a cell."""
        parts = [self.experiment, sorted(settings.items()), data]
        return sha256(json.dumps(parts, default=str).encode()).hexdigest()[:16]

    def keep(self, keys: Iterable[str]) -> None:
        """Drop rows whose cell is not among `keys`; the files change with the next `add`."""
        wanted = set(keys)
        self._rows = [row for row in self._rows if row["cell"] in wanted]
        if "code" in self.provenance:
            self.provenance["code"] = {k: v for k, v in self.provenance["code"].items() if k in self.done}

    def add(self, key: str, rows: Iterable[Row]) -> None:
        """Append the rows of a cell and write all files."""
        self.provenance.setdefault("code", {})[key] = code_digest()
        self._rows += [{"cell": key, **{name: _plain(value) for name, value in row.items()}} for row in rows]
        self.write()

    def sort(self, keys: Iterable[str]) -> None:
        """Sort rows by their cells, so that tables do not depend on the order of measurement."""
        place = {key: i for i, key in enumerate(keys)}
        self._rows.sort(key=lambda row: place[row["cell"]])

    def describe(self, config: Any, tasks: Iterable[Any], seconds: float | None = None) -> None:
        """Set the provenance of the rows (settings, versions, data); it is written with the next rows."""
        keys = ("name", "encoder", "digest")
        data = []
        for task in tasks:
            sizes = {"hierarchy": repr(task.hierarchy), "n_train": len(task.y), "n_val": len(task.y_val)}
            data.append({**{key: getattr(task, key) for key in keys}, **sizes, "note": task.note})
        self.provenance = {
            "experiment": self.experiment,
            "config": json.loads(json.dumps(asdict(config), default=str)),
            "versions": {name: _version(name) for name in PACKAGES},
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "data": data,
            "seconds": seconds,
            "code": self.provenance.get("code", {}),
        }

    def write(self) -> None:
        """Write all files."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        rows = [{name: value for name, value in row.items() if name != OF_IMAGES} for row in self._rows]
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        head = json.dumps(self.provenance, indent=1, ensure_ascii=False)
        write_text(self.folder / ROWS, f'{{"provenance": {head},\n"rows": [\n{lines}\n]}}\n')
        names = list(dict.fromkeys(name for row in rows for name in row))
        tables = {TABLE: {name: [row.get(name) for row in rows] for name in names}}
        scored = [(i, row[OF_IMAGES]) for i, row in enumerate(self._rows) if OF_IMAGES in row]
        if scored:
            bytes_type = pa.list_(pa.uint8())
            columns = {name: pa.array([images[name] for _, images in scored], bytes_type) for name in PER_IMAGE}
            cells = [self._rows[i]["cell"] for i, _ in scored]
            tables[IMAGES] = {"cell": cells, "row": pa.array([i for i, _ in scored], pa.int32()), **columns}
        for file, table in tables.items():
            with replacing(self.folder / file) as partial:
                pq.write_table(pa.table(table), partial, compression="zstd", compression_level=9)

    def _read_images(self) -> None:
        """Give the rows the scores of their images; scores that do not belong to a row are ignored."""
        import pyarrow.parquet as pq

        if not (self.folder / IMAGES).exists():
            return
        table = pq.read_table(self.folder / IMAGES)
        columns = {name: table[name].combine_chunks() for name in PER_IMAGE}
        for k, (cell, i) in enumerate(zip(table["cell"].to_pylist(), table["row"].to_pylist(), strict=True)):
            if i < len(self._rows) and self._rows[i]["cell"] == cell:
                values = {name: column[k].values.to_numpy(zero_copy_only=False) for name, column in columns.items()}
                self._rows[i][OF_IMAGES] = values

    def _read(self) -> dict[str, Any]:
        file = self.folder / ROWS
        if not file.exists():
            return {"provenance": {}, "rows": []}
        try:
            document = json.loads(file.read_text(encoding="utf-8"))
            checked = {"provenance": dict(document["provenance"]), "rows": [dict(row) for row in document["rows"]]}
            if all(isinstance(row.get("cell"), str) for row in checked["rows"]):
                return checked
            problem = "a row has no cell"
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
        raise HCEPError(f"{str(file)!r} was not written by an experiment ({problem}); move it away or pass --fresh")


@cache
def code_digest() -> str:
    """Return 8 digits of the SHA-256 of the package's code that results depend on, without comments and docstrings."""
    folder, digest = Path(hcep.__file__).parent, sha256()
    for file in sorted(file for part in MEASURED_CODE for file in (folder / part).rglob("*.py")):
        tree = ast.parse(file.read_text(encoding="utf-8"))
        for node in ast.walk(tree):
            body = getattr(node, "body", None)
            first = body[0] if isinstance(body, list) and body else None
            if isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant):
                del body[0]
        digest.update(f"{file.relative_to(folder).as_posix()}\n{ast.dump(tree)}\n".encode())
    return digest.hexdigest()[:8]


def packed(scores: Any) -> dict[str, Bytes]:
    """Pack the columns of `ImageScores` that verdicts need into one byte per image (see `PER_IMAGE`)."""
    return {
        name: np.where(np.isnan(scores[name]), 255, np.round(np.nan_to_num(scores[name]) * steps)).astype(np.uint8)
        for name, steps in PER_IMAGE.items()
    }


def unpacked(images: Mapping[str, Bytes], name: str) -> NDArray[np.float64]:
    """Unpack a column into numbers; NaN for values that are not defined."""
    return np.where(images[name] == 255, np.nan, images[name] / PER_IMAGE[name])


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
