"""A project: the folder that keeps the answers, the audits and the runs of a dataset, whatever becomes of its table.

labels.onepair/project.json      what the project is about, and which run was begun last
labels.onepair/answers.sqlite    what people answered, by image and class
labels.onepair/runs/2/           a run, as `onepair train` leaves it
labels.onepair/runs/2-labels.parquet, 2-images.csv   the labels that it learned from, and what its images are known by
"""

import json
import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from pydantic import BaseModel, ConfigDict

from onepair.data.text_files import exists
from onepair.errors import RunError
from onepair.files import read_record, write_atomically, writing
from onepair.remote import is_url
from onepair.runs.config import DataConfig, resolve_config
from onepair.runs.folder import RunFolder
from onepair.words import command

SUFFIX, RECORD = ".onepair", "project.json"
_PATHS = ("images", "classes", "features")  # settings of data that are paths


class ProjectRecord(BaseModel):
    """What project.json holds."""

    model_config = ConfigDict(frozen=True)

    source: str  # the dataset: a path from the project's folder, a URL, or the name of an embedded one
    reading: dict[str, str] = {}  # how it is read: settings of data as they were given; paths as of `source`
    different: tuple[tuple[str, str], ...] = ()  # classes of much the same name that somebody said are two
    new_photos: bool = False  # whether photos that the table lacks are taken in
    backbone: str | None = None  # the network that was asked for
    run: str = ""  # the run that was begun last
    given: str = ""  # what tells the dataset and the settings that it was begun with from any others
    before: str = ""  # the finished run before it, a path from the project's folder
    classes: tuple[str, ...] = ()  # of that dataset


class Project:
    """The folder of a project.

    Args:
        path: the folder, which need not be there yet.
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def answers(self) -> Path:
        """The file of what people answered."""
        return self.path / "answers.sqlite"

    @property
    def runs(self) -> Path:
        """The folder of the runs."""
        return self.path / "runs"

    def record(self) -> ProjectRecord | None:
        """Return what the project is about; None if there is none yet.

        Raises:
            RunError: project.json is damaged.
        """
        advice = "move it away and run onepair start again: answers and runs stay"
        return read_record(self.path / RECORD, ProjectRecord, advice=advice, error=RunError)

    def write(self, record: ProjectRecord) -> None:
        """Store what the project is about."""
        with writing(self.path):
            self.runs.mkdir(parents=True, exist_ok=True)
            content = json.dumps({"format": 1, **record.model_dump()}, indent=2, ensure_ascii=False)
            write_atomically(self.path / RECORD, f"{content}\n".encode())

    def keep_apart(self, pairs: Sequence[tuple[str, str]]) -> None:
        """Store which classes of much the same name are two."""
        if (record := self.record()) and (more := set(map(_sorted, pairs)) - set(map(_sorted, record.different))):
            self.write(record.model_copy(update={"different": (*record.different, *sorted(more))}))

    def source_of(self, record: ProjectRecord) -> str:
        """Return the dataset as a path that can be opened from anywhere."""
        return self._opened(record.source)

    def reading(self, record: ProjectRecord) -> dict[str, str]:
        """Return how the dataset is read, with paths that can be opened from anywhere."""
        return {name: self._opened(each) if name in _PATHS else each for name, each in record.reading.items()}

    def data(self, record: ProjectRecord) -> DataConfig:
        """Return the dataset as a run's configuration names it."""
        return resolve_config({"data": {"source": self.source_of(record), **self.reading(record)}}).data

    def _opened(self, name: str) -> str:
        return name if is_url(name) or os.sep not in name else os.path.normpath(self.path / name)

    def named(self, source: str) -> str:
        """Return a dataset as project.json names it."""
        return os.path.relpath(source, self.path) if Path(source).exists() else source

    def named_reading(self, settings: Mapping[str, str]) -> dict[str, str]:
        """Return how a dataset is read as project.json names it."""
        return {name: self.named(each) if name in _PATHS else each for name, each in settings.items()}

    def require_usable(self) -> None:
        """Refuse a folder that holds something else."""
        if (self.path / RECORD).exists() or self.answers.exists() or not self.path.exists():
            return
        with writing(self.path):
            if any(not each.name.startswith(".") for each in self.path.iterdir() if each != self.runs):
                raise RunError(f"{self.path}: holds files but no project; name another folder with --out")

    def next_number(self) -> str:
        """Return the name of a run that is not there yet."""
        return str(max((_order(each)[0] for each in self.runs.glob("[0-9]*") if each.is_dir()), default=0) + 1)

    def newest_run(self) -> Path:
        """Return the folder of the newest finished run.

        Raises:
            RunError: there is none.
        """
        finished = [each for each in self.runs.glob("[0-9]*") if RunFolder(each).finished]
        if not finished:
            record = self.record()
            again = command("start", self.source_of(record)) if record else "onepair start"
            raise RunError(f"{self.path}: has no finished run yet; {again} goes on")
        return max(finished, key=_order)

    def is_about_nothing(self) -> bool:
        """Return whether the dataset is no more where it was."""
        record = self.record()
        return record is not None and os.sep in record.source and not exists(Path(self.source_of(record)))


def _sorted(pair: tuple[str, str]) -> tuple[str, str]:
    return min(pair), max(pair)


def _order(run: Path) -> tuple[int, ...]:
    """The numbers in a run's name: 1, 1-2 (trained again on the page), 2, 10."""
    return tuple(map(int, re.findall(r"\d+", run.name)))


def project_of(run: Path) -> Project | None:
    """Return the project that a run's folder belongs to, if any."""
    folder = Path(os.path.realpath(run)).parent
    return Project(folder.parent) if folder.name == "runs" and (folder.parent / RECORD).exists() else None


def project_here(folder: Path) -> Project:
    """Return the project of a folder: the folder itself, or the one project in it.

    Raises:
        RunError: there is no project there, or several.
    """
    if (folder / RECORD).exists():
        return Project(folder)
    found = sorted(each for each in folder.glob(f"*{SUFFIX}") if (each / RECORD).exists())
    if len(found) == 1:
        return Project(found[0])
    if found:
        raise RunError(f"there are several projects in this folder; name one, for example {found[0]}")
    raise RunError("there is no project in this folder; onepair start labels.csv makes one, or name a run's folder")


def run_in(path: Path | None) -> Path:
    """Return the folder of a run: of a project the newest, and without a path that of the current folder's project."""
    if path is None:
        return project_here(Path()).newest_run()
    return Project(path).newest_run() if (path / RECORD).exists() else path


def projects_beside(project: Project) -> list[Project]:
    """Return the other projects in the folder of one."""
    found = sorted(each for each in project.path.parent.glob(f"*{SUFFIX}") if (each / RECORD).exists())
    return [Project(each) for each in found if each != project.path]


def project_folder(source: str) -> Path:
    """Return where the project of a dataset is by default: beside it, or for one at a URL in the current folder.

    >>> project_folder("photos/labels.csv").as_posix(), project_folder("https://host/labels.csv?x=1").as_posix()
    ('photos/labels.onepair', 'labels.onepair')
    """
    if is_url(source):
        return Path(Path(source.partition("?")[0]).stem + SUFFIX)
    path = Path(os.path.normpath(source))
    return path.with_name((path.stem if path.suffix and not path.is_dir() else path.name) + SUFFIX)
