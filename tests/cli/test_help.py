"""What every command says of itself."""

from dataclasses import fields
from itertools import pairwise

import pytest
import typer

from onepair.cli.main import GROUPS, RENAMED, app
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


def test_flags_have_no_type_and_groups_have_headings(in_process, monkeypatch):
    monkeypatch.setenv("COLUMNS", "120")
    shown = in_process("train", "--help").stdout
    assert "<bool>" not in shown
    assert "How the dataset is read" in shown
    assert "Where it runs" in shown
    listed = in_process("--help").stdout
    assert [listed.index(f"─ {group} ─") for group in GROUPS] == sorted(listed.index(f"─ {each} ─") for each in GROUPS)
    assert "─ Commands ─" not in listed  # every command is in a group


def test_an_option_has_one_meaning():
    """The same name asks for the same kind of thing everywhere; a command names the file or number that it is of."""
    kinds, context = {}, typer.Context(COMMAND)
    for _, option in OPTIONS:
        for name in option.opts:
            kind = option.display_type(context).replace("list[", "").replace("]", "")
            kinds.setdefault(name, set()).add("choice" if "|" in kind else kind.removesuffix(" range>"))
    assert {name for name, found in kinds.items() if len(found) > 1} == set()


@pytest.mark.parametrize(("command", "old"), sorted(RENAMED))
def test_old_names_work_and_warn(command, old, in_process):
    new = RENAMED[command, old]
    found = in_process(command, f"{old}=1")
    assert f"{old} of onepair {command} is called {new} now" in found.stderr
    assert f"No such option: {old}" not in found.stderr


def test_epochs_and_seed_are_settings(in_process):
    shown = in_process("config", "--mode", "finetune", "--epochs", 3, "--seed", 7).stdout
    assert "epochs = 3" in shown
    assert "seed = 7" in shown
    refused = in_process("config", "--epochs", 3)
    assert refused.returncode == 2
    assert "add --mode finetune" in refused.stderr
