"""Rows of an experiment on disk: written after every cell, so that a stopped run goes on where it was."""

from __future__ import annotations

import json
import math
import os
import platform
from collections.abc import Iterable, Mapping
from dataclasses import asdict
from hashlib import sha256
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from hcep.embeddings.arrays import replace_file
from hcep.errors import HCEPError

Row = dict[str, Any]
ROWS, TABLE = "rows.json", "rows.parquet"
#: Packages whose version may change a figure.
PACKAGES = ("hcep", "numpy", "scipy", "scikit-learn", "numba", "skglm", "torch")


class Records:
    """The rows of one experiment in one folder: `rows.json` with where they come from, `rows.parquet` for analysis.

    Every row carries the key of its cell: a hash of the experiment, the cell's settings, the data and the package's
    version. Rows of other keys stay untouched, so two data sets may share a folder.

    Examples
    --------
    >>> import tempfile
    >>> records = Records(tempfile.mkdtemp(), "demo")
    >>> key = records.key({"method": "omp", "seed": 0}, data="none")
    >>> records.add(key, [{"method": "omp", "seed": 0, "accuracy": 0.5}])
    >>> key in Records(records.folder, "demo").done, records.rows
    (True, [{'method': 'omp', 'seed': 0, 'accuracy': 0.5}])
    """

    def __init__(self, folder: str | os.PathLike[str], experiment: str) -> None:
        self.folder, self.experiment = Path(folder), experiment
        document = self._read()
        self.provenance: dict[str, Any] = document["provenance"]
        self._rows: list[Row] = document["rows"]

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
        known = [self.experiment, sorted(settings.items()), data, _version("hcep")]
        return sha256(json.dumps(known, default=str).encode()).hexdigest()[:16]

    def keep(self, keys: Iterable[str]) -> None:
        """Forget rows whose cell is not among `keys`; nothing is written before the next `add`."""
        wanted = set(keys)
        self._rows = [row for row in self._rows if row["cell"] in wanted]

    def add(self, key: str, rows: Iterable[Row]) -> None:
        """Append a finished cell and write all rows, at once or not at all."""
        self._rows += [{"cell": key, **{name: _plain(value) for name, value in row.items()}} for row in rows]
        self.write()

    def describe(self, config: Any, problems: Iterable[Any], seconds: float | None = None) -> None:
        """Set what the rows come from: settings, versions, data; written with the next rows."""
        self.provenance = {
            "experiment": self.experiment,
            "config": json.loads(json.dumps(asdict(config), default=str)),
            "versions": {name: _version(name) for name in PACKAGES},
            "python": platform.python_version(),
            "machine": f"{platform.machine()}, {os.cpu_count()} cores",
            "data": [
                {
                    "name": p.name,
                    "encoder": p.encoder,
                    "digest": p.digest,
                    "hierarchy": repr(p.hierarchy),
                    "n_train": len(p.y),
                    "n_val": len(p.y_val),
                    "note": p.note,
                }
                for p in problems
            ],
            "seconds": seconds,
        }

    def write(self) -> None:
        """Write both files."""
        self.folder.mkdir(parents=True, exist_ok=True)
        lines = ",\n".join(json.dumps(row, ensure_ascii=False) for row in self._rows)
        head = json.dumps(self.provenance, indent=1, ensure_ascii=False)
        text = f'{{"provenance": {head},\n"rows": [\n{lines}\n]}}\n'
        replace_file(self.folder / ROWS, lambda file: _write_text(file, text))
        self._write_table()

    def _write_table(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        names = list(dict.fromkeys(name for row in self._rows for name in row))
        table = pa.table({name: [row.get(name) for row in self._rows] for name in names})
        replace_file(self.folder / TABLE, lambda file: pq.write_table(table, file))

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
        raise HCEPError(f"{str(file)!r} is not what `hcep reproduce` writes ({problem}); move it away or pass --fresh")


def _plain(value: Any) -> Any:
    value = value.item() if hasattr(value, "item") else value
    return None if isinstance(value, float) and not math.isfinite(value) else value


def _version(package: str) -> str | None:
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def _write_text(file: Path, text: str) -> None:
    file.write_text(text, encoding="utf-8")
