"""Predictions of any number of images as a file: written as they come, and gone on with after a crash."""

import csv
import hashlib
import io
import json
import os
import time
from abc import ABC, abstractmethod
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any, ClassVar, NamedTuple

from pydantic import BaseModel, NonNegativeInt

from onepair.data.images.blocks import Input, Row
from onepair.data.own_files import read_record
from onepair.data.problems import Problem, Report
from onepair.data.tables.cell_values import guard, write_names
from onepair.errors import DataError, UserError
from onepair.files import locked, replacing, write_atomically, writing
from onepair.inference.prediction import Model, Prediction, Stream

SECONDS_PER_COMMIT = 2.0  # so much work at most is done again after a crash
ROWS_IN_MEMORY = 4096  # of a Parquet file's group
MANY_CLASSES = 1000  # more have no column each, unless they are asked for

_VERSION = 1


class Written(NamedTuple):
    """What was done."""

    predicted: int
    unreadable: int
    before: int  # images, of those two, that an earlier attempt had done
    engine: str


class Form(ABC):
    """How predictions are written as lines of text."""

    head, between, foot = "", "", ""

    def __init__(self, classes: Sequence[str], *, predicted_alone: bool | None = None) -> None:
        """Args: the classes; and whether only probabilities of predicted labels are written, as by default of many."""
        self.classes = list(classes)
        self.predicted_alone = len(classes) > MANY_CLASSES if predicted_alone is None else predicted_alone

    @abstractmethod
    def line(self, prediction: Prediction) -> str:
        """One prediction, without what stands between two."""

    def finish(self, part: Path, out: Path) -> None:
        """Turn all lines into the file asked for."""
        part.replace(out)


class Csv(Form):
    def __init__(self, classes: Sequence[str], *, predicted_alone: bool | None = None) -> None:
        super().__init__(classes, predicted_alone=predicted_alone)
        self.head = _csv_line(["file", "labels", *(["probabilities"] if self.predicted_alone else classes)])

    def line(self, prediction: Prediction) -> str:
        shares: Iterable[object] = _rounded(prediction).values()
        if self.predicted_alone:
            shares = [";".join(map(str, shares))]
        ambiguous = any(";" in name for name in prediction.labels)
        names = write_names(prediction.labels) if ambiguous else ";".join(prediction.labels)
        return _csv_line([prediction.file, names, *shares])


class JsonLines(Form):
    def line(self, prediction: Prediction) -> str:
        return _object(prediction) + "\n"


class Json(Form):
    head, between, foot = "[\n", ",\n", "\n]\n"

    def line(self, prediction: Prediction) -> str:
        return _object(prediction)


class Parquet(JsonLines):
    """Lines of JSON, made into a Parquet file at the end: one cannot be gone on with."""

    def finish(self, part: Path, out: Path) -> None:
        import pyarrow as pa
        import pyarrow.parquet as pq

        columns = [pa.field(name, pa.float32()) for name in self.classes]
        if self.predicted_alone:
            columns = [pa.field("probabilities", pa.list_(pa.float32()))]
        schema = pa.schema([pa.field("file", pa.string()), pa.field("labels", pa.list_(pa.string())), *columns])
        lines = part.open(encoding="utf-8", errors="replace")
        with lines, replacing(out) as made, pq.ParquetWriter(made, schema) as writer:
            for objects in iter(lambda: [json.loads(line) for line in islice(lines, ROWS_IN_MEMORY)], []):
                values = [[each[name] for each in objects] for name in ("file", "labels")]
                shares = [each["probabilities"] for each in objects]
                if self.predicted_alone:
                    values.append([list(each.values()) for each in shares])
                else:
                    values += [[each[name] for each in shares] for name in self.classes]
                arrays = [pa.array(each, field.type) for each, field in zip(values, schema, strict=True)]
                writer.write_table(pa.Table.from_arrays(arrays, schema=schema))
        part.unlink()


FORMS: dict[str, type[Form]] = {".csv": Csv, ".jsonl": JsonLines, ".json": Json, ".parquet": Parquet}


def require_form(out: Path) -> type[Form]:
    """How a file of this name is written, or a sentence that there is no such form."""
    try:
        return FORMS[out.suffix.lower()]
    except KeyError:
        raise UserError(f"{out}: predictions are written as {', '.join(FORMS)}") from None


def lines(model: Model, images: Iterable[Input], form: Form, *, report: Report) -> Iterator[str]:
    """Everything that a file would hold, as it comes."""
    yield form.head
    between = ""
    for scored in model.score(iter(images), report=report).blocks:
        for prediction in model.decide(scored, predicted_alone=form.predicted_alone):
            yield between + form.line(prediction)
            between = form.between
    yield form.foot


def write_predictions(
    model: Model,
    images: Callable[[], Iterator[Input]],
    out: Path,
    *,
    predicted_alone: bool | None = None,
    report: Report = lambda _: None,
    say: Callable[[str], None] = lambda _: None,
    on_progress: Callable[[int], None] = lambda _: None,
) -> Written:
    """Predict the labels of images into a file, from where an interrupted attempt to do the same stopped.

    Until all is done, the lines are in OUT.part; OUT.progress says how many of them count, and which model and images
    they are of. Those of another model, or of images that have changed since, are not gone on with. Images that cannot
    be read are listed in a file of their own, as predictions.skipped.csv.

    Args:
        model: predicts.
        images: lists their files, or vectors or texts, in the same order each time it is called.
        out: its suffix chooses the form, one of `FORMS`.
        predicted_alone: whether probabilities are written of predicted labels alone; by default where there are more
            than `MANY_CLASSES`.
        report: told of each image that cannot be read.
        say: told, in a sentence, why an attempt is not gone on with.
        on_progress: called after each block with the number of images done.
    """
    form = require_form(out)(model.classes, predicted_alone=predicted_alone)
    with writing(out), locked(out.with_name(f"{out.name}.lock")):
        try:
            return _Work(model, form, out, report, say, on_progress).run(images)
        finally:
            out.with_name(f"{out.name}.lock").unlink(missing_ok=True)


class _State(BaseModel):
    """What OUT.progress says."""

    key: str  # of the model and the form
    images: str  # digest of those that are done
    predicted: NonNegativeInt
    unreadable: NonNegativeInt
    engine: str
    complete: bool
    bytes: NonNegativeInt  # of the lines that count
    skipped_bytes: NonNegativeInt


class _Work:
    """One attempt, and what is on disk of the ones before."""

    skipped_head: ClassVar[str] = "file,reason\n"

    def __init__(
        self,
        model: Model,
        form: Form,
        out: Path,
        report: Report,
        say: Callable[[str], None],
        on_progress: Callable[[int], None],
    ) -> None:
        self.model, self.form, self.out = model, form, out
        self.report, self.say, self.on_progress = report, say, on_progress
        self.part, self.marker = out.with_name(f"{out.name}.part"), out.with_name(f"{out.name}.progress")
        self.skipped_out = out.with_name(f"{out.stem}.skipped.csv")
        self.skipped_part = self.skipped_out.with_name(f"{self.skipped_out.name}.part")
        which = f"{_VERSION} {out.suffix} {form.predicted_alone} {model.fingerprint()}"
        self.key = hashlib.sha256(which.encode()).hexdigest()
        self.state: dict[str, Any] = {}
        self._skipped: IO[str]

    def run(self, images: Callable[[], Iterator[Input]]) -> Written:
        listed = _Listed(images())
        before = self._resume(listed)
        if before is None:
            listed, before = _Listed(images()), 0
        if not self.state.get("complete"):
            stream = self.model.score(listed, before=before, report=self._note)
            if not self.state:
                self._begin()
            self._predict(stream, listed, before)
        self._finish()
        return Written(self.state["predicted"], self.state["unreadable"], before, self.state["engine"])

    def _begin(self) -> None:
        self.marker.unlink(missing_ok=True)
        self.part.write_text(self.form.head, encoding="utf-8")
        self.skipped_part.write_text(self.skipped_head, encoding="utf-8")
        self.state = {"predicted": 0, "unreadable": 0, "engine": "", "complete": False}

    def _resume(self, listed: "_Listed") -> int | None:
        """Go to where an earlier attempt stopped, and return how many images it had done; None to start anew."""
        try:
            stored = read_record(self.marker, _State)
        except DataError:
            return None
        if stored is None:
            return None
        state = stored.model_dump()
        if state["key"] != self.key:
            self.say(f"{self.part}: is of another model, or of other columns; starting anew")
            return None
        done: int = state["predicted"] + state["unreadable"]
        if listed.skip(done) != done or listed.digest() != state["images"]:
            self.say(f"{self.part}: its images have changed since; starting anew")
            return None
        self.state = state
        if not state["complete"]:
            try:
                os.truncate(self.part, state["bytes"])
                os.truncate(self.skipped_part, state["skipped_bytes"])
            except FileNotFoundError:
                self.say(f"{self.part}: is gone; starting anew")
                return None
        return done

    def _predict(self, stream: Stream, listed: "_Listed", before: int) -> None:
        with _appending(self.part) as part, _appending(self.skipped_part) as self._skipped:
            if before and stream.engine.name != self.state["engine"]:
                self.say(f"going on with {stream.engine.name}, where {self.state['engine']} was at work before")
            self.state["engine"] = stream.engine.name
            committed = time.monotonic()
            for scored in stream.blocks:
                listed.take(scored.seen)
                for prediction in self.model.decide(scored, predicted_alone=self.form.predicted_alone):
                    part.write((self.form.between if self.state["predicted"] else "") + self.form.line(prediction))
                    self.state["predicted"] += 1
                if time.monotonic() - committed >= SECONDS_PER_COMMIT:
                    self._commit(part, listed)
                    committed = time.monotonic()
                self.on_progress(before + scored.seen)
            listed.take(listed.given)
            part.write(self.form.foot)
            self.state["complete"] = True
            self._commit(part, listed)

    def _note(self, problem: Problem) -> None:
        self.state["unreadable"] += 1
        self._skipped.write(_csv_line([problem.where, problem.what]))
        self.report(problem)

    def _commit(self, part: IO[str], listed: "_Listed") -> None:
        """Say that all so far is done, after it has reached the disk."""
        for file in (part, self._skipped):
            file.flush()
            os.fsync(file.fileno())
        self.state |= {
            "key": self.key,
            "images": listed.digest(),
            "bytes": os.fstat(part.fileno()).st_size,
            "skipped_bytes": os.fstat(self._skipped.fileno()).st_size,
        }
        write_atomically(self.marker, json.dumps(self.state).encode())

    def _finish(self) -> None:
        """Put everything in its place; each step may be the last before a crash, and all may be done again."""
        if self.state["unreadable"] == 0:
            self.skipped_part.unlink(missing_ok=True)
            self.skipped_out.unlink(missing_ok=True)
        elif self.skipped_part.exists():
            self.skipped_part.replace(self.skipped_out)
        if self.part.exists():
            self.form.finish(self.part, self.out)
        self.marker.unlink()


class _Listed:
    """The files of images, one by one, and a digest of those that are done: their names, sizes and times.

    Of vectors and texts, their names and what they are.
    """

    def __init__(self, files: Iterator[Input]) -> None:
        self.files, self.given = files, 0
        self._waiting: deque[Input] = deque()
        self._digest = hashlib.blake2b()

    def __iter__(self) -> "_Listed":
        return self

    def __next__(self) -> Input:
        file = next(self.files)
        self._waiting.append(file)
        self.given += 1
        return file

    def take(self, seen: int) -> None:
        """Of those that were given, all before `seen` are done."""
        while self.given - len(self._waiting) < seen:
            self._add(self._waiting.popleft())

    def skip(self, count: int) -> int:
        """Pass over the first files, as done; returns how many there were."""
        passed = 0
        for file in islice(self.files, count):
            self._add(file)
            passed += 1
        return passed

    def digest(self) -> str:
        return self._digest.copy().hexdigest()

    def _add(self, file: Input) -> None:
        if isinstance(file, Row):
            self._digest.update(str(file.name).encode("utf-8", "surrogateescape"))
            value = file.value
            self._digest.update(value.encode("utf-8", "replace") if isinstance(value, str) else value.tobytes())
            return
        if not isinstance(file, Path):
            raise TypeError("what is in memory has no name to go on by")
        try:
            stat = file.stat()
            known = [str(file), stat.st_size, stat.st_mtime_ns]
        except OSError:
            known = [str(file)]
        self._digest.update(json.dumps(known).encode())


def _appending(file: Path) -> IO[str]:
    return file.open("a", encoding="utf-8", errors="surrogateescape", newline="")  # a file's name may be no text


def _csv_line(values: Sequence[object]) -> str:
    text = io.StringIO(newline="")
    guarded = (guard(value) if isinstance(value, str) else value for value in values)
    csv.writer(text).writerow(guarded)  # which quotes names that hold CR or LF because a line would end in them
    return text.getvalue().removesuffix("\r\n") + "\n"


def _object(prediction: Prediction) -> str:
    return json.dumps(
        {"file": prediction.file, "labels": prediction.labels, "probabilities": _rounded(prediction)},
        ensure_ascii=False,
    )


def _rounded(prediction: Prediction) -> dict[str, float]:
    return {name: round(probability, 6) for name, probability in prediction.probabilities.items()}
