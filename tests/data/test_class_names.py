"""Spellings of one class: merged unless somebody keeps them apart, and written back as they were."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepair.data.class_rules import merge_spellings, spelling_groups
from onepair.data.formats.read import read_dataset
from onepair.data.label_table import LabelTable
from onepair.data.tables.same_form import Said, complete_same
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN
from onepair.runs.finished import FinishedRun
from tests.runs.pretended import pretend_finished


def table_at(tmp_path, text):
    path = tmp_path / "labels.csv"
    path.write_text(text)
    for file in "abc":
        (tmp_path / f"{file}.jpg").write_bytes(b"")
    return path


LISTS = "file,tags\na.jpg,dog;sofa\nb.jpg,Dog ;cat\nc.jpg,dogs|DOG|dog|Café|Cafe\u0301\n"


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("traffic light", "Traffic  Light", True),
        ("Café", "Cafe\u0301", True),
        ("bus", "buses", True),
        ("berry", "berries", True),
        ("glass", "glasses", False),
        ("short", "shorts", False),
        ("a", "A", False),
        ("size 1", "size 1s", False),
        ("dog", "dot", False),
        ("as", "ass", False),
    ],
)
def test_which_names_are_one(one, other, same):
    assert spelling_groups([one, other]) == ([[one, other]] if same else [])
    assert spelling_groups([other, one]) in ([[other, one]], [[one, other]]) if same else [[]]


def test_lists_are_merged_under_the_most_frequent_name_with_one_remark(tmp_path):
    found = []
    table = read_dataset(table_at(tmp_path, LISTS), report=found.append)
    assert table.classes == ("Cafe\u0301", "cat", "dog", "sofa")
    assert table.aliases == {"Café": "Cafe\u0301", "DOG": "dog", "Dog": "dog", "dogs": "dog"}
    assert (table.labels.dense() == POSITIVE).sum(0).tolist() == [1, 1, 3, 1]
    (remark,) = [each for each in found if each.kind == "spellings"]
    assert remark.remark
    assert str(remark).startswith("labels.csv: 4 spellings read as another: ")
    assert str(remark).endswith("--spellings keep keeps them apart")


def test_they_are_kept_apart_by_a_word(tmp_path):
    table = read_dataset(table_at(tmp_path, LISTS), spellings="keep", report=lambda problem: None)
    assert {"Dog", "DOG", "dog", "dogs"} <= set(table.classes)
    assert not table.aliases
    with pytest.raises(ValueError, match="spellings must be 'merge' or 'keep'"):
        read_dataset(tmp_path / "labels.csv", spellings="both")


@given(
    st.lists(st.lists(st.sampled_from([POSITIVE, NEGATIVE, UNKNOWN]), min_size=5, max_size=5), min_size=1, max_size=6)
)
def test_a_merged_label_is_the_largest_of_its_spellings(rows):
    labels = np.array(rows, np.int8)
    names = ("dog", "cat", "Dog", "cats", "dogs")
    table = LabelTable(tuple(map(str, range(len(rows)))), names, labels, np.array(["train"] * len(rows)), None)
    merged = merge_spellings(table)
    slow = {
        name: labels[:, [names.index(each) for each in group]].max(1)
        for group in (("dog", "Dog", "dogs"), ("cat", "cats"))
        for name in group
    }
    for column, name in enumerate(merged.classes):
        np.testing.assert_array_equal(merged.labels.dense()[:, column], slow[name])


def test_written_back_cells_keep_their_spelling(tmp_path):
    path = table_at(tmp_path, LISTS)
    table = read_dataset(path, report=lambda problem: None)
    said = [Said(0, "cat", POSITIVE), Said(1, "dog", NEGATIVE), Said(1, "sofa", POSITIVE), Said(2, "cat", POSITIVE)]
    assert complete_same(path, table, said).content.decode() == LISTS.replace("dog;sofa", "dog;sofa;cat").replace(
        "Dog ;cat", "cat ;sofa"
    ).replace("Café|Cafe\u0301", "Café|Cafe\u0301|cat")


def test_columns_of_one_class_agree_after_a_no(tmp_path):
    text = "file,dog,Dogs,cat\na.jpg,1,,1\nb.jpg,,1,\nc.jpg,1,1,0\n"
    path = table_at(tmp_path, text)
    table = read_dataset(path)
    assert table.classes == ("dog", "cat")
    said = [Said(0, "dog", POSITIVE), Said(1, "dog", NEGATIVE), Said(2, "dog", NEGATIVE)]
    found = complete_same(path, table, said).content.decode()
    assert found == "file,dog,Dogs,cat\na.jpg,1,,1\nb.jpg,0,0,\nc.jpg,0,0,0\n"
    path.write_text(found)
    assert read_dataset(path).labels.dense()[:, 0].tolist() == [POSITIVE, NEGATIVE, NEGATIVE]


def test_a_run_of_before_is_read_as_it_was(tmp_path):
    from onepair.runs.config import build_config

    path = table_at(tmp_path, "file,dog,Dog\na.jpg,1,0\nb.jpg,0,1\nc.jpg,1,1\n")
    data = {"source": str(path)}
    run = pretend_finished(tmp_path / "run", build_config({"data": {**data, "spellings": "keep"}})).path
    settings = run / "config.toml"
    settings.write_text("\n".join(line for line in settings.read_text().split("\n") if "spellings" not in line))
    assert FinishedRun(run).table.classes == ("dog", "Dog")
