"""The datasets of an experiment, as a user names them: voc2012=PATH, digits, or a path."""

from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path

from onepair.data.problems import DataError
from onepair.data.reading import FORMATS
from onepair.data.sources import exists, real
from onepair.remote import as_path, is_url
from onepair.runs.presets import preset_titles

TITLES = preset_titles()  # of the datasets that have settings of their own
_FORMATS = {"voc2012": "voc", "coco2014": "coco", "nuswide": "nuswide", "cub": "cub", "digits": "digits"}


@dataclass(frozen=True)
class Dataset:
    """A dataset to run an experiment on."""

    name: str  # a key of `TITLES`, or the name of the file or folder
    source: str  # a path, or "digits"
    format: str = "auto"  # of the reader

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)

    @property
    def identity(self) -> str:
        """What tells it from any other; a dataset that everybody knows is the same wherever it is kept."""
        return self.name if self.name in TITLES else str(real(as_path(self.source)))

    @property
    def argument(self) -> str:
        """How to name it on a command line, but for where it is kept."""
        return self.name if self.source == self.name else f"{self.name}=PATH" if self.name in TITLES else "PATH"


def parse_dataset(text: str) -> Dataset:
    """The dataset that a user means by NAME=PATH, by "digits", or by a path alone, whose layout then tells its name.

    >>> parse_dataset("digits")
    Dataset(name='digits', source='digits', format='digits')
    >>> parse_dataset("voc2021=VOCdevkit")
    Traceback (most recent call last):
    onepair.data.problems.DataError: there is no dataset 'voc2021'; did you mean voc2012?
    """
    if text == "digits":  # also beside a folder of that name, as one that the results are written to
        return Dataset("digits", "digits", "digits")
    if exists(as_path(text)):
        return _found_at(text)
    name, named, path = text.partition("=")
    if name not in TITLES and name not in FORMATS:
        raise DataError(f"there is no {'dataset' if named else 'dataset or path'} {name!r}; {_advice(name)}")
    format = _FORMATS.get(name, name)
    if not named:
        raise DataError(f"where is {name}? Give its path, as {name}=PATH; {_origin(format)}")
    if not exists(as_path(path)):
        raise DataError(f"{path}: there is no such file or folder; {_origin(format)}")
    return Dataset(name if name in TITLES else _own_name(path), path, format)


def _found_at(path: str) -> Dataset:
    formats = [reader.name for reader in FORMATS.values() if not is_url(path) and reader.detect(Path(path))]
    for name, format in _FORMATS.items():
        if formats == [format] and Path(path).is_dir():
            return Dataset(name, path, format)
    return Dataset(_own_name(path), path)  # reading it says what is wrong, if anything is


def _own_name(path: str) -> str:
    """The name of a file or folder, but never that of a dataset with settings and published numbers of its own."""
    stem = Path(path).stem
    return f"my-{stem}" if stem in TITLES else stem


def _advice(name: str) -> str:
    near = get_close_matches(name, [*TITLES, *FORMATS], n=1)
    return f"did you mean {near[0]}?" if near else f"name one of {', '.join(TITLES)} as NAME=PATH, or a path"


def _origin(format: str) -> str:
    reader = FORMATS[format]
    return f"it is {reader.layout}, made of {reader.origin}"
