"""
Opening a classifier that exists already
========================================

Any trained linear head, a network's last layer or a scikit-learn probe, becomes a model of rooted paths without a
single training image: the path explains *that* classifier's decision. Here the probe is a logistic regression on the
bundled sample.
"""

# %%
from sklearn.linear_model import LogisticRegression

from hcep import HCEPClassifier, explain_images
from hcep.datasets import load_sample

data = load_sample()
probe = LogisticRegression(max_iter=2000).fit(data.X_train, data.y_train)
opened = HCEPClassifier.from_linear_head(
    probe.coef_, probe.intercept_, probe.classes_, data.hierarchy, images=data.X_train
)

same = (opened.predict(data.X_val) == probe.predict(data.X_val)).mean()
print(f"the path ends in the probe's own class on {same:.1%} of new images")

# %%
for one in explain_images(data.X_val[::150], opened):
    print(one.line())
