"""Finished runs side by side: what differs between them, and whether it matters."""

import os
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.text_files import real
from onepair.errors import RunError
from onepair.labels import Labels
from onepair.probability.intervals import Interval, paired_interval, resampled_maps
from onepair.report import RunSummary
from onepair.runs.config import flatten
from onepair.runs.finished import FinishedRun
from onepair.runs.task import RunCache

ALL_PAIRS = 4  # of more runs, each is compared with the first only


@dataclass(frozen=True, eq=False)
class TestedRun:
    """A finished run that is compared with others."""

    __test__ = False  # not a class of tests

    name: str  # what tells its folder from those of the others
    run: FinishedRun
    test_map: float
    scores: NDArray[np.float32]  # (N, L), of the test images
    labels: Labels  # (N, L)

    def summary(self) -> RunSummary:
        """The run as a report shows it."""
        name = f"{self.run.title}, {self.run.path}"
        return RunSummary.of(self.run, name=name, title=self.name, labels=self.run.trained_on)


class Pair(NamedTuple):
    """Two runs, and by how much the second is better."""

    first: TestedRun
    second: TestedRun
    interval: Interval


def read_runs(paths: Sequence[Path]) -> list[TestedRun]:
    """The runs in some folders, which must all have been tested on the same labels."""
    if len(paths) < 2:
        raise RunError("name two runs or more to compare")
    shared = RunCache()
    names = distinct_names(paths)
    runs = [_read(FinishedRun(path, shared=shared), name) for path, name in zip(paths, names, strict=True)]
    for each in runs[1:]:
        if each.run.classes != runs[0].run.classes or not np.array_equal(each.labels, runs[0].labels):
            raise RunError(
                f"{each.run.path}: was tested on other images or classes than {runs[0].run.path}; "
                "only runs with the same test labels can be compared"
            )
    return runs


def distinct_names(paths: Sequence[Path]) -> list[str]:
    """What tells some folders apart: their paths without the folders that all are in.

    >>> distinct_names([Path("runs/bce"), Path("runs/opml")]), distinct_names([Path("a/0"), Path("b/0")])
    (['bce', 'opml'], ['a/0', 'b/0'])
    """
    folders = [real(path) for path in paths]
    if len(set(folders)) < len(folders):
        raise RunError("name each run once")
    common = os.path.commonpath([folder.parent for folder in folders])
    return [folder.relative_to(common).as_posix() for folder in folders]


def _read(run: FinishedRun, name: str) -> TestedRun:
    test_map = run.test_map
    if not (run.path / "model.safetensors").exists():
        raise RunError(f"{run.path}: its scores were not kept, as always of runs that only search for values")
    scores, labels = run.scores("test"), run.labels("test")
    if len(places := run.task.eval_rows("test")) < len(labels):  # those that the mAP is of
        scores, labels = scores[places], labels[places]
    return TestedRun(name, run, test_map, scores, labels)


def compare_runs(runs: Sequence[TestedRun], *, resamples: int, seed: int) -> list[Pair]:
    """All pairs of a few runs, or the first with each of many, by a paired bootstrap over the test images."""
    maps = resampled_maps([run.scores for run in runs], runs[0].labels, resamples=resamples, seed=seed)
    numbers = range(len(runs))
    chosen = combinations(numbers, 2) if len(runs) <= ALL_PAIRS else ((0, number) for number in numbers[1:])
    return [
        Pair(
            runs[first],
            runs[second],
            paired_interval(runs[second].test_map - runs[first].test_map, maps[first], maps[second]),
        )
        for first, second in chosen
    ]


def differing_settings(runs: Sequence[TestedRun]) -> dict[str, list[Any]]:
    """The settings that are not the same in all runs, with the value in each."""
    flat = [flatten(each.run.config) for each in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    values = {key: [settings.get(key) for settings in flat] for key in keys}
    return {key: each for key, each in values.items() if any(value != each[0] for value in each)}
