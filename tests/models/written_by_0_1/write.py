"""Writes the models and the store of this folder, with what they answer. It was run once, with hcep 0.1.0.

The files must stay as that release wrote them, so nobody runs this script again; it shows how they came about. It needs
the names of that release (commit d9bf667): ``python tests/models/written_by_0_1/write.py FOLDER``.
"""

import os
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
from PIL import Image

from hcep import HCEPClassifier, Hierarchy
from hcep.embeddings import Embeddings, EmbeddingStore, encode_to_store
from hcep.embeddings.encoders import FunctionEncoder
from hcep.embeddings.images import ImageItem
from hcep.models import fit_model
from hcep.models.atom_names import AtomName, AtomNames, Exemplar, Phrase, save_atom_names
from hcep.models.card import EncoderRecord
from hcep.models.saving import change_model, save_model

TREE = Hierarchy.from_edges(
    [
        ("thing", "animal"),
        ("thing", "vehicle"),
        ("animal", "cat"),
        ("animal", "dog"),
        ("animal", "fox"),
        ("vehicle", "bus"),
        ("vehicle", "car"),
        ("vehicle", "truck"),
        ("thing", "truck"),
    ],
    names={"fox": "red fox"},
)
LABELS = ["bus", "car", "cat", "dog", "fox", "truck"]
ENCODER = EncoderRecord("onnx:tiny.onnx", "f" * 64, {"size": [8, 8], "resize": "squash"})
MEANS = np.random.default_rng(0).normal(size=(len(LABELS), 6)) + 2.0
answers: dict[str, np.ndarray] = {}


def images(n_per_class: int, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Images around the mean of each class, and their labels."""
    noise = np.random.default_rng(seed).normal(size=(len(LABELS) * n_per_class, MEANS.shape[1]))
    return np.abs(np.repeat(MEANS, n_per_class, axis=0) + 0.6 * noise), np.repeat(LABELS, n_per_class)


X, y = images(8, seed=1)
X_new = answers["X"] = images(3, seed=2)[0]


def keep(name: str, model: HCEPClassifier) -> None:
    """Remember what a model answers on new images."""
    found = model.pursue(X_new)
    answers[f"{name}.labels"] = model.predict(X_new)
    answers[f"{name}.probabilities"] = model.predict_proba(X_new)
    answers[f"{name}.paths"] = np.array(["/".join(path) for path in found.paths])
    answers[f"{name}.codes"] = found.codes.toarray()
    answers[f"{name}.residual_norms"] = found.residual_norms


def write_models(folder: Path) -> None:
    facts = {"encoder": ENCODER, "data": "pets.npz", "metrics": {"accuracy": 0.75}}
    makers: dict[str, Callable[[], HCEPClassifier]] = {
        "path_head": lambda: HCEPClassifier(TREE).fit(X, y),
        "logistic_head": lambda: HCEPClassifier(TREE, head="logistic", shrinkage=None, beam_width=2).fit(X, y),
        "adamw_head": lambda: HCEPClassifier.paper(TREE).fit(X, y),
        "opened_head": lambda: HCEPClassifier.from_linear_head(MEANS, np.linspace(-1, 1, 6), LABELS, TREE, images=X),
        "flat_integers": lambda: HCEPClassifier(priors="empirical", unit_norm=True).fit(X, np.arange(len(X)) // 8),
        "calibrated": lambda: HCEPClassifier(TREE, center=True).fit(X, y).calibrate(*images(8, seed=3)),
    }
    for name, make in makers.items():
        model = make()
        save_model(model, folder / name, **facts)
        keep(name, model)
    answers["calibrated.concepts"] = model.predict_concept(X_new, sure=0.7).astype(str)
    answers["calibrated.unknown_scores"] = model.unknown_score(X_new)
    more = Embeddings(*images(16, seed=6), None, ENCODER, "pets.npz")
    fitted = fit_model(more, TREE, folder / "several_objects", anchor=0.3)
    keep("several_objects", fitted.model)
    mixed = 0.6 * X_new + 0.4 * X_new[::-1]
    sums = fitted.model.pursue(mixed, n_paths="auto")
    answers["several_objects.mixed"] = mixed
    answers["several_objects.sums"] = np.array(["+".join(leaves) for leaves in sums.leaves])
    save_model(HCEPClassifier(TREE).fit(X, y), folder / "grown", **facts)
    van = np.abs(3.0 + np.random.default_rng(4).normal(size=(4, MEANS.shape[1])))
    change_model(folder / "grown", "added class 'van'", lambda model: model.add_class("van", "vehicle", van))
    keep("grown", change_model(folder / "grown", "renamed fox", lambda model: model.rename("fox", "Vulpes")))
    named = HCEPClassifier(TREE, refine=False, shrinkage=0.5, anchor=0.1).fit(X, y)
    save_model(named, folder / "named_atoms", **facts)
    keep("named_atoms", named)
    cat = AtomName("animal", "cat", (Phrase("long whiskers", 0.5),), summary="slit eyes", gloss="a feline")
    fox = AtomName("animal", "fox", exemplars=(Exemplar("a.jpg", 1.5),), contrast=(Exemplar("b.jpg", -0.5),))
    atoms = AtomNames((cat, fox), encoder="open_clip:tiny", template="a photo of {}", centered=True, llm="loopback")
    save_atom_names(atoms, folder / "named_atoms")


def write_store(folder: Path) -> None:
    """Two runs over tiny photos, one of them broken: three shards."""
    os.chdir(folder)
    rng, items = np.random.default_rng(5), []
    for label in ("cat", "dog"):
        Path("photos", label).mkdir(parents=True)
        for i in range(4):
            path = Path("photos", label, f"{i}.png")
            Image.fromarray(rng.integers(0, 255, size=(8, 8, 3), dtype=np.uint8)).save(path)
            items.append(ImageItem(path, label, f"{label}/{i}.png", "train" if i < 3 else "val"))
    items[5].path.write_bytes(b"not an image")
    colour = FunctionEncoder(lambda batch: batch[:, :, ::4, ::4].reshape(len(batch), -1), name="function:tiny:pixels",
                             preprocessing={"size": 8, "resize": "squash"}, fingerprint="pixels")  # fmt: skip
    encode_to_store(items[:6], colour, "store", batch_size=2, shard_size=2)
    encode_to_store(items, colour, "store", batch_size=2, shard_size=4)
    for path in sorted(Path("photos").rglob("*"), reverse=True):
        path.unlink() if path.is_file() else path.rmdir()
    Path("photos").rmdir()
    store = EmbeddingStore("store")
    answers["store.X"] = store.to_numpy()
    for name in ("ids", "paths", "labels", "splits", "content_hashes"):
        answers[f"store.{name}"] = getattr(store, name).astype(str)


target = Path(sys.argv[1]).resolve()
write_models(target)
for card in target.rglob("README.md"):
    card.unlink()
write_store(target)
np.savez_compressed(target / "answers.npz", **answers)
