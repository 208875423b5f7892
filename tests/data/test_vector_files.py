"""Vectors beside a table: every format, which row has which, and what is wrong with them."""

import io
import pickle
import zipfile

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepair.data import DataError, read_dataset
from onepair.data.formats.write import write_table
from onepair.data.label_table import Vectors
from onepair.data.vector_files import read_vectors

X = np.random.default_rng(0).normal(size=(7, 3)).astype(np.float32)
ALL = np.arange(7)
IDS = [f"row {i}" for i in range(7)]


def write_parquet(path, values, ids=None, *, name="vectors", fixed=False):
    kind = pa.list_(pa.float32(), len(values[0])) if fixed else pa.list_(pa.float32())
    columns = {name: pa.array([list(map(float, row)) for row in values], kind)}
    pq.write_table(pa.table(columns if ids is None else {"file": pa.array(ids), **columns}), path, row_group_size=3)
    return path


def write(path, kind):
    """The same seven vectors in every way there is."""
    if kind == "npy":
        np.save(path / "v.npy", X)
    elif kind == "npz":
        np.savez_compressed(path / "v.npz", X=X, Y=np.zeros((7, 9)))
    elif kind in ("parquet", "fixed"):
        write_parquet(path / "v.parquet", X, fixed=kind == "fixed")
    else:
        (path / "v").mkdir()
        for number, rows in enumerate((slice(0, 2), slice(2, 3), slice(3, 7))):
            target = path / "v" / f"part-{number}.{kind.removeprefix('shards of ')}"
            np.save(target, X[rows]) if kind.endswith("npy") else write_parquet(target, X[rows])
        (path / "v" / "README.txt").write_text("not a shard")
        return path / "v"
    return next(path.glob("v.*"))


@pytest.mark.parametrize("kind", ["npy", "npz", "parquet", "fixed", "shards of npy", "shards of parquet"])
def test_every_format_holds_the_same(tmp_path, kind):
    found = read_vectors(write(tmp_path, kind))
    assert (len(found), found.width, found.ids) == (7, 3, None)
    rows = np.array([6, 0, 2, 2, 5])
    np.testing.assert_array_equal(found.take(rows), X[rows])
    assert found.take(rows).dtype == np.float32
    np.testing.assert_array_equal(found.of_rows(rows).take(np.array([4, 0])), X[[5, 6]])


def is_mapped(array):
    while array is not None and not isinstance(array, np.memmap):
        array = array.base
    return array is not None


def test_npy_is_mapped_alone_and_as_shards(tmp_path):
    one = read_vectors(write(tmp_path, "npy"))
    shards = read_vectors(write(tmp_path, "shards of npy"))
    assert all(is_mapped(part) for part in (*one.parts, *shards.parts))


@pytest.mark.parametrize("dtype", [np.float16, np.float64, np.int8, np.int64, np.uint16, np.dtype(">f4"), bool])
def test_every_kind_of_number_is_taken(tmp_path, dtype):
    np.save(tmp_path / "v.npy", (4 * X).astype(dtype))
    found = read_vectors(tmp_path / "v.npy").take(ALL)
    np.testing.assert_array_equal(found, (4 * X).astype(dtype).astype(np.float32))
    assert found.dtype == (np.float16 if dtype == np.float16 else np.float32)


@given(st.lists(st.integers(1, 4), min_size=1, max_size=6), st.data())
def test_shards_are_one_array(lengths, data):
    whole = np.arange(2 * sum(lengths), dtype=np.float32).reshape(-1, 2)
    parts = tuple(np.split(whole, np.cumsum(lengths)[:-1]))
    rows = np.array(data.draw(st.lists(st.integers(0, len(whole) - 1), max_size=9)), np.int64)
    np.testing.assert_array_equal(Vectors("", parts).take(rows), whole[rows])


def test_which_array_or_column_is_said_after_a_colon(tmp_path):
    np.savez(tmp_path / "v.npz", image=X, caption=2 * X)
    with pytest.raises(DataError, match=r"which array holds the vectors\? there are image, caption"):
        read_vectors(tmp_path / "v.npz")
    np.testing.assert_array_equal(read_vectors(f"{tmp_path}/v.npz:caption").take(ALL), 2 * X)
    with pytest.raises(DataError, match="has no array text; there are image, caption"):
        read_vectors(f"{tmp_path}/v.npz:text")


# What is wrong with files


def npz_of(path, **arrays):
    np.savez(path, **arrays)


def with_objects(path):
    np.save(path, np.array([{"a": 1}, None], object), allow_pickle=True)


BAD = {
    "objects.npy": (with_objects, "holds Python objects, which are never read"),
    "objects.npz": (lambda path: npz_of(path, X=np.array([[1, "a"]], object)), "holds Python objects"),
    "pickle.npy": (lambda path: path.write_bytes(pickle.dumps(X)), "cannot be read as vectors"),
    "empty.npy": (lambda path: path.write_bytes(b""), "cannot be read as vectors"),
    "text.npy": (lambda path: np.save(path, np.array([["a"], ["b"]])), "holds <U1 values; vectors are numbers"),
    "complex.npy": (lambda path: np.save(path, X.astype(complex)), "holds complex128 values"),
    "flat.npy": (lambda path: np.save(path, X[0]), r"shape \(3,\); vectors are rows of one, \(rows, width\)"),
    "deep.npy": (lambda path: np.save(path, X[None]), r"shape \(1, 7, 3\)"),
    "narrow.npy": (lambda path: np.save(path, X[:, :0]), r"shape \(7, 0\), which is nothing to learn from"),
    "none.npy": (lambda path: np.save(path, X[:0]), r"shape \(0, 3\)"),
    "no.npz": (lambda path: path.write_bytes(b"PK nonsense"), "cannot be read as vectors"),
    "bare.npz": (lambda path: npz_of(path, ids=np.array(IDS)), "which array holds the vectors"),
    "short.npz": (lambda path: npz_of(path, X=X, ids=np.array(IDS[:2])), "ids has one name for each"),
    "no.parquet": (lambda path: path.write_bytes(b"nonsense"), "cannot be read as vectors"),
    "plain.parquet": (lambda path: pq.write_table(pa.table({"a": [1, 2]}), path), "has no column of vectors"),
    "uneven.parquet": (lambda path: write_parquet(path, [[1, 2], [3]]), "row 1 has 1 values, and row 0 has 2"),
    "blank.parquet": (
        lambda path: pq.write_table(pa.table({"X": pa.array([[1.0], None], pa.list_(pa.float32()))}), path),
        "row 1 has no vector",
    ),
    "v.txt": (lambda path: path.write_text("1 2 3"), r"vectors are \.npy, \.npz, \.parquet, or a folder"),
    "gone.npy": (lambda path: None, "cannot be read as vectors|no such file"),
    "gone": (lambda path: None, "no such file or folder of vectors"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_bad_file_is_a_sentence(tmp_path, name):
    make, words = BAD[name]
    make(tmp_path / name)
    with pytest.raises(DataError, match=words) as caught:
        read_vectors(tmp_path / name)
    assert str(tmp_path / name) in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_file_cut_short_is_a_sentence(tmp_path):
    for kind in ("npy", "npz", "parquet"):
        path = write(tmp_path, kind)
        whole = path.read_bytes()
        path.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(DataError, match="cannot be read as vectors"):
            read_vectors(path)
        path.unlink()


def test_no_pickle_in_an_archive_is_ever_loaded(tmp_path):
    class Trap:
        def __reduce__(self):
            return (tmp_path.joinpath("sprung").touch, ())

    content = io.BytesIO()
    np.save(content, np.array([Trap()], object), allow_pickle=True)
    with zipfile.ZipFile(tmp_path / "v.npz", "w") as archive:
        archive.writestr("X.npy", content.getvalue())
    (tmp_path / "sprung").unlink(missing_ok=True)
    with pytest.raises(DataError, match="holds Python objects"):
        read_vectors(tmp_path / "v.npz")
    assert not (tmp_path / "sprung").exists()


def test_shards_that_do_not_fit_together(tmp_path):
    with pytest.raises(DataError, match="holds no shards of vectors"):
        read_vectors(tmp_path)
    np.save(tmp_path / "part-2.npy", X)
    np.save(tmp_path / "part-10.npy", X[:, :2])
    with pytest.raises(DataError, match=r"part-10\.npy comes before part-2\.npy, by number after it"):
        read_vectors(tmp_path)
    (tmp_path / "part-2.npy").rename(tmp_path / "part-02.npy")
    with pytest.raises(DataError, match=r"part-10\.npy: has vectors of 2 values, and part-02\.npy of 3"):
        read_vectors(tmp_path)
    write_parquet(tmp_path / "part-11.parquet", X)
    with pytest.raises(DataError, match="keep shards of one kind"):
        read_vectors(tmp_path)
    for file in tmp_path.glob("*.npy"):
        file.unlink()
    write_parquet(tmp_path / "part-12.parquet", X, IDS)
    with pytest.raises(DataError, match="all shards name their vectors, or none"):
        read_vectors(tmp_path)
    write_parquet(tmp_path / "part-12.parquet", X, name="other")
    with pytest.raises(DataError, match="has no column other of vectors; there are vectors"):
        read_vectors(f"{tmp_path}:other")


# Which row of a table has which vector


def table_of(tmp_path, text, vectors=X, *, name="labels.csv", found=None, **arrays):
    (tmp_path / name).write_text(text)
    if arrays:
        np.savez(tmp_path / "v.npz", X=vectors, **arrays)
    else:
        np.save(tmp_path / "v.npy", vectors)
    source = tmp_path / ("v.npz" if arrays else "v.npy")
    report = (lambda _: None) if found is None else found.append
    return read_dataset(tmp_path / name, features=source, report=report)


def taken(table):
    return table.vectors.take(np.arange(len(table)))


def test_rows_that_are_left_out_take_their_vectors_with_them(tmp_path):
    lines = [
        "file,split,cat,dog",
        "a,train,1,0",
        "",  # no row at all
        ",train,1,0",  # without a name
        "c,nonsense,1,0",  # in no split
        "d,test,1",  # cut short
        "e,train,,1",
        ",,,",  # blank, but a row
        "a,train,0,0",  # there before
        "",
        ",,,",  # what a spreadsheet adds
    ]
    found = []
    table = table_of(tmp_path, "\n".join(lines), found=found)
    assert table.files == ("a", "e")
    np.testing.assert_array_equal(taken(table), X[[0, 4]])
    assert {problem.kind for problem in found} == {"no file name", "bad split", "bad line", "duplicate"}


def test_rows_of_jsonl_and_parquet(tmp_path):
    lines = ['{"id": 1, "labels": "cat"}', "nonsense", "", '{"id": 3, "labels": "dog"}']
    table = table_of(tmp_path, "\n".join(lines), X[:3], name="labels.jsonl")
    assert table.files == ("1", "3")
    np.testing.assert_array_equal(taken(table), X[[0, 2]])
    pq.write_table(pa.table({"file": ["a", None, "c"], "cat": [1, 0, None]}), tmp_path / "labels.parquet")
    table = read_dataset(tmp_path / "labels.parquet", features=tmp_path / "v.npy", report=lambda _: None)
    assert table.files == ("a", "c")
    np.testing.assert_array_equal(taken(table), X[[0, 2]])


def test_another_number_of_vectors_than_rows_names_both(tmp_path):
    with pytest.raises(DataError, match=r"v\.npy: holds 7 vectors, and .*labels\.csv has 2 rows; there must be one"):
        table_of(tmp_path, "file,cat\na,1\nb,0\n")


def test_rows_by_name_may_be_in_any_order_and_more_than_needed(tmp_path):
    table = table_of(tmp_path, "file,split,cat\nrow 5,train,1\nrow 0,test,0\nrow 5,test,1\n", ids=np.array(IDS))
    np.testing.assert_array_equal(taken(table), X[[5, 0, 5]])
    with pytest.raises(DataError, match=r"has no vector for 2 rows of .*: x, y; its own names are as row 0"):
        table_of(tmp_path, "file,cat\nx,1\nrow 1,0\ny,1\n", ids=np.array(IDS))
    with pytest.raises(DataError, match="names row 1 twice"):
        table_of(tmp_path, "file,cat\nrow 1,1\n", ids=np.array([*IDS[:6], "row 1"]))


def test_parquet_joins_by_its_column_of_files(tmp_path):
    write_parquet(tmp_path / "v.parquet", X, IDS)
    (tmp_path / "labels.csv").write_text("file,cat\nrow 6,1\nrow 2,0\n")
    table = read_dataset(tmp_path / "labels.csv", features=tmp_path / "v.parquet")
    np.testing.assert_array_equal(taken(table), X[[6, 2]])


LONG = "file,label\na,cat\na,dog\nb,cat\n"


def test_a_row_per_label_needs_names(tmp_path):
    with pytest.raises(DataError, match="has several rows for a, so that nothing says which vector is its own"):
        table_of(tmp_path, LONG, X[:3])
    table = table_of(tmp_path, LONG, X[:2], ids=np.array(["b", "a"]))
    np.testing.assert_array_equal(taken(table), X[[1, 0]])
    assert table.labels.tolist() == [[1, 1], [1, -1]]


def test_a_written_table_says_which_vector_each_row_has(tmp_path):
    table = table_of(tmp_path, "file,split,text,cat\na,train,one,1\n,train,,1\nc,test,'=2,0\n", X[:3])
    for name in ("again.csv", "again.parquet"):
        write_table(table, tmp_path / name)
        again = read_dataset(tmp_path / name, features=tmp_path / "v.npy")
        assert (again.files, again.texts, again.classes) == (("a", "c"), ("one", "=2"), ("cat",))
        np.testing.assert_array_equal(taken(again), X[[0, 2]])
    np.save(tmp_path / "few.npy", X[:2])
    with pytest.raises(DataError, match=r"names vector 2, and .*few\.npy holds 2 from 0 on"):
        read_dataset(tmp_path / "again.csv", features=tmp_path / "few.npy")


def test_classes_may_still_be_called_text_and_vector(tmp_path):
    table = table_of(tmp_path, "file,text,vector\na,1,0\nb,0,1\nc,1,1\n", X[:3])
    assert (table.classes, table.texts) == (("text", "vector"), None)
    write_table(table, tmp_path / "again.csv")
    assert read_dataset(tmp_path / "again.csv", features=tmp_path / "v.npy").classes == ("text", "vector")


@pytest.mark.parametrize("value", [np.nan, np.inf, 1e300])
def test_what_is_not_finite_is_named(tmp_path, value):
    vectors = X.astype(np.float64)
    vectors[4, 1] = value
    rows = "".join(f"{name},{i % 2}\n" for i, name in enumerate("abcdefg") if i != 2)
    table = table_of(tmp_path, f"file,cat\n,1\n{rows}", vectors)
    with pytest.raises(DataError, match=r"v\.npy: row 4 \(e\) holds NaN or an infinite value"):
        table.vectors.require_finite(table.files)


def test_facts_tell_vectors_from_others(tmp_path):
    np.save(tmp_path / "v.npy", X)
    before = read_vectors(tmp_path / "v.npy").facts()
    assert before == read_vectors(tmp_path / "v.npy").facts()
    changed = X.copy()
    changed[3, 0] += 1
    np.save(tmp_path / "v.npy", changed)
    assert read_vectors(tmp_path / "v.npy").facts() != before
    large = Vectors("", (np.broadcast_to(np.float32(1), (10**9, 4)),))  # of which a part is looked at
    assert large.facts()["shape"] == [10**9, 4]


# Texts


def test_a_table_of_texts_needs_no_files(tmp_path):
    (tmp_path / "t.csv").write_text('text,labels\n"hello, you",a;b\n\nsecond,b\n')
    table = read_dataset(tmp_path / "t.csv")
    assert (table.files, table.texts, table.ids) == (("0", "1"), ("hello, you", "second"), True)
    assert table.classes == ("a", "b")


def test_texts_beside_photos_that_are_there_are_captions(tmp_path):
    (tmp_path / "t.csv").write_text("file,text,cat\na.jpg,a cat,1\nb.jpg,no cat,0\n")
    remarks = []
    assert read_dataset(tmp_path / "t.csv", report=remarks.append).ids
    assert any("taken for texts" in remark.what for remark in remarks)
    (tmp_path / "b.jpg").touch()
    table = read_dataset(tmp_path / "t.csv")
    assert (table.ids, table.texts) == (False, ("a cat", "no cat"))


def test_a_table_with_neither_files_nor_texts_is_still_refused(tmp_path):
    (tmp_path / "t.csv").write_text("dog,cat\n1,1\n")
    with pytest.raises(DataError, match="no column named file"):
        read_dataset(tmp_path / "t.csv")
