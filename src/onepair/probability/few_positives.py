"""Lines where every row shows some of its positives, drawn at random: how many labels a row has is what is not known.

Likelihood finds it from how scores and shown labels go together, but not surely: labels that are not independent given
the scores mislead it. So lines are fitted for one number of labels a row after the other, and how well each of them
explains what is shown, taken with caution, says how probable it is.
"""

import io
from pathlib import Path
from typing import Any, NamedTuple
from zipfile import BadZipFile

import numpy as np
from scipy.optimize import minimize
from scipy.special import expit

from onepair.files import write_atomically
from onepair.labels import POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats
from onepair.probability.binned_counts import KnownCells
from onepair.probability.calibration import LINE_PRECISION, Platt
from onepair.probability.observation import Observation, Rates

_USUAL_STOP, _STOP_PRECISION = -1.0, 0.1  # of a normal prior of the logit of a chance to have been allowed no more
_COMMON_PRECISION = 1e-3  # of the line of all classes, which nothing but the labels decides
_LIKELIHOOD_POWER = 0.1  # how much is believed of the log likelihood of a row that was not looked at in full, at most
_OWN_LINE = (
    10.0  # known positives of a class, for half of that: what its line leaves unexplained looks like more labels
)
_MORE_SD = 1.0  # of the logarithm of how many labels a row has beyond the first, about 0
_FEWEST_MORE = 0.02  # labels a row beyond the first
_STEPS = (0.15, 0.4, 0.9, 1.8, 3.2, 5.0)  # to either side of the most likely number, in its logarithm
_HOPELESS = 6.0  # the loss of evidence at which no further numbers are looked at
_TIGHT = 10.0  # how closely lines are held to a number of labels, for each row
_FIT_STEPS, _MOVE_STEPS, _ROUNDS = 40, 15, 3
_POINTS = 61  # of the number of labels, that what was fitted is interpolated to


class Scenario(NamedTuple):
    """Lines that go with some number of labels a row."""

    lines: Platt  # probability of a cell to be positive by its score alone, were its row any row
    rates: Rates
    more: float  # labels a row beyond the first; beyond none where some rows are empty
    evidence: float  # log likelihood of what is known, with caution
    hidden: Floats  # (L,), expected positives among unknown cells
    parameters: Floats  # where the search ended


class Scenarios(NamedTuple):
    """The lines in the middle, and what others would say."""

    lines: Platt
    rates: Rates
    weights: Floats  # (S,), how probable each of the others is
    ratios: Floats  # (S, L), of their hidden positives to those of the middle
    total_ratios: Floats  # (S,), of all classes together

    def write(self, path: Path, key: str) -> None:
        """Keep them in a file, for whoever fits to the same numbers again.

        Args:
            path: a .npz file.
            key: tells what they were fitted to from all else.
        """
        content, lines, rates = io.BytesIO(), self.lines, self.rates
        parts = (lines.slope, lines.intercept, *rates, self.weights, self.ratios, self.total_ratios)
        named: dict[str, Any] = dict(zip(_PARTS, parts, strict=True))
        np.savez(content, key=np.array(f"{_VERSION} {key}"), **named)
        write_atomically(path, content.getvalue())

    @classmethod
    def read(cls, path: Path, key: str) -> "Scenarios | None":
        """What `write` wrote with this key; None if there is nothing like it."""
        try:
            with path.open("rb") as content, np.load(content, allow_pickle=False) as file:
                if str(file["key"]) != f"{_VERSION} {key}":
                    return None
                slope, intercept, positive, negative, stop, *others = (file[name] for name in _PARTS)
        except (OSError, ValueError, KeyError, EOFError, BadZipFile):
            return None
        return cls(Platt(slope, intercept), Rates(positive, negative, stop), *others)


_VERSION = 1
_PARTS = ("slope", "intercept", "positive", "negative", "stop", "weights", "ratios", "total_ratios")


def fit_few_positives(
    scores: Floats, labels: Labels, observation: Observation, weights: Floats, every: KnownCells, *, rows: int
) -> Scenarios:
    """Lines where `observation.max_shown` positives of a row are shown at most.

    Args:
        scores, labels: (N, L).
        observation: of these rows.
        weights: (N,), how many rows each stands for that was looked at in full.
        every: the cells of these rows and perhaps of more, which tell how classes differ.
        rows: how many rows these stand for.
    """
    # Rows may show fewer than the most because they have no more, all of them, or because they were allowed no more.
    ways = (True, False) if observation.max_shown > 1 else (True,)
    searches = [_Search(scores, labels, observation, weights, every, rows=rows, exact=exact) for exact in ways]
    profiles = [search.profile() for search in searches]
    points = [_interpolated(profile) for profile in profiles]
    more, evidence, hidden, stop = (np.concatenate(each) for each in zip(*points, strict=True))
    weight = np.exp(evidence - evidence.max())
    weight /= weight.sum()
    best = max((scenario for profile in profiles for scenario in profile), key=lambda scenario: scenario.evidence)
    middle = searches[0].middle(best, float(np.exp(weight @ np.log(more))), weight @ stop)
    ratios = hidden / np.maximum(middle.hidden, 1e-9)
    return Scenarios(middle.lines, middle.rates, weight, ratios, hidden.sum(1) / max(middle.hidden.sum(), 1e-9))


class _Search:
    """The search for lines of highest likelihood, by gradients that are differences of expectations."""

    def __init__(
        self,
        scores: Floats,
        labels: Labels,
        observation: Observation,
        weights: Floats,
        every: KnownCells,
        *,
        rows: int,
        exact: bool,
    ) -> None:
        self.cells, self.classes = KnownCells(scores, labels, observation, weights), labels.shape[1]
        self.start = every.lines(np.zeros(every.tally.shape))  # if unknown means negative
        self.at, self.labels, self.observation = self.start.logits(scores), labels, observation
        self.full = (labels != UNKNOWN).all(1)
        positives = every.known_positive.sum(0)
        with_line = float(positives @ (positives / (positives + _OWN_LINE)) / positives.sum())
        self.likelihood_power = (
            min(_LIKELIHOOD_POWER * rows / len(labels), 1) * with_line
        )  # all rows would say more, but not by these
        self.trust = np.where(self.full, weights, 1.0)
        self.unknown = ~observation.ignorable & (labels == UNKNOWN)
        shown = np.minimum(((labels == POSITIVE) & ~observation.ignorable).sum(1), observation.max_shown)
        bound, steps = self.unknown.any(1), np.arange(observation.max_shown)[:, None]
        self.shows = bound & (shown == steps)  # (k, n)
        self.passed, self.reached = ((bound & each).sum(1) for each in (shown > steps, shown >= steps))
        self.searched = np.arange(1 if exact else observation.max_shown)
        self.fixed_stop = np.append(np.zeros(observation.max_shown), 1.0)
        guess = self.cells.unknown * self.start(self.cells.tally.scores)
        self.rates = self.cells.rates(guess, self.fixed_stop)
        self.precision = np.repeat(
            [_COMMON_PRECISION, LINE_PRECISION, _STOP_PRECISION], [2, 2 * self.classes, len(self.searched)]
        )
        self.origin = np.repeat([0.0, _USUAL_STOP], [2 + 2 * self.classes, len(self.searched)])

    def profile(self) -> list[Scenario]:
        """The most likely number of labels a row, and others to either side as far as they are worth a look."""
        first = self.fit(None, None, _FIT_STEPS)
        least, most = _FEWEST_MORE, self.classes / 2
        if not least < first.more < most:  # a cliff, from whose foot no step leads back
            first = self.fit(None, min(1.0, most), _FIT_STEPS)
        found, best = [first], first.evidence
        for side in (-1, 1):
            last = first
            for more in np.unique(np.clip(first.more * np.exp(side * np.array(_STEPS)), least, most))[::side]:
                if last.evidence < best - _HOPELESS:
                    break
                last = self.fit(last, float(more), _MOVE_STEPS)
                found.append(last)
                best = max(best, last.evidence)
        return sorted(found, key=lambda scenario: scenario.more)

    def middle(self, near: Scenario, more: float, stop: Floats) -> Scenario:
        """The lines of this number of labels a row, and these chances to be allowed no more."""
        self.fixed_stop, self.searched = stop, self.searched[:0]
        size = 2 + 2 * self.classes
        self.precision, self.origin = self.precision[:size], self.origin[:size]
        return self.fit(near._replace(parameters=near.parameters[:size]), more, _MOVE_STEPS)

    def fit(self, near: Scenario | None, more: float | None, steps: int) -> Scenario:
        """Lines and rates of highest likelihood, or of the highest that goes with so many labels a row."""
        parameters = self.origin if near is None else near.parameters
        rates = self.rates if near is None else near.rates
        rounds = _ROUNDS if self.cells.negative.any() else 1  # to find out how often negatives are known
        for _ in range(rounds):
            scale = self._scale(parameters)
            found = minimize(
                lambda values, rates=rates, scale=scale: self._objective(values, rates, more, scale),
                parameters / scale,
                jac=True,
                method="L-BFGS-B",
                options={"maxiter": steps, "ftol": 1e-5},
            )
            parameters = scale * found.x
            lines, stop = self._unpack(parameters)
            posterior = self.observation.posterior(lines(self.at), self.labels, rates._replace(stop=stop))
            hidden = np.where(self.unknown, posterior, 0)
            rates = self.cells.rates(self.cells.tally.sums(hidden), stop)
        labels_a_row, evidence = self._evidence(parameters, rates)
        chained = Platt(lines.slope * self.start.slope, lines.slope * self.start.intercept + lines.intercept)
        return Scenario(chained, rates, labels_a_row, evidence, hidden.sum(0), parameters)

    def _unpack(self, parameters: Floats) -> tuple[Platt, Floats]:
        """Lines over those to start with, and the chances to be allowed no more."""
        common, slope, intercept, stops = np.split(parameters, [2, 2 + self.classes, 2 + 2 * self.classes])
        stop = self.fixed_stop.copy()
        stop[self.searched] = expit(stops)
        return Platt(1 + common[0] + slope, common[1] + intercept), stop

    def _scale(self, parameters: Floats) -> Floats:
        """Steps of about the uncertainty of each parameter, so that all are as easy to find."""
        chance = self._unpack(parameters)[0](self.at)
        curvature = chance * (1 - chance)
        by_class = (curvature * self.at**2).sum(0), curvature.sum(0)
        sizes = [[each.sum()] for each in by_class] + [*by_class, self.reached[self.searched] / 4]
        scale: Floats = 1 / np.sqrt(self.precision + np.concatenate(sizes))
        return scale

    def _objective(self, values: Floats, rates: Rates, more: float | None, scale: Floats) -> tuple[float, Floats]:
        """What is to be minimised, and its gradient, by parameters in steps of their scale.

        The gradient of a row's log likelihood by the logit of a cell is the probability of that cell given what the
        row shows, less its probability in any row that is not empty.
        """
        parameters = scale * values
        lines, stop = self._unpack(parameters)
        chance = lines(self.at)
        explained = self.observation.explain(chance, self.labels, rates._replace(stop=stop))
        seen = explained.seen[:, None]
        cells = self.trust[:, None] * (explained.posterior - chance / seen)
        loss = self._penalty(parameters) - self.trust @ explained.log_likelihood - self._survival(stop)
        if more is not None:
            number, slope = self._labels_a_row(chance, seen)
            off = np.log(number / more)
            loss += _TIGHT * len(chance) / 2 * off**2
            cells -= _TIGHT * len(chance) * off / number * slope
        by_class = np.einsum("nl,nl->l", cells, self.at), cells.sum(0)
        stopped = (self.shows * explained.stopped).sum(1) - stop[:-1] * self.reached
        gradient = [[by_class[0].sum(), by_class[1].sum()], *by_class, stopped[self.searched]]
        return float(loss), scale * (self.precision * (parameters - self.origin) - np.concatenate(gradient))

    def _penalty(self, parameters: Floats) -> float:
        return float(self.precision @ (parameters - self.origin) ** 2 / 2)

    def _survival(self, stop: Floats) -> float:
        """The log likelihood of rows to have been allowed more than fewer."""
        return float(self.passed @ np.log(np.maximum(1 - stop[:-1], 1e-300)))

    def _labels_a_row(self, chance: Floats, seen: Floats) -> tuple[float, Floats]:
        """How many on average, beyond the first where no row is empty, and the gradient by the logits of cells."""
        number = chance.sum(1, keepdims=True) / seen
        slope = chance * (1 - number * (1 - seen) - chance) / (seen * len(chance))
        beyond = float(number.mean()) - (0 if self.observation.has_empty_rows else 1)
        return max(beyond, 1e-6), slope

    def _evidence(self, parameters: Floats, rates: Rates) -> tuple[float, float]:
        """The number of labels a row, and the log probability of these parameters, with caution."""
        lines, stop = self._unpack(parameters)
        chance = lines(self.at)
        explained = self.observation.explain(chance, self.labels, rates._replace(stop=stop))
        likelihood, number = explained.log_likelihood, self._labels_a_row(chance, explained.seen[:, None])[0]
        tempered = likelihood[~self.full].sum() + self._survival(stop) + self.cells.known_at(rates)
        tempered -= self._penalty(parameters)
        known = self.trust[self.full] @ likelihood[self.full]
        return number, float(self.likelihood_power * tempered + known - (np.log(number) / _MORE_SD) ** 2 / 2)


def _interpolated(profile: list[Scenario]) -> tuple[Floats, Floats, Floats, Floats]:
    """Numbers of labels a row (P,) in equal steps of their logarithm, and what goes with them: the evidence, with the
    size of a step, the hidden positives (P, L), and the chances to be allowed no more.
    """
    at = np.log([scenario.more for scenario in profile])
    points = np.linspace(at[0], at[-1], _POINTS)
    hidden = np.log(np.maximum([scenario.hidden for scenario in profile], 1e-9))
    evidence = np.interp(points, at, [scenario.evidence for scenario in profile])
    by_class = np.stack([np.interp(points, at, column) for column in hidden.T], axis=1)
    stops = np.array([scenario.rates.stop for scenario in profile])
    stop = np.stack([np.interp(points, at, column) for column in stops.T], axis=1)
    step = max(points[1] - points[0], 1e-3)
    return np.exp(points), evidence + np.log(step), np.exp(by_class), stop
