"""Datasets of research in the layouts of their authors: NUS-WIDE, PASCAL VOC and CUB."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from onepair.data.formats import register_reader
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.data.text_files import exists, join_splits, read_lines
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.words import counted

Content = TypeVar("Content")

_PUBLISHED_SPLITS = {"train": "train", "val": "test"}
_NUSWIDE_SPLITS = {"Train": "train", "Test": "test"}
_IMAGES = "Flickr"  # the folder that both layouts name images in


def detect_nuswide(path: Path) -> bool:
    """Whether the published arrays or the official lists are in the folder `path`."""
    return _is_published(path) or exists(_image_list(path, "Train"))


@register_reader(
    "nuswide",
    detect=detect_nuswide,
    description="NUS-WIDE, 81 concepts",
    layout="a folder with Flickr/ and formatted_{train,val}_{images,labels}.npy, "
    "or with Flickr/, ImageList/, ConceptsList/ and Groundtruth/TrainTestLabels/",
    origin="the lists and ground truth of NUS-WIDE from its authors, and the images from Flickr",
)
def read_nuswide(path: Path, *, report: Report = raise_problem) -> LabelTable:
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
    parts = {ours: _read_lists(path, official, concepts, report) for official, ours in _NUSWIDE_SPLITS.items()}
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


# fmt: off
VOC_CLASSES = (
    "aeroplane", "bicycle", "bird", "boat", "bottle", "bus", "car", "cat", "chair", "cow",
    "diningtable", "dog", "horse", "motorbike", "person", "pottedplant", "sheep", "sofa", "train", "tvmonitor",
)

# fmt: on
VOC_YEARS = range(2007, 2013)

_VOC_SPLITS = {"train": "train", "val": "test"}
_VOC_LABELS = {"1": POSITIVE, "0": NEGATIVE, "-1": NEGATIVE}  # 0: all objects of the class are marked difficult


def detect_voc(path: Path) -> bool:
    """Whether there is a VOC year at `path` or below it."""
    return bool(_years(path))


@register_reader(
    "voc",
    detect=detect_voc,
    description="PASCAL VOC classification, 20 classes",
    layout="a folder with VOCdevkit/VOC2012, that folder itself, or one with ImageSets/Main and JPEGImages",
    origin="VOCtrainval_11-May-2012.tar from host.robots.ox.ac.uk/pascal/VOC/voc2012",
)
def read_voc(path: Path, *, report: Report = raise_problem) -> LabelTable:
    """Read `ImageSets/Main/<class>_{train,val}.txt` of one VOC year.

    Rows: the official train images as "train", then the official val images as "test", each sorted by file name.
    Classes: the 20 official ones in alphabetical order. Positive is what the files mark 1; 0 (only difficult objects)
    and -1 are negative.
    """
    root = _one_year(path)
    parts = {ours: _read_voc_split(root, official, report) for official, ours in _VOC_SPLITS.items()}
    return join_splits(parts, classes=VOC_CLASSES, root=root)


def _years(path: Path) -> list[Path]:
    below = [parent / f"VOC{year}" for parent in (path, path / "VOCdevkit") for year in VOC_YEARS]
    return [folder for folder in (path, *below) if exists(folder / "ImageSets" / "Main")]


def _one_year(path: Path) -> Path:
    years = _years(path)
    if not years:
        raise DataError(f"{path}: no ImageSets/Main in it; give the folder of a VOC year, as VOCdevkit/VOC2012")
    if len(years) > 1:
        raise DataError(f"{path}: holds {' and '.join(year.name for year in years)}; give the path of one of them")
    return years[0]


def _read_voc_split(root: Path, split: str, report: Report) -> tuple[list[str], Labels]:
    sources = [root / "ImageSets" / "Main" / f"{name}_{split}.txt" for name in VOC_CLASSES]
    columns = [_read_voc_class(source, report) for source in sources]
    files = sorted(set().union(*columns))
    for source, column in zip(sources, columns, strict=True):
        absent = [file for file in files if file not in column]
        if absent:
            what = (
                f"has no line for {counted(len(absent), 'image')} that other classes list, the first being {absent[0]}"
            )
            report(Problem("missing label", source.name, what))
    labels = [[column.get(file, UNKNOWN) for column in columns] for file in files]
    return files, np.array(labels, np.int8).reshape(-1, len(VOC_CLASSES))


def _read_voc_class(source: Path, report: Report) -> dict[str, int]:
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
        if value not in _VOC_LABELS:
            report(Problem("bad value", where, f"holds {value!r}; a VOC label is 1, 0 or -1"))
        column[file] = _VOC_LABELS.get(value, UNKNOWN)
    return column


_CUB_SPLITS = {"1": "train", "0": "test"}
_CUB_LABELS = {"1": POSITIVE, "0": NEGATIVE}


def detect_cub(path: Path) -> bool:
    """Whether CUB-200-2011 is at `path` or in `CUB_200_2011/` below it."""
    return _cub_root(path) is not None


@register_reader(
    "cub",
    detect=detect_cub,
    description="CUB-200-2011, 312 binary attributes",
    layout="a folder CUB_200_2011 with images.txt, train_test_split.txt, images/ and attributes/",
    origin="CUB_200_2011.tgz from www.vision.caltech.edu/datasets/cub_200_2011",
)
def read_cub(path: Path, *, report: Report = raise_problem) -> LabelTable:
    """Read images.txt, train_test_split.txt and attributes/image_attribute_labels.txt (its field is_present).

    Rows are in the order of images.txt, train and test mixed as there; classes in the order of attributes.txt.
    """
    root = _cub_root(path)
    if root is None:
        raise DataError(f"{path}: no images.txt beside attributes/; give the folder CUB_200_2011")
    images = _numbered(root / "images.txt")
    attributes = _numbered(_attribute_names(root))
    shape = len(images), len(attributes)
    source = root / "attributes" / "image_attribute_labels.txt"
    return LabelTable(
        files=tuple(f"images/{image}" for image in images),
        classes=tuple(attributes),
        labels=LabelMatrix.of(_read_cub_labels(source, shape, report)),
        split=np.array(_read_cub_split(root / "train_test_split.txt", len(images), report)),
        root=root,
    )


def _cub_root(path: Path) -> Path | None:
    folders = (path, path / "CUB_200_2011", path / "CUB_200_2011" / "CUB_200_2011")
    return next((each for each in folders if exists(each / "images.txt") and exists(each / "attributes")), None)


def _attribute_names(root: Path) -> Path:
    """attributes.txt: the archive has it beside the dataset's folder, copies often have it inside."""
    places = (root / "attributes", root, root.parent, root.parent.parent)
    found = (place / "attributes.txt" for place in places if exists(place / "attributes.txt"))
    return next(found, root / "attributes" / "attributes.txt")


def _numbered(source: Path) -> list[str]:
    """The texts of lines that are numbered 1, 2, 3, …: the numbers that the other files refer to."""
    texts = []
    for number, line in enumerate(read_lines(source), start=1):
        fields = line.split(maxsplit=1)
        if len(fields) != 2 or fields[0] != str(number):
            raise DataError(f"{source}, line {number}: holds {line!r}; expected the number {number} and a text")
        texts.append(fields[1])
    if not texts:
        raise DataError(f"{source}: is empty")
    return texts


def _read_cub_split(source: Path, images: int, report: Report) -> list[str]:
    values = _numbered(source)
    if len(values) != images:
        raise DataError(
            f"{source}: has {counted(len(values), 'line')} for {counted(images, 'image')}; is the file complete?"
        )
    for number, value in enumerate(values, start=1):
        if value not in _CUB_SPLITS:
            what = f"holds {value!r}; expected 1 (train) or 0 (test)"
            report(Problem("bad value", f"{source.name}, line {number}", what))
    return [_CUB_SPLITS.get(value, "train") for value in values]


def _read_cub_labels(source: Path, shape: tuple[int, int], report: Report) -> Labels:
    """Read lines of image, attribute, is_present and more. Cells without a good line are unknown."""
    labels = np.full(shape, UNKNOWN, np.int8)
    seen = np.zeros(shape, bool)
    rows, columns = ({str(i + 1): i for i in range(size)} for size in shape)
    for number, line in enumerate(read_lines(source), start=1):
        if not line:
            continue
        image, attribute, present, *_ = *line.split(maxsplit=3), "", "", ""
        row, column = rows.get(image), columns.get(attribute)
        where = f"{source.name}, line {number}"
        if row is None or column is None:
            what = f"holds {line!r}; expected an image from 1 to {shape[0]} and an attribute from 1 to {shape[1]}"
            report(Problem("bad line", where, what))
        elif seen[row, column]:
            report(Problem("duplicate", where, f"gives attribute {attribute} of image {image} again"))
        else:
            if present not in _CUB_LABELS:
                report(Problem("bad value", where, f"holds {present!r}; is_present is 1 or 0"))
            labels[row, column] = _CUB_LABELS.get(present, UNKNOWN)
            seen[row, column] = True
    for missing in np.flatnonzero(~seen.all(axis=1)):
        what = f"has no line for {(~seen[missing]).sum()} of {shape[1]} attributes of image {missing + 1}"
        report(Problem("missing label", source.name, what))
    return labels
