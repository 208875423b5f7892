"""What the scores of all classes and the observed labels of a row say together about its other labels."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import Platt, correct_lines
from onepair.probability.incomplete import Inference
from onepair.probability.observation import Observation, Rates

# Precisions of the Gaussian priors, chosen by the log loss of held-out validation rows of VOC 2012 with three methods.
_OWN_SLOPE, _INTERCEPT, _SCORE, _OBSERVED, _OBSERVED_FOR_ALL = 10.0, 10.0, 200.0, 3.0, 0.1
_HIGHEST_LOGIT = 8.0  # beyond it a score says no more
_SIMULATED_ROWS, _SIMULATED_CELLS = 5_000, 1_000_000  # at least, unless the sample is larger
_SHARES = np.linspace(0, 1, 9)  # of a fit, to choose from by rows that it was not made of
_MOST_CLASSES = 300  # whose 3 L² weights can be fitted
_BLOCK = 1_000_000  # cells that are computed at once


@dataclass(frozen=True, eq=False)
class Combination:
    """A logistic regression for each label on what its own score, those of all others and the labels observed say.

        logit P(l) = a_l q_l + b_l + Σ_j W_jl x_j,   x = (z, observed positive, observed negative)

    q are logits of the posterior by the process that labels are observed by, z those of the scores alone.
    """

    platt: Platt
    rates: Rates
    slope: Floats  # (L,), a
    intercept: Floats  # (L,), b
    weights: Floats | None  # (3 L, L), W; None where the labels are too many for it

    def __call__(self, scores: Floats, labels: Labels, observation: Observation) -> Floats:
        """Probabilities (N, L) of unknown cells to be positive; those of known cells mean nothing."""
        probabilities = np.empty(labels.shape)
        size = max(1, _BLOCK // labels.shape[1])
        for rows in (np.arange(start, min(start + size, len(labels))) for start in range(0, len(labels), size)):
            own, others = _features(self.platt, self.rates, scores[rows], labels[rows], observation.of(rows))
            combined = 0.0 if self.weights is None else others @ self.weights
            probabilities[rows] = expit(own * self.slope + self.intercept + combined)
        return probabilities


def fit_combination(
    scores: Floats,
    labels: Labels,
    inference: Inference,
    *,
    weights: Floats,
    random: np.random.Generator,
) -> Combination:
    """Fit on rows with full labels, hidden in the way that the others are.

    Args:
        scores: (K, M, L), of the M rows by each of K models.
        labels: (M, L), all known.
        inference: what is known of how the others are hidden, and of scores.
        weights: (M,), how many rows each stands for.
        random: hides them.
    """
    models, rows, count = scores.shape
    copies = max(1, -(-min(_SIMULATED_ROWS, _SIMULATED_CELLS // count) // rows))
    # Row j of copy i by model (i + j) mod K: all models, although there may be fewer copies than models.
    model = (np.arange(copies)[:, None] + np.arange(rows)) % models
    full = np.tile(labels, (copies, 1))
    hidden, platt, rates = inference.observation, inference.in_any_row, inference.rates
    shown = hidden.hide(full, rates, random)
    nothing = np.zeros(shown.shape, bool)
    bound = replace(hidden, free=nothing, asked=nothing)
    drawn = scores[model, np.arange(rows)].reshape(-1, count)
    own, others = _features(platt, rates, drawn, shown, bound)
    weight = (shown == UNKNOWN) * (np.tile(weights / weights.mean(), copies) / copies)[:, None]
    if count > _MOST_CLASSES:
        line = correct_lines(Platt(np.ones(count), np.zeros(count)), own, (full == POSITIVE).astype(float), weight)
        return Combination(platt, rates, line.slope, line.intercept, None)
    slope, intercept, others_weights = _fit(own, others, full == POSITIVE, weight)
    share = _share_to_trust(own, others, full == POSITIVE, weight, np.tile(random.permutation(rows) % 2 == 0, copies))
    return Combination(platt, rates, 1 + share * (slope - 1), share * intercept, share * others_weights)


def _share_to_trust(
    own: Floats, others: Floats, positive: NDArray[np.bool_], weight: Floats, half: NDArray[np.bool_]
) -> float:
    """How far to go from what a cell's own score says to what a fit says: what would have been best for either half of
    the rows with the fit to the other, so that a few rows that say little of each other change little.
    """
    losses = np.zeros(len(_SHARES))
    for fitted, judged in ((half, ~half), (~half, half)):
        slope, intercept, weights = _fit(own[fitted], others[fitted], positive[fitted], weight[fitted])
        change = own[judged] * (slope - 1) + intercept + others[judged] @ weights
        for number, share in enumerate(_SHARES):
            logits = own[judged] + share * change
            losses[number] += (weight[judged] * (np.logaddexp(0, logits) - positive[judged] * logits)).sum()
    return float(_SHARES[np.argmin(losses)])


def _features(
    platt: Platt, rates: Rates, scores: Floats, labels: Labels, observation: Observation
) -> tuple[Floats, Floats]:
    alone = platt.logits(scores)
    posterior = observation.posterior(expit(alone), labels, rates)
    own, alone = (np.clip(each, -_HIGHEST_LOGIT, _HIGHEST_LOGIT) for each in (_logit(posterior), alone))
    return own, np.concatenate([alone, labels == POSITIVE, labels == NEGATIVE], axis=1)


def _logit(probabilities: Floats) -> Floats:
    logits: Floats = logit(np.clip(probabilities, 1e-9, 1 - 1e-9))
    return logits


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
