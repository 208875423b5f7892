"""The configuration of a run of an experiment, and its datasets."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal

from onepair.data import READERS
from onepair.data.text_files import exists, real
from onepair.errors import DataError
from onepair.experiments.records import Row, Values
from onepair.remote import as_path, is_url
from onepair.runs.config import STAGES, Config, merge, nested, resolve_config
from onepair.runs.presets import preset, preset_titles

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
    onepair.errors.DataError: there is no dataset 'voc2021'; did you mean voc2012?
    """
    if text == "digits":  # also beside a folder of that name, as one that the results are written to
        return Dataset("digits", "digits", "digits")
    if exists(as_path(text)):
        return _found_at(text)
    name, named, path = text.partition("=")
    if name not in TITLES and name not in READERS:
        raise DataError(f"there is no {'dataset' if named else 'dataset or path'} {name!r}; {_advice(name)}")
    format = _FORMATS.get(name, name)
    if not named:
        raise DataError(f"where is {name}? Give its path, as {name}=PATH; {_origin(format)}")
    if not exists(as_path(path)):
        raise DataError(f"{path}: there is no such file or folder; {_origin(format)}")
    return Dataset(name if name in TITLES else _own_name(path), path, format)


def _found_at(path: str) -> Dataset:
    formats = [reader.name for reader in READERS.values() if not is_url(path) and reader.detect(Path(path))]
    for name, format in _FORMATS.items():
        if formats == [format] and Path(path).is_dir():
            return Dataset(name, path, format)
    return Dataset(_own_name(path), path)  # reading it says what is wrong, if anything is


def _own_name(path: str) -> str:
    """The name of a file or folder, but never that of a dataset with settings and published numbers of its own."""
    stem = Path(path).stem
    return f"my-{stem}" if stem in TITLES else stem


def _advice(name: str) -> str:
    near = get_close_matches(name, [*TITLES, *READERS], n=1)
    return f"did you mean {near[0]}?" if near else f"name one of {', '.join(TITLES)} as NAME=PATH, or a path"


def _origin(format: str) -> str:
    reader = READERS[format]
    return f"it is {reader.layout}, made of {reader.origin}"


Mode = Literal["linear", "finetune", "linear-init"]
OBSERVE = {"single": "single-positive", "full": "given", "fraction": "fraction"}  # by the labels of a row

PAPER = "resnet50.tv_in1k"  # the backbone, where no preset names one


@dataclass(frozen=True)
class Overrides:
    """Settings that win over those of a dataset's preset."""

    mode: Mode = "finetune"
    backbone: str | None = None
    epochs: int | None = None
    others: Sequence[Mapping[str, Any]] = ()  # nested settings, as of `parse_setting`


def make_config(
    dataset: Dataset, row: Row, values: Values, *, seed: int, overrides: Overrides, epochs: int | None = None
) -> Config:
    """The configuration of one run.

    Args:
        dataset, row: what is learned from what, with the settings of its preset, if there is one.
        values: options of the method, `lr` and other settings that win over those, as one point of a grid.
        seed: of the run; that of the observed labels is the published one.
        overrides: win over everything.
        epochs: of the experiment, where it has a number of its own.
    """
    settings = [nested(name, value) for name, value in values.items() if "." in name]
    options = {name: value for name, value in values.items() if name != "lr" and "." not in name}
    mode = "linear-init" if row.linear_init else overrides.mode
    chosen: dict[str, Any] = {
        "data": {
            "source": dataset.source,
            "format": dataset.format,
            "observe": OBSERVE[row.labels],
        },
        "model": {"mode": mode},
        "method": {"name": row.method, "options": options},
        "seed": seed,
    }
    if overrides.backbone is not None:
        chosen["model"]["backbone"] = overrides.backbone
    last: dict[str, Any] = {}
    if "lr" in values:
        last["optimiser"] = {"lr": values["lr"]}
    if length := overrides.epochs or epochs:
        last["epochs"] = length
    below = preset(dataset.name, row.method) if dataset.name in TITLES else {"model": {"backbone": PAPER}}
    below = merge([{"linear": {"protocol": "epochs"}}, below])
    return resolve_config(below, merge([chosen, {STAGES[mode][-1]: last}, *settings, *overrides.others]))
