"""What answers are worth: people who know the truth review single-positive VOC 2012, and the model is trained again.

    python benchmarks/review_orders.py VOCdevkit --runs DIR [--seeds 3] [--out results/review_orders_voc2012.csv]
        [--chart docs/images/review-orders.svg]

Linear classifiers on EfficientNet-Lite0 features, by the published protocol (linear.protocol=epochs): training and
validation images show one positive each, test images have all of their labels and are never asked about. A simulated
person answers what `onepair find` suggests of an OPML+ run with the truth, in each order of the review and in a random
one; then `onepair labels` and `onepair train` do what they do for people. Every other method then learns from the first
300 of these answers, surest first: is any worse than without them? A seed draws the positives that are shown, the
validation images, the weights and the random order.
"""

import argparse
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any

import matplotlib.pyplot as plt
import numpy as np
from real_sets import write_csv

from onepair.data.formats.read import read_dataset
from onepair.data.formats.write import write_table
from onepair.data.label_table import LabelTable
from onepair.experiments.figures import HEIGHT, SERIES, WIDTH, Drawing, draw
from onepair.files import write_atomically
from onepair.finding.find import find_labels
from onepair.label_matrix import LabelMatrix
from onepair.labels import POSITIVE, UNKNOWN, Indices, observe_positives
from onepair.metrics import precision_recall_f1
from onepair.review.answers import Entry
from onepair.review.completion import write_completed
from onepair.review.queue import Queue, read_queue
from onepair.runs.config import Config, build_config
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.training.callbacks import ProgressCallback
from onepair.training.hardware import Hardware
from onepair.training.run import train

METHODS = ("opml-plus", "bce", "entmax", "role", "opml", "opml-sp")
REVIEWED = METHODS[0]  # whose suggestions are answered in every order
ORDERS = ("probability", "worth", "random")
ANSWERS = (300, 1000, 3000)
FEW = ANSWERS[0]  # after which no method may be worse
STEP = 100  # answers from one count of completed labels to the next

NAMES = {"probability": "surest first", "worth": "mixed", "random": "at random"}

Row = dict[str, Any]


class Simulation:
    """VOC 2012 as somebody has it who knows one label of each image, and that somebody's answers."""

    def __init__(self, truth: LabelTable, folder: Path, seed: int) -> None:
        self.truth, self.folder, self.seed = truth, folder / str(seed), seed
        self.folder.mkdir(parents=True, exist_ok=True)
        self.source = self.folder / "single_positives.csv"
        labels, train_rows = truth.labels.dense(), truth.rows("train")
        labels[train_rows] = observe_positives(truth.labels[train_rows], seed=seed)
        write_table(replace(truth, labels=LabelMatrix.of(labels)), self.source)

    @cached_property
    def reviewed(self) -> FinishedRun:
        """The run that is reviewed, with its suggestions."""
        run = self.before(REVIEWED)
        if not (run.path / "finding" / "summary.json").exists():
            with ProgressCallback(quiet=True) as progress:
                find_labels(run, maps=False, hardware=_machine(), callbacks=[progress])
        return run

    def before(self, method: str) -> FinishedRun:
        return self._train(method, self.source, f"{method}-before")

    def after(self, method: str, order: str, answers: int) -> FinishedRun:
        """The run on the labels that so many answers have completed."""
        completed = self.folder / f"{order}-{answers}.csv"
        if not completed.exists():
            queue = read_queue(self.reviewed)
            write_completed(self.reviewed, self._answer(queue, self.order(queue, order)[:answers]), completed)
        return self._train(method, completed, f"{method}-{order}-{answers}")

    def order(self, queue: Queue, order: str) -> Indices:
        if order == "random":
            return np.random.default_rng(self.seed).permutation(len(queue))
        return queue.ordered("worth" if order == "worth" else "probability")

    def completed(self, queue: Queue, order: str) -> list[int]:
        """How many missing labels the first 0, 100, 200, … answers have confirmed."""
        asked = self.order(queue, order)[: ANSWERS[-1]]
        right = (self.truth.labels[queue.rows, queue.columns] == POSITIVE) & (queue.suggested == POSITIVE)
        return [0, *np.cumsum(right[asked])[STEP - 1 :: STEP].tolist()]

    def _answer(self, queue: Queue, asked: Indices) -> list[Entry]:
        cells = zip(queue.rows[asked].tolist(), queue.columns[asked].tolist(), strict=True)
        return [
            Entry(
                number,
                number,
                self.truth.files[row],
                self.truth.classes[column],
                "yes" if self.truth.labels[row, column] == POSITIVE else "no",
                "somebody",
                "2024-01-01T00:00:00+00:00",
            )
            for number, (row, column) in enumerate(cells, start=1)
        ]

    def _train(self, method: str, source: Path, name: str) -> FinishedRun:
        folder = RunFolder(self.folder / name)
        if not folder.finished:
            with ProgressCallback(quiet=True) as progress:
                train(configuration(source, method, self.seed), folder, hardware=_machine(), callbacks=[progress])
        return FinishedRun(folder.path)


def _machine() -> Hardware:
    return Hardware(accelerator="cpu", devices=1)


def configuration(source: Path, method: str, seed: int) -> Config:
    return build_config(
        {
            "data": {"source": str(source), "seed": seed},
            "model": {"backbone": "tf_efficientnet_lite0", "mode": "linear"},
            "method": {"name": method},
            "linear": {"protocol": "epochs"},
            "seed": seed,
        }
    )


def read_truth(source: str) -> LabelTable:
    """The dataset, with whole paths, since tables of it are written elsewhere."""
    table = read_dataset(source)
    return replace(table, files=tuple(str(table.path(row).resolve()) for row in range(len(table))))


def measure(run: FinishedRun) -> Row:
    """How good a run is on the test images, which have all of their labels."""
    scores, labels = run.scores("test"), run.labels("test")
    assert not (labels == UNKNOWN).any()
    predicted = run.decisions.labels(scores)
    overall, by_class = (precision_recall_f1(predicted, labels, average=each).f1 for each in ("overall", "class"))
    return {"test_map": run.results.test_map, "f1": float(overall), "f1_by_class": float(by_class)}


def simulate(simulation: Simulation) -> Iterator[Row]:
    """All rows of a seed: every method before and after a few answers, and one of them in every order."""
    queue = read_queue(simulation.reviewed)
    for method in METHODS:
        common = {"seed": simulation.seed, "method": method}
        yield {**common, "order": "probability", "answers": 0, "completed": 0, **measure(simulation.before(method))}
        for order in ORDERS if method == REVIEWED else ("probability",):
            completed = simulation.completed(queue, order)
            for answers in ANSWERS if method == REVIEWED else (FEW,):
                facts = {"order": order, "answers": answers, "completed": completed[answers // STEP]}
                yield {**common, **facts, **measure(simulation.after(method, order, answers))}


def counts(simulation: Simulation) -> Iterator[Row]:
    """How many labels are complete after every hundred answers, by order."""
    queue = read_queue(simulation.reviewed)
    for order in ORDERS:
        for step, completed in enumerate(simulation.completed(queue, order)):
            yield {"seed": simulation.seed, "order": order, "answers": STEP * step, "completed": completed}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data")
    parser.add_argument("--runs", type=Path, default=Path("runs/review_orders"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("results/review_orders_voc2012.csv"))
    parser.add_argument("--chart", type=Path, default=Path("docs/images/review-orders.svg"))
    arguments = parser.parse_args()
    truth = read_truth(arguments.data)
    rows: list[Row] = []
    counted: list[Row] = []
    for seed in range(arguments.seeds):
        simulation = Simulation(truth, arguments.runs, seed)
        for row in simulate(simulation):
            print(row, flush=True)
            rows.append(row)
        counted += counts(simulation)
    write_csv(arguments.out, rows, form=".4f")
    show_orders(rows)
    show_methods(rows)
    _, files = draw(lambda: chart(rows, counted, method=REVIEWED, orders=ORDERS))
    write_atomically(arguments.chart, files.svg)


def show_orders(rows: Sequence[Row]) -> None:
    print("\n| order | answers | labels completed | test mAP | F1 |\n|---|---|---|---|---|")
    for order in ORDERS:
        for answers in (0, *ANSWERS):
            alike = [row for row in rows if row["method"] == REVIEWED and row["answers"] == answers]
            chosen = [row for row in alike if answers == 0 or row["order"] == order]
            completed = np.mean([row["completed"] for row in chosen])
            print(f"| {order} | {answers} | {completed:,.0f} | {spread(chosen, 'test_map')} | {spread(chosen, 'f1')} |")


def show_methods(rows: Sequence[Row]) -> None:
    print(f"\n| method | figure | before | after {FEW} answers | difference by seed |\n|---|---|---|---|---|")
    for method in METHODS:
        mine = [row for row in rows if row["method"] == method and row["order"] == "probability"]
        before, after = ([row for row in mine if row["answers"] == answers] for answers in (0, FEW))
        for figure in ("test_map", "f1", "f1_by_class"):
            pairs = zip(before, after, strict=True)
            differences = ", ".join(f"{100 * (new[figure] - old[figure]):+.1f}" for old, new in pairs)
            print(f"| {method} | {figure} | {spread(before, figure)} | {spread(after, figure)} | {differences} |")


def spread(rows: Sequence[Row], figure: str) -> str:
    """Mean and standard deviation over the seeds, in points."""
    values = 100 * np.array([row[figure] for row in rows])
    return f"{values.mean():.1f} ± {values.std(ddof=1) if len(values) > 1 else 0:.1f}"


def chart(rows: Sequence[Row], counted: Sequence[Row], *, method: str, orders: Sequence[str]) -> Drawing:
    """Means over the seeds; bars span the lowest and the highest."""
    figure, (left, right) = plt.subplots(1, 2, figsize=(2 * WIDTH, HEIGHT), layout="constrained")
    mine = [row for row in rows if row["method"] == method]
    for order, style in zip(orders, SERIES[1:], strict=False):
        line = {**style, "label": NAMES[order]}
        answers, mean, _ = _by_answers([row for row in counted if row["order"] == order], "completed")
        left.plot(answers, mean, **{**line, "markevery": 5})
        answers, mean, ends = _by_answers(
            [row for row in mine if row["order"] == order or row["answers"] == 0], "test_map"
        )
        right.errorbar(answers, 100 * mean, 100 * np.abs(ends - mean), capsize=2, **line)
    left.set(xlabel="answers", ylabel="labels completed")
    right.set(xlabel="answers", ylabel="test mAP")
    left.legend()
    return Drawing(figure, [dict(row) for row in rows], [])


def _by_answers(rows: Sequence[Row], figure: str) -> tuple[list[int], Any, Any]:
    """The numbers of answers there are, and at each the mean over the seeds and the ends (2, …)."""
    answers = sorted({row["answers"] for row in rows})
    values = [[row[figure] for row in rows if row["answers"] == each] for each in answers]
    ends = np.array([[min(each) for each in values], [max(each) for each in values]], float)
    return answers, np.array([np.mean(each) for each in values]), ends


if __name__ == "__main__":
    main()
