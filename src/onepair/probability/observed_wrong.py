"""How probable it is that an observed label is wrong."""

import numpy as np
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import fit_lines
from onepair.probability.tally import Tally

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
