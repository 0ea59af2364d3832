"""
Your own folder, your own tree
==============================

A folder with one subfolder per class and a table of the classes are enough. Here the "classes" are patches cut from
two photos, so that the example needs no data of its own; with yours, start at the second step.
"""

# %%
# Some photos: patches of a temple roof, of the sky, of petals and of leaves.
import tempfile
from pathlib import Path

import numpy as np
import sklearn.datasets
from PIL import Image

from hcep import HCEPClassifier, explain_images, read_hierarchy
from hcep.embeddings import load_encoder

work = Path(tempfile.mkdtemp())
china, flower = (Image.fromarray(image) for image in sklearn.datasets.load_sample_images().images)
REGIONS = {  # left, top, right, bottom
    "roof": (china, 60, 170, 560, 320),
    "sky": (china, 0, 0, 640, 90),
    "petals": (flower, 180, 60, 460, 330),
    "leaves": (flower, 470, 0, 640, 420),
}
random = np.random.default_rng(0)
for name, (photo, left, top, right, bottom) in REGIONS.items():
    for number in range(12):
        side = 80
        x, y = random.integers(left, right - side), random.integers(top, bottom - side)
        target = work / "photos" / ("train" if number < 8 else "val") / name / f"{number}.png"
        target.parent.mkdir(parents=True, exist_ok=True)
        photo.crop((x, y, x + side, y + side)).save(target)

# %%
# The tree, as a spreadsheet would save it: one column per level. Reading says what the table was taken for.
table = work / "tree.csv"
table.write_text("kind,part\nbuilt,roof\nair,sky\nplant,petals\nplant,leaves\n")
hierarchy = read_hierarchy(table)
print(hierarchy)

# %%
# Encode, fit, score. On the command line: ``hcep fit photos/ --hierarchy tree.csv -o model/``.
encoder = load_encoder("efficientnet-lite2")


def embedded(split: str) -> tuple[np.ndarray, np.ndarray]:
    files = sorted((work / "photos" / split).glob("*/*.png"))
    images = np.stack([encoder.preprocess(Image.open(file)) for file in files])
    return encoder.encode_images(images), np.array([file.parent.name for file in files])


X, y = embedded("train")
X_val, y_val = embedded("val")
model = HCEPClassifier(hierarchy).fit(X, y)
print(f"accuracy on patches it has not seen: {model.score(X_val, y_val):.2f}")

# %%
# The explanation of one of them:
print(explain_images(X_val[:1], model)[0].line())
