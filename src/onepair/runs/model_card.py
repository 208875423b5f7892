"""The model card of a run: README.md in its folder, which goes with its model wherever that is saved or exported."""

from collections.abc import Iterator
from pathlib import PurePath

from onepair import __version__
from onepair.files import write_atomically
from onepair.inference.model_files import CARD, Description
from onepair.labels import NEGATIVE, POSITIVE
from onepair.probability.intervals import Interval
from onepair.runs.config import Config
from onepair.runs.folder import Results, RunFolder
from onepair.runs.task import Task, describe_observation
from onepair.words import counted

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
    notes = f", {results.test_note}" if results.test_note else ""
    if results.test_map is not None:
        classes = f", over {counted(results.test_classes, 'class')}" if results.test_classes else ""
        yield f"test mAP {100 * results.test_map:.1f} %{classes}{notes if results.test_estimate is None else ''}"
    if results.test_estimate is not None:
        value, low, high = (100 * each for each in Interval(*results.test_estimate))
        yield f"test mAP of all labels about {value:.0f} % ({low:.0f} to {high:.0f}, 95 %){notes}"
    yield f"mAP {100 * results.validation_map:.1f} % on {results.selected_on}"


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
