"""Rows of an experiment on disk: written after every cell, so that a stopped run goes on where it was.

Beside the rows, what each validation image got: the paired intervals behind every verdict need it, and with it the rows
of one method can be measured again alone.
"""

import json
import math
import os
import platform
import tomllib
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from experiments.files import replacing, write_text
from hcep.errors import HCEPError

Row = dict[str, Any]
#: What is said of each experiment, by name, around them on the results page, and how things are called in figures.
TEXTS: dict[str, Any] = tomllib.loads(Path(__file__).with_name("texts.toml").read_text("utf-8"))
Bytes = NDArray[np.uint8]
ROWS, TABLE, IMAGES = "rows.json", "rows.parquet", "images.parquet"
#: In a row: what each image got, as bytes by column.
OF_IMAGES = "images"
#: One byte per image: shares in steps of 1/254, distances as they are, 255 for what is not defined.
PER_IMAGE = {"correct": 254, "support_precision": 254, "support_recall": 254, "confidence": 254, "tree_distance": 1}
#: Packages whose version may change a figure.
PACKAGES = ("hcep", "numpy", "scipy", "scikit-learn", "numba", "skglm", "torch")


class Records:
    """The rows of one experiment in one folder: `rows.json` with where they come from, `rows.parquet` for analysis.

    Every row carries the key of its cell: a hash of the experiment, the cell's settings and the data. What a row has
    under `OF_IMAGES` goes to `images.parquet`, packed by `packed`.
    """

    def __init__(self, folder: str | os.PathLike[str], experiment: str) -> None:
        self.folder, self.experiment = Path(folder), experiment
        document = self._read()
        self.provenance: dict[str, Any] = document["provenance"]
        self._rows: list[Row] = document["rows"]
        self._read_images()

    @property
    def rows(self) -> list[Row]:
        """All rows, without their keys."""
        return [{name: value for name, value in row.items() if name != "cell"} for row in self._rows]

    @property
    def done(self) -> set[str]:
        """Keys of the cells that have rows."""
        return {row["cell"] for row in self._rows}

    def key(self, settings: Mapping[str, Any], data: str) -> str:
        """The key of a cell."""
        known = [self.experiment, sorted(settings.items()), data]
        return sha256(json.dumps(known, default=str).encode()).hexdigest()[:16]

    def keep(self, keys: Iterable[str]) -> None:
        """Forget rows whose cell is not among `keys`; nothing is written before the next `add`."""
        wanted = set(keys)
        self._rows = [row for row in self._rows if row["cell"] in wanted]

    def add(self, key: str, rows: Iterable[Row]) -> None:
        """Append a finished cell and write all rows, at once or not at all."""
        self._rows += [{"cell": key, **{name: _plain(value) for name, value in row.items()}} for row in rows]
        self.write()

    def sort(self, keys: Iterable[str]) -> None:
        """Put rows into the order of their cells, so that tables do not depend on when a cell was measured."""
        place = {key: i for i, key in enumerate(keys)}
        self._rows.sort(key=lambda row: place[row["cell"]])

    def describe(self, config: Any, tasks: Iterable[Any], seconds: float | None = None) -> None:
        """Set what the rows come from: settings, versions, data; written with the next rows."""
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
        seen = [(i, row[OF_IMAGES]) for i, row in enumerate(self._rows) if OF_IMAGES in row]
        if seen:
            columns = {name: pa.array([images[name] for _, images in seen], pa.list_(pa.uint8())) for name in PER_IMAGE}
            cells = [self._rows[i]["cell"] for i, _ in seen]
            tables[IMAGES] = {"cell": cells, "row": pa.array([i for i, _ in seen], pa.int32()), **columns}
        for file, table in tables.items():
            with replacing(self.folder / file) as partial:
                pq.write_table(pa.table(table), partial, compression="zstd", compression_level=9)

    def _read_images(self) -> None:
        """Give rows back what their images got; what no longer fits the rows is left out."""
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
            known = {"provenance": dict(document["provenance"]), "rows": [dict(row) for row in document["rows"]]}
            if all(isinstance(row.get("cell"), str) for row in known["rows"]):
                return known
            problem = "a row has no cell"
        except (ValueError, KeyError, TypeError) as error:
            problem = f"{type(error).__name__}: {error}"
        raise HCEPError(f"{str(file)!r} was not written by an experiment ({problem}); move it away or pass --fresh")


def packed(scores: Any) -> dict[str, Bytes]:
    """Columns of `ImageScores` that verdicts need, one byte per image (see `PER_IMAGE`)."""
    return {
        name: np.where(np.isnan(scores[name]), 255, np.round(np.nan_to_num(scores[name]) * steps)).astype(np.uint8)
        for name, steps in PER_IMAGE.items()
    }


def unpacked(images: Mapping[str, Bytes], name: str) -> NDArray[np.float64]:
    """A column as numbers again, NaN where it is not defined."""
    return np.where(images[name] == 255, np.nan, images[name] / PER_IMAGE[name])


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None
