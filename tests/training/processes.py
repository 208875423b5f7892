"""Runs in processes of their own: such as are killed, and such as compute together.

A server imports the library once and forks every process from itself, which saves each the seconds of an import.
"""

import multiprocessing
import os
import signal
import socket
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# The processes look for modules where this one does, and must find this one, also under a pytest that does not.
sys.path.append(str(Path(__file__).parents[2]))
SECONDS = 600  # after which a process hangs: long enough for a machine that does ten other things
_SERVER = multiprocessing.get_context("forkserver")
_SERVER.set_forkserver_preload(["onepair.training.run", "onepair.training.callbacks", "onepair.cli.main"])


def command(*arguments: object, log: Path, die_at: tuple[str, int] | None = None, **environment: str) -> Any:
    """Start `onepair` with these arguments and a checkpoint after every batch; both its outputs go to `log`.

    Args:
        die_at: ("write", n) or ("batch", n): kill the process with signal 9 at the n-th of these.
    """
    return start(dying_command, list(map(str, arguments)), die_at, log=log, **environment)


def together(function: Any, *arguments: Any, logs: Sequence[Path]) -> list[int]:
    """Call a function in as many processes as there are logs, which Fabric takes for one machine: their exit codes."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    processes = [
        start(function, *arguments, log=log, LOCAL_RANK=str(rank), NODE_RANK="0", MASTER_PORT=port)
        for rank, log in enumerate(logs)
    ]
    return exit_codes(processes)


def start(function: Any, *arguments: Any, log: Path, **environment: str) -> Any:
    process = _SERVER.Process(target=_begin, args=(function, arguments, log, environment))
    process.start()
    return process


def exit_code(process: Any) -> int:
    return exit_codes([process])[0]


def exit_codes(processes: Sequence[Any]) -> list[int]:
    """Those of processes that end by themselves. What hangs is killed, which must not pass for a kill of the test's."""
    for process in processes:
        process.join(timeout=SECONDS)
    hanging = [process for process in processes if process.is_alive()]
    for process in hanging:
        process.kill()
        process.join()
    assert not hanging, f"{len(hanging)} of {len(processes)} processes had not ended after {SECONDS} s"
    return [process.exitcode for process in processes]


def run_command(arguments: list[str]) -> None:
    """The command, with a checkpoint after every batch."""
    from onepair.cli.main import main
    from onepair.training import checkpoint as stopping

    stopping.SECONDS_BETWEEN_CHECKPOINTS = -1
    sys.argv = ["onepair", *arguments]
    main()


def _begin(function: Any, arguments: tuple[Any, ...], log: Path, environment: dict[str, str]) -> None:
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.environ.update(environment)
    import torch

    torch.set_num_threads(1)
    function(*arguments)


def dying_command(arguments: list[str], die_at: tuple[str, int] | None) -> None:
    """The command, until the moment at which it is killed."""
    from onepair.training.loop import Trainer

    if die_at is not None:
        kind, number = die_at
        owner, name = {"write": (os, "fsync"), "batch": (Trainer, "_loss")}[kind]
        setattr(owner, name, _deadly(getattr(owner, name), number))
    run_command(arguments)


def _deadly(function: Any, number: int) -> Any:
    """The function, until its n-th call."""
    calls = 0

    def count(*arguments: Any) -> Any:
        nonlocal calls
        calls += 1
        if calls == number:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments)

    return count
