"""What the test images tell of a run."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.labels import POSITIVE
from onepair.probability.decisions import Decisions
from onepair.probability.evaluation import evaluate
from onepair.probability.observation import Process
from onepair.runs.task import Task


def tested(scores: NDArray[np.float32], task: Task, decisions: Decisions, process: Process) -> dict[str, Any]:
    """The figures of `Results` that the test images tell."""
    rows, sampled = task.test[task.judged("test")], task.sampled("test")
    labels, asked = task.table.labels[rows], task.table.asked
    if not (labels == POSITIVE).any():
        return {"test_note": f"no {f'image of {sampled}' if sampled else 'test image'} has a positive label"}
    found = evaluate(
        scores,
        labels,
        decisions,
        task.table.classes,
        process=process,
        asked=None if asked is None else asked[rows],
    )
    figures: dict[str, Any] = {
        "test_class_ap": {name: None if np.isnan(each.ap) else each.ap for name, each in found.classes.items()}
    }
    if not np.isnan(found.map):
        figures |= {"test_map": found.map, "test_classes": found.averaged_classes}
    if found.estimated is not None:
        figures |= {
            "test_estimate": tuple(found.estimated.map),
            "test_note": found.estimated.assumption + found.estimated.over,
        }
    if sampled:
        figures["test_note"] = "; ".join(filter(None, (f"by {sampled}", figures.get("test_note"))))
    return figures
