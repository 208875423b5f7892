"""Synonyms, kinds and exclusive classes: implied labels are known labels, and contradictions are told."""

import itertools

import numpy as np
import pytest

from onepair.data.class_rules import apply_rules, read_rules
from onepair.data.formats.read import read_dataset
from onepair.data.label_table import LabelTable
from onepair.data.tables.same_form import Said, complete_same
from onepair.errors import DataError
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN


def write(tmp_path, text, name="labels.csv"):
    path = tmp_path / name
    path.write_text(text)
    for file in "abc":
        (tmp_path / f"{file}.jpg").write_bytes(b"")
    return path


def test_other_names_are_the_class_and_are_written_back_as_they_were(tmp_path):
    path = write(tmp_path, "file,tags\na.jpg,Hund;couch\nb.jpg,dog\nc.jpg,sofa|hund\n")
    found = []
    table = read_dataset(path, same=["hund=dog", "couch=sofa", "chat=cat"], report=found.append)
    assert table.classes == ("dog", "sofa")
    assert table.labels.dense().tolist() == [[1, 1], [1, -1], [1, 1]]
    assert [str(each) for each in found if each.kind == "classes"] == [
        "labels.csv: no class is called chat, which is to be the same as cat"
    ]
    said = [Said(0, "sofa", POSITIVE), Said(1, "sofa", POSITIVE), Said(2, "dog", NEGATIVE)]
    written = complete_same(path, table, said).content.decode()
    assert written == "file,tags\na.jpg,Hund;couch\nb.jpg,dog;sofa\nc.jpg,sofa\n"


def test_a_class_may_get_a_name_that_the_table_does_not_have(tmp_path):
    path = write(tmp_path, "file,hund,katze\na.jpg,1,\nb.jpg,,1\n")
    table = read_dataset(path, same=["hund=dog"])
    assert table.classes == ("dog", "katze")
    found = complete_same(path, table, [Said(1, "dog", POSITIVE)])
    assert found.content.decode() == "file,hund,katze\na.jpg,1,\nb.jpg,1,1\n"


def test_a_table_of_classes(tmp_path):
    classes = write(
        tmp_path, "Name;same as;is a;not with\nDog;;animal;cat\nhund;dog;;\nanimal;;living;\nfish;;animal;\n", "c.csv"
    )
    path = write(tmp_path, "file,dog,hund,cat,animal\na.jpg,,1,,\nb.jpg,,,1,\nc.jpg,,,,0\n")
    table = read_dataset(path, classes=classes)
    assert table.classes == ("dog", "cat", "animal", "living")
    assert table.labels.dense().tolist() == [[1, 0, 1, 1], [0, 1, -1, -1], [0, -1, 0, -1]]


def slow(labels, is_a, not_with):
    """All labels that every complete and consistent row with these labels shares."""
    worlds = [
        world
        for world in itertools.product((0, 1), repeat=len(labels))
        if all(world[one] <= world[other] for one, other in is_a)
        and not any(world[one] and world[other] for one, other in not_with)
        and all(known in (UNKNOWN, value) for known, value in zip(labels, world, strict=True))
    ]
    return [next(iter(values)) if len(values := set(column)) == 1 else UNKNOWN for column in zip(*worlds, strict=True)]


def test_implied_labels_are_those_of_all_possible_worlds():
    names = ("dog", "cat", "animal", "living")
    rules = read_rules()
    rules.is_a.extend([("dog", "animal"), ("cat", "animal"), ("animal", "living")])
    rules.not_with.append(("dog", "cat"))
    rows = np.array(list(itertools.product((POSITIVE, NEGATIVE, UNKNOWN), repeat=4)), np.int8)
    expected = [slow(row, [(0, 2), (1, 2), (2, 3)], [(0, 1)]) for row in rows.tolist()]
    table = LabelTable(tuple(map(str, range(len(rows)))), names, rows, np.array(["train"] * len(rows)), None)
    found = []
    labels = apply_rules(table, rules, source="x", report=found.append).labels.dense().tolist()
    contradictory = {int(each.where.split()[-1]) for each in found}
    assert contradictory == {row for row, labels in enumerate(expected) if not labels}
    assert all(labels[row] == each for row, each in enumerate(expected) if each)


def test_contradictions_are_told_and_what_was_said_stays(tmp_path):
    classes = write(tmp_path, "name,is a\ndog,animal\n", "c.csv")
    path = write(tmp_path, "file,dog,animal\na.jpg,1,0\nb.jpg,1,\nc.jpg,0,1\n")
    found = []
    table = read_dataset(path, classes=classes, report=found.append)
    assert table.labels.dense().tolist() == [[1, 0], [1, 1], [0, 1]]
    assert {each.where for each in found if each.kind == "contradiction of classes"} == {"labels.csv, line 2"}
    lists = write(tmp_path, "file,tags\na.jpg,dog\nb.jpg,animal\nc.jpg,cat\n")
    table = read_dataset(lists, classes=classes, unlisted="negative")
    assert table.labels.dense().tolist() == [[1, 0, 1], [1, 0, 0], [0, 1, 0]]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("name,is a\ndog,animal\nanimal,dog\n", "animal.* in a circle"),
        ("name,same as\ndog,cat\ncat,dog\n", "in a circle"),
        ("name,is a,not with\ndog,animal,animal\n", "dog is of kinds that are 'not with' each other"),
        ("name,is a\ncat,dog\ncat,animal\n\ndog,cat\n", "in a circle"),
        ("name,kind\ndog,animal\n", "has the columns name, and same as"),
        ("name,is a\n,animal\n", "needs a name"),
    ],
)
def test_mistakes_are_sentences(tmp_path, text, said):
    path = write(tmp_path, "file,dog,cat,animal\na.jpg,1,,\nb.jpg,,1,\n")
    with pytest.raises(DataError, match=said):
        read_dataset(path, classes=write(tmp_path, text, "c.csv"))


def test_same_is_a_pair(tmp_path):
    with pytest.raises(DataError, match="--same dog: is no pair of names, as hund=dog"):
        read_dataset(write(tmp_path, "file,dog\na.jpg,1\n"), same=["dog"])
