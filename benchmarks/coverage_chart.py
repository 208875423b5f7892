"""The chart of coverage.py: how many intervals hold, and how good probabilities and decisions are."""

from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib.pyplot as plt
import numpy as np

from onepair.experiments.figures import FILLS, HEIGHT, LOOKS, WIDTH, Drawing

Row = Mapping[str, Any]


def chart(rows: Sequence[Row], *, aims: tuple[float, float], broken: str) -> Drawing:
    """Bars of classes whose interval holds by kind of case, and estimates of the total against the truth."""
    processes = list(dict.fromkeys(row["process"] for row in rows))
    kinds = list(dict.fromkeys(row["kind"] for row in rows))
    figure, (left, right) = plt.subplots(
        1, 2, figsize=(2.9 * WIDTH, 1.35 * HEIGHT), width_ratios=(1.25, 1), layout="constrained"
    )
    at, height = np.arange(len(processes), dtype=float), 0.8 / len(kinds)
    for number, kind in enumerate(kinds):
        shares = [_share([row for row in rows if (row["kind"], row["process"]) == (kind, each)]) for each in processes]
        offset = (number - (len(kinds) - 1) / 2) * height
        left.barh(at + offset, shares, 0.9 * height, color=FILLS[number], label=kind)
    for aim, dashes, words in zip(aims, ("--", ":"), ("aim, all cases", "aim, each kind"), strict=True):
        left.axvline(100 * aim, color=LOOKS[2]["color"], linestyle=dashes, linewidth=1, label=words)
    left.set_yticks(at, [f"{each}\n(assumption broken)" if each == broken else each for each in processes])
    left.invert_yaxis()
    left.grid(axis="y", visible=False)
    left.grid(axis="x", visible=True)
    left.set(xlim=(0, 100), xlabel="classes whose interval of 95 % holds the count (%)")
    left.legend(loc="upper center", bbox_to_anchor=(0.4, 1.12), ncols=4, columnspacing=1.2)
    for number, (title, wanted) in enumerate((("assumptions hold", False), ("assumption broken", True))):
        group = [row for row in rows if (row["process"] == broken) == wanted]
        look = LOOKS[(1, 2)[number]]
        right.plot(
            [max(row["missing"], 0.5) for row in group],
            [max(row["estimated"], 0.5) for row in group],
            **{"color": look["color"], "marker": look["marker"], "linestyle": "none", "markersize": 2.5, "alpha": 0.7},
            label=title,
        )
    ends = [0.5, max(max(row["missing"], row["estimated"]) for row in rows)]
    right.plot(ends, ends, color=LOOKS[0]["color"], linewidth=0.8)
    right.set(xscale="log", yscale="log", xlabel="labels that are missing", ylabel="estimated")
    right.legend(loc="upper left")
    return Drawing(figure, [dict(row) for row in rows], [])


def _share(group: Sequence[Row]) -> float:
    return 100 * float(np.mean([row["classes_hold"] / max(row["classes_with_holes"], 1) for row in group] or [np.nan]))
