"""Are the tests any good? Changes one place of the code at a time, and looks whether a test fails.

    python -m tests.campaigns.mutants --room losses --sample 100 --seed 1

Which tests enter which function is found out first; after that, each change is tried by those that enter the function
in which it is, the quick ones first, in a process of its own that imports the changed module. Nothing is written. A
change is found where a test fails or the tests take several times as long. Those that no test finds are printed, and
`--change N` tries one alone. Property tests have few examples, always the same.
"""

import argparse
import collections
import gc
import importlib.abc
import importlib.machinery
import importlib.util
import math
import os
import pickle
import resource
import signal
import sys
import threading
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from importlib import import_module
from pathlib import Path
from random import Random
from types import CodeType, FrameType
from typing import Any, NamedTuple

import pytest
from hypothesis import settings

from tests.campaigns.changes import SOURCE, Change, changed_tree, changes

ROOT = Path(__file__).parents[2]
EXAMPLES = 15  # of a property, in place of 100
MEMORY = 16 << 30  # bytes of address space, most of which libraries never touch
LIBRARIES = (
    *(
        "torch",
        "torch._dynamo",
        "scipy.stats",
        "scipy.optimize",
        "scipy.special",
        "sklearn.metrics",
        "sklearn.isotonic",
    ),
    *("mpmath", "hypothesis.extra.numpy", "pandas", "pydantic", "rich.progress", "doctest", "sklearn.linear_model"),
)


class Room(NamedTuple):
    """Code, and the tests that belong to it; its doctests do, too."""

    code: tuple[str, ...]
    tests: tuple[str, ...]
    without: str = ""  # tests whose names hold this take long, and look at something else


ROOMS = {
    "losses": Room(("onepair/losses",), ("tests/losses", "tests/methods/test_opml_plus.py"), without="compiles"),
    "labels": Room(
        ("onepair/labels.py", "onepair/metrics.py"),
        (
            *("tests/test_labels.py", "tests/test_metrics.py", "tests/test_exact_metrics.py"),
            *("tests/test_score_blocks.py", "tests/probability/test_evaluation.py", "tests/finding/test_search.py"),
        ),
    ),
    "probability": Room(("onepair/probability",), ("tests/probability",)),
}


class Changed(importlib.abc.MetaPathFinder):
    """Lets one module be imported with a change."""

    def __init__(self, change: Change) -> None:
        self.change = change
        self.name = module_name(change.file)

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        if name != self.name:
            return None
        change = self.change

        class Loader(importlib.machinery.SourceFileLoader):
            def get_code(self, fullname: str) -> CodeType:
                return compile(changed_tree(change), str(change.file), "exec")

        return importlib.util.spec_from_file_location(name, change.file, loader=Loader(name, str(change.file)))


# Tests


class Chosen:
    """A plugin of pytest: few examples of a property; and which tests run, in which order."""

    def __init__(self, tests: Sequence[str] | None = None) -> None:
        self.order = None if tests is None else {test: number for number, test in enumerate(tests)}

    def pytest_configure(self) -> None:
        settings.register_profile("few", max_examples=EXAMPLES, deadline=None, derandomize=True, database=None)
        settings.load_profile("few")

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.order is not None:
            order = self.order
            items[:] = sorted((item for item in items if item.nodeid in order), key=lambda item: order[item.nodeid])


class Entered(Chosen):
    """Also writes down which functions each test enters, and how long it takes."""

    def __init__(self) -> None:
        super().__init__()
        self.now: set[tuple[str, int]] = set()
        self.always = self.now  # what is entered outside of any test
        self.by_test: dict[str, set[tuple[str, int]]] = {}
        self.by_file: dict[str, set[tuple[str, int]]] = collections.defaultdict(set)
        self.seconds: dict[str, float] = {}
        self.source = str(SOURCE)

    def profile(self, frame: FrameType, event: str, _: Any) -> None:
        if event == "call" and frame.f_code.co_filename.startswith(self.source):
            self.now.add((frame.f_code.co_filename, frame.f_code.co_firstlineno))

    @pytest.hookimpl(wrapper=True)
    def pytest_make_collect_report(self, collector: pytest.Collector) -> Any:
        self.now = self.by_file[collector.nodeid]  # what a file of tests does when it is imported
        try:
            return (yield)
        finally:
            self.now = self.always

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Any:
        self.now = self.by_file[item.nodeid.partition("::")[0]]  # what fixtures do, they do for the whole file
        return (yield)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Any:
        self.now = self.by_test[item.nodeid] = set()
        started = time.process_time()
        try:
            return (yield)
        finally:
            self.seconds[item.nodeid] = time.process_time() - started
            self.now = self.always

    def testing(self, change: Change, slowest: float) -> list[str]:
        """The tests that enter the function of a change, quick ones first; outside of functions, any of its file."""
        file, place = str(change.file), (str(change.file), change.function or 0)
        everywhere = change.function is None or place in self.always
        tests = []
        for test, own in self.by_test.items():
            entered = own | self.by_file[test.partition("::")[0]]
            if place in entered or (everywhere and any(other == file for other, _ in entered)):
                tests.append(test)
        return sorted((test for test in tests if self.seconds[test] <= slowest), key=lambda test: self.seconds[test])


def run_tests(room: Room, plugin: Chosen, files: Sequence[str]) -> int:
    options = ["-x", "-q", "--assert=plain", "-p", "no:cacheprovider", "-p", "no:xdist"]
    options += ["-k", f"not {room.without}"] if room.without else []
    return int(pytest.main([*options, *files], plugins=[plugin]))


class Ended(NamedTuple):
    code: int  # of pytest: 0 passed, 1 failed; negative: the signal that ended it
    seconds: float
    result: Any


def in_a_process(work: Any, *, seconds: float | None = None) -> Ended:
    """What a function returns that may change this process, and take so many seconds of a processor."""
    reader, writer = os.pipe()
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.close(reader)
            resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
            if seconds is not None:
                resource.setrlimit(resource.RLIMIT_CPU, (int(seconds), int(seconds) + 5))
            with open(os.devnull, "w") as nothing, redirect_stdout(nothing), redirect_stderr(nothing):  # noqa: PTH123
                code, result = work()
            with open(writer, "wb") as file:  # noqa: PTH123 (it is no path)
                pickle.dump(result, file)
        finally:
            os._exit(code)
    os.close(writer)
    with open(reader, "rb") as file:  # noqa: PTH123
        content = file.read()
    _, status, used = os.wait4(child, 0)
    result = pickle.loads(content) if content else None  # noqa: S301 (our own)
    return Ended(os.waitstatus_to_exitcode(status), used.ru_utime + used.ru_stime, result)


def look(room: Room, files: Sequence[str]) -> tuple[int, Entered]:
    plugin = Entered()
    threading.setprofile(plugin.profile)
    sys.setprofile(plugin.profile)
    for code in room.code:
        for file in _python_files(SOURCE / code):
            import_module(module_name(file))  # which may be asked for by any of the tests
    code = run_tests(room, plugin, files)
    sys.setprofile(None)
    threading.setprofile(None)
    return code, plugin


def attempt(room: Room, change: Change, tests: Sequence[str]) -> tuple[int, None]:
    changed = Changed(change)
    sys.meta_path.insert(0, changed)
    import_module(changed.name)  # before pytest, which would find it by its file
    return run_tests(room, Chosen(tests), list(dict.fromkeys(test.partition("::")[0] for test in tests))), None


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--room", choices=ROOMS, required=True)
    parser.add_argument("--sample", type=int, default=100, help="how many changes are drawn; 0 for all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--slowest", type=float, default=math.inf, help="tests that take more seconds are left out")
    parser.add_argument("--change", type=int, action="append", help="this one alone")
    asked = parser.parse_args()
    os.chdir(ROOT)
    os.environ["OMP_NUM_THREADS"] = "1"
    room = ROOMS[asked.room]
    for library in LIBRARIES:
        import_module(library)
    gc.freeze()  # what is collected in a child would be copied first
    files = sorted(file for code in room.code for file in _python_files(SOURCE / code))
    every = [change for file in files for change in changes(file)]
    size = min(asked.sample or len(every), len(every))
    drawn = asked.change or sorted(Random(asked.seed).sample(range(len(every)), size))
    paths = [*room.tests, *(str(file.relative_to(ROOT)) for file in files)]
    whole = in_a_process(partial(look, room, paths))
    if whole.code or whole.result is None:
        sys.exit(f"the tests of {asked.room} fail without any change ({whole.code})")
    entered: Entered = whole.result
    print(f"{asked.room}: {len(every):,} changes, {len(drawn):,} drawn; {len(entered.by_test):,} tests", flush=True)
    found = collections.Counter[str]()
    for number in drawn:
        change, tests = every[number], entered.testing(every[number], asked.slowest)
        limit = 20 + 4 * sum(entered.seconds[test] for test in tests)
        ended = in_a_process(partial(attempt, room, change, tests), seconds=limit) if tests else None
        if ended is None or ended.code == 0:
            found["not found"] += 1
            print(f"not found by {len(tests)} tests: change {number}, {change.said}", flush=True)
        else:
            found["without end" if ended.code in (-signal.SIGXCPU, -signal.SIGKILL) else "failing"] += 1
            if asked.change:
                print(f"found: change {number}, {change.said}", flush=True)
    gc.unfreeze()
    caught = found["failing"] + found["without end"]
    print(f"{caught} of {len(drawn)} found, {found['without end']} of these by tests that do not end in time")


def module_name(file: Path) -> str:
    return ".".join(file.relative_to(SOURCE).with_suffix("").parts).removesuffix(".__init__")


def _python_files(path: Path) -> list[Path]:
    return sorted(path.glob("*.py")) if path.is_dir() else [path]


if __name__ == "__main__":
    main()
