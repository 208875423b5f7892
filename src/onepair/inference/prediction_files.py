"""Predictions as files: CSV, JSON lines or Parquet, written as they come, in constant memory."""

import csv
import io
import json
from collections.abc import Callable, Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import IO, Any, NamedTuple

from onepair.data.images.blocks import Input
from onepair.data.label_table import Problem, Report
from onepair.data.tables.cell_values import guard, write_names
from onepair.errors import UserError
from onepair.files import replacing
from onepair.inference.prediction import Model, Prediction

ROW_GROUP = 4096  # rows of a Parquet file that are held in memory
MANY_CLASSES = 1000  # more have no column each, unless they are asked for
_OWN_COLUMNS = ("file", "labels", "probabilities")


class Written(NamedTuple):
    """How many images were predicted, and how many could not be read."""

    predicted: int
    unreadable: int


class PredictionWriter:
    """Writes predictions to a binary file.

    Args:
        file: is written to, and left open.
        classes: of the model.
        predicted_only: write probabilities of predicted labels only, in one column; by default where there are more
            than `MANY_CLASSES`.
    """

    def __init__(self, file: IO[bytes], classes: Sequence[str], *, predicted_only: bool | None = None) -> None:
        self.file, self.classes = file, list(classes)
        self.predicted_only = len(classes) > MANY_CLASSES if predicted_only is None else predicted_only
        self.begin()

    def begin(self) -> None:
        """Write what comes before the first prediction."""

    def write(self, predictions: Sequence[Prediction]) -> None:
        """Write some predictions."""
        raise NotImplementedError

    def finish(self) -> None:
        """Write what comes after the last prediction."""

    @property
    def probability_columns(self) -> list[str]:
        if self.predicted_only:
            return ["probabilities"]
        return [f"{name} (class)" if name in _OWN_COLUMNS else name for name in self.classes]


class CsvWriter(PredictionWriter):
    def begin(self) -> None:
        self.file.write(_csv_row(["file", "labels", *self.probability_columns]))

    def write(self, predictions: Sequence[Prediction]) -> None:
        for each in predictions:
            ambiguous = any(";" in name for name in each.labels)
            names = write_names(each.labels) if ambiguous else ";".join(each.labels)
            shares: Iterable[object] = _rounded(each).values()
            if self.predicted_only:
                shares = [";".join(map(str, shares))]
            self.file.write(_csv_row([each.file, names, *shares]))


class JsonLinesWriter(PredictionWriter):
    def write(self, predictions: Sequence[Prediction]) -> None:
        for each in predictions:
            row = {"file": each.file, "labels": each.labels, "probabilities": _rounded(each)}
            self.file.write(_encode(json.dumps(row, ensure_ascii=False) + "\n"))


class ParquetWriter(PredictionWriter):
    def begin(self) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        share: Any = pa.list_(pa.float32()) if self.predicted_only else pa.float32()
        columns = [("file", pa.string()), ("labels", pa.list_(pa.string()))]
        self.schema = pa.schema([*columns, *((name, share) for name in self.probability_columns)])
        self.writer = pq.ParquetWriter(self.file, self.schema)
        self.waiting: list[Prediction] = []

    def write(self, predictions: Sequence[Prediction]) -> None:
        self.waiting += predictions
        if len(self.waiting) >= ROW_GROUP:
            self._write_group()

    def finish(self) -> None:
        self._write_group()
        self.writer.close()

    def _write_group(self) -> None:
        import pyarrow as pa

        shares = [list(_rounded(each).values()) for each in self.waiting]
        files = [None if each.file is None else _encode(each.file).decode(errors="replace") for each in self.waiting]
        by_column: Any = [shares] if self.predicted_only else (zip(*shares, strict=True) if shares else [])
        values = [files, [each.labels for each in self.waiting], *map(list, by_column)]
        if self.waiting:
            arrays = [pa.array(each, field.type) for each, field in zip(values, self.schema, strict=True)]
            self.writer.write_table(pa.Table.from_arrays(arrays, schema=self.schema))
        self.waiting = []


WRITERS: dict[str, type[PredictionWriter]] = {
    ".csv": CsvWriter,
    ".jsonl": JsonLinesWriter,
    ".parquet": ParquetWriter,
}


def require_writer(out: Path) -> type[PredictionWriter]:
    """Return the writer for a file of this name.

    Raises:
        UserError: there is none for its suffix.
    """
    try:
        return WRITERS[out.suffix.lower()]
    except KeyError:
        raise UserError(f"{out}: predictions are written as {', '.join(WRITERS)}") from None


def skipped_file(out: Path) -> Path:
    """Return the name of the file that lists images which cannot be read, for example predictions.skipped.csv."""
    return out.with_name(f"{out.stem}.skipped.csv")


def stream_predictions(
    model: Model,
    images: Iterable[Input],
    writer: PredictionWriter,
    *,
    report: Report,
    on_progress: Callable[[int], None] = lambda _: None,
) -> int:
    """Predict the labels of images, write them as they come, and return how many were predicted."""
    predicted = 0
    for scored in model.score(iter(images), report=report):
        writer.write(model.decide(scored, predicted_only=writer.predicted_only))
        predicted += len(scored.rows)
        on_progress(scored.seen)
    writer.finish()
    return predicted


def write_predictions(
    model: Model,
    images: Iterable[Input],
    out: Path,
    *,
    predicted_only: bool | None = None,
    report: Report = lambda _: None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Written:
    """Predict the labels of images into a file, which is there when all of it is, and stays as it was until then.

    Images that cannot be read are listed in a file of their own, for example predictions.skipped.csv.

    Args:
        model: predicts.
        images: files, vectors or texts, as `model.each` gives them.
        out: its suffix chooses the format, one of `WRITERS`.
        predicted_only: as for `PredictionWriter`.
        report: is told of each image that cannot be read.
        on_progress: is called after each block with the number of images done.
    """
    writer_class, skipped = require_writer(out), skipped_file(out)
    unreadable, listed = 0, None
    with ExitStack() as files:

        def note(problem: Problem) -> None:
            nonlocal unreadable, listed
            unreadable += 1
            if listed is None:
                listed = files.enter_context(replacing(skipped))
                listed.write(_csv_row(["file", "reason"]))
            listed.write(_csv_row([problem.where, problem.what]))
            report(problem)

        writer = writer_class(files.enter_context(replacing(out)), model.classes, predicted_only=predicted_only)
        predicted = stream_predictions(model, images, writer, report=note, on_progress=on_progress)
    if not unreadable:
        skipped.unlink(missing_ok=True)  # that of an earlier file
    return Written(predicted, unreadable)


def _csv_row(values: Sequence[object]) -> bytes:
    text = io.StringIO(newline="")
    guarded = (guard(value) if isinstance(value, str) else value for value in values)
    csv.writer(text).writerow(guarded)  # which quotes names that hold CR or LF because a line would end in them
    return _encode(text.getvalue().removesuffix("\r\n") + "\n")


def _encode(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")  # a file's name may be no text


def _rounded(prediction: Prediction) -> dict[str, float]:
    return {name: round(probability, 6) for name, probability in prediction.probabilities.items()}
