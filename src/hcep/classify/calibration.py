"""Calibrated probabilities from the objectives of classes."""

from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from hcep.errors import HCEPError, quote

Floats = NDArray[np.float64]
Priors = Literal["uniform", "empirical"] | ArrayLike

#: Range of the exponent: at 1 every image would be equally sure, below -0.5 the fit followed a handful of images.
EXPONENTS = (-0.5, 0.9)
#: The prior of the fit, and its weight in images: the best on average over data sets and shots.
PRIOR_EXPONENT = 0.3
PRIOR_TEMPERATURE = 0.12  # of the typical gap
PRIOR_WEIGHT = 10.0


@dataclass(frozen=True)
class Calibration:
    """Temperature of an image's class probabilities, as a function of the spread of its objectives.

    With objectives J_k and the image's mean gap ``s = mean over other classes of (J_k - min J)``::

        p_k  proportional to  prior_k exp(-J_k / T(s)),        T(s) = temperature * (s / typical_gap) ** exponent

    One temperature for all images, an `exponent` of 0, is too sure of images far from every mean, whose objectives and
    gaps are all large, and not sure enough of the others.
    """

    temperature: float
    exponent: float = 0.0
    typical_gap: float = 1.0

    def temperatures(self, gaps: Floats) -> Floats:
        """T(s) of each image, from the gaps (n_images, n_classes) between its objectives and the lowest."""
        if self.exponent == 0.0:
            return np.full(len(gaps), self.temperature)
        spread = _mean_gaps(gaps)
        ratio = np.where(spread > 0.0, spread / self.typical_gap, 1.0)
        return np.asarray(self.temperature * ratio**self.exponent)

    def probabilities(self, objectives: Floats, priors: Floats | None = None) -> Floats:
        """Probability of each class, (n_images, n_classes)."""
        if objectives.shape[1] == 1:
            return np.ones_like(objectives)
        scores = objectives - objectives.min(axis=1, keepdims=True)
        scores /= -self.temperatures(scores)[:, None]
        if priors is not None:
            with np.errstate(divide="ignore"):
                scores += np.log(priors)
            scores -= scores.max(axis=1, keepdims=True)
        np.exp(scores, out=scores)
        scores /= scores.sum(axis=1, keepdims=True)
        return np.asarray(scores)


def _mean_gaps(gaps: Floats) -> Floats:
    """Mean gap of the other classes to the best, (n_images,)."""
    return np.asarray(gaps.sum(axis=1) / max(gaps.shape[1] - 1, 1))


def fit_calibration(
    objectives: Floats, own: NDArray[np.intp] | None = None, weights: Floats | None = None
) -> Calibration:
    """Temperature and exponent of lowest log loss over images that the dictionary never saw.

    A pull to the prior temperature and exponent, worth a few images, steadies the fit when images are few.

    Parameters
    ----------
    objectives : (n_images, n_classes) array
    own : (n_images,) array; the column of each image's class, the first by default
    weights : (n_images,) array; how much each image counts, equally by default
    """
    from scipy.optimize import minimize

    rows = np.arange(len(objectives))
    gaps = objectives - objectives.min(axis=1, keepdims=True)
    mine, spread = gaps[rows, 0 if own is None else own], _mean_gaps(gaps)
    varied = spread > 0.0
    if not varied.any():
        return Calibration(1.0)
    typical = float(np.median(spread[varied]))
    logs = np.log(np.where(varied, spread / typical, 1.0))
    prior = np.array([np.log(PRIOR_TEMPERATURE * typical), PRIOR_EXPONENT])
    pull = PRIOR_WEIGHT / len(rows)
    shares = np.full(len(rows), 1.0 / len(rows)) if weights is None else weights / weights.sum()

    def loss(numbers: Floats) -> tuple[float, Floats]:
        inverse = np.exp(-numbers[0] - numbers[1] * logs)
        odds = np.exp(-gaps * inverse[:, None])
        total = odds.sum(axis=1)
        away = numbers - prior
        value = shares @ (np.log(total) + mine * inverse) + pull * (away @ away)
        slope = shares * (np.einsum("ij,ij->i", odds, gaps) / total - mine) * inverse
        return float(value), np.array([slope.sum(), slope @ logs]) + 2.0 * pull * away

    wide = (prior[0] - 6.0, prior[0] + 6.0)
    best = minimize(loss, prior, jac=True, method="L-BFGS-B", bounds=[wide, EXPONENTS]).x
    return Calibration(float(np.exp(best[0])), float(best[1]), typical)


def fit_temperature(logits: Floats, own: NDArray[np.intp]) -> float:
    """The temperature that logits are divided by for the lowest log loss on images that the classifier never saw.

    Parameters
    ----------
    logits : (n_images, n_classes) array; log probabilities are logits, too
    own : (n_images,) array; the column of each image's class
    """
    from scipy.optimize import minimize_scalar
    from scipy.special import log_softmax

    rows = np.arange(len(logits))

    def loss(log_temperature: float) -> float:
        return -float(log_softmax(logits / np.exp(log_temperature), axis=1)[rows, own].mean())

    return float(np.exp(minimize_scalar(loss, bounds=(-4.0, 4.0), method="bounded").x))


def log_losses(objectives: Floats, calibration: Calibration) -> Floats:
    """``-log`` of the probability of the class in the first column, (n_images,)."""
    gaps = objectives - objectives.min(axis=1, keepdims=True)
    gaps /= calibration.temperatures(gaps)[:, None]
    return np.asarray(np.log(np.exp(-gaps).sum(axis=1)) + gaps[:, 0])


def require_priors(name: str, priors: Priors) -> None:
    """Raise HCEPError unless these can be the priors of some number of classes."""
    if isinstance(priors, str):
        if priors not in ("uniform", "empirical"):
            raise HCEPError(f"{name} must be 'uniform', 'empirical' or one number per class, got {quote(priors)}")
        return
    values = np.asarray(priors)
    are_numbers = values.dtype.kind in "iuf" and values.ndim == 1 and np.isfinite(values).all()
    if not are_numbers or (values < 0).any() or not values.sum() > 0:
        raise HCEPError(f"{name} must be numbers of at least 0, one per class and not all 0; got {quote(priors)}")


def class_priors(priors: Priors, counts: NDArray[Any]) -> Floats | None:
    """Prior probability of each class, of so many images or so much weight; None if all are equal."""
    require_priors("priors", priors)
    if isinstance(priors, str):
        return None if priors == "uniform" else np.asarray(counts / counts.sum(), dtype=np.float64)
    values = np.asarray(priors, dtype=np.float64)
    if values.shape != counts.shape:
        raise HCEPError(f"priors must be one number per class, {len(counts):,} of them; got {len(values):,}")
    return np.asarray(values / values.sum())
