"""The feature cache: right, resumable after any crash, never stale, never written by two."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn

from onepair.data import features
from onepair.data.features import cached_features
from onepair.data.images import normalise
from onepair.data.labeltable import LabelTable
from onepair.data.loading import image_batches
from onepair.data.preprocessing import Preprocessing
from onepair.data.problems import DataError
from onepair.files import BusyError, locked

SCALE = Preprocessing(8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
COUNT = 50


class Tiny(nn.Module):
    """A backbone as the cache sees it, small and deterministic."""

    def __init__(self, name: str = "tiny", seed: int = 0) -> None:
        super().__init__()
        self.name, self.feature_dim, self.seed = name, 6, seed
        self.weight = nn.Parameter(torch.randn(6, 192, generator=torch.Generator().manual_seed(seed)))

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        return images.flatten(1) @ self.weight.T

    def weights_id(self) -> str:
        return str(self.seed)

    def for_inference(self) -> nn.Module:
        return self


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


def extract(folder: Path, table: LabelTable, backbone: Tiny | None = None, **options: object) -> np.ndarray:
    options = {"preprocessing": SCALE, "batch_size": 4, "workers": 0, **options}
    return cached_features(table, backbone or Tiny(), folder=folder, **options)


@pytest.fixture(autouse=True)
def frequent_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(features, "ROWS_PER_COMMIT", 8)


def test_features_are_those_of_the_backbone(tmp_path: Path) -> None:
    table = table_of_files(tmp_path / "images", COUNT)
    cached = extract(tmp_path / "cache", table, workers=1)
    batches = image_batches(table, np.arange(COUNT), SCALE, batch_size=COUNT, training=False, workers=0)
    expected = Tiny()(normalise(next(batches).images, SCALE)).detach()
    assert cached.shape == (COUNT, 6)
    assert cached.dtype == np.float16
    np.testing.assert_allclose(cached, expected, rtol=2e-3, atol=2e-3)


def test_chosen_rows_come_in_the_order_asked(tmp_path: Path) -> None:
    table = table_of_pixels()
    whole, chosen = extract(tmp_path, table), extract(tmp_path, table, rows=np.array([7, 3, 40]))
    np.testing.assert_array_equal(chosen, whole[[7, 3, 40]])


def test_flipped_view_is_the_view_of_mirrored_images(tmp_path: Path) -> None:
    table = table_of_pixels()
    mirrored = replace(table, pixels=np.ascontiguousarray(table.pixels[:, :, ::-1]))
    np.testing.assert_array_equal(extract(tmp_path, table, view="flipped"), extract(tmp_path, mirrored))


def test_a_finished_cache_is_read_only_and_not_computed_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = table_of_pixels()
    first = extract(tmp_path, table)
    monkeypatch.setattr(Tiny, "for_inference", lambda self: pytest.fail("computed again"))
    again = extract(tmp_path, table)
    np.testing.assert_array_equal(again, first)
    assert isinstance(again, np.memmap)
    assert not again.flags.writeable


def test_everything_that_decides_the_features_decides_the_file(tmp_path: Path) -> None:
    table, folder = table_of_files(tmp_path / "images"), tmp_path / "cache"

    def files_after(**options: object) -> int:
        extract(folder, **{"table": table, **options})
        return len(list(folder.glob("*.npy")))

    assert files_after() == 1
    assert files_after(backbone=Tiny(name="other")) == 2
    assert files_after(backbone=Tiny(seed=1)) == 3
    for number, change in enumerate(
        [{"mean": (0.0, 0.0, 0.0)}, {"std": (1.0, 1.0, 1.0)}, {"resize": "crop"}, {"interpolation": "bilinear"}], 4
    ):
        assert files_after(preprocessing=replace(SCALE, **change)) == number
    assert files_after(view="flipped") == 8
    assert files_after(rows=np.array([0, 1])) == 9
    assert files_after(rows=np.array([1, 0])) == 10

    Image.new("RGB", (5, 5)).save(table.path(2))
    assert files_after() == 11
    os.utime(table.path(2), (1, 1))
    assert files_after() == 12


def test_what_does_not_decide_the_features_changes_nothing(tmp_path: Path) -> None:
    table, folder = table_of_files(tmp_path / "images"), tmp_path / "cache"
    extract(folder, table)
    (tmp_path / "images").rename(tmp_path / "moved")
    extract(folder, replace(table, root=tmp_path / "moved"), preprocessing=replace(SCALE, flip=0.0), batch_size=3)
    assert len(list(folder.glob("*.npy"))) == 1


def test_changed_pixels_in_memory_are_noticed(tmp_path: Path) -> None:
    table = table_of_pixels()
    extract(tmp_path, table)
    table.pixels[3, 0, 0, 0] ^= 1
    extract(tmp_path, table)
    assert len(list(tmp_path.glob("*.npy"))) == 2


class CrashError(Exception):
    """Stands for the end of the process."""


@pytest.mark.parametrize("crash_at", [1, 2, 3, 7])
def test_a_crash_between_rows_and_marker_loses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, crash_at: int
) -> None:
    table = table_of_pixels()
    expected = extract(tmp_path / "whole", table)
    marks: Iterator[int] = iter(range(1, 100))
    mark = features._mark

    def failing_mark(*arguments: object) -> None:
        if next(marks) == crash_at:
            raise CrashError
        mark(*arguments)

    monkeypatch.setattr(features, "_mark", failing_mark)
    with pytest.raises(CrashError):
        extract(tmp_path / "cut", table)
    monkeypatch.setattr(features, "_mark", mark)
    resumed_from: list[int] = []
    resumed = extract(tmp_path / "cut", table, on_progress=lambda done, _: resumed_from.append(done))
    assert resumed_from[0] == max(crash_at - 2, 0) * 8
    assert np.array_equal(resumed, expected)


KILLED = """
import sys
from pathlib import Path
from onepair.data import features
from {module} import extract, table_of_pixels

features.ROWS_PER_COMMIT = 8
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
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(here.parent), os.environ.get("PYTHONPATH", "")])},
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


@pytest.mark.parametrize(("stop", "workers"), [(4, 0), (20, 1), (48, 0)])
def test_resumes_after_kill_9_bit_for_bit(tmp_path: Path, stop: int, workers: int) -> None:
    kill(start_and_wait(tmp_path / "cut", stop=stop, workers=workers))
    seen: list[int] = []
    resumed = extract(tmp_path / "cut", table_of_pixels(), on_progress=lambda done, _: seen.append(done))
    assert seen[0] == stop // 8 * 8
    assert np.array_equal(resumed, extract(tmp_path / "whole", table_of_pixels()))


def test_a_second_process_is_locked_out_until_the_first_is_gone(tmp_path: Path) -> None:
    first = start_and_wait(tmp_path, stop=20)
    try:
        with pytest.raises(BusyError, match=rf"tiny-.*\.npy is in use by process {first.pid}"):
            extract(tmp_path, table_of_pixels())
    finally:
        kill(first)
    assert len(extract(tmp_path, table_of_pixels())) == COUNT


def test_a_lock_is_released_after_use(tmp_path: Path) -> None:
    for _ in range(2):
        with locked(tmp_path / "a.lock"):
            assert (tmp_path / "a.lock").read_text() == str(os.getpid())


def test_a_lost_file_or_marker_starts_anew(tmp_path: Path) -> None:
    table = table_of_pixels()
    expected = np.array(extract(tmp_path, table))
    for pattern in ("*.npy", "*.json"):
        next(tmp_path.glob(pattern)).unlink()
        assert np.array_equal(extract(tmp_path, table), expected)


def test_the_marker_says_what_the_cache_holds(tmp_path: Path) -> None:
    extract(tmp_path, table_of_pixels())
    marker = json.loads(next(tmp_path.glob("*.json")).read_text())
    assert marker["rows_done"] == COUNT
    assert (marker["backbone"], marker["weights"], marker["view"]) == ("tiny", "0", "plain")
    assert not list(tmp_path.glob(".*"))


def test_missing_and_unreadable_images_are_named(tmp_path: Path) -> None:
    table = table_of_files(tmp_path / "images")
    table.path(2).write_bytes(b"broken")
    with pytest.raises(DataError, match=r"2\.png"):
        extract(tmp_path / "cache", table)
    table.path(2).unlink()
    with pytest.raises(DataError, match=r"2\.png: No such file"):
        extract(tmp_path / "cache", table)


def test_no_rows_and_features_beyond_half_precision_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no images"):
        extract(tmp_path, table_of_pixels(), rows=np.array([], int))
    broken = Tiny()
    broken.weight.data *= 1e6
    with pytest.raises(ValueError, match="half precision"):
        extract(tmp_path, table_of_pixels(), broken)
