"""Ranking against a slow reference."""

import numpy as np
import pytest

from onepair.finding import rank


def slow_rank(labels, probabilities):
    cells = []
    for row, (values, shares) in enumerate(zip(labels.tolist(), probabilities.tolist(), strict=True)):
        for label, (value, share) in enumerate(zip(values, shares, strict=True)):
            kind = "missing" if value == -1 else "wrong"
            cells.append((row, label, 1 - share if value == 1 else share, kind))
    return sorted(cells, key=lambda cell: -cell[2])


def cells_of(found):
    return list(
        zip(found.row.tolist(), found.label.tolist(), found.probability.tolist(), found.kind.tolist(), strict=True)
    )


def test_every_cell_is_ranked_as_by_the_slow_reference():
    random = np.random.default_rng(0)
    labels = random.integers(-1, 2, (31, 7))
    probabilities = random.integers(0, 5, labels.shape) / 4  # with ties, which stay in the order of the matrix
    found = rank(labels, probabilities)
    assert cells_of(found) == slow_rank(labels, probabilities)
    assert len(found) == labels.size


def test_a_part_keeps_its_order():
    found = rank([[-1, -1, 1]], [[0.2, 0.9, 0.5]])
    assert cells_of(found[:2]) == [(0, 1, 0.9, "missing"), (0, 2, 0.5, "wrong")]
    assert cells_of(found[found.kind == "missing"]) == [(0, 1, 0.9, "missing"), (0, 0, 0.2, "missing")]


@pytest.mark.parametrize(
    ("labels", "probabilities", "sentence"),
    [
        ([[1, 2]], [[0.5, 0.5]], "row 0, column 1 holds 2"),
        ([[1, 0]], [[0.5]], "must have one shape"),
        ([[1, 0]], [[0.5, 1.5]], "row 0, column 1 is 1.5, not from 0 to 1"),
        ([[1, 0]], [[np.nan, 0.5]], "row 0, column 0 is nan"),
    ],
)
def test_mistakes_are_named(labels, probabilities, sentence):
    with pytest.raises(ValueError, match=sentence):
        rank(labels, probabilities)
