"""Small runs to review: a dataset, a configuration and suggestions, without any training."""

import csv
import itertools
from pathlib import Path

import numpy as np
from PIL import Image, ImageDraw

from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.review.answers import Store
from onepair.review.app import Application
from onepair.review.photos import Pictures
from onepair.review.queue import answers_file, open_run, read_queue
from onepair.review.session import ReviewSession
from onepair.runs.config import build_config
from tests.runs.pretended import pretend_finished

CLASSES = ("bar", "circle", "cross", "square")
TRAIN, VALIDATION, TEST = 30, 6, 8
SIZE = (96, 64)


def picture(labels) -> Image.Image:
    """A shape in each quarter whose class is positive."""
    image = Image.new("RGB", SIZE, "white")
    draw = ImageDraw.Draw(image)
    for column in np.flatnonzero(labels == POSITIVE).tolist():
        left, top = 12 + 48 * (column % 2), 6 + 32 * (column // 2)
        box = (left, top, left + 20, top + 20)
        if column == 0:
            draw.rectangle((left, top + 8, left + 20, top + 12), "teal")
        elif column == 1:
            draw.ellipse(box, "orange")
        elif column == 2:
            draw.line(box, "purple", 4)
            draw.line((left, top + 20, left + 20, top), "purple", 4)
        else:
            draw.rectangle(box, "navy")
    return image


def full_labels() -> np.ndarray:
    """Every row has a positive."""
    combinations = [row for row in itertools.product((0, 1), repeat=len(CLASSES)) if any(row)]
    order = np.random.default_rng(5).integers(len(combinations), size=TRAIN + VALIDATION + TEST)
    return np.array(combinations, np.int8)[order]


def write_images(folder: Path) -> Path:
    """Images, and a table of their labels."""
    folder.mkdir(parents=True)
    splits, labels = ["train"] * TRAIN + ["validation"] * VALIDATION + ["test"] * TEST, full_labels()
    lines = [("file", "split", *CLASSES)]
    for row, (split, values) in enumerate(zip(splits, labels, strict=True)):
        picture(values).save(folder / f"{row:02}.png")
        lines.append((f"{row:02}.png", split, *map(str, values)))
    (folder / "labels.csv").write_text("".join(f"{','.join(line)}\n" for line in lines))
    return folder / "labels.csv"


def write_suggestions(run: Path, lines, *, maps: bool = True) -> None:
    """`lines` of file, label, probability and kind, the most probable first."""
    finding = run / "finding"
    finding.mkdir(exist_ok=True)
    with (finding / "suggestions.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["file", "label", "probability", "rank", "kind"])
        writer.writerows([name, label, share, rank + 1, kind] for rank, (name, label, share, kind) in enumerate(lines))
    if maps:
        np.save(finding / "maps.npy", np.random.default_rng(0).integers(0, 256, (len(lines), 4, 4), np.uint8))


def write_run(folder: Path, source: Path | str, **data) -> Path:
    """A finished run's folder, but for its model."""
    return pretend_finished(folder, build_config({"data": {"source": str(source), **data}})).path


def small_run(folder: Path, *, most: int = 40, **data) -> Path:
    """A run on 44 small images of single positives; true labels are suggested first, then false ones, one as wrong."""
    run = write_run(folder / "run", write_images(folder / "images"), **{"observe": "single-positive", **data})
    task = open_run(run).task
    table, truth = task.table, task.table.labels[task.train]
    missing = np.argwhere(task.observed == UNKNOWN)
    ranked = sorted(missing.tolist(), key=lambda cell: -truth[tuple(cell)])[: most - 1]
    shares = np.linspace(0.95, 0.55, most)
    lines = [
        (table.files[task.train[place]], table.classes[column], f"{share:.4f}", "missing")
        for (place, column), share in zip(ranked, shares, strict=False)
    ]
    place, column = np.argwhere(task.observed == POSITIVE)[-1].tolist()
    lines.append((table.files[task.train[place]], table.classes[column], f"{shares[-1]:.4f}", "wrong"))
    write_suggestions(run, lines)
    return run


def open_session(run: Path) -> ReviewSession:
    opened = open_run(run)
    return ReviewSession(opened, read_queue(opened), Store(answers_file(opened)))


def open_app(run: Path, *, name: str | None = "Ann"):
    session = open_session(run)
    return Application(session, Pictures(session.table, cache=run.parent / "cache"), name=name), session


def truth_of(session: ReviewSession, cell) -> str:
    """What somebody who knows all labels answers."""
    label = session.table.labels[cell.row, session.table.classes.index(cell.label)]
    return {POSITIVE: "yes", NEGATIVE: "no"}[int(label)]
