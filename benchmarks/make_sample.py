"""Make the sample that ships with the package from the full ImageNette embeddings (data of HCEP_SHARED).

    python benchmarks/make_sample.py

Takes the first images of every class and split in file order, keeps their float16 embeddings as they are, and the
WordNet DAG above the ten classes.
"""

from __future__ import annotations

import json
import os
from pathlib import Path

import numpy as np

from hcep import Hierarchy

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("HCEP_SHARED", ROOT.parent / "shared"))
SAMPLE = ROOT / "src" / "hcep" / "datasets" / "sample"
N_TRAIN, N_VAL = 50, 50


def main() -> None:
    data = np.load(SHARED / "data" / "imagenette_efficientnet_lite2.npz", allow_pickle=False)
    labels = data["wnids"][data["labels"]]
    rows = []
    for split, n in (("train", N_TRAIN), ("val", N_VAL)):
        rows += [np.flatnonzero((labels == c) & (data["split"] == split))[:n] for c in data["wnids"]]
    chosen = np.concatenate(rows)
    SAMPLE.mkdir(parents=True, exist_ok=True)
    target = SAMPLE / "imagenette.npz"
    np.savez_compressed(
        target,
        embeddings=data["embeddings"][chosen],
        labels=labels[chosen],
        split=data["split"][chosen],
        images=data["paths"][chosen],
    )
    nodes = json.loads((SHARED / "data" / "imagenet1k_wordnet_dag.json").read_text(encoding="utf-8"))["nodes"]
    edges = [(parent, child) for child, node in nodes.items() for parent in node["hypernyms"]]
    names = {child: node["lemmas"][0].replace("_", " ") for child, node in nodes.items()}
    hierarchy = Hierarchy.from_edges(edges, names).restrict(data["wnids"].tolist())
    hierarchy.to_json(SAMPLE / "hierarchy.json")
    print(f"{len(chosen)} images, {target.stat().st_size / 1e6:.2f} MB, {hierarchy!r}")


if __name__ == "__main__":
    main()
