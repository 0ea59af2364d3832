"""Hostile bytes through every reader; run as a program: ``python -m tests.safety.fuzz READER N_CASES [SEED]``.

Each case is a valid file with pieces cut, repeated, flipped or replaced, or bytes of no meaning at all. It must be
read, or refused by one of the package's own errors, within `SECONDS` and `BYTES` of memory.
"""

from __future__ import annotations

import io
import json
import os
import resource
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import HealthCheck, Phase, given, seed, settings, strategies as st

from hcep.cli.config import Config
from hcep.errors import HCEPError, MissingExtraError

SECONDS, BYTES = 10, 3 << 30

TREES = {
    "csv": b"parent,child\nanimal,mammal\nanimal,bird\nmammal,cat\nmammal,dog\nbird,owl\n",
    "tsv": b"kingdom\torder\tspecies\nAnimalia\tCarnivora\tcat\nAnimalia\tStrigiformes\towl\n",
    "json": b'{"name": "animal", "children": [{"name": "cat"}, {"name": "dog", "children": [{"name": "pug"}]}]}',
    "yaml": b"name: animal\nchildren:\n- name: cat\n- name: dog\n  children:\n  - name: pug\n",
    "nwk": b"((cat:1,lion:2)feline,(dog,'big ''wolf''')canine)animal;",
    "txt": b"animal\n  mammal\n    cat\n    dog\n  bird\n    owl\n",
    "obo": b"format-version: 1.2\n\n[Term]\nid: A:1\nname: animal\n\n[Term]\nid: A:2\nname: cat\nis_a: A:1\n",
    "ttl": b"@prefix s: <http://www.w3.org/2004/02/skos/core#> .\n<a> a s:Concept .\n<b> s:broader <a> .\n",
    "xml": b"<taxonomy><c name='animal'><c name='cat'/><c name='dog'/></c></taxonomy>",
}
TOKENS = (b"9" * 5000, b"[" * 3000, b"\x00", b"\xff\xfe", b"\x1b[2J", b"-1", b"1e999", b"NaN", b"../../x", b"\n", b'"')


def arrays() -> dict[str, bytes]:
    X, y = np.eye(6, dtype=np.float32), np.array(list("abcabc"))
    npy, npz, parquet = io.BytesIO(), io.BytesIO(), io.BytesIO()
    np.save(npy, X)
    np.savez_compressed(npz, vectors=X, labels=y)
    vectors = pa.FixedSizeListArray.from_arrays(pa.array(X.reshape(-1)), 6)
    pq.write_table(pa.table({"embedding": vectors, "label": y.tolist()}), parquet)
    rows = "\n".join(f"{label},{i},0.5" for i, label in enumerate(y))
    return {
        "npy": npy.getvalue(),
        "npz": npz.getvalue(),
        "parquet": parquet.getvalue(),
        "csv": f"label,f0,f1\n{rows}\n".encode(),
    }


def read_tree(folder: Path, suffix: str, data: bytes) -> None:
    from hcep.hierarchy import read_hierarchy

    (folder / f"tree.{suffix}").write_bytes(data)
    read_hierarchy(folder / f"tree.{suffix}")


def read_array(folder: Path, suffix: str, data: bytes) -> None:
    from hcep.embeddings import read_embeddings

    (folder / f"x.{suffix}").write_bytes(data)
    _ = read_embeddings(folder / f"x.{suffix}").labels


def model_files() -> dict[str, bytes]:
    from hcep import HCEPClassifier
    from hcep.models.saving import pack

    return pack(HCEPClassifier(shrinkage=None, anchor=0.1).fit(np.eye(6), list("abcabc")))


def read_model(folder: Path, name: str, data: bytes) -> None:
    from hcep.models.loading import load_model

    for file, content in MODEL.items():
        (folder / file).write_bytes(content)
    (folder / name).write_bytes(data)
    load_model(folder)


def store_files() -> dict[str, bytes]:
    from hcep.embeddings import Embeddings
    from hcep.embeddings.store.writer import import_embeddings

    with tempfile.TemporaryDirectory() as folder:
        import_embeddings(Embeddings(np.eye(6, dtype=np.float32), labels=np.array(list("abcabc"))), folder, encoder="e")
        return {path.name: path.read_bytes() for path in Path(folder).iterdir()}


def read_store(folder: Path, name: str, data: bytes) -> None:
    from hcep.embeddings import EmbeddingStore

    for file, content in STORE.items():
        (folder / file).write_bytes(content)
    (folder / name).write_bytes(data)
    store = EmbeddingStore(folder)
    store.damaged_shards()
    store.to_numpy()
    _ = store.labels


def read_config(folder: Path, name: str, data: bytes) -> None:
    import typer
    from typer.testing import CliRunner

    def bake(config: Config = None, anchor: str = "", batch_size: int = 1) -> None:
        """Nothing."""

    app = typer.Typer()
    app.command()(bake)
    (folder / "c.toml").write_bytes(data)
    result = CliRunner().invoke(app, ["--config", str(folder / "c.toml")])
    if result.exception is not None and not isinstance(result.exception, SystemExit):
        raise result.exception


MODEL: dict[str, bytes] = {}
STORE: dict[str, bytes] = {}
Reader = Callable[[Path, str, bytes], None]


def readers() -> dict[str, tuple[dict[str, bytes], Reader]]:
    """By name, valid content by the kind of file, and what reads it."""
    MODEL.update(model_files())
    STORE.update(store_files())
    config = {"toml": b'anchor = "auto"\nbatch-size = 3\n[bake]\nanchor = "1"\n'}
    return {
        "hierarchies": (TREES, read_tree),
        "arrays": (arrays(), read_array),
        "models": (MODEL, read_model),
        "stores": (STORE, read_store),
        "config": (config, read_config),
    }


@st.composite
def damaged(draw: st.DrawFn, valid: dict[str, bytes]) -> tuple[str, bytes]:
    """A kind of file and bytes that may be anything, most of the time nearly valid."""
    kind = draw(st.sampled_from(sorted(valid)))
    data = bytearray(draw(st.binary(max_size=200)) if draw(st.integers(0, 9)) == 0 else valid[kind])
    for _ in range(draw(st.integers(1, 4))):
        at, n = draw(st.integers(0, len(data))), draw(st.integers(0, 40))
        how = draw(st.integers(0, 4))
        piece = bytes(data[at : at + n])
        if how == 0:
            data[at : at + n] = b""
        elif how == 1:
            data[at:at] = piece * draw(st.sampled_from([1, 2, 50, 2000]))
        elif how == 2:
            data[at : at + n] = draw(st.binary(max_size=n + 4))
        elif how == 3:
            data[at:at] = draw(st.sampled_from(TOKENS))
        elif at < len(data):
            data[at] ^= 1 << draw(st.integers(0, 7))
    return kind, bytes(data)


def too_slow(*_: object) -> None:
    raise TimeoutError(f"not read within {SECONDS} s")


def fuzz(name: str, n_cases: int, start: int) -> None:
    """Give a reader hostile bytes; any error that is not the package's own is raised."""
    valid, read = readers()[name]
    resource.setrlimit(resource.RLIMIT_AS, (BYTES, BYTES))
    signal.signal(signal.SIGALRM, too_slow)

    @seed(start)
    @settings(
        max_examples=n_cases,
        deadline=None,
        database=None,
        phases=[Phase.generate, Phase.shrink],
        suppress_health_check=list(HealthCheck),
    )
    @given(damaged(valid))
    def case(made: tuple[str, bytes]) -> None:
        kind, data = made
        with tempfile.TemporaryDirectory() as folder:
            signal.alarm(SECONDS)
            try:
                read(Path(folder), kind, data)
            except (HCEPError, MissingExtraError):
                pass
            finally:
                signal.alarm(0)

    case()


if __name__ == "__main__":
    os.environ.setdefault("HCEP_CACHE", tempfile.mkdtemp())
    fuzz(sys.argv[1], int(sys.argv[2]), int((sys.argv[3:] or ["0"])[0]))
    print(json.dumps({"reader": sys.argv[1], "cases": int(sys.argv[2])}))
