"""Small jobs that write, by command; and what is left of them, to be compared."""

import json
import os
import shutil
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pyarrow.parquet
import safetensors
from PIL import Image

from onepair.features import FeatureStore
from onepair.review.answers import Store
from tests.training.tiny import SETTINGS

TIMES = ("images_per_second", "seconds")
BATCH = ("linear.batch_size=16", "finetune.batch_size=16")  # two batches make an epoch
QUICK = (*SETTINGS, *BATCH, "method.name=opml-sp", "linear.epochs=2", "finetune.epochs=2")


class Job(NamedTuple):
    """A command to be run in a folder of its own, that everything it writes is in."""

    name: str
    command: list[str]
    needs: tuple[str, ...] = ()  # of the sample, copied into the folder
    imports: tuple[str, ...] = ()  # what it would spend most of its time on


def jobs(sample: Path) -> list[Job]:
    """All of them, on the images and runs of a sample."""
    source, images = sample / "images" / "labels.csv", sample / "images"
    settings = [part for setting in QUICK for part in ("--set", setting)]
    here = ["--cache", "cache", "--workers", "0"]

    def job(name: str, *command: object, needs: tuple[str, ...] = (), imports: tuple[str, ...] = ()) -> Job:
        return Job(name, [*map(str, command)], needs, imports)

    fits = ("sklearn.isotonic", "sklearn.linear_model", "pandas")
    training, drawing = (
        ("onepair.training.run", *fits),
        ("matplotlib.backends.backend_agg", "matplotlib.backends.backend_svg"),
    )
    tuning = ("onepair.experiments.tuning", "onepair.experiments.tuning", "optuna.samplers", *training, *drawing)
    onnx = ("onepair.inference.export", "onepair.inference.engine", "onnxscript")
    auditing = ("onepair.review.app", "onepair.runs.audit")
    return [
        job("train linear", "train", source, *settings, *here, "--out", "run", imports=training),
        job(
            "train finetune", "train", source, *settings, "--mode", "finetune", *here, "--out", "run", imports=training
        ),
        job("features", "features", source, "--backbone", "small-cnn", *here, "--out", "features.npy"),
        job(
            "find",
            *("find", "run", "--folds", "2", *here, "--out", "found.parquet"),
            needs=("run", "cache"),
            imports=("onepair.finding.find", *training),
        ),
        job("predict", "predict", "run", images, "--out", "out.csv", needs=("run",)),
        job("predict parquet", "predict", "run", images, "--out", "out.parquet", needs=("run",), imports=("pandas",)),
        job(
            "labels", "labels", "run", "--out", "completed.csv", needs=("run",), imports=("onepair.review.completion",)
        ),
        job("export", "export", "run", "--out", "model.onnx", needs=("run",), imports=onnx),
        job(
            "tune",
            *(
                "tune",
                source,
                *settings,
                "--set",
                "linear.epochs=1",
                "--trials",
                "2",
                "--workers",
                "0",
                "--out",
                "tuned",
            ),
            imports=tuning,
        ),
        job("decide", "decide", "run", "--rule", "precision", needs=("run",), imports=fits),
        job("check", "check", source, "--fix", "clean.csv", imports=("onepair.data.quality",)),
        job(
            "audit",
            *("audit", "run", "--split", "test", "--answers", sample / "sheet.csv"),
            needs=("run",),
            imports=auditing,
        ),
        job(
            "start",
            *("start", source, "--backbone", "small-cnn", "--no-page", "--out", "labels.onepair"),
            imports=("onepair.review.next_run", *training),
        ),
        job(
            "answers import",
            *("answers", "import", sample / "answers.csv", "--project", "labels.onepair", "--name", "Ben"),
            needs=("labels.onepair",),
            imports=("onepair.review.image_answers",),
        ),
        job(
            "labels in their own form",
            *("labels", "labels.onepair", "--as", "same", "--out", "done.csv"),
            needs=("labels.onepair", "images"),
            imports=("onepair.review.completion",),
        ),
    ]


def prepare(job: Job, sample: Path, folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    for name in job.needs:
        shutil.copytree(sample / name, folder / name)


def leave_to_last(folder: Path) -> dict[str, Any]:
    """All that a command has left, by name: contents but for times, process numbers and what is kept in which order."""
    left: dict[str, Any] = {}
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if path.is_dir() or path.name == ".said" or path.name.endswith(("-wal", "-shm")):
            continue
        if path.name == "metrics.jsonl":
            lines = map(json.loads, path.read_text().splitlines())
            left[name] = [{key: value for key, value in line.items() if key not in TIMES} for line in lines]
        elif path.suffix in (".features", ".keys"):
            left.setdefault(str(path.parent.relative_to(folder)), _features(path.parent))
            if path.stat().st_size == 0:
                left[name] = "an empty segment"
        elif path.name == "answers.sqlite":
            left[name] = [entry[2:6] for entry in Store(path, read_only=True).entries()]  # file, label, answer, who
        elif path.name == "store.json" or not _moving(path):
            left[name] = path.read_bytes()
        else:
            left[name] = "there"
    return left


def _moving(path: Path) -> bool:
    """Whether a file holds times, or the number of a process."""
    return "-last" in path.name or path.name in (".lock", ".claim") or path.suffix == ".sqlite"


def _features(folder: Path) -> dict[bytes, bytes]:
    dim = json.loads((folder / "store.json").read_text())["features"]
    store = FeatureStore(folder, dim, {})
    found = store.find(store._keys)
    rows = store.read(found)
    return {key.tobytes(): row.tobytes() for key, row in zip(store._keys, rows, strict=True)}


def broken(folder: Path, before: dict[str, bytes], after: dict[str, Any]) -> list[str]:
    """The files under names of their own that are neither as before, nor as they will be, nor of their form."""
    wrong = []
    for path in sorted(folder.rglob("*")):
        hidden = any(part.startswith(".") for part in path.relative_to(folder).parts)
        name = str(path.relative_to(folder))
        if path.is_dir() or hidden or path.suffix not in FORMS or path.name.endswith(".part"):
            continue
        content = path.read_bytes()
        if content not in (before.get(name), after.get(name)):
            try:
                FORMS[path.suffix](path)
            except Exception as error:  # whatever it is
                wrong.append(f"{name}: {type(error).__name__}: {error}")
    return wrong


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def _read_weights(path: Path) -> None:
    with safetensors.safe_open(path, framework="numpy") as file:
        file.keys()


def _refuse(path: Path) -> None:
    raise ValueError("is another than it should be")


FORMS: dict[str, Callable[[Path], Any]] = {
    ".json": lambda path: json.loads(path.read_text()),
    ".toml": lambda path: tomllib.loads(path.read_text()),
    ".safetensors": _read_weights,
    ".npy": lambda path: np.load(path, mmap_mode="r", allow_pickle=False),
    ".parquet": pyarrow.parquet.read_table,
    ".png": lambda path: Image.open(path).load(),
    ".csv": _refuse,
    ".onnx": _refuse,
    ".svg": _refuse,
}


def shorten_commits() -> None:
    """Let every few images or batches count as done, so that there is much to go on from, and to go wrong."""
    from onepair import features as feature_store
    from onepair.training import checkpoint as stopping

    stopping.SECONDS_BETWEEN_CHECKPOINTS = -1
    feature_store.ROWS_PER_COMMIT = 16
    os.environ["XDG_CACHE_HOME"] = "xdg"
