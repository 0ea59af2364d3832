"""
Several objects in one picture
==============================

An encoder that ends in a mean over positions sees a picture of two things nearly as the average of the two, and
searching for a *sum* of rooted paths gives both with their shares. On ten easy classes the two likeliest classes of a
search for one find as many; docs/several.md has harder pictures, where they do not.
"""

# %%
# Averages of two validation images of different classes stand for such pictures.
import matplotlib.pyplot as plt
import numpy as np

from hcep import HCEPClassifier
from hcep.datasets import load_sample

data = load_sample()
model = HCEPClassifier(data.hierarchy).fit(data.X_train, data.y_train)
random = np.random.default_rng(0)
pairs = random.integers(0, len(data.X_val), (400, 2))
pairs = pairs[data.y_val[pairs[:, 0]] != data.y_val[pairs[:, 1]]][:200]
pictures = data.X_val[pairs].mean(axis=1)
truth = [set(pair) for pair in data.y_val[pairs]]

# %%
# Two paths, beside the two likeliest classes of a search for one.
both = model.pursue(pictures, n_paths=2)
found = np.mean([set(leaves) == pair for leaves, pair in zip(both.leaves, truth, strict=True)])
labels, _ = model.predict_topk(pictures, k=2)
single = np.mean([set(row) == pair for row, pair in zip(labels.tolist(), truth, strict=True)])
print(f"both objects found: {found:.0%} as a sum of two paths, {single:.0%} as the two likeliest classes")

# %%
# How many objects? The rule is learnt from training images that were held out.
model.fit_objects(data.X_train, data.y_train)
several, alone = (model.pursue(images, n_paths="auto").n_paths for images in (pictures, data.X_val))
print(f"says several: {np.mean(several > 1):.0%} of pictures of two, {np.mean(alone > 1):.0%} of pictures of one")

# %%
# One of them, with the share of the picture that each object has:
for share, path in zip(both.shares[0], both.paths[0], strict=True):
    print(f"{share:.0%}", " → ".join(model.hierarchy_.name(concept) for concept in path))

# %%
# How often each way finds both objects:
figure, axis = plt.subplots(figsize=(5, 2.2))
axis.barh(["two likeliest classes", "sum of two paths"], [100 * single, 100 * found], color=["0.6", "tab:blue"])
axis.set_xlabel("pictures in which both objects are found (%)")
figure.tight_layout()
