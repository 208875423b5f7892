"""Ways in which labels come to be observed, to hide full labels by."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import brentq
from scipy.special import expit

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.metrics import Floats

Random = np.random.Generator
Mask = NDArray[np.bool_]


class Hidden(NamedTuple):
    """What is left of full labels."""

    observed: Labels  # (N, L)
    asked: Mask | None = None  # (N, L): cells that somebody was asked about because of their score
    drops_empty: bool = False  # rows that show nothing are no part of the set


class Process(NamedTuple):
    """How labels come to be observed.

    `hide` takes full labels (N, L), scores (N, L) of a model that learned from single positives, the setting and a
    generator. A setting means what the process says; most often the share of positives that is observed.
    """

    hide: Callable[[Labels, Floats, float, Random], Hidden]
    settings: Sequence[float]
    gives_negatives: bool = False
    sample: float = 0.0  # how many other rows have all their labels, relative to those with holes


def positives_per_row(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """So many positives of every row, drawn at random; all, where there are fewer."""
    order = np.where(truth == POSITIVE, random.random(truth.shape), 2).argsort(1).argsort(1)
    return Hidden(_positives((truth == POSITIVE) & (order < round(setting))))


def positives_at_random(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """A positive with a chance of its class; the chances are about the setting."""
    return Hidden(_positives((truth == POSITIVE) & _drawn(truth, setting, random)))


def both_at_random(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """Positives and negatives, each with a chance of its kind and class; negatives half as often."""
    shown = np.where(truth == POSITIVE, _drawn(truth, setting, random), _drawn(truth, setting / 2, random))
    return Hidden(np.where(shown, truth, np.int8(UNKNOWN)))


def cells_at_random(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """A share of the cells, whatever they are."""
    return Hidden(np.where(random.random(truth.shape) < setting, truth, np.int8(UNKNOWN)))


def complete_rows(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """A share of the rows, or so many of them, with all labels, the others with one positive."""
    single = positives_per_row(truth, scores, 1, random).observed
    complete = random.permutation(len(truth)) < max(1, round(setting * (len(truth) if setting < 1 else 1)))
    return Hidden(np.where(complete[:, None], truth, single))


def merged(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """Rows of two datasets: each was looked at for its own share of the classes, and for all of these."""
    rows, classes = truth.shape
    first, order = random.random((rows, 1)) < 0.5, random.permutation(classes)
    looked_at = max(1, round(setting * classes))
    shown = np.where(first, order < looked_at, order >= classes - looked_at)
    return Hidden(np.where(shown, truth, np.int8(UNKNOWN)))


def asked_by_score(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """Single positives, and answers on the unknown cells of highest score: so many questions, relative to the rows."""
    single = positives_per_row(truth, scores, 1, random).observed
    candidates = np.where(single == UNKNOWN, scores, -np.inf)
    asked = np.zeros(truth.shape, bool)
    np.put(asked, np.argsort(-candidates, axis=None)[: round(setting * len(truth))], True)
    return Hidden(np.where(asked, truth, single), asked)


def easy_first(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """Positives, the sooner the higher they score: no assumption of ours holds."""
    chance = np.zeros(truth.shape)
    for column, values, cells in zip(chance.T, scores.T, (truth == POSITIVE).T, strict=True):
        rank = values[cells].argsort().argsort() / max(cells.sum() - 1, 1)
        column[cells] = np.clip(setting * (0.4 + 1.2 * rank), 0, 1)
    return Hidden(_positives(random.random(truth.shape) < chance))


def salient_positive(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """One positive of every row, drawn with chances that grow as exp(setting × score / sd)."""
    return Hidden(_positives(_drawn_by_weight(truth, setting * _standardised(scores, truth), 1, random)))


def salient_tags(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """Four tenths of the positives, with odds that grow as exp(setting × score / sd)."""
    standard = setting * _standardised(scores, truth)
    cells = truth == POSITIVE
    middle = brentq(lambda level: expit(standard[cells] + level).mean() - 0.4, -50, 50)
    return Hidden(_positives(cells & (random.random(truth.shape) < expit(standard + middle))))


def three_tags(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """At most three positives of a row, of those that pass a chance of their class, which lies about the setting."""
    chances = np.clip(setting * np.exp(random.normal(0, 0.7, truth.shape[1])), 0.03, 0.97)
    kept = (truth == POSITIVE) & (random.random(truth.shape) < chances)
    return Hidden(_positives(_drawn_by_weight(kept.astype(np.int8), np.zeros(truth.shape), 3, random)))


def salient_two(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """Two positives of a row at most, drawn one after the other with chances that grow as exp(setting × score / sd)."""
    return Hidden(_positives(_drawn_by_weight(truth, setting * _standardised(scores, truth), 2, random)))


def effort(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """Four tenths of the positives, with odds that differ from row to row by exp(setting × a normal number)."""
    level = setting * random.normal(size=(len(truth), 1)) + np.log(2 / 3)
    return Hidden(_positives((truth == POSITIVE) & (random.random(truth.shape) < expit(level))))


def taggers(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """Three people, each with a third of the classes and their own chance to see a positive."""
    chances = random.permutation(np.resize([0.15, setting, 0.8], truth.shape[1]))
    return Hidden(_positives((truth == POSITIVE) & (random.random(truth.shape) < chances)))


def untagged_dropped(truth: Labels, scores: Floats, setting: float, random: Random) -> Hidden:
    """A share of the positives; rows without any are to be left out."""
    kept = random.random(truth.shape) < setting
    return Hidden(_positives((truth == POSITIVE) & kept), drops_empty=True)


def largest(truth: Labels, sizes: Floats, setting: float, random: Random) -> Hidden:
    """The positive of the largest object of every row; what counts as a score here is the object's size."""
    return Hidden(_positives(_drawn_by_weight(truth, setting * sizes, 1, random)))


def by_size(truth: Labels, sizes: Floats, setting: float, random: Random) -> Hidden:
    """A positive with a chance of 0.15 + setting × its object's share of the picture."""
    return Hidden(_positives((truth == POSITIVE) & (random.random(truth.shape) < 0.15 + setting * sizes)))


def _standardised(scores: Floats, truth: Labels) -> Floats:
    """Scores in standard deviations of those of the positives."""
    of_positives = scores[truth == POSITIVE]
    standard: Floats = (scores - of_positives.mean()) / of_positives.std()
    return standard


def _drawn_by_weight(truth: Labels, log_weights: Floats, number: int, random: Random) -> Mask:
    """So many positives of every row, drawn one after the other with these weights (Gumbel's trick)."""
    keys = np.where(truth == POSITIVE, log_weights + random.gumbel(size=truth.shape), -np.inf)
    return np.asarray((truth == POSITIVE) & ((-keys).argsort(1).argsort(1) < number))


def _positives(shown: Mask) -> Labels:
    return np.where(shown, np.int8(POSITIVE), np.int8(UNKNOWN))


def _drawn(truth: Labels, chance: float, random: Random) -> Mask:
    """Cells drawn with chances that scatter from class to class."""
    chances = np.clip(chance * np.exp(random.normal(0, 0.25, truth.shape[1])), 0.03, 0.97)
    return np.asarray(random.random(truth.shape) < chances)


PROCESSES = {
    "single positive": Process(positives_per_row, (1,)),
    "k positives a row": Process(positives_per_row, (2, 3)),
    "positives at random": Process(positives_at_random, (0.1, 0.3, 0.5, 0.9)),
    "both at random": Process(both_at_random, (0.1, 0.3, 0.5, 0.9), gives_negatives=True),
    "complete rows beside single positives": Process(complete_rows, (0.1, 0.3), gives_negatives=True),
    "merged datasets": Process(merged, (0.5, 0.7), gives_negatives=True),
    "asked by score": Process(asked_by_score, (0.3, 1.0), gives_negatives=True),
    "single positive, and a sample": Process(positives_per_row, (1,), sample=0.2),
}
BROKEN = "easy labels first"
PROCESSES_AND_BROKEN = {**PROCESSES, BROKEN: Process(easy_first, (0.3, 0.6))}

SALIENT = {
    "salient positive": Process(salient_positive, (0.5, 1.0, 1.5, 2.0)),
    "salient tags": Process(salient_tags, (0.5, 1.0, 1.5, 2.0)),
}
UNEVEN = {
    "two at most, salient": Process(salient_two, (1.0,)),
    "effort by image": Process(effort, (1.5,)),
    "three taggers": Process(taggers, (0.4,)),
    "untagged dropped": Process(untagged_dropped, (0.4,)),
}
BY_SIZE = {"largest object": Process(largest, (1e6,)), "tags by size": Process(by_size, (1.5,))}


def known_share(truth: Labels, observed: Labels) -> float:
    """The share of positives that is observed."""
    return float((observed == POSITIVE).sum() / max((truth == POSITIVE).sum(), 1))


def missing(truth: Labels, observed: Labels) -> NDArray[np.intp]:
    """Positives of each class among the unknown cells, (L,)."""
    return np.asarray(((truth == POSITIVE) & (observed == UNKNOWN)).sum(0))


def has_both(labels: Labels) -> bool:
    return bool((labels == POSITIVE).any() and (labels == NEGATIVE).any())
