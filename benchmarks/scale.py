"""Time and memory from ten thousand to a million images, and from a hundred to ten thousand classes.

    python benchmarks/scale.py [--rows 10000 100000 1000000] [--classes 100 1000 10000] [--out results/scale]
    python benchmarks/scale.py --chart results/scale
    python benchmarks/scale.py --reading [--rows 1000000] [--classes 10000]

Vectors of 128 numbers, of which a linear model can know three labels of each image, and one of these is observed. Two
epochs of OPML+ and of OPML-SP by the training loop itself, then from the model of OPML+ the missing labels of all
training images and predictions for them. Every case has a process of its own: the most memory that it held, and of
every step the seconds that passed and those that processors computed, which others on the machine change less. Lines
are added to the .csv file as they come; cases in it are not measured again. Aims at a million images and ten
thousand classes: 8 GB, and 30 minutes on two cores.

With --reading, a table of that size with one to three labels for each image, as CSV and as Parquet: to read it, and all
that `onepair check` does to it without looking for files. Aim: 30 seconds.
"""

import argparse
import csv
import multiprocessing
import resource
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from lightning_fabric import Fabric
from torch import nn

from onepair.data import LabelTable
from onepair.data.checking import find_problems, take_census
from onepair.data.reading import read_dataset
from onepair.experiments.drawing import HEIGHT, LOOKS, WIDTH, Drawing, draw
from onepair.files import write_atomically
from onepair.finding import find_by_blocks
from onepair.inference.inputs import FeatureSource
from onepair.inference.scoring import ScoredBlocks, score
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE
from onepair.methods import create_method
from onepair.methods.observed import ObservedRows
from onepair.probability import fit_decisions
from onepair.runs.config import build_config, merge, parse_setting
from onepair.runs.folder import RunFolder
from onepair.runs.task import Task
from onepair.training.loop import Stage, Trainer
from onepair.training.machine import Silence
from onepair.training.optimisation import Group
from onepair.training.stopping import Requests

WIDTH_OF_VECTORS, TRUE_LABELS, EPOCHS, BATCH, VALIDATION = 128, 3, 2, 512, 0.02
COLUMNS = ("rows", "classes", "step", "seconds", "cpu_seconds", "gigabytes", "validation_map")
SETTINGS = (f"linear.epochs={EPOCHS}", f"linear.batch_size={BATCH}", "linear.optimiser.lr=0.003")
CELLS_OF_A_BLOCK = 2**25


def generate(rows: int, classes: int) -> tuple[torch.Tensor, Task]:
    """Vectors, a sum of those of three classes each and noise; and the task to learn from one of the three."""
    random = np.random.default_rng(0)
    centres = random.normal(size=(classes, WIDTH_OF_VECTORS)).astype(np.float32)
    total = rows + max(500, round(VALIDATION * rows))
    true = random.integers(classes, size=(total, TRUE_LABELS))
    vectors = np.empty((total, WIDTH_OF_VECTORS), np.float16)
    for start in range(0, total, 100_000):
        part = true[start : start + 100_000]
        vectors[start : start + 100_000] = centres[part].sum(1) + random.normal(size=(len(part), WIDTH_OF_VECTORS))
    labels = LabelMatrix.from_entries((total, classes), np.arange(total), true[:, 0], POSITIVE)
    table = LabelTable(
        files=tuple(map(str, range(total))),
        classes=tuple(map(str, range(classes))),
        labels=labels,
        split=np.repeat(["train", "validation"], [rows, total - rows]),
        root=Path(),
    )
    train, validation = np.arange(rows), np.arange(rows, total)
    task = Task(
        table=table,
        train=train,
        validation=validation,
        test=train[:0],
        observed=labels.take(train),
        validation_labels=labels.take(validation),
        selected_on="observed validation labels",
    )
    return torch.from_numpy(vectors), task


def train(method_name: str, vectors: torch.Tensor, task: Task, folder: Path) -> tuple[Trainer, float]:
    """The loop after its last epoch, and the validation mAP that it ended with."""
    torch.manual_seed(0)
    head = nn.Linear(WIDTH_OF_VECTORS, len(task.table.classes))
    config = build_config(merge([parse_setting(text) for text in ("data.source=''", *SETTINGS)]))
    stage = Stage(
        name="linear",
        model=head,
        classifier=head,
        source=FeatureSource(vectors),
        groups=[Group(head)],
        config=config.linear,
        scoring_batch=min(4096, CELLS_OF_A_BLOCK // len(task.table.classes)),
    )
    method, observed = create_method(method_name), task.observed
    method.begin(ObservedRows(observed) if observed.is_large else torch.from_numpy(observed.dense()))
    fabric = Fabric(accelerator="cpu", devices=1)
    with Requests() as requests:
        trainer = Trainer(
            fabric,
            stage,
            method,
            task,
            config,
            folder=RunFolder(folder),
            watch=Silence(),
            earlier=[],
            requests=requests,
        )
        trainer.run()
    return trainer, trainer.progress.records[-1]["validation_map"]


def blocks_of(trainer: Trainer) -> ScoredBlocks:
    """The scores of the training images, by the model at hand: how good it is does not change what finding costs."""
    stage = trainer.stage
    return ScoredBlocks(trainer.fabric, stage.model, stage.source, trainer.task.train, stage.scoring_batch)


def predict(trainer: Trainer, threshold: Any) -> int:
    """Decide on every label of every training image, as `onepair predict` does; how many are predicted."""
    return sum(int((block >= threshold).sum()) for _, block in blocks_of(trainer))


def measure(what: str, rows: int, classes: int, threads: int) -> list[dict[str, Any]]:
    """All steps of a case, in this process."""
    torch.set_num_threads(threads)
    records: list[dict[str, Any]] = []

    def timed(step: str, call: Callable[[], Any]) -> Any:
        start, computed = time.perf_counter(), time.process_time()
        result = call()
        records.append(
            {
                "rows": rows,
                "classes": classes,
                "step": step,
                "seconds": round(time.perf_counter() - start, 1),
                "cpu_seconds": round(time.process_time() - computed, 1),
                "gigabytes": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1e6, 2),
                "validation_map": "",
            }
        )
        return result

    vectors, task = timed("generate", lambda: generate(rows, classes))
    with tempfile.TemporaryDirectory() as folder:
        trainer, validation_map = timed(what, lambda: train(what, vectors, task, Path(folder)))
        records[-1]["validation_map"] = round(100 * validation_map, 2)
        if what == "opml-plus":
            timed("find", lambda: find_by_blocks(task.observed, blocks_of(trainer), per_class=10))
            places = task.judged("validation")
            stage, some = trainer.stage, task.validation[places]
            scores = score(trainer.fabric, stage.model, stage.source, some, batch_size=stage.scoring_batch).numpy()
            labels = task.validation_labels.take(places)
            decisions = timed("decide", lambda: fit_decisions(scores, labels))
            timed("predict", lambda: predict(trainer, decisions.thresholds))
    return records[1:]


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


def draw_steps(records: Sequence[dict[str, str]]) -> Drawing:
    figure, panels = plt.subplots(1, 2, figsize=(2 * WIDTH, HEIGHT), layout="constrained")
    steps = list(dict.fromkeys(record["step"] for record in records if record["step"] != "decide"))
    for look, step in zip(LOOKS, steps, strict=False):
        own = sorted((int(r["rows"]) * int(r["classes"]), r) for r in records if r["step"] == step)
        cells = [each for each, _ in own]
        for panel, key in zip(panels, ("cpu_seconds", "gigabytes"), strict=True):
            panel.plot(cells, [float(r[key]) for _, r in own], **(look | {"linestyle": ""}), label=step)
    most = max(int(r["rows"]) * int(r["classes"]) for r in records)
    for panel, title in zip(panels, ("seconds of a processor", "gigabytes, at most"), strict=True):
        panel.set(xscale="log", yscale="log", xlabel="images × classes", ylabel=title)
    slowest = max(
        float(r["cpu_seconds"]) / int(r["rows"]) / int(r["classes"]) for r in records if r["step"] == steps[0]
    )
    line = [most / 1e4, most]
    panels[0].plot(
        line, [slowest * each for each in line], color="#b9bfc8", linewidth=0.8, zorder=0, label="in proportion"
    )
    panels[0].legend()
    return Drawing(figure, records, [])


def read(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(path.open(newline=""))) if path.exists() else []


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, nargs="*", default=[10_000, 100_000, 1_000_000])
    parser.add_argument("--classes", type=int, nargs="*", default=[100, 1_000, 10_000])
    parser.add_argument("--methods", nargs="*", default=["opml-plus", "opml-sp"])
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--out", type=Path, default=Path("results/scale"))
    parser.add_argument("--reading", action="store_true", help="read tables, the last size of each kind")
    parser.add_argument("--chart", type=Path, help="only draw what was measured before")
    arguments = parser.parse_args()
    if arguments.reading:
        print("\n".join(read_tables(arguments.rows[-1], arguments.classes[-1])))
        return
    out: Path = arguments.chart or arguments.out
    table = out.with_suffix(".csv")
    done = {(int(r["rows"]), int(r["classes"]), r["step"]) for r in read(table)}
    spawning = multiprocessing.get_context("spawn")
    cases = [] if arguments.chart else [(rows, classes) for rows in arguments.rows for classes in arguments.classes]
    for rows, classes in sorted(cases, key=lambda case: case[0] * case[1]):
        for what in arguments.methods:
            if (rows, classes, what) in done:
                continue
            with spawning.Pool(1) as pool:
                records = pool.apply(measure, (what, rows, classes, arguments.threads))
            with table.open("a", newline="") as file:
                writer = csv.DictWriter(file, COLUMNS)
                if file.tell() == 0:
                    writer.writeheader()
                writer.writerows(records)
            for record in records:
                print(" ".join(f"{name}={value}" for name, value in record.items()), flush=True)
    _, files = draw(lambda: draw_steps(read(table)))
    write_atomically(out.with_suffix(".png"), files.png)
    write_atomically(out.with_suffix(".svg"), files.svg)


if __name__ == "__main__":
    main()
