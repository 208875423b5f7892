"""The folder of a run: its files, its lock, and its checkpoints."""

import csv
import io
import json
import os
import platform
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, replace
from functools import cache
from importlib.metadata import version
from itertools import count
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from onepair import __version__
from onepair.data.label_table import Problem
from onepair.data.tables.cell_values import guard
from onepair.errors import ConfigError, RunError, first_mistake
from onepair.files import locked, map_array, read_json, read_record, read_stored, write_atomically, writing
from onepair.inference.model_files import CARD, Description
from onepair.labels import NEGATIVE, POSITIVE
from onepair.probability.precision_recall import PrecisionRecall
from onepair.remote import is_url
from onepair.runs.config import FORMAT, Config, build_config, differences, read_config, to_toml
from onepair.runs.task import Task, describe_observation
from onepair.words import counted

if TYPE_CHECKING:
    pass

_EPOCH = TypeAdapter(dict[str, Any])


class Worth(NamedTuple):
    """What the labels of a model are worth on a split, at its thresholds."""

    precision_recall: PrecisionRecall
    line: str  # of mAP, precision, recall and F1


class Results(BaseModel):
    """What a finished run found out."""

    model_config = ConfigDict(frozen=True)

    method: str
    best_epoch: int | None = None  # of the last stage; None where it has none
    penalty: float | None = None  # the strength that was chosen, where there is one
    selected_on: str  # a few words on the labels that the best epoch or the penalty was selected by
    validation_map: float  # of the validation images, or of all training images out of fold
    skipped_images: list[str] = []
    test_map: float | None = None  # None where the test labels do not tell
    test_estimate: tuple[float, float, float] | None = None  # of it, and its interval, where labels are unknown
    test_note: str | None = None  # what is missing to tell, or what the estimate rests on
    test_classes: int | None = None  # that it is a mean of
    test_class_ap: dict[str, float | None] = {}  # None for a class without positives
    worth: dict[str, Worth] = {}  # of the model, by split


class _Unreadable(BaseModel):
    problems: list[Problem]


class RunFolder:
    """Where a run keeps everything; each file appears complete or not at all."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def opened(self, config: Config) -> Iterator[None]:
        """Hold the folder for a run with this configuration: a new run's, or the same one's as before."""
        self.require_usable(config)
        with writing(self.path):
            self.path.mkdir(parents=True, exist_ok=True)
            with locked(self.path / ".lock"):
                self.require_usable(config)
                if not self.begun:  # what a run that stopped before its first epoch has left is worth nothing
                    (self.path / "environment.json").unlink(missing_ok=True)
                    write_atomically(self._config_file, f"format = {FORMAT}\n{to_toml(config)}".encode())
                yield

    def require_usable(self, config: Config) -> None:
        """Refuse, before anything is written, a folder that a run with this configuration may not use."""
        with writing(self.path):
            if self._config_file.exists():
                old = self.config()  # or a sentence: a file of that name may be somebody else's
                if self.begun:
                    self.require_same(old, config)
            # Hidden files are no reason: a lock, or what a run that was killed at its start left.
            elif self.path.exists() and not all(entry.name.startswith(".") for entry in self.path.iterdir()):
                raise RunError(f"{self.path}: holds files but no run; name another folder with --out")

    def require_same(self, old: Config, new: Config) -> None:
        """Refuse to go on with another configuration than before."""
        changed = differences(old, new)
        if changed:
            more = f" and {len(changed) - 3} more" if len(changed) > 3 else ""
            raise RunError(
                f"{self.path}: holds a run of another configuration ({'; '.join(changed[:3])}{more}); "
                "go on with the old settings, name another folder with --out, or put the old run aside with --restart"
            )

    def config(self) -> Config:
        settings = read_config(self._config_file)
        try:
            return self._moved(build_config(settings))
        except ConfigError as error:  # as of a run that another version of onepair made
            raise RunError(f"{self._config_file}: {error}") from None

    def _moved(self, config: Config) -> Config:
        """The configuration with the labels that are kept beside the run, and its images, where they were moved to."""
        run, old, images = Path(os.path.abspath(self.path)), config.data.source, config.data.images  # noqa: PTH100
        if Path(old).name not in (f"{run.name}-labels.parquet", f"{run.name}-labels.csv") or is_url(old):
            return config
        labels = run.with_name(Path(old).name)
        if os.path.abspath(old) == str(labels) or not labels.exists():  # noqa: PTH100
            return config
        if images is not None and os.path.isabs(images) and os.path.isabs(old):  # noqa: PTH117
            moved = os.path.normpath(run.parent / os.path.relpath(images, Path(old).parent))
            images = moved if Path(moved).is_dir() else images
        return replace(config, data=replace(config.data, source=str(labels), images=images))

    @property
    def _config_file(self) -> Path:
        return self.path / "config.toml"

    def write_environment(
        self,
        *,
        data: str,
        weights: str,
        processes: int,
        with_all_negatives: bool = False,
        vectors: Mapping[str, Any] | None = None,
    ) -> None:
        """What the run ran on, for those who wonder later; a run does not go on with other data or weights."""
        facts: dict[str, Any] = {"data": data, "weights": weights, "vectors": vectors}
        if (self.path / "environment.json").exists():
            before = self.environment()
            for name, fact in facts.items():
                if before.get(name) != fact:
                    raise RunError(
                        f"{self.path}: the {name} are not those that the run began with; "
                        "bring the old ones back, name another folder with --out, or put the run aside with --restart"
                    )
        system = {"python": platform.python_version(), "system": platform.platform()}
        facts |= {"with_all_negatives": with_all_negatives, "processes": processes, **system, "versions": _versions()}
        self.write_json("environment.json", facts)

    def environment(self) -> dict[str, Any]:
        """What the run ran on: at least the fingerprints of its data and of the weights it began with."""
        facts = read_json(self.path / "environment.json", error=RunError)
        if not (isinstance(facts, dict) and {"data", "weights"} <= facts.keys()):
            raise RunError(f"{self.path}: was made by another version of onepair; train it again in another folder")
        return facts

    def start_metrics(self, records: Iterable[dict[str, Any]]) -> None:
        """Write the epochs known so far, one to a line."""
        lines = "".join(f"{json.dumps(record)}\n" for record in records)
        write_atomically(self.path / "metrics.jsonl", lines.encode())

    def add_metrics(self, record: dict[str, Any]) -> None:
        with (self.path / "metrics.jsonl").open("a") as file:
            file.write(f"{json.dumps(record)}\n")

    def metrics(self) -> list[dict[str, Any]]:
        """The epochs so far."""
        source = self.path / "metrics.jsonl"
        text = read_stored(source, error=RunError)
        if text is None:
            raise RunError(f"{self.path}: has no metrics.jsonl")
        try:
            return [_EPOCH.validate_json(line) for line in text.splitlines()]
        except ValidationError as error:
            raise RunError(f"{source}: is damaged, {first_mistake(error.errors())}") from None

    def write_skipped(self, entries: Iterable[tuple[str, str, str]]) -> None:
        """What was left out, and why: images by their files, rows of a table by their places in it."""
        text = io.StringIO(newline="")
        rows = (map(guard, entry) for entry in entries)
        csv.writer(text).writerows([("file", "reason", "place"), *rows])
        write_atomically(self.path / "skipped.csv", text.getvalue().encode("utf-8", "surrogateescape"))

    def write_unreadable(self, problems: Iterable[Problem]) -> None:
        """Keep which images cannot be read, so that a run that goes on need not decode all of them again."""
        self.write_json("unreadable.json", {"problems": [asdict(problem) for problem in problems]})

    def unreadable(self) -> list[Problem] | None:
        """What `write_unreadable` wrote, if anything."""
        found = read_record(self.path / "unreadable.json", _Unreadable, advice="delete it", error=RunError)
        return None if found is None else found.problems

    def write_scores(self, split: str, scores: NDArray[np.float32]) -> None:
        content = io.BytesIO()
        np.save(content, scores)
        write_atomically(self.path / f"scores_{split}.npy", content.getvalue())

    def scores(self, split: str) -> NDArray[np.float32] | None:
        """The scores that were kept of a split, if any."""
        source = self.path / f"scores_{split}.npy"
        scores = map_array(source, np.float32, 2, advice="delete it to compute the scores anew", error=RunError)
        if scores is not None and not np.isfinite(scores).all():
            raise RunError(f"{source}: holds no finite scores; delete it to compute them anew")
        return None if scores is None else np.array(scores)

    def write_json(self, name: str, content: dict[str, Any]) -> None:
        write_atomically(
            self.path / name, f"{json.dumps(content, indent=2, ensure_ascii=False, allow_nan=False)}\n".encode()
        )

    def put_aside(self) -> Path | None:
        """Give what is in the folder another name, so that a new run can begin; nothing is deleted."""
        if not self.path.exists():
            return None
        with writing(self.path), locked(self.path / ".lock"):
            others = (self.path.with_name(f"{self.path.name}-before-{number}") for number in count(1))
            aside = next(path for path in others if not path.exists())
            self.path.rename(aside)
        return aside

    @property
    def begun(self) -> bool:
        """Whether there is anything to go on from, or to lose."""
        return self.finished or any(self.path.glob("*-last.safetensors"))

    @property
    def finished(self) -> bool:
        return (self.path / "results.json").exists()

    def write_results(self, results: Results) -> None:
        self.write_json("results.json", {"format": 1, **results.model_dump(exclude_unset=True)})

    def results(self) -> Results:
        """What a finished run found out."""
        found = read_record(self.path / "results.json", Results, error=RunError)
        if found is None:
            raise RunError(f"{self.path}: holds no finished run; train one with onepair train")
        return found


@cache
def _versions() -> dict[str, str]:
    """Those of the packages that a result may depend on."""
    names = ("onepair", "torch", "torchvision", "timm", "lightning-fabric", "numpy", "pillow")
    return {name: version(name) for name in names}


_MOST = 200  # classes in the table

_TEXT = """---
library_name: onepair
tags: [multi-label-classification]
license: unknown
---

# A classifier of {inputs} with {classes}

Trained by {method} with onepair {version}.

**License:** unknown. Before you share the model, write its license here and in the first lines of this file\
{pretrained}.

## Data

{data}

## Figures

{figures}

## Classes

A label is predicted where its probability is at least the threshold, which aims at: {rule}.

| class | known positives | known negatives | threshold | test AP |
|---|---|---|---|---|
{table}

## How to use it

```python
import onepair as op

model = op.load("this-folder")  # or the .onnx file
model.predict({given}).to_frame()
```
"""


def write_card(folder: RunFolder, config: Config, described: Description, results: Results, task: Task) -> None:
    """Write README.md: classes, data, figures, thresholds, license, and how to use the model.

    Args:
        folder: of the run.
        config: what decided its result.
        described: its model.
        results: what training ended with.
        task: what it learned from.
    """
    noun, given = ("images", '["photo.jpg"]') if described.preprocessing else ("vectors", "X")
    noun, given = ("texts", '["a text"]') if described.vocabulary else (noun, given)
    text = _TEXT.format(
        inputs=noun,
        classes=counted(len(described.classes), "class"),
        method=config.method.name,
        version=__version__,
        pretrained=f"; mind that of the pretrained network {described.backbone}" if described.preprocessing else "",
        data=_data(config, task),
        figures="\n".join(f"- {line}" for line in _figures(results)),
        rule=described.decisions.rule,
        table="\n".join(_rows(described, results, task)),
        given=given,
    )
    write_atomically(folder.path / CARD, text.encode())


def _data(config: Config, task: Task) -> str:
    chosen = "the same, out of fold," if task.out_of_fold else f"{len(task.validation):,}"
    return (
        f"`{PurePath(config.data.source).name}`, with {describe_observation(config.data)}: "
        f"{counted(len(task.train), 'row')} to learn from, {chosen} to choose thresholds by, "
        f"{len(task.test):,} to test."
    )


def _figures(results: Results) -> Iterator[str]:
    for split, worth in results.worth.items():
        yield f"{split}, {worth.precision_recall.sentence}"
        for each in worth.precision_recall.cuts:
            found = " to ".join(f"{100 * end:.0f}" for end in each.recall[1:])
            yield f"to have {100 * each.precision:.0f} % right: {100 * each.recall.value:.0f} % of all ({found})"
        yield worth.line


def _rows(described: Description, results: Results, task: Task) -> Iterator[str]:
    positive, negative = (task.observed.count(value).tolist() for value in (POSITIVE, NEGATIVE))
    thresholds = described.decisions.as_probabilities().tolist()
    for name, *counts, threshold in list(zip(described.classes, positive, negative, thresholds, strict=True))[:_MOST]:
        ap = results.test_class_ap.get(name)
        cells = [
            name.replace("|", "\\|"),
            *(f"{count:,}" for count in counts),
            "never predicted" if threshold != threshold else f"{threshold:.2f}",
            "" if ap is None else f"{100 * ap:.1f} %",
        ]
        yield f"| {' | '.join(cells)} |"
    if len(described.classes) > _MOST:
        yield f"| {counted(len(described.classes) - _MOST, 'more class')} in model.json | | | | |"
