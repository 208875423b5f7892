"""The numbers of the paper."""

import tomllib
from functools import cache
from importlib.resources import files
from typing import Any, NamedTuple


class Spread(NamedTuple):
    """Mean and standard deviation of test mAP over runs, from 0 to 100; no deviation of a single run."""

    mean: float
    std: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ({self.std:.2f})"


def published(labels: str, method: str, dataset: str) -> Spread | None:
    """What the paper reports, or None where it reports nothing.

    >>> str(published("single", "opml-sp", "voc2012"))
    '89.20 (0.03)'
    """
    values = _numbers()[labels].get(method, {}).get(dataset)
    return None if values is None else Spread(*values)


def published_best(method: str, dataset: str) -> dict[str, float]:
    """The values of a method that the paper found best on a dataset; empty where it says nothing.

    >>> published_best("opml", "voc2012")
    {'alpha': 0.7, 'beta': 0.4}
    """
    best: dict[str, float] = _numbers()["best"].get(method, {}).get(dataset, {})
    return best


def source() -> str:
    """Which paper, and how its numbers were made."""
    return f"{_numbers()['source']}; {_numbers()['setting']}; {_numbers()['since']}"


@cache
def _numbers() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("published.toml").read_text("utf-8"))
