"""CUB-200-2011 with its 312 binary attributes as classes."""

from pathlib import Path

import numpy as np

from onepair.data.formats import register_reader
from onepair.data.label_table import LabelTable, Problem, Report, raise_problem
from onepair.data.text_files import exists, read_lines
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Labels
from onepair.words import counted

_SPLITS = {"1": "train", "0": "test"}
_LABELS = {"1": POSITIVE, "0": NEGATIVE}


def detect(path: Path) -> bool:
    """Whether CUB-200-2011 is at `path` or in `CUB_200_2011/` below it."""
    return _root(path) is not None


@register_reader(
    "cub",
    detect=detect,
    description="CUB-200-2011, 312 binary attributes",
    layout="a folder CUB_200_2011 with images.txt, train_test_split.txt, images/ and attributes/",
    origin="CUB_200_2011.tgz from www.vision.caltech.edu/datasets/cub_200_2011",
)
def read(path: Path, *, report: Report = raise_problem) -> LabelTable:
    """Read images.txt, train_test_split.txt and attributes/image_attribute_labels.txt (its field is_present).

    Rows are in the order of images.txt, train and test mixed as there; classes in the order of attributes.txt.
    """
    root = _root(path)
    if root is None:
        raise DataError(f"{path}: no images.txt beside attributes/; give the folder CUB_200_2011")
    images = _numbered(root / "images.txt")
    attributes = _numbered(_attribute_names(root))
    shape = len(images), len(attributes)
    source = root / "attributes" / "image_attribute_labels.txt"
    return LabelTable(
        files=tuple(f"images/{image}" for image in images),
        classes=tuple(attributes),
        labels=LabelMatrix.of(_read_labels(source, shape, report)),
        split=np.array(_read_split(root / "train_test_split.txt", len(images), report)),
        root=root,
    )


def _root(path: Path) -> Path | None:
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


def _read_split(source: Path, images: int, report: Report) -> list[str]:
    values = _numbered(source)
    if len(values) != images:
        raise DataError(
            f"{source}: has {counted(len(values), 'line')} for {counted(images, 'image')}; is the file complete?"
        )
    for number, value in enumerate(values, start=1):
        if value not in _SPLITS:
            what = f"holds {value!r}; expected 1 (train) or 0 (test)"
            report(Problem("bad value", f"{source.name}, line {number}", what))
    return [_SPLITS.get(value, "train") for value in values]


def _read_labels(source: Path, shape: tuple[int, int], report: Report) -> Labels:
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
            if present not in _LABELS:
                report(Problem("bad value", where, f"holds {present!r}; is_present is 1 or 0"))
            labels[row, column] = _LABELS.get(present, UNKNOWN)
            seen[row, column] = True
    for missing in np.flatnonzero(~seen.all(axis=1)):
        what = f"has no line for {(~seen[missing]).sum()} of {shape[1]} attributes of image {missing + 1}"
        report(Problem("missing label", source.name, what))
    return labels
