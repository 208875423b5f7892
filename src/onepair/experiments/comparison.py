"""Finished runs side by side: what differs between them, and whether it matters."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, count
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.text_files import real
from onepair.errors import RunError
from onepair.labels import Labels
from onepair.probability.intervals import Interval
from onepair.probability.resampling import paired_interval, resampled_maps
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
    """What tells some folders apart: their names, with as many of those above as it takes, without what all share.

    >>> distinct_names([Path("runs/voc-bce-linear"), Path("runs/voc-opml-sp-linear")])
    ['bce', 'opml-sp']
    >>> distinct_names([Path("a/seed-0"), Path("b/seed-0")]), distinct_names([Path("x"), Path("x-2")])
    (['a/seed-0', 'b/seed-0'], ['x', 'x-2'])
    """
    folders = [real(path).parts for path in paths]
    if len(set(folders)) < len(folders):
        raise RunError("name each run once")
    depth = next(n for n in count(1) if len({parts[-n:] for parts in folders}) == len(folders))
    if depth > 1:
        return ["/".join(parts[-depth:]) for parts in folders]
    words = [parts[-1].split("-") for parts in folders]
    first, last = _shared_words(words), _shared_words([each[::-1] for each in words])
    short = ["-".join(each[first : len(each) - last]) for each in words]
    return short if all(short) and len(set(short)) == len(short) else [parts[-1] for parts in folders]


def _shared_words(names: Sequence[Sequence[str]]) -> int:
    """How many words all names begin with."""
    return next((i for i, words in enumerate(zip(*names, strict=False)) if len(set(words)) > 1), 0)


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
