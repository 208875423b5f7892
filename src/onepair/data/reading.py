"""Which dataset formats there are, and which of them a path holds."""

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any

from onepair.data import coco, cub, nuswide, table, voc
from onepair.data.labeltable import LabelTable
from onepair.data.problems import DataError, Report, refuse
from onepair.data.sources import exists
from onepair.data.table import Unlisted


@dataclass(frozen=True)
class Reader:
    """A dataset format: what it is, where to get it, how to know it and how to read it."""

    name: str
    description: str
    layout: str  # what must be at the path
    origin: str  # what to download
    detect: Callable[[Path], bool]
    read: Callable[..., LabelTable]  # read(path, *, report, **options)
    options: tuple[str, ...] = ()  # of `read_dataset`, those that `read` takes


def _is_digits(path: Path) -> bool:
    return path == Path("digits") and not exists(path)


def _read_digits(path: Path, *, report: Report = refuse) -> LabelTable:
    embedded: LabelTable = import_module("onepair.data.digits").read_digits()
    return embedded


FORMATS = {
    reader.name: reader
    for reader in (
        Reader(
            name="table",
            description="your own images, with labels in a CSV or Parquet file",
            layout="a .csv, .tsv or .parquet file with a column file, and a column per class or a column labels",
            origin="nothing",
            detect=table.detect,
            read=table.read,
            options=("unlisted", "images"),
        ),
        Reader(
            name="coco",
            description="COCO 2014, or one file of COCO-style instance annotations",
            layout="a folder with annotations/instances_{train,val}2014.json, train2014/ and val2014/; or a .json file",
            origin="annotations_trainval2014.zip, train2014.zip and val2014.zip from cocodataset.org",
            detect=coco.detect,
            read=coco.read,
            options=("images",),
        ),
        Reader(
            name="voc",
            description="PASCAL VOC classification, 20 classes",
            layout="a folder with VOCdevkit/VOC2012, that folder itself, or one with ImageSets/Main and JPEGImages",
            origin="VOCtrainval_11-May-2012.tar from host.robots.ox.ac.uk/pascal/VOC/voc2012",
            detect=voc.detect,
            read=voc.read,
        ),
        Reader(
            name="nuswide",
            description="NUS-WIDE, 81 concepts",
            layout="a folder with Flickr/ and formatted_{train,val}_{images,labels}.npy, "
            "or with Flickr/, ImageList/, ConceptsList/ and Groundtruth/TrainTestLabels/",
            origin="the lists and ground truth of NUS-WIDE from its authors, and the images from Flickr",
            detect=nuswide.detect,
            read=nuswide.read,
        ),
        Reader(
            name="cub",
            description="CUB-200-2011, 312 binary attributes",
            layout="a folder CUB_200_2011 with images.txt, train_test_split.txt, images/ and attributes/",
            origin="CUB_200_2011.tgz from www.vision.caltech.edu/datasets/cub_200_2011",
            detect=cub.detect,
            read=cub.read,
        ),
        Reader(
            name="digits",
            description="scenes of handwritten digits, embedded in the package",
            layout="the word digits in place of a path",
            origin="nothing",
            detect=_is_digits,
            read=_read_digits,
        ),
    )
}


def read_dataset(
    source: str | Path,
    *,
    format: str = "auto",
    unlisted: Unlisted = "unknown",
    images: str | Path | None = None,
    report: Report = refuse,
) -> LabelTable:
    """Read a dataset in any of the `FORMATS`.

    Args:
        source: a path, or "digits" for the embedded dataset.
        format: a name in `FORMATS`, or "auto" to tell it by the layout of the files.
        unlisted: what a class is that a table's list of labels leaves out: "unknown" or "negative".
        images: the folder that the file names of a table or of COCO annotations are relative to.
        report: called with every problem in the label files; the default stops at the first one, and a list's
            `append` collects them all.

    Raises:
        DataError: a sentence that says what is wrong, where, and what to do.
    """
    path = Path(source)
    reader = _recognise(path) if format == "auto" else _named(format)
    options: dict[str, Any] = {"unlisted": unlisted, "images": None if images is None else Path(images)}
    return reader.read(path, report=report, **{name: options[name] for name in reader.options})


def _recognise(path: Path) -> Reader:
    fitting = [reader for reader in FORMATS.values() if reader.detect(path)]
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = " and ".join(reader.name for reader in fitting)
        raise DataError(f"{path}: has the layout of {names}; name the format that you mean")
    if not exists(path):
        raise DataError(f"{path}: there is no such file or folder")
    layouts = "".join(f"\n  {reader.name}: {reader.layout}" for reader in FORMATS.values())
    raise DataError(f"{path}: is not in a layout that can be recognised; looked for{layouts}")


def _named(name: str) -> Reader:
    if name in FORMATS:
        return FORMATS[name]
    near = get_close_matches(name, FORMATS, n=2, cutoff=0.5)
    advice = f"did you mean {' or '.join(near)}?" if near else f"there are auto, {', '.join(FORMATS)}"
    raise DataError(f"there is no dataset format {name!r}; {advice}")
