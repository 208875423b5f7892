"""Missing labels of more images and classes than can be looked at at once: the likeliest of each class."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from onepair.finding.suggestions import Suggestions
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN, Indices
from onepair.metrics import Floats
from onepair.probability.counting import Estimate
from onepair.probability.incomplete import infer
from onepair.probability.observation import Observation, Process
from onepair.score_blocks import HighestUnknown, ScoreBlocks, sort_classes

_SAMPLED_CELLS = 2**24  # by which scores are calibrated, and missing labels counted


@dataclass(frozen=True, eq=False)
class BlockFinding:
    """What was found."""

    suggestions: Suggestions
    missing: Estimate  # positives of each class among the unknown cells
    sentence: str  # how labels seem to have come to be known
    sample: int  # rows that probabilities rest on


def find_by_blocks(
    observed: LabelMatrix, blocks: ScoreBlocks, *, per_class: int = 10, process: Process = "auto", seed: int = 0
) -> BlockFinding:
    """The missing labels that are likeliest, so many of each class, and how many there are.

    As `onepair.probability.judgement.judge` and `rank`, with these differences: lines and counts rest on a random
    sample of the rows, and are scaled to all of them; of each class only the highest-scored unknown labels are judged;
    and observed labels are not suspected to be wrong. The blocks are gone through three times.

    Args:
        observed: (N, L), the labels to complete.
        blocks: (N, L), scores of models that were not fitted to the rows they score.
        per_class: suggestions of each class.
        process: how labels came to be known, as for `recognise`.
        seed: of the sample.
    """
    rows, classes = observed.shape
    size = min(rows, max(1, _SAMPLED_CELLS // classes))
    sample = np.sort(np.random.default_rng(seed).choice(rows, size, replace=False))
    shown = observed.take(sample)
    if not shown.has(POSITIVE):
        raise ValueError("no positive label is observed, so nothing can be said of the others")
    inference = infer(_rows_of(blocks, sample), shown.dense(), process=process)
    highest = HighestUnknown(observed, np.minimum(per_class, observed.count(UNKNOWN)))
    for place, block in blocks:
        highest.add(place, block, sort_classes(block))
    row, label = highest.found(highest.most)
    wanted = np.unique(row)
    probability = np.empty(len(row))
    for place, block in blocks:
        here = wanted[(wanted >= place.start) & (wanted < place.stop)]
        if len(here) == 0:
            continue
        labels = observed[here]
        bound = _bound(inference.observation, labels)
        posterior = bound.posterior(inference.in_any_row(block[here - place.start]), labels, inference.rates)
        own = np.flatnonzero((row >= place.start) & (row < place.stop))
        probability[own] = posterior[np.searchsorted(here, row[own]), label[own]]
    order = np.lexsort((label, row, -probability))
    found = Suggestions(row[order], label[order], probability[order], np.full(len(row), "missing"))
    return BlockFinding(found, _scaled(inference.missing, rows / size, observed), inference.observation.sentence, size)


def _rows_of(blocks: ScoreBlocks, rows: Indices) -> NDArray[np.float64]:
    parts = [block[rows[(rows >= place.start) & (rows < place.stop)] - place.start] for place, block in blocks]
    return np.concatenate(parts).astype(np.float64)


def _bound(observation: Observation, labels: NDArray[np.int8]) -> Observation:
    """How the labels of other rows came to be known, by the process of the sample: rows known in full say nothing."""
    known = labels != UNKNOWN
    free = np.repeat(known.all(1)[:, None], labels.shape[1], axis=1)
    return Observation(observation.sentence, observation.drawn, free, np.zeros(labels.shape, bool), observation.empty)


def _scaled(missing: Estimate, factor: float, observed: LabelMatrix) -> Estimate:
    most: Floats = observed.count(UNKNOWN).astype(np.float64)
    return Estimate(*(np.minimum(each * factor, most) for each in missing))
