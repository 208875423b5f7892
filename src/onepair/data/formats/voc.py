"""PASCAL VOC classification, in the layout of the official archives."""

from pathlib import Path

import numpy as np

from onepair.data.formats import register_reader
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.data.text_files import exists, join_splits, read_lines
from onepair.errors import DataError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.words import counted

# fmt: off
CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)

# fmt: on
YEARS = range(2007, 2013)

_OFFICIAL_SPLITS = {"train": "train", "val": "test"}
_LABELS = {"1": POSITIVE, "0": NEGATIVE, "-1": NEGATIVE}  # 0: all objects of the class are marked difficult


def detect(path: Path) -> bool:
    """Whether there is a VOC year at `path` or below it."""
    return bool(_years(path))


@register_reader(
    "voc",
    detect=detect,
    description="PASCAL VOC classification, 20 classes",
    layout="a folder with VOCdevkit/VOC2012, that folder itself, or one with ImageSets/Main and JPEGImages",
    origin="VOCtrainval_11-May-2012.tar from host.robots.ox.ac.uk/pascal/VOC/voc2012",
)
def read(path: Path, *, report: Report = raise_problem) -> LabelTable:
    """Read `ImageSets/Main/<class>_{train,val}.txt` of one VOC year.

    Rows: the official train images as "train", then the official val images as "test", each sorted by file name.
    Classes: the 20 official ones in alphabetical order. Positive is what the files mark 1; 0 (only difficult objects)
    and -1 are negative.
    """
    root = _one_year(path)
    parts = {ours: _read_split(root, official, report) for official, ours in _OFFICIAL_SPLITS.items()}
    return join_splits(parts, classes=CLASSES, root=root)


def _years(path: Path) -> list[Path]:
    below = [parent / f"VOC{year}" for parent in (path, path / "VOCdevkit") for year in YEARS]
    return [folder for folder in (path, *below) if exists(folder / "ImageSets" / "Main")]


def _one_year(path: Path) -> Path:
    years = _years(path)
    if not years:
        raise DataError(f"{path}: no ImageSets/Main in it; give the folder of a VOC year, as VOCdevkit/VOC2012")
    if len(years) > 1:
        raise DataError(f"{path}: holds {' and '.join(year.name for year in years)}; give the path of one of them")
    return years[0]


def _read_split(root: Path, split: str, report: Report) -> tuple[list[str], Labels]:
    sources = [root / "ImageSets" / "Main" / f"{name}_{split}.txt" for name in CLASSES]
    columns = [_read_class(source, report) for source in sources]
    files = sorted(set().union(*columns))
    for source, column in zip(sources, columns, strict=True):
        absent = [file for file in files if file not in column]
        if absent:
            what = (
                f"has no line for {counted(len(absent), 'image')} that other classes list, the first being {absent[0]}"
            )
            report(Problem("missing label", source.name, what))
    labels = [[column.get(file, UNKNOWN) for column in columns] for file in files]
    return files, np.array(labels, np.int8).reshape(-1, len(CLASSES))


def _read_class(source: Path, report: Report) -> dict[str, int]:
    """The label of every file that a class lists."""
    column: dict[str, int] = {}
    for number, line in enumerate(read_lines(source), start=1):
        where, fields = f"{source.name}, line {number}", line.split()
        if len(fields) != 2:
            report(Problem("bad line", where, f"holds {line!r}; a line is the name of an image and 1, 0 or -1"))
            continue
        file, value = f"JPEGImages/{fields[0]}.jpg", fields[1]
        if file in column:
            report(Problem("duplicate", where, f"lists {fields[0]} again"))
            continue
        if value not in _LABELS:
            report(Problem("bad value", where, f"holds {value!r}; a VOC label is 1, 0 or -1"))
        column[file] = _LABELS.get(value, UNKNOWN)
    return column
