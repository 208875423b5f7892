"""WebDataset's shards: samples, labels in their spellings, splits, and tars that are damaged."""

import io
import json
import os
import tarfile
import threading
import tracemalloc

import fsspec
import numpy as np
import pytest

import onepair.data.images.tar as tars
from onepair import files as stored
from onepair.data.formats.read import read_dataset, recognise
from onepair.data.formats.webdataset import expanded
from onepair.data.formats.write import named_from, write_table
from onepair.data.images.blocks import image_blocks, images_of
from onepair.data.images.decode import decode
from onepair.data.quality import find_problems
from onepair.data.text_files import exists
from onepair.errors import DataError
from onepair.remote import RemotePath, all_at_once, as_path
from onepair.review.photos import Pictures
from tests.data.test_remote import SMALL, jpeg

pytestmark = pytest.mark.usefixtures("alone")


def tar(files, **options) -> bytes:
    """Of contents by name, or of pairs if a name is there twice; a content that is text is the target of a link."""
    content = io.BytesIO()
    with tarfile.open(fileobj=content, mode="w", **options) as archive:
        for name, inside in files.items() if isinstance(files, dict) else files:
            info = tarfile.TarInfo(name)
            if isinstance(inside, str):
                info.type, info.linkname, inside = tarfile.LNKTYPE, inside, b""
            inside = inside if isinstance(inside, bytes) else json.dumps(inside).encode()
            info.size = len(inside)
            archive.addfile(info, io.BytesIO(inside))
    return content.getvalue()


def write(folder, **shards):
    for name, files in shards.items():
        (folder / f"{name.replace('_', '-')}.tar").write_bytes(tar(files))


def labels_of(files, path):
    path.write_bytes(tar(files))
    table = read_dataset(path)
    return {
        file.rpartition("/")[2]: {
            name: int(label) for name, label in zip(table.classes, row, strict=True) if label >= 0
        }
        for file, row in zip(table.files, table.labels, strict=True)
    }


def test_a_folder_of_shards_has_splits_and_images(tmp_path):
    write(
        tmp_path,
        train_000000={"a.jpg": jpeg(10), "a.json": {"labels": ["cat"]}},
        train_000001={"b.jpg": jpeg(20), "b.json": {"labels": ["dog", "cat"]}},
        val_000000={"a.png": jpeg(30), "a.json": {"tags": "dog"}},
    )
    table = read_dataset(tmp_path)
    assert recognise(tmp_path).name == "webdataset"
    assert table.files == ("train-000000.tar/a.jpg", "train-000001.tar/b.jpg", "val-000000.tar/a.png")
    assert table.split.tolist() == ["train", "train", "validation"]
    assert table.labels.tolist() == [[1, -1], [1, 1], [-1, 1]]
    assert [decode(table.path(row))[0, 0, 0] for row in range(3)] == [10, 20, 30]
    assert [each.kind for each in find_problems(table, images=True)] == ["rare"]


def test_folders_of_splits_and_patterns_and_single_tars(tmp_path):
    for split in ("train", "test"):
        (tmp_path / split).mkdir()
        write(tmp_path / split, part_0={f"{split}.jpg": jpeg(), f"{split}.txt": b"cat;dog"})
    assert read_dataset(tmp_path).split.tolist() == ["test", "train"]
    assert read_dataset(tmp_path / "test" / "part-0.tar").files == ("part-0.tar/test.jpg",)
    assert read_dataset(f"{tmp_path}/{{train,test}}/part-{{0..0}}.tar").files[1] == "test/part-0.tar/test.jpg"
    assert list(expanded("x-{009..011}.tar")) == ["x-009.tar", "x-010.tar", "x-011.tar"]
    with pytest.raises(DataError, match="more than 100,000 shards"):
        read_dataset(f"{tmp_path}/{{0..9999999}}.tar")


def test_a_name_with_braces_and_patterns_of_other_kinds(tmp_path):
    write(tmp_path, **{"{1}": {"a.jpg": jpeg(), "a.txt": b"cat"}})
    assert read_dataset(tmp_path / "{1}.tar").files == ("{1}.tar/a.jpg",)
    assert list(expanded("{8..10}.tar"))[0::2] == ["8.tar", "10.tar"]
    assert list(expanded("{098..2}.tar"))[0::96] == ["098.tar", "002.tar"]
    for pattern in ("*.tar", "{a..c}.tar", f"{{0..{'9' * 5000}}}.tar"):
        with pytest.raises(DataError, match="there is no such file or folder; several shards are a folder, or a "):
            read_dataset(tmp_path / pattern)


@pytest.mark.parametrize("name", ["x.tar.gz", "x.tgz", "labels.csv.zip"])
def test_what_is_compressed_is_a_sentence(tmp_path, name):
    (tmp_path / name).write_bytes(b"\x1f\x8b")
    with pytest.raises(DataError, match=f"{name}: is compressed; unpack it"):
        read_dataset(tmp_path / name)


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"a.json": {"labels": ["cat", "dog"]}}, {"cat": 1, "dog": 1}),
        ({"a.json": {"classes": {"cat": 1, "dog": 0, "cow": None}}}, {"cat": 1, "dog": 0}),
        ({"a.json": {"cat": True, "dog": False}}, {"cat": 1, "dog": 0}),
        ({"a.json": ["cat"]}, {"cat": 1}),
        ({"a.json": {"label": 3}}, {"3": 1}),
        ({"a.json": {"caption": "a cat"}, "a.cls": b"7\n"}, {"7": 1}),
        ({"a.cls": b"2 5"}, {"2": 1, "5": 1}),
        ({"a.txt": b"cat; dog\n"}, {"cat": 1, "dog": 1}),
        ({"a.json": {"caption": None}, "a.cls": b"7"}, {"7": 1}),
    ],
    ids=str,
)
def test_labels_in_their_spellings(tmp_path, files, expected):
    found = labels_of({"a.jpg": jpeg(), **files, "z.jpg": jpeg(), "z.txt": b"other"}, tmp_path / "x.tar")
    assert found["a.jpg"] == expected


def test_numbers_have_names_beside_the_shards(tmp_path):
    (tmp_path / "classes.txt").write_text("cat\ndog\n")
    found = labels_of({"a.jpg": jpeg(), "a.cls": b"1", "b.jpg": jpeg(), "b.json": {"labels": [0]}}, tmp_path / "x.tar")
    assert found == {"a.jpg": {"dog": 1}, "b.jpg": {"cat": 1}}


@pytest.mark.parametrize(
    "files", [{"a.json": {"labels": [0, 1.0, False]}}, {"a.json": [0, 1, 0]}, {"a.cls": b"0 1 0"}], ids=str
)
def test_zeros_and_ones_are_of_the_classes_in_their_order(tmp_path, files):
    samples = {"a.jpg": jpeg(), **files, "z.jpg": jpeg(), "z.txt": b"dog"}
    write(tmp_path, x=samples)
    found = []
    table = read_dataset(tmp_path, report=found.append)
    assert (table.classes, table.labels.tolist()) == (("dog",), [[-1], [1]])
    assert [str(each) for each in found] == [
        "x.tar, sample a: holds 3 zeros and ones, and classes.txt beside the shards does not name as many classes"
    ]
    (tmp_path / "classes.txt").write_text("cat\ndog\nsofa\n")
    assert labels_of(samples, tmp_path / "x.tar")["a.jpg"] == {"cat": 0, "dog": 1, "sofa": 0}


def test_what_is_not_listed(tmp_path):
    write(tmp_path, x={"a.jpg": jpeg(), "a.txt": b"cat", "b.jpg": jpeg(), "b.json": {"dog": 1}, "c.jpg": jpeg()})
    assert read_dataset(tmp_path).labels.tolist() == [[1, -1], [-1, 1], [-1, -1]]
    assert read_dataset(tmp_path, unlisted="negative").labels.tolist() == [[1, 0], [-1, 1], [-1, -1]]


def test_bad_labels_are_problems(tmp_path):
    write(
        tmp_path,
        x={"a.jpg": jpeg(), "a.json": b"{", "b.jpg": jpeg(), "b.cls": b"cat", "c.jpg": jpeg(), "c.txt": b"cat"}
        | {"d.jpg": jpeg(), "d.cls": b"1" * 5000},
    )
    found = []
    assert len(read_dataset(tmp_path, report=found.append)) == 4
    assert [str(each) for each in found] == [
        "x.tar, sample a: its .json is not JSON",
        "x.tar, sample b: its .cls holds 'cat'; it is the number of a class",
        "x.tar, sample d: its .cls holds '11111111111111111111'; it is the number of a class",
    ]
    with pytest.raises(DataError, match="is not JSON"):
        read_dataset(tmp_path)


@pytest.mark.parametrize("root", ["local", "memory"])
@pytest.mark.parametrize("name", ["/photos/a", "./photos/a", "photos//a", "./photos/./a", "photos/0.tar/a", "p" * 300])
def test_a_file_is_found_by_any_spelling_of_its_path(tmp_path, root, name):
    folder = tmp_path / "coco.tar" if root == "local" else f"memory://{abs(hash(name))}"
    fsspec.open(f"{folder}/x.tar", "wb", auto_mkdir=True).open().close()
    with fsspec.open(f"{folder}/x.tar", "wb") as file:
        file.write(tar({f"{name}.jpg": jpeg(40), f"{name}.txt": b"cat"}))
    table = read_dataset(f"{folder}/x.tar")
    assert decode(table.path(0))[0, 0, 0] == 40


def test_a_name_that_is_no_text_stays_the_same(tmp_path):
    content = tar({"caf\xe9.jpg": jpeg(40), "caf\xe9.cls": b"1"}, format=tarfile.GNU_FORMAT, encoding="latin-1")
    (tmp_path / "x.tar").write_bytes(content)
    first = read_dataset(tmp_path)
    tars._known.clear()
    again = read_dataset(tmp_path)
    assert first.files == again.files == (r"x.tar/caf\xe9.jpg",)
    assert decode(again.path(0))[0, 0, 0] == 40
    write_table(again, tmp_path / "labels.csv")
    assert decode(read_dataset(tmp_path / "labels.csv").path(0))[0, 0, 0] == 40


def test_a_hard_link_is_the_file_it_leads_to(tmp_path):
    (tmp_path / "x.tar").write_bytes(tar({"a.jpg": jpeg(40), "b.jpg": "./a.jpg", "b.cls": b"1", "c.jpg": "none.jpg"}))
    table = read_dataset(tmp_path)
    assert table.files == ("x.tar/a.jpg", "x.tar/b.jpg")
    assert decode(table.path(1))[0, 0, 0] == 40


WORDY = {"labels": ["cat"], "caption": "w" * 900_000}
SAMPLE = [("a.jpg", jpeg(40)), ("a.txt", b"cat")]


@pytest.mark.parametrize(
    ("content", "sentence"),
    [
        (tar([*SAMPLE, ("a.jpg", jpeg(90))]), "holds a.jpg more than once; the last of a name counts"),
        (tar(SAMPLE) + tar(SAMPLE), "more follows its end, as of a second tar; 2 files before it are used"),
        (
            tar([*SAMPLE, ("sub/b.v2.jpg", jpeg()), ("sub/._c.jpg", b"")]),
            "sub/b.v2.jpg left out: a sample's name ends at its first dot; rename them, as a-b.jpg for a.b.jpg",
        ),
    ],
    ids=["a name twice", "two tars in one", "a dot in a name"],
)
def test_what_is_not_used_is_told(tmp_path, content, sentence):
    (tmp_path / "x.tar").write_bytes(content)
    found = []
    assert read_dataset(tmp_path, report=found.append).files == ("x.tar/a.jpg",)
    assert [each.what for each in found] == [sentence]


def test_a_file_that_is_linked_to_itself_is_not_there_twice(tmp_path):
    (tmp_path / "x.tar").write_bytes(tar([*SAMPLE, ("a.jpg", "a.jpg")]))
    assert len(read_dataset(tmp_path)) == 1


def test_threads_index_a_tar_together(monkeypatch):
    fsspec.filesystem("memory").pipe_file("memory://together/x.tar", tar(SAMPLE))
    scanned, second, plain = [], threading.Event(), tars._scan

    def scan(*args):
        scanned.append(args)
        second.wait(0.2) if len(scanned) == 1 else second.set()
        return plain(*args)

    monkeypatch.setattr(tars, "_scan", scan)
    paths = [tars.joined(as_path("memory://together"), "x.tar/a.jpg")] * 8
    assert all(all_at_once(exists, paths, remote=True))
    assert len(scanned) == 1


def test_a_large_index_is_read_back(tmp_path, monkeypatch):
    (tmp_path / "x.tar").write_bytes(tar(SAMPLE))
    monkeypatch.setattr(stored, "LARGEST", 10)  # of what other files of ours have
    tars.index_of(tmp_path / "x.tar")
    monkeypatch.setattr(tars, "_scan", None)
    assert "a.jpg" in tars.index_of(tmp_path / "x.tar").members


def test_half_a_character_is_a_sentence(tmp_path):
    write(tmp_path, x={"a.jpg": jpeg(), "a.json": rb'{"labels": ["cat \ud800"]}'})
    with pytest.raises(DataError, match=r"the name of the class 'cat \\ud800' is not UTF-8; rename it$"):
        read_dataset(tmp_path)


def test_shards_of_two_buckets_are_a_sentence():
    for bucket in ("one", "two"):
        fsspec.filesystem("memory").pipe_file(f"memory://{bucket}/x.tar", tar(SAMPLE))
    with pytest.raises(DataError, match="the shards of one dataset are in one bucket, or on one server"):
        read_dataset("memory://{one,two}/x.tar")


def test_texts_are_not_held_after_they_are_read(tmp_path):
    write(tmp_path, x={f"{n}.{end}": each for n in range(20) for end, each in (("jpg", jpeg()), ("json", WORDY))})
    tracemalloc.start()
    table = read_dataset(tmp_path)
    held, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(table) == 20
    assert held < 5_000_000


def damaged(whole: bytes) -> dict[str, bytes]:
    second = whole.index(b"b.jpg\0")
    return {
        "cut in an image": whole[: second + 700],
        "cut in a header": whole[: second + 100],
        "a header of noise": whole[:second] + b"\x07" * 2048 + whole[second + 2048 :],
    }


@pytest.mark.parametrize("how", ["cut in an image", "cut in a header", "a header of noise"])
@pytest.mark.parametrize("root", ["local", "memory"])
def test_a_damaged_tar_is_used_up_to_the_damage(tmp_path, how, root):
    whole = tar({"a.jpg": jpeg(), "a.txt": b"cat", "b.jpg": jpeg(side=200), "b.txt": b"dog"})
    content = damaged(whole)[how]
    path = f"{tmp_path}/{how}.tar" if root == "local" else f"memory://shards/{how}.tar"
    fsspec.open(path, "wb").open().close()
    with fsspec.open(path, "wb") as file:
        file.write(content)
    found = []
    table = read_dataset(path, report=found.append)
    assert table.files == (f"{how}.tar/a.jpg",)
    assert [each.kind for each in found] == ["damaged shard"]
    assert str(found[0]).startswith(path)
    assert "2 files before it are used" in str(found[0])


def test_what_is_no_tar_is_a_sentence(tmp_path):
    write(tmp_path, good={"a.jpg": jpeg(), "a.txt": b"cat"})
    (tmp_path / "bad.tar").write_bytes(b"\x1f\x8b no tar at all")
    found = []
    assert len(read_dataset(tmp_path, report=found.append)) == 1
    assert "bad.tar: is no tar that can be read" in str(found[0])
    with pytest.raises(DataError, match="there is no such file, nor any other of 2 shards"):
        read_dataset(f"{tmp_path}/none-{{0..1}}.tar", report=found.append)


def test_shards_at_a_url_are_read_by_ranges_and_indexed_once(monkeypatch):
    files = {
        f"{number}.{kind}": content
        for number in range(3)
        for kind, content in (("jpg", jpeg(10 * number)), ("cls", b"1"))
    }
    big = {"big.bin": bytes(8_000_000)}
    fsspec.filesystem("memory").pipe_file("memory://shards/x.tar", tar({**big, **files}))
    read = []
    plain = RemotePath.read_range
    monkeypatch.setattr(RemotePath, "read_range", lambda path, *span: read.append(span) or plain(path, *span))
    monkeypatch.setattr(RemotePath, "version", lambda path: "one")
    table = read_dataset("memory://shards/x.tar")
    assert sum(stop - start for start, stop in read) < 4_000_000  # what is no label and no header is passed over
    read.clear()
    tars._known.clear()
    again = read_dataset("memory://shards/x.tar")
    assert (again.files, read) == (table.files, [])
    (block,) = image_blocks(images_of(again, np.array([2, 0])), SMALL, batch_size=2)
    assert block.inputs[:, 0, 0, 0].tolist() == [20, 0]
    assert len(read) == 2


def test_an_index_is_of_one_version_of_a_tar(tmp_path):
    write(tmp_path, x={"a.jpg": jpeg(), "a.txt": b"cat"})
    read_dataset(tmp_path)
    write(tmp_path, x={"a.jpg": jpeg(side=64), "a.txt": b"cat;dog", "b.jpg": jpeg(99)})
    table = read_dataset(tmp_path)
    assert table.classes == ("cat", "dog")
    assert decode(table.path(1))[0, 0, 0] == 99


def test_a_table_of_what_is_in_tars_can_be_written_and_read(tmp_path):
    (tmp_path / "shards").mkdir()
    write(tmp_path / "shards", x={"a.jpg": jpeg(40), "a.txt": b"cat"})
    (tmp_path / "out").mkdir()
    table = named_from(read_dataset(tmp_path / "shards"), tmp_path / "out")
    write_table(table, tmp_path / "out" / "labels.csv")
    again = read_dataset(tmp_path / "out" / "labels.csv")
    assert decode(again.path(0))[0, 0, 0] == 40


def test_a_table_of_another_system_finds_what_is_in_tars(tmp_path):
    write(tmp_path, x={"a.jpg": jpeg(40), "b.jpg": jpeg(90)})
    (tmp_path / "labels.csv").write_text("file,labels\nx.tar\\a.jpg,cat\n/elsewhere/x.tar/b.jpg,dog\n")
    table = read_dataset(tmp_path / "labels.csv")
    assert [decode(table.path(row))[0, 0, 0] for row in range(2)] == [40, 90]


def test_a_folder_with_other_things_is_not_one_of_shards(tmp_path):
    write(tmp_path, download={"a.jpg": jpeg()})
    for name in ("cat", "dog"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "1.jpg").write_bytes(jpeg())
    assert recognise(tmp_path).name == "folders"
    write(tmp_path, download={"a.jpg": jpeg(), "a.txt": b"cat"})
    assert read_dataset(tmp_path, format="webdataset").files == ("download.tar/a.jpg",)


def test_the_review_follows_no_link_to_a_tar_elsewhere(tmp_path):
    for name in ("dataset", "elsewhere"):
        (tmp_path / name).mkdir()
    write(tmp_path / "elsewhere", x={"a.jpg": jpeg(), "a.txt": b"cat"})
    write(tmp_path / "dataset", y={"b.jpg": jpeg(side=50), "b.txt": b"cat"})
    (tmp_path / "dataset" / "x.tar").symlink_to(tmp_path / "elsewhere" / "x.tar")
    pictures = Pictures(read_dataset(tmp_path / "dataset"), cache=tmp_path / "thumbnails")
    assert pictures.frame(1)[:2] == (50, 50)
    with pytest.raises(DataError, match="is a link to outside of the dataset"):
        pictures.frame(0)


def test_a_pipe_is_no_tar(tmp_path):
    os.mkfifo(tmp_path / "x.tar")
    write(tmp_path, y={"b.jpg": jpeg(), "b.txt": b"cat"})
    found = []
    assert len(read_dataset(tmp_path, report=found.append)) == 1
    assert str(found[0]) == f"{tmp_path / 'x.tar'}: cannot be read (Is a pipe or a device)"


def test_where_no_shard_can_be_read_the_first_says_why(tmp_path):
    (tmp_path / "x.tar").write_bytes(b"no tar")
    with pytest.raises(DataError, match=r"x\.tar: is no tar that can be read"):
        read_dataset(tmp_path, report=[].append)
