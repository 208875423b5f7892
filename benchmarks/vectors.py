"""Vectors as they come: does `onepair train --features` need settings of its own for each set?

    python benchmarks/vectors.py DATA_FOLDER [--sets emotions yeast] [--out results/vectors.csv]

DATA_FOLDER, the sets and their splits are those of methods_on_tables.py, but features are as they are in the files: not
standardised, nor of one length. The command trains OPML+ from one positive of each row, by its defaults. Beside its
test mAP stand those of the same command as published comparisons train, on features as they are, from drawn weights, at
a rate as it is; of the same on scaled features, without a penalty on weights; and the one of
results/methods_on_tables.csv, of features scaled by hand and a learning rate chosen on validation rows, without a
penalty. One seed; what is in the file and not measured anew is kept.
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
from methods_on_tables import IMAGES, SETS, read_images
from tabular import read, write

_FREE = ("linear.penalty=0.0", "linear.optimiser.schedule=constant")
WAYS = {  # to train, and what is set for each
    "as published": ("linear.scaled=false", *_FREE),
    "scaled": _FREE,
    "as it comes": (),
}
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


def test_map(folder: Path, out: str, *settings: str) -> float:
    """What the command comes to, in a process of its own."""
    words = ["train", f"{folder}/labels.csv", "--features", f"{folder}/vectors.npy", "--out", f"{folder}/{out}"]
    words += ["--observe", "single-positive", *(word for setting in settings for word in ("--set", setting))]
    one_thread = os.environ | {"OMP_NUM_THREADS": "1"}
    subprocess.run([sys.executable, "-m", "onepair", *words], check=True, capture_output=True, env=one_thread)  # noqa: S603
    return 100 * float(json.loads((folder / out / "results.json").read_text())["test_map"])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("data", type=Path)
    parser.add_argument("--sets", nargs="*", default=SETS)
    parser.add_argument("--out", type=Path, default=Path("results/vectors.csv"))
    arguments = parser.parse_args()
    with TUNED.open(newline="") as file:
        tuned = {row["set"]: row["test_map"] for row in csv.DictReader(file) if row["method"] == "opml-plus"}
    done = list(csv.DictReader(arguments.out.open(newline=""))) if arguments.out.exists() else []
    records = {row["set"]: row for row in done}
    print(f"| set | size of a vector | {' | '.join(WAYS)} | tuned |\n{'|---' * (3 + len(WAYS))}|")
    for name in arguments.sets:
        with tempfile.TemporaryDirectory() as place:
            size = prepare(name, arguments.data, Path(place))
            maps = [f"{test_map(Path(place), way, *settings):.2f}" for way, settings in WAYS.items()]
        shown = (name, f"{size:.3g}", *maps, tuned[name])
        records[name] = dict(zip(("set", "size", *WAYS, "tuned"), shown, strict=True))
        print(f"| {' | '.join(shown)} |", flush=True)
        write(arguments.out, [records[name] for name in SETS if name in records])


if __name__ == "__main__":
    main()
