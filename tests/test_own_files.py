"""Whatever stands in the place of a file of ours, it is read in its form, or there is a sentence."""

import numpy as np
import pytest
from pydantic import BaseModel

from onepair import files as stored
from onepair.errors import DataError
from onepair.files import map_array, read_record


class Point(BaseModel):
    x: int


def test_a_record_is_read_as_it_was_written(tmp_path):
    (tmp_path / "point.json").write_text(Point(x=3).model_dump_json())
    assert read_record(tmp_path / "point.json", Point) == Point(x=3)


def test_what_is_not_there_is_nothing(tmp_path):
    assert read_record(tmp_path / "point.json", Point) is None
    (tmp_path / "file").touch()
    assert read_record(tmp_path / "file" / "point.json", Point) is None
    assert map_array(tmp_path / "array.npy", np.float32, 2, advice="") is None


def test_what_has_another_form_is_a_sentence_with_the_advice(tmp_path, monkeypatch):
    monkeypatch.setattr(stored, "LARGEST", 10_000)
    contents = {
        b"": "is not JSON",
        b'{"x": ': "is not JSON",
        b"[" * 9_000: "is not JSON",
        b"\xff\xfe": "is not UTF-8 text",
        b"{}": "is damaged, x: field required",
        b'{"x": "many"}': "is damaged, x: input should be a valid integer",
        b"[1]": "is damaged",
        bytes(20_000): "is larger than any file of its kind",
    }
    for content, sentence in contents.items():
        (tmp_path / "point.json").write_bytes(content)
        with pytest.raises(DataError, match=rf"point\.json: {sentence}.*; ask again"):
            read_record(tmp_path / "point.json", Point, advice="ask again")


@pytest.mark.parametrize("target", [".", "point.json", "/dev/zero"])
def test_links_lead_to_a_sentence(tmp_path, target):
    (tmp_path / "point.json").symlink_to(target)
    with pytest.raises(DataError, match=r"point\.json: (cannot be read|is larger)"):
        read_record(tmp_path / "point.json", Point)


def test_an_array_is_mapped(tmp_path):
    array = np.arange(6, dtype=np.float32).reshape(2, 3)
    np.save(tmp_path / "array.npy", array)
    np.testing.assert_array_equal(map_array(tmp_path / "array.npy", np.float32, 2, advice=""), array)


@pytest.mark.parametrize(
    "array", [np.zeros(3, np.float32), np.zeros((2, 2)), np.array([["a"]]), np.array([[{}]]), np.zeros((), np.float32)]
)
def test_arrays_of_another_kind_are_a_sentence(tmp_path, array):
    np.save(tmp_path / "array.npy", array)
    with pytest.raises(DataError, match=r"array\.npy: .*; make it anew"):
        map_array(tmp_path / "array.npy", np.float32, 2, advice="make it anew")


def test_an_array_that_claims_more_than_there_is(tmp_path):
    """Which would otherwise be made room for before anything is read."""
    np.save(tmp_path / "array.npy", np.zeros((2, 3), np.float32))
    content = (tmp_path / "array.npy").read_bytes().replace(b"(2, 3)", b"(9999999999, 3)")
    (tmp_path / "array.npy").write_bytes(content)
    with pytest.raises(DataError, match="cannot be read"):
        map_array(tmp_path / "array.npy", np.float32, 2, advice="")


def test_an_archive_or_a_pickle_is_no_array(tmp_path):
    np.savez(tmp_path / "array.npz", np.zeros((2, 2), np.float32))
    (tmp_path / "array.npz").rename(tmp_path / "array.npy")
    with pytest.raises(DataError, match="cannot be read"):
        map_array(tmp_path / "array.npy", np.float32, 2, advice="")
