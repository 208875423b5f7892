"""Probabilities from scores: calibrators by class, and how far off they are."""

from dataclasses import dataclass
from typing import Annotated, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from pydantic import BaseModel, Field, FiniteFloat
from scipy.special import expit, logit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels, validate_labels
from onepair.metrics import Floats
from onepair.probability.intervals import TAILS, Interval

# Lines of single classes scatter about the line of all with a standard deviation of ½: this is its inverse square.
LINE_PRECISION = 4.0
_CURVE_POSITIVES = 10.0  # a class with so many positives lies half-way between a curve of its own and its line
_TILT = 0.02  # of curves, in log odds: half of what one rises beside what the labels say
_NEWTON_STEPS, _HALVINGS = 100, 30
_SHIFT_SD, _REACH = 2.0, 1.5  # of how far log odds lie from the truth, and as far apart as they do so together
_DRAWS = 1_000  # for an interval
_GRID = np.arange(-6, 12.01, 0.25)  # of log odds


@dataclass(frozen=True, eq=False)
class Platt:
    """Probability = sigmoid(slope × score + intercept), with a line for every class (Platt 1999)."""

    slope: Floats  # (L,)
    intercept: Floats  # (L,)

    def __call__(self, scores: ArrayLike) -> Floats:
        """Probabilities (N, L) of scores (N, L)."""
        probabilities: Floats = expit(self.logits(scores))
        return probabilities

    def of_cells(self, scores: ArrayLike, columns: Indices) -> Floats:
        """Probabilities (n,) of single scores (n,), each of a class."""
        probabilities: Floats = expit(np.asarray(scores, np.float64) * self.slope[columns] + self.intercept[columns])
        return probabilities

    def logits(self, scores: ArrayLike) -> Floats:
        return np.asarray(scores, np.float64) * self.slope + self.intercept

    def scores_at(self, probability: float) -> Floats:
        """The scores (L,) from which on a class has at least this probability; infinite where no score has."""
        rising = self.slope > 0
        wanted = logit(probability) - self.intercept
        scores: Floats = np.divide(wanted, self.slope, out=np.full(len(wanted), np.inf), where=rising)
        return scores

    def of_classes(self, columns: Indices) -> "Platt":
        return Platt(self.slope[columns], self.intercept[columns])

    def to_dict(self) -> dict[str, Any]:
        return {"kind": "platt", "slope": self.slope.tolist(), "intercept": self.intercept.tolist()}


@dataclass(frozen=True, eq=False)
class Isotonic:
    """Probability = a rising curve of straight pieces for every class, level beyond its ends (Zadrozny, Elkan 2002)."""

    scores: tuple[Floats, ...]  # of each class the corners of its curve, ascending
    probabilities: tuple[Floats, ...]

    def __call__(self, scores: ArrayLike) -> Floats:
        """Probabilities (N, L) of scores (N, L)."""
        columns = zip(np.asarray(scores, np.float64).T, self.scores, self.probabilities, strict=True)
        return np.stack([np.interp(*column) for column in columns], axis=1)

    def of_cells(self, scores: ArrayLike, columns: Indices) -> Floats:
        """Probabilities (n,) of single scores (n,), each of a class."""
        values = np.asarray(scores, np.float64)
        probabilities = np.empty(len(values))
        for column in np.unique(columns).tolist():
            own = columns == column
            probabilities[own] = np.interp(values[own], self.scores[column], self.probabilities[column])
        return probabilities

    def scores_at(self, probability: float) -> Floats:
        """The scores (L,) from which on a class has at least this probability; infinite where no score has."""
        return np.array([_score_at(*curve, probability) for curve in zip(self.scores, self.probabilities, strict=True)])

    def of_classes(self, columns: Indices) -> "Isotonic":
        return Isotonic(*(tuple(each[i] for i in columns) for each in (self.scores, self.probabilities)))

    def to_dict(self) -> dict[str, Any]:
        corners = {"scores": self.scores, "probabilities": self.probabilities}
        return {"kind": "isotonic", **{name: [each.tolist() for each in values] for name, values in corners.items()}}


def _score_at(scores: Floats, probabilities: Floats, probability: float) -> float:
    """Where a rising curve first reaches a probability."""
    after = int(np.searchsorted(probabilities, probability))
    if after == len(scores):
        return np.inf
    ends = slice(max(after - 1, 0), after + 1)
    return float(np.interp(probability, probabilities[ends], scores[ends]))


Calibrator = Platt | Isotonic


class StoredPlatt(BaseModel):
    """The form of `Platt.to_dict`."""

    kind: Literal["platt"]
    slope: list[FiniteFloat]
    intercept: list[FiniteFloat]


class StoredIsotonic(BaseModel):
    """The form of `Isotonic.to_dict`."""

    kind: Literal["isotonic"]
    scores: list[list[FiniteFloat]]
    probabilities: list[list[FiniteFloat]]


StoredCalibrator = Annotated[StoredPlatt | StoredIsotonic, Field(discriminator="kind")]


def calibrator_from(stored: StoredPlatt | StoredIsotonic, *, classes: int) -> Calibrator:
    """The calibrator that `to_dict` described; a `ValueError` if it is not one of so many classes.

    Examples:
        >>> calibrator_from(StoredPlatt(kind="platt", slope=[2.0], intercept=[0.0]), classes=1)([[0.0]])
        array([[0.5]])
    """
    columns = [list(each) for name, each in stored if name != "kind"]
    if any(len(column) != classes for column in columns):
        raise ValueError(f"its calibration is not of {classes} classes")
    if isinstance(stored, StoredPlatt):
        return Platt(np.array(stored.slope), np.array(stored.intercept))
    scores, probabilities = (tuple(map(np.array, corners)) for corners in (stored.scores, stored.probabilities))
    for at, heights in zip(scores, probabilities, strict=True):
        if len(at) == 0 or len(at) != len(heights) or (np.diff(at) <= 0).any():
            raise ValueError("a curve of its calibration has no ascending corners")
    return Isotonic(scores, probabilities)


def fit_platt(scores: ArrayLike, labels: ArrayLike, weights: Floats | None = None) -> Platt:
    """Fit a line for every class on its known cells, drawn to a line that all classes share.

    A class with many known cells of both kinds goes its own way; a rare one stays with the others, and so does one
    whose scores separate its labels perfectly, where a line of its own would be infinitely steep.

    Args:
        scores: (N, L), of rows that the model was not fitted to.
        labels: (N, L); unknown cells are left out.
        weights: (N, L), how many cells each known one stands for; one by default.
    """
    matrix, known = check_scores(scores, labels)
    if not (known == POSITIVE).any() or not (known == NEGATIVE).any():
        raise ValueError("to calibrate, known positives and known negatives are needed")
    used = known != UNKNOWN if weights is None else np.where(known != UNKNOWN, weights, 0)
    return fit_lines(matrix, (known == POSITIVE).astype(np.float64), used)


def fit_isotonic(scores: ArrayLike, labels: ArrayLike, weights: Floats | None = None) -> Isotonic:
    """Fit a rising curve for every class on its known cells, drawn to its `fit_platt` the more, the rarer it is."""
    matrix, known = check_scores(scores, labels)
    used = known != UNKNOWN if weights is None else np.where(known != UNKNOWN, weights, 0)
    return fit_curves(matrix, (known == POSITIVE).astype(np.float64), used, fit_platt(matrix, known, weights))


def fit_curves(scores: Floats, targets: Floats, weights: NDArray[Any], lines: Platt) -> Isotonic:
    """Rising curves of least squares to targets (N, L) from 0 to 1 in cells of these weights, drawn to the lines."""
    from sklearn.isotonic import isotonic_regression

    curves = []
    for column, wanted, weight, line in zip(scores.T, targets.T, weights.T, lines(scores).T, strict=True):
        used = weight.astype(np.float64)
        share = (used * wanted).sum() / ((used * wanted).sum() + _CURVE_POSITIVES)
        if not used.any():
            share, used = 0.0, np.ones(len(column))  # nothing known: the line, at all scores
        cells = np.flatnonzero(used)
        at, block = np.unique(column[cells], return_inverse=True)  # equal scores have one probability
        mass = np.bincount(block, used[cells])
        means = np.bincount(block, (used * (share * wanted + (1 - share) * line))[cells]) / mass
        risen = isotonic_regression(means, sample_weight=mass)
        corner = np.ones(len(at), bool)  # within a level piece only the ends are needed
        corner[1:-1] = (np.diff(risen)[:-1] != 0) | (np.diff(risen)[1:] != 0)
        curves.append(_tilted(at[corner], risen[corner]))
    return Isotonic(*zip(*curves, strict=True))


def _tilted(at: Floats, heights: Floats) -> tuple[Floats, Floats]:
    """A curve whose level pieces rise by a little, too, and as far again beyond its ends.

    So of two scores the higher has the higher probability, and nothing is lost to whoever ranks by probabilities.
    """
    reach = at[-1] - at[0] or max(1.0, abs(at[0]))
    at, heights = np.array([at[0] - reach, *at, at[-1] + reach]), np.array([heights[0], *heights, heights[-1]])
    rise = 2 * (at - at[0]) / (at[-1] - at[0]) - 1
    return at, expit(logit(np.clip(heights, 1e-9, 1 - 1e-9)) + _TILT * rise)


def expected_calibration_error(probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 15) -> float:
    """How far probabilities are from the share of positives, over all known cells.

        ECE = Σ_b n_b/n |mean probability of b - share of positives in b|

    The bins hold equal numbers of cells: most probabilities of a multi-label classifier are near 0, where bins of
    equal width would hold nearly all of them.

    Examples:
        >>> expected_calibration_error([[0.8], [0.8], [0.8], [0.8]], [[1], [1], [1], [0]], bins=1)
        0.05
    """
    matrix, known = check_scores(probabilities, labels)
    cells = known != UNKNOWN
    if not cells.any():
        raise ValueError("no label is known, so there is nothing to compare probabilities with")
    given, positive = matrix[cells], known[cells] == POSITIVE
    parts = np.array_split(np.argsort(given, kind="stable"), min(bins, len(given)))
    gaps = [abs(given[part].sum() - positive[part].sum()) for part in parts]
    return round(float(sum(gaps) / len(given)), 12)


class Reliability(NamedTuple):
    """What came true of probabilities in equal steps from 0 to 1, without steps that hold too few cells."""

    predicted: Floats  # the mean probability of each
    observed: Floats  # the share of positives


def reliability(probabilities: ArrayLike, labels: ArrayLike, *, bins: int = 10, fewest: int = 20) -> Reliability:
    """Of the known cells of about one probability, how many are positive?

    Examples:
        >>> reliability([[0.8], [0.8], [0.8], [0.8]], [[1], [1], [1], [0]], fewest=4)
        Reliability(predicted=array([0.8]), observed=array([0.75]))
    """
    matrix, known = check_scores(probabilities, labels)
    cells = known != UNKNOWN
    given, positive = matrix[cells], known[cells] == POSITIVE
    step = np.minimum((given * bins).astype(int), bins - 1)
    counts, predicted, true = (np.bincount(step, weights, bins) for weights in (None, given, positive))
    enough = counts >= fewest
    return Reliability(predicted[enough] / counts[enough], true[enough] / counts[enough])


@dataclass(frozen=True, eq=False)
class Correction:
    """What cells that were told say of what had been said of them: a Gaussian process over log odds."""

    shift: Floats  # (G,), what is added at each point of the grid
    covariance: Floats  # (G, G), of it

    def __call__(self, logits: Floats) -> Floats:
        """The log odds that are right, in the same order."""
        return np.asarray(logits + np.interp(logits, _GRID, self.shift))

    @classmethod
    def fit(cls, logits: Floats, positive: NDArray[np.bool_], weights: Floats) -> "Correction":
        """Fit to log odds (n,) that were said of cells, what these are, and how many each stands for.

        Examples:
            >>> found = Correction.fit(np.zeros(200), np.arange(200) < 150, np.ones(200))
            >>> bool(abs(expit(found(np.zeros(1))) - 0.75) < 0.01), bool(abs(found.shift[0]) < 0.02)
            (True, True)
        """
        index = np.rint((np.clip(logits, _GRID[0], _GRID[-1]) - _GRID[0]) / (_GRID[1] - _GRID[0])).astype(int)
        cells, found = (np.bincount(index, each, len(_GRID)) for each in (weights, weights * positive))
        prior = _SHIFT_SD**2 * np.exp(-((_GRID[:, None] - _GRID) ** 2) / (2 * _REACH**2))
        shift = np.zeros(len(_GRID))
        for _ in range(_NEWTON_STEPS):  # Laplace's approximation
            chance = expit(_GRID + shift)
            root = np.sqrt(cells * chance * (1 - chance))
            inner = root[:, None] * np.linalg.solve(np.eye(len(_GRID)) + root[:, None] * prior * root, np.diag(root))
            force = root**2 * shift + found - cells * chance
            step = prior @ (force - inner @ (prior @ force)) - shift
            shift = shift + step * min(1.0, 1.0 / max(float(np.abs(step).max()), 1e-9))
            if np.abs(step).max() < 1e-6:
                break
        rising = np.maximum.accumulate(0.99 * _GRID + shift) - 0.99 * _GRID  # ranks stay
        return cls(rising, prior - prior @ inner @ prior)

    def share(self, probabilities: Floats) -> Interval:
        """The share of positives among cells of these corrected probabilities (n,), n > 0."""
        random, logits = np.random.default_rng(0), logit(np.clip(probabilities, 1e-9, 1 - 1e-9))
        given = np.interp(logits, _GRID + self.shift, _GRID)
        shifts = random.multivariate_normal(np.zeros(len(_GRID)), self.covariance, size=_DRAWS, method="eigh")
        shares = [expit(logits + np.interp(given, _GRID, shift)).mean() for shift in shifts]
        low, high = np.quantile(random.binomial(len(logits), shares) / len(logits), TAILS)
        value = float(probabilities.mean())
        return Interval(value, min(float(low), value), max(float(high), value))


UNTOLD = Correction.fit(np.zeros(0), np.zeros(0, bool), np.zeros(0))


def fit_lines(scores: Floats, targets: Floats, weights: NDArray[Any], start: Platt | None = None) -> Platt:
    """Lines of least log loss to targets (N, L) from 0 to 1, those of all classes drawn together.

    Args:
        scores, targets, weights: (N, L); a weight says how many cells there are of its score and target, or none.
        start: lines close to those looked for, to be there sooner.
    """
    if start is not None:
        scores = start.logits(scores)
    used = weights.astype(np.float64)
    total, positive = used.sum(), (used * targets).sum()
    centre = (used * scores).sum() / total
    spread = np.sqrt((used * (scores - centre) ** 2).sum() / total) or 1.0
    # Platt's correction: no target is quite 0 or 1, so that perfectly separated cells have a finite line too.
    high, low = (positive + 1) / (positive + 2), 1 / (total - positive + 2)
    standard = ((scores - centre) / spread).reshape(-1, 1)
    inner = (low + (high - low) * targets).reshape(-1, 1)
    (slope,), (intercept,) = _minimise(standard, inner, used.reshape(-1, 1), np.zeros(2), precision=1e-9)
    classes = scores.shape[1]
    common = Platt(np.full(classes, slope / spread), np.full(classes, intercept - slope * centre / spread))
    lines = correct_lines(common, scores, targets, used)
    return lines if start is None else _chained(start, lines)


def correct_lines(lines: Platt, scores: Floats, targets: Floats, weights: Floats) -> Platt:
    """Lines moved to the targets (N, L) of cells of these weights, the less, the fewer of them a class has."""
    own = _minimise(lines.logits(scores), targets, weights, np.array([1.0, 0.0]), precision=LINE_PRECISION)
    return _chained(lines, Platt(*own))


def _chained(first: Platt, second: Platt) -> Platt:
    """The line of a line."""
    return Platt(second.slope * first.slope, second.slope * first.intercept + second.intercept)


def _minimise(scores: Floats, targets: Floats, weights: Floats, centre: Floats, *, precision: float) -> Floats:
    """Slopes and intercepts (2, L) of least log loss plus precision/2 × squared distance from `centre`, by Newton."""
    origin = np.repeat(centre[:, None], scores.shape[1], axis=1)

    def objective(lines: Floats) -> Floats:
        logits = scores * lines[0] + lines[1]
        loss = (weights * (np.logaddexp(0, logits) - targets * logits)).sum(0)
        penalised: Floats = loss + precision / 2 * ((lines - origin) ** 2).sum(0)
        return penalised

    lines, value = origin, objective(origin)
    for _ in range(_NEWTON_STEPS):
        predicted = expit(scores * lines[0] + lines[1])
        residual, curvature = weights * (predicted - targets), weights * predicted * (1 - predicted)
        gradient = np.stack([(residual * scores).sum(0), residual.sum(0)]) + precision * (lines - origin)
        aa, ab, bb = ((curvature * scores**power).sum(0) for power in (2, 1, 0))
        aa, bb = aa + precision + 1e-12, bb + precision + 1e-12
        step = np.stack([bb * gradient[0] - ab * gradient[1], aa * gradient[1] - ab * gradient[0]]) / (aa * bb - ab**2)
        for _ in range(_HALVINGS):  # of the steps that overshoot
            moved = objective(lines - step)
            worse = moved > value + 1e-10 * np.maximum(value, 1)  # and not by rounding alone, at the end
            if not worse.any():
                break
            step[:, worse] /= 2
        lines = np.where(worse, lines, lines - step)
        gain, value = value - moved, np.where(worse, value, moved)
        if (gain <= 1e-9 * np.maximum(value, 1)).all():
            break
    return lines


def check_scores(scores: ArrayLike, labels: ArrayLike) -> tuple[Floats, Labels]:
    """Scores and labels of one shape, or a sentence on what is not right about them."""
    matrix, known = np.asarray(scores, np.float64), validate_labels(labels)
    if matrix.shape != known.shape:
        raise ValueError(f"scores and labels must have one shape, got {matrix.shape} and {known.shape}")
    if not np.isfinite(matrix).all():
        row, column = (int(i) for i in np.argwhere(~np.isfinite(matrix))[0])
        raise ValueError(f"scores: row {row}, column {column} is {matrix[row, column]}")
    return matrix, known
