"""How probable it is that a label is positive, given the scores and what is observed."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from onepair.labels import POSITIVE, UNKNOWN, validate_labels
from onepair.metrics import Floats
from onepair.probability.calibration import check_scores
from onepair.probability.combination import fit_combination
from onepair.probability.counting import Estimate
from onepair.probability.incomplete import infer
from onepair.probability.observation import Process
from onepair.probability.observed_wrong import with_observed

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

    What follows from how labels came to be known, see `onepair.probability.incomplete`, is corrected by rows that have
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
        own = np.flatnonzero((inference.observation.free & (known != UNKNOWN)).all(1))
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
    logits, drawn = inference.platt.logits(matrix), inference.observation.drawn
    probabilities = with_observed(known, unknown, logits, drawn=drawn)
    return Judgement(probabilities, inference.missing, inference.total, basis)
