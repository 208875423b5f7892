"""Image folders of Hugging Face's datasets, with their labels in metadata files."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from onepair.data.formats import register_reader
from onepair.data.label_table import LabelTable, Report, raise_problem
from onepair.data.tables.cell_values import Column, split_of
from onepair.data.tables.read_table import Unlisted, Zeros, interpret
from onepair.data.tables.sheet import Sheet, file_column, is_sheet, read_sheet, stack
from onepair.errors import DataError

_METADATA = ("metadata.jsonl", "metadata.csv", "metadata.parquet", "_classes.csv")  # the last is Roboflow's
_SPLITS = ("train", "training", "val", "valid", "validation", "dev", "test", "testing")


def detect(path: Path) -> bool:
    """Whether there is a metadata file in the folder `path`, or in train/, test/ and the like in it."""
    return bool(_sources(path))


@register_reader(
    "huggingface",
    detect=detect,
    description="an image folder of Hugging Face's datasets, with metadata",
    layout="a folder with metadata.jsonl, .csv or .parquet, or with train/, test/ and others that hold one",
    at_url="folder",
)
def read(
    path: Path,
    *,
    unlisted: Unlisted = "unknown",
    zeros: Zeros = "negative",
    label_columns: Sequence[str] | None = None,
    report: Report = raise_problem,
) -> LabelTable:
    """Read `metadata.jsonl`, `.csv` or `.parquet`: in the folder, or one in each folder that is named after a split.

    A metadata file is a table as any other, with a column `file_name` relative to itself; see
    `onepair.data.tables.read_table`.
    """
    sources = _sources(path)
    if not sources:
        raise DataError(f"{path}: no {', '.join(_METADATA)} in it, nor in train/, validation/ or test/ in it")

    sheets = [_placed(read_sheet(source, report), source.parent.relative_to(path)) for source in sources]
    sheet = stack(sheets, path)
    return interpret(sheet, [path], unlisted=unlisted, zeros=zeros, label_columns=label_columns, report=report)


def _sources(path: Path) -> list[Path]:
    folders = [path, *(path / split for split in _SPLITS)]
    found = (next((folder / name for name in _METADATA if is_sheet(folder / name)), None) for folder in folders)
    return [source for source in found if source is not None]


def _placed(sheet: Sheet, folder: Path) -> Sheet:
    """A sheet with its files and places named from the folder above, and the split that its own folder names."""
    split, column = split_of(folder.name), file_column(sheet.header)
    if column is None:
        raise DataError(f"{sheet.source}: no column named file_name among its columns {', '.join(sheet.header[:5])}")
    files = [(folder / cell).as_posix() if isinstance(cell, str) and cell else cell for cell in sheet.columns[column]]
    header, columns = ["file", *sheet.header], [Column(files), *sheet.columns]
    del header[column + 1], columns[column + 1]
    if split is not None and sheet.find("split") is None:
        header, columns = [*header, "split"], [*columns, Column([split] * len(files))]
    return replace(sheet, header=header, columns=columns, places=[f"{folder / place}" for place in sheet.places])
