"""
A photo, out of the box
=======================

No training, no model hub, no torch: the built-in encoder knows ImageNet's thousand classes, and every answer is a
path of concepts through WordNet. The maps show *where* in the picture each concept is. (The photo,
china.jpg by danielbuechele, CC BY 2.0, comes with scikit-learn.)
"""

# %%
from pathlib import Path

import matplotlib.pyplot as plt
import sklearn.datasets

from hcep import explain_images

folder = Path(sklearn.datasets.__file__).parent / "images"
china = explain_images([folder / "china.jpg"], where=True)[0]
print(china.line())

# %%
# The answer stops where the model can be sure. What else it could be:
for rival in china.rivals:
    print(f"{rival.name:12} {rival.probability:5.1%}   {rival.trail()}")

# %%
# Each concept's coefficient is a sum over the positions of the picture, exactly, so it can be drawn. One scale for
# all: red speaks for the concept, blue against it.
figure, axis = plt.subplots(figsize=(12, 4.5))
axis.imshow(china.strip())
axis.axis("off")
figure.tight_layout()

palace = china.where(china.label)
print(f"shares and constant add up to {palace.total:.4f}")
