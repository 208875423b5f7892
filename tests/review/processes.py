"""`onepair review` as a process of its own."""

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class Server(NamedTuple):
    process: subprocess.Popen
    url: str  # without the slash at its end
    said: str


@contextmanager
def serving(run: Path, *options: object, command: str = "review") -> Iterator[Server]:
    """The command on a port that is free, until the end of the block."""
    program = [sys.executable, "-c", "from onepair.cli.main import main; main()", command, str(run), "--port", "0"]
    variables = {**os.environ, "XDG_CACHE_HOME": str(run.parent / "cache"), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        [*program, *map(str, options)], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=variables
    )
    try:
        said = ""
        while not (found := re.search(r"Open (http://\S+)", said)):
            line = process.stdout.readline()
            assert line, said
            said += line
        yield Server(process, found[1].rstrip("/"), said)
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
