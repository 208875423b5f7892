"""The `onepair` command in this process, which is fast, where no process of its own is needed."""

import sys
from typing import NamedTuple

import pytest

from onepair.cli.main import main


class Result(NamedTuple):
    returncode: int
    stdout: str
    stderr: str


@pytest.fixture
def in_process(monkeypatch, capsys):
    """Run the command in the folder that is the current one."""

    def run(*arguments):
        monkeypatch.setattr(sys, "argv", ["onepair", *map(str, arguments)])
        with pytest.raises(SystemExit) as caught:
            main()
        return Result(caught.value.code or 0, *capsys.readouterr())

    return run
