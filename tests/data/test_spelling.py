from difflib import SequenceMatcher

import numpy as np

from onepair.data.quality.check import NEAR, near_names


def test_near_names_are_those_of_difflib_and_plurals():
    random = np.random.default_rng(0)
    stems = ["motorbike", "person", "dining table", "box", "has_bill::long"]
    names = set(stems)
    for _ in range(150):
        name = list(stems[random.integers(len(stems))])
        name[random.integers(len(name))] = random.choice(list("abs_ "))
        names.add(" ".join("".join(name).split()))
    names = sorted(names)
    slow = [
        (a, b)
        for i, a in enumerate(names)
        for b in names[i + 1 :]
        if SequenceMatcher(None, a, b, autojunk=False).ratio() >= NEAR or a + "s" == b or a + "es" == b
    ]
    assert near_names(names) == slow
    assert len(slow) > 20


def test_names_with_other_numbers_are_others():
    assert near_names(["concept number 10", "concept number 11"]) == []


def test_few_or_blank_names():
    assert near_names([]) == near_names([""]) == near_names(["", "a"]) == []
