"""What a program is told while a run goes on: messages by `logging`, everything else by callbacks."""

import io
import logging
import subprocess
import sys

import pytest
from rich.console import Console

import onepair
from onepair.training.callbacks import ProgressCallback, error_console
from tests.training.tiny import Listener, train_tiny, write_images


class Hooks(Listener):
    """Takes down the order of the hooks."""

    def __init__(self):
        super().__init__()
        self.called = []

    def on_stage_start(self, stage):
        self.called.append(f"start {stage}")

    def on_stage_end(self, stage):
        self.called.append(f"end {stage}")

    def on_epoch_end(self, record):
        super().on_epoch_end(record)
        self.called.append(f"epoch {record['epoch']}")

    def on_progress(self, what, done, total):
        if done == total:
            self.called.append(what)

    def on_problem(self, problem):
        self.called.append(problem.kind)


def test_hooks_come_in_order(tmp_path):
    (tmp_path / "images").mkdir()
    source, hooks = write_images(tmp_path / "images"), Hooks()
    (tmp_path / "images" / "00.png").write_bytes(b"no image")
    train_tiny(source, "linear.epochs=2", out=tmp_path / "run", cache=tmp_path / "cache", listener=hooks)
    assert hooks.called == [
        "extracting features",
        "unreadable image",
        "start linear",
        "epoch 1",
        "epoch 2",
        "end linear",
    ]
    assert isinstance(hooks, onepair.Callback)


def test_messages_are_shown_by_the_command_line_alone(capsys):
    logger = logging.getLogger("onepair.anything")
    logger.info("nobody asked")
    with ProgressCallback():
        logger.info("shown")
        logger.info("shown")
    logger.info("nobody asked")
    assert capsys.readouterr().err == "shown\n"


def test_python_is_quiet_unless_logging_is_asked_for():
    code = "import logging, onepair; {}logging.getLogger('onepair.a').info('heard')"
    for setup, heard in (("", ""), ("logging.basicConfig(level='INFO', format='%(message)s'); ", "heard\n")):
        done = subprocess.run([sys.executable, "-c", code.format(setup)], capture_output=True, text=True, check=True)
        assert done.stderr == heard


def extraction(monkeypatch, **terminal):
    output = io.StringIO()
    monkeypatch.setattr("onepair.training.callbacks.Console", lambda **_: Console(file=output, **terminal))
    with ProgressCallback() as progress:
        for done in range(0, 101, 2):
            progress.on_progress("extracting features", done, 100)
    return output.getvalue()


def test_off_a_terminal_extraction_is_a_line_for_every_tenth_that_takes_its_time(monkeypatch):
    assert extraction(monkeypatch).splitlines() == ["extracting features: 0 of 100 images"]
    monkeypatch.setattr("onepair.training.callbacks.BETWEEN_LINES", -1)
    lines = extraction(monkeypatch).splitlines()
    assert lines[0] == "extracting features: 0 of 100 images"
    assert lines[-1] == "extracting features: 100 of 100 images"
    assert len(lines) == 11


def test_a_notebook_is_no_terminal_whatever_colours_it_asks_for(monkeypatch):
    assert error_console().is_terminal is False
    monkeypatch.setenv("FORCE_COLOR", "1")
    assert error_console().is_terminal is False
    monkeypatch.setattr("sys.stderr.isatty", lambda: True)
    assert error_console().is_terminal is True


def test_on_a_terminal_extraction_is_a_bar(monkeypatch):
    shown = extraction(monkeypatch, force_terminal=True, width=100)
    assert "━" in shown
    assert "of 100 images" in shown


@pytest.mark.parametrize(("short_epochs", "lines"), [(True, 2), (False, 1)])
def test_off_a_terminal_short_epochs_of_many_models_are_no_news(monkeypatch, short_epochs, lines):
    output = io.StringIO()
    monkeypatch.setattr("onepair.training.callbacks.Console", lambda **_: Console(file=output, width=200))
    record = {
        "stage": "linear",
        "epoch": 1,
        "best_epoch": 1,
        "validation_map": 0.5,
        "loss": 1.0,
        "images_per_second": 9,
    }
    with ProgressCallback(short_epochs=short_epochs) as progress:
        progress.on_epoch_end({**record, "seconds": 0.1})
        progress.on_epoch_end({**record, "epoch": 2, "seconds": 1000.0})
    assert len(output.getvalue().splitlines()) == lines
