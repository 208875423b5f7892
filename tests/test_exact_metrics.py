"""Every metric against its definition in fractions, at the extremes of its input."""

from fractions import Fraction
from math import inf, nan

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from onepair.metrics import (
    average_precision,
    coverage,
    mean_average_precision,
    precision_recall_f1,
    ranking_loss,
    top_k,
)

# Neighbours among doubles, denormal numbers and infinities are told apart; 0.0 and -0.0 are equal.
SCORES = (0.0, -0.0, 5e-324, -5e-324, 1.0, 1.0 + 2**-52, 1e30, -1e30, 1.7e308, inf, -inf)


@st.composite
def problems(draw):
    rows, classes = draw(st.integers(1, 8)), draw(st.integers(1, 5))
    cells = rows * classes
    scores = draw(st.lists(st.sampled_from(SCORES), min_size=cells, max_size=cells))
    labels = draw(
        st.lists(
            st.sampled_from(draw(st.sampled_from([(1,), (0,), (-1,), (-1, 0, 1)]))), min_size=cells, max_size=cells
        )
    )
    return np.array(scores).reshape(rows, classes), np.array(labels, np.int8).reshape(rows, classes)


def exact_ap(scores, labels):
    """TP / N at every positive, counted cell by cell; None without one."""
    known = [(score, label) for score, label in zip(scores, labels, strict=True) if label != -1]
    shares = []
    for score, label in known:
        if label == 1:
            above = [other for value, other in known if value >= score]
            shares.append(Fraction(above.count(1), len(above)))
    return sum(shares) / len(shares) if shares else None


def exact_row(scores, labels):
    """The share of wrong pairs, and how deep the last positive is; None where there is no pair, or no positive."""
    cells = list(zip(scores, labels, strict=True))
    positives, negatives = ([score for score, label in cells if label == kind] for kind in (1, 0))
    pairs = [positive <= negative for positive in positives for negative in negatives]
    wrong = Fraction(sum(pairs), len(pairs)) if pairs else None
    depth = sum(score >= min(positives) for score in positives + negatives) if positives else None
    return wrong, depth


def mean(values):
    there = [value for value in values if value is not None]
    return float(Fraction(sum(there)) / len(there)) if there else nan


def near(value):
    return pytest.approx(value, rel=1e-15, abs=0, nan_ok=True)


@given(problems())
def test_rankings(problem):
    scores, labels = problem
    by_class = [exact_ap(*column) for column in zip(scores.T.tolist(), labels.T.tolist(), strict=True)]
    assert average_precision(scores, labels).tolist() == near([nan if ap is None else float(ap) for ap in by_class])
    # Without a known negative any ranking would be perfect, unless all is known.
    rankable = [0 in column or -1 not in column for column in labels.T.tolist()]
    averaged = [ap for ap, told in zip(by_class, rankable, strict=True) if told]
    if (labels == 0).any() and any(ap is not None for ap in averaged):
        assert mean_average_precision(scores, labels).value == near(mean(averaged))
    losses, depths = zip(*map(exact_row, scores.tolist(), labels.tolist()), strict=True)
    assert ranking_loss(scores, labels) == near(mean(losses))
    assert coverage(scores, labels) == near(mean(depths))


@given(problems(), st.data())
def test_decisions(problem, data):
    scores, labels = problem
    k = data.draw(st.integers(1, scores.shape[1]))
    decided = top_k(scores, k)
    for row, chosen in zip(scores.tolist(), decided.tolist(), strict=True):
        order = sorted(range(len(row)), key=lambda place: (-row[place], place))
        assert [place for place, yes in enumerate(chosen) if yes] == sorted(order[:k])
    found = precision_recall_f1(decided, labels)
    for column in range(scores.shape[1]):
        cells = list(zip(decided[:, column].tolist(), labels[:, column].tolist(), strict=True))
        right, wrong = cells.count((True, 1)), cells.count((True, 0))
        positives = right + cells.count((False, 1))
        exact = (
            Fraction(right, right + wrong) if right + wrong else Fraction(0),
            Fraction(right, positives) if positives else None,
            Fraction(2 * right, right + wrong + positives) if positives else None,
        )
        for ours, theirs in zip(found, exact, strict=True):
            assert ours[column] == near(float(theirs) if positives and theirs is not None else nan)


@given(problems())
def test_views_and_containers_do_not_matter(problem):
    scores, labels = problem
    padded, turned = np.repeat(scores, 2, axis=1)[:, ::2], np.asfortranarray(labels)
    for one, other in ((padded, turned), (torch.tensor(scores).T.contiguous().T, torch.tensor(labels))):
        np.testing.assert_array_equal(average_precision(one, other), average_precision(scores, labels))
        np.testing.assert_array_equal(coverage(one, other), coverage(scores, labels))
    row, kinds = torch.tensor(scores[:1]).expand(3, -1), torch.tensor(labels[:1]).expand(3, -1)
    np.testing.assert_array_equal(ranking_loss(row, kinds), ranking_loss(scores[:1], labels[:1]))
