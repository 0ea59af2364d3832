"""Fit the temperature of the built-in classifier's logits on ImageNet validation images (data of HCEP_SHARED).

    python benchmarks/make_temperature.py

The network was trained on ImageNet's training images, so only its validation images tell how sure it should be. Those
at hand are the ones in ImageNette: names with ILSVRC2012_val, of ten classes. Writes src/hcep/models/builtin.toml.
"""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy.special import softmax

from hcep.classify.calibration import fit_temperature
from hcep.classify.hedging import unlike
from hcep.embeddings.encoders import DEFAULT
from hcep.evaluate.statistics import expected_calibration_error
from hcep.models.opening import open_encoder

ROOT = Path(__file__).parents[1]
SHARED = Path(os.environ.get("HCEP_SHARED", ROOT.parent / "shared"))
TARGET = ROOT / "src" / "hcep" / "models" / "builtin.toml"
IMAGES = "imagenette_efficientnet_lite2.npz"


def validation_images(file: Path) -> tuple[NDArray[np.float32], NDArray[np.str_]]:
    """Embeddings and WordNet ids of the ImageNet validation images in a file of ImageNette embeddings."""
    data = np.load(file, allow_pickle=False)
    rows = np.flatnonzero(np.char.find(data["paths"], "ILSVRC2012_val") >= 0)
    return data["embeddings"][rows].astype(np.float32), data["wnids"][data["labels"][rows]]


def held_out_probabilities(logits: NDArray[Any], own: NDArray[np.intp], seed: int = 0) -> NDArray[np.float64]:
    """Probabilities of each image at the temperature that the other half of the images gives."""
    halves = np.array_split(np.random.default_rng(seed).permutation(len(logits)), 2)
    probabilities = np.empty(logits.shape)
    for fitted, held_out in (halves, halves[::-1]):
        probabilities[held_out] = softmax(logits[held_out] / fit_temperature(logits[fitted], own[fitted]), axis=1)
    return probabilities


def main() -> None:
    X, y = validation_images(SHARED / "data" / IMAGES)
    model = open_encoder(DEFAULT, temperature=1.0)
    probabilities, own = model.predict_proba(X), np.searchsorted(model.classes_, y)
    logits = np.log(np.maximum(probabilities, 1e-300))

    def error(odds: NDArray[Any]) -> float:
        return expected_calibration_error(odds.max(axis=1), odds.argmax(axis=1) == own)

    after = np.mean([error(held_out_probabilities(logits, own, seed)) for seed in range(10)])
    TARGET.write_text(
        "# How sure the built-in classifier is. Made by: python benchmarks/make_temperature.py\n"
        f"temperature = {fit_temperature(logits, own):.3f}  # what its logits are divided by\n"
        f'encoder = "{DEFAULT}"\n'
        f"n_images = {len(X)}\n"
        f'images = "ImageNet validation images in ImageNette (ILSVRC2012_val_*), of {len(set(y.tolist()))} classes"\n'
        f'file = "{IMAGES}"\n'
        f"accuracy = {(probabilities.argmax(axis=1) == own).mean():.3f}\n"
        f"calibration_error_before = {error(probabilities):.3f}\n"
        f"calibration_error_after = {after:.3f}  # on halves that the temperature was not fitted on\n"
        f"unlike = {unlike(model.path_model(), model.infer(X, explained=True)).mean():.3f}"
        "  # share of them that is called unlike anything in training\n",
        encoding="utf-8",
    )
    print(TARGET.read_text(encoding="utf-8"), end="")


if __name__ == "__main__":
    main()
