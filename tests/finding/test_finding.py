"""What is suggested where the labels hardly tell what is missing."""

from types import SimpleNamespace

import numpy as np

from onepair.finding.find import find_in
from onepair.finding.folds import OutOfSample
from onepair.finding.summary import FEWEST

ROWS, CLASSES = 60, ("cat", "dog")


def scored(labels):
    """Positives score far above all else, so that likelihood takes what is unknown for negative."""
    known = np.full((ROWS, len(CLASSES)), labels, np.int8)
    known[:12, 0] = known[12:24, 1] = 1
    scores = np.random.default_rng(0).normal(np.where(known == 1, 4, -4), 0.3).astype(np.float32)
    table = SimpleNamespace(asked=None, classes=CLASSES, files=[f"{row}.jpg" for row in range(ROWS)])
    run = SimpleNamespace(table=table, config=SimpleNamespace(data=SimpleNamespace(process="auto")))
    nothing = known[:0], np.empty((5, 0, len(CLASSES)), np.float32)
    return OutOfSample(run, np.arange(ROWS), known, scores, *nothing, folds=5)


def test_where_labels_do_not_tell_how_many_are_missing_the_surest_are_suggested():
    given = scored(-1)
    found = find_in(given)
    assert found.in_the_dark
    assert (found.suggestions.kind == "missing").sum() == FEWEST
    everything = find_in(given, min_probability=0).suggestions
    missing = everything[everything.kind == "missing"][:FEWEST]
    np.testing.assert_array_equal(found.suggestions.row, missing.row)
    assert len(find_in(given, min_probability=0.05).suggestions) == 0


def test_where_all_is_known_nothing_is_suggested_as_missing():
    found = find_in(scored(0))
    assert not found.in_the_dark
    assert not (found.suggestions.kind == "missing").any()
