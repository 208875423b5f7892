"""The `onepair` command without the seconds that its imports take: in this process, or in one forked from it."""

import contextlib
import os
import sys
import traceback
from collections.abc import Callable
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
