"""The `onepair` command without the seconds that its imports take: in this process, or in one forked from it."""

import contextlib
import gc
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Sequence
from importlib import import_module
from typing import NoReturn

from onepair.cli.main import main as command_line


def onepair(*arguments: object) -> int:
    """Run the command in this process, and return its exit code."""
    sys.argv = ["onepair", *map(str, arguments)]
    try:
        command_line()
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    return 0


def warm_up(modules: Iterable[str], commands: Iterable[Sequence[object]]) -> None:
    """Import and compute once what every forked process would begin with."""
    for module in modules:
        import_module(module)
    with open(os.devnull, "w") as nothing, contextlib.redirect_stdout(nothing), contextlib.redirect_stderr(nothing):  # noqa: PTH123
        for command in commands:
            if onepair(*command):
                raise RuntimeError(f"the sample is not sound: {command}")
    gc.collect()
    gc.freeze()  # what is collected in a child would be copied first


def in_a_child(make: Callable[[], None]) -> None:
    """Threads that training starts would not survive the forks that follow."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115, PTH123 (for as long as the process lives)
            make()
            code = 0
        except BaseException:
            traceback.print_exc(file=sys.__stderr__)
        finally:
            os._exit(code)
    if os.waitpid(child, 0)[1]:
        raise RuntimeError("the sample could not be made")


def leave(code: int) -> NoReturn:
    """End a forked process: with all that it has printed, and without what its parent would do in the end."""
    with contextlib.suppress(BaseException):
        sys.stdout.flush()
        sys.stderr.flush()
    os._exit(code)
