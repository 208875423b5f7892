"""Vectors and texts one by one, from files or from memory: what a model without images predicts."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.data.dialects import blanks_of
from onepair.data.problems import DataError, refuse
from onepair.data.row_names import texts_of
from onepair.data.sheets import file_column, is_sheet, read_sheet
from onepair.data.sources import read_text
from onepair.data.streaming import Row
from onepair.data.vector_files import read_vectors


def vector_rows(given: str | Path | NDArray[Any] | Iterable[Any], width: int, *, alone: bool = True) -> Iterator[Row]:
    """Every single vector: of files, as `read_vectors` opens them, or of arrays (D,) or (N, D); one, or many.

    Those of a file have the names that it gives them, or else their numbers, counted from 0, and if it is not alone
    the file before them.
    """
    if isinstance(given, str | Path):
        vectors = read_vectors(given)
        _require_width(vectors.width, width, str(given))
        for start, block in vectors.blocks():
            for number, vector in enumerate(block, start=start):
                yield Row(_numbered(number, given, alone) if vectors.ids is None else vectors.ids[number], vector)
    elif isinstance(given, np.ndarray):
        if given.ndim not in (1, 2) or given.dtype.kind not in "fiub":
            raise DataError(f"vectors are numbers (D,) or (N, D), not {given.dtype} {given.shape}")
        _require_width(given.shape[-1], width, "the array")
        yield from (Row(None, vector.astype(np.float32)) for vector in np.atleast_2d(given))
    else:
        for each in given:
            yield from vector_rows(each, width, alone=_is_alone(given))


def text_rows(given: str | Path | Iterable[Any], *, alone: bool = True) -> Iterator[Row]:
    """Every single text: a string is one; a path is a file of them, a table with a column text, or lines of .txt.

    Those of a file have the names in its column file or id, or else numbers, as `vector_rows` gives them.
    """
    if isinstance(given, str):
        yield Row(None, given)
    elif isinstance(given, Path):
        yield from _texts_in(given, alone)
    else:
        for each in given:
            yield from text_rows(each, alone=_is_alone(given))


def _is_alone(given: Iterable[Any]) -> bool:
    return not (isinstance(given, Sequence) and len(given) > 1)


def _numbered(number: int, source: str | Path, alone: bool) -> str:
    return str(number) if alone else f"{source}:{number}"


def _texts_in(path: Path, alone: bool) -> Iterator[Row]:
    if path.suffix.lower() == ".txt":
        lines = read_text(path).rstrip("\n").split("\n")
        yield from (Row(_numbered(number, path, alone), line.rstrip("\r")) for number, line in enumerate(lines))
        return
    if not is_sheet(path):
        raise DataError(
            f"{path}: texts are lines of a .txt file, or the column text of a .csv, .parquet or .jsonl table"
        )
    sheet = read_sheet(path, refuse)
    column, named = sheet.find("text"), file_column(sheet.header)
    named = sheet.find("id") if named is None else named
    if column is None:
        raise DataError(f"{path}: has no column text")
    names = [_numbered(number, path, alone) for number in sheet.numbers]
    if named is not None:
        cells = sheet.columns[named]
        blank = blanks_of(cells).tolist()
        names = [name if none else str(cell) for name, cell, none in zip(names, cells, blank, strict=True)]
    yield from map(Row, names, texts_of(sheet.columns[column]))


def _require_width(found: int, width: int, source: str) -> None:
    if found != width:
        raise DataError(f"{source}: has vectors of {found:,} values, and the model was trained on {width:,}")
