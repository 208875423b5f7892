"""The problem that `OPMLClassifier` solves: OPML on all rows of a feature matrix, with a penalty on the weights."""
# ruff: noqa: N803, N806 (X is the name that users of scikit-learn know)

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.sparse import issparse
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels

Floats = NDArray[np.floating]
Unknown = Literal["negative", "ignore"]

_RIDGE = 1e-6  # of the high-rank penalty, as in `high_rank_penalty`
_ROWS = 4096  # that are looked at at once


class LogSum(NamedTuple):
    """A term of the loss, log(constant + Σ_l exp(sign · s_l + log_weight_l)) for each row of scores s."""

    sign: int
    constant: float
    log_weights: Floats  # (N, L), -inf for a label that is not in the sum

    def __call__(self, scores: Floats) -> tuple[Floats, Floats]:
        """The values (N, 1), and every label's share in the sum (N, L): the size of the derivative in its score."""
        terms = self.sign * scores
        terms += self.log_weights
        highest = terms.max(1, keepdims=True).clip(min=0)  # so that no exponent is above 0
        terms -= highest
        np.exp(terms, out=terms)
        total = terms.sum(1, keepdims=True) + self.constant * np.exp(-highest)
        terms /= total
        return np.log(total) + highest, terms


class Prior(NamedTuple):
    """What is known before the rows are: Gaussian, (features + 1, classes) as the weights."""

    centre: Floats
    precision: Floats


def log_sums(
    targets: Labels, gamma: float | Floats, *, alpha: float, beta: float, unknown: Unknown, dtype: Any
) -> list[LogSum]:
    """The terms of `soft_opml_loss`; those of `opml_loss` where no unknown label has a share γ above 0."""
    targets = np.asfortranarray(targets)  # as the scores are
    positive = (targets == POSITIVE).astype(dtype)
    uncertain = ((targets == UNKNOWN) & (unknown == "negative")).astype(dtype)
    soft_positive = uncertain * np.asarray(gamma, dtype)
    negative = (targets == NEGATIVE) + uncertain - soft_positive
    constants = float(alpha / (1 - alpha)), float(beta / (1 - beta))
    with np.errstate(divide="ignore"):
        sums = [LogSum(-1, constants[0], np.log(positive)), LogSum(1, constants[1], np.log(negative))]
        if soft_positive.any():
            sums.append(LogSum(-1, constants[0], np.log(soft_positive)))
    return sums


def one_pair(scores: Floats, sums: list[LogSum]) -> tuple[float, Floats]:
    """The loss, summed over the rows, and its gradient, (N, L)."""
    loss, gradient = 0.0, np.zeros_like(scores)
    for term in sums:
        values, shares = term(scores)
        loss += float(values.sum(dtype=np.float64))
        gradient += shares if term.sign > 0 else -shares
    return loss, gradient


def high_rank(scores: Floats) -> tuple[float, Floats]:
    """-log det of the smaller Gram matrix of the predictions (Eq. 8), and its gradient in the scores, (N, L)."""
    predicted = expit(scores.astype(np.float64))
    tall = predicted if len(scores) >= scores.shape[1] else predicted.T
    gram = tall.T @ tall + _RIDGE * np.eye(tall.shape[1])
    gradient = -2 * np.linalg.solve(gram, tall.T).T
    gradient = gradient if tall is predicted else gradient.T
    return -float(np.linalg.slogdet(gram).logabsdet), (gradient * predicted * (1 - predicted)).astype(scores.dtype)


@dataclass(frozen=True, eq=False)
class Features:
    """Features about their means, in units of how much they vary: (X - centre) / scale, never made of a sparse X."""

    X: Any  # (N, D)
    centre: Floats  # (D,)
    scale: float

    def __len__(self) -> int:
        return int(self.X.shape[0])

    def scores(self, weights: Floats) -> Floats:
        """The scores (N, L), column by column in memory: sums over the few classes of all rows at once are fast so."""
        coef = weights[:-1] / self.scale
        scores: Floats = np.asfortranarray(self.X @ coef) if issparse(self.X) else (coef.T @ self.X.T).T
        scores += weights[-1] - self.centre @ coef
        return scores

    def gradient(self, by_score: Floats) -> Floats:
        """The gradient in the weights (features + 1, classes), by that in the scores."""
        part, total = by_score / self.scale, by_score.sum(0)
        return np.vstack([self.X.T @ part - np.outer(self.centre, total / self.scale), total])

    def curvature(self, sums: list[LogSum], weights: Floats) -> Floats:
        """The diagonal of the loss's second derivative in the weights, (features + 1, classes)."""
        scores = self.scores(weights)
        by_score = np.zeros_like(scores)
        for term in sums:
            shares = term(scores)[1]
            by_score += shares * (1 - shares)
        total, centre = by_score.sum(0), self.centre / self.scale
        if issparse(self.X):
            X = self.X / self.scale
            squares = X.T.power(2) @ by_score - 2 * centre[:, None] * (X.T @ by_score) + np.outer(centre**2, total)
        else:
            squares = np.square((self.X - self.centre) / self.scale).T @ by_score
        return np.vstack([np.maximum(squares, 0), total])


def make_objective(
    features: Features, sums: list[LogSum], prior: Prior, *, high_rank_weight: float = 0.0
) -> Callable[[Floats], tuple[float, Floats]]:
    """The objective per row, and its gradient, as a function of the weights."""
    n = len(features)

    def objective(weights: Floats) -> tuple[float, Floats]:
        scores = features.scores(weights)
        value, by_score = one_pair(scores, sums)
        if high_rank_weight > 0:
            penalty, by_penalty = high_rank(scores)
            value, by_score = value + n * high_rank_weight * penalty, by_score + n * high_rank_weight * by_penalty
        moved = weights - prior.centre
        gradient = prior.precision * moved
        value += 0.5 * float(np.vdot(gradient, moved))
        gradient += features.gradient(by_score)
        return value / n, gradient / n

    return objective


def centre_and_scale(X: Any) -> tuple[Floats, float]:
    """The features' means (D,), and the root of the sum of their variances, or 1 where nothing varies.

    In units of the largest value, so that no square is beyond the numbers there are.
    """
    peak = float(abs(X).max()) or 1.0
    mean = np.asarray(X.mean(0, dtype=np.float64)).ravel() / peak
    if issparse(X):
        squares = np.square(X.data / peak - mean[X.indices]).sum()
        squares += (X.shape[0] - np.bincount(X.indices, minlength=X.shape[1])) @ np.square(mean)
    else:
        blocks = (X[start : start + _ROWS] for start in range(0, X.shape[0], _ROWS))
        squares = sum(np.square(block / peak - mean).sum() for block in blocks)
    variance = float(squares / X.shape[0])
    varies = variance > 1e-24 * float(np.square(mean).sum())
    return mean * peak, peak * math.sqrt(variance) if varies else 1.0
