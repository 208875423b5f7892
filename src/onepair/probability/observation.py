"""What can be said of labels that nobody observed: how labels come to be observed, and calibration without the others.

Where only some positives are known, the share of them that is can not be read off the data without an assumption on how
they were chosen. Two are made here, each with the posterior that follows from it.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import Platt, check_scores, fit_lines

_EM_STEPS, _EM_TOLERANCE = 50, 1e-3
_MAX_ROWS = 20_000  # to fit two numbers per class
_POOLED = 10  # cells of all classes together that every class sees beside its own
_FEWEST_AT_TOP = 10  # observed positives that tell of a class, and a tenth of them at least
_Z = 1.96  # standard errors to either end of an interval of 95 %
_BLOCK = 500_000  # cells that the posterior is computed of at once
_NODES, _WEIGHTS = (part / 2 for part in np.polynomial.legendre.leggauss(16))
_NODES = _NODES + 0.5  # of an integral from 0 to 1


@dataclass(frozen=True)
class SinglePositive:
    """Every row shows one of its positives, drawn at random."""

    assumption = "if each image shows one of its positives at random"

    def posterior(self, probabilities: Floats, observed: Labels) -> Floats:
        """Probability (N, L) of every cell to be positive, given what is observed of its row.

        With labels independent given the scores, o the observed one and K positives among the rest,

            P(l | o) ∝ p_l E[1/(2+K)],   P(not l | o) ∝ (1-p_l) E[1/(1+K)],   E[1/(1+K)] = ∫ Π_j (1-p_j+p_j t) dt

        over t from 0 to 1, which Gauss and Legendre's rule gives exactly for up to 31 labels.

        Args:
            probabilities: (N, L), of each cell to be positive by its score alone.
            observed: (N, L), with one positive in every row.
        """
        rows = max(1, _BLOCK // (observed.shape[1] * len(_NODES)))
        blocks = [slice(start, start + rows) for start in range(0, len(observed), rows)]
        return np.concatenate([self._posterior(probabilities[block], observed[block] == POSITIVE) for block in blocks])

    def _posterior(self, probabilities: Floats, shown: NDArray[np.bool_]) -> Floats:
        share = 1 - probabilities + probabilities * _NODES[:, None, None]  # (T, N, L)
        share[:, shown] = 1.0
        rest = share.prod(2, keepdims=True) / share  # of all labels but l and o
        present = probabilities * np.tensordot(_WEIGHTS * _NODES, rest, 1)
        absent = (1 - probabilities) * np.tensordot(_WEIGHTS, rest, 1)
        return np.where(shown, 1.0, present / (present + absent))


@dataclass(frozen=True, eq=False)
class AtRandom:
    """A positive is observed with a chance that depends on its class alone (Elkan and Noto 2008)."""

    frequency: Floats  # (L,), that chance
    assumption = "if each positive of a class is as likely to be observed as any other"

    def posterior(self, probabilities: Floats, observed: Labels) -> Floats:
        """Probability (N, L) of every cell to be positive, given what is observed of it.

            P(positive | unknown) = (1-c) p / (1 - c p),   c the chance of its class

        Args:
            probabilities: (N, L), of each cell to be positive by its score alone.
            observed: (N, L).
        """
        hidden = (1 - self.frequency) * probabilities
        unknown = np.divide(hidden, hidden + 1 - probabilities, out=np.zeros_like(hidden), where=hidden > 0)
        return np.where(observed == UNKNOWN, unknown, observed == POSITIVE)


Observation = SinglePositive | AtRandom


class Estimate(NamedTuple):
    """How many there are of each class, (L,), or of all together, and an interval that probably holds it."""

    value: Floats
    low: Floats
    high: Floats

    @property
    def total(self) -> "Estimate":
        """Of all classes together, if what makes them uncertain is the same for all."""
        return Estimate(*(np.asarray(end.sum()) for end in self))


@dataclass(frozen=True, eq=False)
class Inference:
    """What positives and unknown labels say together."""

    observation: Observation
    platt: Platt  # probability of a label to be positive by its score alone
    missing: Estimate  # positives of each class among the unknown cells


def infer(scores: ArrayLike, observed: ArrayLike) -> Inference:
    """Calibrate scores, and count the missing positives, where not all positives are observed.

    One positive in every row and no negative is taken for `SinglePositive`, anything else for `AtRandom`.

    Args:
        scores: (N, L), of rows that the model was not fitted to.
        observed: (N, L).
    """
    matrix, known = check_scores(scores, observed)
    if not (known == POSITIVE).any():
        raise ValueError("no positive label is observed, so nothing can be said of the others")
    single = ((known == POSITIVE).sum(1) == 1).all() and not (known == NEGATIVE).any()
    return _infer_single(matrix, known) if single else _infer_at_random(matrix, known)


def _infer_single(scores: Floats, observed: Labels) -> Inference:
    """Between the fewest and the most labels that can be missing.

    The likelihood can not tell classes that look alike from classes that come together. It takes them for the latter:
    that is the most. The fewest is what follows if the chance to be positive is the chance to be observed. The lines
    in the middle of both are used.
    """
    observation = SinglePositive()
    seldom = _fit_observed(scores, observed)
    often = fit_platt_incomplete(scores, observed, observation)
    middle = Platt((seldom.slope + often.slope) / 2, (seldom.intercept + often.intercept) / 2)
    value, *ends = (
        np.where(observed == UNKNOWN, observation.posterior(lines(scores), observed), 0).sum(0)
        for lines in (middle, seldom, often)
    )
    low, high = np.minimum(*ends), np.maximum(*ends)
    most = (observed == UNKNOWN).sum(0)
    low, high = np.maximum(low - _Z * np.sqrt(low), 0), np.minimum(high + _Z * np.sqrt(high), most)
    return Inference(observation, middle, Estimate(value, low, high))


def _infer_at_random(scores: Floats, observed: Labels) -> Inference:
    """From the share of positives that is observed, and its interval."""
    frequency = label_frequency(scores, observed)
    observation = AtRandom(frequency.value)
    platt = fit_platt_incomplete(scores, observed, observation)
    found, most = (observed == POSITIVE).sum(0), (observed == UNKNOWN).sum(0)
    counts = (np.minimum(found * (1 - each) / each, most) for each in (frequency.value, frequency.high, frequency.low))
    return Inference(observation, platt, Estimate(*counts))


def label_frequency(scores: ArrayLike, observed: ArrayLike) -> Estimate:
    """The share of the positives of every class that is observed, if it does not depend on the score.

    Where the scores are highest nearly all cells are positive, so the share of them that is observed is it: taken at
    the cut where its lower confidence bound is highest. Rare classes are drawn to all classes together; known
    negatives are left out. It is too small where scores are too poor to tell positives apart even at the top.
    """
    matrix, known = check_scores(scores, observed)
    found, cells = np.array([_best_top(*column) for column in zip(matrix.T, known.T, strict=True)], np.float64).T
    together = found.sum() / max(cells.sum(), 1)
    found, cells = found + _POOLED * together, cells + _POOLED
    ends = (_wilson(found, cells, z) for z in (-_Z, _Z))
    # A share of 1 would leave nothing to be found at all.
    return Estimate(*(np.clip(share, 0.01, 0.99) for share in (found / cells, *ends)))


def _best_top(scores: Floats, observed: Labels) -> tuple[int, int]:
    """How many positives are observed among how many cells at the top."""
    candidates = observed != NEGATIVE
    order = np.argsort(-scores[candidates], kind="stable")
    found = np.cumsum(observed[candidates][order] == POSITIVE)
    if len(found) == 0 or found[-1] == 0:
        return 0, 0
    bound = _wilson(found, np.arange(1, len(found) + 1), -_Z)
    # Of many cuts some look good by chance, the smallest most of all.
    bound[found < min(max(_FEWEST_AT_TOP, found[-1] / 10), found[-1])] = 0
    best = int(np.argmax(bound))
    return int(found[best]), best + 1


def _wilson(found: ArrayLike, cells: ArrayLike, z: float) -> Floats:
    """An end of Wilson's interval of a share: the lower for z < 0, the upper for z > 0."""
    number = np.asarray(cells, np.float64)
    share = np.asarray(found, np.float64) / number
    error = z * np.sqrt(share * (1 - share) / number + z**2 / (4 * number**2))
    end: Floats = (share + z**2 / (2 * number) + error) / (1 + z**2 / number)
    return end


def _fit_observed(scores: Floats, observed: Labels) -> Platt:
    """Lines for the probability to be observed as positive."""
    return fit_lines(scores, (observed == POSITIVE).astype(np.float64), np.ones(observed.shape, bool))


def fit_platt_incomplete(scores: Floats, observed: Labels, observation: Observation) -> Platt:
    """The lines of highest likelihood for the probability that a label *is* positive.

    Expectation and maximisation in turn: an unknown cell counts as positive by its posterior, and the lines are
    fitted to that.

    Args:
        scores: (N, L), of rows that the model was not fitted to.
        observed: (N, L).
        observation: how labels came to be observed.
    """
    if len(observed) > _MAX_ROWS:
        rows = np.random.default_rng(0).choice(len(observed), _MAX_ROWS, replace=False)
        scores, observed = scores[rows], observed[rows]
    lines, expected = _fit_observed(scores, observed), np.zeros(observed.shape[1])
    for _ in range(_EM_STEPS):
        targets = observation.posterior(lines(scores), observed)
        before, expected = expected, targets.sum(0)
        if np.abs(expected - before).max() <= _EM_TOLERANCE * max(1.0, expected.max()):
            break
        lines = fit_lines(scores, targets, np.ones(observed.shape, bool), start=lines)
    return lines
