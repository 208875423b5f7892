"""NUS-WIDE: the arrays that the published results use, or the official text files."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from onepair.data.formats import register_reader
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.data.text_files import exists, join_splits, read_lines
from onepair.errors import DataError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.words import counted

Content = TypeVar("Content")

_PUBLISHED_SPLITS = {"train": "train", "val": "test"}
_OFFICIAL_SPLITS = {"Train": "train", "Test": "test"}
_IMAGES = "Flickr"  # the folder that both layouts name images in


def detect(path: Path) -> bool:
    """Whether the published arrays or the official lists are in the folder `path`."""
    return _is_published(path) or exists(_image_list(path, "Train"))


@register_reader(
    "nuswide",
    detect=detect,
    description="NUS-WIDE, 81 concepts",
    layout="a folder with Flickr/ and formatted_{train,val}_{images,labels}.npy, "
    "or with Flickr/, ImageList/, ConceptsList/ and Groundtruth/TrainTestLabels/",
    origin="the lists and ground truth of NUS-WIDE from its authors, and the images from Flickr",
)
def read(path: Path, *, report: Report = raise_problem) -> LabelTable:
    """Read NUS-WIDE, rows in the order of its files, images in `Flickr/`.

    Published: `formatted_{train,val}_images.npy` (names) and `formatted_{train,val}_labels.npy` (0 and 1), val as
    "test"; classes are named after `Concepts81.txt` if that is there, else concept_0, concept_1, …
    Official: `ConceptsList/Concepts81.txt`, `ImageList/{Train,Test}Imagelist.txt` and, for every concept,
    `Groundtruth/TrainTestLabels/Labels_<concept>_{Train,Test}.txt`. Where both are there, the published arrays count.
    """
    return _read_published(path, report) if _is_published(path) else _read_official(path, report)


def _is_published(path: Path) -> bool:
    return exists(path / "formatted_train_images.npy")


def _image_list(path: Path, split: str) -> Path:
    return path / "ImageList" / f"{split}Imagelist.txt"


def _image(name: str) -> str:
    return f"{_IMAGES}/" + name.strip().replace("\\", "/")


def _read_published(path: Path, report: Report) -> LabelTable:
    parts = {ours: _read_arrays(path, published, report) for published, ours in _PUBLISHED_SPLITS.items()}
    widths = {labels.shape[1] for _, labels in parts.values()}
    concepts = _concepts(path) or [f"concept_{column}" for column in range(max(widths))]
    if widths != {len(concepts)}:
        raise DataError(f"{path}: {len(concepts)} concepts, but label arrays with {sorted(widths)} columns")
    return join_splits(parts, classes=concepts, root=path)


def _concepts(path: Path) -> list[str] | None:
    sources = (path / "ConceptsList" / "Concepts81.txt", path / "Concepts81.txt")
    source = next((source for source in sources if exists(source)), None)
    return [line for line in read_lines(source) if line] if source else None


def _read_arrays(path: Path, split: str, report: Report) -> tuple[list[str], Labels]:
    source = path / f"formatted_{split}_labels.npy"
    names = _load(path / f"formatted_{split}_images.npy", _names)
    values = _load(source, _matrix)
    if len(names) != len(values):
        raise DataError(f"{source}: has {counted(len(values), 'row')} for {counted(len(names), 'image')}")
    good = (values == POSITIVE) | (values == NEGATIVE)
    for row, column in np.argwhere(~good):
        what = f"holds {values[row, column]}; a label in this file is 1 or 0"
        report(Problem("bad value", f"{source.name}, row {row}, column {column}", what))
    return [_image(name) for name in names], np.where(good, values, UNKNOWN).astype(np.int8)


def _load(source: Path, content: Callable[[NDArray[Any]], Content]) -> Content:
    """What an array of plain values holds. It is mapped, so a wrong header cannot ask for more memory than is there."""
    if not exists(source):
        raise DataError(f"{source}: there is no such file; is the dataset complete?")
    try:
        return content(np.lib.format.open_memmap(source, mode="r"))
    except Exception as error:  # a damaged file ends in errors of many kinds
        raise DataError(
            f"{source}: cannot be read ({error}). Arrays of Python objects are not read, since that can run code from "
            "the file; if you trust it, load it with allow_pickle=True and save array.astype(str) in its place"
        ) from None


def _names(array: NDArray[Any]) -> list[str]:
    if array.ndim != 1 or array.dtype.kind != "U":
        raise ValueError(f"expected the names of images, got shape {array.shape} of {array.dtype}")
    return [str(name) for name in array.tolist()]


def _matrix(array: NDArray[Any]) -> NDArray[Any]:
    if array.ndim != 2 or array.shape[1] == 0 or array.dtype.kind not in "biuf":
        raise ValueError(f"expected labels, images by concepts, got shape {array.shape} of {array.dtype}")
    return np.array(array)


def _read_official(path: Path, report: Report) -> LabelTable:
    concepts = _concepts(path)
    if not concepts:
        raise DataError(f"{path}: no concepts in ConceptsList/Concepts81.txt, and no formatted_train_images.npy")
    parts = {ours: _read_lists(path, official, concepts, report) for official, ours in _OFFICIAL_SPLITS.items()}
    return join_splits(parts, classes=concepts, root=path)


def _read_lists(path: Path, split: str, concepts: list[str], report: Report) -> tuple[list[str], Labels]:
    files = [_image(line) for line in read_lines(_image_list(path, split))]
    folder = path / "Groundtruth" / "TrainTestLabels"
    columns = [_read_concept(folder / f"Labels_{concept}_{split}.txt", len(files), report) for concept in concepts]
    return files, np.stack(columns, axis=1)


def _read_concept(source: Path, images: int, report: Report) -> Labels:
    lines = np.array(read_lines(source), dtype=np.str_)
    if len(lines) != images:
        raise DataError(
            f"{source}: has {counted(len(lines), 'line')} for {counted(images, 'image')}; is the file complete?"
        )
    labels = np.select([lines == "1", lines == "0"], [POSITIVE, NEGATIVE], UNKNOWN).astype(np.int8)
    for line in np.flatnonzero(labels == UNKNOWN):
        what = f"holds {str(lines[line])!r}; a label in this file is 1 or 0"
        report(Problem("bad value", f"{source.name}, line {line + 1}", what))
    return labels
