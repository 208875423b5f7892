"""What could have been observed as it was: how many labels are missing, and how much sooner clear ones are seen.

Positives alone hardly tell how many others there are: few labels that are seldom overlooked, or many of which the clear
ones are seen, look alike. So lines are fitted for each of a grid of both numbers, and each weighs as much as what is
thought of these numbers beforehand and how well it explains what is shown, taken with caution.
"""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.special import expit, logit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.calibration import Platt, fit_lines
from onepair.probability.observation import Mask, Observation, Rates, clearness

_SINGLE = 64  # highest scores of a class that have a bin of their own each
_GROWTH = 0.03  # of the bins below, as a share of their rank


class RankBins:
    """Bins of rank, the narrower the higher: rare classes live among the highest scores of their columns."""

    scores: Floats  # (B, L), the mean of each bin

    def __init__(self, scores: Floats) -> None:
        rows, classes = scores.shape
        rank_bin = _bins_of_ranks(rows)
        self._cells = np.empty((rows, classes), np.int32)
        for column, values in enumerate(scores.T):
            order = np.argsort(-values, kind="stable")
            self._cells[order, column] = rank_bin * classes + column
        self.shape = (int(rank_bin[-1]) + 1, classes)
        self.scores = self.sums(scores) / np.bincount(rank_bin)[:, None]

    def sums(self, values: NDArray[Any]) -> Floats:
        """Sums (B, L) of the values (N, L) of each bin's cells."""
        numbers = values.ravel().astype(np.float64)
        flat = np.bincount(self._cells.ravel(), numbers, self.shape[0] * self.shape[1])
        return np.asarray(flat, np.float64).reshape(self.shape)


def _bins_of_ranks(rows: int) -> NDArray[np.intp]:
    """The bin of each rank, (rows,).

    >>> _bins_of_ranks(3)
    array([0, 1, 2])
    """
    starts = list(range(min(rows, _SINGLE)))
    while (following := starts[-1] + max(1, int(_GROWTH * (starts[-1] - _SINGLE)))) < rows:
        starts.append(following)
    bins: NDArray[np.intp] = np.searchsorted(starts, np.arange(rows), side="right") - 1
    return bins


_POOLED = 10.0  # cells of all classes together that the rates of every class see beside their own
HIGHEST_RATE = 1 - 1e-6


class BinnedCounts:
    """Cells counted by score, (B, L) each."""

    def __init__(self, scores: Floats, labels: Labels, observation: Observation, weights: Floats | None = None) -> None:
        self.bins, self.rows = RankBins(scores), len(scores)
        bound, sums = ~observation.ignorable, self.bins.sums
        self.positive, self.negative = (sums(bound & (labels == value)) for value in (POSITIVE, NEGATIVE))
        self.unknown = sums(bound & (labels == UNKNOWN))
        self.known_positive = sums(labels == POSITIVE)
        self.weights = sums(labels != UNKNOWN) + self.unknown  # free unknown cells say nothing
        fair = (observation.ignorable & ~observation.asked) * (1.0 if weights is None else weights[:, None])
        self.sampled_positive = sums(fair * (labels == POSITIVE))
        self.sampled = self.sampled_positive + sums(fair * (labels == NEGATIVE))

    @property
    def negatives_share(self) -> float:
        """The share of the cells not shown to be positive that are known to be negative."""
        return float(self.negative.sum() / max((self.negative + self.unknown).sum(), 1))

    def lines(self, hidden: Floats, start: Platt | None = None) -> Platt:
        """Lines of least log loss, if so many of the unknown cells (B, L) are positive."""
        targets = ratio(self.known_positive + hidden, self.weights)
        return fit_lines(self.bins.scores, targets, self.weights, start)

    def negative_rates(self, hidden: Floats) -> Floats:
        """The share of negatives (L,) that is observed, if so many unknown cells (B, L) are positive; rare classes' are
        drawn to that of all.
        """
        known, cells = self.negative.sum(0), (self.negative + self.unknown - hidden).sum(0)
        together = known.sum() / max(cells.sum(), 1e-9)
        return np.asarray(np.minimum((known + _POOLED * together) / (cells + _POOLED), HIGHEST_RATE))


def ratio(part: Floats, whole: Floats) -> Floats:
    """Nothing of nothing is nothing."""
    share: Floats = np.divide(part, whole, out=np.zeros_like(part), where=whole > 0)
    return share


_SALIENCES, _SALIENCE_SD = (0.0, 0.3, 0.6), 0.5  # κ, and its half-normal prior
# Of the logarithm of how many labels are missing for each that is shown, or for each row that may have more.
_SPACING, _FARTHEST = 1.0, (-6.0, 4.0)
_MISSING_SD = 1.0  # of its normal prior about 0
_BELIEVED, _BELIEVED_OF_ROWS = 100.0, 60.0  # shown positives, that the shape of lines is believed of, and that what
# rows show beside it is: more repeat only what lines are wrong in
_ENOUGH_ROWS = 500  # to fit to; fewer, drawn from more, are believed less
_CLASS_RATE_SD = 0.6  # of a class's chance to be observed about that of all, in log odds
_LIKE_NEGATIVES_SD = 1.0  # of the chance of positives to be observed about that of negatives, where any is
_MOST_POSITIVE = 0.8  # of the unknown cells
_STEPS, _LAST_STEPS = 4, 25  # of expectation and maximisation from where the point before ended, and in the middle
_SURE, _FINER, _ROUNDS = 0.7, 0.5, 4  # a point of so much weight has others looked at, so much closer to it
_STOPPED, _PASSED = 0.3, 1.2  # rows that a chance to have been allowed no more sees beside its own


class Scenario(NamedTuple):
    """Lines that go with some number of missing labels and some salience."""

    lines: Platt  # probability of a cell to be positive by its score alone, were its row any row
    rates: Rates
    posterior: Floats  # (N, L), of unknown cells to be positive; what was answered of those asked for; 0 elsewhere
    log_weight: float


class Scenarios(NamedTuple):
    """The grid, and one scenario in its middle."""

    grid: list[Scenario]
    weights: Floats  # (S,), how probable each is
    middle: Scenario

    @property
    def posterior(self) -> Floats:
        """That of unknown cells (N, L), with all that is not known averaged out."""
        return np.asarray(sum(weight * each.posterior for weight, each in zip(self.weights, self.grid, strict=True)))

    def missing(self, unknown: Mask) -> Floats:
        """Expected positives (S, L) among these cells (N, L)."""
        return np.stack([(each.posterior * unknown).sum(0) for each in self.grid])


def fit_scenarios(scores: Floats, labels: Labels, observation: Observation, every: BinnedCounts) -> Scenarios:
    """Scenarios of rows whose labels are known, or not, for what they are.

    Args:
        scores, labels: (N, L).
        observation: of these rows.
        every: the cells of these rows and perhaps of more, which tell how classes differ.
    """
    # Rows may show fewer than the most because they have no more, all of them, or because they were allowed no more.
    exact = (True, False) if observation.max_shown > 1 else (False,)
    searches = [_Search(scores, labels, observation, every, exact=each) for each in exact]
    around, spacing, near = 0.0, _SPACING, None
    for number in range(_ROUNDS):
        steps = np.arange(-3, 4) if number == 0 else np.array([-2.5, -1, -0.3, 0.3, 1, 2.5])
        logs, grid, owner = [], [], []
        for search in searches:
            for salience in _SALIENCES:
                found = near
                for log in np.clip(around + spacing * steps, *_FARTHEST).tolist():
                    found = search.fit(found, float(np.exp(log)), salience)
                    logs.append(log)
                    grid.append(found)
                    owner.append(search)
        values = np.array([each.log_weight for each in grid])
        weights = np.exp(values - values.max())
        weights /= weights.sum()
        best = int(np.argmax(weights))
        if weights[best] < _SURE:
            break
        around, spacing, near = logs[best], _FINER * spacing, grid[best]
    salience = float(weights @ [each.rates.salience for each in grid])
    middle = owner[best].fit(grid[best], float(np.exp(weights @ logs)), salience, _LAST_STEPS)
    return Scenarios(grid, weights, middle)


class _Search:
    """Expectation and maximisation for lines and rates that go with some number of missing labels."""

    def __init__(
        self, scores: Floats, labels: Labels, observation: Observation, every: BinnedCounts, *, exact: bool
    ) -> None:
        # What was asked for had not been observed before, whatever it turned out to be.
        self.scores, self.every, self.asked = scores, every, observation.asked
        self.answers, self.labels = labels == POSITIVE, np.where(self.asked, UNKNOWN, labels).astype(np.int8)
        nothing = np.zeros(labels.shape, bool)
        self.observation = replace(observation, ignorable=observation.ignorable & ~self.asked, asked=nothing)
        labels, observation = self.labels, self.observation
        self.cells = BinnedCounts(scores, labels, observation)
        self.start = every.lines(np.zeros(every.bins.shape))  # if unknown means negative
        self.unknown = ~observation.ignorable & (labels == UNKNOWN)
        self.open = self.unknown.any(0)  # classes
        # Where no positive is shown, as many as rows looked at in full have.
        in_full = every.sampled_positive.sum() / max(every.sampled.sum(), 1.0) * self.unknown.sum()
        self.positives = max(float(self.cells.positive[:, self.open].sum() or in_full), 1.0)
        self.exact = exact
        # Where negatives are known as well, they tell of the lines at any height, and the shape matters less.
        told = self.cells.negatives_share
        self.salience_sd = _SALIENCE_SD * max(1 - told, 0.1)  # who notes what is absent looks for it
        believed = (_BELIEVED_OF_ROWS if observation.max_shown else _BELIEVED) / self.positives
        believed = min(believed, 1.0) * min(len(scores) / min(every.rows, _ENOUGH_ROWS), 1.0)
        self.power = told + (1 - told) * believed
        shown = ((labels == POSITIVE) & ~observation.ignorable).sum(1)
        # Where a row shows some of its positives, each row that may have more is thought to have about one.
        bound = self.unknown.any(1) & (shown >= (observation.max_shown if exact else 1))
        self.usual = max(float(bound.sum()), 1.0) if observation.max_shown else self.positives
        steps = np.arange(observation.max_shown)[:, None]
        self.stops_at = self.unknown.any(1) & (shown == steps)  # (k, N)
        self.reached = (self.unknown.any(1) & (shown >= steps)).sum(1)

    def fit(self, near: Scenario | None, missing: float, salience: float, steps: int = _STEPS) -> Scenario:
        """Lines and rates for so many missing labels to each that is shown, from those of a point nearby."""
        cells, observation = self.cells, self.observation
        wanted = min(missing * self.usual, _MOST_POSITIVE * cells.unknown.sum())
        target, outside = cells.known_positive[:, self.open].sum() + wanted, np.zeros(cells.bins.shape)
        if near is None:
            hidden = np.zeros(cells.bins.shape)
            lines, positive = self.start, np.full(self.labels.shape[1], 0.9)
            stop = np.append(np.full(observation.max_shown, 0.0 if self.exact else 0.2), 1.0)
        else:
            lines, (positive, _, stop, _) = near.lines, near.rates
            hidden = cells.bins.sums(near.posterior)
            positive = positive.copy()
        steps *= 2 if near is None else 1
        for step in range(steps + 1):
            lines = _with_positives(lines, cells, (cells.weights + outside) * self.open, target)
            drawn = np.zeros_like(positive) if observation.max_shown else positive
            rates = Rates(drawn, cells.negative_rates(hidden), stop, salience)
            explained = observation.explain(lines(self.scores), self.labels, rates)
            posterior = np.where(self.unknown, explained.posterior, 0)
            posterior[self.asked] = self.answers[self.asked]
            if step == steps:
                break
            hidden = cells.bins.sums(posterior)
            if not observation.has_empty_rows:  # for each row there are some that were left out
                left_out = 1 / explained.seen - 1
                outside = cells.bins.sums(np.broadcast_to(left_out[:, None], self.labels.shape))
            weights = cells.weights + outside
            lines = fit_lines(cells.bins.scores, ratio(cells.known_positive + hidden, weights), weights, self.start)
            if observation.max_shown == 0:
                clear = salience * clearness(lines(cells.bins.scores))
                positive[self.open] = _class_rates(cells, hidden, clear, positive, self.open)
            if not self.exact:
                stopped = (self.stops_at * explained.stopped).sum(1)
                stop = np.append((stopped + _STOPPED) / (self.reached + _STOPPED + _PASSED), 1.0)
        passed = self.reached - self.stops_at.sum(1)  # rows that were allowed more than so many
        likelihood = float(explained.log_likelihood.sum() + passed @ np.log(np.maximum(1 - stop[:-1], 1e-9)))
        chance = np.clip(explained.posterior[self.asked], 1e-6, 1 - 1e-6)
        answered = float(np.log(np.where(self.answers[self.asked], chance, 1 - chance)).sum())
        return Scenario(lines, rates, posterior, self._log_weight(likelihood, lines, rates, missing) + answered)

    def _log_weight(self, likelihood: float, lines: Platt, rates: Rates, missing: float) -> float:
        prior = (rates.salience / self.salience_sd) ** 2 + (np.log(missing) / _MISSING_SD) ** 2
        if self.cells.negative.any() and self.observation.max_shown == 0:
            weight = self.every.known_positive.sum(0) * self.open + 1e-9
            odds = logit(np.clip([np.average(each, weights=weight) for each in rates[:2]], 1e-6, HIGHEST_RATE))
            told = self.cells.negatives_share  # a few negatives say nothing of how often positives are noted
            prior += told * ((odds[0] - odds[1]) / _LIKE_NEGATIVES_SD) ** 2
        logits, every = lines.logits(self.every.bins.scores), self.every
        in_full = (every.sampled_positive * logits - every.sampled * np.logaddexp(0, logits)).sum()
        return float(self.power * likelihood + in_full - prior / 2)


def _with_positives(lines: Platt, cells: BinnedCounts, weights: Floats, target: float) -> Platt:
    """Lines moved by one step for all classes, to expect so many positives among cells of these weights (B, L)."""
    logits, step = lines.logits(cells.bins.scores), 0.0
    for _ in range(30):
        chance = expit(logits + step)
        off, slope = (weights * chance).sum() - target, (weights * chance * (1 - chance)).sum()
        step -= (move := float(np.clip(off / max(slope, 1e-9), -1, 1)))
        if abs(move) < 1e-4:
            break
    return Platt(lines.slope, lines.intercept + step)


def _class_rates(cells: BinnedCounts, hidden: Floats, clear: Floats, before: Floats, chosen: Mask) -> Floats:
    """The chance of the positives of some classes to be observed, those of rare ones drawn to that of all.

    Args:
        cells: the cells.
        hidden: (B, L), expected positives among the unknown ones.
        clear: (B, L), what salience adds to the log odds.
        before: (L,), a guess.
        chosen: (L,), which classes.
    """
    observed, clear, odds = cells.positive[:, chosen], clear[:, chosen], logit(before[chosen])
    positives = observed + hidden[:, chosen]
    of_all = float(odds.mean())
    for precision, steps in ((None, 6), (_CLASS_RATE_SD**-2, 3)):
        for _ in range(steps):
            chance = expit((of_all if precision is None else odds) + clear)
            off, slope = observed - positives * chance, positives * chance * (1 - chance)
            if precision is None:
                of_all += float(np.clip(off.sum() / max(slope.sum(), 1e-9), -1, 1))
            else:
                odds += np.clip((off.sum(0) - precision * (odds - of_all)) / (slope.sum(0) + precision), -1, 1)
    return np.asarray(np.minimum(expit(odds), HIGHEST_RATE))
