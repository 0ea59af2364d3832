"""The resampling of tables applied to single columns, so that it can be compared with textbooks and with scipy."""

import numpy as np

from hcep.evaluate import statistics as stats


def bootstrap_interval(values, *, level=0.95, n_resamples=2000, random_state=0):
    """Mean of one column with its interval."""
    table = stats.summable(np.asarray(values, dtype=float))
    resampled = stats.means(stats.resampled_sums(table, n_resamples, random_state))
    return stats.interval(stats.means(table.sum(axis=0)), resampled, level)


def ece_interval(confidence, correct):
    """Calibration error with its interval."""
    table = stats.summable_gaps(np.asarray(confidence, dtype=float), np.asarray(correct, dtype=float))
    resampled = stats.calibration_errors(stats.resampled_sums(table, 2000, 0))
    return stats.interval(stats.calibration_errors(table.sum(axis=0)), resampled, 0.95)


def paired_bootstrap(a, b, *, n_resamples=2000):
    """Difference of the means of two columns, whose images are resampled together."""
    table = np.hstack([stats.summable(np.asarray(values, dtype=float)) for values in (a, b)])
    sums = stats.resampled_sums(table, n_resamples, 0)
    estimate = stats.means(table[:, :2].sum(axis=0)) - stats.means(table[:, 2:].sum(axis=0))
    return stats.difference(estimate, stats.means(sums[:, :2]) - stats.means(sums[:, 2:]), 0.95)
