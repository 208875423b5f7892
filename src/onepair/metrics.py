"""How good a ranking or a decision is, judged on the known cells only; ranks of scores in blocks of rows.

Scores and labels are (N, L) matrices, numpy or torch, or (B, T, L) for B·T rows; scores of any float dtype. Labels
follow the alphabet 1 (positive), 0 (negative), -1 or NaN (unknown), and unknown cells are left out of every count.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Literal, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels, to_numpy, validate_labels
from onepair.plugins import Registry

Floats = NDArray[np.float64]
Metric = Callable[[Any, Any], float]

METRICS = Registry[Metric]("onepair.metrics", "metric")


def register_metric(name: str) -> Callable[[Metric], Metric]:
    """Make a metric known by its name, to Python as `METRICS[name]` and to `onepair evaluate --metric`.

    A package that names its module as an entry point of the group `onepair.metrics` is imported when it is needed.

    Args:
        name: for example "one-error".

    Returns:
        A decorator for functions of scores (N, L) and labels (N, L) of 1, 0 and -1, which return a number.

    Examples:
        >>> METRICS["ranking-loss"](np.array([[0.9, 0.8, 0.7]]), np.array([[0, 1, 0]]))
        0.5
    """

    def add(metric: Metric) -> Metric:
        METRICS.add(name, metric)
        return metric

    return add


def average_precision(scores: Any, labels: Any) -> Floats:
    """Non-interpolated average precision of every class, shape (L,): scikit-learn's definition, ties included.

        AP = 1/P Σ_{positives p} TP(s_p) / N(s_p),   TP(s), N(s) = positives, all cells that score at least s

    NaN for a class without known positives. Needs the sorted scores only, never the order of the samples: the rank
    of a positive is found by bisection, which keeps sorting the only step that touches every cell.

    Args:
        scores: (N, L).
        labels: (N, L).

    Returns:
        The average precision of each class (L,).

    Raises:
        ValueError: the shapes differ, a score is NaN, or a label is none.

    Examples:
        >>> average_precision(np.array([[0.9], [0.8], [0.7]]), np.array([[1], [0], [1]]))
        array([0.83333333])
    """
    score_matrix, label_matrix = matrices(scores, labels)
    return np.array([_class_ap(*column) for column in zip(score_matrix.T, label_matrix.T, strict=True)])


def _class_ap(scores: NDArray[Any], labels: Labels) -> float:
    positives = np.sort(scores[labels == POSITIVE])
    if len(positives) == 0:
        return np.nan
    ranked = np.sort(scores[labels != UNKNOWN])
    # The score just below each run of ties decides for all of it: "left" counts the whole run as retrieved.
    retrieved_positives = len(positives) - np.searchsorted(positives, positives, side="left")
    retrieved = len(ranked) - np.searchsorted(ranked, positives, side="left")
    return float(np.mean(retrieved_positives / retrieved))


class MeanAP(NamedTuple):
    """The mean over classes, and how many classes it is a mean of."""

    value: float
    classes: int

    def __float__(self) -> float:
        return self.value


def mean_average_precision(scores: Any, labels: Any, *, empty: Literal["skip", "zero"] = "skip") -> MeanAP:
    """Average `average_precision` over classes, all weighing the same.

    A class with unknown labels and no known negative is left out: any ranking of it would be perfect.

    Args:
        scores: (N, L).
        labels: (N, L).
        empty: a class without known positives is left out ("skip") or counts as 0 ("zero").

    Returns:
        The mean, and the number of classes that it is a mean of.

    Raises:
        ValueError: if no class has both a known positive and a known negative, also where all is known to be positive.

    Examples:
        >>> mean_average_precision(np.array([[0.9, 0.1], [0.8, 0.2]]), np.array([[1, 0], [0, 0]]))
        MeanAP(value=1.0, classes=1)
    """
    if empty not in ("skip", "zero"):
        raise ValueError(f"empty must be 'skip' or 'zero', got {empty!r}")
    score_matrix, label_matrix = matrices(scores, labels)
    if not (label_matrix == POSITIVE).any() and empty == "skip":
        raise ValueError("no class has a known positive, so there is no average precision to take the mean of")
    rankable = (label_matrix == NEGATIVE).any(0) | (label_matrix != UNKNOWN).all(0)
    if not (label_matrix == NEGATIVE).any():
        raise ValueError(
            "no class has a known negative, so any ranking would be perfect; assume that unknown labels are negative, "
            "as by labels.clip(0), or estimate the mAP by onepair.linear.ranking_score"
        )
    class_ap = average_precision(score_matrix[:, rankable], label_matrix[:, rankable])
    averaged = np.nan_to_num(class_ap) if empty == "zero" else class_ap[~np.isnan(class_ap)]
    if len(averaged) == 0:
        raise ValueError("no class has both a known positive and a known negative, so there is nothing to average")
    return MeanAP(float(averaged.mean()), len(averaged))


@register_metric("map")
def _map(scores: Any, labels: Any) -> float:
    return mean_average_precision(scores, labels).value


class PrecisionRecallF1(NamedTuple):
    """Arrays of shape (L,) for single classes, numbers for an average."""

    precision: Any
    recall: Any
    f1: Any


def precision_recall_f1(
    predicted: Any, labels: Any, *, average: Literal["class", "overall"] | None = None
) -> PrecisionRecallF1:
    """Precision, recall and F1 of decisions: `predicted` is an (N, L) boolean matrix.

    Decisions come from a threshold (`scores > 0`), or from `top_k(scores, k)` for precision and recall at k.

    Args:
        predicted: (N, L) of bool or 0 / 1.
        labels: (N, L).
        average: None for arrays of shape (L,), "class" for their unweighted mean (also of F1), "overall" for counts
            pooled over all cells.

    A class without known positives is NaN and left out of the "class" mean; a class never predicted has precision 0.

    Examples:
        >>> precision_recall_f1([[1, 1], [0, 1]], [[1, 0], [1, 1]], average="overall")
        PrecisionRecallF1(precision=0.6666666666666666, recall=0.6666666666666666, f1=0.6666666666666666)
    """
    if average not in (None, "class", "overall"):
        raise ValueError(f"average must be 'class', 'overall' or None, got {average!r}")
    decisions, label_matrix = matrices(predicted, labels, name="predicted")
    if not ((decisions == 0) | (decisions == 1)).all():
        raise ValueError("predicted must hold decisions, 0 or 1; cut scores by a threshold or by top_k first")
    true_positives = ((decisions == 1) & (label_matrix == POSITIVE)).sum(0)
    false_positives = ((decisions == 1) & (label_matrix == NEGATIVE)).sum(0)
    positives = (label_matrix == POSITIVE).sum(0)
    if average == "overall":
        true_positives, false_positives, positives = (
            counts.sum(keepdims=True) for counts in (true_positives, false_positives, positives)
        )

    nothing = np.where(positives > 0, 0.0, np.nan)  # where there is nothing to divide by
    predictions = true_positives + false_positives
    precision = np.divide(true_positives, predictions, out=nothing.copy(), where=(positives > 0) & (predictions > 0))
    recall = np.divide(true_positives, positives, out=nothing.copy(), where=positives > 0)
    f1 = np.divide(2 * true_positives, predictions + positives, out=nothing.copy(), where=positives > 0)
    if average is None:
        return PrecisionRecallF1(precision, recall, f1)
    if not (positives > 0).any():
        raise ValueError("no class has a known positive, so there is nothing to average")
    return PrecisionRecallF1(*(float(np.nanmean(values)) for values in (precision, recall, f1)))


def top_k(scores: Any, k: int) -> NDArray[np.bool_]:
    """Decide for the k best-scored labels of every row; among equal scores the first classes win.

    Examples:
        >>> top_k(np.array([[0.3, 0.9, 0.9]]), 1)
        array([[False,  True, False]])
    """
    score_matrix = _score_matrix(to_numpy(scores), "scores")
    if not 1 <= k <= score_matrix.shape[1]:
        raise ValueError(f"k must be between 1 and the {score_matrix.shape[1]} classes, got {k}")
    best = np.argsort(-score_matrix, axis=1, kind="stable")[:, :k]
    decisions = np.zeros(score_matrix.shape, bool)
    np.put_along_axis(decisions, best, True, axis=1)
    return decisions


@register_metric("ranking-loss")
def ranking_loss(scores: Any, labels: Any) -> float:
    """Mean over rows of the share of (positive, negative) pairs that are not ranked positive first; ties are wrong.

    Rows without such a pair are left out; NaN if there is none at all.

    Examples:
        >>> ranking_loss(np.array([[0.9, 0.8, 0.7]]), np.array([[0, 1, 0]]))
        0.5
    """
    positive, negative = _ranked(scores, labels)
    negatives_above = np.cumsum(negative, axis=1)
    wrong = (negatives_above * positive).sum(1)
    pairs = positive.sum(1) * negative.sum(1)
    return _mean_over(pairs > 0, wrong / np.maximum(pairs, 1))


@register_metric("coverage")
def coverage(scores: Any, labels: Any) -> float:
    """Mean over rows of how many known labels, best first, one must accept to have every positive; ties count.

    Rows without positives are left out; NaN if all are.

    Examples:
        >>> coverage(np.array([[0.9, 0.8, 0.7]]), np.array([[0, 1, 0]]))
        2.0
    """
    positive, negative = _ranked(scores, labels)
    position = np.cumsum(positive | negative, axis=1)
    return _mean_over(positive.sum(1) > 0, (position * positive).max(1))


def _ranked(scores: Any, labels: Any) -> tuple[NDArray[np.bool_], NDArray[np.bool_]]:
    """Masks of positives and negatives with every row in order of its scores, negatives first among equals."""
    score_matrix, label_matrix = matrices(scores, labels)
    order = np.lexsort((label_matrix == POSITIVE, -score_matrix), axis=1)
    ranked = np.take_along_axis(label_matrix, order, axis=1)
    return ranked == POSITIVE, ranked == NEGATIVE


def _mean_over(rows: NDArray[np.bool_], values: NDArray[Any]) -> float:
    return float(values[rows].mean()) if rows.any() else float("nan")


def matrices(scores: Any, labels: Any, *, name: str = "scores") -> tuple[NDArray[Any], Labels]:
    """Scores and labels as numpy matrices of one shape, or a sentence on what is not right about them."""
    score_matrix = _score_matrix(_rows(scores), name)
    label_matrix = validate_labels(_rows(labels))
    if score_matrix.shape != label_matrix.shape:
        raise ValueError(f"{name} and labels must have one shape, got {score_matrix.shape} and {label_matrix.shape}")
    return score_matrix, label_matrix


def _score_matrix(scores: NDArray[Any], name: str) -> NDArray[Any]:
    matrix = scores
    if matrix.ndim != 2 or matrix.size == 0 or matrix.dtype.kind not in "biuf":
        raise ValueError(
            f"{name} must be a non-empty matrix of numbers (samples, classes), "
            f"got shape {matrix.shape} of {matrix.dtype}"
        )
    if np.isnan(matrix.max()):
        row, column = (int(i) for i in np.argwhere(np.isnan(matrix))[0])
        raise ValueError(f"{name}: row {row}, column {column} is NaN")
    if matrix.dtype.kind in "biu":
        return matrix.astype(np.int64, copy=False)  # can be negated
    return matrix.astype(np.float32) if matrix.dtype == np.float16 else matrix


def _rows(values: Any) -> NDArray[Any]:
    """An array, with everything before its classes as rows: (B, T, L) becomes (B·T, L)."""
    array = to_numpy(values)
    return array.reshape(-1, array.shape[-1]) if array.ndim > 2 and array.size else array


ScoreRows = Callable[[Indices], NDArray[np.float32]]  # from rows (n,) to their scores (n, L)

_SORTS_FAST = 512  # numbers that numpy sorts several times faster, each, than more of them
_MOST_WAITING = 4_000_000  # candidates, before the lower ones are dropped


class ScoreBlocks(Protocol):
    """Scores (N, L) in blocks of rows, from the first to the last, each with its place; every pass gives the same."""

    def __iter__(self) -> Iterator[tuple[slice, NDArray[Any]]]: ...


def one_block(scores: NDArray[Any]) -> ScoreBlocks:
    """Scores (N, L) that are held as a whole, as one block."""
    return [(slice(0, len(scores)), scores)]


class Ranks(NamedTuple):
    """How far up the known positives of each class are; those of class l are at starts[l] : starts[l + 1].

    They ascend with their scores.
    """

    starts: Indices  # (L + 1,)
    positive: Indices  # known positives that score no less
    negative: Indices  # known negatives that score no less, if they were asked for
    reached: Indices  # cells of any kind that score no less

    def of(self, label: int) -> tuple[Indices, Indices, Indices]:
        own = slice(self.starts[label], self.starts[label + 1])
        return self.positive[own], self.negative[own], self.reached[own]


def rank_positives(
    blocks: ScoreBlocks, labels: LabelMatrix, *, negatives: bool = False, highest: "HighestUnknown | None" = None
) -> Ranks:
    """Look through all scores twice: for those of the known positives, and for how many cells score no less.

    Args:
        blocks: (N, L).
        labels: (N, L).
        negatives: whether known negatives are counted by themselves.
        highest: is shown every block of the second pass.
    """
    found = []
    for rows, block in blocks:
        row, column = labels.take(rows).positives()
        found.append((block[row, column], column))
    values, columns = (np.concatenate(each) for each in zip(*found, strict=True))
    order = np.lexsort((values, columns))
    values, starts = values[order], np.searchsorted(columns[order], np.arange(labels.shape[1] + 1))
    classes = np.flatnonzero(np.diff(starts))
    reached, negative = np.zeros(len(values), np.intp), np.zeros(len(values), np.intp)
    some_negative, some_unknown = negatives and labels.has(NEGATIVE), labels.has(UNKNOWN)

    def look(rows: slice, block: NDArray[Any], ascending: NDArray[Any]) -> None:
        _count(ascending, values, starts, classes, reached)
        if some_negative and some_unknown:
            _count(sort_classes(np.where(labels[rows] == NEGATIVE, block, -np.inf)), values, starts, classes, negative)
        if highest is not None:
            highest.add(rows, block, ascending)

    _look_while_scoring(blocks, look)
    positive = np.zeros(len(values), np.intp)
    for label in classes.tolist():
        own = values[starts[label] : starts[label + 1]]
        positive[starts[label] : starts[label + 1]] = len(own) - np.searchsorted(own, own, side="left")
    if some_negative and not some_unknown:
        negative = reached - positive
    return Ranks(starts, positive, negative, reached)


def _look_while_scoring(blocks: ScoreBlocks, look: Callable[[slice, NDArray[Any], NDArray[Any]], None]) -> None:
    """Show pieces of all blocks, plain and in order, to somebody in a thread while the next ones are computed."""
    with ThreadPoolExecutor(1) as pool:
        looked: Future[None] = pool.submit(lambda: None)
        for place, block in blocks:
            for start in range(0, len(block), _SORTS_FAST):
                piece = block[start : start + _SORTS_FAST]
                ascending = sort_classes(piece)
                looked.result()
                looked = pool.submit(
                    look, slice(place.start + start, place.start + start + len(piece)), piece, ascending
                )
        looked.result()


def sort_classes(block: NDArray[Any]) -> NDArray[Any]:
    """The scores (L, B) of each class in order."""
    columns = block.T.copy()
    columns.sort(axis=1)
    return columns


def _count(ascending: NDArray[Any], values: NDArray[Any], starts: Indices, classes: Indices, counts: Indices) -> None:
    """Add to counts (P,) how many of the scores of its class are at least each value."""
    size = ascending.shape[1]
    for label in classes.tolist():
        own, cells = slice(starts[label], starts[label + 1]), ascending[label]
        if own.stop - own.start <= size:
            counts[own] += size - cells.searchsorted(values[own], side="left")
        else:  # fewer searches the other way round: how many values each cell reaches
            reaching = np.bincount(values[own].searchsorted(cells, side="right"), minlength=own.stop - own.start + 1)
            counts[own] += reaching[:0:-1].cumsum()[::-1]


class HighestUnknown:
    """The highest-scored unknown cells of every class, as many as are wanted; among equal scores the first rows win."""

    def __init__(self, labels: LabelMatrix, most: Indices) -> None:
        """Args: labels (N, L); most (L,), how many are wanted of each class."""
        self.labels, self.most = labels, most
        self._floor = np.where(most > 0, -np.inf, np.inf)  # what is lower is none of them
        self._kept: list[tuple[Indices, Indices, NDArray[Any]]] = []  # rows, columns, scores
        self._waiting = 0

    def add(self, rows: slice, block: NDArray[Any], ascending: NDArray[Any] | None = None) -> None:
        """Look at the next block of scores (B, L), and if it is there at the same (L, B) in order within each class."""
        part = self.labels.take(rows)
        classes = np.arange(len(self.most)) if ascending is not None else np.flatnonzero(self._floor == -np.inf)
        in_order = sort_classes(block[:, classes]) if ascending is None else ascending
        # The n highest of a block are among its n + k highest cells, if k of its labels are known.
        place = (part.count(UNKNOWN) - self.most)[classes]
        lowest = in_order[np.arange(len(place)), np.clip(place, 0, len(block) - 1)]
        floor = self._floor.copy()
        floor[classes] = np.maximum(floor[classes], np.where(place >= 0, lowest, -np.inf))
        row, column = np.divmod(np.flatnonzero(block >= floor.astype(block.dtype)), block.shape[1])
        unknown = part[row, column] == UNKNOWN
        row, column = row[unknown], column[unknown]
        self._kept.append((row + rows.start, column, block[row, column]))
        self._waiting += len(row)
        if self._waiting > 2 * self.most.sum() + (0 if ascending is None else _MOST_WAITING):
            self._drop(self.most)

    def found(self, counts: Indices) -> tuple[Indices, Indices, NDArray[Any]]:
        """Rows, columns and scores of the highest ones, of each class so many (L,), at most as many as were wanted."""
        return self._drop(counts)

    def _drop(self, counts: Indices) -> tuple[Indices, Indices, NDArray[Any]]:
        row, column, score = (np.concatenate(each) for each in zip(*self._kept, strict=True))
        order = np.lexsort((-score, column))  # equal ones stay as they came: the first rows first
        row, column, score = row[order], column[order], score[order]
        first = np.searchsorted(column, np.arange(len(counts)))
        chosen = np.arange(len(column)) - first[column] < counts[column]
        row, column, score = row[chosen], column[chosen], score[chosen]
        self._kept, self._waiting = [(row, column, score)], 0
        full = np.flatnonzero((np.bincount(column, minlength=len(counts)) >= counts) & (counts > 0))
        last = np.searchsorted(column, full, side="right") - 1
        self._floor[full] = np.maximum(self._floor[full], score[last])
        return row, column, score
