"""Twenty people review at once for five minutes: how long requests take, what they cost, and whether all is kept.

    python benchmarks/review_load.py [--reviewers 20] [--seconds 300] [--pause 1]

Everybody answers one question after the other, looking at each photo for a second on average; now and then somebody
fills in a grid of 24, takes the last answer back, or opens the list of classes. In the end the file of decisions is
compared with what the server has said is stored.
"""

import argparse
import os
import random
import re
import sqlite3
import tempfile
import threading
import time
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from http.client import HTTPException, HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

import numpy as np
from review import CLASSES, Browser, serving, write_run

IDLE = 4.0  # seconds after which a connection is opened anew; the server closes it after five
GRIDS, UNDOS, LISTS = 0.04, 0.04, 0.02  # of all that people do; the rest are answers
AIM = 0.25  # seconds

Said = tuple[str, str, str]  # file, label, answer


@dataclass
class Watch:
    """What is seen of a process: its memory and its processor time, from Linux."""

    process: int
    memory: list[float] = field(default_factory=list)  # MB

    def look(self) -> None:
        status = Path(f"/proc/{self.process}/status").read_text()
        kilobytes = re.search(r"VmRSS:\s+(\d+)", status)
        assert kilobytes is not None
        self.memory.append(int(kilobytes[1]) / 1024)

    def processor_seconds(self) -> float:
        times = Path(f"/proc/{self.process}/stat").read_text().rpartition(") ")[2].split()[11:13]
        return sum(map(int, times)) / os.sysconf("SC_CLK_TCK")


class Reviewer(Browser):
    """Somebody who answers until the time is over, and remembers what was acknowledged."""

    def __init__(self, url: str, who: str, seed: int) -> None:
        super().__init__(url, who=who)
        self.who, self.random = who, random.Random(seed)
        self.took: dict[str, list[float]] = defaultdict(list)
        self.said: list[Said] = []
        self.undone = self.late = 0
        self.used = time.monotonic()
        self.errors: list[str] = []

    def work(self, end: float, pause: float) -> None:
        try:
            time.sleep(self.random.uniform(0, pause))
            self.visit("/?order=worth")
            while time.monotonic() < end:
                time.sleep(self.random.expovariate(1 / pause))
                self._act(self.random.random())
        except (AssertionError, OSError, HTTPException, IndexError) as error:
            self.errors.append(f"{self.who}: {type(error).__name__} {error}")

    def send(self, method: str, address: str, body: str | None = None) -> HTTPResponse:
        if time.monotonic() - self.used > IDLE:  # as a browser, which sees that the other side has hung up
            self.connection.close()
        begun = time.perf_counter()
        response = super().send(method, address, body)
        self.took["every request"].append(time.perf_counter() - begun)
        self.used = time.monotonic()
        return response

    def _act(self, chance: float) -> None:
        if chance < GRIDS:
            self._fill_grid()
        elif chance < GRIDS + UNDOS and self.said:
            self._timed_post("undo", "/undo", {"order": "worth"})
            self.undone += 1
        elif chance < GRIDS + UNDOS + LISTS:
            begun = time.perf_counter()
            self.send("GET", "/classes").read()
            self.took["list of classes"].append(time.perf_counter() - begun)
        elif 'class="answers"' in self.text:
            self._answer(self.random.choice(("yes", "yes", "no", "skip")))
        else:
            self.visit("/?order=worth")  # from a page that asks nothing

    def _answer(self, answer: str) -> None:
        fields = dict(self.fields('class="answers"'))
        if self._timed_post("answer", "/answer", {**fields, "answer": answer}):
            self.said.append((fields["file"], fields["label"], answer))

    def _fill_grid(self) -> None:
        begun = time.perf_counter()
        self.visit(f"/grid?label=class{self.random.randrange(CLASSES):02}")
        self.took["grid and its 24 images"].append(time.perf_counter() - begun)
        if 'class="grid"' not in self.text:
            return
        time.sleep(self.random.expovariate(0.2))
        fields = list(self.fields('class="grid"'))
        label = dict(fields)["label"]
        files = [value for name, value in fields if name == "file"]
        marked = set(self.random.sample(files, len(files) // 4))
        if self._timed_post("grid's answers", "/grid", fields + [("marked", file) for file in files if file in marked]):
            self.said += [(file, label, "no" if file in marked else "yes") for file in files]
        self.visit("/?order=worth")

    def _timed_post(self, what: str, address: str, fields: dict[str, str] | list[tuple[str, str]]) -> bool:
        """Send a form and load what comes next, with its images; False if another person was first."""
        begun = time.perf_counter()
        response = self.send("POST", address, urlencode(fields))
        if response.status == 409:
            self.text = response.read().decode()
            self.late += 1
            return False
        following = self.redirected(response)
        stored = time.perf_counter()
        self.took[f"{what}: stored"].append(stored - begun)
        self.visit(following)
        self.took[f"{what}: next page and its images"].append(time.perf_counter() - stored)
        return True


def main() -> None:
    asked = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    asked.add_argument("--reviewers", type=int, default=20)
    asked.add_argument("--seconds", type=float, default=300)
    asked.add_argument("--pause", type=float, default=1, help="seconds that somebody looks at a photo, on average")
    options = asked.parse_args()
    with tempfile.TemporaryDirectory() as name:
        run = write_run(Path(name))
        with serving(run, cache=Path(name) / "cache") as (url, process):
            reviewers = [Reviewer(url, f"Reviewer {place}", place) for place in range(options.reviewers)]
            watch = Watch(process)
            processor = watch.processor_seconds()
            let_work(reviewers, watch, options.seconds, options.pause)
            processor = watch.processor_seconds() - processor
        show_times(reviewers)
        show_cost(reviewers, watch, processor, options.seconds)
        check(run / "finding" / "review.sqlite", reviewers)


def let_work(reviewers: list[Reviewer], watch: Watch, seconds: float, pause: float) -> None:
    end = time.monotonic() + seconds
    threads = [threading.Thread(target=each.work, args=[end, pause]) for each in reviewers]
    for thread in threads:
        thread.start()
    while time.monotonic() < end:
        time.sleep(seconds / 100)
        watch.look()
    for thread in threads:
        thread.join()


def show_times(reviewers: list[Reviewer]) -> None:
    print("| what | times | median | 99 % within | slowest |\n|---|---|---|---|---|")
    for what in sorted({kind for each in reviewers for kind in each.took}):
        times = np.array([seconds for each in reviewers for seconds in each.took[what]])
        median, nearly_all = np.quantile(times, (0.5, 0.99))
        cells = (f"{1000 * value:,.0f} ms" for value in (median, nearly_all, times.max()))
        print(f"| {what} | {len(times):,} | {' | '.join(cells)} |")
    times = np.array([seconds for each in reviewers for seconds in each.took["every request"]])
    print(f"\nrequests answered within {AIM * 1000:.0f} ms: {100 * np.mean(times <= AIM):.3f} %")


def show_cost(reviewers: list[Reviewer], watch: Watch, processor: float, seconds: float) -> None:
    answers = sum(len(each.said) for each in reviewers)
    fifths = (watch.memory[part * (len(watch.memory) - 1) // 5] for part in range(1, 6))
    print(f"answers: {answers:,}, {answers / seconds:.1f} a second; others were first with {late(reviewers)}")
    print(f"processor: {1000 * processor / answers:.1f} ms an answer, {100 * processor / seconds:.0f} % of a core")
    print(f"memory after each fifth of the time: {', '.join(f'{memory:.0f}' for memory in fifths)} MB")


def late(reviewers: list[Reviewer]) -> int:
    return sum(each.late for each in reviewers)


def check(file: Path, reviewers: list[Reviewer]) -> None:
    """Compare what was acknowledged with what is on the disk: the same answers, in the same order, once each.

    Of two who say the same of a label at the same moment, one is stored.
    """
    stored, undone = read_decisions(file)
    by_anybody = {cell for cells in stored.values() for cell in cells}
    lost = more = same = 0
    for each in reviewers:
        said, kept = Counter(each.said), Counter(stored[each.who])
        lost += sum(cell not in by_anybody for cell in (said - kept).elements())
        same += sum(cell in by_anybody for cell in (said - kept).elements())
        more += (kept - said).total()
    errors = [error for each in reviewers for error in each.errors]
    in_order = all(follows(each.said, stored[each.who]) for each in reviewers)
    wrong_undos = sum(abs(undone[each.who] - each.undone) for each in reviewers)
    print(f"errors: {len(errors)}; lost: {lost}; stored but not said: {more}; undone otherwise: {wrong_undos}")
    print(f"in order: {'yes' if in_order else 'no'}; the same as another at the same moment: {same}")
    for error in errors[:5]:
        print(f"  {error}")
    if errors or lost or more or wrong_undos or not in_order:
        raise SystemExit(1)


def follows(whole: list[Said], part: list[Said]) -> bool:
    """Whether a part is in a whole, in the same order."""
    rest = iter(whole)
    return all(any(cell == other for other in rest) for cell in part)


def read_decisions(file: Path) -> tuple[dict[str, list[Said]], Counter[str]]:
    """By person: the answers that were stored, in order, and how many actions were taken back."""
    stored: dict[str, list[Said]] = defaultdict(list)
    undone: dict[str, set[int]] = defaultdict(set)
    with sqlite3.connect(file) as database:
        for action, *said, who, undoes in database.execute(
            "SELECT action, file, label, answer, who, undoes FROM decisions ORDER BY id"
        ):
            if undoes is None:
                stored[who].append((said[0], said[1], said[2]))
            else:
                undone[who].add(action)
    return stored, Counter({who: len(actions) for who, actions in undone.items()})


if __name__ == "__main__":
    main()
