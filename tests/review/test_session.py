"""The queue: what is open, what comes next, and how long it takes."""

import time
from datetime import UTC, datetime, timedelta

import numpy as np
import pytest

from onepair.labels import NEGATIVE, POSITIVE
from onepair.probability.intervals import Interval
from onepair.review import answers as store_module
from onepair.review import session as session_module
from onepair.review.answers import Answer, Store
from onepair.review.queue import ORDERS
from onepair.review.session import BREAK, HOLD
from tests.review.runs import open_session, small_run, write_suggestions

FIRST = [order for order in ORDERS if order not in ("second", "wrong")]  # those for all that nobody has answered


@pytest.fixture
def session(tmp_path):
    return open_session(small_run(tmp_path))


def answer(session, number, answer="yes", who="Ann"):
    cell = session.suggestion(number)
    return session.record([Answer(cell.file, cell.label, answer, cell.version)], who=who)


@pytest.mark.parametrize("order", FIRST)
def test_answering_leads_through_all_suggestions_in_order(session, order):
    seen, number = [], session.next_open(order)
    while number is not None:
        seen.append(number)
        answer(session, number)
        number = session.next_open(order, after=number)
    assert seen == (session.suggestions.ordered(order) + 1).tolist()


def test_after_the_last_come_the_open_ones_before_it(session):
    answer(session, 1)
    assert session.next_open("probability", after=len(session)) == 2
    assert session.next_open("probability", after=3) == 4


@pytest.mark.parametrize("order", FIRST)
def test_steps_go_there_and_back(session, order):
    first, *_, last = (session.suggestions.ordered(order) + 1).tolist()
    assert session.neighbour(order, first, -1) is None
    assert session.neighbour(order, last, 1) is None
    assert session.neighbour(order, session.neighbour(order, first, 1), -1) == first


def test_places_are_counted_within_the_class_in_the_order_of_classes(session):
    assert [session.place("probability", number) for number in (1, len(session))] == [(1, 40), (40, 40)]
    alike = [n for n in range(1, 41) if session.suggestion(n).label == session.suggestion(9).label]
    assert session.place("class", 9) == (alike.index(9) + 1, len(alike))


def test_a_cell_knows_all_about_a_label(session):
    cell = session.suggestion(40)
    assert (cell.observed, cell.suggested, cell.answer, cell.version) == (POSITIVE, NEGATIVE, None, 0)
    assert (cell.probability, cell.likely) == (0.55, True)
    assert cell.shown  # as far as the label goes
    answer(session, 40, "no")
    cell = session.suggestion(40)
    assert (cell.answer, cell.entry.who, cell.shown) == ("no", "Ann", False)
    assert session.find(cell.file, cell.label) == cell
    assert session.find(cell.file, "star") is None
    assert session.find("43.png", "bar") is None  # not a training image


def test_the_cells_of_an_image_are_all_its_labels(session):
    row = session.suggestion(1).row
    cells = session.cells(row)
    assert [cell.label for cell in cells] == list(session.table.classes)
    observed = session.run.task.observed[session.run.task.train.tolist().index(row)]
    assert [cell.observed for cell in cells] == observed.tolist()
    assert session.first_of_image(row) == min(cell.number for cell in cells if cell.number)


def test_kinds_count_what_is_open(session):
    before = session.kinds()
    assert sum(kind.total for kind in before) == len(session)
    for kind in before:
        assert kind.open == kind.total == len(session.waiting(*kind[:3], most=99))
    number = session.first_of_class("cross")
    assert session.suggestion(number).label == "cross"
    answer(session, number)
    after = {kind[:3]: kind for kind in session.kinds()}
    assert after["cross", POSITIVE, True].open == after["cross", POSITIVE, True].total - 1
    assert session.first_of_class("cross") != number
    assert session.first_of_class("star") is None


def test_a_class_that_is_all_answered_still_has_a_first(session):
    numbers = [
        cell.number for kind in session.kinds() if kind.label == "bar" for cell in session.waiting(*kind[:3], most=99)
    ]
    for number in numbers:
        answer(session, number)
    assert session.waiting("bar", POSITIVE, True, most=99) == []
    assert session.first_of_class("bar") == min(numbers)


@pytest.fixture
def mixed(tmp_path, monkeypatch):
    """A session with ten likely suggestions, which are enough for a goal, and five unlikely ones."""
    monkeypatch.setattr(session_module, "ENOUGH", 10)
    session = open_session(small_run(tmp_path, most=16))
    cells = [session.suggestion(number) for number in range(1, 16)]
    shares = np.linspace(0.9, 0.5, 10).tolist() + np.linspace(0.4, 0.1, 5).tolist()
    lines = [(cell.file, cell.label, share, "missing") for cell, share in zip(cells, shares, strict=True)]
    write_suggestions(session.run.path, lines)
    return open_session(session.run.path)


@pytest.mark.parametrize("order", FIRST)
def test_unlikely_suggestions_come_last_whatever_the_order(mixed, order):
    seen, number = [], mixed.next_open(order)
    while number is not None:
        seen.append(number)
        answer(mixed, number)
        number = mixed.next_open(order, after=number)
    assert sorted(seen[:10]) == list(range(1, 11))
    assert sorted(seen) == list(range(1, 16))


def test_the_likely_ones_are_the_goal_or_all_where_few_are_likely(mixed, monkeypatch):
    assert mixed.goal.sum() == 10
    assert [kind.likely for kind in mixed.kinds()] == sorted((kind.likely for kind in mixed.kinds()), reverse=True)
    monkeypatch.setattr(session_module, "ENOUGH", 11)
    few = open_session(mixed.run.path)
    assert (few.goal.sum(), few.likely.sum()) == (15, 10)
    assert [few.next_open("probability"), few.place("probability", 11)] == [1, (11, 15)]


def test_what_others_decide_elsewhere_is_seen_after_a_refresh(session):
    cell = session.suggestion(1)
    Store(session.store.path).record([Answer(cell.file, cell.label, "no", 0)], who="Ben")
    assert session.next_open("probability") == 1
    session.refresh()
    assert session.next_open("probability") == 2
    assert (session.suggestion(1).answer, session.suggestion(1).entry.who) == ("no", "Ben")


def test_two_people_are_not_given_the_same_unless_nothing_else_is_left(session, monkeypatch):
    session.hold([1], who="Ann")
    assert [session.next_open("probability", who=who) for who in ("Ann", "Ben", "")] == [1, 2, 2]
    session.hold([2, 3], who="Ben")
    assert session.next_open("probability", after=1, who="Ann") == 4
    answer(session, 2)
    for number in range(4, len(session) + 1):
        answer(session, number)
    assert session.next_open("probability", who="Ann") == 1
    answer(session, 1)
    assert session.next_open("probability", who="Ann") == 3  # the last one, though Ben looks at it
    now = time.monotonic()
    session.undo(who="Ann")
    monkeypatch.setattr(time, "monotonic", lambda: now + HOLD + 1)
    assert session.next_open("probability", who="Ben") == 1  # Ann has been away for a while


def test_two_grids_of_a_class_show_different_images(session):
    mine = session.waiting("cross", POSITIVE, True, most=5, who="Ann")
    session.hold([cell.number for cell in mine], who="Ann")
    assert session.waiting("cross", POSITIVE, True, most=5, who="Ann") == mine
    others = session.waiting("cross", POSITIVE, True, most=5, who="Ben")
    assert others
    assert not set(others) & set(mine)
    assert session.first_of_class("cross", who="Ben") == others[0].number


def test_what_was_skipped_can_be_found_again(session):
    assert session.first_skipped() is None
    for number, said in ((5, "skip"), (3, "skip"), (1, "yes")):
        answer(session, number, said)
    assert session.first_skipped() == 3


def test_undo_opens_a_suggestion_again(session):
    answer(session, 1)
    answer(session, 2, "skip")
    assert session.answers() == {"yes": 1, "skip": 1}
    session.undo(who="Ann")
    assert session.next_open("probability") == 2
    assert session.answers() == {"yes": 1}


def test_the_pace_of_recent_answers_without_breaks_gives_the_time_left(session, monkeypatch):
    now = datetime(2024, 5, 1, 9, 0, tzinfo=UTC)

    class Clock(datetime):
        @classmethod
        def now(cls, zone):
            return now

    monkeypatch.setattr(store_module, "datetime", Clock)
    assert session.seconds_left(who="Ann") is None
    for number, seconds in enumerate([0, 2, 4, 3, BREAK + 1, 1, 5], start=1):
        now += timedelta(seconds=seconds)
        answer(session, number)
    assert session.seconds_left(who="Ann") == pytest.approx(np.mean([2, 4, 3, 1, 5]) * 33)
    assert session.seconds_left(who="Ben") is None


def test_an_image_that_is_complete_has_all_labels_answered_at_once(session):
    cell = session.suggestion(1)
    session.record([Answer(cell.file, cell.label, "skip", 0)], who="Ann")
    assert session.complete(cell.row, seen=session.version(cell.row), who="Ann") == []
    answers = {each.label: each.answer for each in session.cells(cell.row)}
    assert answers.pop(cell.label) == "skip"  # an answer too
    observed = {each.label: each.observed for each in session.cells(cell.row)}
    assert answers == {label: "yes" if observed[label] == 1 else "no" for label in answers}
    session.undo(who="Ann")
    assert [each.answer for each in session.cells(cell.row) if each.label != cell.label] == [None] * 3


def test_completing_does_not_overrule_what_was_not_seen(session):
    cell = session.suggestion(1)
    seen = session.version(cell.row)
    session.record([Answer(cell.file, cell.label, "yes", 0)], who="Ben")
    refused = session.complete(cell.row, seen=seen, who="Ann")
    assert [(entry.label, entry.answer, entry.who) for entry in refused] == [(cell.label, "yes", "Ben")]
    assert session.suggestion(1).answer == "yes"


def test_what_was_taken_back_is_remembered(session):
    cell = session.suggestion(3)
    session.record([Answer(cell.file, cell.label, "no", 0)], who="Ann")
    assert session.suggestion(3).before is None
    session.undo(who="Ann")
    assert (session.suggestion(3).answer, session.suggestion(3).before) == (None, "no")


def test_what_is_still_missing_is_what_is_open_and_what_was_never_suggested(mixed):
    missing = [mixed.suggestion(n) for n in range(1, len(mixed) + 1) if mixed.suggestion(n).suggested == 1]
    listed = sum(cell.probability for cell in missing)
    estimated = Interval(listed + 3, 0, listed + 30)
    assert mixed.still_missing(estimated) == pytest.approx((listed + 3, listed, listed + 30))
    first, second = missing[:2]
    mixed.record([Answer(first.file, first.label, "no", 0)], who="Ann")
    mixed.record([Answer(second.file, second.label, "skip", 0)], who="Ann")
    assert mixed.still_missing(estimated).value == pytest.approx(listed + 3 - first.probability)


def test_a_second_opinion_is_asked_on_what_others_said(session):
    cells = [session.suggestion(n) for n in (1, 2, 3)]
    for cell, answer in zip(cells, ("yes", "no", "skip"), strict=True):
        session.record([Answer(cell.file, cell.label, answer, 0)], who="Ann")
    assert session.next_open("second", who="Ann") is None
    assert session.next_open("second", who="Ben") == 1
    assert session.next_open("second", after=1, who="Ben") == 2
    session.record([Answer(cells[0].file, cells[0].label, "yes", session.suggestion(1).version)], who="Ben")
    session.record([Answer(cells[1].file, cells[1].label, "yes", session.suggestion(2).version)], who="Ben")
    assert session.next_open("second", who="Ben") is None
    assert session.opinions.agreement() == (2, 1, [(cells[1].file, cells[1].label)])


@pytest.mark.parametrize("order", [order for order in FIRST if order != "class"])
def test_places_count_what_is_asked_for_and_the_rest_apart(mixed, order):
    asked = int(mixed.goal.sum())
    places = [mixed.place(order, number) for number in (mixed.suggestions.ordered(order) + 1).tolist()]
    rest = len(mixed) - asked
    assert places == [(n, asked) for n in range(1, asked + 1)] + [(n, rest) for n in range(1, rest + 1)]
