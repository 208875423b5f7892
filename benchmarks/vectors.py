"""Vectors as they come: does `onepair train --features` need another learning rate for each set?

    python benchmarks/vectors.py DATA_FOLDER [--sets emotions yeast] [--out results/vectors.csv]

DATA_FOLDER, the sets and their splits are those of methods_on_tables.py, but features are as they are in the files: not
standardised, nor of one length. The command trains OPML+ from one positive of each row, by its defaults. Beside its
test mAP stand that of the same command where the learning rate is taken as it is, features too, and weights are drawn,
all as on the features of a network; and the one of results/methods_on_tables.csv, of scaled features and a learning
rate chosen on validation rows. One seed; what is in the file and not measured anew is kept.
"""

import argparse
import csv
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch
from methods_on_tables import IMAGES, SETS, read_images
from tabular import read, write
from torch import nn

from onepair.inference.inputs import FeatureSource
from onepair.runs.stages import OptimiserConfig
from onepair.training import run as running
from onepair.training.optimisation import Group

TUNED = Path(__file__).parents[1] / "results" / "methods_on_tables.csv"


def prepare(name: str, data: Path, folder: Path) -> float:
    """Write vectors and a table with all labels; the mean sum of a vector's absolute values."""
    found = read_images(data, name) if name in IMAGES else read(data / "tabular" / f"{name}.npz", scaled=False)
    vectors = np.concatenate([found.features, found.test_features]).astype(np.float32)
    np.save(folder / "vectors.npy", vectors)
    labels = np.concatenate([found.labels, found.test_labels])
    split = ["train"] * len(found.labels) + ["test"] * len(found.test_labels)
    with (folder / "labels.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["id", "split", *(f"class {number}" for number in range(labels.shape[1]))])
        writer.writerows([row, split[row], *values] for row, values in enumerate(labels.tolist()))
    return float(np.abs(vectors).sum(1).mean())


def test_map(folder: Path, out: str, *options: str) -> float:
    """What the command comes to, in a process of its own."""
    words = ["train", f"{folder}/labels.csv", "--features", f"{folder}/vectors.npy", "--out", f"{folder}/{out}"]
    words = [sys.executable, __file__, *options, "--", *words, "--observe", "single-positive"]
    subprocess.run(words, check=True, capture_output=True, env=os.environ | {"OMP_NUM_THREADS": "1"})  # noqa: S603
    return 100 * float(json.loads((folder / out / "results.json").read_text())["test_map"])


def as_on_a_network() -> None:
    """Take vectors, the learning rate and the weights to begin with as they are."""

    def drawn(head: nn.Linear, size: float, config: OptimiserConfig) -> list[Group]:
        torch.manual_seed(0)
        head.reset_parameters()
        return [Group(head)]

    running.begin_on_vectors = drawn  # type: ignore[attr-defined]
    FeatureSource.centred = lambda self, rows: self  # type: ignore[method-assign]


def main() -> None:
    if "--" in sys.argv:
        options, words = sys.argv[1 : sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
        if options:
            as_on_a_network()
        from onepair.cli.main import main as onepair

        sys.argv = ["onepair", *words]
        onepair()
        return
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--out", type=Path, default=Path("results/vectors.csv"))
    arguments = parser.parse_args()
    with TUNED.open(newline="") as file:
        tuned = {row["set"]: row["test_map"] for row in csv.DictReader(file) if row["method"] == "opml-plus"}
    done = list(csv.DictReader(arguments.out.open(newline=""))) if arguments.out.exists() else []
    records = {row["set"]: row for row in done}
    print("| set | size of a vector | as on a network | as it comes | tuned |\n|---|---:|---:|---:|---:|")
    for name in arguments.sets:
        with tempfile.TemporaryDirectory() as place:
            size = prepare(name, arguments.data, Path(place))
            before, now = test_map(Path(place), "before", "--network"), test_map(Path(place), "now")
        shown = (name, f"{size:.3g}", f"{before:.2f}", f"{now:.2f}", tuned[name])
        records[name] = dict(zip(("set", "size", "as_on_a_network", "as_it_comes", "tuned"), shown, strict=True))
        print(f"| {' | '.join(shown)} |", flush=True)
    write(arguments.out, [records[name] for name in SETS if name in records])


if __name__ == "__main__":
    main()
