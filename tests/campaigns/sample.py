"""What the campaigns work on: images with tables of every kind, a run with all that commands leave in its folder."""

import contextlib
import csv
import json
from collections.abc import Callable
from pathlib import Path

import pyarrow
import pyarrow.parquet

from onepair.errors import Stopped
from onepair.review.answers import Answer, Store
from onepair.review.queue import answers_file, open_run, read_queue
from onepair.runs.config import to_toml
from tests.training.tiny import CLASSES, Listener, tiny_config, train_tiny, write_images


def write_sample(folder: Path, onepair: Callable[..., int]) -> None:
    """What `write_run` does, tables in images/, another run in other/, one that was stopped in stopped/, model.onnx."""
    source = write_run(folder, onepair)
    _write_tables(folder / "images", list(csv.DictReader(source.open())))
    train_tiny(source, "seed=4", out=folder / "other", cache=folder / "cache")
    with contextlib.suppress(Stopped):
        train_tiny(source, out=folder / "stopped", cache=folder / "cache", listener=_Stopping())
    _do(onepair, ["export", folder / "run", "--out", folder / "model.onnx"])
    (folder / "settings.toml").write_text(to_toml(tiny_config(source, "data.observe=given")))


def write_run(folder: Path, onepair: Callable[..., int]) -> Path:
    """Images with a table in images/, and a run on them in run/ that was searched, audited and reviewed; the table."""
    (folder / "images").mkdir()
    source = write_images(folder / "images")
    cache, run, sheet = folder / "cache", folder / "run", folder / "sheet.csv"
    train_tiny(source, out=run, cache=cache)
    _do(
        onepair,
        ["find", run, "--folds", "2", "--cache", cache, "--workers", "0", "--min-probability", "0"],
        ["audit", run, "--images", "4", "--split", "test", "--sheet", sheet],
        ["audit", run, "--images", "4", "--split", "test", "--answers", sheet],
    )
    _write_answers(run)
    return source


def write_project(folder: Path, onepair: Callable[..., int]) -> None:
    """A project on the images, labels.onepair/, and answers to be imported, answers.csv."""
    source = folder / "images" / "labels.csv"
    _do(onepair, ["start", source, "--backbone", "small-cnn", "--no-page", "--out", folder / "labels.onepair"])
    lines = [f"{row:02}.png,{name},{'yes' if row % 2 else 'no'},Ann" for row in range(4) for name in CLASSES]
    (folder / "answers.csv").write_text("\n".join(["file,label,answer,who", *lines]) + "\n")


def _do(onepair: Callable[..., int], *steps: list[object]) -> None:
    for step in steps:
        if onepair(*step):
            raise RuntimeError(f"the sample cannot be made: {step}")


def _write_tables(folder: Path, rows: list[dict[str, str]]) -> None:
    """The labels in other forms: the same columns, lists, and annotations."""
    numbers = [{name: int(cell) if name in CLASSES else cell for name, cell in row.items()} for row in rows]
    lists = [[name for name in CLASSES if row[name]] for row in numbers]
    columns = {name: [row[name] for row in numbers] for name in numbers[0]}
    pyarrow.parquet.write_table(pyarrow.table(columns), folder / "labels.parquet")
    lines = [
        {"file": row["file"], "split": row["split"], "labels": names} for row, names in zip(rows, lists, strict=True)
    ]
    (folder / "labels.jsonl").write_text("\n".join(map(json.dumps, lines)))
    coco = {
        "images": [{"id": number, "file_name": row["file"]} for number, row in enumerate(rows)],
        "categories": [{"id": number, "name": name} for number, name in enumerate(CLASSES)],
        "annotations": [
            {"id": 100 * number + CLASSES.index(name), "image_id": number, "category_id": CLASSES.index(name)}
            for number, names in enumerate(lists)
            for name in names
        ],
    }
    (folder / "instances.json").write_text(json.dumps(coco))
    tasks = [
        {
            "data": {"image": row["file"]},
            "annotations": [{"result": [{"type": "choices", "value": {"choices": names}}]}],
        }
        for row, names in zip(rows, lists, strict=True)
    ]
    (folder / "tasks.json").write_text(json.dumps(tasks))


class _Stopping(Listener):
    """Stops a run after its second epoch."""

    def on_epoch_end(self, record):
        super().on_epoch_end(record)
        if len(self.epochs) == 2:
            raise Stopped("", code=143)


def _write_answers(run: Path) -> None:
    opened = open_run(run)
    queue = read_queue(opened)
    store = Store(answers_file(opened))
    for row, column, answer in zip(queue.rows.tolist(), queue.columns.tolist(), ("yes", "no", "skip"), strict=False):
        store.record([Answer(opened.table.files[row], opened.table.classes[column], answer, 0)], who="Ann")
    store.add_class("dotted", who="Ann")
