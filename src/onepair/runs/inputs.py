"""The files that runs and datasets are made from, whose place no output may take."""

from collections.abc import Iterable, Iterator
from pathlib import Path

from onepair.data.label_table import LabelTable
from onepair.data.vectors.vector_files import chosen
from onepair.errors import OnepairError
from onepair.files import refuse_overwriting
from onepair.remote import is_url
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.runs.project import project_of


def protect_inputs(
    output: Path | None, *, run: Path | None = None, table: LabelTable | None = None, others: Iterable[object] = ()
) -> None:
    """Refuse an output that is one of the files that it is made from, by whatever name.

    Nothing is read unless there is a file at `output` already.

    Args:
        output: the file to be written; None is no output.
        run: the folder of a run: its table, images, vectors, boxes and weights, and what people answered in an audit.
        table: a dataset: its images.
        others: paths of further files, or of folders of them.

    Raises:
        OnepairError: `output` is one of these files.
    """
    if output is not None:
        refuse_overwriting(output, _inputs(run, table, others))


def _inputs(run: Path | None, table: LabelTable | None, others: Iterable[object]) -> Iterator[Path]:
    for path in others:
        yield from _files_at(path)
    if table is not None:
        yield from _images(table)
    if run is not None:
        yield from _files_at(run / "audit")
        if (project := project_of(run)) and (record := project.record()):
            yield from _files_at(project.source_of(record))
            yield from (project.answers, *project.runs.glob("*-labels.*"), *project.runs.glob("*-images.csv"))
        if (run / "config.toml").exists():
            config = RunFolder(run).config()
            data = config.data
            for path in (data.source, data.images, data.features, data.boxes, data.classes, config.model.weights):
                yield from _files_at(path)
            try:
                yield from _images(FinishedRun(run).table)
            except OnepairError:  # a dataset that is no more cannot be lost
                return


def _files_at(given: object) -> Iterator[Path]:
    """A file, and of a folder all files in it, if they are on this machine."""
    text = str(given)
    if given is None or not text or is_url(text):
        return
    path = chosen(text)[0]
    yield path
    if path.is_dir():
        yield from path.rglob("*")


def _images(table: LabelTable) -> Iterator[Path]:
    if table.pixels is None and not is_url(str(table.root)):
        yield from map(table.path, range(len(table)))
