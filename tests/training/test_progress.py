"""What a run looks like while it happens."""

import io

import pytest
from rich.console import Console

from onepair.training.callbacks import ProgressCallback, error_console


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
