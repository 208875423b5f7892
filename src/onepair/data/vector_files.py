"""Files of vectors (.npy, .npz, Parquet, folders of shards), and vectors or texts one by one."""

import hashlib
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from onepair.data.images.blocks import Row
from onepair.data.label_table import Vectors, raise_problem
from onepair.data.tables.sheet import file_column, is_sheet, pyarrow_for, read_sheet
from onepair.data.text_files import exists, read_text
from onepair.errors import DataError, WriteError
from onepair.files import cache_folder, replacing, writing
from onepair.labels import to_numpy
from onepair.remote import PART, RemotePath, as_path, is_url
from onepair.words import counted, listed


def local_copy(path: Path) -> Path:
    """The file itself, or a copy in the user's cache of one at a URL: made once for each version, the last one kept.

    It is read part by part, and no copy is begun that the disk cannot hold.
    """
    if not isinstance(path, RemotePath):
        return path
    try:
        size, version = path.stat().st_size, path.version()
        address, state = (hashlib.sha256(str(each).encode()).hexdigest()[:24] for each in (path, version))
        folder = cache_folder() / "copies" / address
        kept = folder / f"{state}{path.suffix.lower()}"
        if version is not None and size and kept.exists() and kept.stat().st_size == size:
            return kept
        with writing(folder):
            folder.mkdir(parents=True, exist_ok=True)
        if size > (free := shutil.disk_usage(folder).free):
            raise DataError(
                f"{path}: its copy takes {size / 1e9:,.1f} GB in {folder}, and {free / 1e9:,.1f} GB are free; make "
                "room, or set XDG_CACHE_HOME"
            )
        with replacing(kept) as file:
            file.writelines(_parts(path, size))
    except WriteError:
        raise
    except OSError as error:
        raise _not_copied(path, error) from None
    for other in folder.iterdir():
        if other != kept and not other.name.startswith("."):
            other.unlink(missing_ok=True)
    return kept


def _parts(path: RemotePath, size: int) -> Iterator[bytes]:
    try:
        if size == 0:  # a web server need not say
            yield path.read_bytes()
        for start in range(0, size, PART):
            part = path.read_range(start, min(start + PART, size))
            if len(part) < min(PART, size - start):
                raise DataError(f"{path}: ends before its {size:,} bytes; is it complete, and does nobody change it?")
            yield part
    except OSError as error:
        raise _not_copied(path, error) from None


def _not_copied(path: RemotePath, error: OSError) -> DataError:
    return DataError(f"{path}: cannot be read ({error.strerror or error})")


SUFFIXES = (".npy", ".npz", ".parquet")
SHARDS = (".npy", ".parquet")

_NAMES = ("vectors", "features", "embeddings", "vector", "embedding", "X")  # of an array or column, if none is chosen
_IDS = ("ids", "id", "files", "file")  # of what names each vector


class _Part(NamedTuple):
    """What a file holds."""

    values: NDArray[Any]  # (n, D), mapped from the file where it allows that
    ids: list[str] | None


def read_vectors(source: str | Path) -> Vectors:
    """Open vectors: a .npy file, an array of a .npz, a column of a Parquet file, or a folder of such shards.

    Of several arrays or columns, the one called vectors, features, embeddings or X is taken, or the one named after the
    path, as in `clip.npz:image`. Nothing is unpickled. .npy is mapped from the disk; the others are read into memory.
    What is at a URL is copied to the user's cache first, once as long as it does not change.
    """
    path, name = chosen(source)
    if path.is_dir():
        parts = _read_shards(path, name)
    elif path.suffix.lower() in _READERS:
        parts = [_read_file(path, name)]
    elif exists(path):
        raise DataError(f"{path}: vectors are {', '.join(SUFFIXES)}, or a folder of {' or '.join(SHARDS)} shards")
    else:
        raise DataError(f"{path}: there is no such file or folder of vectors")
    named = [part.ids for part in parts if part.ids is not None]
    return Vectors(
        str(source),
        tuple(part.values for part in parts),
        tuple(name for ids in named for name in ids) if len(named) == len(parts) else None,
    )


def chosen(source: str | Path) -> tuple[Path, str | None]:
    """The file, and the array or column of it that is named after a colon."""
    head, colon, name = str(source).rpartition(":")
    is_port = is_url(source) and "/" in name  # or the colon after the scheme
    if colon and name and not is_port and not exists(as_path(source)) and exists(as_path(head)):
        return as_path(head), name
    return as_path(source), None


def _read_file(path: Path, wanted: str | None) -> _Part:
    copy = local_copy(path)
    try:
        return _READERS[path.suffix.lower()](copy, wanted)
    except DataError as error:
        raise DataError(str(error).replace(str(copy), str(path))) from None


def _read_npy(path: Path, wanted: str | None) -> _Part:
    try:
        array: NDArray[Any] = np.lib.format.open_memmap(path, mode="r")
    except Exception as error:  # numpy parses the header with Python's own tokenizer, whose errors are many
        raise DataError(_unreadable(path, error)) from None
    return _Part(_checked(np.asarray(array), path), None)  # a plain view is faster to index than a memmap


def _read_npz(path: Path, wanted: str | None) -> _Part:
    try:
        with path.open("rb") as file, np.load(file, allow_pickle=False) as archive:  # numpy leaves a damaged one open
            name = _pick(archive.files, wanted, path, "array")
            values = archive[name]
            ids = next((archive[each] for each in _IDS if each in archive.files and each != name), None)
    except DataError:
        raise
    except (Exception, MemoryError) as error:  # a damaged archive ends in errors of many kinds
        raise DataError(_unreadable(path, error)) from None
    values = _checked(values, path)
    if ids is not None and ids.shape != (len(values),):
        raise DataError(f"{path}: names {ids.shape} of {counted(len(values), 'vector')}; ids has one name for each")
    return _Part(values, None if ids is None else [str(each) for each in ids.tolist()])


def _read_parquet(path: Path, wanted: str | None) -> _Part:
    pyarrow = pyarrow_for(path)
    try:
        file = pyarrow.parquet.ParquetFile(path, memory_map=True)
        lists = [field.name for field in file.schema_arrow if _is_list_of_numbers(field.type, pyarrow)]
        if not lists:
            raise DataError(f"{path}: has no column of vectors, that is of lists of numbers")
        if wanted is not None and wanted not in lists:
            raise DataError(f"{path}: has no column {wanted} of vectors; there are {', '.join(lists)}")
        name = _pick(lists, wanted, path, "column")
        named = next((each for each in _IDS if each in file.schema_arrow.names and each not in lists), None)
        table = file.read([name] if named is None else [name, named])
        column = table[name].combine_chunks()
        ids = None if named is None else table[named].to_pylist()
        lengths = pyarrow.compute.list_value_length(column).to_numpy(zero_copy_only=False)
        flat = column.flatten().to_numpy(zero_copy_only=False)
    except DataError:
        raise
    except (Exception, MemoryError) as error:  # a damaged file ends in errors of many kinds
        raise DataError(_unreadable(path, error)) from None
    width = lengths[0] if len(lengths) else 0
    if len(lengths) and not (lengths == width).all():
        odd = int(np.argmin(lengths == width))
        got = "no vector" if lengths[odd] != lengths[odd] else f"{int(lengths[odd])} values"
        raise DataError(f"{path}: row {odd} has {got}, and row 0 has {width:g}; all need as many")
    return _Part(
        _checked(flat.reshape(len(lengths), int(width)), path),
        None if ids is None else [str(each) for each in ids],
    )


_READERS: dict[str, Callable[[Path, str | None], _Part]] = {
    ".npy": _read_npy,
    ".npz": _read_npz,
    ".parquet": _read_parquet,
}


def _read_shards(folder: Path, wanted: str | None) -> list[_Part]:
    """The shards of a folder in the order of their names, which must be that of their numbers."""
    files = sorted(each for each in folder.iterdir() if each.suffix.lower() in SHARDS and each.name[0] != ".")
    if not files:
        raise DataError(f"{folder}: holds no shards of vectors, .npy or .parquet")
    kinds = {each.suffix.lower(): each.name for each in files}
    if len(kinds) > 1:
        raise DataError(f"{folder}: holds {' and '.join(kinds.values())}; keep shards of one kind in it")
    for one, other in zip(files, sorted(files, key=_numbers), strict=True):
        if one != other:
            raise DataError(
                f"{folder}: by name {one.name} comes before {other.name}, by number after it; give all numbers as many "
                "digits"
            )
    parts = [_read_file(each, wanted) for each in files]
    for file, part in zip(files, parts, strict=True):
        if part.values.shape[1] != parts[0].values.shape[1]:
            raise DataError(
                f"{file}: has vectors of {part.values.shape[1]:,} values, and {files[0].name} of "
                f"{parts[0].values.shape[1]:,}; shards need the same"
            )
        if (part.ids is None) != (parts[0].ids is None):
            raise DataError(f"{file}: all shards name their vectors, or none; {files[0].name} does otherwise")
    return parts


def _numbers(path: Path) -> list[tuple[int, str]]:
    """What sorts names by the numbers in them: part-2 before part-10."""
    return [(int(each), "") if each.isdecimal() else (-1, each) for each in re.split(r"(\d+)", path.name)]


def _is_list_of_numbers(kind: Any, pyarrow: Any) -> bool:
    types = pyarrow.types
    is_list = types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind)
    return bool(is_list and (types.is_floating(kind.value_type) or types.is_integer(kind.value_type)))


def _pick(names: Sequence[str], wanted: str | None, path: Path, what: str) -> str:
    """The array or column with the vectors."""
    if wanted is not None:
        if wanted not in names:
            raise DataError(f"{path}: has no {what} {wanted}; there are {listed(list(names))}")
        return wanted
    others = [name for name in names if name not in _IDS]
    known = [name for name in _NAMES if name in others]
    if not known and len(others) != 1:
        there = f"there are {listed(others)}" if others else "there is none"
        raise DataError(f"{path}: which {what} holds the vectors? {there}; name it as {path}:{(others or ['X'])[0]}")
    return known[0] if known else others[0]


def _checked(values: NDArray[Any], path: Path) -> NDArray[Any]:
    if values.dtype.kind not in "fiub":
        raise DataError(f"{path}: holds {values.dtype} values; vectors are numbers, as float32")
    if values.ndim != 2:
        raise DataError(f"{path}: holds an array of shape {values.shape}; vectors are rows of one, (rows, width)")
    if 0 in values.shape:
        raise DataError(f"{path}: holds vectors of shape {values.shape}, which is nothing to learn from")
    return values


def _unreadable(path: Path, error: BaseException) -> str:
    if any(words in str(error) for words in ("Object arrays", "Python objects")):  # as numpy says
        return f"{path}: holds Python objects, which are never read; save the vectors as an array of numbers"
    return f"{path}: cannot be read as vectors ({error or type(error).__name__})"


def vector_rows(given: str | Path | NDArray[Any] | Iterable[Any], width: int, *, alone: bool = True) -> Iterator[Row]:
    """Every single vector: of files, as `read_vectors` opens them, or of arrays (D,) or (N, D); one, or many.

    Those of a file have the names that it gives them, or else their numbers, counted from 0, and if it is not alone
    the file before them.
    """
    if hasattr(given, "toarray"):  # of scipy
        given = given.toarray()
    elif hasattr(given, "detach") or hasattr(given, "to_numpy") or _are_numbers(given):
        given = to_numpy(given)
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


def _are_numbers(given: Any) -> bool:
    return isinstance(given, list | tuple) and len(given) > 0 and isinstance(given[0], int | float)


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
    sheet = read_sheet(path, raise_problem)
    column, named = sheet.find("text"), file_column(sheet.header)
    named = sheet.find("id") if named is None else named
    if column is None:
        raise DataError(f"{path}: has no column text")
    names = [_numbered(number, path, alone) for number in sheet.numbers]
    if named is not None:
        cells = sheet.columns[named]
        names = [
            name if blank else str(cell)
            for name, cell, blank in zip(names, cells, cells.is_blank.tolist(), strict=True)
        ]
    yield from map(Row, names, sheet.columns[column].texts)


def _require_width(found: int, width: int, source: str) -> None:
    if found != width:
        raise DataError(f"{source}: has vectors of {found:,} values, and the model was trained on {width:,}")
