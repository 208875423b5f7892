"""Decisions: nothing is lost, nothing overwritten unseen, everything can be undone."""

import os
import signal
import sqlite3
import subprocess
import sys
import threading

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from onepair.errors import ReviewError
from onepair.review.answers import Answer, Store
from onepair.review.image_answers import ImageAnswers


@pytest.fixture
def store(tmp_path):
    return Store(tmp_path / "review.sqlite")


def answers(store):
    """The current answer of every cell that has one."""
    last = {(entry.file, entry.label): entry.answer for entry in store.entries()}
    return {cell: answer for cell, answer in last.items() if answer is not None}


def version(store, file, label):
    return max((entry.id for entry in store.entries() if (entry.file, entry.label) == (file, label)), default=0)


def say(store, who, answer, file="a.jpg", label="dog", seen=None):
    seen = version(store, file, label) if seen is None else seen
    return store.record([Answer(file, label, answer, seen)], who=who)


def test_a_decision_is_kept_with_who_and_when(store):
    assert say(store, "Ann", "yes") == []
    (entry,) = store.entries()
    assert (entry.file, entry.label, entry.answer, entry.who) == ("a.jpg", "dog", "yes", "Ann")
    assert entry.time.utcoffset().total_seconds() == 0
    assert entry == Store(store.path).entries()[0]


def test_entries_after_one_that_is_known(store):
    say(store, "Ann", "yes")
    known = store.entries()[-1].id
    assert store.entries(after=known) == []
    say(store, "Ann", "no")
    assert [entry.answer for entry in store.entries(after=known)] == ["no"]


def test_a_stale_decision_is_refused_and_shows_what_stands(store):
    say(store, "Ann", "yes", seen=0)
    (refused,) = say(store, "Ben", "no", seen=0)
    assert (refused.who, refused.answer) == ("Ann", "yes")
    assert answers(store) == {("a.jpg", "dog"): "yes"}
    assert say(store, "Ben", "no", seen=refused.id) == []  # who has seen it may overrule it
    assert answers(store) == {("a.jpg", "dog"): "no"}


def test_two_who_agree_do_not_clash(store):
    say(store, "Ann", "yes", seen=0)
    assert say(store, "Ben", "yes", seen=0) == []
    assert [entry.who for entry in store.entries()] == ["Ann"]


def test_of_several_decisions_only_the_stale_ones_are_refused(store):
    say(store, "Ann", "no", file="b.jpg")
    page = [Answer(file, "dog", "yes", 0) for file in ("a.jpg", "b.jpg", "c.jpg")]
    assert [entry.file for entry in store.record(page, who="Ben")] == ["b.jpg"]
    assert answers(store) == {("a.jpg", "dog"): "yes", ("b.jpg", "dog"): "no", ("c.jpg", "dog"): "yes"}


def test_undo_goes_back_step_by_step_also_on_one_cell_and_after_a_restart(store):
    for answer in ("yes", "no", "skip"):
        say(store, "Ann", answer)
    for expected in ({("a.jpg", "dog"): "no"}, {("a.jpg", "dog"): "yes"}, {}):
        again = Store(store.path)
        assert again.undo(who="Ann")
        assert answers(again) == expected
    assert store.undo(who="Ann") == []
    assert len(store.entries()) == 6  # undoing adds to the history


def test_what_was_decided_together_is_undone_together(store):
    say(store, "Ann", "skip", file="z.jpg")
    store.record([Answer(file, "dog", "yes", 0) for file in ("a.jpg", "b.jpg")], who="Ann")
    assert [entry.file for entry in store.last_action(who="Ann")] == ["a.jpg", "b.jpg"]
    assert [entry.file for entry in store.undo(who="Ann")] == ["a.jpg", "b.jpg"]
    assert answers(store) == {("z.jpg", "dog"): "skip"}
    assert [entry.file for entry in store.last_action(who="Ann")] == ["z.jpg"]


def test_undo_touches_only_ones_own_and_not_what_another_has_answered_since(store):
    say(store, "Ann", "yes", file="a.jpg")
    say(store, "Ann", "yes", file="b.jpg")
    say(store, "Ben", "no", file="b.jpg")
    assert store.undo(who="Cat") == []
    assert [entry.file for entry in store.undo(who="Ann")] == ["a.jpg"]
    assert store.undo(who="Ann") == []
    assert answers(store) == {("b.jpg", "dog"): "no"}
    store.undo(who="Ben")
    assert answers(store) == {("b.jpg", "dog"): "yes"}
    store.undo(who="Ann")  # with Ben's gone, Ann's stands again, and can be taken back
    assert answers(store) == {}


def test_history_can_neither_be_changed_nor_deleted(store):
    say(store, "Ann", "yes")
    with sqlite3.connect(store.path) as db:
        for command in ("UPDATE decisions SET answer = 'no'", "DELETE FROM decisions"):
            with pytest.raises(sqlite3.IntegrityError, match="decisions are never"):
                db.execute(command)
    db.close()


def test_of_many_who_answer_at_once_exactly_one_is_stored(store):
    """Half of them through a connection of their own, as another process would."""
    refused, start = [], threading.Barrier(8)

    def answer(number):
        mine = store if number % 2 else Store(store.path)
        start.wait()
        refused.extend(mine.record([Answer("a.jpg", "dog", ("yes", "no", "skip")[number % 3], 0)], who=f"{number}"))

    threads = [threading.Thread(target=answer, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (entry,) = store.entries()
    others = [number for number in range(8) if ("yes", "no", "skip")[number % 3] != entry.answer]
    assert len(refused) == len(others)


KILLED = """
import sys
from pathlib import Path
from onepair.review.answers import Answer, Store
store = Store(Path(sys.argv[1]))
for number in range(10**6):
    store.record([Answer(f"{number}.jpg", "dog", "yes", 0)], who="Ann")
    print(number, flush=True)
"""


def test_what_was_answered_for_survives_kill_9(tmp_path):
    path = tmp_path / "review.sqlite"
    process = subprocess.Popen([sys.executable, "-c", KILLED, path], stdout=subprocess.PIPE, text=True)
    for _ in range(20):
        process.stdout.readline()
    os.kill(process.pid, signal.SIGKILL)
    promised = 20 + len(process.stdout.read().split())
    process.wait()
    process.stdout.close()
    assert len(Store(path).entries()) in (promised, promised + 1)  # one more may have been stored but not yet told


def test_what_is_no_database_is_a_sentence(tmp_path):
    (tmp_path / "review.sqlite").write_text("not a database, " * 100)
    with pytest.raises(ReviewError, match="cannot keep answers"):
        Store(tmp_path / "review.sqlite")


class Reference:
    """The same, slowly: a stack of answers per cell, each with its action and its author."""

    def __init__(self):
        self.stacks, self.versions, self.actions, self.clock = {}, {}, 0, 0

    def record(self, cells, answer, seen, who):
        self.actions += 1
        for cell, version in zip(cells, seen, strict=True):
            if self.versions.get(cell, 0) == version:
                self.stacks.setdefault(cell, []).append((self.actions, who, answer))
                self.touch(cell)

    def undo(self, who):
        tops = {cell: stack[-1] for cell, stack in self.stacks.items() if stack}
        mine = [action for action, author, _ in tops.values() if author == who]
        for cell, (action, _, _) in tops.items():
            if mine and action == max(mine):
                self.stacks[cell].pop()
                self.touch(cell)

    def touch(self, cell):
        self.clock += 1
        self.versions[cell] = self.clock

    def answers(self):
        tops = {cell: stack[-1][2] for cell, stack in self.stacks.items() if stack}
        return {cell: answer for cell, answer in tops.items() if answer is not None}


CELLS = [("a", "x"), ("a", "y"), ("b", "x")]
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("record"),
            st.sampled_from(["Ann", "Ben"]),
            st.lists(st.sampled_from(CELLS), min_size=1, max_size=3, unique=True),
            st.sampled_from(["yes", "no", "skip", None]),
            st.booleans(),
        ),
        st.tuples(st.just("undo"), st.sampled_from(["Ann", "Ben"])),
    ),
    max_size=12,
)


@settings(max_examples=25, deadline=None)
@given(STEPS)
def test_agrees_with_the_reference(tmp_path_factory, steps):
    store, reference = Store(tmp_path_factory.mktemp("store") / "review.sqlite"), Reference()
    for kind, who, *rest in steps:
        if kind == "undo":
            store.undo(who=who)
            reference.undo(who)
            continue
        cells, answer, stale = rest
        # A stale version is one that no cell ever had, so that both sides refuse it; agreeing is tested above.
        seen = [version(store, *cell) if not stale or not version(store, *cell) else -1 for cell in cells]
        expected = [
            reference.versions.get(cell, 0) if value != -1 else -1 for cell, value in zip(cells, seen, strict=True)
        ]
        store.record([Answer(*cell, answer, value) for cell, value in zip(cells, seen, strict=True)], who=who)
        reference.record(cells, answer, expected, who)
        assert answers(store) == reference.answers()
    assert answers(store) == reference.answers()


def test_a_read_only_place_is_told_at_once(tmp_path, monkeypatch):
    Store(tmp_path / "decisions.sqlite")
    connect = sqlite3.connect

    def read_only(path, **options):
        return connect(f"file:{path}?mode=ro", uri=True, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    with pytest.raises(ReviewError, match=r"cannot keep answers .*readonly"):
        Store(tmp_path / "decisions.sqlite")


def test_undo_looks_up_cells_and_not_through_all_that_was_ever_decided(store):
    for query in (
        "SELECT * FROM stands WHERE file = 'a' AND label = 'x' AND id < 9 ORDER BY id DESC LIMIT 1",
        "SELECT * FROM stands_last WHERE action = 3 ORDER BY id",
    ):
        plan = [row[3] for row in store._db.execute(f"EXPLAIN QUERY PLAN {query}")]
        assert "USING INDEX by_" in plan[0]
        assert not [
            step for step in plan if "SCAN" in step or "INDEX sqlite_autoindex_decisions_1 (undoes=? AND" in step
        ]


@pytest.mark.parametrize("change", ["deleted", "replaced", "folder moved"])
def test_no_answer_is_acknowledged_into_a_file_that_is_gone(tmp_path, change):
    path = tmp_path / "run" / "review.sqlite"
    path.parent.mkdir()
    store = Store(path)
    say(store, "Ann", "yes")
    if change == "folder moved":
        path.parent.rename(tmp_path / "aside")
    else:
        path.unlink()
    if change == "replaced":
        Store(path)
    for act in (store.entries, lambda: store.record([Answer("b.jpg", "dog", "yes", 0)], who="Ann")):
        with pytest.raises(ReviewError, match="was moved, deleted or replaced, so no answer is stored any more"):
            act()
    if change == "replaced":
        assert Store(path).entries() == []


@pytest.mark.parametrize("beside", ["nothing may be written", "a copy is needed"])
def test_answers_of_a_read_only_run_can_be_read(store, monkeypatch, beside):
    say(store, "Ann", "yes")  # which is still in the -wal file
    store.add_class("kite", who="Ann")
    before, connect = {path.name: path.read_bytes() for path in store.path.parent.iterdir()}, sqlite3.connect

    def read_only(path, **options):
        own = str(store.path) in str(path)
        if own and ("mode=ro" not in str(path) or beside == "a copy is needed"):
            raise sqlite3.OperationalError("attempt to write a readonly database")
        return connect(path, **options)

    monkeypatch.setattr(sqlite3, "connect", read_only)
    found = Store(store.path, read_only=True)
    assert (found.entries(), found.classes()) == (store.entries(), ["kite"])
    after = {path.name: path.read_bytes() for path in store.path.parent.iterdir()}
    assert {name: after[name] for name in before if not name.endswith("-shm")} == {
        name: before[name] for name in before if not name.endswith("-shm")
    }


def test_a_class_that_is_called_otherwise_is_seen_and_undone_under_all_of_its_names(tmp_path):
    path, digests = tmp_path / "answers.sqlite", {"a.jpg": "1", "b.jpg": "2"}
    first = ImageAnswers(path, digests, ["dog", "cat"])
    first.record([Answer("a.jpg", "dog", "yes", 0), Answer("a.jpg", "cat", "no", 0)], who="Ann")
    first.recognise({}, {"dog": "Dogs"}, {})
    store = ImageAnswers(path, digests, ["Dogs", "cat"])
    (seen, _) = store.entries()
    assert seen.label == "Dogs"
    (refused,) = store.record([Answer("a.jpg", "Dogs", "no", 0)], who="Ben")  # who has not seen what was there
    assert (refused.answer, refused.label) == ("yes", "Dogs")
    assert store.record([Answer("a.jpg", "Dogs", "no", seen.id)], who="Ann") == []
    assert store.entries()[-1].answer == "no"
    store.undo(who="Ann")
    last = {(entry.file, entry.label): entry.answer for entry in store.entries()}
    assert last == {("a.jpg", "Dogs"): "yes", ("a.jpg", "cat"): "no"}
