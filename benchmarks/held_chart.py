"""The chart of what held weights are worth: BCE and OPML+ from one positive a row, free and held, on twelve sets.

    python benchmarks/held_chart.py [--out docs/images/held.svg]

From results/methods_on_tables.csv and results/methods_on_tables_held.csv. A test mAP is shown as its share of what BCE
reaches with all labels and held weights.
"""

import argparse
from pathlib import Path

import matplotlib.pyplot as plt
from methods_on_tables import BASELINE, CEILING, SETS, read_records

from onepair.experiments.drawing import LOOKS, WIDTH, Drawing, draw
from onepair.files import write_atomically

RESULTS = Path(__file__).parents[1] / "results"
METHODS = {BASELINE: ("BCE", LOOKS[0]), "opml-plus": ("OPML+", LOOKS[2])}


def chart() -> Drawing:
    free, held = (read_records(RESULTS / f"methods_on_tables{kind}.csv") for kind in ("", "_held"))
    figure, axes = plt.subplots(figsize=(1.6 * WIDTH, 3.6), layout="constrained")
    for shift, (name, (title, look)) in zip((-0.14, 0.14), METHODS.items(), strict=True):
        places = [place + shift for place in range(len(SETS))]
        ends = [
            [100 * float(records[each, name]["test_map"]) / float(held[each, CEILING]["test_map"]) for each in SETS]
            for records in (free, held)
        ]
        axes.hlines(places, ends[0], ends[1], color=look["color"], linewidth=1.2)
        for values, words, fill in zip(ends, ("free", "held"), ("white", look["color"]), strict=True):
            axes.plot(
                values,
                places,
                linestyle="none",
                marker=look["marker"],
                color=look["color"],
                markerfacecolor=fill,
                label=f"{title}, {words}",
            )
    labels = [f"{each} ({held[each, BASELINE]['classes']})" for each in SETS]
    axes.set(yticks=range(len(SETS)), yticklabels=labels, xlabel="test mAP, % of BCE with all labels and held weights")
    axes.invert_yaxis()
    axes.grid(axis="x")
    axes.grid(visible=False, axis="y")
    axes.legend(loc="upper left")
    return Drawing(figure, [], [])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--out", type=Path, default=Path("docs/images/held.svg"))
    arguments = parser.parse_args()
    _, files = draw(chart)
    write_atomically(arguments.out, files.svg)
    print(f"wrote {arguments.out}")


if __name__ == "__main__":
    main()
