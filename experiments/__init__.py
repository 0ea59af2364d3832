"""Comparisons and the paper's experiments: config -> rows."""
