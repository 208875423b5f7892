"""Small runs to audit: images of shapes with one positive each, and scores that are nearly right."""

import itertools
from pathlib import Path

import numpy as np
from PIL import Image

from onepair.data.formats.write import write_table
from onepair.data.images.decode import Preprocessing
from onepair.data.label_table import LabelTable
from onepair.inference.model_files import Description, write_description
from onepair.labels import POSITIVE, UNKNOWN, observe_positives
from onepair.review.app import Application
from onepair.review.audit_session import AuditSession, open_store
from onepair.review.photos import Pictures
from onepair.runs.audit import audit_folder, draw
from onepair.runs.config import build_config
from onepair.runs.finished import FinishedRun
from tests.decisions import plain
from tests.review.runs import CLASSES, picture
from tests.runs.pretended import pretend_finished


def truth_of(images: int, classes: int = len(CLASSES), seed: int = 3) -> np.ndarray:
    """Labels (images, classes) with at least one positive in every row."""
    random = np.random.default_rng(seed)
    labels = (random.random((images, classes)) < min(0.4, 4 / classes)).astype(np.int8)
    labels[np.arange(images), random.integers(classes, size=images)] = POSITIVE
    return labels


def audit_run(folder: Path, *, images: int = 40, names: tuple[str, ...] = CLASSES, seed: int = 3) -> Path:
    """A finished run whose validation images show one positive each; the truth is `truth_of` the same arguments."""
    truth, random = truth_of(images, len(names), seed), np.random.default_rng(seed)
    (folder / "images").mkdir(parents=True)
    split = np.where(np.arange(images) % 2, "validation", "train")
    files = tuple(f"{row:03}.png" for row in range(images))
    for file, labels in zip(files, truth, strict=True):
        picture(labels[:4]).resize((480, 320), Image.Resampling.NEAREST).save(folder / "images" / file)
    table = LabelTable(files, names, observe_positives(truth), split, folder / "images")
    write_table(table, folder / "images" / "labels.csv")
    config = build_config({"data": {"source": str(folder / "images" / "labels.csv")}})
    run = pretend_finished(folder / "run", config)
    preprocessing = Preprocessing(64, (0.5, 0.5, 0.5), (0.5, 0.5, 0.5))
    write_description(run.path, Description("small-cnn", preprocessing, names, plain([0.0] * len(names))))
    scores = 4.0 * truth - 3 + 1.5 * random.standard_normal(truth.shape)
    for name in ("train", "validation"):
        run.write_scores(name, scores[split == name].astype(np.float32))
    return run.path


def open_audit(run: Path, *, images: int = 6, seed: int = 0) -> AuditSession:
    opened = FinishedRun(run)
    audit_folder(opened).mkdir(exist_ok=True)
    return AuditSession(opened, draw(opened, "validation", images, seed), open_store(opened))


def open_audit_app(run: Path, *, name: str | None = "Ann", **options):
    session = open_audit(run, **options)
    return Application(session, Pictures(session.table, cache=run.parent / "cache"), name=name), session


def shown_in(session: AuditSession, number: int, **options) -> set[str]:
    """What somebody who knows all labels ticks."""
    row = int(session.rows[number - 1])
    labels = truth_of(len(session.table), len(session.table.classes), **options)[row]
    return set(itertools.compress(session.table.classes, (labels == POSITIVE).tolist()))


def complete_all(session: AuditSession, *, who: str = "Ann") -> None:
    for number in range(1, len(session) + 1):
        assert session.finish(number, shown_in(session, number), seen=session.version(number), who=who) == []


def unknown_share(session: AuditSession) -> float:
    return float((session.run.labels("validation") == UNKNOWN).mean())
