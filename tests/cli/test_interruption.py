"""Ctrl-C and SIGTERM end every long command in a sentence."""

import inspect
import signal
import threading

import pytest

from onepair.cli.console import NOTHING, on_interrupt, terminable
from onepair.cli.main import app
from onepair.errors import Stopped

# The others are short, serve a page until Ctrl-C, or are made of these.
LONG = [
    "check",
    "compare",
    "decide",
    "demo",
    "evaluate",
    "explain",
    "export",
    "features",
    "find",
    "labels",
    "reproduce",
    "train",
    "tune",
]


def interrupted(*_, **__):
    raise KeyboardInterrupt


def test_an_interrupt_says_what_is_kept():
    sentence = "stopped by Ctrl-C; nothing is half-written; the same command begins anew"
    with pytest.raises(Stopped, match=sentence) as stop, on_interrupt(NOTHING):
        interrupted()
    assert stop.value.code == 130


def test_sigterm_ends_a_command_as_ctrl_c_does(monkeypatch, in_process):
    def terminated(_):
        signal.raise_signal(signal.SIGTERM)

    before = signal.getsignal(signal.SIGTERM)
    monkeypatch.setattr("onepair.inference.model_files.read_description", terminated)
    code, _, errors = in_process("export", "run")
    assert (code, errors) == (143, f"onepair: stopped by SIGTERM; {NOTHING}\n")
    assert signal.getsignal(signal.SIGTERM) == before


def test_ctrl_c_before_a_command_has_begun_is_a_sentence_too(monkeypatch, in_process):
    monkeypatch.setattr("typer.core.TyperGroup.invoke", interrupted)
    assert in_process("check", "labels.csv") == (130, "", "onepair: stopped by Ctrl-C\n")


def test_sigterm_that_means_something_else_is_left_alone():
    heard = []
    before = signal.signal(signal.SIGTERM, lambda *_: heard.append("SIGTERM"))
    try:
        with terminable():
            signal.raise_signal(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == ["SIGTERM"]


@pytest.mark.parametrize("name", LONG)
def test_every_long_command_says_so(name, monkeypatch):
    (command,) = [each.callback for each in app.registered_commands if each.callback.__name__ == name]
    monkeypatch.setattr(inspect.unwrap(command), "__code__", interrupted.__code__)
    with pytest.raises(Stopped, match=r"stopped by Ctrl-C; .*; the same command"):
        command()


def test_a_signal_that_comes_where_no_error_can_be_raised_is_sent_again():
    class Deaf:
        def __del__(self):
            signal.raise_signal(signal.SIGTERM)

    def wait():
        Deaf()
        threading.Event().wait(20)

    with pytest.raises(Stopped, match="stopped by SIGTERM"), terminable():
        wait()
