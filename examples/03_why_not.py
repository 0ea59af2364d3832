"""
Why not, and what if
====================

An answer can be questioned: where the paths of two classes part, which concepts speak for which, and what would have to
change. Every figure adds up exactly; nothing is fitted after the fact.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np

from hcep import HCEPClassifier, explain_images
from hcep.datasets import load_sample

data = load_sample()
model = HCEPClassifier(data.hierarchy).fit(data.X_train, data.y_train)
sure = model.predict_proba(data.X_val).max(axis=1)
doubtful = explain_images(data.X_val[[np.argmin(sure)]], model)[0]
print(doubtful)

# %%
# Why not the runner-up?
rival = doubtful.rivals[0]
answer = doubtful.contrast(rival.label)
print("\n".join(answer.lines()))

# %%
# The two sides, concept by concept; their difference is the margin between the two classes.
figure, axes = plt.subplots(1, 2, figsize=(9, 3), sharex=True)
for axis, side in zip(axes, (answer.chosen, answer.rival), strict=True):
    names, values = zip(*((part.name, part.value) for part in side.concepts), strict=True)
    axis.barh(names[::-1], values[::-1], color=["tab:green" if value > 0 else "tab:red" for value in values[::-1]])
    axis.set_title(side.name)
figure.tight_layout()
print(f"margin {answer.margin:.4f} = {answer.chosen.total:.4f} - {answer.rival.total:.4f}")

# %%
# What if the first concept of that path were ruled out?
first = doubtful.path[0]
print(f"without {first.name}:", doubtful.what_if(forbid=[first.synset]))
