"""Missing and wrong labels from scores in blocks: against `judge` on the whole matrix, and against stored examples.

`python -m tests.finding.test_search` stores the examples anew, where what is found is meant to change.
"""

import json
from dataclasses import astuple
from pathlib import Path

import numpy as np
import pytest

from onepair.errors import RunError
from onepair.finding import find_by_blocks, search, summarise
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, observe_positives
from onepair.probability import fit_decisions
from onepair.probability.cell_posterior import judge

EXAMPLES = json.loads((Path(__file__).parent / "stored_examples.json").read_text())


@pytest.fixture(autouse=True)
def small_blocks(monkeypatch):
    monkeypatch.setattr(search, "_BLOCK", 70 * 6)


def problem(rows=300, classes=6):
    random = np.random.default_rng(4)
    logits = random.normal(-1, 2, (rows, classes)).astype(np.float32)
    truth = (random.random((rows, classes)) < 1 / (1 + np.exp(-logits))).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    return logits, truth


def find(observed, scores, *, asked=None, **options):
    matrix = None if asked is None else LabelMatrix.of(np.asarray(asked, np.int8))
    return find_by_blocks(LabelMatrix.of(observed), scores.__getitem__, asked=matrix, **options)


def found_in(example):
    scores, observed = np.array(example["scores"], np.float32), np.array(example["observed"], np.int8)
    asked = np.zeros(observed.shape, bool)
    asked.flat[example["asked"] or []] = True
    full = np.array(example["sample"], np.int8) if example["sample"] else None
    by_model = None if full is None else np.array(example["sample_scores"], np.float32)
    return scores, observed, asked, find(observed, scores, asked=asked, full=full, full_scores=by_model)


@pytest.mark.parametrize("example", EXAMPLES, ids=[each["name"] for each in EXAMPLES])
def test_examples_are_found_as_ever(example):
    """Stored with every cell as a suggestion; counts and thresholds are older than the order of suggestions."""
    scores, observed, asked, found = found_in(example)
    first = found.suggestions[: len(example["row"])]
    for part in ("row", "label", "kind"):
        assert getattr(first, part).tolist() == example[part]
    np.testing.assert_allclose(first.probability, example["probability"], rtol=1e-8)
    np.testing.assert_allclose(found.total, example["missing"], rtol=1e-8)
    classes = summarise(LabelMatrix.of(observed), found.suggestions, found.missing, "abcde")
    np.testing.assert_allclose([astuple(each)[1:] for each in classes], example["classes"], rtol=1e-8)
    np.testing.assert_allclose(fit_decisions(scores, observed, asked=asked).thresholds, example["thresholds"])


def test_the_likeliest_of_each_class_are_found_with_the_probabilities_of_the_whole_matrix():
    scores, truth = problem()
    observed = observe_positives(truth)
    found, whole = find(observed, scores, per_class=4), judge(observed, scores)
    np.testing.assert_allclose(found.missing.value, whole.missing.value)
    missing = found.suggestions[found.suggestions.kind == "missing"]
    cells = list(zip(missing.row.tolist(), missing.label.tolist(), strict=True))
    hidden = np.where(observed == UNKNOWN, scores, -np.inf)
    assert set(cells) == {(int(row), label) for label in range(6) for row in np.argsort(-hidden[:, label])[:4]}
    np.testing.assert_allclose(missing.probability, [whole.probabilities[cell] for cell in cells])
    assert (np.diff(found.suggestions.probability) <= 0).all()
    assert np.mean([truth[cell] for cell in cells]) > 2 * truth[observed == UNKNOWN].mean()


def wrong_labels():
    """Half of the labels known, of which one in thirty is wrong."""
    scores, truth = problem(rows=1_500)
    random = np.random.default_rng(0)
    scores = (2.5 * scores).astype(np.float32)
    truth = (random.random(truth.shape) < 1 / (1 + np.exp(-scores))).astype(np.int8)
    shown = np.where(random.random(truth.shape) < 0.03, 1 - truth, truth)
    return np.where(random.random(truth.shape) < 0.5, shown, UNKNOWN).astype(np.int8), scores


def test_few_and_many_labels_have_the_same_suggestions(monkeypatch):
    """Fitted to the same rows, whether all cells are looked at or the likeliest alone."""
    observed, scores = wrong_labels()
    every = find(observed, scores).suggestions
    some = find(observed, scores, per_class=len(scores)).suggestions
    likely = every[every.probability >= 0.05]
    assert {"missing", "wrong"} == set(likely.kind.tolist())
    for part in ("row", "label", "probability", "kind"):
        np.testing.assert_array_equal(getattr(some, part)[: len(likely)], getattr(likely, part))
    assert len(some) < len(every)
    fewer = find(observed, scores, per_class=200, top=300).suggestions
    assert len(fewer) == 300
    for part in ("row", "label", "kind"):
        np.testing.assert_array_equal(getattr(fewer, part)[:100], getattr(every, part)[:100])


def test_a_sample_stands_for_all_rows(monkeypatch):
    """Below and above the limit, about the same answer."""
    observed, scores = wrong_labels()
    every = find(observed, scores)
    monkeypatch.setattr(search, "FEW_CELLS", 600 * 6)
    found = find(observed, scores)
    assert found.basis.startswith("by a random sample of 600 of 1,500 images, if the process is ")
    sample = np.sort(np.random.default_rng(0).choice(1_500, 600, replace=False))
    of_sample = judge(observed[sample], scores[sample])
    np.testing.assert_allclose(found.missing.value, of_sample.missing.value * 1_500 / 600)
    assert found.total.low <= every.total.value <= found.total.high
    first = [
        set(zip(each.row[:200].tolist(), each.label[:200].tolist(), strict=True))
        for each in (every.suggestions, found.suggestions)
    ]
    assert len(first[0] & first[1]) > 160


def test_nothing_known_is_said_so():
    with pytest.raises(RunError, match="none of 3 images has a positive label"):
        find(np.full((3, 2), UNKNOWN), np.zeros((3, 2), np.float32))


def test_positives_of_other_rows_are_enough():
    scores, truth = problem()
    found = find(np.full((200, 6), UNKNOWN), scores, full=truth[200:], full_scores=scores[200:])
    assert found.total.low <= truth[:200].sum() <= found.total.high


def test_progress_is_told():
    scores, truth = problem()
    told = []
    find(observe_positives(truth), scores, per_class=20, on_progress=lambda *each: told.append(each))
    assert told == [(0, 300), (70, 300), (140, 300), (210, 300), (280, 300), (300, 300)]


def test_intervals_hold_what_a_sample_may_miss(monkeypatch):
    random = np.random.default_rng(1)
    truth = (random.random((4_000, 40)) < np.where(np.arange(40) < 5, 0.4, 1 / 150)).astype(np.int8)
    truth[~truth.any(1), 0] = 1
    scores = (random.normal(size=truth.shape) + np.where(truth == 1, 6, -6)).astype(np.float32)
    observed = observe_positives(truth)
    monkeypatch.setattr(search, "FEW_CELLS", 200 * 40)
    found = find(observed, scores, per_class=10)
    missing = ((truth == 1) & (observed == UNKNOWN)).sum(0)
    assert ((found.missing.low <= missing) & (missing <= found.missing.high)).mean() >= 0.9
    assert found.total.low <= missing.sum() <= found.total.high
    assert found.total.high < 4 * missing.sum()


def asked_for():
    """Up to two positives of each row, and more in some that were asked for."""
    scores, truth = problem()
    observed, asked = observe_positives(truth, per_sample=2), np.zeros(truth.shape, bool)
    for row in np.flatnonzero(((truth == 1) & (observed == UNKNOWN)).any(1))[:100]:
        column = np.flatnonzero((truth[row] == 1) & (observed[row] == UNKNOWN))[0]
        observed[row, column], asked[row, column] = POSITIVE, True
    return observed, scores, {"asked": asked, "process": "few-positives"}


def looked_at_by_lists():
    scores, truth = problem()
    observed = np.where((truth == 1) & (np.random.default_rng(0).random(truth.shape) < 0.5), 1, -1).astype(np.int8)
    observed[:150] = UNKNOWN
    observed[:75, :3], observed[75:150, 2:5] = truth[:75, :3], truth[75:150, 2:5]
    return observed, scores, {}


@pytest.mark.parametrize("given", [asked_for, looked_at_by_lists])
def test_how_a_row_came_to_be_labelled_is_known_by_what_others_are(given):
    observed, scores, options = given()
    found = find(observed, scores, per_class=len(scores), **options).suggestions
    plain = find(observed, scores, **{**options, "asked": None, "process": "regardless"}).suggestions
    found, plain = found[found.kind == "missing"], plain[plain.kind == "missing"]
    whole = judge(observed, scores, **options).probabilities
    np.testing.assert_allclose(found.probability, whole[found.row, found.label])
    assert np.abs(whole[plain.row, plain.label] - plain.probability).max() > 0.05


def test_known_negatives_are_suspected_as_well():
    observed, scores = wrong_labels()
    found = find(observed, scores, per_class=1).suggestions
    wrong = found[found.kind == "wrong"]
    assert set(observed[wrong.row, wrong.label].tolist()) == {NEGATIVE, POSITIVE}


def test_scores_that_are_none_are_refused(monkeypatch):
    """They would hide all others of their block."""
    scores, truth = problem()
    monkeypatch.setattr(search, "FEW_CELLS", 100 * 6)
    missed = np.setdiff1d(np.arange(300), np.random.default_rng(0).choice(300, 100, replace=False))[-1]
    scores[missed, 2] = np.nan
    with pytest.raises(ValueError, match=f"row {missed} is not finite"):
        find(observe_positives(truth), scores)


def store():
    """Write the examples with what is found in them now."""
    for example in EXAMPLES:
        scores, observed, asked, found = found_in(example)
        first = found.suggestions[: len(example["row"])]
        classes = summarise(LabelMatrix.of(observed), found.suggestions, found.missing, "abcde")
        example |= {part: getattr(first, part).tolist() for part in ("row", "label", "kind", "probability")}
        example |= {
            "missing": [float(each) for each in found.total],
            "classes": [list(astuple(each)[1:]) for each in classes],
            "thresholds": fit_decisions(scores, observed, asked=asked).thresholds.tolist(),
        }
    texts = [
        ",\n".join(f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in each.items()) for each in EXAMPLES
    ]
    (Path(__file__).parent / "stored_examples.json").write_text("[\n {\n" + "\n },\n {\n".join(texts) + "\n }\n]\n")


if __name__ == "__main__":
    store()
