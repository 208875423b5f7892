"""The labels after a review: what was observed, completed and corrected by what people decided."""

import csv
import io
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from shutil import make_archive
from tempfile import TemporaryDirectory
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onepair.data.class_rules import with_classes
from onepair.data.formats.read import recognise
from onepair.data.formats.write import SAME, named_from, write_labels, written_format
from onepair.data.formats.xmp import Form, Written, write_keywords
from onepair.data.label_table import LabelTable
from onepair.data.tables.cell_values import guard
from onepair.data.tables.same_form import Said, SameForm, complete_same
from onepair.errors import ReviewError
from onepair.files import replacing, write_atomically, writing
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices
from onepair.remote import as_path
from onepair.review.answers import Entry, Reply
from onepair.review.image_answers import ImageAnswers, has_answers, open_answers
from onepair.review.next_run import current_answers, photos_without_rows, with_photos
from onepair.runs.audit import Audit
from onepair.runs.config import DataConfig
from onepair.runs.finished import FinishedRun, protect_inputs
from onepair.runs.project import project_of
from onepair.runs.task import RunCache, dataset_of

_NOTHING = np.zeros((3, 0), np.int64)
_LABEL_OF: dict[Reply | None, int] = {"yes": POSITIVE, "no": NEGATIVE}
_COLUMNS = ("file", "label", "before", "answer", "who", "when")  # of the file of answers
_WRITTEN = {POSITIVE: "1", NEGATIVE: "0", UNKNOWN: ""}


class Located(NamedTuple):
    """A decision, and the label in the table that it is about."""

    row: int
    column: int
    entry: Entry


@dataclass(frozen=True)
class Completion:
    """What became of the labels."""

    confirmed: int  # unknown before, positive now
    rejected: int  # unknown before, negative now
    corrected: int  # the other label before
    unknown: int  # before and now
    foreign: int  # decisions on images or classes that the dataset does not have
    decisions: Path  # where they are written
    unsaid: int = 0  # negative labels that the form of the table cannot say
    form: str = "csv"  # that was written
    source: str = ""  # the dataset that has this form, where it is "same"


def write_completed(
    run: FinishedRun, entries: Sequence[Entry], out: Path, *, added: Sequence[str] = (), format: str = "auto"
) -> Completion:
    """Write the completed labels as a table, and beside it who decided what and when.

    The table has all images of the dataset with their split. Its training rows hold the labels that the run observed,
    with 1 where people said yes, 0 where they said no, and the rest as it was; audited images have all of their labels.
    The images that the run selected its best epoch by are named as validation images, so that a run on the completed
    labels selects by the same ones, and the two can be compared. File names are relative to the table, so that it can
    be trained on as it stands; images that were never files become files beside it. What people answered is marked as
    asked for, since a model suggested it, but for audited images, which were drawn.

    Args:
        run: whose dataset it is.
        entries: the history of decisions; the last one of each cell counts.
        added: classes that the dataset does not have. Those that no image shows are left out; of the others, whatever
            was not answered is unknown. No model has suggested them, so their labels are not marked as asked for.
        out: the file to write; the answers go to a .csv file beside it, named after it.
        format: one of `onepair.data.formats.write.WRITTEN`; csv and parquet go by the suffix. "same" is the form of the
            table that the run was trained on, with nothing changed but what was answered: no splits, no other names.
            Of a project it is the table as it is now, with all answers of the project.

    Returns:
        What became of the labels.

    Raises:
        OnepairError: `out` is one of the files that the run was made from.
        ReviewError: the form of the run's dataset cannot be kept.
        ReviewError: what would be written beside `out` takes the place of a file that did not come from here.
    """
    if format == SAME:
        _require_same_form(run, out)
    else:
        format = written_format(out, format)
    protect_inputs(out, run=run.path)
    own = _project_table(run) if format == SAME else None
    if own is not None:
        entries, before, completed, decided = own
    else:
        before, completed, decided = completed_table(run, entries, added=added)
    last, labels = {(entry.file, entry.label) for entry in entries}, completed.labels
    same = None
    if format == SAME:
        same = _same_form(own_dataset(run), run, before, decided, completed.asked, audited=own is None)
    after = completed if same is not None else _beside(completed, out)
    decisions = out.with_name(f"{out.stem}_decisions.csv")
    _refuse_strangers(decisions, after)
    with writing(out):
        if after.pixels is not None and same is None:
            _write_images(after, after.pixels, out.parent)
        write_atomically(decisions, _render_decisions(after.files, before.labels, decided))
        if same is not None:
            write_atomically(out, same.content)
    if same is None:
        write_labels(after, out, format=format)
    audited = [] if run.audit is None or own is not None else run.audit.rows.tolist()
    looked_at = np.unique([*(each.row for each in decided), *audited]).astype(int)
    given, now = before.labels[looked_at], labels[looked_at]
    was_unknown = given == UNKNOWN
    return Completion(
        confirmed=int((was_unknown & (now == POSITIVE)).sum()),
        rejected=int((was_unknown & (now == NEGATIVE)).sum()),
        corrected=int((~was_unknown & (now != given)).sum()),
        unknown=int(labels.count(UNKNOWN).sum()),
        foreign=len(last) - len({(each.entry.file, each.entry.label) for each in decided}),
        decisions=decisions,
        unsaid=0 if same is None else same.unsaid,
        form=format,
        source=own_dataset(run).source,
    )


def write_photo_keywords(
    run: FinishedRun, entries: Sequence[Entry], folder: Path, *, added: Sequence[str] = (), form: Form = "xmp"
) -> Written:
    """Write the completed labels as keywords of the photos; see `write_keywords`, and `write_completed`.

    A photo of a project that is changed in its place keeps its answers, whatever it is called later.
    """
    own, project = _project_table(run), project_of(run.path)
    completed = own[2] if own else completed_table(run, entries, added=added)[1]
    with writing(folder):
        if form != "in-place" or project is None:
            return write_keywords(completed, folder, form=form)
        store = ImageAnswers(project.answers, {})
        return write_keywords(completed, folder, form=form, before_change=store.follow)


def keeps_form(run: FinishedRun, out: Path) -> bool:
    """Whether labels go back into a table of the kind that a file is named as, so that it can keep the table's form."""
    data = own_dataset(run)
    source = as_path(data.source)
    return source.suffix.lower() == out.suffix.lower() and recognise(source, data.format).name == "table"


def own_dataset(run: FinishedRun) -> DataConfig:
    """The dataset whose form labels keep: of a project its own, of which a run has a copy."""
    project = project_of(run.path)
    record = project.record() if project else None
    return project.data(record) if project and record else run.config.data


def _require_same_form(run: FinishedRun, out: Path) -> None:
    data = own_dataset(run)
    source = as_path(data.source)
    if recognise(source, data.format).name != "table":
        raise ReviewError(
            f"{source}: is no table, so labels cannot be written in its form; choose another form with --as"
        )
    if not keeps_form(run, out):
        raise ReviewError(f"{out}: labels in the form of {source} go to a file that ends in {source.suffix}")


def _project_table(run: FinishedRun) -> tuple[list[Entry], LabelTable, LabelTable, list[Located]] | None:
    """All answers of a run's project, its table as it is now, the same with the answers, and where each belongs."""
    project = project_of(run.path)
    record = project.record() if project else None
    if project is None or record is None:
        return None
    table = dataset_of(project.data(record), RunCache())
    if record.new_photos:
        table = with_photos(table, photos_without_rows(table))
    store = current_answers(project, record, table)
    entries = store.entries()
    last = {(entry.file, entry.label): entry for entry in entries}
    shown = {entry.label for entry in last.values() if entry.answer == "yes"}
    before = with_classes(table, [name for name in store.classes() if name in shown and name not in table.classes])
    decided = _locate(before, np.arange(len(before)), last.values())
    labels, asked = _with_answers(None, len(table.classes), before, decided)
    return entries, before, replace(before, labels=labels, asked=asked if asked.has(POSITIVE) else None), decided


def _same_form(
    data: DataConfig,
    run: FinishedRun,
    before: LabelTable,
    decided: Sequence[Located],
    asked: LabelMatrix | None,
    *,
    audited: bool,
) -> SameForm:
    """The owner's table with what people said; an audited image has all of its labels."""
    audit = run.audit if audited else None
    rows = set() if audit is None else set(audit.rows.tolist())
    said = [
        Said(row, before.classes[column], _LABEL_OF[entry.answer])
        for row, column, entry in decided
        if entry.answer in _LABEL_OF and (row not in rows or column >= len(run.table.classes))
    ]
    if audit is not None:
        cells = np.ndenumerate(audit.labels)
        said += [Said(int(audit.rows[i]), run.table.classes[column], int(label)) for (i, column), label in cells]
    return complete_same(
        as_path(data.source),
        run.table if audited else before,
        said,
        asked=asked,
        images=None if data.images is None else as_path(data.images),
        label_columns=data.label_columns or None,
    )


class Download(NamedTuple):
    """A file to send."""

    name: str
    media_type: str
    content: bytes


FORMS = {"same": "", "csv": "csv", "json": "coco", "xmp": "", "answers": ""}
"""What labels can be downloaded as, and the format of `onepair.data.formats.write` for it: the user's own table, a
column per class, COCO's JSON, keywords beside photos as a .zip; and who answered what and when."""
_MEDIA_TYPES = {".csv": "text/csv; charset=utf-8", ".json": "application/json", ".zip": "application/zip"}


def own_table(run: FinishedRun) -> Path | None:
    """The owner's table, if labels can be written in its form."""
    source = as_path(own_dataset(run).source)
    return source if keeps_form(run, source) else None


def download(run: FinishedRun, form: str) -> Download:
    """The labels with all answers up to now, in one of `FORMS`; file names are those of the dataset."""
    store = open_answers(run, read_only=True) if has_answers(run) else None
    entries, added = (store.entries(), store.classes()) if store else ([], [])
    with TemporaryDirectory(prefix="onepair-") as folder:
        if form == SAME:
            source = own_table(run)
            if source is None:
                raise ReviewError(f"{run.config.data.source}: is no table, so labels cannot be written in its form")
            out = Path(folder) / source.name
            write_completed(run, entries, out, added=added, format=SAME)
        elif form == "xmp":
            (beside := Path(folder) / "keywords").mkdir()
            write_photo_keywords(run, entries, beside, added=added)
            out = Path(make_archive(str(Path(folder) / "keywords"), "zip", beside))
        else:
            before, completed, decided = completed_table(run, entries, added=added)
            out = Path(folder) / {"csv": "labels.csv", "json": "labels.json", "answers": "answers.csv"}[form]
            if form == "answers":
                out.write_bytes(_render_decisions(completed.files, before.labels, decided))
            else:
                write_labels(completed, out, format=FORMS[form])
        return Download(out.name, _MEDIA_TYPES.get(out.suffix, "application/octet-stream"), out.read_bytes())


def completed_table(
    run: FinishedRun, entries: Sequence[Entry], *, added: Sequence[str] = ()
) -> tuple[LabelTable, LabelTable, list[Located]]:
    """Return the dataset as the run saw it, the same with what people answered, and where each answer belongs.

    Args:
        run: whose dataset it is.
        entries: the history of answers; the last one of each cell counts.
        added: classes that the dataset does not have; those that no image shows are left out.
    """
    last = {(entry.file, entry.label): entry for entry in entries}
    shown = {entry.label for entry in last.values() if entry.answer == "yes"}
    before = with_classes(_observed_table(run), [name for name in added if name in shown])
    decided = _locate(before, run.task.images, last.values())
    labels, asked = _with_answers(run.audit, len(run.table.classes), before, decided)
    return before, replace(before, labels=labels, asked=asked if asked.has(POSITIVE) else None), decided


def _with_answers(
    audit: Audit | None, own: int, before: LabelTable, decided: Sequence[Located]
) -> tuple[LabelMatrix, LabelMatrix]:
    """The labels with what people answered, and which of them were asked for: of the dataset's own classes."""
    answers = [(row, column, _LABEL_OF[entry.answer]) for row, column, entry in decided if entry.answer in _LABEL_OF]
    rows, columns, values = (np.array(each, np.int64) for each in zip(*answers, strict=True)) if answers else _NOTHING
    labels = before.labels.with_entries(rows, columns, values)
    nothing = LabelMatrix.from_entries(labels.shape, [], [], POSITIVE, complete=True)
    suggested = columns < own
    asked = (nothing if before.asked is None else before.asked).with_entries(
        rows[suggested], columns[suggested], POSITIVE
    )
    if audit is None:
        return labels, asked
    audited = labels[audit.rows]
    audited[:, :own] = audit.labels
    labels = labels.with_rows(audit.rows, LabelMatrix.of(audited))
    return labels, asked.with_rows(audit.rows, nothing.take(audit.rows))


def _observed_table(run: FinishedRun) -> LabelTable:
    """The dataset as the run saw it."""
    table, task = run.task.table, run.task
    labels, split = table.labels.with_rows(task.train, task.observed), table.split.astype("U10")
    if not task.out_of_fold:
        split[task.validation] = "validation"
    return replace(table, labels=labels, split=split)


def _locate(table: LabelTable, images: Indices, entries: Iterable[Entry]) -> list[Located]:
    """The row and column of each decision that is about a label of the table, on one of some images.

    An image may have a row in several splits: what people see on it holds for all of them.
    """
    rows_of: dict[str, list[int]] = {}
    for row in images.tolist():
        rows_of.setdefault(table.files[row], []).append(row)
    column_of = {name: column for column, name in enumerate(table.classes)}
    return [
        Located(row, column_of[entry.label], entry)
        for entry in entries
        if entry.label in column_of
        for row in rows_of.get(entry.file, ())
    ]


def _beside(table: LabelTable, out: Path) -> LabelTable:
    """The table with its files as named from the folder of `out`."""
    if table.pixels is None:
        return named_from(table, out.parent)
    return replace(table, files=tuple(f"{out.stem}_images/{file}" for file in table.files), root=out.parent)


def _refuse_strangers(decisions: Path, after: LabelTable) -> None:
    """Refuse to overwrite files by names that nobody gave, unless they are of an earlier export to the same table."""
    images = [] if after.pixels is None else list(enumerate(after.pixels))
    strange = [path for row, pixels in images if (path := after.path(row)).exists() and not _shows(path, pixels)]
    if decisions.exists():
        with decisions.open(encoding="utf-8", errors="replace", newline="") as file:
            strange += [] if next(csv.reader(file), None) == list(_COLUMNS) else [decisions]
    if strange:
        raise ReviewError(f"{strange[0]}: is there already, and would be overwritten; move it, or name another --out")


def _shows(path: Path, pixels: NDArray[np.uint8]) -> bool:
    try:
        with Image.open(path) as image:
            return np.array_equal(np.asarray(image), pixels)
    except OSError:
        return False


def _write_images(table: LabelTable, images: NDArray[np.uint8], folder: Path) -> None:
    for file, pixels in zip(table.files, images, strict=True):
        path = folder / file
        path.parent.mkdir(parents=True, exist_ok=True)
        with replacing(path) as image:
            Image.fromarray(pixels).save(image, "PNG")


def _render_decisions(files: Sequence[str], before: LabelMatrix, decided: Iterable[Located]) -> bytes:
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(_COLUMNS)
    for row, column, entry in decided:
        if entry.answer is not None:
            label = _WRITTEN[int(before[row, column])]
            names = map(guard, (files[row], entry.label))
            writer.writerow([*names, label, entry.answer, guard(entry.who), entry.at])
    return text.getvalue().encode()
