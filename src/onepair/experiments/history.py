"""How a search for settings went, as a chart and as a table."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import MaxNLocator

from onepair.experiments.drawing import HEIGHT, LOOKS, WIDTH, Drawing, draw
from onepair.experiments.tables import csv_text
from onepair.experiments.tuning import Tried
from onepair.files import write_atomically


def write_history(out: Path, tried: Sequence[Tried]) -> list[Path]:
    """Write trials.csv, history.svg and history.png into the folder of a search; returns the files."""
    drawing, drawn = draw(lambda: history(tried))
    contents = {"trials.csv": csv_text(drawing.numbers).encode(), "history.svg": drawn.svg, "history.png": drawn.png}
    for name, content in contents.items():
        write_atomically(out / name, content)
    return [out / name for name in contents]


def history(tried: Sequence[Tried]) -> Drawing:
    """Validation mAP of every trial, and the best until then; trials that diverged stand as crosses at the bottom."""
    numbers = [trial.number + 1 for trial in tried]
    maps = 100 * np.array([np.nan if trial.validation_map is None else trial.validation_map for trial in tried], float)
    best = np.fmax.accumulate(maps)
    figure = Figure(figsize=(1.4 * WIDTH, HEIGHT), layout="constrained")
    panel = figure.subplots()
    panel.plot(numbers, maps, **{**LOOKS[0], "linestyle": "none"}, label="trial")
    panel.step(numbers, best, **{**LOOKS[1], "linestyle": "-", "marker": ""}, where="post", label="best so far")
    failed = [number for number, value in zip(numbers, maps, strict=True) if np.isnan(value)]
    if failed:
        bottom = panel.get_xaxis_transform()
        panel.plot(failed, [0.02] * len(failed), "x", color=LOOKS[2]["color"], transform=bottom, label="failed")
    panel.set_xlabel("Trial")
    panel.set_ylabel("Validation mAP (%)")
    panel.xaxis.set_major_locator(MaxNLocator(integer=True))
    panel.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=3)  # above, where no trial can be
    rows = [
        {"trial": number, "validation_map": "" if np.isnan(value) else f"{value:.3f}", **trial.values}
        for number, value, trial in zip(numbers, maps.tolist(), tried, strict=True)
    ]
    return Drawing(figure, rows, [])
