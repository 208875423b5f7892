"""Whatever the files hold, a reader returns a table or raises DataError: nothing else ever comes out."""

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from onepair.data import DataError, LabelTable, read_dataset
from tests.data import layouts

thorough = settings(
    derandomize=True, deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)

words = ["file", "split", "labels", "cat", "train", "id", "-1", "1e999", "NaN"]
fragments = st.sampled_from([*words, *',;\t"\n\r\0[]{}:\\ 01é', "\ufeff", "\u2028"])
texts = st.lists(fragments | st.text(max_size=3), max_size=30).map(
    lambda parts: "".join(parts).encode(errors="replace")
)


def edits(content: bytes) -> st.SearchStrategy[bytes]:
    """A part of the content replaced by a few other bytes, by nothing, or by a copy of another part."""
    place = st.integers(0, len(content))
    spans = st.tuples(place, place).map(sorted)
    replacements = st.binary(max_size=4) | texts | spans.map(lambda span: content[span[0] : span[1]])
    return st.builds(lambda span, new: content[: span[0]] + new + content[span[1] :], spans, replacements)


def check(path: Path) -> None:
    """Read strictly and leniently: each gives a table or a DataError, and strict reading refuses what has problems."""
    problems = []
    lenient, strict = read_or_refuse(path, report=problems.append), read_or_refuse(path)
    assert strict == (lenient and all(problem.remark for problem in problems))


def read_or_refuse(path: Path, **options: object) -> bool:
    try:
        return isinstance(read_dataset(path, **options), LabelTable)
    except DataError:
        return False


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
@thorough
@given(data=st.data())
def test_damaged_files(tmp_path, layout, data):
    path = layouts.LAYOUTS[layout](tmp_path)
    victim = data.draw(st.sampled_from(sorted(each for each in tmp_path.rglob("*") if each.is_file())))
    victim.write_bytes(data.draw(st.binary(max_size=60) | texts | edits(victim.read_bytes())))
    check(path)


@pytest.mark.parametrize("layout", layouts.LAYOUTS)
def test_missing_files(tmp_path, layout):
    path = layouts.LAYOUTS[layout](tmp_path)
    for victim in sorted(each for each in tmp_path.rglob("*") if each.is_file()):
        content = victim.read_bytes()
        victim.unlink()
        with pytest.raises(DataError):
            read_dataset(path)
        victim.mkdir()  # a folder of that name is no better
        with pytest.raises(DataError):
            read_dataset(path)
        victim.rmdir()
        victim.write_bytes(content)


scalars = (
    st.none() | st.booleans() | st.integers(-1, 40) | st.floats() | st.sampled_from(["", "a.jpg", "cat", "\ud800"])
)
keys = st.sampled_from(["id", "name", "file_name", "image_id", "category_id"])
entries = st.lists(st.dictionaries(keys, scalars | st.lists(scalars, max_size=2), max_size=5) | scalars, max_size=6)


@thorough
@given(document=st.dictionaries(st.sampled_from(["images", "annotations", "categories"]), entries))
def test_json_of_another_form(tmp_path, document):
    path = tmp_path / "instances.json"
    path.write_text(json.dumps(document))
    check(path)


@pytest.mark.parametrize("name", ["train_images", "train_labels", "val_labels"])
@thorough
@given(array=arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, min_side=0)))
def test_arrays_of_another_form(tmp_path, name, array):
    layouts.nuswide_published(tmp_path)
    np.save(tmp_path / f"formatted_{name}.npy", array)
    check(tmp_path)
