"""Finished runs side by side: what differs between them, and whether it matters."""

from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.decisions import Decisions
from onepair.experiments.bootstrap import Interval, paired_interval, resampled_maps
from onepair.labels import Labels
from onepair.methods import METHODS
from onepair.models import read_description
from onepair.report import RunSummary
from onepair.training.config import Config, DataConfig
from onepair.training.folder import RunError, RunFolder
from onepair.training.task import prepare_task

ALL_PAIRS = 4  # of more runs, each is compared with the first only


@dataclass(frozen=True, eq=False)
class TestedRun:
    """A finished run, with its scores on the test images and their labels."""

    __test__ = False  # not a class of tests

    number: int  # from 1, in the order given
    folder: RunFolder
    config: Config
    results: dict[str, Any]
    classes: Sequence[str]
    decisions: Decisions
    scores: NDArray[np.float32]  # (N, L)
    labels: Labels  # (N, L)

    @property
    def test_map(self) -> float:
        test_map: float = self.results["test_map"]
        return test_map

    @property
    def title(self) -> str:
        info = METHODS.get(self.config.method.name)
        return self.config.method.name if info is None else info.title

    @property
    def trained_on(self) -> str:
        return "single positives" if self.config.data.observe == "single-positive" else "labels as given"

    def summary(self) -> RunSummary:
        """The run as a report shows it."""
        records = self.folder.metrics()
        return RunSummary(
            name=str(self.folder.path),
            title=f"{self.title} ({self.number})",
            labels=self.trained_on,
            records=records,
            classes=self.classes,
            class_ap=np.array(list(self.results["test_class_ap"].values()), float),
            test_map=self.test_map,
            best_epoch=self.results["best_epoch"],
            seconds=sum(record["seconds"] for record in records),
            test_scores=self.scores,
            test_labels=self.labels,
            decisions=self.decisions,
        )


class Pair(NamedTuple):
    """Two runs, and by how much the second is better."""

    first: TestedRun
    second: TestedRun
    interval: Interval


def read_runs(paths: Sequence[Path]) -> list[TestedRun]:
    """The runs in some folders, which must all have been tested on the same labels."""
    if len(paths) < 2:
        raise RunError("name two runs or more to compare")
    labels: dict[DataConfig, Labels] = {}
    runs = [_read(path, number, labels) for number, path in enumerate(paths, start=1)]
    for run in runs[1:]:
        if run.classes != runs[0].classes or not np.array_equal(run.labels, runs[0].labels):
            raise RunError(
                f"{run.folder.path}: was tested on other images or classes than {runs[0].folder.path}; "
                "only runs with the same test labels can be compared"
            )
    return runs


def _read(path: Path, number: int, labels: dict[DataConfig, Labels]) -> TestedRun:
    folder = RunFolder(path)
    results, config, description = folder.results(), folder.config(), read_description(path)
    if "test_map" not in results:
        raise RunError(f"{path}: has no test mAP, since its dataset has no labelled test images")
    try:
        scores = folder.scores("test")
    except FileNotFoundError:
        raise RunError(f"{path}: its scores were not kept, as always of runs that only search for values") from None
    data = replace(config.data, observe="given")  # the test labels do not depend on what is observed
    if data not in labels:
        task = prepare_task(data)
        labels[data] = task.table.labels[task.test]
    decisions = Decisions.from_dict(description["decisions"])
    return TestedRun(number, folder, config, results, description["classes"], decisions, scores, labels[data])


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
    flat = [dict(_flatten(asdict(run.config))) for run in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    values = {key: [settings.get(key) for settings in flat] for key in keys}
    return {key: each for key, each in values.items() if any(value != each[0] for value in each)}


def _flatten(settings: dict[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in settings.items():
        if isinstance(value, dict):
            yield from _flatten(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value
