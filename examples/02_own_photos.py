"""
Your photos and your tree
=========================

A folder of photos with one subfolder per class, and a table of the classes with their groups, are all you need. You get
a model that answers at the level it can be sure of, says why, and can learn a new class later.
"""

# %%
# The bundled sample has such a folder and such a table. With your own, start at the next step.
import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np

from hcep import explain_images
from hcep.datasets.sample_data import write_sample
from hcep.embeddings import load_encoder
from hcep.embeddings.images import open_image
from hcep.models import read_model
from hcep.models.fit_data import fit_data

sample = write_sample(Path(tempfile.mkdtemp()) / "sample")
photos = sample / "photos"
print(sorted(str(path.relative_to(sample)) for path in photos.glob("*/*")))
print((sample / "things.csv").read_text())

# %%
# Fit and save a model. On the command line: ``hcep fit sample/photos --hierarchy sample/things.csv -o model/``.
folder = sample / "model"
model = fit_data(photos, folder, str(sample / "things.csv"))
print(model.hierarchy_.format_tree())

# %%
# Explain photos that the model has not seen: the answer, the path of concepts, and where in the photo each of them is.
answers = explain_images([photos / "val" / name / "0.jpg" for name in ("cat", "pagoda", "rocket")], folder, where=True)
for answer in answers:
    print(answer.line())

# %%
figure, axes = plt.subplots(len(answers), 1, figsize=(5, 5), dpi=72)
for axis, answer in zip(axes, answers, strict=True):
    axis.imshow(answer.strip(140))
    axis.set_title(answer.headline(), loc="left")
    axis.axis("off")
figure.tight_layout()

# %%
# In a notebook, an answer shows itself as a card. This is a flower, and the model knows no flowers:
dahlia = sample / "dahlia" / "val" / "0.jpg"
explain_images(dahlia, folder, where=True)[0]

# %%
# Ten photos and a place in the tree add the class. Nothing is fitted again. On the command line:
# ``hcep model add model/ sample/dahlia/train --class dahlia --under "living thing"``.
encoder = load_encoder("efficientnet-lite2")
files = sorted((sample / "dahlia" / "train").glob("*.jpg"))
pixels = np.stack([encoder.preprocess(open_image(file)) for file in files])
model = read_model(folder).classifier
model.add_class("dahlia", "living thing", encoder.encode_images(pixels))
print(explain_images(dahlia, model, encoder=encoder)[0].line())
