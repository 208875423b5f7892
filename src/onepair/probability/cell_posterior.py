"""How probable it is that a label is positive, or that an observed one is wrong: fitted to some rows, for any rows."""

import math
from dataclasses import dataclass, replace
from statistics import NormalDist
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.special import expit, logit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels, validate_labels
from onepair.metrics import Floats
from onepair.probability.calibration import UNTOLD, Correction, Platt, check_scores, fit_lines
from onepair.probability.infer import Inference, infer
from onepair.probability.intervals import Interval, wilson
from onepair.probability.label_dependence import LabelDependence, fit_label_dependence
from onepair.probability.observation import Mask, Observation, Process
from onepair.probability.scenarios import RankBins

_EM_STEPS, _ROUNDS = 200, 4
_HARDLY_ANY = 0.5  # wrong labels, that lines need not be fitted anew for
_MOST = 0.5  # of all labels, that people do not get wrong
_LEAST_WRONG = 0.005  # of all labels, whatever they look like: people err
_FEWEST_FULL, _MOST_FULL = 20, 4000  # rows with all labels, to learn from them what labels say of each other


class _WrongShare(NamedTuple):
    """Of observed labels of one value: how wrong ones differ from right ones, and how many are wrong."""

    offset: Floats  # (L,), log ratio of the densities' sums over all rows, by which they are normalised
    log_odds: float  # of the share that is wrong; -inf if none is
    trusted: float = 1.0  # how much of it remains, as some labels that are right look as if they were wrong


@dataclass(frozen=True, eq=False)
class LabelNoise:
    """How probable observed labels are to be wrong.

    An observed label is taken to be wrong with a chance that is the same for all, and a wrong one to score like any
    other label of its true kind. The chance is that of highest likelihood, which is careful: where no label is wrong
    hardly any is thought to be, and where some are, only the clearest.
    """

    lines: Platt  # how positives and negatives score, over the logits of the process
    max_shown: int  # how many positives of a row are shown at most; 0: any
    positive: _WrongShare
    negative: _WrongShare

    def __call__(self, observed: Labels, unknown: Floats, logits: Floats) -> Floats:
        """Complete the probabilities of unknown cells (N, L) by those of observed cells to be truly positive.

        Args:
            observed: (N, L).
            unknown: (N, L), probabilities of unknown cells to be positive.
            logits: (N, L), of the probability to be positive by the score alone.
        """
        probabilities, moved = unknown.copy(), self.lines.logits(logits)
        for value, share in ((POSITIVE, self.positive), (NEGATIVE, self.negative)):
            cells = observed == value
            ratios = _log_ratios(moved, value, self.max_shown)[cells] - share.offset[np.nonzero(cells)[1]]
            wrong = share.trusted * expit(ratios + share.log_odds)
            probabilities[cells] = 1 - wrong if value == POSITIVE else wrong
        return probabilities

    def by_score(self, platt: Platt) -> tuple[Platt, Platt]:
        """Lines of the probability to be wrong by the score alone, of positives and of negatives.

        Args:
            platt: from scores to the logits that this was fitted to.
        """
        slope, intercept = self.lines.slope * platt.slope, self.lines.slope * platt.intercept + self.lines.intercept
        positive, negative = (share.log_odds - share.offset for share in (self.positive, self.negative))
        return Platt(-slope, positive - intercept), Platt(slope, negative + intercept)


def fit_label_noise(
    observed: Labels,
    unknown: Floats,
    logits: Floats,
    *,
    max_shown: int,
    right: Labels | None = None,
    right_logits: Floats | None = None,
) -> LabelNoise:
    """Fit the shares of observed labels that are wrong; the arguments are those of `LabelNoise`.

    `right` (M, L) are labels that are known to be right, shown as the others are. As many of them as look wrong are
    expected to look so among the others, too.

    Lines are fitted to wrong labels as well, and so explain some of them; once these are thought to be wrong, lines
    without them bring out others.
    """
    lines, bins = Platt(np.ones(observed.shape[1]), np.zeros(observed.shape[1])), None
    for _ in range(_ROUNDS):
        moved = lines.logits(logits)
        shares = [_fit_share(observed == value, moved, value, max_shown) for value in (POSITIVE, NEGATIVE)]
        noise = LabelNoise(lines, max_shown, *shares)
        probabilities = noise(observed, unknown, logits)
        if np.abs(probabilities - (observed == POSITIVE))[observed != UNKNOWN].sum() < _HARDLY_ANY:
            break
        bins = bins or RankBins(logits)
        cells = bins.sums(np.ones(logits.shape))
        lines = fit_lines(bins.scores, bins.sums(probabilities) / cells, cells)
    if right is None or right_logits is None or len(right) == 0:
        return noise
    moved = noise.lines.logits(right_logits)
    trusted = [
        _trusted(share, right == value, moved, value, max_shown)
        for share, value in ((noise.positive, POSITIVE), (noise.negative, NEGATIVE))
    ]
    return replace(noise, positive=trusted[0], negative=trusted[1])


def _trusted(share: _WrongShare, cells: Mask, logits: Floats, value: int, max_shown: int) -> _WrongShare:
    """The same share, less what labels (M, L) of this value look like that are right."""
    ratios = _log_ratios(logits, value, max_shown)[cells] - share.offset[np.nonzero(cells)[1]]
    if len(ratios) == 0 or share.log_odds == -np.inf:
        return share
    looks_wrong, also = (float(expit(each)) for each in (share.log_odds, _share_log_odds(ratios)))
    error = math.sqrt((also + 1 / len(ratios)) / len(ratios))
    normal, off = NormalDist(), (looks_wrong - also) / error
    remains = error * (off * normal.cdf(off) + normal.pdf(off))  # the mean of what is above 0
    return share._replace(trusted=min(remains / looks_wrong, 1.0))


def _log_ratios(logits: Floats, value: int, max_shown: int) -> Floats:
    """The log ratio (N, L) of wrong to right labels of this value among cells of these logits, up to its offset."""
    wrong, right = _densities(logits, value, max_shown)
    ratios: Floats = np.log(wrong) - np.log(right)
    return ratios


def _densities(logits: Floats, value: int, max_shown: int) -> tuple[Floats, Floats]:
    positive = np.clip(expit(logits), 1e-9, 1 - 1e-9)
    if value == NEGATIVE:
        return positive, 1 - positive
    shown: Floats = np.ones((len(logits), 1))
    if max_shown:  # the more positives a row has, the seldomer it shows this one
        shown = np.minimum(max_shown / (1 + positive.sum(1, keepdims=True) - positive), 1)
    return 1 - positive, positive * shown


def _fit_share(cells: Mask, logits: Floats, value: int, max_shown: int) -> _WrongShare:
    """Expectation and maximisation in turn, for the share of two densities that some cells come from.

    None is wrong where it would be most of them: then the densities are wrong, as those of scores that a few images
    gave.
    """
    wrong, right = _densities(logits, value, max_shown)
    offset = np.log(wrong.sum(0)) - np.log(right.sum(0))
    ratios = np.log(wrong[cells]) - np.log(right[cells]) - offset[np.nonzero(cells)[1]]
    if len(ratios) == 0:
        return _WrongShare(offset, float(logit(_LEAST_WRONG)))
    log_odds = _share_log_odds(ratios)
    return _WrongShare(offset, log_odds if expit(log_odds) < _MOST else -np.inf)


def _share_log_odds(ratios: Floats) -> float:
    """The log odds of the share of highest likelihood, by log ratios (n,) of two densities."""
    log_odds = float(logit(0.01))
    for _ in range(_EM_STEPS):
        log_odds = float(logit(np.clip(expit(ratios + log_odds).mean(), _LEAST_WRONG, 1 - 1e-9)))
    return log_odds


_TRUSTED_ROWS = 100.0  # looked at in full, for half of what they say of each class
_FOLDS, _COPIES = 4, 3  # of rows with all labels, hidden in another way each
_WORTH_A_LOOK = 0.05  # what is said of cells that what is said of suggestions is corrected by
_FITTED_CELLS = 500_000  # at most, that two numbers are fitted to
_SUREST = 12.0  # beyond this logit a class says no more


@dataclass(frozen=True, eq=False)
class SharedOrder:
    """Probabilities that lean on the line of all classes, as far as little is known of how classes differ.

        logit P = α (c + w (m - c)) + β

    c is the line of all classes over the raw score, so that w = 0 ranks as the raw scores do; m is the logit of what
    the process says of the cell, with the line of its class and the other labels of its row. α and β keep the expected
    number of positives, and what is said of the first cells is a mean over classes: the highest of many estimates is
    too high.

    How often a class is tagged, and how often it is there, look alike: only the share of observed positives at the top
    of the scores tells them apart, which no chance to be observed lies below. Say s of the best tops is observed: then
    w = s² / (s² + (1-s)²). Where a few positives of a row are drawn, that share says nothing of the class. Known cells
    that were not observed for what they are say more, those of 100 rows half.
    """

    common: Platt
    weight: float  # w
    scale: Platt  # of one class: α and β
    correction: Correction = UNTOLD  # by what cells turned out to be

    def __call__(self, scores: Floats, probabilities: Floats) -> Floats:
        """Probabilities (N, L) of unknown cells, from those by the process (N, L)."""
        return np.asarray(expit(self.logits(scores, probabilities)))

    def logits(self, scores: Floats, probabilities: Floats) -> Floats:
        """Their log odds."""
        return self.correction(self.scale.logits(self._mixed(scores, probabilities)))

    def _mixed(self, scores: Floats, probabilities: Floats) -> Floats:
        common = self.common.logits(scores)
        own = np.clip(logit(np.clip(probabilities, 1e-9, 1 - 1e-9)), -_SUREST, _SUREST)
        mixed: Floats = common + self.weight * (own - common)
        return mixed

    @classmethod
    def fit(cls, scores: Floats, labels: Labels, probabilities: Floats, lines: Platt, weight: float) -> "SharedOrder":
        """Fit to the unknown cells of rows (N, L).

        Args:
            scores, labels: (N, L).
            probabilities: (N, L), of unknown cells by the process.
            lines: of single classes; that of all is their mean over observed positives.
            weight: w.
        """
        positives = (labels == POSITIVE).sum(0) + 1e-9
        common = Platt(
            *(np.full(len(each), positives @ each / positives.sum()) for each in (lines.slope, lines.intercept))
        )
        order = cls(common, weight, Platt(np.ones(1), np.zeros(1)))
        cells = np.flatnonzero(labels == UNKNOWN)
        if len(cells) == 0 or common.slope[0] <= 0:  # nothing to order, or the scores mean nothing
            return order if len(cells) == 0 else replace(order, weight=1.0)
        cells = cells[:: -(-len(cells) // _FITTED_CELLS)]
        rows = np.unique(cells // labels.shape[1])
        indices = np.searchsorted(rows, cells // labels.shape[1]), cells % labels.shape[1]
        mixed = order._mixed(scores[rows], probabilities[rows])[indices][:, None]
        targets = probabilities.ravel()[cells][:, None]
        return replace(order, scale=fit_lines(mixed, targets, np.ones(targets.shape)))


_FEWEST = 10  # observed positives that tell of a class, and a tenth of them at least


def _best_tops(scores: Floats, labels: Labels) -> tuple[Floats, Floats, float]:
    """Observed positives and cells at the best top of each class, (L,), and their share over all classes.

    No smaller share of positives is observed.
    """
    tops = np.array([_best_top(*column) for column in zip(scores.T, labels.T, strict=True)], np.float64)
    found, cells = tops.T
    unknown = (labels == UNKNOWN).sum(0)
    return (
        found,
        cells,
        float(unknown @ found / max(unknown @ cells, 1)),
    )  # the top of a class that is all known is pure


def _best_top(scores: Floats, labels: Labels) -> tuple[int, int]:
    """How many positives are observed among how many cells at the top; known negatives are left out."""
    candidates = labels != NEGATIVE
    order = np.argsort(-scores[candidates], kind="stable")
    falling, found = scores[candidates][order], np.cumsum(labels[candidates][order] == POSITIVE)
    if len(found) == 0 or found[-1] == 0:
        return 0, 0
    bound = wilson(found, np.arange(1, len(found) + 1))[0]
    # Of many cuts some look good by chance, the smallest most of all.
    bound[found < min(max(_FEWEST, found[-1] / 10), found[-1])] = 0
    bound[:-1][falling[:-1] == falling[1:]] = 0  # no top ends between cells of one score
    best = int(np.argmax(bound))
    return int(found[best]), best + 1


def _class_weight(scores: Floats, labels: Labels, everything: Labels, observation: Observation) -> float:
    """How far what is thought of single classes is followed, from 0 to 1."""
    rows = (observation.ignorable & ~observation.asked & (everything != UNKNOWN)).sum() / labels.shape[1]
    by_rows, share = rows / (rows + _TRUSTED_ROWS), 0.0 if observation.max_shown else _best_tops(scores, labels)[2]
    identified = share**2 / (share**2 + (1 - share) ** 2)
    return float(1 - (1 - by_rows) * (1 - identified))


@dataclass(frozen=True, eq=False)
class CellPosterior:
    """What was learned from some rows on how probable labels are, to be applied to any rows."""

    inference: Inference  # of the rows that it was fitted to
    dependence: LabelDependence | None  # what labels say of each other, where rows with all labels tell
    order: SharedOrder
    noise: LabelNoise
    lists: frozenset[bytes]  # the lists of classes by which some rows were looked at
    basis: str  # a few words on what this rests on

    def __call__(self, scores: ArrayLike, labels: Labels, asked: Mask) -> Floats:
        """The probabilities (n, L) to be truly positive, given all that is known, the cell's own label included."""
        matrix = np.asarray(scores, np.float64)
        unknown = self.order(matrix, self._of_unknown(matrix, labels, asked))
        found = self.noise(labels, unknown, self.inference.platt.logits(matrix))
        return np.where(asked & (labels != UNKNOWN), labels == POSITIVE, found)  # a person's answer is not in doubt

    def _of_unknown(self, scores: Floats, labels: Labels, asked: Mask) -> Floats:
        """The same of unknown cells by the process; those of others mean nothing."""
        inference, observation = self.inference, self._observation(labels, asked)
        if self.dependence is not None:
            return self.dependence(scores, labels, observation)
        return inference.posterior(scores, labels, observation)

    def _observation(self, labels: Labels, asked: Mask) -> Observation:
        """How the labels of these rows came to be known, by the process of those that this was fitted to."""
        fitted, known_asked = self.inference.observation, asked & (labels != UNKNOWN)
        by_list = np.array([each in self.lists for each in _patterns(labels, known_asked)])
        ignorable = known_asked | by_list[:, None] | fitted.ignorable.all()
        return Observation(fitted.sentence, fitted.max_shown, ignorable, known_asked, fitted.has_empty_rows)


def fit_cell_posterior(
    observed: ArrayLike,
    scores: ArrayLike,
    *,
    sample: ArrayLike | None = None,
    sample_scores: ArrayLike | None = None,
    sample_weights: ArrayLike | None = None,
    process: Process = "auto",
    asked: ArrayLike | None = None,
    seed: int = 0,
) -> CellPosterior:
    """Fit calibrated probabilities of all cells to scores of models that were not fitted to the rows they score.

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
    observation = inference.observation.of(np.arange(rows))
    full, which = (labels != UNKNOWN).all(1), "validation images"
    if sample is None:  # rows that were looked at in full, among those that are to be judged
        own = np.flatnonzero((observation.ignorable & (known != UNKNOWN)).all(1))
        if len(own) > _MOST_FULL:
            own = np.sort(np.random.default_rng(seed).choice(own, _MOST_FULL, replace=False))
        labels, by_model, stands_for = known[own], matrix[None, own], np.ones(len(own))
        full, which = np.ones(len(own), bool), "images"
    dependence, unknown = None, inference.probabilities[:rows]
    basis = f"observed labels alone, {observation.assumption}"
    if full.sum() >= _FEWEST_FULL and (labels[full] == POSITIVE).any():
        dependence = fit_label_dependence(
            by_model[:, full],
            labels[full],
            inference,
            observed=everything,
            weights=stands_for[full],
            random=np.random.default_rng(seed),
        )
        unknown = dependence(matrix, known, observation)
        basis = f"full labels of {full.sum():,} {which}"
    weight = _class_weight(matrix, known, everything, inference.observation)
    order = SharedOrder.fit(matrix, known, unknown, inference.platt, weight)
    answered = asked_for & (known != UNKNOWN)
    evidence = [_evidence_of_answers(matrix, known, answered, inference, dependence, order)]
    right, right_scores = labels[:0], matrix[:0]
    if dependence is not None:
        right_scores = by_model[0, full]
        right = observation.hide(
            labels[full], inference.in_any_row(right_scores), inference.rates, np.random.default_rng(seed)
        )
        evidence.append(
            _evidence_of_rows(by_model[:, full], labels[full], stands_for[full], inference, everything, order, seed)
        )
    order = replace(order, correction=Correction.fit(*map(np.concatenate, zip(*evidence, strict=True))))
    noise = fit_label_noise(
        np.where(answered, UNKNOWN, known).astype(np.int8),
        np.where(answered, known == POSITIVE, order(matrix, unknown)),
        inference.platt.logits(matrix),
        max_shown=observation.max_shown,
        right=right,
        right_logits=inference.platt.logits(right_scores),
    )
    by_list = observation.ignorable.all(1) & (known == UNKNOWN).any(1)
    lists = frozenset(_patterns(known[by_list], observation.asked[by_list]))
    return CellPosterior(inference, dependence, order, noise, lists, basis)


Told = tuple[Floats, Mask, Floats]  # log odds that were said of cells (n,), what they are, and their weights


def _evidence_of_answers(
    scores: Floats,
    labels: Labels,
    answered: Mask,
    inference: Inference,
    dependence: LabelDependence | None,
    order: SharedOrder,
) -> Told:
    """What was said of the cells that were asked for, had they not been answered."""
    rows = np.flatnonzero(answered.any(1))
    scores, labels, answered, of_rows = scores[rows], labels[rows], answered[rows], inference.observation.of(rows)
    before = np.where(answered, UNKNOWN, labels).astype(np.int8)
    open_ = replace(of_rows, ignorable=of_rows.ignorable & ~answered, asked=np.zeros(labels.shape, bool))
    unknown = (inference.posterior if dependence is None else dependence)(scores, before, open_)
    return _worth_a_look(order.logits(scores, unknown)[answered], labels[answered] == POSITIVE, np.ones(answered.sum()))


def _evidence_of_rows(
    scores: Floats,
    labels: Labels,
    weights: Floats,
    inference: Inference,
    everything: Labels,
    order: SharedOrder,
    seed: int,
) -> Told:
    """What was said of cells of rows with all labels, hidden as others are, by what others of them tell."""
    random, evidence = np.random.default_rng(seed), []
    parts = np.array_split(random.permutation(len(labels)), _FOLDS)
    for number, rest in enumerate(parts):
        fitted = np.concatenate([*parts[:number], *parts[number + 1 :]])
        if not (labels[fitted] == POSITIVE).any():
            continue
        dependence = fit_label_dependence(
            scores[:, fitted], labels[fitted], inference, observed=everything, weights=weights[fitted], random=random
        )
        for _ in range(_COPIES):
            own = scores[random.integers(len(scores), size=len(rest)), rest]
            shown = inference.observation.hide(labels[rest], inference.in_any_row(own), inference.rates, random)
            nothing = np.zeros(shown.shape, bool)
            unknown = dependence(own, shown, replace(inference.observation, ignorable=nothing, asked=nothing))
            hidden = shown == UNKNOWN
            stands_for = np.broadcast_to((weights[rest] / weights.mean() / _COPIES)[:, None], shown.shape)
            evidence.append((order.logits(own, unknown)[hidden], labels[rest][hidden] == POSITIVE, stands_for[hidden]))
    return _worth_a_look(*map(np.concatenate, zip(*evidence, strict=True)))


def _worth_a_look(logits: Floats, positive: Mask, weights: Floats) -> Told:
    high = logits >= logit(_WORTH_A_LOOK)
    return logits[high], positive[high], weights[high]


def _patterns(labels: Labels, asked: Mask) -> list[bytes]:
    """Of each row which labels are known that nobody asked for."""
    return [row.tobytes() for row in np.packbits((labels != UNKNOWN) & ~asked, axis=1)]


@dataclass(frozen=True, eq=False)
class Judgement:
    """What is thought of every cell of a label matrix."""

    probabilities: Floats  # (N, L), to be truly positive, given all that is known, the cell's own label included
    missing: Interval  # positives of each class among the unknown cells
    total: Interval  # of all classes
    basis: str  # a few words on what this rests on
    correction: Correction  # of probabilities of unknown cells, by what others turned out to be


def judge(observed: ArrayLike, scores: ArrayLike, **options: Any) -> Judgement:
    """Calibrated probabilities of all cells of one matrix; the arguments are those of `fit_cell_posterior`."""
    fitted = fit_cell_posterior(observed, scores, **options)
    known, asked = validate_labels(observed), options.get("asked")
    asked_for = np.zeros(known.shape, bool) if asked is None else np.asarray(asked, bool)
    inference = fitted.inference
    return Judgement(
        fitted(scores, known, asked_for), inference.missing, inference.total, fitted.basis, fitted.order.correction
    )
