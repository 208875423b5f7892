"""The next run of a project: what is new in its dataset, the labels that it learns from, and the audit that goes on."""

import hashlib
import os
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice
from pathlib import Path
from typing import NamedTuple

import numpy as np

from onepair.data.class_rules import read_rules, spelling_groups
from onepair.data.formats.write import write_table
from onepair.data.images.image_files import walk
from onepair.data.label_table import LabelTable
from onepair.data.quality import with_alike
from onepair.data.tables import read_table
from onepair.data.tables.cell_values import names_in
from onepair.data.text_files import fold
from onepair.errors import OnepairError
from onepair.files import writing
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE
from onepair.remote import NonLocalPath, as_path, is_remote
from onepair.review.audit_session import AuditSession
from onepair.review.image_answers import (
    ImageAnswers,
    answers_of_run,
    image_digests,
    open_answers,
    read_images,
    write_images,
)
from onepair.runs.audit import read_sample, systematic, write_sample
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.project import SUFFIX, Project, ProjectRecord
from onepair.words import counted

MOST_SWAPPED = 100  # classes that are compared with each other
MOST_LOOKED_AT = 200_000  # images in a folder, for those that a table lacks


@dataclass(frozen=True)
class Change:
    """What has become of a dataset since the run before."""

    new: int
    new_classes: Sequence[str]
    gone: int
    renamed: int  # or moved
    edited: int  # other content under the old name
    gone_classes: Sequence[str]
    renamed_classes: Mapping[str, str]
    kept: int = 0  # answers to classes that are gone
    swapped: Sequence[tuple[str, str]] = ()  # classes of which each has the images of the other

    def __str__(self) -> str:
        """In a line; "" if nothing has changed but order, labels or settings.

        >>> print(Change(312, ["cat", "cow"], 4, 1, 0, [], {}))
        312 photos and 2 classes new, 4 photos gone, 1 photo renamed
        >>> print(Change(0, [], 0, 0, 1, [], {"hund": "dog"}))
        1 photo edited (its answers stay), class hund is now called dog
        >>> print(Change(0, [], 0, 0, 0, ["hund"], {}, kept=5))
        1 class gone (5 answers to it are kept; --same hund=NAME gives them to another class)
        """
        stay = "its answers stay" if self.edited == 1 else "their answers stay"
        kept = ""
        if self.kept:
            whose = "it" if len(self.gone_classes) == 1 else "them"
            are, them = ("is", "it") if self.kept == 1 else ("are", "them")
            kept = f" ({counted(self.kept, 'answer')} to {whose} {are} kept; --same {self.gone_classes[0]}=NAME gives "
            kept += f"{them} to another class)"
        parts = [
            _counts((self.new, "photo"), (len(self.new_classes), "class"), end="new"),
            _counts((self.gone, "photo"), (len(self.gone_classes), "class"), end=f"gone{kept}"),
            _counts((self.renamed, "photo"), end="renamed"),
            _counts((self.edited, "photo"), end=f"edited ({stay})"),
            *(f"class {old} is now called {new}" for old, new in self.renamed_classes.items()),
            *(f"classes {one} and {other} swapped (answers stay with the names)" for one, other in self.swapped),
        ]
        return ", ".join(filter(None, parts))


def _counts(*numbers: tuple[int, str], end: str) -> str:
    words = " and ".join(counted(number, noun) for number, noun in numbers if number)
    return words and f"{words} {end}"


class NextRun(NamedTuple):
    """A run to train, or to go on with."""

    path: Path
    source: str  # the labels that it learns from
    folder: str | None  # that its images are in
    change: Change | None  # None where nothing is new, or nothing was before
    answers: int  # that count as known labels
    bursts: Sequence[Sequence[str]] = ()  # photos that look nearly the same, of a new run


def prepare_run(
    project: Project,
    table: LabelTable,
    *,
    source: str,
    reading: Mapping[str, str],
    settings: str,
    new_photos: bool,
    backbone: str | None = None,
    earlier: Sequence[Path] = (),
    find_alike: Callable[[LabelTable], Sequence[Sequence[int]]] = lambda table: (),
) -> NextRun:
    """Return the run of a project for a dataset as it is now: the last one, or a new one if anything has changed.

    The labels of a new run are written to the project with all answers in them: yes is 1, no is 0. The dataset may
    change or go, and the run can still be read. Whatever is killed in between, the same call goes on.

    Args:
        project: whose answers count; it is made if it is not there.
        table: the dataset.
        source: its name, for later.
        reading: how it was read: settings of data.
        settings: all that decides a run beside its dataset, as a text.
        new_photos: whether photos that the table lacks were taken in.
        backbone: the network that was asked for, if any.
        earlier: runs of no project whose answers are taken over into a new one.
        find_alike: rows of photos that look nearly the same, which stay in one split and fold of a new run.
    """
    before = project.record() or ProjectRecord(source="")
    named = {"source": project.named(source), "reading": project.named_reading(reading)}
    record = before.model_copy(update={**named, "new_photos": new_photos, "backbone": backbone})
    with writing(project.path):
        project.runs.mkdir(parents=True, exist_ok=True)
    digests = image_digests(table)
    store = ImageAnswers(project.answers, digests, table.classes)
    if not record.run:
        for run in earlier:
            store.merge(answers_of_run(FinishedRun(run)))
    same = _same(reading)
    given = _fingerprint(project, table, digests, f"{settings}\0{same}")
    run, folder = project.runs / record.run, _folder_of(table)
    if record.run and record.given == given and (table.pixels is not None or _labels_file(run).exists()):
        if record != before:
            project.write(record)
        return NextRun(run, _labels_of(run, table, source), folder, None, 0)
    change = _recognise(project, before, store, table, digests, same) if record.run else None
    run_before = _run_before(project, record, earlier)
    store = ImageAnswers(project.answers, digests, table.classes)  # by the names that were found
    run = project.runs / project.next_number()
    answered = _with_answers(table, store, _audited(run_before, store, table.classes))
    alike = find_alike(table) if table.group is None and "group" not in map(str.lower, answered.classes) else ()
    if alike:
        answered = with_alike(answered, alike)
    write_images(run, digests)
    if table.pixels is None:
        write_table(answered, _labels_file(run), keep_places=len(table) <= MOST_LOOKED_AT)
    began = {"run": run.name, "given": given, "classes": table.classes}
    earlier_run = os.path.relpath(run_before, project.path) if run_before else ""
    project.write(record.model_copy(update={**began, "before": earlier_run}))
    bursts = [[table.files[row] for row in rows] for rows in alike]
    return NextRun(run, _labels_of(run, table, source), folder, change, len(store.answered()), bursts)


def _labels_file(run: Path) -> Path:
    return run.with_name(f"{run.name}-labels.parquet")


def _labels_of(run: Path, table: LabelTable, source: str) -> str:
    """What a run is trained on: the embedded dataset itself, which never changes, else its own file of labels."""
    return source if table.pixels is not None else os.path.abspath(_labels_file(run))  # noqa: PTH100 (no links)


def _folder_of(table: LabelTable) -> str | None:
    """Where the images of a table are, from wherever a command is given."""
    if table.ids or table.pixels is not None:
        return None
    return str(table.root) if is_remote(table.root) else os.path.abspath(table.root)  # noqa: PTH100 (no links)


def _fingerprint(project: Project, table: LabelTable, digests: Mapping[str, str], settings: str) -> str:
    """What tells a dataset and the settings of a run from any others, wherever project and images are together."""
    vectors, folder = "" if table.vectors is None else str(table.vectors.facts()), _folder_of(table)
    folder = folder if folder is None or is_remote(table.root) else os.path.relpath(folder, project.path)
    parts = (table.fingerprint(), str(folder), vectors, settings, *digests.values())
    return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogatepass")).hexdigest()


# What is new


def _recognise(
    project: Project,
    record: ProjectRecord,
    store: ImageAnswers,
    table: LabelTable,
    digests: Mapping[str, str],
    same: Mapping[str, str],
) -> Change:
    """Find the images and classes of the run before in a dataset, and store what they are called now.

    An image is the one that holds the same, whatever its name; else the one of its name, if what that held is gone.
    """
    before, aliases = _edited(project, record, store, digests)
    known, now = set(before.values()), {f: aliases.get(digests[f], image) for f, image in store.image_of.items()}
    stayed = {image for file, image in now.items() if before.get(file) == image}
    others = [image for file, image in now.items() if before.get(file) != image]
    renamed = sum(image in known and image not in stayed for image in others)
    new_classes = [name for name in table.classes if name not in record.classes]
    gone_classes = [name for name in record.classes if name not in table.classes]
    called = _called(project, record, before, table, now, store, same)
    store.recognise(aliases, called, now)
    lost = [name for name in gone_classes if name not in called]
    return Change(
        new=len(others) - renamed,
        new_classes=[name for name in new_classes if name not in called.values()],
        gone=len([file for file, image in before.items() if image not in now.values()]),
        renamed=renamed,
        edited=sum(digests[file] in aliases for file in now),
        gone_classes=lost,
        renamed_classes=called,
        kept=sum(store.called(label) in lost for _, label in store.answered()),
        swapped=[] if new_classes or gone_classes else _swapped(project.runs / record.run, before, table, now, store),
    )


def _edited(
    project: Project, record: ProjectRecord, store: ImageAnswers, digests: Mapping[str, str]
) -> tuple[dict[str, str], dict[str, str]]:
    """The images of the last run by their names, and of new digests those images that they are of, by their names."""
    before = {file: store.image(digest) for file, digest in (read_images(project.runs / record.run) or {}).items()}
    known, there = set(before.values()), set(store.image_of.values())
    aliases: dict[str, str] = {}
    for file, image in store.image_of.items():
        if file in before and image not in known and before[file] not in there:
            aliases.setdefault(digests[file], before[file])
    return before, aliases


def current_answers(project: Project, record: ProjectRecord, table: LabelTable) -> ImageAnswers:
    """Open the answers of a project by the names that images and classes have in its dataset as it is now."""
    digests = image_digests(table)
    store = ImageAnswers(project.answers, digests, table.classes, read_only=True)
    if not record.run:
        return store
    before, aliases = _edited(project, record, store, digests)
    images = {file: aliases.get(digest, digest) for file, digest in digests.items()}
    store = ImageAnswers(project.answers, images, table.classes, read_only=True)
    same = _same(project.reading(record))
    return store.with_classes_called(_called(project, record, before, table, store.image_of, store, same))


def _same(reading: Mapping[str, str]) -> dict[str, str]:
    """Which names are other names of classes, folded, by how a dataset is read."""
    classes = reading.get("classes")
    rules = read_rules(names_in(reading.get("same")) or (), None if classes is None else as_path(classes))
    return {fold(one): other for one, other in rules.same}


def _called(
    project: Project,
    record: ProjectRecord,
    before: Mapping[str, str],
    table: LabelTable,
    now: Mapping[str, str],
    store: ImageAnswers,
    same: Mapping[str, str],
) -> dict[str, str]:
    """What classes that are gone are called now: by what was said, by their spelling, or by the images that have them.

    Args:
        project, record: as they were left.
        before: the images of the last run, by their names.
        table: the dataset.
        now: its images, by their names.
        store: the answers.
        same: see `_same`.
    """
    known = dict.fromkeys([*record.classes, *sorted({label for _, label in store.answered()})])
    gone = [name for name in known if store.called(name) not in table.classes]
    by_fold, called = {fold(name): name for name in table.classes}, dict[str, str]()
    for old in gone:
        name = old
        for _ in same:  # from one name to the next
            name = same.get(fold(name), name)
        if (new := table.aliases.get(old, by_fold.get(fold(name)))) is not None:
            called[old] = new
    if record.reading.get("spellings") != "keep":
        for alike in spelling_groups([*gone, *table.classes]):
            there = [name for name in alike if name in table.classes]
            called = {**{name: there[0] for name in alike if len(there) == 1 and name in gone}, **called}
    left = [name for name in record.classes if name in gone and name not in called]
    new_classes = [name for name in table.classes if name not in record.classes and name not in called.values()]
    return called | _called_by_images(project.runs / record.run, before, table, now, store, left, new_classes)


def _called_by_images(
    run: Path,
    before: Mapping[str, str],
    table: LabelTable,
    now: Mapping[str, str],
    store: ImageAnswers,
    gone: Sequence[str],
    new: Sequence[str],
) -> dict[str, str]:
    """The one new class that the same images have as a class that is gone.

    Images that were not there before or are not any more say nothing, nor does what people answered.
    """
    if not (gone and new and _labels_file(run).exists()):
        return {}
    both = set(before.values()) & set(now.values())
    answered = store.answered()
    was = _images_with(read_table.read(_labels_file(run), images=table.root), before, gone)
    has = _images_with(table, now, new)
    called = {}
    for old, images in was.items():
        said = {image for image, label in answered if label == old}
        fitting = [name for name, others in has.items() if others & both - said == images & both - said != set()]
        if len(fitting) == 1:
            called[old] = fitting[0]
    return {old: name for old, name in called.items() if list(called.values()).count(name) == 1}


def _swapped(
    run: Path, before: Mapping[str, str], table: LabelTable, now: Mapping[str, str], store: ImageAnswers
) -> list[tuple[str, str]]:
    """Classes that have taken each other's names, as far as nobody answered; see `_called_by_images`."""
    if not _labels_file(run).exists():
        return []
    said = defaultdict[str, set[str]](set)
    for image, label in store.answered():
        said[label].add(image)
    both = set(before.values()) & set(now.values())
    was = _images_with(read_table.read(_labels_file(run), images=table.root), before, table.classes)
    has = _images_with(table, now, table.classes)
    moved = [name for name in table.classes if (was[name] ^ has[name]) & both - said[name]]
    return [
        (one, other)
        for one, other in combinations(moved[:MOST_SWAPPED], 2)
        if (asked := both - said[one] - said[other])
        and was[one] & asked == has[other] & asked
        and was[other] & asked == has[one] & asked
        and was[one] & was[other] & asked not in (was[one] & asked, was[other] & asked)
    ]


def _images_with(table: LabelTable, image_of: Mapping[str, str], classes: Sequence[str]) -> dict[str, set[str]]:
    """The images of some classes."""
    found: dict[str, set[str]] = {name: set() for name in classes}
    for row, column in zip(*(each.tolist() for each in table.labels.positives()), strict=True):
        if table.classes[column] in found and table.files[row] in image_of:
            found[table.classes[column]].add(image_of[table.files[row]])
    return found


# The labels


def _with_answers(table: LabelTable, store: ImageAnswers, audited: set[str]) -> LabelTable:
    """The table with what people answered, marked as asked for, but for audited images, which were drawn.

    Classes that people have added follow if any image shows them; no model suggested those.
    """
    last = {(entry.file, entry.label): entry.answer for entry in store.entries()}
    shown = {label for (_, label), answer in last.items() if answer == "yes"}
    added = [name for name in store.classes() if name in shown and name not in table.classes]
    classes = (*table.classes, *added)
    labels = table.labels.with_classes(len(added)) if added else table.labels
    rows_of, column_of = defaultdict(list), {name: column for column, name in enumerate(classes)}
    for row, file in enumerate(table.files):
        rows_of[file].append(row)
    cells = [
        (row, column_of[label], POSITIVE if answer == "yes" else NEGATIVE, label not in added and file not in audited)
        for (file, label), answer in last.items()
        if answer in ("yes", "no") and label in column_of
        for row in rows_of[file]
    ]
    rows, columns, values, asked = np.array(cells, np.int64).reshape(-1, 4).T
    given = (np.zeros(0, np.int64), np.zeros(0, np.int64)) if table.asked is None else table.asked.positives()
    marked, of = (np.concatenate([each, more[asked == 1]]) for each, more in zip(given, (rows, columns), strict=True))
    marks = LabelMatrix.from_entries(labels.shape, marked, of, POSITIVE, complete=True)
    return replace(
        table,
        classes=classes,
        labels=labels.with_entries(rows, columns, values),
        asked=marks if marks.has(POSITIVE) else None,
    )


# Photos that the table lacks


def photos_without_rows(table: LabelTable) -> list[str]:
    """Return the photos in and below the folder of a table's photos that it does not name, as it would name them."""
    if table.ids or table.pixels is not None or is_remote(table.root) or isinstance(table.root, NonLocalPath):
        return []
    named = {os.path.abspath(table.path(row)) for row in range(len(table))}  # noqa: PTH100 (no links)
    folder = os.path.commonpath([os.path.dirname(path) for path in named])  # noqa: PTH120
    root = os.path.abspath(table.root)  # noqa: PTH100
    if not Path(folder).is_dir() or os.path.commonpath([folder, root]) != root:
        return []
    found = (str(path) for path in islice(walk(Path(folder)), MOST_LOOKED_AT))
    return [Path(os.path.relpath(path, root)).as_posix() for path in found if path not in named and _is_photo(path)]


def _is_photo(path: str) -> bool:
    """Whether it is one of the user's, and not of a project of ours or hidden."""
    return not any(part.endswith(SUFFIX) or part.startswith(".") for part in Path(path).parts[1:])


def with_photos(table: LabelTable, files: Sequence[str]) -> LabelTable:
    """Return the table with more photos to train on, of which nothing is known."""
    if not files:
        return table
    unknown = LabelMatrix.from_entries((len(files), len(table.classes)), [], [], POSITIVE)
    asked = table.asked
    if asked is not None:
        asked = LabelMatrix.stacked([asked, LabelMatrix.from_entries(unknown.shape, [], [], POSITIVE, complete=True)])
    return replace(
        table,
        files=(*table.files, *files),
        labels=LabelMatrix.stacked([table.labels, unknown]),
        split=np.concatenate([table.split, np.full(len(files), "train")]),
        asked=asked,
        places=None if table.places is None else [*table.places, *("photo without a row" for _ in files)],
        numbered=None,
        texts=None if table.texts is None else (*table.texts, *("" for _ in files)),
        group=None if table.group is None else (*table.group, *("" for _ in files)),
    )


# Audits


def _run_before(project: Project, record: ProjectRecord, earlier: Sequence[Path]) -> Path | None:
    """The last finished run, of the project or of those that it takes over."""
    if record.run and RunFolder(project.runs / record.run).finished:
        return project.runs / record.run
    if record.before:
        return Path(os.path.normpath(project.path / record.before))
    return earlier[0] if earlier and not record.run else None


def _images_before(run: FinishedRun, store: ImageAnswers) -> dict[str, str]:
    """The images of an earlier run, by their names in it."""
    try:
        digests = read_images(run.path) or image_digests(run.table)
    except OnepairError:  # a dataset that has changed since: names have to do
        return store.image_of
    return {file: store.image(digest) for file, digest in digests.items()}


def _audited(before: Path | None, store: ImageAnswers, classes: Sequence[str]) -> set[str]:
    """The files that were drawn for an audit, and of which all classes that the run before had are answered."""
    if before is None or (sample := read_sample(run := FinishedRun(before))) is None:
        return set()
    image_before = _images_before(run, store)
    drawn = {image_before.get(file) for file in sample.files}
    answers: dict[str, set[str]] = defaultdict(set)
    for entry in store.entries():
        if entry.answer in ("yes", "no"):
            answers[entry.file].add(entry.label)
    wanted = set(run.classes) & set(classes)
    return {file for file, image in store.image_of.items() if image in drawn and answers[file] >= wanted}


def carry_audit(project: Project, path: Path) -> None:
    """Go on with the audit of the run before, unless there is none or the run has one of its own.

    Of the images that are new as large a share is drawn as was of the others, so that all have equal chances.

    Args:
        project: of the run.
        path: the run's folder, trained.
    """
    record, run = project.record(), FinishedRun(path)
    if record is None or not record.before or read_sample(run) is not None:
        return
    earlier = Path(os.path.normpath(project.path / record.before))
    sample = read_sample(FinishedRun(earlier)) if RunFolder(earlier).finished else None
    store = open_answers(run)
    if sample is None or not isinstance(store, ImageAnswers) or len(run.task.rows(sample.split)) == 0:
        return
    image_before = _images_before(FinishedRun(earlier), store)
    files = [run.table.files[row] for row in run.rows(sample.split).tolist()]
    file_of, known = {store.image_of[file]: file for file in files}, set(image_before.values())
    kept = [file_of[image] for file in sample.files if (image := image_before.get(file, "")) in file_of]
    new = np.array([place for place, file in enumerate(files) if store.image_of[file] not in known], np.intp)
    if not kept:
        return
    expected = run.decisions.probabilities(run.scores(sample.split)).sum(1)
    wanted = round(len(kept) * len(new) / (len(files) - len(new)))
    more = new[systematic(expected[new], min(wanted, len(new)), np.random.default_rng((sample.seed, len(kept))))]
    population = len(run.task.rows(sample.split))
    drawn = (*kept, *(files[place] for place in more.tolist()))
    carried = sample.model_copy(update={"population": population, "files": drawn})
    write_sample(run, carried)
    AuditSession(run, carried, store)  # which writes what is complete
