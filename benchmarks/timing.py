"""Compare callables fairly on a noisy machine: interleaved, in one run, as ratios."""

import time
from collections.abc import Callable, Mapping
from typing import Any


def interleaved_seconds(contestants: Mapping[str, Callable[[], Any]], *, seconds: float = 2.0) -> dict[str, float]:
    """The best time of a call of each, measured in turns so that a slow moment of the machine hits all alike."""
    calls = {name: _calls_per_turn(call) for name, call in contestants.items()}
    turns: dict[str, list[float]] = {name: [] for name in contestants}
    end = time.perf_counter() + seconds * len(contestants)
    while time.perf_counter() < end or len(turns[next(iter(turns))]) < 3:
        for name, call in contestants.items():
            turns[name].append(_time(call, calls[name]))
    return {name: min(times) for name, times in turns.items()}


def _time(call: Callable[[], Any], calls: int) -> float:
    start = time.perf_counter()
    for _ in range(calls):
        call()
    return (time.perf_counter() - start) / calls


def _calls_per_turn(call: Callable[[], Any]) -> int:
    """As many calls as take about 20 ms, after one that warms up."""
    call()
    return max(1, round(0.02 / max(_time(call, 1), 1e-6)))
