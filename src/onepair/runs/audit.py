"""An audit: images of a run that were drawn at random, each with all of its labels by a person.

It lives in audit/ of the run's folder as two plain files: sample.json says what was drawn, audited.csv holds the labels
of the images that are complete. They tell how many labels are missing, and how good the model is, with intervals.
"""

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from onepair.data.formats.write import write_table
from onepair.data.label_table import LabelTable
from onepair.data.tables import read_table as tables
from onepair.errors import RunError
from onepair.files import read_record, write_atomically, writing
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels
from onepair.metrics import Floats
from onepair.probability.intervals import Figures, Interval, bootstrap_figures, count_missing, more_to_halve
from onepair.words import command

if TYPE_CHECKING:
    from onepair.runs.finished import FinishedRun

AuditedSplit = Literal["validation", "test"]


class Sample(BaseModel):
    """What was drawn: every image of the split had the same chance, and so it is for the first so many of them."""

    model_config = ConfigDict(frozen=True)

    split: AuditedSplit
    seed: int
    population: int  # images of the split
    files: tuple[str, ...]  # in the order in which they are asked for


@dataclass(frozen=True, eq=False)
class Audit:
    """Images with all of their labels, and the number of images that they stand for."""

    split: AuditedSplit
    rows: Indices  # (M,), of the table, ascending
    labels: Labels  # (M, L), without unknown ones
    population: int

    def __len__(self) -> int:
        return len(self.rows)


def audit_folder(run: "FinishedRun") -> Path:
    return run.path / "audit"


# The sample


def draw(run: "FinishedRun", split: AuditedSplit, images: int, seed: int) -> Sample:
    """Draw images of a split with equal chances, and keep what was drawn in audit/sample.json.

    Systematic sampling along the images in order of the number of labels that the model expects, from a random start:
    images with few and with many labels are all represented. An earlier sample is kept and extended: more images are
    drawn in the same way from those that it left, so that the chances stay equal,

        n/N + (1 - n/N) (m-n)/(N-n) = m/N   for n images first and m in the end.

    Args:
        run: a finished run.
        split: which of its images.
        images: how many in the end; all if there are fewer.
        seed: of the draw.
    """
    before = read_sample(run)
    if before is not None and before.split != split:
        raise RunError(
            f"{audit_folder(run)}: audits {before.split} images; go on with --split {before.split}, or move the folder "
            "away to begin anew"
        )
    rows = run.rows(split)
    files = [run.table.files[row] for row in rows.tolist()]
    drawn = _indices(files, before.files, audit_folder(run)) if before else []
    wanted = min(images, len(files)) - len(drawn)
    if before is not None and wanted <= 0:
        return before
    left = np.setdiff1d(np.arange(len(files)), drawn)
    expected = run.decisions.probabilities(run.scores(split)).sum(1)
    more = left[systematic(expected[left], wanted, np.random.default_rng((seed, len(drawn))))]
    chosen = tuple(files[index] for index in [*drawn, *more.tolist()])
    sample = Sample(split=split, seed=seed, population=len(run.task.rows(split)), files=chosen)
    write_sample(run, sample)
    return sample


def write_sample(run: "FinishedRun", sample: Sample) -> None:
    """Keep what was drawn in audit/sample.json."""
    with writing(audit_folder(run)):
        audit_folder(run).mkdir(exist_ok=True)
        write_atomically(audit_folder(run) / "sample.json", f"{sample.model_dump_json(indent=2)}\n".encode())


def systematic(values: Floats, wanted: int, random: np.random.Generator) -> Indices:
    """Draw `wanted` places (at most len(values)) with equal chances, spread along the order of the values.

    Of N places in order, place p owns the numbers p n … p n + n - 1; every N-th number from a random one on is drawn,
    so that each place is with the chance n/N. The draws are given out by halves, quarters, eighths, …, from a random
    one on: every beginning is a sample of equal chances as well, and spread along the order too.

    >>> drawn = systematic(np.arange(100.0), 4, np.random.default_rng(0))
    >>> np.diff(np.sort(drawn)).tolist()
    [25, 25, 25]
    """
    if wanted == 0:
        return np.zeros(0, np.intp)
    indices = (np.arange(wanted) * len(values) + random.integers(len(values))) // wanted
    spread = (_halving(wanted) + random.integers(wanted)) % wanted
    drawn: Indices = np.argsort(values, kind="stable")[indices][spread]
    return drawn


def _halving(length: int) -> Indices:
    """0 … length-1 in an order whose every beginning is spread over them.

    >>> _halving(8).tolist()
    [0, 4, 2, 6, 1, 5, 3, 7]
    """
    bits = max(length - 1, 0).bit_length()
    turned = np.array([int(f"{number:0{bits}b}"[::-1], 2) if bits else 0 for number in range(1 << bits)], np.intp)
    return turned[turned < length]


def read_sample(run: "FinishedRun") -> Sample | None:
    """What was drawn so far, if anything."""
    source = audit_folder(run) / "sample.json"
    return read_record(source, Sample, advice="bring it back from a copy, or move it away", error=RunError)


# The labels


def read_audit(run: "FinishedRun") -> Audit | None:
    """The audited images of a run; None if there are none yet."""
    source = audit_folder(run) / "audited.csv"
    sample = read_sample(run)
    if sample is None or not source.exists():
        return None
    table = read_answers(run, sample.split, source)
    if table.labels.has(UNKNOWN):
        row, column = np.argwhere(table.labels == UNKNOWN)[0].tolist()
        raise RunError(f"{source}: {table.files[row]} has no answer for {table.classes[column]}; write 1 or 0 there")
    files = [run.table.files[row] for row in run.rows(sample.split).tolist()]
    rows = run.rows(sample.split)[_indices(files, table.files, source)]
    order = np.argsort(rows)
    return Audit(sample.split, rows[order], table.labels[order], sample.population)


def write_audit(run: "FinishedRun", sample: Sample, labels: dict[str, NDArray[np.int8]]) -> None:
    """Write the labels (L,) of complete images, by file, to audit/audited.csv, in the order of the draw."""
    path = audit_folder(run) / "audited.csv"
    files = tuple(file for file in sample.files if file in labels)
    vars(run).pop("audit", None)  # which the run would otherwise keep
    with writing(path):
        path.parent.mkdir(exist_ok=True)
        if not files:
            path.unlink(missing_ok=True)
            return
    write_table(_table(run, sample, files, np.stack([labels[file] for file in files])), path)


def write_sheet(run: "FinishedRun", sample: Sample, path: Path) -> None:
    """Write the sample as a table to fill in: known labels, those of complete images among them, and blanks."""
    row_of = {run.table.files[row]: index for index, row in enumerate(run.rows(sample.split).tolist())}
    labels = run.labels(sample.split)[[row_of[file] for file in sample.files]]
    write_table(_table(run, sample, sample.files, labels), path)


def read_answers(run: "FinishedRun", split: AuditedSplit, path: Path) -> LabelTable:
    """A table of images of a split and of the run's classes, in the run's order of classes."""
    table = tables.read(path, images=run.table.root, with_vectors=run.table.ids)  # files as the sheet was given them
    if set(table.classes) != set(run.table.classes):
        strange = sorted(set(table.classes) ^ set(run.table.classes))[0]
        raise RunError(f"{path}: its columns are not the classes of the run, as {strange}; write a sheet anew")
    columns = [table.classes.index(name) for name in run.table.classes]
    _indices([run.table.files[row] for row in run.rows(split).tolist()], table.files, path)
    return LabelTable(table.files, run.table.classes, LabelMatrix.of(table.labels[:, columns]), table.split, table.root)


def _table(run: "FinishedRun", sample: Sample, files: tuple[str, ...], labels: Labels) -> LabelTable:
    table, text_of = run.table, dict(zip(run.table.files, run.table.texts or (), strict=False))
    texts = tuple(text_of[file] for file in files) if table.texts is not None else None
    split = np.full(len(files), sample.split)
    return LabelTable(files, table.classes, LabelMatrix.of(labels), split, table.root, texts=texts, ids=table.ids)


def _indices(files: list[str], wanted: tuple[str, ...], source: Path) -> list[int]:
    """Where in `files` the wanted ones are."""
    index_of = {file: index for index, file in enumerate(files)}
    strange = [file for file in wanted if file not in index_of]
    if strange:
        raise RunError(f"{source}: names {strange[0]}, which is not an image of the split; remove it there")
    return [index_of[file] for file in wanted]


# The results


@dataclass(frozen=True, eq=False)
class AuditSummary:
    """What audited images say of those that they were drawn from."""

    split: AuditedSplit
    images: int
    population: int
    observed: int  # positives of the dataset in the split
    found: int  # positives of audited images that the dataset did not have
    denied: int  # and those that it had, which are none
    classes: dict[str, Interval]  # how many positives the dataset misses in all images that the audit stands for
    missing: Interval  # of all classes together
    figures: Figures | None  # of the model on the audited images; None where these have no labels at all
    more: int  # audited images that would halve the intervals


def summarise_audit(run: "FinishedRun") -> AuditSummary:
    """Count the missing labels of the split that was audited, and judge the model on the audited images.

    Missing labels of audited images are counted, those of the others estimated by `count_missing`; where only a sample
    of these is looked at, it stands for all.
    """
    audit = run.audit
    if audit is None:
        raise RunError(f"{run.path}: not one image is audited yet; run {command('audit', run.path)}")
    rows = run.rows(audit.split)
    indices = np.searchsorted(rows, audit.rows)
    others = np.setdiff1d(np.arange(len(rows)), indices)
    if len(others) == 0 and audit.population > len(audit):  # of a sample all is audited, and stands for the rest
        others = indices
    given, scores = run.table.labels[rows], run.scores(audit.split)
    chances = run.decisions.probabilities(scores)
    found = (audit.labels == POSITIVE) & (given[indices] != POSITIVE)
    stands_for = (audit.population - len(audit)) / max(len(others), 1)
    parts = count_missing(given[others], chances[others], audit.labels, chances[indices]) if len(others) else None
    by_class = zip(*(stands_for * each for each in parts[0]), strict=True) if parts else [(0.0,) * 3] * given.shape[1]
    together = tuple(stands_for * float(each) for each in parts[1]) if parts else (0.0,) * 3
    predicted = run.decisions.labels(scores[indices])
    there = (audit.labels == POSITIVE).any()
    return AuditSummary(
        split=audit.split,
        images=len(audit),
        population=audit.population,
        observed=int(run.table.labels.take(run.task.rows(audit.split)).count(POSITIVE).sum()),
        found=int(found.sum()),
        denied=int(((audit.labels == NEGATIVE) & (given[indices] == POSITIVE)).sum()),
        classes={
            name: Interval(*(float(end) + number for end in ends))
            for name, number, ends in zip(run.table.classes, found.sum(0).tolist(), by_class, strict=True)
        },
        missing=Interval(*(end + int(found.sum()) for end in together)),
        figures=bootstrap_figures(scores[indices], audit.labels, predicted) if there else None,
        more=more_to_halve(len(audit), audit.population),
    )
