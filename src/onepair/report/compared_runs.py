"""Runs side by side: the part each plays in a report, what differs between them, and whether it matters."""

import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.text_files import real
from onepair.errors import ReportError, RunError, import_pandas, require_extra
from onepair.files import writing
from onepair.finding.suggestions import ClassSummary, read_summary
from onepair.labels import NEGATIVE, POSITIVE, Labels
from onepair.metrics import Floats, precision_recall_f1
from onepair.probability.intervals import Interval, paired_interval, resampled_maps
from onepair.probability.thresholds import Thresholds
from onepair.report.style import INK, SeriesStyle, method_styles
from onepair.runs.config import flatten
from onepair.runs.finished import FinishedRun, protect_inputs
from onepair.runs.task import RunCache
from onepair.words import MINUS, counted

if TYPE_CHECKING:
    import pandas

ALL_PAIRS = 4  # of more runs, each is compared with the first only


@dataclass(frozen=True, eq=False)
class RunSummary:
    """What a report needs to know of one run; N test images, L classes."""

    name: str
    title: str  # of the method, as readers know it: "OPML-SP"
    labels: str  # what it was trained on: "single positives", "full labels"
    records: Sequence[Mapping[str, Any]]  # the lines of metrics.jsonl
    classes: Sequence[str]  # (L,)
    class_ap: Floats  # (L,) on the test set, NaN for a class without positives
    test_map: float
    best_epoch: int | None  # of the last stage; None where it has none
    seconds: float  # of training
    test_scores: NDArray[np.floating[Any]]  # (N, L) logits
    test_labels: Labels  # (N, L)
    decisions: Thresholds
    found: Sequence[ClassSummary] = ()  # what was found to be missing, (L,) if labels were looked for
    method: str = ""  # by its registered name, which has a colour; without one it is the title

    @classmethod
    def of(cls, run: FinishedRun, *, name: str, title: str, labels: str) -> "RunSummary":
        """What a finished run has to tell; it must have been tested."""
        class_ap = [np.nan if ap is None else ap for ap in run.results.test_class_ap.values()]
        return cls(
            name=name,
            title=title,
            labels=labels,
            records=[each for each in run.history if "epoch" in each],
            classes=run.classes,
            class_ap=np.array(class_ap, float),
            test_map=run.test_map,
            best_epoch=run.results.best_epoch,
            seconds=sum(record["seconds"] for record in run.history),
            test_scores=run.scores("test"),
            test_labels=run.labels("test"),
            decisions=run.decisions,
            found=read_summary(run.path),
            method=run.config.method.name,
        )

    def __post_init__(self) -> None:
        cells, classes = self.test_labels.shape, (len(self.classes),)
        if not (
            self.test_scores.shape == cells
            and self.class_ap.shape == self.decisions.thresholds.shape == classes == cells[1:]
        ):
            raise ReportError(
                f"run {self.name!r}: {len(self.classes)} classes need as many AP values, thresholds, and columns of "
                f"scores and labels; got shapes {self.class_ap.shape}, {self.decisions.thresholds.shape}, "
                f"{self.test_scores.shape} and {cells}"
            )

    @property
    def f1(self) -> float:
        """Of all labels together at the run's thresholds; NaN where the labels do not tell right from wrong."""
        if not ((self.test_labels == POSITIVE).any() and (self.test_labels == NEGATIVE).any()):
            return math.nan
        figures = precision_recall_f1(self.decisions.labels(self.test_scores), self.test_labels, average="overall")
        return float(figures.f1)

    @property
    def validation_maps(self) -> list[float]:
        """Of every epoch; a later stage goes on where the earlier one ended."""
        return [record["validation_map"] for record in self.records]

    @property
    def best_position(self) -> int:
        """Where the best epoch lies in `records`."""
        epochs = [(record["stage"], record["epoch"]) for record in self.records]
        best = (epochs[-1][0], self.best_epoch)
        if best not in epochs:
            raise ReportError(f"run {self.name!r}: its records hold no epoch {self.best_epoch}, said to be its best")
        return epochs.index(best)


_CEILING = SeriesStyle(INK, "|", "|", "--")


@dataclass(frozen=True, eq=False)
class Comparison:
    """Runs on one test set. The first is the baseline; those trained on the same labels as it are its rivals."""

    runs: Sequence[RunSummary]
    ceiling_name: str | None = None

    def __post_init__(self) -> None:
        names = [run.name for run in self.runs]
        if not names:
            raise ReportError("a report needs at least one run")
        if len(set(names)) < len(names):
            raise ReportError(f"every run needs its own name, got {', '.join(names)}")
        if self.ceiling_name is not None and self.ceiling_name not in names:
            raise ReportError(f"ceiling: no run is named {self.ceiling_name!r}; there are {', '.join(names)}")
        for run in self.runs:
            if list(run.classes) != list(self.baseline.classes) or len(run.test_labels) != len(
                self.baseline.test_labels
            ):
                raise ReportError(f"run {run.name!r} was tested on other classes or images than {self.baseline.name!r}")

    @property
    def baseline(self) -> RunSummary:
        return self.runs[0]

    @property
    def ceiling(self) -> RunSummary | None:
        return next((run for run in self.runs if run.name == self.ceiling_name), None)

    @property
    def rivals(self) -> list[RunSummary]:
        """The runs that compete on equal terms, baseline included."""
        return [run for run in self.runs if run.labels == self.baseline.labels]

    @property
    def best(self) -> RunSummary:
        return max(self.rivals, key=lambda run: run.test_map)

    @property
    def searched(self) -> RunSummary | None:
        """The last run in which missing labels were looked for."""
        return next((run for run in reversed(self.runs) if len(run.found) == len(run.classes)), None)

    def gain(self, run: RunSummary) -> float:
        return run.test_map - self.baseline.test_map

    def closed(self, run: RunSummary) -> float:
        """The share of the gap that a run closes; NaN without a ceiling."""
        ceiling = math.nan if self.ceiling is None else self.ceiling.test_map
        return gap_closed(run.test_map, self.baseline.test_map, ceiling)

    def label(self, run: RunSummary) -> str:
        """A run's title, with its labels where they are not the baseline's."""
        return run.title if run in self.rivals else f"{run.title}, {run.labels}"

    def style(self, run: RunSummary) -> SeriesStyle:
        """How a run is drawn: in the colour of its method, and black where it is the ceiling."""
        if run is self.ceiling:
            return _CEILING
        return method_styles([each.method or each.title for each in self.runs])[self.runs.index(run)]


def gap_closed(value: float, baseline: float, ceiling: float) -> float:
    """How far `value` has come from `baseline` (0) to `ceiling` (1).

    Below 0 if worse than the baseline, above 1 if better than the ceiling; NaN where the ceiling is not above the
    baseline, since then there is no gap.

    >>> gap_closed(88.0, baseline=86.0, ceiling=90.0)
    0.5
    """
    return (value - baseline) / (ceiling - baseline) if ceiling > baseline else math.nan


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

    @property
    def cells(self) -> tuple[str, str, str, str]:
        """Which runs, their difference, its interval and the verdict."""
        difference, low, high = (f"{100 * each:+.2f}".replace("-", MINUS) for each in self.interval)
        verdict = "real" if self.interval.excludes_zero else "could be noise"
        return f"{self.second.name} against {self.first.name}", difference, f"{low} to {high}", verdict


@dataclass(frozen=True, eq=False)
class ComparedRuns:
    """Finished runs side by side, and by how much each is better than another."""

    runs: Sequence[TestedRun]
    pairs: Sequence[Pair]

    @property
    def settings(self) -> dict[str, list[Any]]:
        """The settings that are not the same in all runs, with the value in each."""
        return differing_settings(self.runs)

    @property
    def sampled(self) -> str:
        """Of test images too many to be looked at as a whole, how many stand for them, in a few words."""
        return self.runs[0].run.sampled("test")

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with a row per pair: its difference in test mAP, the interval of 95 %, and if it is real.

        The columns are run, against, difference, low, high and real.
        """
        rows = [(each.second.name, each.first.name, *each.interval, each.interval.excludes_zero) for each in self.pairs]
        columns = ["run", "against", "difference", "low", "high", "real"]
        return import_pandas().DataFrame(rows, columns=columns)

    def write(self, path: str | Path) -> None:
        """Write one HTML page with charts, the differences, and test images."""
        require_extra("report")
        from onepair.report.explain_images import choose_examples
        from onepair.report.page import write_report

        out = Path(path)
        for each in self.runs:
            protect_inputs(out, run=each.run.path)
        with writing(out):
            write_report(
                out,
                [each.summary() for each in self.runs],
                title="Runs side by side",
                introduction=_INTRODUCTION,
                named=True,
                differences=[pair.cells for pair in self.pairs],
                settings=self.settings,
                examples=choose_examples(self.runs[0].run),
            )

    def __repr__(self) -> str:
        real = sum(each.interval.excludes_zero for each in self.pairs)
        return f"ComparedRuns({counted(len(self.runs), 'run')}; {counted(len(self.pairs), 'difference')}, {real} real)"


_INTRODUCTION = """Differences in test mAP, each with the interval that holds 95 % of them when the test images are
drawn anew, again and again, with replacement."""


def read_runs(given: Sequence[Path | FinishedRun]) -> list[TestedRun]:
    """Some runs, or those in some folders, which must all have been tested on the same labels."""
    if len(given) < 2:
        raise RunError("name two runs or more to compare")
    shared = RunCache()
    names = distinct_names([each if isinstance(each, Path) else each.path for each in given])
    opened = [FinishedRun(each, shared=shared) if isinstance(each, Path) else each for each in given]
    runs = list(map(_read, opened, names))
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


def compare_runs(given: Sequence[Path | FinishedRun], *, resamples: int, seed: int) -> ComparedRuns:
    """Compare all pairs of a few runs, or the first with each of many, by a paired bootstrap over the test images."""
    runs = read_runs(given)
    maps = resampled_maps([run.scores for run in runs], runs[0].labels, resamples=resamples, seed=seed)
    numbers = range(len(runs))
    chosen = combinations(numbers, 2) if len(runs) <= ALL_PAIRS else ((0, number) for number in numbers[1:])
    pairs = [
        Pair(
            runs[first],
            runs[second],
            paired_interval(runs[second].test_map - runs[first].test_map, maps[first], maps[second]),
        )
        for first, second in chosen
    ]
    return ComparedRuns(runs, pairs)


def differing_settings(runs: Sequence[TestedRun]) -> dict[str, list[Any]]:
    """The settings that are not the same in all runs, with the value in each."""
    flat = [flatten(each.run.config) for each in runs]
    keys = dict.fromkeys(key for settings in flat for key in settings)
    values = {key: [settings.get(key) for settings in flat] for key in keys}
    return {key: each for key, each in values.items() if any(value != each[0] for value in each)}
