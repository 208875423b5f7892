"""Whether people who looked at the same label of the same image said the same."""

from typing import NamedTuple

from onepair.review.answers import Answer, Entry

Place = tuple[str, str]  # file and label


class Agreement(NamedTuple):
    """Of labels that two people or more have answered with yes or no, each by what they said first."""

    both: int
    same: int
    open: list[Place]  # answered differently, and not settled by an answer since


class Opinions:
    """Everybody's answers to every question, from the history, entry by entry."""

    def __init__(self) -> None:
        self._first: dict[Place, dict[str, Answer]] = {}
        self._last: dict[Place, dict[str, Answer]] = {}
        self._open: dict[Place, bool] = {}  # in the order in which the disagreements came up

    def note(self, entry: Entry) -> None:
        place = entry.file, entry.label
        said, now = self._first.setdefault(place, {}), self._last.setdefault(place, {})
        if entry.undoes is not None or entry.answer not in ("yes", "no"):
            if entry.undoes is not None:
                said.pop(entry.who, None)
                now.pop(entry.who, None)
            self._open[place] = self._open.get(place, False) and len(set(said.values())) > 1
            return
        differs = any(answer != entry.answer for who, answer in now.items() if who != entry.who)
        # A second answer to a disagreement is by somebody who knows of it, and settles it.
        self._open[place] = differs and not self._open.get(place, False) and entry.who not in said
        said.setdefault(entry.who, entry.answer)
        now[entry.who] = entry.answer

    def by(self, who: str) -> set[Place]:
        """What somebody has answered."""
        return {place for place, said in self._first.items() if who in said}

    def agreement(self) -> Agreement:
        several = [set(said.values()) for said in self._first.values() if len(said) > 1]
        same = sum(len(answers) == 1 for answers in several)
        return Agreement(len(several), same, [place for place, is_open in self._open.items() if is_open])
