"""From a table to the page: how many seconds of a processor each step of `onepair start` takes.

Photos of PASCAL VOC 2012, each with one of its labels, in a table as a person has it; a fresh cache. Seconds of a
processor, unlike those of a clock, hardly depend on who else uses the machine; two free cores share them.

    python benchmarks/start.py VOCDEVKIT [--photos 2000]
"""

import argparse
import contextlib
import csv
import os
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import typer

STEPS: dict[str, tuple[float, float]] = {}


@contextlib.contextmanager
def step(name: str) -> Iterator[None]:
    processor, clock = time.process_time(), time.perf_counter()
    yield
    STEPS[name] = time.process_time() - processor, time.perf_counter() - clock


def write_table(source: str, photos: int, folder: Path) -> Path:
    """A CSV of some training photos, each with one of its labels."""
    from onepair.data.formats.read import read_dataset
    from onepair.labels import POSITIVE, observe_positives

    table = read_dataset(source)
    rows = np.sort(np.random.default_rng(0).choice(table.rows("train"), photos, replace=False))
    observed = observe_positives(table.labels[rows])
    path = folder / "labels.csv"
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(("file", "labels"))
        for row, labels in zip(rows.tolist(), observed, strict=True):
            names = [table.classes[each] for each in np.flatnonzero(labels == POSITIVE)]
            writer.writerow((table.path(row).resolve(), ";".join(names)))
    return path


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("source")
    parser.add_argument("--photos", type=int, default=2000)
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        data = str(write_table(asked.source, asked.photos, folder))
        run(data, folder / "run")
    print(f"\n{asked.photos:,} photos\n| step | seconds of a processor | of the clock |\n|---|---|---|")
    for name, (processor, clock) in STEPS.items():
        print(f"| {name} | {processor:.1f} | {clock:.1f} |")
    print(
        f"| all | {sum(processor for processor, _ in STEPS.values()):.1f} | {sum(c for _, c in STEPS.values()):.1f} |"
    )


def run(data: str, out: Path) -> None:
    """The steps of `onepair start`, one by one."""
    with step("imports"):
        import onepair.training.run  # noqa: F401 (which the commands import when they run)
        from onepair.cli.data import check, features
        from onepair.cli.finding import find
        from onepair.cli.first_steps import METHOD
        from onepair.cli.training import train
        from onepair.models import best_at_hand
    backbone = best_at_hand()
    with step("check"), contextlib.suppress(typer.Exit):
        check(data)
    with step("train: features"):
        features(data, backbone=backbone)
    with step("train: learning"):
        train(data, method=METHOD, mode="linear", backbone=backbone, out=out)
    with step("find: ranks"):
        find(out, maps=False)
    with step("find: heat maps"):
        find(out)


if __name__ == "__main__":
    main()
