"""How probable it is that a label is positive, given the scores and what is observed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import Floats
from onepair.probability.calibration import check_scores
from onepair.probability.combination import fit_combination
from onepair.probability.counting import count_missing
from onepair.probability.observation import Estimate, infer

_FEWEST_SAMPLE_ROWS = 50  # unless the whole sample is smaller
_EM_STEPS = 200


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is thought of every cell of a label matrix."""

    probabilities: Floats  # (N, L), to be truly positive, given all that is known, the cell's own label included
    missing: Estimate  # positives of each class among the unknown cells
    total: Estimate  # of all classes
    basis: str  # a few words on what this rests on


def judge(
    observed: ArrayLike,
    scores: ArrayLike,
    *,
    sample: ArrayLike | None = None,
    sample_scores: ArrayLike | None = None,
    seed: int = 0,
) -> Judgement:
    """Calibrated probabilities of all cells, from scores of models that were not fitted to the rows they score.

    With a sample of rows that have all labels, drawn like the others, probabilities are calibrated on it, and what the
    observed labels of a row say of its other labels is learned from it. Without, both follow from an assumption on how
    labels come to be observed, see `onepair.probability.observation`.

    Args:
        observed: (N, L), the labels to complete and to check.
        scores: (N, L).
        sample: (M, L), labels of other rows; of these only rows without unknown labels are used.
        sample_scores: (M, L), or (K, M, L) by several models.
        seed: of the labels of the sample that are hidden for learning.
    """
    matrix, known = check_scores(scores, observed)
    if sample is not None and sample_scores is not None:
        labels, by_model = validate_labels(sample), np.asarray(sample_scores, np.float64)
        by_model = by_model if by_model.ndim == 3 else by_model[None]
        full = (labels != UNKNOWN).all(1)
        both = (labels[full] == POSITIVE).any() and (labels[full] == NEGATIVE).any()
        if both and full.sum() >= min(_FEWEST_SAMPLE_ROWS, len(labels)):
            return _judge_by_sample(known, matrix, labels[full], by_model[:, full], seed)
    return _judge_alone(known, matrix)


def _judge_by_sample(observed: Labels, scores: Floats, sample: Labels, sample_scores: Floats, seed: int) -> Judgement:
    combination = fit_combination(sample_scores, sample, observed, random=np.random.default_rng(seed))
    platt = combination.platt
    expected = platt(sample_scores).mean(0)
    missing, total = count_missing(observed, platt(scores), sample, expected)
    unknown = combination(scores, observed)
    probabilities = _with_observed(observed, unknown, platt.logits(scores), expected.mean(0))
    return Judgement(probabilities, missing, total, f"full labels of {len(sample):,} validation images")


def _judge_alone(observed: Labels, scores: Floats) -> Judgement:
    inference = infer(scores, observed)
    prior = inference.platt(scores)
    unknown = inference.observation.posterior(prior, observed)
    probabilities = _with_observed(observed, unknown, inference.platt.logits(scores), prior.mean(0))
    missing = inference.missing
    return Judgement(
        probabilities, missing, missing.total, f"observed labels alone, {inference.observation.assumption}"
    )


def _with_observed(observed: Labels, unknown: Floats, logits: Floats, prior: Floats) -> Floats:
    """The probabilities of unknown cells, completed by those of observed cells to be right.

    An observed label is taken to be wrong with a chance that is the same for all, and a wrong one to score like any
    other label of its true kind. The chance is that of highest likelihood.

    Args:
        observed: (N, L).
        unknown: (N, L), probabilities of unknown cells to be positive.
        logits: (N, L), of the probability to be positive by the score alone.
        prior: (L,), the share of positives.
    """
    share = np.clip(prior, 1e-6, 1 - 1e-6)
    for_positive = logits - np.log(share / (1 - share))  # log ratio of the densities of positive and negative cells
    probabilities = unknown.copy()
    for value, ratio in ((POSITIVE, -for_positive), (NEGATIVE, for_positive)):
        cells = observed == value
        wrong = _posterior_of_share(ratio[cells])
        probabilities[cells] = wrong if value == NEGATIVE else 1 - wrong
    return probabilities


def _posterior_of_share(log_ratios: Floats) -> Floats:
    """Which of some values come from the other of two densities, where the share that does is not known."""
    posterior = np.full(len(log_ratios), 0.01)
    for _ in range(_EM_STEPS if len(log_ratios) else 0):
        share = np.clip(posterior.mean(), 1e-9, 1 - 1e-9)
        posterior = expit(log_ratios + np.log(share / (1 - share)))
    return posterior
