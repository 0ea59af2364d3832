"""Methods that only the paper's comparisons need, and every method by name."""
