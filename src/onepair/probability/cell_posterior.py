"""How probable it is that a label is positive, or that an observed one is wrong."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import Floats
from onepair.probability.binned_counts import Tally
from onepair.probability.calibration import check_scores, fit_lines
from onepair.probability.counting import Estimate
from onepair.probability.infer import infer
from onepair.probability.label_dependence import fit_combination
from onepair.probability.observation import Process

_EM_STEPS, _ROUNDS = 200, 4
_HARDLY_ANY = 0.5  # wrong labels, that lines need not be fitted anew for
_MOST = 0.5  # of all labels, that people do not get wrong


def with_observed(observed: Labels, unknown: Floats, logits: Floats, *, drawn: int) -> Floats:
    """The probabilities of unknown cells, completed by those of observed cells to be right.

    An observed label is taken to be wrong with a chance that is the same for all, and a wrong one to score like any
    other label of its true kind. The chance is that of highest likelihood, which is careful: where no label is wrong
    hardly any is thought to be, and where some are, only the clearest. Lines are fitted to wrong labels as well, and so
    explain some of them; once these are thought to be wrong, lines without them bring out others.

    Args:
        observed: (N, L).
        unknown: (N, L), probabilities of unknown cells to be positive.
        logits: (N, L), of the probability to be positive by the score alone.
        drawn: how many positives of a row are shown at most; 0: any.
    """
    probabilities, moved, tally = unknown.copy(), logits, None
    for value in (POSITIVE, NEGATIVE):
        probabilities[observed == value] = float(value == POSITIVE)
    for _ in range(_ROUNDS):
        wrong = [_wrong(observed, moved, value, drawn) for value in (POSITIVE, NEGATIVE)]
        probabilities[observed == POSITIVE], probabilities[observed == NEGATIVE] = 1 - wrong[0], wrong[1]
        if wrong[0].sum() + wrong[1].sum() < _HARDLY_ANY:
            break
        tally = tally or Tally(logits)
        cells = tally.sums(np.ones(logits.shape))
        moved = fit_lines(tally.scores, tally.sums(probabilities) / cells, cells).logits(logits)
    return probabilities


def _wrong(observed: Labels, logits: Floats, value: int, drawn: int) -> Floats:
    """How probable each observed label of this value, (n,), is to be wrong."""
    cells = observed == value
    if not cells.any():
        return np.zeros(0)
    positive = np.clip(expit(logits), 1e-9, 1 - 1e-9)
    right, other = (positive, 1 - positive) if value == POSITIVE else (1 - positive, positive)
    if value == POSITIVE and drawn:  # the more positives a row has, the seldomer it shows this one
        right = right * np.minimum(drawn / (1 + positive.sum(1, keepdims=True) - positive), 1)
    columns = np.nonzero(cells)[1]
    wrong_density, right_density = (each[cells] / each.sum(0)[columns] for each in (other, right))
    return _posterior_of_share(np.log(wrong_density) - np.log(right_density))


def _posterior_of_share(log_ratios: Floats) -> Floats:
    """Which of some values come from the other of two densities, where the share that does is not known.

    None, where it would be most of them: then the densities are wrong, as those of scores that a few images gave.
    """
    posterior = np.full(len(log_ratios), 0.01)
    for _ in range(_EM_STEPS):
        share = np.clip(posterior.mean(), 1e-9, 1 - 1e-9)
        posterior = expit(log_ratios + np.log(share / (1 - share)))
    return posterior if posterior.mean() < _MOST else np.zeros_like(posterior)


_FEWEST_FULL, _MOST_FULL = 20, 4000  # rows with all labels, to learn from them what labels say of each other


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
    sample_weights: ArrayLike | None = None,
    process: Process = "auto",
    asked: ArrayLike | None = None,
    seed: int = 0,
) -> Judgement:
    """Calibrated probabilities of all cells, from scores of models that were not fitted to the rows they score.

    What follows from how labels came to be known, see `onepair.probability.infer`, is corrected by rows that have
    all labels, the more, the more of them there are; what the observed labels of a row say of its other labels is
    learned from them.

    Args:
        observed: (N, L), the labels to complete and to check.
        scores: (N, L).
        sample: (M, L), labels of other rows, drawn like these, all known or some.
        sample_scores: (M, L), or (K, M, L) by several models.
        sample_weights: (M,), the inverse of each row's chance to be in the sample, if they are not equal.
        process, asked: how the observed labels came to be known, as for `recognise`.
        seed: of the labels of the sample that are hidden for learning.
    """
    matrix, known = check_scores(scores, observed)
    rows = len(known)
    labels, by_model = known[:0], np.empty((1, 0, known.shape[1]))
    if sample is not None and sample_scores is not None:
        labels, by_model = validate_labels(sample), np.asarray(sample_scores, np.float64)
        by_model = by_model if by_model.ndim == 3 else by_model[None]
    stands_for = np.ones(len(labels)) if sample_weights is None else np.asarray(sample_weights, np.float64)
    number = np.arange(len(labels))
    asked_for = np.zeros(known.shape, bool) if asked is None else np.asarray(asked, bool)
    everything = np.concatenate([known, labels])
    inference = infer(
        np.concatenate([matrix, by_model[number % len(by_model), number]]),
        everything,
        process=process,
        asked=np.concatenate([asked_for, np.zeros(labels.shape, bool)]),
        counted=rows,
        weights=np.concatenate([np.ones(rows), stands_for]),
    )
    unknown = inference.probabilities[:rows]
    full, which = (labels != UNKNOWN).all(1), "validation images"
    if sample is None:  # rows that were looked at in full, among those that are to be judged
        own = np.flatnonzero((inference.observation.ignorable & (known != UNKNOWN)).all(1))
        if len(own) > _MOST_FULL:
            own = np.sort(np.random.default_rng(seed).choice(own, _MOST_FULL, replace=False))
        labels, by_model, stands_for = known[own], matrix[None, own], np.ones(len(own))
        full, which = np.ones(len(own), bool), "images"
    basis = f"observed labels alone, {inference.observation.assumption}"
    if full.sum() >= _FEWEST_FULL and (labels[full] == POSITIVE).any():
        combination = fit_combination(
            by_model[:, full],
            labels[full],
            inference,
            observed=everything,
            weights=stands_for[full],
            random=np.random.default_rng(seed),
        )
        unknown = combination(matrix, known, inference.observation.of(np.arange(rows)))
        basis = f"full labels of {full.sum():,} {which}"
    logits, drawn = inference.platt.logits(matrix), inference.observation.max_shown
    probabilities = with_observed(known, unknown, logits, drawn=drawn)
    return Judgement(probabilities, inference.missing, inference.total, basis)
