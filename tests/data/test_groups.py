"""Images that belong together, by a column of the table, are in one fold and one split."""

import numpy as np
import pytest
from PIL import Image

from onepair.data import quality
from onepair.data.formats.read import read_dataset
from onepair.data.formats.write import write_labels
from onepair.data.images.image_files import near_duplicates
from onepair.data.quality import clean, find_problems
from onepair.labels import fold_groups
from onepair.runs.config import DataConfig
from onepair.runs.task import hold_out, prepare_task


def table_of(tmp_path, title, *, rows=40):
    lines = [f"{row:02}.jpg,{'dog' if row % 3 else 'cat'},walk {row // 4}" for row in range(rows)]
    path = tmp_path / "labels.csv"
    path.write_text("\n".join([f"file,tags,{title}", *lines]))
    return path


@pytest.mark.parametrize("title", ["group", "Session", "patient_id"])
def test_a_column_of_groups_is_read_and_written_again(tmp_path, title):
    remarks = []
    table = read_dataset(table_of(tmp_path, title), report=remarks.append)
    assert table.classes == ("cat", "dog")
    assert table.group == tuple(f"walk {row // 4}" for row in range(40))
    for name in ("again.csv", "again.parquet"):
        write_labels(table, tmp_path / name)
        again = read_dataset(tmp_path / name)
        assert (again.group, again.classes, again.fingerprint()) == (table.group, table.classes, table.fingerprint())


def test_a_class_called_group_is_a_class(tmp_path):
    (tmp_path / "wide.csv").write_text("file,group,dog\na.jpg,1,0\nb.jpg,0,1\nc.jpg,,1\n")
    table = read_dataset(tmp_path / "wide.csv")
    assert (table.classes, table.group) == (("group", "dog"), None)


def test_no_fold_and_no_split_cuts_a_group_apart(tmp_path):
    config = DataConfig(source=str(table_of(tmp_path, "group")))
    task = prepare_task(config)
    groups = np.array(task.table.group)
    assert len(task.validation) == 8
    assert not set(groups[task.train]) & set(groups[task.validation])
    held = [hold_out(task, DataConfig(source=config.source, fold=f"{part}/4")) for part in range(1, 5)]
    for each in held:
        assert not set(groups[each.train]) & set(groups[each.test])
    assert sorted(np.concatenate([each.test for each in held]).tolist()) == task.train.tolist()


def test_folds_of_groups_are_about_as_large_as_each_other():
    random = np.random.default_rng(0)
    groups = random.integers(0, 50, 1000)
    fold = fold_groups(groups, folds=5, seed=3)
    assert all(len(set(fold[groups == each])) == 1 for each in range(50))
    sizes = np.bincount(fold)
    assert len(sizes) == 5
    assert sizes.max() - sizes.min() <= 10
    assert len(np.unique(fold_groups([0, 0, 1], folds=5, seed=0))) == 2


def test_features_tell_of_images_that_look_a_little_less_the_same():
    random = np.random.default_rng(1)
    bits, features = random.integers(0, 2, (60, 128), np.uint8), random.normal(5, 1, (60, 30)).astype(np.float16)
    for row, (of, differ) in {1: (0, 20), 3: (2, 20), 5: (4, 30), 7: (6, 10)}.items():
        bits[row] = bits[of]
        bits[row, random.choice(128, differ, replace=False)] ^= 1
        if row != 3:  # which is of another thing
            features[row] = features[of] + random.normal(0, 0.1, 30)
    looks = {row: np.packbits(each).tobytes() for row, each in enumerate(bits)}
    features[7] = np.nan
    assert near_duplicates(looks, features) == [[0, 1], [6, 7]]
    assert near_duplicates(looks) == [[6, 7]]
    assert near_duplicates(dict.fromkeys(range(60), looks[0])) == []  # a kind of picture, not a burst


@pytest.mark.parametrize(
    ("title", "words", "told"),
    [
        ("Album", [f"walk {row // 4}" for row in range(40)], True),
        ("patient-ID", [f"walk {row // 4}" for row in range(40)], False),  # is taken for groups at once
        ("scene", ["beach", "street"] * 20, False),  # kinds of images
        ("event", [f"walk {row}" for row in range(40)], False),
    ],
)
def test_a_column_that_looks_like_groups_is_told_of(tmp_path, title, words, told):
    lines = [f"{row:02}.jpg,{'dog' if row % 3 else 'cat'},{word}" for row, word in enumerate(words)]
    (tmp_path / "labels.csv").write_text("\n".join([f"file,tags,{title}", *lines]))
    remarks = []
    read_dataset(tmp_path / "labels.csv", report=remarks.append)
    found = [each.where for each in remarks if each.kind == "likely groups"]
    assert found == ([f"labels.csv, column {title}"] if told else [])


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("Patient_{group}/{row:03}.jpg", "Patient_0 (4 files), Patient_1 (4 files), Patient_2 (4 files)"),
        ("mri-session{group}-{row}.png", "session0 (4 files), session1 (4 files), session2 (4 files)"),
        ("showcase{group} {row}.jpg", ""),  # no case
        ("case {row}.jpg", ""),  # one of each
        ("IMG_{row:04}.jpg", ""),
    ],
)
def test_names_of_files_that_look_like_groups_are_told_of(tmp_path, name, told):
    lines = [f"{name.format(row=row, group=row // 4)},{'dog' if row % 3 else 'cat'}" for row in range(12)]
    for title, expected in (("note", told), ("group", "")):  # where groups are given, nothing is to be said
        path = tmp_path / "labels.csv"
        path.write_text("\n".join([f"file,tags,{title}", *(f"{line},one" for line in lines)]))
        found = [each for each in find_problems(read_dataset(path)) if each.kind == "likely groups"]
        assert [each.where for each in found if each.remark] == ([expected] if expected else [])


def test_photos_that_look_nearly_the_same_become_a_group(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    random, lines = np.random.default_rng(0), ["file,tags"]
    for number in range(30):
        pixels = np.kron(random.integers(0, 256, (12, 12, 3)), np.ones((8, 8, 1))).astype(np.uint8)
        Image.fromarray(pixels).save(tmp_path / f"{number:02}.jpg")
        lines.append(f"{number:02}.jpg,{'dog' if number % 2 else 'cat'}")
        if number in (4, 9):
            for more in range(2):  # the next ones of a burst: a little brighter, cut a little, compressed anew
                shot = np.clip(pixels[more:, : 96 - more].astype(int) + 6, 0, 255).astype(np.uint8)
                Image.fromarray(shot).save(tmp_path / f"{number:02} {more}.jpg", quality=60)
                lines.append(f"{number:02} {more}.jpg,cat")
    (tmp_path / "flat.png").write_bytes(b"")
    for name in ("white", "black"):  # have nothing in common but that there is nothing to see
        Image.new("RGB", (50, 50), name).save(tmp_path / f"{name}.png")
        lines.append(f"{name}.png,dog")
    (tmp_path / "labels.csv").write_text("\n".join(lines))
    table = read_dataset(tmp_path / "labels.csv")
    for images in (False, True):
        found = [each for each in find_problems(table, images=images) if each.kind == "nearly the same"]
        assert [each.where for each in found] == ["04.jpg, 04 0.jpg, 04 1.jpg", "09.jpg, 09 0.jpg, 09 1.jpg"]
        assert all(each.remark for each in found)
    monkeypatch.setattr(quality, "MOST_COMPARED", len(table) - 1)
    (told,) = [each for each in find_problems(table) if each.kind == "nearly the same"]
    assert "--decode" in told.what
    cleaned = clean(table).table
    groups = {name: [file for file, group in zip(cleaned.files, cleaned.group, strict=True) if group == name]
              for name in set(cleaned.group) - {""}}  # fmt: skip
    assert sorted(groups.values()) == [["04.jpg", "04 0.jpg", "04 1.jpg"], ["09.jpg", "09 0.jpg", "09 1.jpg"]]
