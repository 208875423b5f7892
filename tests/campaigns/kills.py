"""Commands that are killed, or whose disk fails, at any moment: what they leave, and that they go on to the same end.

    python -m tests.campaigns.kills --times 50 --seed 1

Each command of `jobs` runs on a small sample, undisturbed, and then again and again:

- with SIGKILL, SIGTERM and SIGINT at random moments, so many times each as `--times` says;
- killed at every file operation there is, one after another;
- with a disk that is full, read-only or broken from every file operation on.

After each, whatever is there under its own name is whole, and the same command ends with the same bytes as if nothing
had happened, and leaves nothing else. `--job NAME --at N` repeats one.
"""

import argparse
import collections
import contextlib
import errno
import gc
import itertools
import os
import select
import shutil
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

from onepair.cli import main as program
from tests.campaigns.faults import REFUSALS, Faults
from tests.campaigns.forked import in_a_child, leave, onepair, warm_up
from tests.campaigns.jobs import Job, broken, contents, jobs, leave_to_last, prepare, shorten_commits

SECONDS = 120
MEMORY = "/dev/shm"  # noqa: S108 (folders there are made with a name of their own)
SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
SAYS = {signal.SIGTERM: (143, "stopped by SIGTERM"), signal.SIGINT: (130, "stopped by Ctrl-C")}
QUICK = ("train linear", "features", "predict parquet", "labels")  # that need no long imports, nor long themselves
TOO_LATE = 99  # a signal after the command


class Ended(NamedTuple):
    code: int
    said: str
    operations: int


class Campaign:
    """A folder in which one command after another is disturbed, and what happened so far."""

    def __init__(self, place: Path, seed: int) -> None:
        self.sample, self.folder = place / "sample", place / "job"
        self.seed = seed
        self.counts: collections.Counter[str] = collections.Counter()
        self.wrong = self.without = 0
        self.whole: dict[str, dict[str, Any]] = {}  # what each job leaves if nothing happens
        self.operations: dict[str, int] = {}
        self.seconds: dict[str, float] = {}

    def make_sample(self) -> list[Job]:
        """What the commands work on; returns them."""
        self.sample.mkdir()
        in_a_child(lambda: _write_sample(self.sample))
        return jobs(self.sample)

    def run(self, job: Job, *, moment: float | None = None, number: int = 0, **disturbed: Any) -> Ended:
        """Run the command in the folder as it is, in a process of its own."""
        (self.folder / ".said").write_text("")
        reader, writer = os.pipe()
        child = os.fork()
        if child == 0:
            os.close(reader)
            _be_the_command(job, self.folder, writer, **disturbed)
        os.close(writer)
        with open(reader, "rb", buffering=0) as counted:  # noqa: PTH123 (it is no path)
            counted.read(1)  # the command begins
            if moment is not None:
                _send(child, moment, number)
            watched = os.pidfd_open(child)
            ended = bool(select.select([watched], [], [], SECONDS)[0])
            os.close(watched)
            if not ended:
                os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
            operations = counted.read()
        said = (self.folder / ".said").read_text(errors="replace")
        code = os.waitstatus_to_exitcode(status) if ended else -1000
        return Ended(code, said, int(operations or b"0"))

    def undisturbed(self, job: Job) -> None:
        """What the job leaves if nothing happens, how many file operations it does, and how long it takes."""
        prepare(job, self.sample, self.folder)
        started = time.monotonic()
        ended = self.run(job, counting=True)
        if ended.code:
            raise RuntimeError(f"{job.name} ends with {ended.code}: {ended.said}")
        self.seconds[job.name] = time.monotonic() - started
        self.operations[job.name], self.whole[job.name] = ended.operations, leave_to_last(self.folder)

    def disturb(self, job: Job, what: str, right: Callable[[Ended], str | None], **disturbed: Any) -> int:
        """Disturb the job once, look at what it left, and go on with it; returns what it ended with."""
        prepare(job, self.sample, self.folder)
        before = contents(self.folder)
        ended = self.run(job, **disturbed)
        if ended.code == -signal.SIGTERM and _difference(leave_to_last(self.folder), self.whole[job.name]) is None:
            ended = ended._replace(code=TOO_LATE)  # all was done, and the process about to be gone
        mistakes = [mistake] if (mistake := right(ended)) else []
        mistakes += [f"half-written: {each}" for each in broken(self.folder, before, self.whole[job.name])]
        again = self.run(job)
        if again.code:
            mistakes.append(f"the same command then ends with {again.code}")
        elif different := _difference(leave_to_last(self.folder), self.whole[job.name]):
            mistakes.append(f"not the same in the end: {different}")
        if mistakes:
            self.wrong += 1
            print(f"{job.name}, {what}: {'; '.join(mistakes)}")
            for each in (ended, again):
                print(f"  [{each.code}] " + "\n    ".join(each.said.strip().splitlines()[-12:]), flush=True)
        return ended.code

    def signals(self, some: Sequence[Job], times: int) -> None:
        """Signals at random moments."""
        random = Random(self.seed)
        for number in SIGNALS:
            hit = 0
            for job in itertools.cycle(some):
                if hit == times:
                    break
                moment = random.random() * self.seconds[job.name]
                what = f"{number.name} after {moment:.3f} s"
                code = self.disturb(job, what, _answers(number), moment=moment, number=number)
                hit += code not in (0, TOO_LATE)
                self.counts[f"{number.name}"] += code not in (0, TOO_LATE)
        self._tell("signals at random moments", [number.name for number in SIGNALS])

    def operation_by_operation(self, some: Sequence[Job], every: int, at: int | None) -> None:
        """Killed at each operation."""
        for job in some:
            for number in self._chosen(job, every, at):
                self.disturb(job, f"killed at operation {number}", _is_killed, at=number)
                self.counts["killed"] += 1
        self._tell(f"file operations, {_apart(every)}", ["killed"])

    def disks(self, some: Sequence[Job], every: int, at: int | None, *, quick: bool) -> None:
        """With each kind of failing disk, or the kinds in turn, from each operation on."""
        for job in some:
            for number in self._chosen(job, every, at):
                for error in list(REFUSALS)[number % 3 :][:1] if quick else REFUSALS:
                    what = f"{errno.errorcode[error]} from operation {number} on"
                    done = self.disturb(job, what, _says_so, at=number, error=error) == 0
                    self.counts[errno.errorcode[error]] += 1
                    self.without += done
        self._tell(f"failing disks, {_apart(every)}", [errno.errorcode[error] for error in REFUSALS])
        print(f"  of these, commands that did without what could not be written: {self.without:,}")

    def _chosen(self, job: Job, every: int, at: int | None) -> Iterator[int]:
        first = Random(f"{self.seed} {job.name}").randrange(every)
        return iter([at] if at else range(1 + first, self.operations[job.name] + 1, every))

    def _tell(self, title: str, kinds: Sequence[str]) -> None:
        print(f"{title}: {', '.join(f'{self.counts[kind]:,} {kind}' for kind in kinds)}", flush=True)


def _apart(every: int) -> str:
    return "at each" if every == 1 else f"at one of {every}"


# How it should end


def _answers(number: signal.Signals) -> Callable[[Ended], str | None]:
    def right(ended: Ended) -> str | None:
        if ended.code in (0, TOO_LATE):  # it was done before
            return _speaks_plainly(ended)
        if number == signal.SIGKILL:
            return None if ended.code == -number else f"ends with {ended.code}"
        code, words = SAYS[number]
        if ended.code != code or words not in ended.said:
            return f"ends with {ended.code}, and says nothing of {words}"
        return _speaks_plainly(ended)

    return right


def _is_killed(ended: Ended) -> str | None:
    return None if ended.code in (-signal.SIGKILL, 0) else f"ends with {ended.code}"


def _says_so(ended: Ended) -> str | None:
    if ended.code == 0:  # it does without what it could not write
        return _speaks_plainly(ended)
    last = ended.said.strip().rpartition("\n")[2]
    if ended.code != 2 or not any(os.strerror(error) in last for error in REFUSALS):
        refusals = [words for _, words in REFUSALS.values()]
        if ended.code != 2 or not any(words in last for words in refusals):
            return f"ends with {ended.code}, without a sentence on the disk"
    return _speaks_plainly(ended)


def _speaks_plainly(ended: Ended) -> str | None:
    return "shows a traceback" if "Traceback" in ended.said else None


def _difference(found: dict[str, Any], expected: dict[str, Any]) -> str | None:
    for name in sorted(found.keys() | expected.keys()):
        if name not in expected:
            return f"{name} is left over"
        if name not in found:
            return f"{name} is missing"
        if found[name] != expected[name]:
            return f"{name} differs"
    return None


# Processes


def _send(child: int, moment: float, number: int) -> None:
    watched = os.pidfd_open(child)
    select.select([watched], [], [], moment)
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(watched, number)
    os.close(watched)


def _be_the_command(
    job: Job,
    folder: Path,
    writer: int,
    *,
    counting: bool = False,
    at: int | None = None,
    error: int | None = None,
) -> None:
    """In the child: run the command, disturbed or not, and end."""
    code = TOO_LATE
    try:
        os.chdir(folder)
        output = os.open(".said", os.O_WRONLY)
        for stream in (1, 2):
            os.dup2(output, stream)
        shorten_commits()
        _tell_of_the_beginning(writer)
        faults = Faults(folder, at=at, error=error) if counting or at else None
        code = onepair(*job.command)
        if counting and faults:
            os.write(writer, str(faults.count).encode())
    except KeyboardInterrupt:
        code = TOO_LATE
    except BaseException:
        code = 1
        traceback.print_exc()
    finally:
        leave(code)


def _tell_of_the_beginning(writer: int) -> None:
    """A byte to the parent once the command looks out for signals: those before it would say nothing of the command."""
    app, write = program.app, os.write  # which is no file operation of the command

    def begin() -> None:
        write(writer, b"+")
        app()

    program.app = begin


def _write_sample(folder: Path) -> None:
    from tests.campaigns.sample import write_project, write_run

    write_run(folder, onepair)
    write_project(folder, onepair)
    shutil.rmtree(folder / "run" / "finding" / "folds")  # to be found anew


def _warm_up(sample: Path, some: Sequence[Job]) -> None:
    """Import what the commands import; what they compute may start threads, which would not survive a fork."""
    commands: list[list[object]] = [
        ["check", sample / "images" / "labels.csv"],
        ["evaluate", sample / "run"],
        ["predict", sample / "run", sample / "images" / "00.png"],
    ]
    warm_up(dict.fromkeys(module for job in some for module in job.imports), commands)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--times", type=int, default=50, help="of each signal")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--every", type=int, default=1, help="so many file operations apart")
    parser.add_argument("--quick", action="store_true", help="a few commands, if none is named; failing disks in turn")
    parser.add_argument("--job", action="append", help="these alone")
    parser.add_argument("--at", type=int, help="this file operation alone")
    asked = parser.parse_args()
    signal.signal(signal.SIGINT, signal.default_int_handler)  # which shells switch off for what runs in the background
    memory = MEMORY if Path(MEMORY).is_dir() else None  # what is killed is the process: no disk has to turn
    with tempfile.TemporaryDirectory(prefix="onepair-kills-", dir=memory) as place:
        campaign = Campaign(Path(place), asked.seed)
        names = asked.job or (QUICK if asked.quick else None)
        some = [job for job in campaign.make_sample() if names is None or job.name in names]
        _warm_up(campaign.sample, some)
        for job in some:
            campaign.undisturbed(job)
            print(f"{job.name}: {campaign.operations[job.name]} file operations, {campaign.seconds[job.name]:.1f} s")
        if asked.at is None and asked.times:
            campaign.signals(some, asked.times)
        if asked.every:
            campaign.operation_by_operation(some, asked.every, asked.at)
            campaign.disks(some, asked.every, asked.at, quick=asked.quick)
    gc.unfreeze()
    print(f"{campaign.counts.total():,} times disturbed, wrong: {campaign.wrong:,}")
    sys.exit(1 if campaign.wrong else 0)


if __name__ == "__main__":
    main()
