"""The paper's experiments and our own claims, run on the public API: `python -m experiments`."""
