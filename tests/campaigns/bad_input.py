"""Bad input, by the thousand: every command either works or answers with a sentence and exit code 2.

    python -m tests.campaigns.bad_input --cases 10000 --seed 0

Each case spoils files of a copy of a small dataset or run, and runs a command on it in a process of its own that may
take 20 seconds and 2 GB. What ends otherwise is printed with its seed, and `--case N` repeats it alone.

With `--tally FILE`, every case is a line of that file as soon as it has ended, and a campaign that was stopped goes on
after these: the cases that went wrong are tried again, and the summary counts all of them.
"""

import argparse
import collections
import gc
import json
import os
import resource
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.campaigns.cases import LIGHT, Case, kind_of
from tests.campaigns.forked import in_a_child, leave, onepair, warm_up

SECONDS = 20
MEMORY = 2 << 30  # bytes
MODULES = (
    *("onepair.finding.find", "onepair.review.app", "onepair.review.app", "onepair.runs.audit"),
    *("sklearn.isotonic", "sklearn.linear_model", "starlette.testclient", "anyio._backends._asyncio"),
)


class Outcome(NamedTuple):
    """How a case ended."""

    code: int | None  # None: it did not end in time
    seconds: float
    memory: int  # bytes at most
    said: str

    @property
    def mistake(self) -> str | None:
        """What is wrong with it, if anything."""
        if self.code is None:
            return f"hangs for {SECONDS} s"
        if self.code not in (0, 1, 2) or "Traceback" in self.said:
            return f"ends with {self.code}"
        if self.code == 2 and not self.said.strip():
            return "says nothing"
        if self.memory > MEMORY:
            return f"takes {self.memory / 1e9:.1f} GB"
        return None


def run_case(number: int, seed: int, sample: Path, folder: Path) -> tuple[Case, Outcome]:
    """Prepare a case in a folder, and run its command in a process of its own."""
    random = Random(f"{seed} {number}")
    case = kind_of(number, seed)(folder, sample, random)
    started = time.monotonic()
    child = os.fork()
    if child == 0:
        _be_the_command(case.command, folder)
    watched, ended, seconds = os.pidfd_open(child), False, 0.0
    while not ended and seconds < SECONDS:
        ended = bool(select.select([watched], [], [], SECONDS - seconds)[0])
        seconds = time.monotonic() - started - _queued(child)
    os.close(watched)
    if not ended:
        os.kill(child, signal.SIGKILL)
    _, status, used = os.wait4(child, 0)
    code = os.waitstatus_to_exitcode(status) if ended else None
    said = (folder / ".said").read_text(errors="replace")
    if (folder / "unpickled").exists():
        code, said = 1, "a pickle was opened"
    return case, Outcome(code, seconds, used.ru_maxrss * 1024, said)


def _queued(process: int) -> float:
    """The seconds for which it could have gone on, had a processor been free: a busy machine is no hang."""
    try:
        return int(Path(f"/proc/{process}/schedstat").read_text().split()[1]) / 1e9
    except FileNotFoundError:
        return 0.0  # not every Linux counts them


def _be_the_command(command: list[str], folder: Path) -> None:
    """In the child: run the command within its bounds, and end."""
    code = 1
    try:
        os.chdir(folder)
        output = os.open(".said", os.O_CREAT | os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(output, stream)
        os.environ["XDG_CACHE_HOME"] = str(folder / "cache")
        resource.setrlimit(resource.RLIMIT_AS, (_address_space() + MEMORY,) * 2)
        if command[0] in ("review", "audit"):
            _visit_instead_of_serving()
        code = onepair(*command)
    except BaseException:
        traceback.print_exc()
    finally:
        leave(code)


def _address_space() -> int:
    """What this process has reserved, most of which libraries never touch."""
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    return pages * resource.getpagesize()


def _visit_instead_of_serving() -> None:
    """The review page is visited in the same process: an error there is an error of the command."""
    from onepair.review import server

    def visit(server, sockets):
        from starlette.testclient import TestClient

        client = TestClient(server.config.app, base_url="http://localhost")
        for address in ("/", "/suggestion/1", "/grid", "/done", "/classes", "/image/0", "/map/1"):
            client.get(address)

    server.uvicorn.Server.run = visit


class Counted(NamedTuple):
    """A case that has ended, as a line of the tally."""

    seed: int
    number: int
    kind: str
    code: int | None
    seconds: float
    memory: int
    mistake: str | None


def campaign(cases: Sequence[int], seed: int, tally: Path | None = None) -> int:
    """Run the cases, print what went wrong and a summary, and return how many went wrong."""
    before = {} if tally is None else _counted_before(tally, seed)
    done = {number: before[number] for number in cases if number in before and before[number].mistake is None}
    left = [number for number in cases if number not in done]
    if done:
        print(f"{len(done):,} cases are in {tally}, {len(left):,} are left", flush=True)
    with tempfile.TemporaryDirectory(prefix="onepair-campaign-") as place:
        sample = Path(place) / "sample"
        sample.mkdir()
        in_a_child(lambda: _write_sample(sample))
        _warm_up(sample, light=True)
        light = [number for number in left if kind_of(number, seed) in LIGHT]
        for number in [*light, None, *sorted(set(left) - set(light))]:
            if number is None:
                _warm_up(sample, light=False)
                continue
            folder = Path(place) / f"case-{number}"
            folder.mkdir()
            case, outcome = run_case(number, seed, sample, folder)
            done[number] = Counted(seed, number, case.kind, *outcome[:3], outcome.mistake)
            if tally is not None:
                with tally.open("a") as lines:
                    lines.write("\n" + json.dumps(done[number]))  # whatever a killed campaign has left of the last
            if outcome.mistake:
                spoiled = "; ".join(case.spoiled)
                print(f"case {number}: {outcome.mistake}: onepair {' '.join(case.command)}\n  {spoiled}", flush=True)
                print("  " + "\n  ".join(outcome.said.strip().splitlines()[-6:]), flush=True)
            shutil.rmtree(folder, ignore_errors=True)
    gc.unfreeze()
    return _summarise(list(done.values()))


def _counted_before(tally: Path, seed: int) -> dict[int, Counted]:
    """What the tally has of this seed, by number; of a case that was repeated, the last attempt."""
    lines = tally.read_text().splitlines() if tally.exists() else []
    cases = [Counted(*json.loads(line)) for line in lines if line.endswith("]")]  # not those that were cut
    return {case.number: case for case in cases if case.seed == seed}


def _summarise(done: Sequence[Counted]) -> int:
    kinds, codes = collections.Counter(case.kind for case in done), collections.Counter(case.code for case in done)
    wrong = sum(case.mistake is not None for case in done)
    print(f"{len(done):,} cases: {', '.join(f'{count:,} {kind}' for kind, count in kinds.most_common())}")
    print(f"worked: {codes[0]:,}, answered with a sentence: {codes[2]:,}, wrong: {wrong:,}")
    slowest, largest = max(case.seconds for case in done), max(case.memory for case in done)
    print(f"the slowest took {slowest:.1f} s, the largest {largest / 1e9:.2f} GB")
    return wrong


def _write_sample(folder: Path) -> None:
    from tests.campaigns.sample import write_sample

    write_sample(folder, onepair)


def _warm_up(sample: Path, *, light: bool) -> None:
    """Import and compute once what every case would begin with."""
    run, source, photo = sample / "run", sample / "images" / "labels.csv", sample / "images" / "00.png"
    commands: list[list[object]] = [
        ["config", "--config", sample / "settings.toml"],
        ["evaluate", run],
        ["compare", run, sample / "other", "--resamples", "100"],
        ["explain", run, photo, "--out", sample / "out.png"],
        ["predict", run, photo],
        ["predict", sample / "model.onnx", photo],
        ["labels", run, "--out", sample / "out.csv"],
    ]
    if light:
        warm_up([], [["check", source, "--decode"]])
    else:
        warm_up(MODULES, commands)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0, help="the number of the first case, to share them out")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--case", type=int, help="this one alone")
    parser.add_argument("--tally", type=Path, help="a file to count in, from which a stopped campaign goes on")
    asked = parser.parse_args()
    cases = range(asked.first, asked.first + asked.cases) if asked.case is None else [asked.case]
    sys.exit(1 if campaign(cases, asked.seed, asked.tally) else 0)


if __name__ == "__main__":
    main()
