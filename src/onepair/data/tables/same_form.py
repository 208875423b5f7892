"""A table with more labels in it, in the form that its owner gave it: what nobody answered stays, byte by byte."""

import io
import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from onepair.data.label_table import LabelTable
from onepair.data.tables.cell_values import Column, guard, is_blank, relist, unguard
from onepair.data.tables.read_table import Rows, image_folders, row_roles
from onepair.data.tables.sheet import csv_layout, encoding_of, openpyxl_for, pyarrow_for, read_sheet
from onepair.data.text_files import read_bytes
from onepair.errors import DataError
from onepair.label_matrix import LabelMatrix
from onepair.labels import NEGATIVE, POSITIVE, Indices

_OPPOSITE = {  # how a table that writes positives so writes negatives
    **{"1.0": "0.0", "1,0": "0,0", "true": "false", "t": "f", "yes": "no", "y": "n", "✓": "✗", "✔": "✘"},
    **{"wahr": "falsch", "vrai": "faux", "vero": "falso", "verdadero": "falso", "ja": "nein", "oui": "non"},
    **{"si": "no", "sí": "no", "sì": "no"},
}
_KEY, _COLON = re.compile(r'[\s,]*"'), re.compile(r"^\s*:\s*")


class Said(NamedTuple):
    """What people said of a label."""

    row: int  # of the `LabelTable`
    name: str  # of the class, which the table need not have
    label: int


@dataclass
class _Edits:
    """What changes in a sheet, by its rows and columns."""

    cells: dict[tuple[int, int], Any] = field(default_factory=dict)
    columns: dict[str, dict[int, Any]] = field(default_factory=lambda: defaultdict(dict))  # new ones, cells by row
    rows: dict[int, list[dict[int | str, Any]]] = field(default_factory=lambda: defaultdict(list))
    """New ones, by the row above them: copies of that one, but for some cells, by the column or a new one's name."""
    glue: str = ";"  # between two names, where no list of the table has two
    unsaid: int = 0  # negatives that the form has no place for

    def __bool__(self) -> bool:
        return bool(self.cells or self.columns or self.rows)


class SameForm(NamedTuple):
    """The bytes of a completed table, and how many negative labels its form cannot say."""

    content: bytes
    unsaid: int


def complete_same(
    source: Path,
    table: LabelTable,
    said: Sequence[Said],
    *,
    asked: LabelMatrix | None = None,
    images: Path | None = None,
    label_columns: Sequence[str] | None = None,
) -> SameForm:
    """Add to the file of a table what people said, and change nothing else in it.

    Columns, rows, separators, quotes, line ends, encoding and byte order mark stay as they are; where nothing is new,
    the bytes are the same. A positive label becomes a name at the end of the row's list, or the word for yes that the
    column has. A negative one becomes the word for no; a list only loses the name, and cannot say more, unless there is
    a column negatives. Of an image with several rows, all are completed; of a table with a row per label, rows are
    added. A class that the table does not have becomes a column at its end, an image that it does not list a row.

    Args:
        source: the file: CSV of any kind, JSON Lines, Parquet or Excel.
        table: what was read from it, and perhaps images after those, which it does not list.
        said: the answers; those that the table says already change nothing.
        asked: which labels are known because a model suggested them, for a table with a column asked.
        images, label_columns: as for `read_dataset`.

    Raises:
        DataError: the file is no longer what the table was read from, or its encoding lacks a letter.
    """
    content = read_bytes(source)
    sheet = read_sheet(source, lambda problem: None)
    rows = row_roles(
        sheet,
        image_folders(source, images),
        label_columns=label_columns,
        with_vectors=table.vectors is not None,
        report=lambda problem: None,
    )
    listed = len(rows.images.names)
    if rows.images.names != list(zip(table.files[:listed], table.split[:listed].tolist(), strict=True)):
        raise DataError(f"{source}: has changed while it was read; run the command again")
    edits = _edits(rows, table, said, asked, glue=_new_glue(source, content))
    if not edits:
        return SameForm(content, edits.unsaid)
    render = {".parquet": _render_parquet, ".jsonl": _render_lines, ".xlsx": _render_xlsx}
    return SameForm(render.get(source.suffix.lower(), _render_csv)(source, content, rows, edits), edits.unsaid)


# What changes


def _new_glue(source: Path, content: bytes) -> str:
    """What comes between two names where no list of the table has two: not what comes between its columns."""
    if source.suffix.lower() in (".parquet", ".jsonl", ".xlsx"):
        return ";"
    text = content.decode(encoding_of(source, content)[0]).removeprefix("\ufeff")
    return ", " if csv_layout(text).delimiter == ";" else ";"


def _edits(rows: Rows, table: LabelTable, said: Sequence[Said], asked: LabelMatrix | None, *, glue: str) -> _Edits:
    edits, position = _Edits(glue=glue), {name: column for column, name in enumerate(table.classes)}
    new = [
        each
        for each in dict.fromkeys(said)
        if each.name not in position or int(table.labels[each.row, position[each.name]]) != each.label
    ]
    order = np.argsort(rows.images.of_row, kind="stable")
    bounds = np.searchsorted(rows.images.of_row[order], np.arange(len(table) + 1))
    by_row: dict[int, list[Said]] = defaultdict(list)
    for each in new:
        by_row[each.row].append(each)
    spellings: dict[str, set[str]] = defaultdict(set)
    for other, name in table.aliases.items():
        spellings[name].add(other)
    there = {*rows.sheet.header} if rows.lists is None else {name for names in rows.lists for name in names or ()}
    own_name = {
        name: next(iter(sorted(spelled & there)), name) for name, spelled in spellings.items() if name not in there
    }
    spellings |= {own: spellings[name] for name, own in own_name.items()}
    form: _Wide | _Long | _Lists
    if rows.lists is None:
        form = _Wide(rows, edits, spellings)
    elif rows.is_long and (rows.columns.value is not None or _has_rows_per_label(rows)):
        form = _Long(rows, edits, spellings)
    else:
        form = _Lists(rows, edits, spellings)
    for image, answers in by_row.items():
        answers = [each._replace(name=own_name.get(each.name, each.name)) for each in answers]
        if image >= len(rows.images.names):
            _add_rows(rows, edits, table.files[image], form.new(answers))
            continue
        own = order[bounds[image] : bounds[image + 1]]
        form.add(own, answers)
        if rows.columns.asked is not None and asked is not None:
            names = {table.classes[i] for i in np.flatnonzero(asked[image] == POSITIVE) if i < len(table.classes)}
            _edit_list(rows, edits, rows.columns.asked, own, names, exactly=True)
    return edits


def _has_rows_per_label(rows: Rows) -> bool:
    """Whether rows of one image have different labels; a row that is there twice has the same."""
    lists = rows.lists or []
    said = {(image, *(lists[row] or ())) for row, image in enumerate(rows.images.of_row.tolist()) if lists[row]}
    return len(said) > len({image for image, *_ in said})


_Cells = dict[int | str, Any]  # of a new row, by the column or the name of a new one


def _add_rows(rows: Rows, edits: _Edits, file: str, found: Sequence[_Cells]) -> None:
    """Rows of an image at the end of the table, blank but for its name and its labels."""
    names = rows.sheet.columns[rows.columns.file or 0]
    windows = any("\\" in str(cell) for cell in names) and not any("/" in str(cell) for cell in names)
    blank: _Cells = dict.fromkeys(range(len(rows.sheet.header)))
    name = file.replace("/", "\\") if windows else file
    edits.rows[len(rows.sheet.places) - 1] += [{**blank, rows.columns.file or 0: name, **cells} for cells in found]


class _Wide:
    """A column per class."""

    def __init__(self, rows: Rows, edits: _Edits, spellings: Mapping[str, set[str]]) -> None:
        self.edits, self.spellings, sheet = edits, spellings, rows.sheet
        self.column_of = {sheet.header[i]: i for i in rows.columns.classes}
        self.columns = sheet.columns
        self.words = _Words([sheet.columns[i] for i in rows.columns.classes])

    def add(self, own: Indices, answers: Sequence[Said]) -> None:
        for _, name, label in answers:
            column = self.column_of.get(name)
            for row in own.tolist():
                if column is None:
                    self.edits.columns[name][row] = self.words.of(label, None)
                    continue
                others = [i for other in self.spellings.get(name, ()) if (i := self.column_of.get(other)) is not None]
                wrong = [i for i in others if label == NEGATIVE and self.columns[i].labels[row] == POSITIVE]
                for i in (column, *wrong):
                    if self.columns[i].labels[row] != label:
                        self.edits.cells[row, i] = self.words.of(label, self.columns[i])

    def new(self, answers: Sequence[Said]) -> list[_Cells]:
        columns = {name: self.column_of.get(name) for _, name, _ in answers}
        for name in (name for name, column in columns.items() if column is None):
            self.edits.columns[name]
        cells: _Cells = {}
        for _, name, label in answers:
            column = columns[name]
            if column is None:
                cells[name] = self.words.of(label, None)
            else:
                cells[column] = self.words.of(label, self.columns[column])
        return [cells]


class _Lists:
    """A list of names per row."""

    def __init__(self, rows: Rows, edits: _Edits, spellings: Mapping[str, set[str]]) -> None:
        self.rows, self.edits, self.spellings = rows, edits, spellings

    def add(self, own: Indices, answers: Sequence[Said]) -> None:
        columns = self.rows.columns
        yes = {each.name for each in answers if each.label == POSITIVE}
        no = {each.name for each in answers if each.label == NEGATIVE}
        _edit_list(self.rows, self.edits, columns.names or 0, own, yes, without=self._spelled(no))
        if columns.negatives is not None:
            _edit_list(self.rows, self.edits, columns.negatives, own, no, without=self._spelled(yes))
        else:
            listed = {name for row in own.tolist() for name in (self.rows.lists or [])[row] or ()}
            self.edits.unsaid += sum(not self._spelled({name}) & listed for name in no)

    def new(self, answers: Sequence[Said]) -> list[_Cells]:
        names = sorted(each.name for each in answers if each.label == POSITIVE)
        denied = sorted(each.name for each in answers if each.label == NEGATIVE)
        columns, cells = self.rows.columns, _Cells()
        if names:
            cells[columns.names or 0] = _list_like(self.rows.sheet.columns[columns.names or 0], names, self.edits.glue)
        if denied and columns.negatives is not None:
            cells[columns.negatives] = _list_like(self.rows.sheet.columns[columns.negatives], denied, self.edits.glue)
        elif denied:
            self.edits.unsaid += len(denied)
        return [cells] if cells else []

    def _spelled(self, names: set[str]) -> set[str]:
        return names.union(*(self.spellings.get(name, set()) for name in names))


class _Long:
    """A row per label, with as many for an image as it has labels."""

    def __init__(self, rows: Rows, edits: _Edits, spellings: Mapping[str, set[str]]) -> None:
        self.rows, self.edits, self.spellings = rows, edits, spellings
        self.names, self.value = rows.columns.names or 0, rows.columns.value
        self.words = None if self.value is None else _Words([rows.sheet.columns[self.value]])

    def add(self, own: Indices, answers: Sequence[Said]) -> None:
        lists = self.rows.lists or []
        blank = [row for row in own.tolist() if lists[row] == []]
        for _, name, label in answers:
            spelled = {name, *self.spellings.get(name, ())}
            there = [row for row in own.tolist() if spelled & set(lists[row] or ())]
            cells: _Cells = {self.names: name}
            if self.value is not None and self.words is not None:
                cells[self.value] = word = self.words.of(label, self.rows.sheet.columns[self.value])
                self.edits.cells |= {(row, self.value): word for row in there}
            elif label == NEGATIVE:
                self.edits.cells |= {(row, self.names): "" for row in there}
                self.edits.unsaid += not there
                continue
            if not there and blank:
                row = blank.pop(0)
                self.edits.cells |= {(row, column): cell for column, cell in cells.items() if isinstance(column, int)}
            elif not there:
                self.edits.rows[int(own[-1])].append(cells)

    def new(self, answers: Sequence[Said]) -> list[_Cells]:
        if self.value is not None and self.words is not None:
            column = self.rows.sheet.columns[self.value]
            return [{self.names: name, self.value: self.words.of(label, column)} for _, name, label in answers]
        self.edits.unsaid += sum(each.label == NEGATIVE for each in answers)
        return [{self.names: each.name} for each in answers if each.label == POSITIVE]


class _Words:
    """How the cells of some columns say that a label is there, or that it is not."""

    def __init__(self, columns: Sequence[Column]) -> None:
        self._columns = columns
        self._cache: dict[tuple[int, int], Any] = {}

    def of(self, label: int, column: Column | None) -> Any:
        """As a column says it, else as the others do, else as fits the opposite."""
        key = id(column), label
        if key not in self._cache:
            mine = [] if column is None else [column]
            for columns, of_label in ((mine, label), (self._columns, label), (self._columns, 1 - label)):
                if (word := _most_common(columns, of_label)) is not None:
                    self._cache[key] = word if of_label == label else _opposite(word, label)
                    break
            else:
                self._cache[key] = str(label)
        return self._cache[key]


def _most_common(columns: Sequence[Column], label: int) -> Any:
    times: Counter[Any] = Counter()
    for column in columns:
        times.update(column[row] for row in np.flatnonzero(column.labels == label).tolist())
    return times.most_common(1)[0][0] if times else None


def _opposite(word: Any, label: int) -> Any:
    """A cell of the other label in the same manner.

    >>> _opposite("TRUE", 0), _opposite("Ja", 0), _opposite("x", 0), _opposite(1.0, 0), _opposite("no", 1)
    ('FALSE', 'Nein', '0', 0.0, 'yes')
    """
    if not isinstance(word, str):
        return type(word)(label)
    plain = word.strip().lower()
    pairs = _OPPOSITE if label == NEGATIVE else {no: yes for yes, no in reversed(_OPPOSITE.items())}
    found = pairs.get(plain, str(label))
    return found.upper() if len(plain) > 1 and word.isupper() else found.title() if word.istitle() else found


# Lists of names


def _edit_list(
    rows: Rows,
    edits: _Edits,
    column: int,
    own: Indices,
    names: Set[str],
    *,
    without: Set[str] = frozenset(),
    exactly: bool = False,
) -> None:
    """Add names to the lists of some rows, and take others away; exactly: so that there are no others."""
    cells = rows.sheet.columns[column]
    for row in own.tolist():
        before = cells.lists[row]
        if before is None:  # no list, which is left to its owner
            continue
        kept = [name for name in before if name in names or not (exactly or name in without)]
        added = sorted(names - set(before))
        if added or len(kept) < len(before):
            edits.cells[row, column] = relist(cells[row], kept, added, cells.glue or edits.glue)


def _list_like(column: Column, names: list[str], glue: str) -> Any:
    """A list as a column writes them."""
    like = next((cell for cell in column if not is_blank(cell)), "")
    return relist(like[:0] if isinstance(like, list) else like, [], names, column.glue or glue)


# Files


def _render_csv(source: Path, content: bytes, rows: Rows, edits: _Edits) -> bytes:
    encoding, _ = encoding_of(source, content)
    text = content.decode(encoding)
    mark = text[: len(text) - len(text.removeprefix("\ufeff"))]
    text = text.removeprefix("\ufeff")
    delimiter, start, _ = csv_layout(text)
    header, *records = _records(text, start, delimiter)
    sheet, width = rows.sheet, len(header.fields)
    by_number = {number: row for row, number in enumerate(sheet.numbers)}
    pieces, at = [mark], 0

    def replace(start: int, end: int, new: str) -> None:
        nonlocal at
        pieces.extend((text[at:start], new))
        at = end

    def quoted(new: str, like: str) -> str:
        needs = like.startswith('"') or set('"\r\n') & set(new) or delimiter in new
        return '"{}"'.format(new.replace('"', '""')) if needs else new

    def cell(row: int, column: int, raw: str, new: Any) -> str:
        if new is None:
            return quoted("", raw)
        held = _unquoted(raw)
        if unguard(held) != sheet.columns[column][row]:
            raise DataError(f"{sheet.places[row]}: cannot be completed in its form; use --as csv")
        is_list = column in (rows.columns.names, rows.columns.negatives, rows.columns.asked)
        return quoted(guard(str(new)) if is_list and held == guard(unguard(held)) else str(new), raw)

    if edits.columns:
        like = text[slice(*header.fields[-1])]
        titles = (quoted(guard(name), like) for name in edits.columns)
        replace(header.fields[-1][1], header.fields[-1][1], "".join(f"{delimiter}{title}" for title in titles))
    columns_of = defaultdict[int, list[int]](list)
    for row, column in edits.cells:
        columns_of[row].append(column)
    for number, record in enumerate(records):
        row = by_number.get(number, -1)
        if row < 0:
            continue
        raws = [text[begin:end] for begin, end in record.fields]
        for column in sorted(columns_of.get(row, ()), key=sheet.origins.__getitem__):
            place = sheet.origins[column]
            replace(*record.fields[place], cell(row, column, raws[place], edits.cells[row, column]))
        if edits.columns:
            new = (str(cells.get(row, "")) for cells in edits.columns.values())
            end = record.fields[width - 1][1]
            replace(end, end, "".join(f"{delimiter}{quoted(each, raws[width - 1])}" for each in new))
        if row in edits.rows:
            own_end = text[record.fields[-1][1] : record.end]
            line_end = own_end or text[header.fields[-1][1] : header.end]
            added = []
            for cells in edits.rows[row]:
                copied = list(raws)
                for key, new in cells.items():
                    if isinstance(key, int):
                        place = sheet.origins[key]
                        copied[place] = cell(row, key, raws[place], new)
                copied[width:width] = (quoted(str(cells.get(name, "")), raws[width - 1]) for name in edits.columns)
                added.append(delimiter.join(copied))
            lines = (line + line_end if own_end else line_end + line for line in added)
            replace(record.end, record.end, "".join(lines))
    try:
        return "".join([*pieces, text[at:]]).encode(encoding)
    except UnicodeEncodeError as error:
        letter = error.object[error.start]
        raise DataError(
            f"{source}: is in {encoding}, which has no {letter!r}; save it as UTF-8, or use --as csv"
        ) from None


class _Record(NamedTuple):
    """Where a record of a CSV text is."""

    fields: list[tuple[int, int]]
    end: int  # with the end of its line


def _records(text: str, start: int, delimiter: str) -> Iterator[_Record]:
    """The records of a CSV text as `csv.reader` takes them, without lines that hold nothing at all."""
    token = re.compile(
        rf'(?:"[^"]*(?:""[^"]*)*"|[^"\r\n{re.escape(delimiter)}][^\r\n{re.escape(delimiter)}]*|)'
        rf"({re.escape(delimiter)}|\r\n|\r|\n|\Z)"
    )
    fields: list[tuple[int, int]] = []
    at = start
    while at < len(text) or fields:
        found = token.match(text, at)
        if found is None:  # which the reader has refused
            raise DataError("is not CSV")
        fields.append((at, found.start(1)))
        at = found.end()
        if found[1] != delimiter:
            if len(fields) > 1 or fields[0][0] < fields[0][1] or not at:
                yield _Record(fields, at)
            fields = []


def _unquoted(raw: str) -> str:
    """What a field of a CSV text says.

    >>> _unquoted('"a ""b"" c"'), _unquoted('5" nail')
    ('a "b" c', '5" nail')
    """
    return raw[1:-1].replace('""', '"') if raw.startswith('"') else raw


def _render_lines(source: Path, content: bytes, rows: Rows, edits: _Edits) -> bytes:
    encoding, _ = encoding_of(source, content)
    lines, sheet = content.decode(encoding).split("\n"), rows.sheet
    filled = [i for i, line in enumerate(lines) if line.removeprefix("\ufeff").strip()]
    changes: dict[int, dict[str, Any]] = defaultdict(dict)
    for (row, column), new in edits.cells.items():
        changes[row][sheet.header[column]] = new
    for name, cells in edits.columns.items():
        for row, new in cells.items():
            changes[row][name] = new
    for row in changes.keys() | edits.rows.keys():
        i = filled[sheet.numbers[row]]
        above, line = lines[i], lines[i].removeprefix("\ufeff")
        added = [
            {sheet.header[column] if isinstance(column, int) else column: new for column, new in cells.items()}
            for cells in edits.rows.get(row, ())
        ]
        lines[i] = "\n".join(
            [_with_members(above, changes.get(row, {})), *(_with_members(line, cells) for cells in added)]
        )
    return "\n".join(lines).encode(encoding)


def _with_members(line: str, changes: Mapping[str, Any]) -> str:
    """A JSON object with other values for some of its keys; all else stays as it is written.

    >>> _with_members('{"file":"a.jpg", "labels" : ["dog"] }', {"labels": ["dog", "cat"], "sofa": 1})
    '{"file":"a.jpg", "labels" : ["dog", "cat"], "sofa": 1 }'
    """
    decoder, left, values = json.JSONDecoder(), dict(changes), []
    at = line.index("{") + 1
    while (found := _KEY.match(line, at)) is not None:
        key, at = decoder.raw_decode(line, found.end() - 1)
        start = at + len(_COLON.findall(line[at:])[0])
        _, at = decoder.raw_decode(line, start)
        values.append((start, at, key.strip()))
    colon, comma = (":", ",") if '": ' not in line and '" :' not in line else (": ", ", ")

    def dumped(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False, separators=(comma, colon))

    for start, end, key in reversed(values):
        if key in changes:
            line = line[:start] + dumped(changes[key]) + line[end:]
            left.pop(key, None)
    more = [f"{dumped(key)}{colon}{dumped(new)}" for key, new in left.items() if new is not None]
    end = len(line[: line.rindex("}")].rstrip())
    return f"{line[:end]}{comma if values and more else ''}{comma.join(more)}{line[end:]}"


def _render_parquet(source: Path, content: bytes, rows: Rows, edits: _Edits) -> bytes:
    pyarrow, sheet = pyarrow_for(source), rows.sheet
    file = pyarrow.parquet.ParquetFile(io.BytesIO(content))
    found = file.read()
    columns: dict[int, list[Any]] = {}
    for (row, column), new in edits.cells.items():
        place = sheet.origins[column]
        cells = columns.setdefault(place, found.column(place).to_pylist())
        cells[sheet.numbers[row]] = new
    for place, cells in columns.items():
        found = found.set_column(place, found.field(place), _array(pyarrow, cells, found.field(place).type))
    for name, by_row in edits.columns.items():
        cells = [None] * found.num_rows
        for row, new in by_row.items():
            cells[sheet.numbers[row]] = new
        found = found.append_column(name, pyarrow.array(cells))
    if edits.rows:
        parts, at = [], 0
        for row, added in sorted(edits.rows.items()):
            end = sheet.numbers[row] + 1
            like = found.slice(end - 1, 1).to_pylist()[0]
            names = found.column_names
            lines = [
                like | {names[sheet.origins[i]] if isinstance(i, int) else i: new for i, new in cells.items()}
                for cells in added
            ]
            parts += [found.slice(at, end - at), pyarrow.Table.from_pylist(lines, schema=found.schema)]
            at = end
        found = pyarrow.concat_tables([*parts, found.slice(at)])
    sink, group = pyarrow.BufferOutputStream(), file.metadata.row_group(0)
    pyarrow.parquet.write_table(found, sink, compression=group.column(0).compression)
    return bytes(sink.getvalue())


def _array(pyarrow: Any, cells: Sequence[Any], kind: Any) -> Any:
    """Cells as a column of a type, if that holds them."""
    try:
        return pyarrow.array(cells, kind)
    except (pyarrow.ArrowInvalid, pyarrow.ArrowTypeError, pyarrow.ArrowNotImplementedError):
        texts = [None if cell is None else str(cell) for cell in cells]
        return pyarrow.array(texts, pyarrow.string()).cast(kind)


def _render_xlsx(source: Path, content: bytes, rows: Rows, edits: _Edits) -> bytes:
    openpyxl, sheet = openpyxl_for(source, content), rows.sheet
    book = openpyxl.load_workbook(io.BytesIO(content), keep_vba=False, rich_text=True)
    page = next(each for each in book.worksheets if any(cell.value is not None for row in each for cell in row))
    line_of = [int(place.rpartition(" ")[2]) for place in sheet.places]
    header = line_of[0] - sheet.numbers[0] - 1
    for (row, column), new in edits.cells.items():
        cell = page.cell(line_of[row], sheet.origins[column] + 1)
        if cell.data_type == "f" and is_blank(sheet.columns[column][row]):
            what = "holds a formula without value, which would be lost; open it in a spreadsheet program, and save it"
            raise DataError(f"{sheet.places[row]}, column {sheet.header[column]}: {what}")
        cell.value = new if new != "" else None
    new_places = {name: place for place, name in enumerate(edits.columns, start=page.max_column + 1)}
    for name, cells in edits.columns.items():
        place = new_places[name]
        page.cell(header, place).value = name
        for row, new in cells.items():
            page.cell(line_of[row], place).value = new
    for row, added in sorted(edits.rows.items(), reverse=True):
        page.insert_rows(line_of[row] + 1, len(added))
        for line, changed in enumerate(added, start=line_of[row] + 1):
            for place in range(1, page.max_column + 1):
                page.cell(line, place).value = page.cell(line_of[row], place).value
            for key, new in changed.items():
                place = sheet.origins[key] + 1 if isinstance(key, int) else new_places[key]
                page.cell(line, place).value = new
    stream = io.BytesIO()
    book.save(stream)
    return stream.getvalue()
