"""Calibrators against known probabilities, and the calibration error against a slow reference."""

import json

import numpy as np
import pytest
from pydantic import TypeAdapter
from scipy.optimize import minimize
from scipy.special import expit
from sklearn.linear_model import LogisticRegression

from onepair.probability import calibration
from onepair.probability.calibration import (
    LINE_PRECISION,
    UNTOLD,
    Correction,
    Platt,
    StoredCalibrator,
    StoredIsotonic,
    StoredPlatt,
    calibrator_from,
    correct_lines,
    expected_calibration_error,
    fit_isotonic,
    fit_platt,
    reliability,
)

STORED = TypeAdapter(StoredCalibrator)
SLOPES, INTERCEPTS = np.array([0.5, 2.0, 1.0]), np.array([-2.0, 0.5, 0.0])


def generate(rows, random, curve=lambda scores: expit(scores * SLOPES + INTERCEPTS)):
    """Scores, the probabilities that truly go with them, and labels drawn by these."""
    scores = random.normal(0, 2, (rows, len(SLOPES)))
    probabilities = curve(scores)
    return scores, probabilities, (random.random(scores.shape) < probabilities).astype(np.int8)


@pytest.mark.parametrize("fit", [fit_platt, fit_isotonic])
def test_probabilities_come_close_to_the_true_ones(fit):
    random = np.random.default_rng(0)
    calibrator = fit(*generate(8000, random)[::2])
    scores, truth, labels = generate(8000, random)
    assert np.abs(calibrator(scores) - truth).mean() < 0.02
    before, after = (expected_calibration_error(p, labels) for p in (expit(scores), calibrator(scores)))
    assert after < 0.25 * before


def test_lines_of_many_cells_are_those_of_logistic_regression():
    scores, _, labels = generate(20_000, np.random.default_rng(1))
    platt = fit_platt(scores, labels)
    for column in range(3):
        reference = LogisticRegression(C=np.inf).fit(scores[:, [column]], labels[:, column])
        assert platt.slope[column] == pytest.approx(reference.coef_[0, 0], rel=0.02)
        assert platt.intercept[column] == pytest.approx(reference.intercept_[0], abs=0.02)


def test_a_curve_follows_what_no_line_can():
    def steps(scores):
        return np.where(scores > 1, 0.6, np.where(scores > -1, 0.5, 0.05))

    random = np.random.default_rng(2)
    scores, _, labels = generate(8000, random, steps)
    line, curve = fit_platt(scores, labels), fit_isotonic(scores, labels)
    scores, truth, _ = generate(8000, random, steps)
    assert np.abs(curve(scores) - truth).mean() < 0.5 * np.abs(line(scores) - truth).mean()
    assert (np.diff(curve(np.sort(scores, 0)), axis=0) >= 0).all()


def test_of_two_scores_the_higher_is_the_more_probable():
    """Where labels call for a level piece, and beyond the ends, too: whoever ranks by probabilities has no ties."""
    scores, _, labels = generate(60, np.random.default_rng(0))
    curve = fit_isotonic(scores, labels)
    ladder = np.repeat(np.linspace(scores.min() - 2, scores.max() + 2, 1000)[:, None], 3, axis=1)
    assert (np.diff(curve(ladder), axis=0) > 0).all()


@pytest.mark.parametrize("fit", [fit_platt, fit_isotonic])
def test_a_rare_class_leans_on_the_others(fit):
    """All classes have one truth; the first has 12 known cells."""
    random = np.random.default_rng(3)
    errors = []
    for _ in range(20):
        scores, truth, labels = generate(400, random, expit)
        rare = labels.copy()
        rare[12:, 0] = -1
        together = np.abs(fit(scores, rare)(scores) - truth)[:, 0].mean()
        alone = fit(scores[:12, :1], labels[:12, :1]) if 0 < labels[:12, 0].sum() < 12 else None
        errors.append((together, np.abs(alone(scores[:, :1]) - truth[:, :1]).mean() if alone else 0.5))
    together, alone = np.mean(errors, axis=0)
    assert together < 0.75 * alone


@pytest.mark.parametrize("fit", [fit_platt, fit_isotonic])
def test_unknown_cells_do_not_count(fit):
    scores, _, labels = generate(200, np.random.default_rng(4))
    hidden = labels.copy()
    hidden[100:] = -1
    changed = scores.copy()
    changed[100:] = 99 * labels[100:]
    np.testing.assert_allclose(fit(changed, hidden)(scores), fit(scores[:100], labels[:100])(scores), atol=1e-6)


@pytest.mark.parametrize("fit", [fit_platt, fit_isotonic])
def test_separated_and_one_sided_classes_stay_finite(fit):
    scores = np.array([[1.0, 5.0, 0.0], [2.0, 6.0, 0.0], [3.0, 7.0, 0.0], [4.0, 8.0, 0.0]])
    labels = np.array([[0, 1, -1], [0, 1, -1], [1, 1, -1], [1, 1, -1]])
    probabilities = fit(scores, labels)(scores)
    assert np.isfinite(probabilities).all()
    assert (probabilities[:2, 0] < 0.5).all()
    assert (probabilities[2:, 0] > 0.5).all()
    assert 0 < fit_platt(scores, labels).slope[0] < 50


def test_scores_of_any_scale_are_taken():
    scores, _, labels = generate(500, np.random.default_rng(5))
    np.testing.assert_allclose(
        fit_platt(1e4 * scores + 3e4, labels)(1e4 * scores + 3e4), fit_platt(scores, labels)(scores), atol=1e-4
    )


@pytest.mark.parametrize("fit", [fit_platt, fit_isotonic])
def test_calibrators_go_through_json(fit):
    scores, _, labels = generate(300, np.random.default_rng(6))
    calibrator = fit(scores, labels)
    stored = TypeAdapter(StoredCalibrator).validate_json(json.dumps(calibrator.to_dict()))
    again = calibrator_from(stored, classes=scores.shape[1])
    assert type(again) is type(calibrator)
    np.testing.assert_array_equal(again(scores), calibrator(scores))


def test_what_can_not_be_calibrated_is_refused():
    with pytest.raises(ValueError, match="known positives and known negatives are needed"):
        fit_platt([[1.0], [2.0]], [[1], [-1]])
    with pytest.raises(ValueError, match=r"must have one shape, got \(1, 2\) and \(1, 1\)"):
        fit_platt([[1.0, 2.0]], [[1]])
    with pytest.raises(ValueError, match="row 0, column 1 is nan"):
        fit_platt([[1.0, np.nan]], [[1, 0]])


def test_a_stored_calibrator_of_other_classes_is_refused():
    with pytest.raises(ValueError, match="not of 2 classes"):
        calibrator_from(StoredPlatt(kind="platt", slope=[1.0, 1.0], intercept=[0.0]), classes=2)
    for scores, heights in (([[]], [[]]), ([[0.0]], [[0.1, 0.2]]), ([[1.0, 0.0]], [[0.1, 0.2]])):
        with pytest.raises(ValueError, match="no ascending corners"):
            calibrator_from(StoredIsotonic(kind="isotonic", scores=scores, probabilities=heights), classes=1)


def slow_error(probabilities, labels, bins):
    cells = sorted(
        (p, y) for row in zip(probabilities, labels, strict=True) for p, y in zip(*row, strict=True) if y >= 0
    )
    sizes = [len(cells) // bins + (i < len(cells) % bins) for i in range(bins)]
    error, start = 0.0, 0
    for size in sizes:
        part = cells[start : start + size]
        error += abs(sum(p for p, _ in part) - sum(y for _, y in part)) / len(cells)
        start += size
    return error


def test_calibration_error_equals_the_slow_reference():
    random = np.random.default_rng(7)
    probabilities, labels = random.random((53, 4)), random.integers(-1, 2, (53, 4))
    assert expected_calibration_error(probabilities, labels, bins=10) == pytest.approx(
        slow_error(probabilities, labels, 10)
    )
    with pytest.raises(ValueError, match="no label is known"):
        expected_calibration_error([[0.5]], [[-1]])


@pytest.mark.parametrize(("cells", "steps"), [(19, 0), (20, 1)])
def test_a_step_of_few_cells_says_nothing(cells, steps):
    assert len(reliability(np.full((cells, 1), 0.8), np.ones((cells, 1))).predicted) == steps


def test_a_line_that_does_not_rise_reaches_no_probability():
    flat = Platt(slope=np.array([0.0, -1.0, 1.0]), intercept=np.array([0.5, 0.5, 0.5]))
    np.testing.assert_array_equal(flat.scores_at(0.5), [np.inf, np.inf, -0.5])


def test_reliability_counts_what_came_true():
    random = np.random.default_rng(4)
    probabilities = random.random((300, 4)) ** 3
    labels = np.where(random.random((300, 4)) < 0.2, -1, random.random((300, 4)) < probabilities).astype(np.int8)
    found = reliability(probabilities, labels, bins=5, fewest=30)
    expected = []
    for low in (0.0, 0.2, 0.4, 0.6, 0.8):
        cells = [
            (p, y) for p, y in zip(probabilities.flat, labels.flat, strict=True) if y != -1 and low <= p < low + 0.2
        ]
        if len(cells) >= 30:
            expected.append(np.mean(cells, axis=0))
    np.testing.assert_allclose(np.stack(found, axis=1), expected)
    assert len(expected) >= 3
    assert len(reliability(probabilities, np.full((300, 4), -1)).predicted) == 0


@pytest.mark.parametrize("fit", [fit_platt, fit_isotonic])
def test_a_probability_is_reached_where_a_search_finds_it(fit):
    scores, _, labels = generate(400, np.random.default_rng(8))
    calibrator = fit(scores, labels)
    tried = np.linspace(-8, 8, 4001)
    for probability in (0.2, 0.5, 0.7):
        reached = calibrator(np.repeat(tried[:, None], 3, axis=1)) >= probability
        expected = np.where(reached.any(0), tried[reached.argmax(0)], np.inf)
        np.testing.assert_allclose(calibrator.scores_at(probability), expected, atol=0.02 if fit is fit_platt else 0.05)


def test_corrected_lines_are_those_of_least_penalised_loss():
    random = np.random.default_rng(0)
    scores, weights = random.normal(size=(12, 3)), random.integers(0, 3, (12, 3)).astype(float)
    targets = random.random((12, 3))
    before = Platt(slope=np.array([1.0, 2.0, 0.5]), intercept=np.array([0.0, -1.0, 1.0]))
    after = correct_lines(before, scores, targets, weights)

    def loss(line, column):
        logits = line[0] * before.logits(scores)[:, column] + line[1]
        of_cells = weights[:, column] * (np.logaddexp(0, logits) - targets[:, column] * logits)
        return of_cells.sum() + LINE_PRECISION / 2 * ((line[0] - 1) ** 2 + line[1] ** 2)

    for column in range(3):
        slope, intercept = minimize(loss, [1.0, 0.0], args=(column,), tol=1e-10).x
        expected = slope * before.slope[column], slope * before.intercept[column] + intercept
        np.testing.assert_allclose((after.slope[column], after.intercept[column]), expected, atol=1e-4)


def told(rows, *, shift, random, at=2.0):
    logits = random.normal(at, 0.7, rows)
    return logits, random.random(rows) < expit(logits + shift)


def test_a_correction_is_the_mode_of_its_posterior():
    """Against a minimiser that is told nothing but the objective."""
    logits, positive = told(60, shift=-1.5, random=np.random.default_rng(0))
    found = Correction.fit(logits, positive, np.ones(60))
    grid = calibration._GRID
    place = np.abs(logits[:, None] - grid).argmin(1)
    distance = grid[:, None] - grid
    variance, directions = np.linalg.eigh(calibration._SHIFT_SD**2 * np.exp(-(distance**2) / 2 / calibration._REACH**2))
    spread = directions * np.sqrt(np.maximum(variance, 0))

    def objective(whitened):
        values = grid[place] + (spread @ whitened)[place]
        gradient = whitened + spread.T @ np.bincount(place, expit(values) - positive, len(grid))
        return whitened @ whitened / 2 + (np.logaddexp(0, values) - positive * values).sum(), gradient

    mode = spread @ minimize(objective, np.zeros(len(grid)), jac=True, method="BFGS").x
    seen = np.unique(place)
    np.testing.assert_allclose(found.shift[seen], mode[seen], atol=1e-3)


@pytest.mark.parametrize("shift", [-3.0, 0.0, 2.0])
def test_what_was_told_corrects_what_is_said_there_and_not_far_below(shift):
    random = np.random.default_rng(1)
    found = Correction.fit(*told(2000, shift=shift, random=random), np.ones(2000))
    assert found(np.array([2.0]))[0] == pytest.approx(2 + shift, abs=0.4)
    assert found(np.array([-6.0]))[0] == pytest.approx(-6, abs=0.05)
    points = np.linspace(-8, 14, 500)
    assert (np.diff(found(points)) > 0).all()  # ranks stay


def test_nothing_told_corrects_nothing_and_leaves_the_share_open():
    points = np.linspace(-8, 14, 50)
    np.testing.assert_array_equal(UNTOLD(points), points)
    assert not UNTOLD.share(np.full(100, 0.8)).is_informative


def test_the_interval_of_a_share_holds_and_narrows():
    random, widths = np.random.default_rng(2), []
    for number in (0, 30, 300):
        holds = []
        for _ in range(20):
            shift = random.normal(0, 1.5)
            correction = Correction.fit(*told(number, shift=shift, random=random), np.ones(number))
            logits, positive = told(100, shift=shift, random=random)
            share = correction.share(np.sort(expit(correction(logits)))[::-1])
            holds.append(share.low <= positive.mean() <= share.high)
        widths.append(share.high - share.low)
        assert np.mean(holds) >= 0.85
    assert widths[0] > widths[1] > widths[2]
