"""Draw the charts of the documents from the CSV files in results/.

    python benchmarks/charts.py [--out docs/images]

The left panel of opml-plus.svg and all of fig-gradients.svg are computed from the methods themselves.
"""

import argparse
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import torch
from coverage import EACH_KIND, OVER_ALL
from coverage import chart as draw_coverage
from hiding import BROKEN
from matplotlib.axes import Axes
from matplotlib.patches import Rectangle
from tables import Record, groups, records

from onepair.experiments.figures import HEIGHT, SERIES, STANDING_OUT, WIDTH, Drawing, draw, gradients
from onepair.files import write_atomically
from onepair.methods import METHODS
from onepair.methods.opml_sp import OPMLPlus
from onepair.report.style import MUTED, method_styles

PUSHES = (  # a label, how many positives are missing for each that is shown, in words
    (1, 0.0, "observed positive"),
    (0, 0.0, "known negative"),
    (-1, 0.5, "unknown, 1 missing for 2 shown"),
    (-1, 9.0, "unknown, 9 missing for 1 shown"),
)
CHARTS: dict[str, Callable[[], Drawing]] = {}


def chart(make: Callable[[], Drawing]) -> Callable[[], Drawing]:
    """Register a chart by the name of its function."""
    CHARTS[make.__name__.replace("_", "-")] = make
    return make


def column(rows: Sequence[Record], name: str) -> list[float]:
    return [float(row[name]) for row in rows]


def draw_shares(axes: Axes, thin: bool) -> None:
    """Test mAP over the share of known labels; methods that do not stand out are thin lines, or left out."""
    by_method = groups(records("voc2012/fig-known"), "method")
    for (method,), rows in by_method.items():
        if thin and method not in STANDING_OUT:
            axes.plot([100 * each for each in column(rows, "data.known")], column(rows, "test_map"), **_THIN)
    for style, method in zip(method_styles(STANDING_OUT), STANDING_OUT, strict=True):
        rows = by_method[(method,)]
        shares = [100 * each for each in column(rows, "data.known")]
        axes.plot(shares, column(rows, "test_map"), **style.line, label=METHODS[method].title)
    axes.set(xlabel="labels that are known (%)", ylabel="test mAP, VOC 2012", xlim=(8, 102))
    axes.set_xticks([10, 25, 50, 75, 100])
    axes.legend(loc="lower right", title="Thin: other methods" if thin else None, title_fontsize=7)


_THIN: dict[str, Any] = {"color": MUTED, "alpha": 0.5, "linewidth": 0.7, "zorder": 1}


@chart
def fig_known() -> Drawing:
    figure, axes = plt.subplots(figsize=(1.4 * WIDTH, 1.4 * HEIGHT), layout="constrained")
    draw_shares(axes, thin=True)
    return Drawing(figure, [], [])


@chart
def fig_learning() -> Drawing:
    """Validation mAP over ten epochs of fine-tuning, from single positives and with all labels."""
    figure, axes = plt.subplots(figsize=(1.5 * WIDTH, 1.2 * HEIGHT), layout="constrained")
    curves: list[list[Record]] = []
    for row in records("voc2012/finetune_3e-5_ten_epochs_curves"):
        if row["epoch"] == "1":
            curves.append([])
        curves[-1].append(row)
    methods = [rows[0]["method"] for rows in curves]
    for rows, style in zip(curves, method_styles(methods), strict=True):
        first = rows is curves[0]
        title = "BCE, all labels" if first else METHODS[rows[0]["method"]].title
        line = {**style.line, "marker": "", "linestyle": ":"} if first else style.line
        axes.plot(column(rows, "epoch"), column(rows, "validation_map"), **line, label=title)
    axes.set(xlabel="epoch", ylabel="validation mAP, VOC 2012", xlim=(0.9, 10.1))
    axes.legend(loc="center left", bbox_to_anchor=(1, 0.5))
    return Drawing(figure, [], [])


@chart
def fig_confidence() -> Drawing:
    """Confidence at the true positives of the test images."""
    figure, axes = plt.subplots(figsize=(1.2 * WIDTH, HEIGHT), layout="constrained")
    found = groups(records("voc2012/fig-confidence"), "method")
    methods = [method for (method,) in found]
    width = 0.17 / len(methods)
    for place, (style, method) in enumerate(zip(method_styles(methods), methods, strict=True)):
        rows = found[(method,)]
        shares = [100 * each for each in column(rows, "share")]
        at = np.array(column(rows, "from")) + 0.015 + place * width
        bars = axes.bar(at, shares, width, align="edge", color=style.colour, label=METHODS[method].title)
        axes.bar_label(bars, [f"{each:.0f}" for each in shares], fontsize=7, padding=1.5)
    axes.set(xlabel="predicted probability", ylabel="true positives (%)", xticks=np.linspace(0, 1, 6))
    axes.legend(loc="upper center")
    return Drawing(figure, [], [])


@chart
def fig_alpha_beta() -> Drawing:
    """Test mAP of OPML for every pair of α̃ and β̃, the best one framed."""
    figure, axes = plt.subplots(figsize=(1.3 * WIDTH, 3.3), layout="constrained")
    rows = records("voc2012/fig-alpha-beta")
    across, up = (sorted({float(row[name]) for row in rows}) for name in ("alpha", "beta"))
    field = np.zeros((len(up), len(across)))
    for row in rows:
        field[up.index(float(row["beta"])), across.index(float(row["alpha"]))] = float(row["test_map"])
    axes.imshow(field, origin="lower", cmap="cividis", aspect="auto")
    for (y, x), value in np.ndenumerate(field):
        colour = "white" if value < field.min() + np.ptp(field) / 2 else "black"
        axes.text(x, y, f"{value:.1f}", ha="center", va="center", fontsize=7, color=colour)
    y, x = np.unravel_index(np.argmax(field), field.shape)
    axes.add_patch(Rectangle((float(x) - 0.5, float(y) - 0.5), 1, 1, fill=False, edgecolor="#d62200", linewidth=2))
    axes.set(xlabel=r"$\tilde{\alpha}$", ylabel=r"$\tilde{\beta}$")
    axes.set_xticks(range(len(across)), [f"{each:g}" for each in across])
    axes.set_yticks(range(len(up)), [f"{each:g}" for each in up])
    axes.grid(False)
    return Drawing(figure, [], [])


@chart
def fig_gradients() -> Drawing:
    return gradients({})


@chart
def opml_plus() -> Drawing:
    """What OPML+ does to a label, and what comes of it from few labels to all."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(2.3 * WIDTH, 1.15 * HEIGHT), layout="constrained")
    probabilities = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    for style, (label, missing, words) in zip(SERIES, PUSHES, strict=False):
        pushes = push(label, missing, probabilities.logit().tolist())
        left.plot(probabilities.tolist(), pushes, **{**style, "marker": ""}, label=words)
    left.axhline(0, color=SERIES[0]["color"], linewidth=0.6)
    left.set(xlabel="probability that the model gives", ylabel="push (up is more likely)", xlim=(0, 1))
    left.legend()
    draw_shares(right, thin=False)
    return Drawing(figure, [], [])


def push(label: int, missing: float, scores: Sequence[float]) -> list[float]:
    """Which way, and how hard, OPML+ pushes a label at each score."""
    method = OPMLPlus()
    method.begin(torch.full((len(scores), 1), label, dtype=torch.int8))
    method.missing.fill_(missing)
    logits = torch.tensor(scores, dtype=torch.float64).unsqueeze(1).requires_grad_()
    method(logits, torch.arange(len(scores))).backward()
    assert logits.grad is not None
    pushes: list[float] = (-len(scores) * logits.grad[:, 0]).tolist()
    return pushes


@chart
def coverage() -> Drawing:
    words = ("kind", "data", "process")
    rows = [{name: cell if name in words else float(cell) for name, cell in row.items()} for row in records("coverage")]
    return draw_coverage(rows, aims=(OVER_ALL, EACH_KIND), broken=BROKEN)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("docs/images"))
    out: Path = parser.parse_args().out
    for name, make in CHARTS.items():
        _, files = draw(make)
        write_atomically((out / name).with_suffix(".svg"), files.svg)
        print(out / f"{name}.svg")


if __name__ == "__main__":
    main()
