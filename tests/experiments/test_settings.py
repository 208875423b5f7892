"""The settings of each dataset, against the shipped configurations and the demo."""

from dataclasses import replace
from pathlib import Path

import pytest

from onepair.cli.demo import RUNS, demo_config
from onepair.experiments.datasets import Dataset
from onepair.experiments.records import EXPERIMENTS, Row
from onepair.experiments.settings import Wishes, make_config
from onepair.runs.config import DataConfig, parse_setting, read_config, resolve_config

FILES = sorted((Path(__file__).parents[2] / "configs").glob("*.toml"))
VOC, DIGITS = Dataset("voc2012", "VOCdevkit", "voc"), Dataset("digits", "digits", "digits")
SP = Row("OPML-SP", "opml-sp")


def learning(config):
    """All that decides a run but the dataset's path and format."""
    return replace(config, data=DataConfig(observe=config.data.observe))


@pytest.mark.parametrize("mode", ["linear", "finetune"])
def test_they_are_those_of_the_shipped_configurations(mode):
    rows = {row.method: row for row in EXPERIMENTS["table2"].rows if not row.linear_init and row.labels == "single"}
    compared = 0
    for file in FILES:
        name, _, method = file.stem.partition("_")
        row = rows.get(method, Row(method, method))
        ours = make_config(Dataset(name, "path", "auto"), row, {}, seed=0, wishes=Wishes(mode=mode))
        assert learning(ours) == learning(resolve_config(read_config(file), {"model": {"mode": mode}})), file.stem
        compared += 1
    assert compared >= 80


@pytest.mark.parametrize("run", RUNS, ids=lambda run: run.name)
def test_those_of_digits_are_the_demos(run):
    row = Row(run.title, run.method, labels="full" if run.observe == "given" else "single")
    assert learning(make_config(DIGITS, row, {}, seed=0, wishes=Wishes())) == learning(demo_config(run, 20))


def test_a_dataset_of_ones_own_has_the_defaults():
    config = make_config(Dataset("mine", "mine.csv"), SP, {}, seed=3, wishes=Wishes(mode="linear"))
    assert config == resolve_config(
        {},
        {
            "data": {"source": "mine.csv", "observe": "single-positive"},
            "model": {"mode": "linear"},
            "method": {"name": "opml-sp"},
            "seed": 3,
        },
    )


def test_values_win_over_settings_and_wishes_over_values():
    values = {"alpha": 0.2, "lr": 0.5}
    config = make_config(VOC, SP, values, seed=1, wishes=Wishes())
    assert (config.method.options["alpha"], config.method.options["beta"]) == (0.2, 0.4)
    assert (config.optimiser.lr, config.seed) == (0.5, 1)
    others = [parse_setting("optimiser.lr=0.7"), parse_setting("method.options.alpha=0.3")]
    config = make_config(VOC, SP, values, seed=1, wishes=Wishes(others=others))
    assert (config.optimiser.lr, config.method.options["alpha"]) == (0.7, 0.3)


def test_the_number_of_epochs_is_the_users_then_the_experiments_then_the_datasets():
    for mode, key in (("finetune", "epochs"), ("linear", "linear_epochs")):
        own = make_config(VOC, SP, {}, seed=0, wishes=Wishes(mode=mode))
        figure = make_config(VOC, SP, {}, seed=0, wishes=Wishes(mode=mode), epochs=40)
        asked = make_config(VOC, SP, {}, seed=0, wishes=Wishes(mode=mode, epochs=3), epochs=40)
        assert [getattr(config, key) for config in (own, figure, asked)] == [{"epochs": 15}.get(key, 25), 40, 3]


def test_another_backbone_does_not_take_over_the_image_size():
    config = make_config(VOC, SP, {}, seed=0, wishes=Wishes(backbone="tf_efficientnet_lite0"))
    assert (config.model.backbone, config.model.image_size) == ("tf_efficientnet_lite0", None)


def test_rows_with_full_labels_and_with_a_linear_start():
    full = make_config(VOC, Row("BCE", "bce", labels="full"), {}, seed=0, wishes=Wishes())
    start = make_config(VOC, Row("ROLE+LI", "role", linear_init=True), {}, seed=0, wishes=Wishes())
    assert (full.data.observe, full.model.mode) == ("given", "finetune")
    assert (start.data.observe, start.model.mode) == ("single-positive", "linear-init")
