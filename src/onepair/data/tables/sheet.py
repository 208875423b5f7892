"""Files as columns of cells: CSV of every kind, Parquet, JSON Lines, and Excel."""

import codecs
import csv
import io
import json
import re
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path, PurePath
from typing import Any, NamedTuple

from onepair.data.images.decode import SUFFIXES as IMAGES
from onepair.data.label_table import Problem, Report
from onepair.data.tables.cell_values import Column, is_blank, unguard
from onepair.data.text_files import LARGEST, check_rows, exists, read_bytes
from onepair.errors import DataError, require_extra
from onepair.words import counted

SAMPLE = 1000  # cells by which a column is known
SUFFIXES = (".csv", ".tsv", ".parquet", ".jsonl", ".xlsx")

_FILE_NAMES = {  # without spaces, - and _
    *("image", "img", "photo", "picture", "path", "fname", "url", "uri", "src"),
    *(f"{what}{name}" for what in ("file", "image", "img", "photo") for name in ("name", "path", "file", "id", "url")),
    *("datei", "dateiname", "dateipfad", "bild", "bilddatei", "bildname", "foto", "fotodatei", "pfad"),
    *("archivo", "nombredearchivo", "fichero", "imagen", "ruta", "fichier", "nomdefichier", "immagine", "nomefile"),
}
_MARKS = {codecs.BOM_UTF8: "utf-8", codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
_DELIMITERS = ",;\t|"
_LONGEST_HEADER = 1_000_000
PLACES = b"onepair.places"  # in a Parquet file: where its rows were in the table that it was made from
_TITLES = 5  # lines that may be above the header, and it
_UNNAMED = re.compile(r"Unnamed: \d+")  # what pandas calls a column without a name
_DECLARED = re.compile(r"sep=([,;\t|])\r?\n", re.IGNORECASE)  # the line by which a spreadsheet is told the separator


@dataclass
class Sheet:
    """A file as columns of cells: texts from CSV; numbers, texts, lists or None from the others."""

    source: Path
    header: list[str]
    columns: Sequence[Column]
    places: list[str]  # of each row, for example "labels.csv, line 7"
    numbers: list[int]  # of each row, how many stood before it in the file, those that were left out among them
    total: int  # rows of the file
    origins: Sequence[int] = ()  # of each column, its place in the file

    def __post_init__(self) -> None:
        self.origins = self.origins or range(len(self.header))
        self._position = {title.lower(): i for i, title in reversed(list(enumerate(self.header)))}

    def where(self, row: int, column: int) -> str:
        return f"{self.places[row]}, column {self.header[column] or column + 1}"

    def bad(self, kind: str, row: int, column: int, what: str) -> Problem:
        """Return a problem of a cell, with what it holds and what is wrong about that."""
        return Problem(kind, self.where(row, column), f"holds {self.columns[column][row]!r}{what}")

    def remark(self, kind: str, column: int, what: str) -> Problem:
        """Return a remark on a column."""
        return Problem(kind, f"{self.source.name}, column {self.header[column] or column + 1}", what, remark=True)

    def find(self, name: str) -> int | None:
        """Return the first column of that name, in lower or upper case."""
        return self._position.get(name)


def is_sheet(path: Path) -> bool:
    """Whether `path` is a file named .csv, .tsv, .parquet, .jsonl or .xlsx."""
    return path.suffix.lower() in SUFFIXES and exists(path)


def read_sheet(path: Path, report: Report) -> Sheet:
    """Read a file by its suffix, without the rows and columns at its end that hold nothing."""
    suffix = path.suffix.lower()
    if suffix == ".parquet":
        sheet = _read_parquet(path)
    elif suffix == ".xlsx":
        sheet = _read_xlsx(path, report)
    else:
        text = _read_text(path, report)
        sheet = _read_lines(path, text, report) if suffix == ".jsonl" else _read_csv(path, text, report)
    return _without_unnamed_blanks(sheet)


def plain_title(name: str) -> str:
    """Return a column's name in lower case without spaces, - and _.

    >>> plain_title("File_Name")
    'filename'
    """
    return re.sub(r"[\s_-]", "", name).lower()


def file_column(header: Sequence[str]) -> int | None:
    """Which column names the files, by its name: file, else the only or the first one called image, path and so on.

    Of several, a URL is the last to be taken.

    >>> file_column(["cat", "File"]), file_column(["", "File name", "cat"]), file_column(["cat", "dog"])
    (1, 1, None)
    >>> file_column(["Nr", "Datei", "Notiz"])
    1
    """
    names = list(map(plain_title, header))
    if "file" in names:
        return names.index("file")
    fitting = [i for i, name in enumerate(names) if name in _FILE_NAMES]
    fitting = [i for i in fitting if names[i][-3:] not in ("url", "uri")] or fitting
    return fitting[0] if len(fitting) == 1 or fitting[:1] == [0] else None


def names_images(cells: Sequence[Any]) -> bool:
    """Whether all that a column holds are names of image files.

    >>> names_images(["a.jpg", "", "https://x.org/b.PNG?size=9"]), names_images(["a.jpg", "dog"]), names_images([])
    (True, False, False)
    """
    names = [cell for cell in cells[:SAMPLE] if not is_blank(cell)]
    return bool(names) and all(isinstance(name, str) and _is_image(name) for name in names)


def _is_image(name: str) -> bool:
    return PurePath(name.strip().partition("?")[0]).suffix.lower() in IMAGES


def row_column(header: Sequence[str]) -> int | None:
    """Which column tells rows apart: that of files, else one called id, else one called text.

    >>> row_column(["text", "id", "cat"]), row_column(["text", "cat"]), row_column(["cat", "dog"])
    (1, 0, None)
    """
    names = [name.strip().lower() for name in header]
    others = (names.index(name) for name in ("id", "text") if name in names)
    found = file_column(header)
    return next(others, None) if found is None else found


def stack(sheets: Sequence[Sheet], source: Path) -> Sheet:
    """One sheet under the other; columns that one of them lacks are blank there."""
    header = list(dict.fromkeys(name for sheet in sheets for name in sheet.header))
    columns = []
    starts = [sum(sheet.total for sheet in sheets[:i]) for i in range(len(sheets) + 1)]
    for name in header:
        found = [(sheet, sheet.header.index(name) if name in sheet.header else None) for sheet in sheets]
        cells = ([None] * len(sheet.places) if i is None else sheet.columns[i].cells for sheet, i in found)
        columns.append(Column(list(chain.from_iterable(cells))))
    places = [place for sheet in sheets for place in sheet.places]
    numbers = [start + number for start, sheet in zip(starts, sheets, strict=False) for number in sheet.numbers]
    return Sheet(source, header, columns, places, numbers, starts[-1])


def pyarrow_for(path: Path) -> Any:
    """The library, imported only where a Parquet file asks for it."""
    try:
        import pyarrow.parquet
    except ImportError:
        raise DataError(f"{path}: Parquet needs pyarrow; install it, or use CSV") from None
    return pyarrow


def encoding_of(path: Path, content: bytes) -> tuple[str, str]:
    """The encoding of a text: UTF-8, UTF-16 or that of Windows in Western Europe; of the last, why it is not UTF-8.

    The text has its byte order mark, if there is one, so that encoding it gives the same bytes.
    """
    encoding = next((each for mark, each in _MARKS.items() if content.startswith(mark)), None)
    if encoding is None and len(content) > 1 and 0 in content[:2]:  # the first letter in UTF-16
        encoding = "utf-16-le" if content[1] == 0 else "utf-16-be"
    try:
        content.decode(encoding or "utf-8")
        return encoding or "utf-8", ""
    except UnicodeDecodeError as error:
        where = f"byte {error.start} is not {(encoding or 'utf-8').upper()} text"
    try:
        if encoding is not None:
            raise ValueError("its byte order mark says otherwise")
        content.decode("cp1252")
        return "cp1252", where
    except ValueError:
        raise DataError(f"{path}: {where}; save the file as UTF-8") from None


def _read_text(path: Path, report: Report) -> str:
    """The text of a file without its byte order mark, its line ends untouched."""
    content = read_bytes(path)
    check_rows(path, max(content.count(b"\n"), content.count(b"\r")), "lines")
    encoding, why = encoding_of(path, content)
    if why:
        report(Problem("encoding", path.name, f"{why}; read as that of Windows (cp1252)", remark=True))
    return content.decode(encoding).removeprefix("\ufeff")


class CsvLayout(NamedTuple):
    """How a text is separated into cells, and where its header is."""

    delimiter: str
    start: int  # of the header, in characters
    skipped: int  # lines above it


def csv_layout(text: str) -> CsvLayout:
    """Return the layout of a text without a byte order mark: as it declares, or as its first lines look."""
    declared = _DECLARED.match(text)
    if declared:
        return CsvLayout(declared[1], declared.end(), 1)
    delimiter, above = _layout(text)
    lines = io.StringIO(text, newline="")
    return CsvLayout(delimiter, sum(len(lines.readline()) for _ in range(above)), above)


def _read_csv(path: Path, text: str, report: Report) -> Sheet:
    delimiter, start, skipped = csv_layout(text)
    text, name = text[start:], path.name
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    try:
        header = [unguard(name).strip() for name in next(rows, [])]
        if file_column(header) is None and any(map(_is_image, header)):
            raise DataError(
                f"{path}: begins with an image; write a line above it that names the columns, as file,labels"
            )
        places, cells, numbers = [], [], []
        line, number, total = rows.line_num + 1, -1, 0
        for row in rows:
            place, line, holds_any = f"{name}, line {line + skipped}", rows.line_num + 1, any(row)
            number += 1 if row else 0
            if not holds_any:
                continue
            total = number + 1
            while len(row) > len(header) and not row[-1].strip():
                del row[-1]
            if len(row) == len(header):
                places.append(place)
                cells.append(row)
                numbers.append(number)
            else:
                what = f"has {counted(len(row), 'cell')} for {counted(len(header), 'column')}"
                advice = f"; a cell with {delimiter!r} in it needs quotes" if len(row) > len(header) else ""
                report(Problem("bad line", place, what + advice))
    except csv.Error as error:
        raise DataError(f"{path}, line {rows.line_num + skipped}: is not CSV ({error})") from None
    columns: list[Sequence[str]] = list(zip(*cells, strict=True)) or [()] * len(header)
    if "'" in text:
        columns = [[unguard(cell) for cell in column] for column in columns]
    return Sheet(path, header, list(map(Column, columns)), places, numbers, total)


def _layout(text: str) -> tuple[str, int]:
    """The separator of a text without quotes around its first lines, and how many of these are above the header.

    That is the first line with a column of files by its name, below titles and blank lines alone; the comma is tried
    first. Where no name says it, the header is the first line that is no title, with the separator that it has most of.
    """
    starts = {each: _first_rows(text[:_LONGEST_HEADER], each) for each in _DELIMITERS}
    for delimiter, rows in starts.items():
        for row, line in rows:
            if row_column(row) is not None:
                return delimiter, line
            if sum(map(bool, map(str.strip, row))) > 1:  # no title, so it is the header or no table
                break
    for nth in range(_TITLES):
        separated = {each: found[nth] for each, found in starts.items() if nth < len(found)}
        delimiter = max(separated, key=lambda each: len(separated[each][0]), default=",")
        if separated and len(separated[delimiter][0]) > 1:
            return delimiter, separated[delimiter][1]
    return ",", 0


def _first_rows(text: str, delimiter: str) -> list[tuple[list[str], int]]:
    """A few rows of a text, and how many lines are above each."""
    rows = csv.reader(io.StringIO(text, newline=""), delimiter=delimiter, strict=True)
    found: list[tuple[list[str], int]] = []
    try:
        while len(found) < _TITLES:
            line = rows.line_num
            found.append((next(rows), line))
    except (csv.Error, StopIteration):
        pass
    return found


def _read_lines(path: Path, text: str, report: Report) -> Sheet:
    """JSON Lines: an object on each line."""
    places, objects, numbers, total = [], [], [], 0
    for number, line in enumerate(text.split("\n"), start=1):
        if not line.strip():
            continue
        total += 1
        place = f"{path.name}, line {number}"
        try:
            found = json.loads(line)
        except (ValueError, RecursionError):
            found = None
        if isinstance(found, dict):
            places.append(place)
            objects.append(found)
            numbers.append(total - 1)
        else:
            report(Problem("bad line", place, "is no JSON object, as {...}"))
    header = list(dict.fromkeys(key for found in objects for key in found))
    columns = [Column([found.get(key) for found in objects]) for key in header]
    return Sheet(path, [key.strip() for key in header], columns, places, numbers, total)


def _read_parquet(path: Path) -> Sheet:
    content, pyarrow = read_bytes(path), pyarrow_for(path)
    try:
        file = pyarrow.parquet.ParquetFile(io.BytesIO(content))
        check_rows(path, file.metadata.num_rows)
        table = file.read()
        columns = [Column(column.to_pylist()) for column in table.columns]
    except DataError:
        raise
    except Exception as error:  # a damaged file ends in errors of many kinds
        raise DataError(f"{path}: is not a Parquet file that can be read ({error})") from None
    names = [name.strip() for name in table.column_names]
    rows, kept = list(range(table.num_rows)), (table.schema.metadata or {}).get(PLACES, b"")
    places = kept.decode(errors="replace").split("\n")
    if not kept or len(places) != len(rows):
        places = [f"{path.name}, row {row + 1}" for row in rows]
    return Sheet(path, names, columns, places, rows, len(rows))


def openpyxl_for(path: Path, content: bytes) -> Any:
    """The library, imported only where an Excel file asks for it that memory will hold."""
    require_extra("xlsx")
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as parts:
            if sum(part.file_size for part in parts.infolist()) > LARGEST:
                raise DataError(f"{path}: is larger than {LARGEST // 10**6:,} MB when unpacked; cut it into several")
    except zipfile.BadZipFile:
        what = "is encrypted, or no .xlsx file" if content[:4] == b"\xd0\xcf\x11\xe0" else "is no .xlsx file"
        raise DataError(f"{path}: {what}; save it anew in the program that made it, without a password") from None
    import openpyxl

    return openpyxl


def _read_xlsx(path: Path, report: Report) -> Sheet:
    """The first worksheet that holds anything: values, not formulas."""
    content = read_bytes(path)
    openpyxl = openpyxl_for(path, content)
    try:
        book = openpyxl.load_workbook(io.BytesIO(content), read_only=True, data_only=True)
        sheets = {each.title: _worksheet_rows(path, each) for each in book.worksheets}
    except DataError:
        raise
    except Exception as error:  # a damaged file ends in errors of many kinds
        raise DataError(f"{path}: is not an Excel file that can be read ({error})") from None
    filled = [title for title, rows in sheets.items() if rows]
    if not filled:
        raise DataError(f"{path}: holds no table")
    if len(filled) > 1:
        what = f"has {counted(len(filled), 'worksheet')}; read is the first, {filled[0]}"
        report(Problem("worksheets", path.name, what, remark=True))
    rows = sheets[filled[0]]
    above = _titles_above([row for _, row in rows[:_TITLES]])
    header = ["" if cell is None else str(cell).strip() for cell in rows[above][1]]
    below, first = rows[above + 1 :], rows[above][0] + 1
    columns = [Column([row[i] if i < len(row) else None for _, row in below]) for i in range(len(header))]
    _tell_of_formulas(path, openpyxl, content, filled[0], header, [row[0] for row in below], columns, report)
    numbers = [number - first for number, _ in below]
    places = [f"{path.name}, row {number}" for number, _ in below]
    return Sheet(path, header, columns, places, numbers, numbers[-1] + 1 if numbers else 0)


def _tell_of_formulas(
    path: Path,
    openpyxl: Any,
    content: bytes,
    title: str,
    header: Sequence[str],
    numbers: Sequence[int],
    columns: Sequence[Column],
    report: Report,
) -> None:
    """Say which columns hold formulas that no spreadsheet program has computed; that of files is needed."""
    blank = [i for i, name in enumerate(header) if name and columns[i].is_blank.all()]
    if not (blank and numbers):
        return
    page = openpyxl.load_workbook(io.BytesIO(content), read_only=True)[title]
    (first,) = page.iter_rows(min_row=numbers[0], max_row=numbers[0], values_only=True)
    for i in blank:
        if i < len(first) and str(first[i]).startswith("="):
            what = "holds formulas without values; open it in a spreadsheet program, and save it"
            if i == file_column(header):
                raise DataError(f"{path}, column {header[i]}: {what}")
            report(Problem("formulas", f"{path.name}, column {header[i]}", what, remark=True))


def _worksheet_rows(path: Path, worksheet: Any) -> list[tuple[int, Sequence[Any]]]:
    """The rows that hold anything, each with its number from 1."""
    rows = []
    for number, row in enumerate(worksheet.iter_rows(values_only=True), start=1):
        if any(cell is not None and str(cell).strip() for cell in row):
            rows.append((number, row))
            check_rows(path, len(rows))
    return rows


def _titles_above(rows: Sequence[Sequence[Any]]) -> int:
    """How many rows are above the header: titles, before the first row with a column of files or more than one cell."""
    filled = [[str(cell) for cell in row if cell is not None] for row in rows]
    named = (i for i, row in enumerate(filled) if row_column(row) is not None or len(row) > 1)
    return next(named, 0)


def _without_unnamed_blanks(sheet: Sheet) -> Sheet:
    names = ["" if _UNNAMED.fullmatch(name) else name for name in sheet.header]
    kept = [i for i, name in enumerate(names) if name or not sheet.columns[i].is_blank.all()]
    return replace(
        sheet,
        header=[names[i] for i in kept],
        columns=[sheet.columns[i] for i in kept],
        origins=[sheet.origins[i] for i in kept],
    )
