"""
Not sure, and none of these
===========================

A class is answered only where it can be. With some labelled images held out, the answer stops at an inner concept so
that the true class lies below it as often as asked; and images of classes that the model never saw are told apart,
with the concept they are a kind of.
"""

# %%
# Nine of the sample's ten classes; the church is kept away. Half of the validation images calibrate.
import matplotlib.pyplot as plt
import numpy as np
from sklearn.metrics import roc_auc_score

from hcep import HCEPClassifier
from hcep.datasets import load_sample

data = load_sample()
names = {label: data.hierarchy.name(label) for label in np.unique(data.y_train)}
church = next(label for label, name in names.items() if name == "church")
known, known_val = data.y_train != church, data.y_val != church
model = HCEPClassifier(data.hierarchy).fit(data.X_train[known], data.y_train[known])

X, y = data.X_val[known_val], data.y_val[known_val]
half = np.random.default_rng(0).permutation(len(X)) < len(X) // 2
model.calibrate(X[half], y[half])

# %%
# The more certainty is asked for, the higher up the answers: how many are still a class, and how often they hold
# the truth.
for sure in (0.9, 0.99, 0.995):
    answers = model.predict_concept(X[~half], sure=sure)
    right = [
        answer is None or truth == answer or answer in data.hierarchy.ancestors(truth)
        for truth, answer in zip(y[~half], answers, strict=True)
    ]
    exact = np.mean([answer in names for answer in answers])
    print(f"at least {sure:.1%} asked: {np.mean(right):.1%} hold the truth, {exact:.0%} name a class")

# %%
# The churches, which the model has never met:
strangers = data.X_val[~known_val]
scores = np.concatenate([model.unknown_score(X[~half]), model.unknown_score(strangers)])
is_new = np.arange(len(scores)) >= (~half).sum()
print(f"AUROC of known against unknown: {roc_auc_score(is_new, scores):.3f}")
print(f"called unknown at 5 % false alarms: {model.is_unknown(strangers).mean():.0%} of the churches")
kinds, counts = np.unique(model.unknown_kind(strangers).astype(str), return_counts=True)
for kind, count in sorted(zip(kinds, counts, strict=True), key=lambda pair: -pair[1])[:3]:
    print(f"  {count} are taken for a kind of {model.hierarchy_.name(kind)}")

# %%
# The scores of known and unknown images, and the mark above which an image is called unknown:
figure, axis = plt.subplots(figsize=(6, 2.8))
bins = np.linspace(scores.min(), scores.max(), 30)
axis.hist([scores[~is_new], scores[is_new]], bins, label=["known classes", "churches"], color=["tab:blue", "tab:red"])
axis.set_xlabel("novelty score")
axis.legend()
figure.tight_layout()
