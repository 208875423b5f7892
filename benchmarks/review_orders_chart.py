"""The chart of review_orders.py: what answers complete, and what the model learns from them, by order."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from onepair.experiments.figures import HEIGHT, LOOKS, WIDTH, Drawing

Row = Mapping[str, Any]
NAMES = {"probability": "surest first", "worth": "mixed", "random": "at random"}


def chart(rows: Sequence[Row], counted: Sequence[Row], *, method: str, orders: Sequence[str]) -> Drawing:
    """Means over the seeds; bars span the lowest and the highest."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(2 * WIDTH, HEIGHT), layout="constrained")
    mine = [row for row in rows if row["method"] == method]
    for order, look in zip(orders, LOOKS[1:], strict=False):
        line = {**look, "label": NAMES[order]}
        answers, mean, _ = _by_answers([row for row in counted if row["order"] == order], "completed")
        left.plot(answers, mean, **{**line, "markevery": 5})
        answers, mean, ends = _by_answers(
            [row for row in mine if row["order"] == order or row["answers"] == 0], "test_map"
        )
        right.errorbar(answers, 100 * mean, 100 * np.abs(ends - mean), capsize=2, **line)
    left.set(xlabel="answers", ylabel="labels completed")
    right.set(xlabel="answers", ylabel="test mAP")
    left.legend()
    return Drawing(figure, [dict(row) for row in rows], [])


def _by_answers(rows: Sequence[Row], figure: str) -> tuple[list[int], Any, Any]:
    """The numbers of answers there are, and at each the mean over the seeds and the ends (2, …)."""
    answers = sorted({row["answers"] for row in rows})
    values = [[row[figure] for row in rows if row["answers"] == each] for each in answers]
    ends = np.array([[min(each) for each in values], [max(each) for each in values]], float)
    return answers, np.array([np.mean(each) for each in values]), ends
