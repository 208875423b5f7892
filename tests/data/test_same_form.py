"""Completed tables in the form of their owners: what nobody answered stays, byte by byte."""

import io
from datetime import datetime

import pyarrow
import pyarrow.parquet
import pytest
from openpyxl import Workbook, load_workbook
from openpyxl.styles import Font

from onepair.data.formats.read import read_dataset
from onepair.data.tables.same_form import Said, complete_same
from onepair.errors import DataError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.review.next_run import with_photos


def completed(path, *said, **options):
    """The bytes of a table after answers by file, class and label, and how many it cannot say."""
    table = read_dataset(path, report=lambda problem: None, **options)
    row_of = {file: row for row, file in enumerate(table.files)}
    return complete_same(
        path, table, [Said(row_of[file], name, label) for file, name, label in said], asked=table.asked
    )


def table_at(tmp_path, content, name="labels.csv"):
    path = tmp_path / name
    path.write_bytes(content)
    for file in "abc":
        (tmp_path / f"{file}.jpg").write_bytes(b"")
    return path


def replaced(content, *pairs):
    """The content with each of some parts, which it has once, in another way."""
    for old, new in pairs:
        assert content.count(old) == 1, old
        content = content.replace(old, new)
    return content


GERMAN = (
    "Inventar-Nr.;Datei;Fotograf;Schlagwörter;Notiz\r\n"
    '0001;a.jpg;Jürgen Groß;Hund, Straße;"zwei\r\nZeilen; mit ""Zitat"""\r\n'
    '0002;b.jpg;"Groß; J.";Hund;\r\n'
    "\r\n"
    "0003;c.jpg;;;7,50 \r\n"
)
WIDE = "file,photographer,dog,cat,sofa,,\na.jpg,Ann,1,,0,,\nb.jpg,,,1,,,\n\nc.jpg,Bo,,,1,,\n"
FORMS = {
    "german cp1252": GERMAN.replace("Datei", "file").encode("cp1252"),
    "german utf-8 with a mark": b"\xef\xbb\xbf" + GERMAN.replace("Datei", "file").encode(),
    "german utf-16": b"\xff\xfe" + GERMAN.replace("Datei", "file").encode("utf-16-le"),
    "wide": WIDE.encode(),
    "wide with tabs": WIDE.replace(",", "\t").encode(),
    "old line ends": WIDE.replace("\n", "\r").encode(),
    "no end of the last line": WIDE.rstrip("\n").encode(),
    "all quoted": b'"file","labels"\r\n"a.jpg","dog|cat"\r\n"b.jpg",""\r\n"c.jpg","dog"\r\n',
    "declared": b"sep=;\nfile;labels\na.jpg;dog|cat\nb.jpg;\nc.jpg;dog\n",
    "title": b"My photos\n\nfile,labels\na.jpg,dog;cat\nb.jpg,\nc.jpg,dog\n",
    "short and long lines": b"file,labels\na.jpg,dog;cat\nb.jpg\nc.jpg,dog,x\na.jpg,dog\n",
}


@pytest.mark.parametrize("content", FORMS.values(), ids=FORMS)
def test_without_answers_every_byte_stays(tmp_path, content):
    path = table_at(tmp_path, content)
    columns = {"label_columns": ["Schlagwörter"]} if b"Inventar" in content.replace(b"\0", b"") else {}
    table = read_dataset(path, report=lambda problem: None, **columns)
    known = [Said(0, name, POSITIVE) for name in table.classes if table.labels[0, table.classes.index(name)] == 1]
    assert known
    found = complete_same(path, table, known, label_columns=columns.get("label_columns"))
    assert (found.content, found.unsaid) == (content, 0)


@pytest.mark.parametrize(
    ("encoding", "mark"), [("cp1252", b""), ("utf-8", b"\xef\xbb\xbf"), ("utf-8", b""), ("utf-16-le", b"\xff\xfe")]
)
def test_tags_are_appended_in_the_owners_encoding_and_manner(tmp_path, encoding, mark):
    content = GERMAN.replace("Datei", "file")
    path = table_at(tmp_path, mark + content.encode(encoding))
    table = read_dataset(path, label_columns=["Schlagwörter"], report=lambda problem: None)
    said = [Said(0, "Hund", NEGATIVE), Said(1, "Straße", POSITIVE), Said(2, "Hund", POSITIVE), Said(2, "Tür", POSITIVE)]
    found = complete_same(path, table, [*said, Said(2, "Straße", NEGATIVE)], label_columns=["Schlagwörter"])
    expected = replaced(
        content, ("Hund, Straße", "Straße"), (";Hund;\r\n", ";Hund, Straße;\r\n"), (";;;7,50", ";;Hund, Tür;7,50")
    )
    assert found.content == mark + expected.encode(encoding)
    assert found.unsaid == 1  # that c.jpg has no Straße


def test_what_an_encoding_cannot_hold_is_a_sentence(tmp_path):
    path = table_at(tmp_path, "file,labels\na.jpg,Tür\nb.jpg,Tür\n".encode("cp1252"))
    with pytest.raises(DataError, match="is in cp1252, which has no '犬'; save it as UTF-8, or use --as csv"):
        completed(path, ("a.jpg", "犬", POSITIVE))


@pytest.mark.parametrize(("delimiter", "end"), [(",", "\n"), (";", "\r\n"), ("\t", "\r"), ("|", "\n")])
def test_columns_of_classes_get_the_owners_words(tmp_path, delimiter, end):
    def written(text):
        return text.replace(",", delimiter).replace("\n", end).encode()

    path = table_at(tmp_path, written(WIDE))
    found = completed(
        path,
        ("a.jpg", "cat", NEGATIVE),
        ("a.jpg", "sofa", POSITIVE),
        ("b.jpg", "dog", POSITIVE),
        ("c.jpg", "cat", POSITIVE),
    )
    expected = replaced(WIDE, ("Ann,1,,0", "Ann,1,0,1"), ("b.jpg,,,1", "b.jpg,,1,1"), ("c.jpg,Bo,,,1", "c.jpg,Bo,,1,1"))
    assert found == (written(expected), 0)


@pytest.mark.parametrize(
    ("yes", "no"), [("x", "0"), ("WAHR", "FALSCH"), ("Yes", "No"), ("1.0", "0.0"), ('"1"', '"0"'), ("ja", "nein")]
)
def test_no_is_written_as_fits_the_word_for_yes(tmp_path, yes, no):
    blank = '""' if '"' in yes else ""
    path = table_at(tmp_path, f"file,dog,cat\na.jpg,{yes},{blank}\nb.jpg,{blank},{yes}\n".encode())
    found = completed(path, ("a.jpg", "cat", NEGATIVE), ("b.jpg", "dog", POSITIVE))
    assert found.content.decode() == f"file,dog,cat\na.jpg,{yes},{no}\nb.jpg,{yes},{yes}\n"


def test_a_new_class_is_a_column_at_the_end(tmp_path):
    path = table_at(tmp_path, b'file,dog,cat,\r\na.jpg,1,,,,\r\n\r\nb.jpg,0,1,"note"\r\nc.jpg,1,,')
    found = completed(path, ("a.jpg", "big, red", POSITIVE), ("c.jpg", "big, red", NEGATIVE))
    assert found.content == (b'file,dog,cat,,"big, red"\r\na.jpg,1,,,1,,\r\n\r\nb.jpg,0,1,"note",""\r\nc.jpg,1,,,0')


@pytest.mark.parametrize(
    ("cells", "expected"),
    [
        (("dog|cat", "dog", ""), ("dog|cat|sofa", "dog|sofa", "sofa")),
        (("dog | cat ", " dog", "-"), ("dog | cat | sofa", " dog | sofa", "sofa")),
        (("['dog', 'cat']", "[]", ""), ("['dog', 'cat', 'sofa']", '["sofa"]', "sofa")),
        (("[dog, cat]", "[dog]", ""), ("[dog, cat, sofa]", "[dog, sofa]", "sofa")),
        (("dog", "dog", "cat"), ("dog;sofa", "dog;sofa", "cat;sofa")),
        (("'=dog;cat", "dog", ""), ("'=dog;cat;sofa", "dog;sofa", "sofa")),
        (("=dog;cat", "dog", ""), ("=dog;cat;sofa", "dog;sofa", "sofa")),
    ],
)
def test_lists_are_written_as_they_were(tmp_path, cells, expected):
    def written(lists):
        return "".join(f'{file}.jpg,"{cell}"\n' for file, cell in zip("abc", lists, strict=True)).join(
            ["file,labels\n", ""]
        )

    path = table_at(tmp_path, written(cells).encode())
    found = completed(path, *((f"{file}.jpg", "sofa", POSITIVE) for file in "abc"))
    assert found.content.decode() == written(each.replace('"', '""') for each in expected)


def test_every_row_of_an_image_is_completed(tmp_path):
    path = table_at(tmp_path, b"file,labels\na.jpg,dog;cat\nb.jpg,dog\na.jpg,dog\n")
    found = completed(path, ("a.jpg", "sofa", POSITIVE), ("a.jpg", "dog", NEGATIVE))
    assert found == (b"file,labels\na.jpg,cat;sofa\nb.jpg,dog\na.jpg,sofa\n", 0)


def test_a_row_per_label_gets_rows_below_those_of_the_image(tmp_path):
    path = table_at(tmp_path, b"nr,file,label\r\n1,a.jpg,dog\r\n1,a.jpg,cat\r\n2,b.jpg,\r\n3,c.jpg,dog")
    said = [
        ("a.jpg", "sofa", POSITIVE),
        ("b.jpg", "cat", POSITIVE),
        ("c.jpg", "cat", POSITIVE),
        ("a.jpg", "dog", NEGATIVE),
    ]
    found = completed(path, *said, ("c.jpg", "sofa", NEGATIVE))
    assert found.content == (
        b"nr,file,label\r\n1,a.jpg,\r\n1,a.jpg,cat\r\n1,a.jpg,sofa\r\n2,b.jpg,cat\r\n3,c.jpg,dog\r\n3,c.jpg,cat"
    )
    assert found.unsaid == 1


def test_a_row_that_is_there_twice_makes_no_table_of_rows_per_label(tmp_path):
    path = table_at(tmp_path, b"file,tags\na.jpg,dog\nb.jpg,cat\na.jpg,dog\nc.jpg,dog\n")
    found = completed(path, ("a.jpg", "cat", POSITIVE))
    assert found == (b"file,tags\na.jpg,dog;cat\nb.jpg,cat\na.jpg,dog;cat\nc.jpg,dog\n", 0)


def test_a_row_per_label_with_values_says_no(tmp_path):
    path = table_at(tmp_path, b"file,label,value\na.jpg,dog,1\na.jpg,cat,0\nb.jpg,dog,1\n")
    said = [("a.jpg", "cat", POSITIVE), ("b.jpg", "dog", NEGATIVE), ("b.jpg", "cat", NEGATIVE)]
    found = completed(path, *said)
    assert found == (b"file,label,value\na.jpg,dog,1\na.jpg,cat,1\nb.jpg,dog,0\nb.jpg,cat,0\n", 0)


def test_a_column_of_negatives_says_no(tmp_path):
    path = table_at(tmp_path, b"file,labels,negatives\na.jpg,dog,cat\nb.jpg,cat;dog,\n")
    found = completed(path, ("a.jpg", "cat", POSITIVE), ("b.jpg", "dog", NEGATIVE))
    assert found == (b"file,labels,negatives\na.jpg,dog;cat,\nb.jpg,cat,dog\n", 0)


def test_json_lines_change_in_their_values_alone(tmp_path):
    lines = (
        '{"file": "a.jpg", "labels": ["dog",  "cat"], "by": {"name": "Jürgen"}}\r\n'
        '\r\n{"file":"b.jpg","labels":[],"n":1.50}\r\n{ "file" : "c.jpg" }\r\n'
    )
    path = table_at(tmp_path, lines.encode(), "labels.jsonl")
    found = completed(path, ("b.jpg", "dog", POSITIVE), ("c.jpg", "cat", POSITIVE))
    expected = replaced(lines, ("[]", '["dog"]'), ('"c.jpg" }', '"c.jpg", "labels": "cat" }'))
    assert found.content.decode() == expected


def test_parquet_keeps_types_and_other_columns(tmp_path):
    wide = pyarrow.table(
        {
            "nr": pyarrow.array([1, 2], pyarrow.int16()),
            "file": ["a.jpg", "b.jpg"],
            "dog": pyarrow.array([1, None], pyarrow.int8()),
            "cat": pyarrow.array([None, True]),
        }
    ).replace_schema_metadata({"by": "Ann"})
    path = table_at(tmp_path, b"", "labels.parquet")
    pyarrow.parquet.write_table(wide, path)
    assert completed(path, ("a.jpg", "dog", POSITIVE)).content == path.read_bytes()
    found = completed(path, ("b.jpg", "dog", NEGATIVE), ("a.jpg", "cat", NEGATIVE), ("a.jpg", "sofa", POSITIVE))
    read = pyarrow.parquet.read_table(io.BytesIO(found.content))
    assert read.drop_columns("sofa").schema.equals(wide.schema, check_metadata=True)
    assert read.to_pydict() == {
        **wide.to_pydict(),
        "dog": [1, 0],
        "cat": [False, True],
        "sofa": [read["sofa"][0].as_py(), None],
    }
    lists = pyarrow.table({"file": ["a.jpg", "b.jpg"], "labels": [["dog", "cat"], []]})
    pyarrow.parquet.write_table(lists, path)
    found = completed(path, ("b.jpg", "dog", POSITIVE))
    assert pyarrow.parquet.read_table(io.BytesIO(found.content)).to_pydict()["labels"] == [["dog", "cat"], ["dog"]]


def workbook(path, rows):
    book = Workbook()
    for row in rows:
        book.active.append(row)
    book.active["B2"].font = Font(bold=True)
    book.create_sheet("Notes")["A1"] = "keep me"
    book.save(path)


def test_excel_is_read_and_written(tmp_path):
    path = table_at(tmp_path, b"", "labels.xlsx")
    rows = [
        ["My photos"],
        ["nr", "file", "tags", "sum"],
        [7, "a.jpg", "dog, cat", "=1+1"],
        [],
        [8, "b.jpg", "dog", None],
    ]
    workbook(path, rows)
    table = read_dataset(path, report=lambda problem: None)
    assert (table.files, table.classes) == (("a.jpg", "b.jpg"), ("cat", "dog"))
    assert table.labels.dense().tolist() == [[POSITIVE, POSITIVE], [UNKNOWN, POSITIVE]]
    assert table.places == ("labels.xlsx, row 3", "labels.xlsx, row 5")
    assert completed(path, ("a.jpg", "dog", POSITIVE)).content == path.read_bytes()
    found = completed(path, ("b.jpg", "cat", POSITIVE), ("a.jpg", "dog", NEGATIVE))
    book = load_workbook(io.BytesIO(found.content))
    assert [[cell.value for cell in row] for row in book.worksheets[0]] == [
        ["My photos", None, None, None],
        ["nr", "file", "tags", "sum"],
        [7, "a.jpg", "cat", "=1+1"],
        [None] * 4,
        [8, "b.jpg", "dog, cat", None],
    ]
    assert book.worksheets[0]["B2"].font.bold
    assert book["Notes"]["A1"].value == "keep me"


def test_excel_keeps_dates_numbers_and_formats_and_finds_files_that_are_called_by_numbers(tmp_path):
    path, day = table_at(tmp_path, b"", "labels.xlsx"), datetime(2024, 5, 31, tzinfo=None)
    for name in ("1001.jpg", "1002.jpg"):
        (tmp_path / name).write_bytes(b"")
    book = Workbook()
    for row in [["Nr", "Datei", "Schlagwörter", "Datum"], ["007", 1001, '="dog"', day], [1.50, 1002, "cat", day]]:
        book.active.append(row)
    book.active["A3"].number_format = "0.00"
    book.active["D2"].number_format = "dd.mm.yyyy"
    book.save(path)
    remarks = []
    table = read_dataset(path, report=remarks.append)
    assert (table.files, table.classes) == (("1001.jpg", "1002.jpg"), ("cat",))
    found = completed(path, ("1002.jpg", "dog", POSITIVE))
    page = load_workbook(io.BytesIO(found.content)).active
    assert [[cell.value for cell in row] for row in page.iter_rows(min_row=2)] == [
        ["007", 1001, '="dog"', day],
        [1.5, 1002, "cat;dog", day],
    ]
    with pytest.raises(DataError, match="row 2, column Schlagwörter: holds a formula without value"):
        completed(path, ("1001.jpg", "cat", POSITIVE))
    assert (page["A3"].number_format, page["D2"].number_format) == ("0.00", "dd.mm.yyyy")


def test_formulas_that_nobody_has_computed_are_told_of(tmp_path):
    path, book = table_at(tmp_path, b"", "labels.xlsx"), Workbook()
    for row in [["file", "tags", "size"], ["a.jpg", "dog", "=LEN(A2)"], ["b.jpg", "cat", "=LEN(A3)"]]:
        book.active.append(row)
    book.save(path)
    remarks = []
    read_dataset(path, report=remarks.append)
    assert [each.where for each in remarks if each.kind == "formulas" and each.remark] == ["labels.xlsx, column size"]
    book.active["A2"], book.active["A3"] = '="a.jpg"', '="b.jpg"'
    book.save(path)
    with pytest.raises(DataError, match=r"labels\.xlsx, column file: holds formulas without values; open it in"):
        read_dataset(path)


def test_excel_with_columns_of_classes(tmp_path):
    path = table_at(tmp_path, b"", "labels.xlsx")
    workbook(path, [["file", "dog", "cat"], ["a.jpg", True, None], ["b.jpg", False, True]])
    found = completed(path, ("a.jpg", "cat", NEGATIVE), ("b.jpg", "sofa", POSITIVE))
    page = load_workbook(io.BytesIO(found.content)).worksheets[0]
    assert [[cell.value for cell in row] for row in page] == [
        ["file", "dog", "cat", "sofa"],
        ["a.jpg", True, False, None],
        ["b.jpg", False, True, True],
    ]


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"no", "is no .xlsx file"),
        (b"\xd0\xcf\x11\xe0rest", "is encrypted, or no .xlsx file"),
        (b"PK\5\6" + bytes(18), "not an Excel file"),
    ],
)
def test_bad_excel_files_are_sentences(tmp_path, content, said):
    with pytest.raises(DataError, match=said):
        read_dataset(table_at(tmp_path, content, "labels.xlsx"))


@pytest.mark.parametrize(
    ("content", "more"),
    [
        (b"nr;file;labels\r\n1;a.jpg;dog, cat\r\n2;b.jpg;", b"\r\n;new/\xc3\xa9.jpg;cat, dog"),
        (b"file,dog,cat,,\na.jpg,x,,,\nb.jpg,,x,,\n", b"new/\xc3\xa9.jpg,x,x,,\n"),
        (b"file,label\na.jpg,dog\na.jpg,cat\nb.jpg,dog\n", b"new/\xc3\xa9.jpg,cat\nnew/\xc3\xa9.jpg,dog\n"),
        (b"file,label,value\na.jpg,dog,1\nb.jpg,cat,0\n", b"new/\xc3\xa9.jpg,cat,1\nnew/\xc3\xa9.jpg,dog,1\n"),
        (b"nr\tfile\tlabels\tnegatives\n1\tsub\\a.jpg\tdog;cat\t\n", b"\tnew\\\xc3\xa9.jpg\tcat;dog\t\n"),
    ],
    ids=["lists", "wide", "long", "long with values", "backslashes"],
)
def test_an_image_that_the_table_lacks_becomes_a_row(tmp_path, content, more):
    path = table_at(tmp_path, content)
    table = read_dataset(path, report=lambda problem: None)
    known = len(table)
    table = with_photos(table, ["new/é.jpg", "unseen.jpg"])
    said = [Said(known, "cat", POSITIVE), Said(known, "dog", POSITIVE)]
    assert complete_same(path, table, said) == (content + more, 0)


def test_an_image_that_json_lines_and_workbooks_lack_becomes_a_row(tmp_path):
    line = '{"nr": 1, "file": "a.jpg", "labels": ["dog"]}'
    path = table_at(tmp_path, f"{line}\n".encode(), "labels.jsonl")
    table = with_photos(read_dataset(path), ["b.jpg"])
    found = complete_same(path, table, [Said(1, "dog", POSITIVE)])
    assert found.content.decode() == f'{line}\n{{"nr": null, "file": "b.jpg", "labels": ["dog"]}}\n'
    path = tmp_path / "labels.xlsx"
    workbook(path, [["nr", "file", "dog"], ["I", "a.jpg", 1], ["II", "b.jpg", None]])
    table = with_photos(read_dataset(path), ["c.jpg"])
    found = complete_same(path, table, [Said(2, "dog", NEGATIVE), Said(2, "cat", POSITIVE)])
    rows = list(load_workbook(io.BytesIO(found.content)).active.iter_rows(values_only=True))
    assert rows[0] == ("nr", "file", "dog", "cat")
    assert rows[1:] == [("I", "a.jpg", 1, None), ("II", "b.jpg", None, None), (None, "c.jpg", 0, 1)]
    path = tmp_path / "labels.parquet"
    pyarrow.parquet.write_table(pyarrow.table({"nr": [7], "file": ["a.jpg"], "labels": [["dog"]]}), path)
    found = complete_same(path, with_photos(read_dataset(path), ["b.jpg"]), [Said(1, "dog", POSITIVE)])
    rows = pyarrow.parquet.read_table(io.BytesIO(found.content)).to_pylist()
    assert rows[1] == {"nr": None, "file": "b.jpg", "labels": ["dog"]}
