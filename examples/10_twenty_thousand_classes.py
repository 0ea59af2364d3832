"""
Twenty thousand classes
=======================

A made-up taxonomy of ImageNet-21k's size: the search looks at every rooted path, exactly, and stays a matrix product.
Only a few images per class are drawn here so that the example is quick.
"""

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

from hcep import ConceptDictionary, Hierarchy, hb_omp

random = np.random.default_rng(0)
edges = [("thing", f"g{g}") for g in range(40)]
edges += [(f"g{g}", f"g{g}.{f}") for g in range(40) for f in range(25)]
edges += [(f"g{g}.{f}", f"g{g}.{f}.{s}") for g in range(40) for f in range(25) for s in range(20)]
hierarchy = Hierarchy.from_edges(edges)
print(hierarchy)

# %%
# Class embeddings that differ more between groups than within them, and a thousand noisy images.
dims = 128
offsets = {hierarchy.root: np.zeros(dims)}
for parent, child in edges:
    offsets[child] = offsets[parent] + random.normal(size=dims) / (1 + child.count("."))
leaves = {leaf: offsets[leaf] for leaf in hierarchy.leaves}
dictionary = ConceptDictionary.from_leaf_embeddings(hierarchy, leaves)
truth = random.choice(list(leaves), 1000)
X = np.stack([leaves[leaf] for leaf in truth]) + random.normal(size=(1000, dims)) * 0.2

# %%
hb_omp(X[:10], dictionary, beam_width=None, anchor=1.0)  # compiles, and makes the directions once
began = time.perf_counter()
found = hb_omp(X, dictionary, beam_width=None, anchor=1.0)
seconds = time.perf_counter() - began
right = np.mean([path[-1] == leaf for path, leaf in zip(found.paths, truth, strict=True)])
print(f"{len(hierarchy.leaves):,} classes: {len(X) / seconds:,.0f} images per second, {right:.1%} exactly right")

# %%
# How many of the paths are right down to each level:
paths = [(*hierarchy.ancestors(leaf), leaf) for leaf in truth]
depth = [
    np.mean([level < len(p) and p[level] in set(t) for p, t in zip(found.paths, paths, strict=True)])
    for level in range(3)
]
figure, axis = plt.subplots(figsize=(5, 2.5))
axis.bar(["group", "family", "class"], [100 * share for share in depth], color="tab:blue")
axis.set_ylabel("right (%)")
figure.tight_layout()
