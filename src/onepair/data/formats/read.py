"""Which dataset formats there are, and which of them a path holds."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from importlib import import_module
from pathlib import Path
from typing import Any, Literal

from onepair.data.formats import coco, cub, huggingface, nuswide, voc, webdataset
from onepair.data.formats import image_folders as folders
from onepair.data.formats import label_studio as labelstudio
from onepair.data.label_table import LabelTable
from onepair.data.problems import DataError, Report, refuse
from onepair.data.tables import read_table as table
from onepair.data.tables.cell_values import split_of
from onepair.data.tables.read_table import Unlisted, Zeros
from onepair.data.tables.sheet import is_sheet
from onepair.data.text_files import exists
from onepair.data.vectors.vector_files import read_vectors
from onepair.remote import as_path, is_remote


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
    last: bool = False  # whether other layouts have parts that look the same, so that those come first
    at_url: Literal["file", "folder", "either"] | None = None  # what of it may be at a URL


_SPREADSHEETS = (".xlsx", ".xls", ".ods", ".numbers")
_COMPRESSED = (".gz", ".tgz", ".bz2", ".xz", ".zst", ".zip", ".7z")


def _is_digits(path: Path) -> bool:
    return path == Path("digits") and not exists(path)


def _read_digits(path: Path, *, report: Report = refuse) -> LabelTable:
    embedded: LabelTable = import_module("onepair.data.formats.digits").read_digits()
    return embedded


FORMATS = {
    reader.name: reader
    for reader in (
        Reader(
            name="table",
            description="your own images, with labels in a CSV or Parquet file",
            layout="a .csv, .tsv, .txt, .parquet or .jsonl file with a column file, and one per class or one labels",
            origin="nothing",
            detect=table.detect,
            read=table.read,
            options=("unlisted", "zeros", "images", "label_columns", "with_vectors"),
            at_url="file",
        ),
        Reader(
            name="coco",
            description="COCO 2014, or instance annotations in the same form, as of Label Studio and CVAT",
            layout="a folder with annotations/instances_{train,val}2014.json, train2014/ and val2014/; a .json file; "
            "or a folder with annotations/instances_{default,train,val,test}.json",
            origin="annotations_trainval2014.zip, train2014.zip and val2014.zip from cocodataset.org",
            detect=coco.detect,
            read=coco.read,
            options=("unlisted", "images"),
            at_url="file",
        ),
        Reader(
            name="label-studio",
            description="Label Studio's own JSON: choices and labelled regions",
            layout="a .json file with a list of tasks, and the images beside it or in images/",
            origin="Export, JSON, in a project of Label Studio; and the images",
            detect=labelstudio.detect,
            read=labelstudio.read,
            options=("unlisted", "images"),
            at_url="file",
        ),
        Reader(
            name="huggingface",
            description="an image folder of Hugging Face's datasets, with metadata",
            layout="a folder with metadata.jsonl, .csv or .parquet, or with train/, test/ and others that hold one",
            origin="nothing",
            detect=huggingface.detect,
            read=huggingface.read,
            options=("unlisted", "zeros", "label_columns"),
            at_url="folder",
        ),
        Reader(
            name="folders",
            description="one label per image: a folder of images per class",
            layout="a folder with two or more folders of images, or with those in train/, val/ and test/",
            origin="nothing",
            detect=folders.detect,
            read=folders.read,
            options=("unlisted",),
            last=True,
            at_url="folder",
        ),
        Reader(
            name="webdataset",
            description="WebDataset's tar shards: images, each with a .json, .cls or .txt of its labels",
            layout="a .tar file, a pattern as 'train-{000000..000009}.tar', or a folder of such shards, perhaps in "
            "train/, val/ and test/",
            origin="nothing",
            detect=webdataset.detect,
            read=webdataset.read,
            options=("unlisted",),
            last=True,
            at_url="either",
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
    zeros: Zeros = "negative",
    images: str | Path | None = None,
    label_columns: Sequence[str] | None = None,
    complete_splits: Sequence[str] = (),
    features: str | Path | None = None,
    report: Report = refuse,
) -> LabelTable:
    """Read a dataset in any of the `FORMATS`.

    Args:
        source: a path, a URL, or "digits" for the embedded dataset.
        format: a name in `FORMATS`, or "auto" to tell it by the layout of the files.
        unlisted: what a class is that is not listed for an image, where labels are lists: "unknown" or "negative".
        zeros: what a 0 of a table is: "negative", or "unknown" where it means no more than "not tagged".
        images: the folder that the file names of a table or of annotations are relative to.
        label_columns: of a table, the columns of classes or the one with lists; by default they are recognised.
        complete_splits: splits whose images are labelled completely: what is unknown there is negative.
        features: vectors of all rows, as `read_vectors` opens them; the rows of a table then need no files.
        report: called with every problem in the label files; the default stops at the first one, and a list's
            `append` collects them all. Some are only remarks, which stop nobody.

    Raises:
        DataError: a sentence that says what is wrong, where, and what to do.
    """
    path = as_path(source)
    reader = recognise(path, format)
    options: dict[str, Any] = {
        "unlisted": unlisted,
        "zeros": zeros,
        "images": None if images is None else as_path(images),
        "label_columns": label_columns or None,
        "with_vectors": features is not None,
    }
    for option, unsaid in (("images", None), ("label_columns", None), ("zeros", "negative")):
        if options[option] != unsaid and option not in reader.options:
            raise DataError(f"{path}: is read as {reader.name}, which takes no {option}")
    found = reader.read(path, report=report, **{name: options[name] for name in reader.options})
    found = _completed(found, complete_splits, path) if complete_splits else found
    if features is None:
        return found
    vectors = read_vectors(features).of_table(found.files, found.numbered, str(path))
    return replace(found, vectors=vectors, ids=True)


def _completed(table: LabelTable, splits: Sequence[str], path: Path) -> LabelTable:
    """The table with what is unknown in some splits as negative."""
    labels = table.labels
    for name in splits:
        split = split_of(name)
        if split is None or split not in table.split:
            there = ", ".join(dict.fromkeys(table.split.tolist()))
            raise DataError(f"{path}: has no split {name} that could be complete; there are {there}")
        labels = labels.with_unknown_negative(table.rows(split))
    return replace(table, labels=labels)


def recognise(path: Path, format: str = "auto") -> Reader:
    """What reads a path: what the format names, or what fits the layout; or a sentence that nothing does."""
    if format != "auto":
        return _named(format)
    possible: Iterable[Reader] = FORMATS.values()
    if is_remote(path):  # each look is a question to the server
        possible = [each for each in possible if each.at_url in ("file" if path.suffix else "folder", "either")]
    fitting = [reader for reader in possible if reader.detect(path)]
    fitting = [reader for reader in fitting if not reader.last] or fitting
    if len(fitting) == 1:
        return fitting[0]
    if fitting:
        names = " and ".join(reader.name for reader in fitting)
        raise DataError(f"{path}: has the layout of {names}; name the format that you mean")
    if not exists(path):
        wild = path.suffix.lower() == ".tar" and set("*?[{") & set(path.name)
        advice = "; several shards are a folder, or a pattern as {train,val}-{000..009}.tar" if wild else ""
        raise DataError(f"{path}: there is no such file or folder{advice}")
    if path.suffix.lower() in _COMPRESSED and not path.is_dir():
        raise DataError(f"{path}: is compressed; unpack it, or of a .tar.gz only the .gz, and give what comes out")
    if path.suffix.lower() in _SPREADSHEETS:
        raise DataError(f"{path}: is a spreadsheet; save it as CSV in the program that made it, and give that file")
    if not path.is_dir():
        raise DataError(f"{path}: is no file of labels; onepair datasets lists what can be read")
    entries = sorted(path.iterdir())
    inside = [each.name for each in entries if is_sheet(each) or coco.detect(each) or labelstudio.detect(each)]
    if inside:
        advice = ", or say --format folders for a class per folder" if len(folders.classes_in(path)) > 1 else ""
        raise DataError(f"{path}: is a folder with {', '.join(inside[:5])}; give the label file{advice}")
    if image := next(folders.images_below(path), None):
        raise DataError(
            f"{path}: holds images and no labels; write a table beside them with a line for each that has labels, as "
            f"labels.csv with the lines file,labels and {image.relative_to(path)},dog;sofa"
        )
    layouts = "".join(f"\n  {reader.name}: {reader.layout}" for reader in FORMATS.values())
    raise DataError(f"{path}: is not in a layout that can be recognised; looked for{layouts}")


def _named(name: str) -> Reader:
    if name in FORMATS:
        return FORMATS[name]
    near = get_close_matches(name, FORMATS, n=2, cutoff=0.5)
    advice = f"did you mean {' or '.join(near)}?" if near else f"there are auto, {', '.join(FORMATS)}"
    raise DataError(f"there is no dataset format {name!r}; {advice}")
