"""
Checking a taxonomy
===================

A wrong tree makes every later explanation wrong. ``lint`` looks at the graph, ``lint_embeddings`` at what the images
say about it; findings about the embedding are hints, not orders.
"""

# %%
import tempfile
from collections import Counter
from pathlib import Path

import matplotlib.pyplot as plt

from hcep import read_hierarchy
from hcep.taxonomy import diff, fix, lint

table = Path(tempfile.mkdtemp()) / "animals.csv"
table.write_text(
    "parent,child\nanimal,bird\nanimal,mammal\nbird,owl\nbird,Owl\nmammal,bat\nbird,bat\nmammal,dog\ndog,poodle\nanimal,poodle\n"
)
hierarchy = read_hierarchy(table)
for finding in lint(hierarchy):
    print(f"{finding.severity:8} {finding.message}")

# %%
# What is safe to mend is mended without asking; the rest is a person's to decide. On the command line:
# ``hcep hierarchy lint animals.csv --fix -o mended.csv`` and ``hcep hierarchy compare animals.csv mended.csv``.
mended = fix(hierarchy)
print("\n".join(diff(hierarchy, mended)))

# %%
# Findings before and after, by severity:
figure, axis = plt.subplots(figsize=(5, 2.2))
before, after = (Counter(finding.severity for finding in lint(tree)) for tree in (hierarchy, mended))
axis.barh(list(before), list(before.values()), color="0.7", label="before")
axis.barh(list(before), [after[severity] for severity in before], height=0.4, color="tab:blue", label="after")
axis.set_xlabel("findings")
axis.legend()
figure.tight_layout()
