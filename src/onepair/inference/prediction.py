"""A trained model in use: the labels of images, from the folder of a run with torch, from an ONNX file without."""

import base64
import csv
import io
import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, replace
from html import escape
from itertools import chain
from os import PathLike
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.images.blocks import Input, Row, Scored, Source, images_of, row_blocks, stream_images, stream_scores
from onepair.data.images.decode import Preprocessing, as_pixels, decode
from onepair.data.images.image_files import image_files
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.data.tables.cell_values import guard, write_names
from onepair.data.vector_files import text_rows, vector_rows
from onepair.errors import DataError, ModelError, OnepairError, UserError, import_pandas, require_extra, require_path
from onepair.files import replacing, write_atomically, writing
from onepair.inference.engine import MANY, EngineFactory, Float32, OnnxEngine, open_session
from onepair.inference.model_files import CARD, NAME, WEIGHTS, load_model, parse_description, read_description
from onepair.probability.thresholds import Thresholds
from onepair.remote import as_path
from onepair.words import counted

if TYPE_CHECKING:
    import pandas

    from onepair.inference.export import Exported
    from onepair.models import Classifier

Image = str | Path | NDArray[Any]  # a file, a folder of files, a URL of either, or an array (H, W, 3); or see `Model`

METADATA = "onepair"  # the key of an ONNX file's metadata that holds all of ours


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image."""

    file: str | None  # None for an array
    labels: tuple[str, ...]  # those predicted
    probabilities: dict[str, float]  # calibrated, of all classes or of the predicted ones alone


class Predictions(list[Prediction]):
    """Predictions, in the order of what was given.

    Args:
        each: one for every image, vector or text.
        classes: of the model.
        shown: where the first images came from, for notebooks.
    """

    def __init__(self, each: Iterable[Prediction], classes: Sequence[str], *, shown: Sequence[Input] = ()) -> None:
        super().__init__(each)
        self.classes = classes
        self._sources = {id(each): source for each, source in zip(self, shown, strict=False)}

    def to_frame(self) -> "pandas.DataFrame":
        """Return a DataFrame with the columns file and labels, and the probability of each class."""
        pandas = import_pandas()
        names = [str(row) if each.file is None else each.file for row, each in enumerate(self)]
        known = {"file": names, "labels": [list(each.labels) for each in self]}
        frame = pandas.DataFrame([each.probabilities for each in self], columns=list(self.classes))
        return pandas.concat([pandas.DataFrame(known), frame], axis=1)

    def __repr__(self) -> str:
        labels = sum(len(each.labels) for each in self)
        return f"Predictions({len(self):,} with {counted(labels, 'label')} of {counted(len(self.classes), 'class')})"

    def _repr_html_(self) -> str:
        figures = [self._figure(row, each) for row, each in enumerate(self[:SHOWN])]
        return as_figures(repr(self), figures)

    def _figure(self, row: int, each: Prediction) -> str:
        source, name = self._sources.get(id(each)), str(row) if each.file is None else each.file
        if isinstance(source, Row) and isinstance(source.value, str):
            name = source.value if len(source.value) <= SHOWN_TEXT else f"{source.value[:SHOWN_TEXT]}…"
        labels = ", ".join(f"{label} {100 * each.probabilities[label]:.0f} %" for label in each.labels)
        return as_figure(lambda: _thumbnail_of(source), name, labels or "no label")


# In a notebook: predictions or suggestions, the pixels of their photos, and the letters of a text.
SHOWN, THUMBNAIL, SHOWN_TEXT = 12, 160, 80


def _thumbnail_of(source: Input | None) -> NDArray[np.uint8]:
    if source is None or isinstance(source, Row):
        raise DataError("there is no photo")
    return decode(source, at_least=THUMBNAIL) if isinstance(source, Path) else source


def as_figures(title: str, figures: Sequence[str]) -> str:
    """Figures beside each other, as HTML."""
    return f"<p>{escape(title)}</p><div style='display:flex;flex-wrap:wrap;gap:8px'>{''.join(figures)}</div>"


def as_figure(read: Callable[[], NDArray[np.uint8]], name: str, caption: str) -> str:
    """A photo, or its name where it has none that can be read, with what is said of it, as HTML."""
    from PIL import Image as Picture

    shown = f"<code>{escape(name)}</code>"
    with suppress(OnepairError, OSError, TypeError):
        image, content = Picture.fromarray(read()), io.BytesIO()
        image.thumbnail((THUMBNAIL, THUMBNAIL))
        image.save(content, "JPEG", quality=80)
        data = base64.b64encode(content.getvalue()).decode()
        shown = f"<img src='data:image/jpeg;base64,{data}' alt='{escape(name)}'>"
    return f"<figure style='margin:0' title='{escape(name)}'>{shown}<figcaption>{escape(caption)}</figcaption></figure>"


@dataclass(frozen=True, eq=False, repr=False)
class Model:
    """A trained model, whatever computes it.

    Images are files, folders (all images in them and in the folders below), or uint8 arrays (H, W, 3); one, or many.
    A model that was trained on vectors takes these instead: arrays (D,) or (N, D), and files or folders of them. One
    that was trained on texts takes strings, each a text, and paths of files of them.

    Attributes:
        path: the folder or file that it was loaded from.
        classes: their names.
        decisions: its thresholds and its calibration.

    Examples:
        >>> model = load("runs/a")  # doctest: +SKIP
        >>> model.predict("photos/").to_frame()  # doctest: +SKIP
        >>> model.export("a.onnx", quantize="int8")  # doctest: +SKIP
    """

    path: Path
    classes: tuple[str, ...]
    decisions: Thresholds
    preprocessing: Preprocessing | None  # None where the inputs are no images
    engines: EngineFactory
    classifier: "Classifier | None" = None  # the network, where it is one of torch's
    width: int = 0  # of vectors, where those are the inputs
    encode: Callable[[Sequence[str]], Float32] | None = None  # from texts to vectors, where those are the inputs

    @property
    def noun(self) -> str:
        """What it takes: "image", "vector" or "text"."""
        return "image" if self.preprocessing is not None else "vector" if self.encode is None else "text"

    def __repr__(self) -> str:
        return f"Model({str(self.path)!r}: {counted(len(self.classes), 'class')} of {self.noun}s)"

    def each(self, given: Any) -> Iterator[Input]:
        """Give every single image, vector or text."""
        if (table := getattr(given, "table", None)) is not None:  # of a `Dataset`
            return self._each_row(table)
        is_picture = hasattr(given, "convert")  # of PIL
        if not (isinstance(given, Iterable | PathLike) or hasattr(given, "toarray") or is_picture) or (
            is_picture and self.noun != "image"
        ):
            raise DataError(f"{type(given).__name__} holds no {self.noun}s; give paths, arrays or a Dataset")
        if self.preprocessing is not None:
            return one_by_one(given)
        return vector_rows(given, self.width) if self.encode is None else text_rows(given)

    def _each_row(self, table: LabelTable) -> Iterator[Input]:
        values: Iterable[Any] | None = table.texts
        if self.noun == "image":
            return images_of(table, np.arange(len(table)))
        if self.noun == "vector":
            blocks = None if table.vectors is None else table.vectors.blocks()
            values = None if blocks is None else (vector for _, block in blocks for vector in block)
        if values is None:
            raise DataError(f"the dataset has no {self.noun}s, which the model takes")
        return map(Row, table.files, values)

    def predict(self, images: Any) -> "Predictions":
        """Predict the labels and probabilities of images, in their order.

        Args:
            images: one or many of what the model takes, or a `Dataset` of them; PIL images and torch tensors are
                images too.

        Returns:
            A list of predictions, which is a table by `to_frame`, and shows photos in a notebook.

        Raises:
            DataError: an image cannot be read.

        Examples:
            >>> load("runs/a").predict(["photos/a.jpg"])[0].labels  # doctest: +SKIP
            ('dog', 'sofa')
        """
        found: list[Prediction] = []
        shown: list[Input] = []
        for scored in self.score(self.each(images), report=raise_problem):
            found += self.decide(scored)
            shown += scored.sources[: SHOWN - len(shown)]
        return Predictions(found, self.classes, shown=shown)

    def write(
        self,
        images: Image | Iterable[Image],
        path: str | Path,
        *,
        predicted_only: bool | None = None,
        report: Report = lambda _: None,
        on_progress: Callable[[int], None] = lambda _: None,
    ) -> "Written":
        """Predict images into a .csv, .jsonl or .parquet file, which appears when all of it is there.

        Args:
            images: as for `stream`.
            path: the file. Images that cannot be read are listed beside it, for example in predictions.skipped.csv.
            predicted_only: write the probabilities of the predicted classes alone; by default of all up to 1,000.
            report: is told of each image that cannot be read.
            on_progress: is told how many are predicted.

        Returns:
            How many were predicted, and how many could not be read.

        Raises:
            UserError: there is no such format.
        """
        out = require_path(path, "what predictions are written to")
        return write_predictions(
            self, self.each(images), out, predicted_only=predicted_only, report=report, on_progress=on_progress
        )

    def save(self, folder: str | Path) -> Path:
        """Write the model alone, with its model card, into a folder from which `onepair.load` gives it back.

        Args:
            folder: it is made, if it is not there.

        Returns:
            The folder.

        Raises:
            ModelError: the model is an ONNX file, which can be copied as it is.
            WriteError: the folder cannot be written.
        """
        if self.classifier is None:
            raise ModelError(f"{self.path}: is one file, which can be copied as it is")
        read_description(self.path)  # a folder that is gone cannot be copied
        target = require_path(folder, "what a model is saved to")
        with writing(target):
            target.mkdir(parents=True, exist_ok=True)
            for name in (NAME, WEIGHTS, CARD):
                if (self.path / name).exists():
                    write_atomically(target / name, (self.path / name).read_bytes())
        return target

    def export(
        self,
        path: str | Path,
        *,
        float_input: bool = False,
        quantize: Literal["int8"] | None = None,
        calibration: Any = None,
    ) -> "Exported":
        """Write the model as an ONNX file, which needs neither torch nor onepair.

        Args:
            path: the file to write, a .onnx; its model card is beside it, a .md.
            float_input: take normalised images instead of pixels, float32 (batch, 3, S, S).
            quantize: "int8" keeps the weights in 8 bits: a quarter of the size at the same speed.
            calibration: some dozens of images, or vectors, as the model takes them: with these, the network computes in
                8 bits too, which is faster on processors that are made for it.

        Returns:
            What was written: its size, inputs and outputs, and how far it agrees with the model.

        Raises:
            ModelError: the model cannot be an ONNX file.
        """
        require_extra("onnx")
        from onepair.inference.export import export_onnx

        out = require_path(path, "an ONNX file")
        return export_onnx(self.path, out, float_input=float_input, quantize=quantize, calibration=calibration)

    def stream(self, images: Image | Iterable[Image], *, report: Report = raise_problem) -> Iterator[Prediction]:
        """Predict any number of images one by one, while they are read, in the memory of a few.

        Args:
            images: as for `predict`; nothing is read ahead but the next few.
            report: is told of each image that cannot be read. The default raises a `DataError`; one that returns, as a
                list's `append` does, leaves the image out.
        """
        for scored in self.score(self.each(images), report=report):
            yield from self.decide(scored)

    def scores(self, images: Image | Iterable[Image]) -> Float32:
        """Return the logits (N, L) of images, in their order.

        Args:
            images: as for `predict`.
        """
        blocks = [scored.scores for scored in self.score(self.each(images))]
        return np.concatenate([np.empty((0, len(self.classes)), np.float32), *blocks])

    def score(self, images: Iterator[Input], *, report: Report = raise_problem) -> Iterator[Scored]:
        """Compute single images, block by block."""
        first = _first(images)
        engine = self.engines(len(first))
        every = chain(first, images)
        if self.preprocessing is not None:
            return stream_images(engine, every, self.preprocessing, report=report)
        blocks = row_blocks(every, self.encode or _stacked, batch_size=engine.batch_size, report=report)
        return stream_scores(engine, blocks)

    def decide(self, scored: Scored, *, predicted_only: bool = False) -> list[Prediction]:
        """Make predictions of scores, with probabilities of all classes or of the predicted ones only."""
        scores = scored.scores
        chosen = [np.flatnonzero(row) for row in self.decisions.labels(scores)]
        if predicted_only:
            columns, rows = np.concatenate(chosen), np.repeat(np.arange(len(chosen)), list(map(len, chosen)))
            cells = self.decisions.calibrator.of_cells(scores[rows, columns], columns)
            shares = np.split(cells, np.cumsum(list(map(len, chosen)))[:-1])
        else:
            shares = list(self.decisions.probabilities(scores))
        predictions = []
        for source, own, share in zip(scored.sources, chosen, shares, strict=True):
            labels = tuple(self.classes[column] for column in own.tolist())
            names = labels if predicted_only else self.classes
            predictions.append(Prediction(_name_of(source), labels, dict(zip(names, share.tolist(), strict=True))))
        return predictions


def load(path: str | Path) -> Model:
    """Load the model of a run, or of an ONNX file that `onepair export` wrote.

    A run's model is computed on the best devices at hand. To use an ONNX file, torch is not even imported.

    Args:
        path: the folder of a finished run, or an .onnx file.

    Returns:
        A `Model`, which predicts the labels of images, vectors or texts.

    Raises:
        ModelError: there is no model at the path, or none that can be used.

    Examples:
        >>> load("runs/a").predict(["photos/a.jpg"]).to_frame()  # doctest: +SKIP
    """
    if not isinstance(path, str | Path):
        raise ModelError(f"a model is loaded from a path, not from {type(path).__name__}; a Run has it as run.model")
    path = Path(path)
    if path.suffix == ".onnx" and not path.is_dir():
        return _load_onnx(path)
    if path.exists() and not path.is_dir():
        raise ModelError(f"{path}: is no model; give the folder of a run, or an .onnx file of onepair export")
    return _load_torch(path)


def one_by_one(images: Any) -> Iterator[Source]:
    """Give every single image of files, folders and arrays."""
    if isinstance(images, str | Path):
        yield from image_files(as_path(images))
    elif hasattr(images, "convert") or (hasattr(images, "detach") and images.ndim == 3):  # of PIL, of torch
        yield as_pixels(images)
    elif isinstance(images, np.ndarray) and images.ndim != 4:
        if images.dtype != np.uint8 or images.ndim != 3 or images.shape[2] != 3:
            raise DataError(f"the array of an image is uint8 (H, W, 3), not {images.dtype} {images.shape}")
        yield images
    else:
        for image in images:
            yield from one_by_one(image)


def _name_of(source: Input) -> str | None:
    if isinstance(source, Row):
        return source.name
    return None if isinstance(source, np.ndarray) else str(source)


def _stacked(vectors: Sequence[NDArray[Any]]) -> Float32:
    return np.stack(vectors).astype(np.float32, copy=False)


def _first(images: Iterator[Input]) -> list[Input]:
    """As many images as tell whether they are many; but arrays, which may be large, do not wait."""
    first: list[Input] = []
    for image in images:
        first.append(image)
        if isinstance(image, np.ndarray) or len(first) == MANY:
            break
    return first


def _load_torch(folder: Path) -> Model:
    described = read_description(folder)
    precision = described.precision

    from onepair.inference.engine_selector import EngineSelector  # and torch with it, once there is a model

    classifier, decisions = load_model(folder)
    engines, backbone = EngineSelector(classifier, precision=precision), classifier.backbone
    model = Model(folder, classifier.classes, decisions, described.preprocessing, engines, classifier)
    return replace(model, width=described.width or 0, encode=getattr(backbone, "encode", None))


def _load_onnx(path: Path) -> Model:
    try:
        import onnxruntime  # noqa: F401 (its absence has a sentence of its own)
    except ImportError:
        raise ModelError(f"{path}: needs ONNX Runtime; install it with: pip install 'onepair[onnx]'") from None
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    try:
        session = open_session(path)
    except Exception as error:  # the runtime has a dozen kinds for what is wrong with a file
        raise ModelError(f"{path}: is not an ONNX file that can be read") from error
    try:
        stored = json.loads(session.get_modelmeta().custom_metadata_map[METADATA])
        float_input = stored["input"] == "float32"
    except (KeyError, TypeError, json.JSONDecodeError):
        raise ModelError(f"{path}: does not say what its labels are; only files of onepair export do") from None
    described = parse_description(stored, where=path)
    engine = OnnxEngine(session, "logits", described.preprocessing if float_input else None, file=path)
    if described.width is not None:
        engine = replace(engine, input="vectors", batch_size=1024)
    model = Model(path, described.classes, described.decisions, described.preprocessing, lambda _: engine)
    return replace(model, width=described.width or 0)


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
