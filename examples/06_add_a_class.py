"""
Adding a class, without fitting again
=====================================

Class moments are kept with the model, so a class can be added, moved, renamed or removed in milliseconds; the result
is that of a full refit in the same metric. Saved models keep every version: ``hcep model add``
adds images, ``hcep info`` lists the changes, ``hcep model undo`` goes back.
"""

# %%
import time

import matplotlib.pyplot as plt
import numpy as np

from hcep import HCEPClassifier
from hcep.datasets import load_sample

data = load_sample()
names = {label: data.hierarchy.name(label) for label in np.unique(data.y_train)}
church = next(label for label, name in names.items() if name == "church")
rest = data.y_train != church
began = time.perf_counter()
model = HCEPClassifier(data.hierarchy, refine=False).fit(data.X_train[rest], data.y_train[rest])
fitted = time.perf_counter() - began
print(f"without the church: accuracy {model.score(data.X_val, data.y_val):.3f}, fitted in {fitted:.2f} s")

# %%
began = time.perf_counter()
model.add_class(church, model.hierarchy_.root, data.X_train[~rest])
added = time.perf_counter() - began
print(f"with it: accuracy {model.score(data.X_val, data.y_val):.3f}, added in {added:.3f} s")

# %%
figure, axis = plt.subplots(figsize=(5, 2))
axis.barh(["adding a class", "fitting again"], [added, fitted], color=["tab:blue", "0.6"])
axis.set_xlabel("seconds")
figure.tight_layout()

# %%
model.rename(church, "place of worship")
print(model.hierarchy_.name(church), "is now a class of", model.hierarchy_)
