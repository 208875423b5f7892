"""What the scores of all classes and the observed labels of a row say together about its other labels."""

from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import minimize
from scipy.special import expit, logit

from onepair.labels import POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import Platt, correct_lines
from onepair.probability.infer import Inference
from onepair.probability.observation import Observation, Rates

# Precisions of the Gaussian priors: of a few that were tried, the best on average for 25 to 1,143 full rows of VOC 2012
# and 25 to 800 of COCO.
_OWN_SLOPE, _INTERCEPT, _PAIR, _FOR_ALL, _SURENESS = 10.0, 10.0, 3.0, 3.0, 1.0
_ONE_MORE = 1.0  # label that every pair of classes is expected to share, as sure as all of them are
_HIGHEST_LOGIT = 8.0  # beyond it a score says no more
_SIMULATED_ROWS, _SIMULATED_CELLS = 5_000, 1_000_000  # at least, unless the sample is larger
_MOST_CLASSES = 300  # whose L² weights can be fitted
_BLOCK = 1_000_000  # cells that are computed at once


@dataclass(frozen=True, eq=False)
class LabelDependence:
    """A logistic regression for each label on its own posterior and on those of all others in its row.

        logit P(l) = a_l q_l + b_l + Σ_j W_jl x_j,   W_jl = c_j + V_jl,   V = Vᵀ

    q are logits of the posterior by the process that labels are observed by, x the posterior itself: 1 or 0 where a
    label is known. V is symmetric since what two labels say of each other is one thing, c is what a label says of all.
    """

    platt: Platt
    rates: Rates
    slope: Floats  # (L,), a
    intercept: Floats  # (L,), b
    weights: Floats | None  # (L, L), W; None where the labels are too many for it

    def __call__(self, scores: Floats, labels: Labels, observation: Observation) -> Floats:
        """Probabilities (N, L) of unknown cells to be positive; those of known cells mean nothing."""
        probabilities = np.empty(labels.shape)
        size = max(1, _BLOCK // labels.shape[1])
        for rows in (np.arange(start, min(start + size, len(labels))) for start in range(0, len(labels), size)):
            own, others = _features(self.platt, self.rates, scores[rows], labels[rows], observation.of(rows))
            combined = 0.0 if self.weights is None else others @ self.weights
            probabilities[rows] = expit(own * self.slope + self.intercept + combined)
        return probabilities


def fit_label_dependence(
    scores: Floats,
    labels: Labels,
    inference: Inference,
    *,
    observed: Labels,
    weights: Floats,
    random: np.random.Generator,
) -> LabelDependence:
    """Fit on rows with full labels, hidden in the way that the others are.

    Args:
        scores: (K, M, L), of the M rows by each of K models.
        labels: (M, L), all known.
        inference: what is known of how the others are hidden, and of scores.
        observed: (N, L), of the rows that the inference is about.
        weights: (M,), how many rows each stands for.
        random: hides them.
    """
    models, rows, count = scores.shape
    copies = max(1, -(-min(_SIMULATED_ROWS, _SIMULATED_CELLS // count) // rows))
    # Row j of copy i by model (i + j) mod K: all models, although there may be fewer copies than models.
    model = (np.arange(copies)[:, None] + np.arange(rows)) % models
    full = np.tile(labels, (copies, 1))
    hidden, platt, rates = inference.observation, inference.in_any_row, inference.rates
    drawn = scores[model, np.arange(rows)].reshape(-1, count)
    shown = hidden.hide(full, platt(drawn), rates, random)
    nothing = np.zeros(shown.shape, bool)
    bound = replace(hidden, ignorable=nothing, asked=nothing)
    own, others = _features(platt, rates, drawn, shown, bound)
    weight = (shown == UNKNOWN) * (np.tile(weights / weights.mean(), copies) / copies)[:, None]
    if count > _MOST_CLASSES:
        line = correct_lines(Platt(np.ones(count), np.zeros(count)), own, (full == POSITIVE).astype(float), weight)
        return LabelDependence(platt, rates, line.slope, line.intercept, None)
    sure = sureness(observed, inference.probabilities)
    return LabelDependence(platt, rates, *_fit(own, others, full == POSITIVE, weight, sure))


def sureness(observed: Labels, probabilities: Floats) -> Floats:
    """How sure the model is of the labels that it expects beside others, (L, L), symmetric, 0 for what is usual.

        s_jl = log Σ p² / Σ p   over the unknown cells of l where j is shown, and of j where l is shown

    Two classes that come together are both seen, some times, without a doubt; two that the model takes for each other
    never are, though it may expect as many of them. No full labels are needed to see that.
    """
    shown, hidden = (observed == POSITIVE).astype(float), np.where(observed == UNKNOWN, probabilities, 0)
    usual = (hidden**2).sum() / max(hidden.sum(), 1e-9)
    squared, expected = (each + each.T for each in (shown.T @ hidden**2, shown.T @ hidden))
    share = (squared + _ONE_MORE * usual) / (expected + _ONE_MORE)
    sure: Floats = np.log(np.maximum(share, 1e-9) / max(usual, 1e-9))
    np.fill_diagonal(sure, 0)
    return sure


def _features(
    platt: Platt, rates: Rates, scores: Floats, labels: Labels, observation: Observation
) -> tuple[Floats, Floats]:
    posterior = observation.posterior(platt(scores), labels, rates)
    return np.clip(_logit(posterior), -_HIGHEST_LOGIT, _HIGHEST_LOGIT), posterior


def _logit(probabilities: Floats) -> Floats:
    logits: Floats = logit(np.clip(probabilities, 1e-9, 1 - 1e-9))
    return logits


def _fit(
    own: Floats, others: Floats, positive: NDArray[np.bool_], weight: Floats, sure: Floats
) -> tuple[Floats, Floats, Floats]:
    """Slopes, intercepts and weights of least penalised log loss.

    What a pair of labels says of each other is expected to go with its sureness, by as much as all pairs together say.
    """
    count = own.shape[1]
    first, second = np.triu_indices(count, 1)
    sizes = (count, count, count, 1, len(first))
    precision = np.repeat([_OWN_SLOPE, _INTERCEPT, _FOR_ALL, _SURENESS, _PAIR], sizes)
    start = np.repeat([1.0, 0.0], [count, len(precision) - count])

    def unpack(values: Floats) -> tuple[Floats, Floats, Floats]:
        slope, intercept, for_all, by_sureness, pairs = np.split(values, np.cumsum(sizes)[:-1])
        weights = for_all[:, None] + by_sureness * sure
        weights[first, second] += pairs
        weights[second, first] += pairs
        np.fill_diagonal(weights, 0)
        return slope, intercept, weights

    def pack(cells: Floats, own: Floats, others: Floats, sure: Floats) -> Floats:
        """Sums over rows of a value of each cell times the feature that each parameter multiplies."""
        by_pair = others.T @ cells
        np.fill_diagonal(by_pair, 0)
        both = (by_pair + by_pair.T)[first, second]
        return np.concatenate([(cells * own).sum(0), cells.sum(0), by_pair.sum(1), [(by_pair * sure).sum()], both])

    # Measured in steps of about its own uncertainty, every parameter is as easy to find as the others.
    expected = expit(own)
    scale = 1 / np.sqrt(precision + pack(weight * expected * (1 - expected), own**2, others**2, sure**2))

    def objective(steps: Floats) -> tuple[float, Floats]:
        change = scale * steps
        slope, intercept, weights = unpack(start + change)
        logits = own * slope + intercept + others @ weights
        gradient = pack(weight * (expit(logits) - positive), own, others, sure) + precision * change
        loss = (weight * (np.logaddexp(0, logits) - positive * logits)).sum() + precision @ change**2 / 2
        return float(loss), scale * gradient

    found = minimize(objective, np.zeros(len(start)), jac=True, method="L-BFGS-B", options={"ftol": 1e-6})
    return unpack(start + scale * found.x)
