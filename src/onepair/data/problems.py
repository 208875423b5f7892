"""What can be wrong with a dataset, and who decides whether to go on."""

from collections.abc import Callable
from dataclasses import dataclass, replace

from onepair.errors import DataError


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a dataset, and where."""

    kind: str  # a short name to count by, as "bad value" or "missing file"
    where: str  # as "labels.csv, line 7, column dog"
    what: str  # as "holds 2; a label is 1, 0 or blank"
    remark: bool = False  # worth saying, but nothing to mend, so that nobody stops at it

    def __str__(self) -> str:
        return f"{self.where}: {self.what}"


Report = Callable[[Problem], object]


_OUTCOMES = {  # of problems that a reader finds: what it does about them
    "bad value": "now unknown",
    "missing label": "now unknown",
    "contradiction": "now unknown",
    "contradiction of classes": "the implied label is left out",
    "duplicate": "the first one stays",
    "bad split": "the row is left out",
    "no file name": "the row is left out",
}


def raise_problem(problem: Problem) -> None:
    """Raise a `DataError` at the first problem, and pass over remarks. A list's `append` collects all instead."""
    if not problem.remark:
        raise DataError(str(problem))


def outcome(problem: Problem) -> Problem:
    """Return a problem that a reader found, with what it did about it; a remark stays as it is."""
    if problem.remark:
        return problem
    return replace(problem, what=f"{problem.what}; {_OUTCOMES.get(problem.kind, 'left out')}")


def collect(found: list[Problem], *, strict: bool) -> Report:
    """Return a report that collects problems with what the reader did about them; a strict one raises the first."""
    return raise_problem if strict else lambda problem: found.append(outcome(problem))


def announce(say: Callable[[str], object], *, strict: bool) -> Report:
    """Return a report that says which images are left out; a strict one raises the first problem."""
    return raise_problem if strict else lambda problem: say(f"left out: {problem}")
