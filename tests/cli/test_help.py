"""What every command says of itself."""

from dataclasses import fields
from itertools import pairwise

import pytest
import typer

from onepair.cli.main import app
from onepair.cli.options import ReadOptions
from onepair.runs.config import all_settings

# Options that ask for something that is otherwise not done, so that there is no default to tell.
WITHOUT_DEFAULT = {
    ("audit", "answers"),
    ("audit", "sheet"),
    ("check", "fix"),
    ("compare", "out"),
    ("evaluate", "metric"),
    ("features", "out"),
    ("find", "out"),
    ("reproduce", "data"),
}
EVERYWHERE = {"complete_split", "config", "preset", "settings"}  # likewise, wherever they are
SETTING_OF = {  # options that are settings, too
    "backbone": "model.backbone",
    "format": "data.format",
    "method": "method.name",
    "mode": "model.mode",
    "observe": "data.observe",
    "unlisted": "data.unlisted",
    "weights": "model.weights",
    "zeros": "data.zeros",
}

COMMAND = typer.main.get_command(app)
OPTIONS = [
    (name, option)
    for name, command in sorted(COMMAND.commands.items())
    for option in command.params
    if option.param_type_name == "option" and option.name != "help"
]


def shown_default(option):
    """The default that --help shows, if any."""
    if isinstance(option.show_default, str):
        return option.show_default
    return None if option.default is None or not option.show_default else str(option.default)


@pytest.mark.parametrize(("name", "option"), OPTIONS, ids=[f"{name} {option.name}" for name, option in OPTIONS])
def test_every_option_says_what_it_does_and_what_it_is_by_default(name, option):
    assert option.help
    if option.is_flag and not option.default and not option.secondary_opts:
        return  # what is not asked for is not done
    if option.required or option.name in EVERYWHERE or (name, option.name) in WITHOUT_DEFAULT:
        assert shown_default(option) is None
        assert "by default" not in option.help
        return
    assert shown_default(option) is not None or "by default" in option.help


@pytest.mark.parametrize(
    ("name", "option"),
    [each for each in OPTIONS if each[1].name in SETTING_OF and isinstance(each[1].show_default, str)],
    ids=str,
)
def test_defaults_of_settings_are_those_of_the_configuration(name, option):
    defaults = {setting.key: setting.default for setting in all_settings()}
    assert option.show_default == defaults[SETTING_OF[option.name]]


def test_defaults_are_on_the_screen(in_process):
    shown = " ".join(in_process("train", "--help").stdout.split())
    assert "[default: (opml-plus)]" in shown
    assert "[default: auto]" in shown


@pytest.mark.parametrize("name", ["check", "config", "evaluate", "features", "start", "train", "tune"])
def test_whatever_reads_a_dataset_takes_all_that_can_be_said_of_how(name):
    options = {option.name for command, option in OPTIONS if command == name}
    assert options >= {field.name for field in fields(ReadOptions)}


@pytest.mark.parametrize("name", sorted(COMMAND.commands))
def test_help_fits_a_narrow_screen(name, in_process, monkeypatch):
    monkeypatch.setenv("COLUMNS", "80")
    shown = in_process(name, "--help").stdout
    assert "…" not in shown  # nothing is cut off
    lines = [line.strip() for line in shown.split("╭")[0].splitlines()]
    for line, following in pairwise(lines):  # and no line is broken before its end
        assert not following or not line or len(line) + 1 + len(following.split()[0]) > 78
