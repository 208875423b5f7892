"""The feature cache: right, resumable after any crash, never stale, open to several processes at once."""

import json
import os
import shutil
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from onepair import features as feature_store
from onepair.data.images.decode import Preprocessing, decode, scale
from onepair.data.label_table import LabelTable
from onepair.errors import DataError
from onepair.features import Extraction, FeatureStore, Segment, as_keys, extract_features

SCALE = Preprocessing(8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
COUNT = 50


class Tiny:
    """A backbone as the cache sees it, and what computes it: small and deterministic."""

    feature_dim, batch_size = 6, 4

    def __init__(self, name: str = "tiny", seed: int = 0) -> None:
        self.name, self.seed = name, seed
        self.weight = np.random.default_rng(seed).normal(size=(192, 6)).astype(np.float32)
        self.computed = 0

    def __call__(self, images: np.ndarray) -> np.ndarray:
        self.computed += len(images)
        return (images.reshape(len(images), -1) / np.float32(127.5) - 1) @ self.weight

    def weights_id(self) -> str:
        return str(self.seed)


def table_of_pixels(count: int = COUNT) -> LabelTable:
    pixels = np.random.default_rng(0).integers(0, 256, (count, 8, 8, 3), dtype=np.uint8)
    files = tuple(f"{index}.png" for index in range(count))
    return LabelTable(files, ("any",), np.zeros((count, 1), np.int8), np.full(count, "train"), Path(), pixels)


def table_of_files(root: Path, count: int = 4) -> LabelTable:
    whole = table_of_pixels(count)
    root.mkdir(parents=True, exist_ok=True)
    for file, pixels in zip(whole.files, whole.pixels, strict=True):
        Image.fromarray(pixels).save(root / file)
    return replace(whole, root=root, pixels=None)


def extraction(folder: Path, table: LabelTable, backbone: Tiny | None = None, **options: object) -> Extraction:
    backbone = backbone or Tiny()
    options = {"preprocessing": SCALE, "workers": 0, **options}
    return extract_features(table, backbone, engines=lambda _: backbone, folder=folder, **options)


def extract(*arguments: object, **options: object) -> np.ndarray:
    return extraction(*arguments, **options).features


def computed(*arguments: object, **options: object) -> int:
    """How many images had to be computed."""
    backbone = options.pop("backbone", None) or Tiny()
    extraction(*arguments, backbone, **options)
    return backbone.computed


@pytest.fixture(autouse=True)
def frequent_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feature_store, "ROWS_PER_COMMIT", 8)


def test_features_are_those_of_the_backbone(tmp_path: Path) -> None:
    table = table_of_files(tmp_path / "images", COUNT)
    cached = extract(tmp_path / "cache", table, workers=1)
    expected = Tiny()(np.stack([scale(decode(table.path(row)), SCALE) for row in range(COUNT)]))
    assert cached.shape == (COUNT, 6)
    assert cached.dtype == np.float16
    np.testing.assert_allclose(cached, expected, rtol=2e-3, atol=2e-3)


def test_chosen_rows_come_in_the_order_asked(tmp_path: Path) -> None:
    table = table_of_pixels()
    chosen = extract(tmp_path, table, rows=np.array([7, 3, 40]))
    np.testing.assert_array_equal(chosen, extract(tmp_path, table)[[7, 3, 40]])
    np.testing.assert_array_equal(chosen, extract(tmp_path / "other", table)[[7, 3, 40]])


def test_flipped_view_is_the_view_of_mirrored_images(tmp_path: Path) -> None:
    table = table_of_pixels()
    mirrored = replace(table, pixels=np.ascontiguousarray(table.pixels[:, :, ::-1]))
    np.testing.assert_array_equal(extract(tmp_path, table, view="flipped"), extract(tmp_path, mirrored))


def test_what_is_there_is_mapped_read_only_and_not_computed_again(tmp_path: Path) -> None:
    table = table_of_pixels()
    first = extraction(tmp_path, table)
    assert (first.new, first.there, first.unreadable) == (COUNT, 0, 0)
    again = extraction(tmp_path, table, None, on_progress=lambda *_: pytest.fail("computed again"))
    assert (again.new, again.there, again.unreadable) == (0, COUNT, 0)
    np.testing.assert_array_equal(again.features, first.features)
    assert isinstance(again.features, np.memmap)
    for each in (first, again, extraction(tmp_path, table, rows=np.array([2, 1]))):
        assert not each.features.flags.writeable


def test_everything_that_decides_the_features_is_told_apart(tmp_path: Path) -> None:
    table, folder = table_of_files(tmp_path / "images"), tmp_path / "cache"
    assert computed(folder, table) == 4
    assert computed(folder, table, backbone=Tiny(name="other")) == 4
    assert computed(folder, table, backbone=Tiny(seed=1)) == 4
    for change in (
        {"mean": (0.0, 0.0, 0.0)},
        {"std": (1.0, 1.0, 1.0)},
        {"resize": "crop"},
        {"interpolation": "bilinear"},
    ):
        assert computed(folder, table, preprocessing=replace(SCALE, **change)) == 4
    assert computed(folder, table, view="flipped") == 4
    Image.new("RGB", (5, 5)).save(table.path(2))
    assert computed(folder, table) == 1


def test_only_new_images_are_computed(tmp_path: Path) -> None:
    """However the dataset has come to hold the others: grown, cut, moved, copied, renamed, or touched."""
    table, folder = table_of_files(tmp_path / "images", 10), tmp_path / "cache"
    assert computed(folder, table, rows=np.arange(6)) == 6
    assert computed(folder, table) == 4
    assert computed(folder, table, rows=np.array([9, 0, 3])) == 0
    (tmp_path / "images").rename(tmp_path / "moved")
    shutil.copytree(tmp_path / "moved", tmp_path / "copied", copy_function=shutil.copyfile)
    for root in ("moved", "copied"):
        assert computed(folder, replace(table, root=tmp_path / root), preprocessing=replace(SCALE, flip=0.0)) == 0
    table = replace(table, root=tmp_path / "moved")
    os.utime(table.path(2), (1, 1))
    table.path(3).rename(tmp_path / "moved" / "new.png")
    assert computed(folder, replace(table, files=(*table.files[:3], "new.png", *table.files[4:]))) == 0


def test_an_edited_image_of_the_same_name_and_size_is_another(tmp_path: Path) -> None:
    table, folder = table_of_files(tmp_path / "images"), tmp_path / "cache"
    for file in table.files:  # of BMP files the size does not depend on what is on them
        Image.open(tmp_path / "images" / file).save((tmp_path / "images" / file).with_suffix(".bmp"))
    table = replace(table, files=tuple(file.replace("png", "bmp") for file in table.files))
    before = extract(folder, table)
    size = table.path(1).stat().st_size
    Image.new("RGB", (8, 8), "red").save(table.path(1))
    assert table.path(1).stat().st_size == size
    after = extract(folder, table)
    assert (before != after).any(axis=1).tolist() == [False, True, False, False]


def test_an_image_that_is_there_twice_is_computed_once(tmp_path: Path) -> None:
    table = table_of_pixels(4)
    twice = replace(table, pixels=table.pixels[[0, 1, 0, 0]])
    assert computed(tmp_path, twice) == 2
    np.testing.assert_array_equal(extract(tmp_path, twice), extract(tmp_path, table)[[0, 1, 0, 0]])


def test_changed_pixels_in_memory_are_noticed(tmp_path: Path) -> None:
    table = table_of_pixels()
    extract(tmp_path, table)
    table.pixels[3, 0, 0, 0] ^= 1
    assert computed(tmp_path, table) == 1


class CrashError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("crash_at", range(1, 15))
def test_a_crash_after_any_write_loses_at_most_one_commit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    """Rows and records are written in turn; whichever write is the last, nothing wrong is ever read."""
    table = table_of_pixels()
    expected = extract(tmp_path / "whole", table)
    writes = 0
    fsync = os.fsync

    def failing(descriptor: int) -> None:
        nonlocal writes
        writes += 1
        if writes >= crash_at:
            raise CrashError
        fsync(descriptor)

    store = FeatureStore(tmp_path / "cut" / next((tmp_path / "whole").glob("tiny-*")).name, 6, {})
    with monkeypatch.context() as patch:
        patch.setattr(feature_store.os, "fsync", failing)
        with pytest.raises(CrashError):
            extract(tmp_path / "cut", table)
    assert store.folder.exists()
    last = max(store.folder.glob("*.keys"))
    if crash_at % 3 == 0:  # the end of a record got lost as well
        last.write_bytes(last.read_bytes()[:-5])
    resumed = extraction(tmp_path / "cut", table)
    assert resumed.there >= (crash_at - 1) // 2 * 8 - 1
    assert np.array_equal(resumed.features, expected)


KILLED = """
import sys
from pathlib import Path
import numpy as np
from onepair import features as feature_store
from {module} import COUNT, extract, table_of_pixels

feature_store.ROWS_PER_COMMIT = 8
def wait_to_be_killed(done, total):
    if done >= {stop}:
        print(done, flush=True)
        sys.stdin.read()
extract(Path(sys.argv[1]), table_of_pixels(), workers={workers}, on_progress=wait_to_be_killed)
"""


def start_and_wait(folder: Path, *, stop: int, workers: int = 0) -> subprocess.Popen[str]:
    """Run an extraction in another process until it has written `stop` rows; there it stands until it is killed."""
    here = Path(__file__)
    script = KILLED.format(module=here.stem, stop=stop, workers=workers)
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(folder)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), *sys.path])},
    )
    assert process.stdout is not None
    assert int(process.stdout.readline()) >= stop
    return process


def kill(process: subprocess.Popen[str]) -> None:
    """Kill -9, without waiting for worker processes that outlive their parent for some seconds."""
    process.kill()
    process.wait()
    for pipe in (process.stdin, process.stdout):
        assert pipe is not None
        pipe.close()


def test_resumes_after_kill_9_bit_for_bit(tmp_path: Path) -> None:
    kill(start_and_wait(tmp_path / "cut", stop=20, workers=1))
    resumed = extraction(tmp_path / "cut", table_of_pixels())
    assert resumed.there == 16
    assert np.array_equal(resumed.features, extract(tmp_path / "whole", table_of_pixels()))


def test_processes_extract_at_once(tmp_path: Path) -> None:
    """While one is at work, another finds what it has done so far and does the rest itself."""
    first = start_and_wait(tmp_path, stop=20)
    try:
        found = extraction(tmp_path, table_of_pixels())
    finally:
        kill(first)
    assert (found.there, found.new) == (16, COUNT - 16)
    assert np.array_equal(found.features, extract(tmp_path / "alone", table_of_pixels()))


def test_shares_of_processes_make_up_the_whole(tmp_path: Path) -> None:
    table = table_of_pixels()
    for process in range(3):
        extract(tmp_path, table, rows=np.arange(COUNT)[process::3])
    whole = extraction(tmp_path, table)
    assert (whole.new, whole.there) == (0, COUNT)
    assert np.array_equal(whole.features, extract(tmp_path / "alone", table))


@pytest.mark.parametrize("kind", ["features", "keys"])
@pytest.mark.parametrize("damage", ["gone", "torn", "changed", "empty"])
def test_damaged_segments_are_computed_again(tmp_path: Path, kind: str, damage: str) -> None:
    table = table_of_pixels()
    expected = np.array(extract(tmp_path, table))
    (file,) = tmp_path.glob(f"tiny-*/*.{kind}")
    content = bytearray(file.read_bytes())
    if damage == "gone":
        file.unlink()
    else:
        content[100] ^= 1
        file.write_bytes({"torn": content[:50], "changed": content, "empty": b""}[damage])
    for _ in range(2):
        found = extraction(tmp_path, table)
        assert np.array_equal(found.features, expected)
        if damage == "changed":
            assert found.there >= COUNT - 1
    assert (found.there, found.new) == (COUNT, 0)


def test_results_that_are_too_large_for_memory_are_mapped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table, rows = table_of_pixels(), np.random.default_rng(0).permutation(COUNT)
    expected = extract(tmp_path, table)[rows]
    monkeypatch.setattr(feature_store, "_IN_MEMORY", 100)
    monkeypatch.setattr(feature_store, "_AT_ONCE", 7)
    found = extract(tmp_path, table, rows=rows)
    assert isinstance(found, np.memmap)
    np.testing.assert_array_equal(found, expected)
    assert not list(tmp_path.glob("tiny-*/tmp*"))


def test_the_store_says_what_it_holds(tmp_path: Path) -> None:
    folder = extraction(tmp_path, table_of_pixels()).folder
    described = json.loads((folder / "store.json").read_text())
    assert (described["backbone"], described["weights"], described["view"]) == ("tiny", "0", "plain")
    assert described["features"] == 6


def test_a_store_finds_what_it_was_given(tmp_path: Path) -> None:
    """Beside a dictionary: random keys, some again and again, by several segments."""
    random = np.random.default_rng(0)
    store = FeatureStore(tmp_path, 3, {})
    expected: dict[bytes, np.ndarray] = {}
    for _ in range(4):
        with Segment(store) as segment:
            for _ in range(5):
                keys = list({bytes([each] * 16) for each in random.integers(0, 60, 6)})
                rows = random.normal(size=(len(keys), 3)).astype(np.float16)
                segment.add(keys, rows)
                expected |= zip(keys, rows, strict=True)
    store.refresh()
    asked = [bytes([each] * 16) for each in random.integers(0, 80, 200)]
    found = store.read(store.find(as_keys(asked)))
    for key, row in zip(asked, found, strict=True):
        np.testing.assert_array_equal(row, expected.get(key, np.full(3, np.nan)))


def test_missing_and_unreadable_images_are_named(tmp_path: Path) -> None:
    table = table_of_files(tmp_path / "images")
    table.path(2).write_bytes(b"broken")
    with pytest.raises(DataError, match=r"2\.png: is not an image"):
        extract(tmp_path / "cache", table)
    table.path(2).unlink()
    with pytest.raises(DataError, match=r"2\.png: No such file"):
        extract(tmp_path / "cache", table)


def test_unreadable_images_are_reported_where_one_goes_on(tmp_path: Path) -> None:
    table = table_of_files(tmp_path / "images", 6)
    table.path(1).unlink()
    table.path(4).write_bytes(b"broken")
    for expected in ((4, 0, 2), (0, 4, 2)):
        problems: list[object] = []
        found = extraction(tmp_path / "cache", table, report=problems.append)
        assert (found.new, found.there, found.unreadable) == expected
        assert np.isnan(found.features).all(axis=1).tolist() == [False, True, False, False, True, False]
        assert [problem.where for problem in problems] == [str(table.path(1)), str(table.path(4))]


def test_no_rows_and_features_beyond_half_precision_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images"):
        extract(tmp_path, table_of_pixels(), rows=np.array([], int))
    broken = Tiny()
    broken.weight *= 1e6
    with pytest.raises(ValueError, match="half precision"):
        extract(tmp_path, table_of_pixels(), broken)


def test_progress_begins_with_what_is_there(tmp_path: Path) -> None:
    table, told = table_of_pixels(10), []
    extract(tmp_path, table, rows=np.arange(3))
    extract(tmp_path, table, on_progress=lambda *state: told.append(state))
    assert told == [(3, 10), (7, 10), (10, 10)]
