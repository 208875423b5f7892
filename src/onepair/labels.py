"""The label alphabet, its validation, and the processes that hide labels from a learner.

Every label matrix in the program is an int8 array of shape (N, L), samples by classes, over one alphabet:
`POSITIVE` = 1, `NEGATIVE` = 0, `UNKNOWN` = -1.
"""

from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from onepair.errors import DataError
from onepair.words import counted

if TYPE_CHECKING:
    from onepair.label_matrix import LabelMatrix

POSITIVE = 1
NEGATIVE = 0
UNKNOWN = -1

PUBLISHED_SEED = 1200  # of the splits and single positives that papers in this field share

Labels = NDArray[np.int8]
Indices = NDArray[np.intp]


def to_numpy(values: Any) -> NDArray[Any]:
    """Return an array of numpy's: of torch, on any device and in any precision, of pandas, polars or lists.

    Raises:
        DataError: it is a tensor on the device "meta", which holds no values.
    """
    if hasattr(values, "detach"):
        if values.is_meta:
            raise DataError("a tensor on the device meta holds no values; give one on the CPU or a GPU")
        values = values.detach().cpu()
        values = values.float() if str(values.dtype) == "torch.bfloat16" else values
    return np.asarray(values.to_numpy() if hasattr(values, "to_numpy") else values)


def is_missing(cell: Any) -> bool:
    """Whether a cell holds nothing: None, NaN, or what pandas has in their place."""
    return cell is None or type(cell).__name__ in ("NAType", "NaTType") or (isinstance(cell, float) and cell != cell)


def validate_labels(labels: ArrayLike) -> Labels:
    """Return `labels` as an int8 matrix, or say which row and column holds what.

    Any numeric or boolean matrix of shape (N, L) that holds only 1, 0, and -1 or NaN for unknown is accepted; an int8
    array is returned as it is, without a copy.

    Args:
        labels: (N, L).

    Returns:
        1, 0 or -1 (N, L).

    Raises:
        DataError: they are no matrix, or a cell is no label.

    Examples:
        >>> validate_labels([[1, -1], [0, 1]])
        array([[ 1, -1],
               [ 0,  1]], dtype=int8)
        >>> validate_labels([[1, -1], [0, 2]])
        Traceback (most recent call last):
        DataError: labels: row 1, column 1 holds 2; a label is 1 (positive), 0 (negative), or -1 or NaN (unknown)
    """
    given = to_numpy(labels)
    if given.dtype.kind not in "biuf":
        raise DataError(
            f"labels: expected a matrix of numbers, got values of type {given.dtype}; write 1 for yes, 0 for no and -1 "
            "or NaN for unknown (Dataset.from_frame reads names and words)"
        )
    if given.ndim != 2 or given.size == 0:
        raise DataError(f"labels: expected a non-empty matrix (samples, classes), got shape {given.shape}")
    if given.dtype.kind == "f":
        given = np.where(np.isnan(given), UNKNOWN, given)
    in_alphabet = (given == POSITIVE) | (given == NEGATIVE) | (given == UNKNOWN)
    if not in_alphabet.all():
        row, column = (int(i) for i in np.argwhere(~in_alphabet)[0])
        raise DataError(
            f"labels: row {row}, column {column} holds {given[row, column]}; "
            "a label is 1 (positive), 0 (negative), or -1 or NaN (unknown)"
        )
    return given.astype(np.int8, copy=False)


def observe_positives(labels: ArrayLike, *, per_sample: int = 1, seed: int = PUBLISHED_SEED) -> Labels:
    """Keep `per_sample` random positives of every row of full labels; all other cells become unknown.

    A row with fewer positives keeps them all; a row with none is all unknown. With the default seed the kept
    positives are those of the published single-positive datasets, provided the rows are in the published order.

    The published stream shuffles each row's negatives too, by a generator whose number of draws depends on the values
    drawn. So the state before a row is known only after the row above it, and the loop over rows cannot be vectorised.

    Args:
        labels: (N, L) of 1 and 0.
        per_sample: how many.
        seed: of the random stream.

    Returns:
        What is observed (N, L).

    Raises:
        ValueError: a label is unknown already, or none is to be kept.

    Examples:
        >>> observe_positives([[1, 1, 0], [0, 0, 1]])
        array([[ 1, -1, -1],
               [-1, -1,  1]], dtype=int8)
    """
    full = _require_full(labels)
    if per_sample < 1:
        raise ValueError(f"per_sample must be at least 1, got {per_sample}")
    random = np.random.RandomState(seed)
    observed = np.full_like(full, UNKNOWN)
    order = np.arange(full.shape[1])
    for row, observed_row in zip(full, observed, strict=True):
        positives = np.flatnonzero(row)
        random.shuffle(positives)
        observed_row[positives[:per_sample]] = POSITIVE
        random.shuffle(order[len(positives) :])  # as many draws as the row's negatives take; their order is not used
    return observed


def observe_fraction(labels: ArrayLike, *, known: float, seed: int = PUBLISHED_SEED) -> Labels:
    """Keep a random fraction of all cells of full labels, positive or negative; the others become unknown.

    Exactly `round(known × N × L)` cells are kept, drawn uniformly over the whole matrix.

    Args:
        labels: (N, L) of 1 and 0.
        known: the fraction, from 0 to 1.
        seed: of the random stream.

    Returns:
        What is observed (N, L).

    Raises:
        ValueError: a label is unknown already, or the fraction is none.

    Examples:
        >>> observed = observe_fraction([[1, 0], [0, 1]], known=0.5)
        >>> int((observed != UNKNOWN).sum())
        2
    """
    full = _require_full(labels)
    if not 0 <= known <= 1:
        raise ValueError(f"known must be a fraction between 0 and 1, got {known}")
    kept = round(known * full.size)
    hidden = np.random.default_rng(seed).permutation(full.size)[kept:]
    observed = full.copy()
    np.put(observed, hidden, UNKNOWN)
    return observed


def observe_preferred(labels: ArrayLike, preference: ArrayLike) -> Labels:
    """Keep the positive of highest preference of every row of full labels; all other cells become unknown.

    People do not name labels at random: the largest object first, or the class that comes to mind most easily.

    Args:
        labels: (N, L), all known.
        preference: (N, L), or (L,) for all rows alike; the first of equals is kept.

    Examples:
        >>> observe_preferred([[1, 1, 0], [0, 1, 1]], [0.1, 0.3, 0.2])
        array([[-1,  1, -1],
               [-1,  1, -1]], dtype=int8)
    """
    full, wanted = _require_full(labels), np.asarray(preference, np.float64)
    if wanted.shape not in (full.shape, full.shape[1:]):
        raise ValueError(f"preference must have the shape {full.shape} or {full.shape[1:]}, got {wanted.shape}")
    if np.isnan(wanted).any():
        raise ValueError("preference must hold numbers that can be compared, and holds NaN")
    rows = np.flatnonzero((full == POSITIVE).any(1))
    observed = np.full_like(full, UNKNOWN)
    place = np.argsort(np.argsort(-wanted, axis=-1, kind="stable"), axis=-1)  # 0 for the most preferred, and so on
    first = np.where(full == POSITIVE, place, full.shape[1]).argmin(1)
    observed[rows, first[rows]] = POSITIVE
    return observed


def split_validation(n: int, *, fraction: float = 0.2, seed: int = PUBLISHED_SEED) -> tuple[Indices, Indices]:
    """Split the rows 0 … n-1 into sorted indices for training and validation.

    With the defaults this is the split that the published results use.

    Examples:
        >>> train, validation = split_validation(5717)  # PASCAL VOC 2012
        >>> len(train), len(validation)
        (4574, 1143)
    """
    train_size = n - _validation_size(n, fraction)
    order = np.random.RandomState(seed).permutation(n)
    return np.sort(order[:train_size]), np.sort(order[train_size:])


def fold_groups(groups: ArrayLike, *, folds: int, seed: int) -> Indices:
    """Return the fold of each row, so that rows of one group share it and folds are about as large as each other.

    Examples:
        >>> fold_groups([0, 0, 0, 1, 1, 2], folds=2, seed=0).tolist()
        [0, 0, 0, 1, 1, 1]
    """
    _, group, sizes = np.unique(np.asarray(groups), return_inverse=True, return_counts=True)
    order = np.random.RandomState(seed).permutation(len(sizes))
    order = order[np.argsort(-sizes[order], kind="stable")]
    fold_of, load = np.zeros(len(sizes), np.intp), np.zeros(max(1, min(folds, len(sizes))), np.int64)
    for each in order.tolist():  # the largest first, each to the smallest fold
        fold_of[each] = load.argmin()
        load[fold_of[each]] += sizes[each]
    fold: Indices = fold_of[group]
    return fold


def split_stratified(
    labels: "ArrayLike | LabelMatrix", *, fraction: float = 0.2, seed: int = PUBLISHED_SEED
) -> tuple[Indices, Indices]:
    """Split the rows of labels (N, L) so that every class has about `fraction` of its known positives in validation.

    The rarest class is dealt out first, each of its rows to the part that still lacks most of the class, then the next
    one (Sechidis, Tsoumakas, Vlahavas 2011). Of a class with one or two positives none goes to validation: what cannot
    be learned need not be judged; but where all classes are so rare, one row goes there. Rows without a known positive
    fill both parts up at random.

    Examples:
        >>> train, validation = split_stratified([[1, 0]] * 6 + [[0, 1]] * 3 + [[-1, -1]], fraction=0.3)
        >>> len(train), len(validation), int((validation < 6).sum())
        (7, 3, 2)
    """
    from onepair.label_matrix import LabelMatrix  # which is made of the alphabet above

    known = LabelMatrix.of(labels)
    validation_size = _validation_size(len(known), fraction)
    random = np.random.default_rng(seed)
    shuffled = random.permutation(len(known))
    rows, columns = known.take(shuffled).positives()
    starts = np.searchsorted(rows, np.arange(len(known) + 1))
    by_class = np.split(rows[np.argsort(columns, kind="stable")], np.cumsum(known.count(POSITIVE))[:-1])
    room = [len(known) - validation_size, validation_size]  # of training and of validation
    left = known.count(POSITIVE)
    lacking = np.outer([1 - fraction, fraction], left)
    part = np.full(len(known), -1)
    while left.any():
        rarest = int(np.where(left > 0, left, len(known) + 1).argmin())
        for row in by_class[rarest][part[by_class[rarest]] < 0].tolist():
            # What has room, then what lacks most.
            chosen = max((0, 1), key=lambda side: (room[side] > 0, lacking[side, rarest], room[side], side))
            own = columns[starts[row] : starts[row + 1]]
            part[row] = chosen
            room[chosen] -= 1
            lacking[chosen, own] -= 1
            left[own] -= 1
    free = np.flatnonzero(part < 0)
    part[free] = np.arange(len(free)) >= room[0]
    if len(set(rows.tolist())) > 1 and not (part[rows] == 1).any():
        commonest = rows[known.count(POSITIVE)[columns].argmax()]  # of the class with most positives
        part[[commonest, np.flatnonzero(part == 1)[0]]] = 1, 0
    return np.sort(shuffled[part == 0]), np.sort(shuffled[part == 1])


def _validation_size(n: int, fraction: float) -> int:
    size = max(1, round(fraction * n)) if 0 < fraction < 1 else 0
    if not 0 < size < n:
        raise ValueError(f"a fraction of {fraction} of {counted(n, 'row')} leaves training or validation empty")
    return size


def _require_full(labels: ArrayLike) -> Labels:
    """Validate labels that must be known in every cell, as those that an observation process hides from."""
    full = validate_labels(labels)
    if (full == UNKNOWN).any():
        row, column = (int(i) for i in np.argwhere(full == UNKNOWN)[0])
        raise ValueError(f"labels: row {row}, column {column} is unknown; hiding labels needs all of them known")
    return full
