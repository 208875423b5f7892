"""What the scores of all classes and the observed labels of a row say together about its other labels."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import Platt, fit_platt

# Precisions of the Gaussian priors, chosen by the log loss of held-out validation rows of VOC 2012 with three methods.
_OWN_SLOPE, _INTERCEPT, _SCORE, _OBSERVED, _OBSERVED_FOR_ALL = 4.0, 0.25, 200.0, 3.0, 0.1
_HIGHEST_LOGIT = 8.0  # beyond it a score says no more
_SIMULATED_ROWS = 5_000  # at least


@dataclass(frozen=True, eq=False)
class Combination:
    """A logistic regression for each label on its own score, those of all others, and the labels observed.

    logit P(l) = a_l z_l + b_l + Σ_j W_jl x_j,   z = Platt's logits, x = (z, observed positive, observed negative)
    """

    platt: Platt
    slope: Floats  # (L,), a
    intercept: Floats  # (L,), b
    weights: Floats  # (3 L, L), W

    def __call__(self, scores: NDArray[np.floating], observed: Labels) -> Floats:
        """Probabilities (N, L) of unknown cells to be positive; those of observed cells mean nothing."""
        own, others = _features(self.platt, scores, observed)
        probabilities: Floats = expit(own * self.slope + self.intercept + others @ self.weights)
        return probabilities


def fit_combination(
    scores: NDArray[np.floating], labels: Labels, observed: Labels, *, random: np.random.Generator
) -> Combination:
    """Fit on rows with full labels, hidden in the way that the others are.

    Args:
        scores: (K, M, L), of the M rows by each of K models.
        labels: (M, L), all known.
        observed: (N, L), the labels of other rows, to hide those of these rows likewise.
        random: hides them.
    """
    models, rows, count = scores.shape
    platt = fit_platt(scores.reshape(-1, count), np.tile(labels, (models, 1)))
    copies = max(1, -(-_SIMULATED_ROWS // rows))
    # Row j of copy i by model (i + j) mod K: all models, although there may be fewer copies than models.
    model = (np.arange(copies)[:, None] + np.arange(rows)) % models
    full = np.tile(labels, (copies, 1))
    shown = hide_alike(full, observed, random)
    own, others = _features(platt, scores[model, np.arange(rows)].reshape(-1, count), shown)
    slope, intercept, weights = _fit(own, others, full == POSITIVE, (shown == UNKNOWN) / copies)
    return Combination(platt, slope, intercept, weights)


def hide_alike(labels: Labels, observed: Labels, random: np.random.Generator) -> Labels:
    """Hide full labels (M, L) in the way that those of other rows (N, L) are hidden.

    Where only positives are observed, a row keeps as many random ones as a random row of `observed` has. Where
    negatives are observed too, a cell is kept with the share of its class that is: of positives and of negatives each,
    if both kinds of rows have as many of them.
    """
    if not (observed == NEGATIVE).any():
        kept = random.choice((observed == POSITIVE).sum(1), len(labels))
        order = np.argsort(np.where(labels == POSITIVE, random.random(labels.shape), 2.0), axis=1)
        rank = np.argsort(order, axis=1)
        return np.where((labels == POSITIVE) & (rank < kept[:, None]), POSITIVE, UNKNOWN).astype(np.int8)
    chance = np.zeros(labels.shape)
    for value in (POSITIVE, NEGATIVE):
        expected = np.maximum((labels == value).mean(0) * len(observed), 1)
        share = np.minimum((observed == value).sum(0) / expected, 1)
        chance = np.where(labels == value, share, chance)
    return np.where(random.random(labels.shape) < chance, labels, UNKNOWN).astype(np.int8)


def _features(platt: Platt, scores: NDArray[np.floating], observed: Labels) -> tuple[Floats, Floats]:
    own = np.clip(platt.logits(scores), -_HIGHEST_LOGIT, _HIGHEST_LOGIT)
    return own, np.concatenate([own, observed == POSITIVE, observed == NEGATIVE], axis=1)


def _fit(own: Floats, others: Floats, positive: NDArray[np.bool_], weight: Floats) -> tuple[Floats, Floats, Floats]:
    """Slopes, intercepts and weights of least penalised log loss.

    What an observed label says is the sum of something that it says of all labels alike and something of its own for
    each of them, so that rare pairs are expected to behave as others do.
    """
    count, width = own.shape[1], others.shape[1]
    seen = slice(count, width)  # of others, the columns of observed labels
    precision = np.concatenate(
        [
            np.full(count, _OWN_SLOPE),
            np.full(count, _INTERCEPT),
            np.full(width - count, _OBSERVED_FOR_ALL),
            np.repeat([_SCORE, _OBSERVED], [count**2, (width - count) * count]),
        ]
    )
    start = np.concatenate([np.ones(count), np.zeros(len(precision) - count)])
    cuts = (count, 2 * count, count + width)

    def unpack(values: Floats) -> tuple[Floats, Floats, Floats, Floats]:
        slope, intercept, for_all, weights = np.split(values, cuts)
        return slope, intercept, for_all, weights.reshape(width, count)

    def pack(cells: Floats, own: Floats, others: Floats) -> Floats:
        """Sums over rows of a value of each cell times the feature that each parameter multiplies."""
        for_all = others[:, seen].T @ cells.sum(1)
        return np.concatenate([(cells * own).sum(0), cells.sum(0), for_all, (others.T @ cells).ravel()])

    # Measured in steps of about its own uncertainty, every parameter is as easy to find as the others.
    expected = expit(own)
    scale = 1 / np.sqrt(precision + pack(weight * expected * (1 - expected), own**2, others**2))

    def objective(steps: Floats) -> tuple[float, Floats]:
        change = scale * steps
        slope, intercept, for_all, weights = unpack(start + change)
        logits = own * slope + intercept + others @ weights + (others[:, seen] @ for_all)[:, None]
        gradient = pack(weight * (expit(logits) - positive), own, others) + precision * change
        loss = (weight * (np.logaddexp(0, logits) - positive * logits)).sum() + precision @ change**2 / 2
        return float(loss), scale * gradient

    found = minimize(objective, np.zeros(len(start)), jac=True, method="L-BFGS-B", options={"ftol": 1e-6})
    slope, intercept, for_all, weights = unpack(start + scale * found.x)
    weights[seen] += for_all[:, None]
    return slope, intercept, weights
