"""
Opening a classifier
====================

You have a classifier already: a network's last layer, or a linear probe of scikit-learn. HCEP turns it into a model of
rooted paths without a single training image, so that each path explains *that* classifier's decision.
"""

# %%
# A logistic regression on the bundled embeddings stands for your classifier.
import matplotlib.pyplot as plt
from sklearn.linear_model import LogisticRegression

from hcep import HCEPClassifier, explain_images
from hcep.datasets import load_sample

data = load_sample()
probe = LogisticRegression(max_iter=2000).fit(data.X_train, data.y_train)

# %%
# Its weights and a hierarchy above its classes are enough. On the command line: ``hcep open probe.npz``.
opened = HCEPClassifier.from_linear_head(
    probe.coef_, probe.intercept_, probe.classes_, data.hierarchy, images=data.X_train
)
same = (opened.predict(data.X_val) == probe.predict(data.X_val)).mean()
print(f"the path ends in the class that the classifier predicts for {same:.1%} of new images")

# %%
# Each decision is now a path, and an answer that is not sure of the class stops above it.
answers = explain_images(data.X_val[::150], opened, sure=0.95)
for answer in answers:
    print(answer.line())

# %%
# Which concepts decide? Their contributions add up to the score of the class.
answer = answers[-1]
parts = answer.contributions
figure, axis = plt.subplots(figsize=(7, 2.5))
names, values = zip(*((part.name, part.value) for part in parts.concepts), strict=True)
axis.barh(names[::-1], values[::-1], color=["tab:red" if value < 0 else "tab:blue" for value in values[::-1]])
axis.set_title(f"What speaks for {parts.name}, concept by concept")
figure.tight_layout()

# %%
# Why not the class that comes next?
print("\n".join(answer.contrast(answer.rivals[0].label).lines()))
