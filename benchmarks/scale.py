"""Time and memory from ten thousand to a million images, and from a hundred to ten thousand classes.

    python benchmarks/scale.py [--rows 10000 100000 1000000] [--classes 100 1000 10000] [--out results/scale.csv]
    python benchmarks/scale.py --reading [--rows 1000000] [--classes 10000]

Vectors of 128 numbers, of which a linear model can know three labels of each image, and one of these is observed; a
table of lists in Parquet. Then the commands as a user would give them, each a process of its own: training by ridge
regression, the missing labels by its out-of-fold models, predictions for all images, and the evaluation. Of every
command the wall-clock seconds, those of processors, which others on the machine change less, and the peak memory.
Lines are added to the .csv file as they come. A size of which all steps are in it is not measured again, and another
goes on where it stopped if --scratch still has its runs, and else from the start. Aims at a million
images and ten thousand classes: 6 GB, a minute for training, and ten minutes in all on two cores.

With --reading, a table of that size with one to three labels for each image, as CSV and as Parquet: to read it, and all
that `onepair check` does to it without looking for files. Aim: 30 seconds.
"""

import argparse
import csv
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
import pyarrow.parquet
from numpy.typing import NDArray

from onepair.data.formats.read import read_dataset
from onepair.data.quality import find_problems, take_census
from onepair.labels import Indices

Vectors = NDArray[np.float32]

WIDTH_OF_VECTORS, TRUE_LABELS, VALIDATION = 128, 3, 0.02
COLUMNS = ("rows", "classes", "step", "seconds", "cpu_seconds", "gigabytes", "figure")
STEPS = ("train", "find", "predict", "evaluate")


def generate(rows: int, classes: int, folder: Path) -> None:
    """Vectors, a sum of those of three classes each and noise; and a table with one of the three."""
    random = np.random.default_rng(0)
    centres, true = truth(rows, classes, random)
    total = len(true)
    vectors = np.lib.format.open_memmap(
        folder / "vectors.npy", mode="w+", dtype=np.float16, shape=(total, WIDTH_OF_VECTORS)
    )
    for start in range(0, total, 100_000):
        part = true[start : start + 100_000]
        vectors[start : start + 100_000] = centres[part].sum(1) + random.normal(size=(len(part), WIDTH_OF_VECTORS))
    table = {
        "file": [f"image {row}" for row in range(total)],
        "labels": [[f"class {each:05}"] for each in true[:, 0].tolist()],
        "split": ["train"] * rows + ["validation"] * (total - rows),
    }
    pyarrow.parquet.write_table(pyarrow.table(table), folder / "labels.parquet")


def truth(rows: int, classes: int, random: np.random.Generator) -> tuple[Vectors, Indices]:
    """The vectors of classes, and the classes of each image, of which the first is the one observed."""
    centres = random.normal(size=(classes, WIDTH_OF_VECTORS)).astype(np.float32)
    total = rows + max(500, round(VALIDATION * rows))
    return centres, random.integers(classes, size=(total, TRUE_LABELS))


def share_of_right(suggestions: Path, rows: int, classes: int) -> float:
    """Of suggested labels, those that were hidden."""
    _, true = truth(rows, classes, np.random.default_rng(0))
    with suggestions.open(newline="") as file:
        pairs = [(int(each["file"].split()[1]), int(each["label"].split()[1])) for each in csv.DictReader(file)]
    return float(np.mean([label in true[row, 1:] for row, label in pairs]))


def commands(folder: Path) -> dict[str, list[str]]:
    """What each step is, in words for `onepair`."""
    run, vectors = f"{folder}/run", f"{folder}/vectors.npy"
    return {
        "train": ["train", f"{folder}/labels.parquet", "--features", vectors, "--method", "ridge", "--out", run],
        "find": ["find", run],
        "predict": ["predict", run, vectors, "--out", f"{folder}/predictions.parquet"],
        "evaluate": ["evaluate", run, "--split", "validation"],
    }


def figure_of(step: str, folder: Path, rows: int, classes: int) -> str:
    """What came of a step, to see that it did what it should."""
    if step == "train":
        results = json.loads((folder / "run" / "results.json").read_text())
        return f"validation mAP {100 * results['validation_map']:.1f}"
    if step == "find":
        place = folder / "run" / "finding"
        found = json.loads((place / "summary.json").read_text())
        missing = " to ".join(f"{found[key]:.0f}" for key in ("missing_low", "missing_high"))
        right = 100 * share_of_right(place / "suggestions.csv", rows, classes)
        return f"{found['suggestions']['missing']} suggested of which {right:.0f} % right; missing {missing}"
    if step == "predict":
        return f"{pyarrow.parquet.ParquetFile(folder / 'predictions.parquet').metadata.num_rows} predicted"
    return ""


def measure(words: Sequence[str], threads: int, log: Path) -> tuple[float, float, float]:
    """Seconds, seconds of processors, and gigabytes of a command."""
    environment = os.environ | {"OMP_NUM_THREADS": str(threads)}
    start = time.perf_counter()
    with log.open("ab") as output:
        started = subprocess.Popen(  # noqa: S603 (our own words)
            [sys.executable, "-m", "onepair", *words], stdout=output, stderr=output, env=environment
        )
        _, status, used = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise SystemExit(f"onepair {' '.join(words)} ended with {started.returncode}:\n{log.read_text()[-2000:]}")
    return time.perf_counter() - start, used.ru_utime + used.ru_stime, used.ru_maxrss / 1e6


def read_tables(rows: int, classes: int) -> list[str]:
    """What reading and checking take, in sentences."""
    random = np.random.default_rng(0)
    counts = random.integers(1, TRUE_LABELS + 1, rows)
    names = [f"class {number:05}" for number in range(classes)]
    chosen = [names[place] for place in random.integers(classes, size=counts.sum())]
    ends = np.append(0, counts.cumsum()).tolist()
    lists = [chosen[start:end] for start, end in pairwise(ends)]
    files = [f"images/{row:07}.jpg" for row in range(rows)]
    sentences = []
    with tempfile.TemporaryDirectory() as folder:
        sheet = Path(folder) / "labels.csv"
        lines = (f"{file},{';'.join(each)}\n" for file, each in zip(files, lists, strict=True))
        sheet.write_text("".join(["file,labels\n", *lines]))
        pyarrow.parquet.write_table(pyarrow.table({"file": files, "labels": lists}), sheet.with_suffix(".parquet"))
        del chosen, lists, files
        for path in (sheet, sheet.with_suffix(".parquet")):
            start = time.process_time()
            table = read_dataset(path)
            read = time.process_time() - start
            take_census(table)
            problems = sum(1 for _ in find_problems(replace(table, pixels=np.empty((rows, 0), np.uint8))))
            checked = time.process_time() - start - read
            sentences.append(
                f"{path.suffix}: {rows:,} × {classes:,}, {table.labels.entries:,} entries in "
                f"{table.labels.nbytes / 1e6:,.0f} MB; read in {read:.1f} s of a processor, checked in {checked:.1f} s "
                f"({problems:,} problems)"
            )
    return sentences


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open(newline=""))) if path.exists() else []


def is_of(record: dict[str, str], rows: int, classes: int) -> bool:
    return (int(record["rows"]), int(record["classes"])) == (rows, classes)


def write(path: Path, records: Sequence[dict[str, Any]]) -> None:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, COLUMNS)
        writer.writeheader()
        writer.writerows(records)


def add(path: Path, record: dict[str, Any]) -> None:
    write(path, [*read(path), record])
    print(" ".join(f"{name}={value}" for name, value in record.items()), flush=True)


def run_case(rows: int, classes: int, threads: int, scratch: Path, table: Path) -> None:
    """All steps of a case that are not in the table yet; later steps need what the earlier ones have left."""
    folder = scratch / f"{rows}-{classes}"
    done = {r["step"] for r in read(table) if is_of(r, rows, classes)}
    if done.issuperset(STEPS):
        return
    if not (folder / "labels.parquet").exists():
        write(table, [r for r in read(table) if not is_of(r, rows, classes)])
        done = set()
        folder.mkdir(parents=True, exist_ok=True)
        generate(rows, classes, folder)
    for step, words in commands(folder).items():
        if step not in done:
            seconds, computed, gigabytes = measure(words, threads, folder / "log")
            numbers = {
                "seconds": round(seconds, 1),
                "cpu_seconds": round(computed, 1),
                "gigabytes": round(gigabytes, 2),
            }
            figure = figure_of(step, folder, rows, classes)
            add(table, {"rows": rows, "classes": classes, "step": step, **numbers, "figure": figure})
    shutil.rmtree(folder)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--classes", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/scale.csv"))
    parser.add_argument("--scratch", type=Path, help="a folder for data and runs; by default a temporary one")
    parser.add_argument("--reading", action="store_true", help="read tables, the last size of each kind")
    arguments = parser.parse_args()
    if arguments.reading:
        print("\n".join(read_tables(arguments.rows[-1], arguments.classes[-1])))
        return
    cases = [(rows, classes) for rows in arguments.rows for classes in arguments.classes]
    with tempfile.TemporaryDirectory() as temporary:
        for rows, classes in sorted(cases, key=lambda case: case[0] * case[1]):
            run_case(rows, classes, arguments.threads, arguments.scratch or Path(temporary), arguments.out)


if __name__ == "__main__":
    main()
