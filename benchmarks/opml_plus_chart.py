"""OPML+ in one figure: what it does to a label, and what comes of it from few labels to all.

    python benchmarks/opml_plus_chart.py results/voc2012/fig-known.csv [--out docs/images/opml-plus]

The left panel is computed from the method itself; the right one is drawn from the numbers of
`onepair reproduce fig-known`.
"""

import argparse
import csv
from collections.abc import Sequence
from pathlib import Path

import matplotlib.pyplot as plt
import torch
from matplotlib.axes import Axes

from onepair.experiments.figures import HEIGHT, LOOKS, WIDTH, Drawing, draw
from onepair.files import write_atomically
from onepair.methods import METHODS
from onepair.methods.opml_plus import OPMLPlus
from onepair.report.style import looks_of

CURVES = (  # a label, how many positives are missing for each that is shown, in words
    (1, 0.0, "observed positive"),
    (0, 0.0, "known negative"),
    (-1, 0.5, "unknown, 1 missing for 2 shown"),
    (-1, 9.0, "unknown, 9 missing for 1 shown"),
)
SHOWN = ("bce", "entmax", "bce-known", "opml-plus")


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


def draw_pushes(axes: Axes) -> None:
    probabilities = torch.linspace(0.01, 0.99, 99, dtype=torch.float64)
    for look, (label, missing, words) in zip(LOOKS, CURVES, strict=False):
        line = {**look, "marker": ""}
        axes.plot(probabilities.tolist(), push(label, missing, probabilities.logit().tolist()), **line, label=words)
    axes.axhline(0, color=LOOKS[0]["color"], linewidth=0.6)
    axes.set(xlabel="probability that the model gives", ylabel="push (up is more likely)", xlim=(0, 1))
    axes.legend()


def draw_known(axes: Axes, records: Sequence[dict[str, str]]) -> None:
    for look, method in zip(looks_of(SHOWN), SHOWN, strict=True):
        rows = [record for record in records if record["method"] == method]
        shares = [100 * float(record["data.known"]) for record in rows]
        axes.plot(shares, [float(record["test_map"]) for record in rows], **look.line, label=METHODS[method].title)
    axes.set(xlabel="labels that are known (%)", ylabel="test mAP, VOC 2012", xlim=(0, 103))
    axes.legend(loc="lower right")


def picture(records: Sequence[dict[str, str]]) -> Drawing:
    figure, (left, right) = plt.subplots(1, 2, figsize=(2.3 * WIDTH, 1.15 * HEIGHT), layout="constrained")
    draw_pushes(left)
    draw_known(right, records)
    return Drawing(figure, [], [])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("known", type=Path)
    parser.add_argument("--out", type=Path, default=Path("docs/images/opml-plus"))
    arguments = parser.parse_args()
    with arguments.known.open(newline="", encoding="utf-8") as file:
        records = list(csv.DictReader(file))
    _, files = draw(lambda: picture(records))
    write_atomically(arguments.out.with_suffix(".svg"), files.svg)
    print(f"wrote {arguments.out.with_suffix('.svg')}")


if __name__ == "__main__":
    main()
