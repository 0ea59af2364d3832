"""
Few images per class, beside a linear probe
===========================================

The same features, one to twenty training images per class: ours, a tuned linear probe and shrinkage LDA. Paired
differences tell whether a gap is more than luck; on ten easy classes most are not.
"""

# %%
import matplotlib.pyplot as plt
import numpy as np
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.linear_model import LogisticRegression

from hcep import HCEPClassifier
from hcep.datasets import load_sample

data = load_sample()
SHOTS = (1, 2, 5, 10, 20)
METHODS = {
    "ours": lambda: HCEPClassifier(data.hierarchy),
    "linear probe": lambda: LogisticRegression(max_iter=2000),
    "shrinkage LDA": lambda: LinearDiscriminantAnalysis(solver="lsqr", shrinkage="auto"),
}
scores = {name: np.zeros((len(SHOTS), 3)) for name in METHODS}
for seed in range(3):
    random = np.random.default_rng(seed)
    order = random.permutation(len(data.X_train))
    for row, shots in enumerate(SHOTS):
        chosen = np.concatenate([order[data.y_train[order] == c][:shots] for c in np.unique(data.y_train)])
        for name, make in METHODS.items():
            if shots == 1 and name == "shrinkage LDA":  # it needs a variance
                scores[name][row, seed] = np.nan
                continue
            model = make().fit(data.X_train[chosen], data.y_train[chosen])
            scores[name][row, seed] = model.score(data.X_val, data.y_val)

# %%
figure, axis = plt.subplots(figsize=(7, 4))
for name, values in scores.items():
    axis.errorbar(SHOTS, values.mean(1), values.std(1), marker="o", capsize=3, label=name)
axis.set(xscale="log", xticks=SHOTS, xticklabels=SHOTS, xlabel="training images per class", ylabel="accuracy")
axis.legend()
figure.tight_layout()

for row, shots in enumerate(SHOTS):
    print(f"{shots:3} per class:", ", ".join(f"{name} {values[row].mean():.3f}" for name, values in scores.items()))
