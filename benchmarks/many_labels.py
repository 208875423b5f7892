"""Time and memory of probabilities at 20,000 images of 1,000 classes, for every way in which labels come to be known.

    python benchmarks/many_labels.py [--rows 20000] [--classes 1000] [--only "single positive"]

Each case runs in a process of its own: seconds of one processor, and the most memory it held beyond its scores and
labels. Aims: a minute, and 2 GB. The mean probability is compared with the share of positives.
"""

import argparse
import multiprocessing
import resource
import time

import numpy as np
from hiding import PROCESSES, Process
from scipy.special import expit
from threadpoolctl import threadpool_limits

from onepair.labels import Labels
from onepair.metrics import Floats
from onepair.probability import fit_decisions
from onepair.probability.cell_posterior import judge

A_ROW = 12.0  # labels, about


def generate(rows: int, classes: int) -> tuple[Floats, Labels]:
    """Scores that know of the labels what a model could, and at least one label in every row."""
    random = np.random.default_rng(0)
    often = random.lognormal(0, 1, classes)
    logits = random.normal(0, 2, (rows, classes)) + 1.63 * np.log(A_ROW / classes * often / often.mean())
    labels = (random.random(logits.shape) < expit(logits)).astype(np.int8)
    labels[~labels.any(1), 0] = 1
    return logits + random.normal(0, 0.7, logits.shape), labels


def measure(what: str, process: Process, rows: int, classes: int) -> tuple[float, float, float, float]:
    """Seconds, gigabytes, the mean probability and the share of positives."""
    with threadpool_limits(1):
        scores, truth = generate(rows, classes)
        hidden = process.hide(truth, scores, process.settings[-1], np.random.default_rng(1))
        before, start = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss, time.process_time()
        if what == "judge":
            mean = float(judge(hidden.observed, scores, asked=hidden.asked).probabilities.mean())
        else:
            mean = float(fit_decisions(scores, hidden.observed, asked=hidden.asked).probabilities(scores).mean())
        seconds = time.process_time() - start
        more = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
    return seconds, more / 1e6, mean, float(truth.mean())


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--classes", type=int, default=1_000)
    parser.add_argument("--only", default="", help="a part of the name of what to measure")
    arguments = parser.parse_args()
    print("| what | labels | seconds | GB | mean probability (true) |\n|---|---|---|---|---|")
    spawning = multiprocessing.get_context("spawn")
    for what, name in [
        *(("fit_decisions", name) for name in PROCESSES if not PROCESSES[name].sample),
        ("judge", "single positive"),
    ]:
        if arguments.only in f"{what}, {name}":
            with spawning.Pool(1) as pool:
                given = (what, PROCESSES[name], arguments.rows, arguments.classes)
                seconds, memory, mean, true = pool.apply(measure, given)
            print(f"| {what} | {name} | {seconds:.0f} | {memory:.1f} | {mean:.4f} ({true:.4f}) |", flush=True)


if __name__ == "__main__":
    main()
