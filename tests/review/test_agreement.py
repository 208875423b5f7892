"""Who agrees with whom, from the history alone."""

import itertools

import pytest

from onepair.review.answers import Entry, Opinions


def opinions(*said):
    """Of (who, answer) on one label; "undo" takes back what that person said last."""
    found, ids, last = Opinions(), itertools.count(1), {}
    for who, answer in said:
        number = next(ids)
        undoes = last.pop(who) if answer == "undo" else None
        if answer != "undo":
            last[who] = number
        found.note(
            Entry(number, number, "a.png", "cat", None if undoes else answer, who, "2024-01-01T00:00:00", undoes)
        )
    return found.agreement()


@pytest.mark.parametrize(
    ("said", "both", "same", "is_open"),
    [
        ([("Ann", "yes")], 0, 0, False),
        ([("Ann", "yes"), ("Ann", "no")], 0, 0, False),
        ([("Ann", "yes"), ("Ben", "yes")], 1, 1, False),
        ([("Ann", "yes"), ("Ann", "no"), ("Ben", "no")], 1, 0, False),  # Ann had come round herself
        ([("Ann", "yes"), ("Ann", "no"), ("Ben", "yes")], 1, 1, True),
        ([("Ann", "yes"), ("Ben", "no")], 1, 0, True),
        ([("Ann", "yes"), ("Ben", "skip")], 0, 0, False),
        ([("Ann", "yes"), ("Ben", "no"), ("Ann", "no")], 1, 0, False),  # settled
        ([("Ann", "yes"), ("Ben", "no"), ("Cem", "yes")], 1, 0, False),  # settled by a third
        ([("Ann", "yes"), ("Ben", "no"), ("Ben", "undo")], 0, 0, False),
        ([("Ann", "yes"), ("Ben", "no"), ("Cem", "skip")], 1, 0, True),
    ],
)
def test_agreement_and_what_is_to_be_settled(said, both, same, is_open):
    assert opinions(*said) == (both, same, [("a.png", "cat")] if is_open else [])
