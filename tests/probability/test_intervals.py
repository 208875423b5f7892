"""Intervals of counts, of figures and of differences."""

import numpy as np
import pytest
from scipy.special import expit

from onepair.labels import POSITIVE, UNKNOWN
from onepair.metrics import mean_average_precision, precision_recall_f1
from onepair.probability.intervals import (
    Interval,
    bootstrap_figures,
    count_missing,
    more_to_halve,
    paired_interval,
    pool,
    resampled_maps,
)

CLASSES, ROWS, SAMPLE = 4, 600, 300


def trial(random, model):
    """Estimates for a drawn dataset, and the truth."""
    scores = random.normal(0, 2, (ROWS + SAMPLE, CLASSES))
    truth = expit(scores + np.array([-3, -2, -1, 0]))
    labels = (random.random(truth.shape) < truth).astype(np.int8)
    probabilities = model(truth)
    hidden = random.random((ROWS, CLASSES)) < [0.2, 0.4, 0.6, 0.8]
    observed = np.where(hidden | (labels[:ROWS] != POSITIVE), UNKNOWN, POSITIVE).astype(np.int8)
    missing = (hidden & (labels[:ROWS] == POSITIVE)).sum(0)
    return count_missing(observed, probabilities[:ROWS], labels[ROWS:], probabilities[ROWS:]), missing


@pytest.mark.parametrize("model", [lambda truth: truth, lambda truth: truth**3, lambda truth: np.full_like(truth, 0.9)])
def test_the_interval_holds_the_truth_as_often_as_promised(model):
    random = np.random.default_rng(0)
    inside, all_inside, errors = [], [], []
    for _ in range(150):
        (by_class, total), missing = trial(random, model)
        inside.append((by_class.low <= missing) & (missing <= by_class.high))
        all_inside.append(total.low <= missing.sum() <= total.high)
        errors.append(by_class.value - missing)
    assert 0.91 <= np.mean(inside) <= 0.985
    assert np.mean(all_inside) >= 0.9
    assert np.abs(np.mean(errors, axis=0)).max() < 6  # of some 100 to 200


def test_a_better_model_has_a_narrower_interval():
    widths = []
    for model in (lambda truth: truth, lambda truth: np.full_like(truth, 0.3)):
        (by_class, total), _ = trial(np.random.default_rng(1), model)
        widths.append([*(by_class.high - by_class.low), total.high - total.low])
    good, bad = np.array(widths)
    assert (good[1:] < 0.9 * bad[1:]).all()  # the first class is rare, and both know little of it


def test_no_more_can_be_missing_than_is_unknown():
    observed = np.array([[1, 0], [1, -1]], np.int8)
    by_class, total = count_missing(observed, np.ones((2, 2)), np.ones((3, 2), np.int8), np.ones((3, 2)))
    np.testing.assert_array_equal(by_class.value, [0, 1])
    assert total.value == 1


def test_two_estimates_together_reach_no_further_than_either():
    few = Interval(*(np.array([each]) for each in (2.0, 0.0, 3.0)))
    many = Interval(*(np.array([each]) for each in (2.9, 0.5, 3.0)))
    both = pool(few, many)
    assert 0 <= both.low <= both.value <= both.high <= 3


def slow_maps(scores, labels, resamples, seed):
    """The mean average precision of images that are really drawn, with their copies."""
    random = np.random.default_rng(seed)
    draws = random.integers(len(labels), size=(resamples, len(labels)))
    return np.array([[mean_average_precision(run[rows], labels[rows]).value for rows in draws] for run in scores])


def scene(*, tied=False, unknown=False, images=60, classes=4):
    random = np.random.default_rng(1)
    labels = (random.random((images, classes)) < [0.5, 0.3, 0.2, 0.1]).astype(np.int8)
    if unknown:
        labels[random.random(labels.shape) < 0.3] = -1
    scores = [labels + random.normal(scale=scale, size=labels.shape) for scale in (1.0, 2.0)]
    if tied:
        scores = [run.round() for run in scores]
    return [run.astype(np.float32) for run in scores], labels


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("unknown", [False, True])
def test_it_equals_drawing_and_sorting_anew(tied, unknown):
    scores, labels = scene(tied=tied, unknown=unknown)
    np.testing.assert_allclose(
        resampled_maps(scores, labels, resamples=50), slow_maps(scores, labels, 50, 0), rtol=1e-12
    )


def test_the_seed_decides_the_draws():
    scores, labels = scene()
    first, again, other = (resampled_maps(scores, labels, resamples=20, seed=seed) for seed in (3, 3, 4))
    assert (first == again).all()
    assert (first != other).any()


def test_a_class_without_positives_is_left_out():
    scores, labels = scene()
    labels[:, 2] = 0
    kept = [run[:, [0, 1, 3]] for run in scores]
    np.testing.assert_allclose(
        resampled_maps(scores, labels, resamples=20), resampled_maps(kept, labels[:, [0, 1, 3]], resamples=20)
    )


def test_more_resamples_than_are_done_at_once():
    scores, labels = scene(images=12)
    maps = resampled_maps(scores, labels, resamples=230)
    assert maps.shape == (2, 230)
    assert len(np.unique(maps[0])) > 150


def test_the_verdict_is_real_only_if_one_run_is_ahead_throughout():
    assert Interval(0.02, 0.01, 0.03).excludes_zero
    assert Interval(-0.02, -0.03, -0.01).excludes_zero
    assert not Interval(0.02, -0.01, 0.05).excludes_zero


def test_the_interval_holds_95_per_cent():
    first = np.zeros(1001)
    second = np.linspace(-0.1, 0.9, 1001)
    assert paired_interval(0.4, first, second) == pytest.approx((0.4, -0.075, 0.875))


def test_a_much_better_run_and_the_same_run_again():
    scores, labels = scene(images=400)
    maps = resampled_maps([*scores, scores[0]], labels, resamples=200)
    assert paired_interval(0.1, maps[1], maps[0]).excludes_zero
    assert not paired_interval(0.0, maps[0], maps[2]).excludes_zero


def test_most_intervals_hold_the_true_difference():
    """Two runs of equal worth: an interval that says otherwise should be rare."""
    random = np.random.default_rng(5)
    wrong = 0
    for _ in range(40):
        labels = (random.random((150, 2)) < 0.3).astype(np.int8)
        runs = [labels + random.normal(scale=1.5, size=labels.shape) for _ in range(2)]
        maps = resampled_maps(runs, labels, resamples=200)
        wrong += paired_interval(0.0, *maps).excludes_zero
    assert wrong <= 6


def wilson(hits, number):
    """The shares p that are 1.96 standard deviations from what was seen: (h / n - p)² = z² p (1 - p) / n."""
    squared, seen = 1.96**2, hits / number
    return sorted(np.roots([1 + squared / number, -2 * seen - squared / number, seen**2]).real)


def test_a_few_labels_that_are_all_right_make_nothing_sure():
    labels = np.eye(5, 3, dtype=np.int8)
    figures = bootstrap_figures(np.where(labels == 1, 1.0, 0.0), labels, labels == 1)
    assert figures.map.value == figures.precision.value == figures.recall.value == figures.f1.value == 1.0
    for figure in figures:
        np.testing.assert_allclose(figure[1:], wilson(3, 3), rtol=1e-6)
        assert figure.low < 0.5
    nothing = bootstrap_figures(np.where(labels == 1, 1.0, 0.0), labels, np.zeros(labels.shape, bool))
    assert nothing.precision[1:] == (0.0, 1.0)


def test_figures_are_those_of_the_images_and_their_intervals_those_of_drawing_anew():
    (scores, _), labels = scene()
    predicted = scores > 0.7
    figures = bootstrap_figures(scores, labels, predicted, resamples=60, seed=2)
    draws = np.random.default_rng(2).integers(len(labels), size=(60, len(labels)))
    slow = np.array(
        [
            (
                mean_average_precision(scores[rows], labels[rows]).value,
                *precision_recall_f1(predicted[rows], labels[rows], average="overall"),
            )
            for rows in draws
        ]
    )
    chosen, there = predicted & (labels != -1), labels == 1
    hits = (predicted & there).sum()
    numbers = (None, chosen.sum(), there.sum(), (chosen.sum() + there.sum()) / 2)
    for figure, values, number in zip(figures, slow.T, numbers, strict=True):
        low, high = np.percentile(values, [2.5, 97.5])
        ends = wilson(hits, number) if number else (low, high)
        np.testing.assert_allclose(figure[1:], (min(low, ends[0]), max(high, ends[1])), rtol=1e-6)
    assert figures.map.value == mean_average_precision(scores, labels).value
    whole = precision_recall_f1(predicted, labels, average="overall")
    assert (figures.precision.value, figures.recall.value, figures.f1.value) == tuple(whole)


@pytest.mark.parametrize(("images", "population"), [(100, 10**9), (100, 1143), (3, 8), (50, 51)])
def test_so_many_more_images_halve_an_interval(images, population):
    def width(number):
        return np.sqrt(1 / number - 1 / population)

    more = more_to_halve(images, population)
    assert width(images + more) <= width(images) / 2 + 1e-9
    assert more == 1 or width(images + more - 1) > width(images) / 2
