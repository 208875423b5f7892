"""What became of fine-tuning: the finished runs of `onepair reproduce --mode linear-init`, a line each.

    python benchmarks/finetune_rows.py FOLDER [--out rows.csv]

FOLDER is the --out of the command. Of every run: its test mAP, and validation mAP of the classifier alone (the best
epoch of the first stage), of the best epoch of the second, of its last, and of each in turn. Best first by test mAP;
the first lines are of full labels. With --out, lines that are in the file and not in the folder are kept.
"""

import argparse
import csv
from pathlib import Path
from typing import Any

from real_sets import write_csv

from onepair.methods import METHODS
from onepair.runs.finished import FinishedRun


def line(run: FinishedRun) -> dict[str, Any]:
    alone, learning = (
        [100 * float(record["validation_map"]) for record in run.history if record["stage"] == stage]
        for stage in ("linear", "finetune")
    )
    name = run.config.method.name
    return {
        "labels": {"given": "all P, all N"}.get(run.config.data.observe, "1 P"),
        "method": METHODS[name].title,
        "seed": str(run.config.seed),
        "test_map": f"{100 * (run.results.test_map or 0):.2f}",
        "classifier_alone": f"{max(alone):.2f}",
        "best": f"{max(learning):.2f}",
        "best_epoch": str(1 + learning.index(max(learning))),
        "last": f"{learning[-1]:.2f}",
        "epochs": " ".join(f"{each:.2f}" for each in learning),
    }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--out", type=Path)
    arguments = parser.parse_args()
    known: list[dict[str, Any]] = []
    if arguments.out and arguments.out.exists():
        with arguments.out.open(newline="", encoding="utf-8") as file:
            known = [{**each, "epochs": each.get("epochs", "")} for each in csv.DictReader(file)]
    finished = sorted(path.parent for path in (arguments.folder / "runs").glob("*/results.json"))
    lines = {
        (each["labels"], each["method"], each["seed"]): each
        for each in [*known, *(line(FinishedRun(path)) for path in finished)]
    }
    ordered = sorted(lines.values(), key=lambda each: (each["labels"] == "1 P", -float(each["test_map"])))
    for each in ordered:
        print("| " + " | ".join(each.values()) + " |")
    if arguments.out:
        write_csv(arguments.out, ordered)


if __name__ == "__main__":
    main()
