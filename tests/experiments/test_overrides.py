"""The configuration of each run of an experiment, against the presets."""

from dataclasses import replace

import pytest

from onepair.experiments.records import Dataset, Overrides, Row, make_config
from onepair.methods import METHODS
from onepair.runs.config import DataConfig, parse_setting, preset, preset_titles, resolve_config

VOC, DIGITS = Dataset("voc2012", "VOCdevkit", "voc"), Dataset("digits", "digits", "digits")
SP = Row("OPML-SP", "opml-sp")


def learning(config):
    """All that decides a run but the dataset's path and format."""
    return replace(config, data=DataConfig(observe=config.data.observe))


@pytest.mark.parametrize("mode", ["linear", "finetune", "linear-init"])
@pytest.mark.parametrize("name", preset_titles())
def test_they_are_those_of_the_preset(name, mode):
    for method in METHODS:
        ours = make_config(Dataset(name, "path"), Row(method, method), {}, seed=0, overrides=Overrides(mode=mode))
        assert learning(ours) == learning(resolve_config(preset(name, method), {"model": {"mode": mode}})), method


@pytest.mark.parametrize(
    ("method", "labels", "observe"), [("opml-sp", "single", "single-positive"), ("bce", "full", "given")]
)
def test_those_of_digits_are_its_presets(method, labels, observe):
    ours = make_config(DIGITS, Row(method, method, labels=labels), {}, seed=0, overrides=Overrides())
    settings = {"data": {"source": "digits", "observe": observe}, "finetune": {"epochs": 20}}
    assert learning(ours) == learning(resolve_config(preset("digits", method), settings))


def test_a_dataset_of_ones_own_has_the_protocol_and_the_network_of_the_paper():
    config = make_config(Dataset("mine", "mine.csv"), SP, {}, seed=3, overrides=Overrides(mode="linear"))
    assert config == resolve_config(
        {},
        {
            "data": {"source": "mine.csv", "observe": "single-positive"},
            "model": {"mode": "linear", "backbone": "resnet50.tv_in1k"},
            "method": {"name": "opml-sp"},
            "linear": {"protocol": "epochs"},
            "seed": 3,
        },
    )


def test_values_win_over_settings_and_overrides_over_values():
    values = {"alpha": 0.2, "lr": 0.5}
    config = make_config(VOC, SP, values, seed=1, overrides=Overrides())
    assert (config.method.options["alpha"], config.method.options["beta"]) == (0.2, 0.4)
    assert (config.finetune.optimiser.lr, config.seed) == (0.5, 1)
    others = [parse_setting("finetune.optimiser.lr=0.7"), parse_setting("method.options.alpha=0.3")]
    config = make_config(VOC, SP, values, seed=1, overrides=Overrides(others=others))
    assert (config.finetune.optimiser.lr, config.method.options["alpha"]) == (0.7, 0.3)


def test_the_number_of_epochs_is_the_users_then_the_experiments_then_the_datasets():
    for mode, epochs in (("finetune", 15), ("linear", 25), ("linear-init", 15)):
        own = make_config(VOC, SP, {}, seed=0, overrides=Overrides(mode=mode))
        figure = make_config(VOC, SP, {}, seed=0, overrides=Overrides(mode=mode), epochs=40)
        asked = make_config(VOC, SP, {}, seed=0, overrides=Overrides(mode=mode, epochs=3), epochs=40)
        lengths = [config.stages[config.last_stage].epochs for config in (own, figure, asked)]
        assert lengths == [epochs, 40, 3]


def test_another_backbone_does_not_take_over_the_image_size():
    config = make_config(VOC, SP, {}, seed=0, overrides=Overrides(backbone="tf_efficientnet_lite0"))
    assert (config.model.backbone, config.model.image_size) == ("tf_efficientnet_lite0", None)


def test_rows_with_full_labels_and_with_a_linear_start():
    full = make_config(VOC, Row("BCE", "bce", labels="full"), {}, seed=0, overrides=Overrides())
    start = make_config(VOC, Row("ROLE+LI", "role", linear_init=True), {}, seed=0, overrides=Overrides())
    assert (full.data.observe, full.model.mode) == ("given", "finetune")
    assert (start.data.observe, start.model.mode) == ("single-positive", "linear-init")


def test_a_value_with_a_dot_is_a_setting():
    row = Row("BCE", "bce", labels="fraction")
    config = make_config(VOC, row, {"data.known": 0.25, "lr": 0.5}, seed=0, overrides=Overrides(mode="linear"))
    assert (config.data.observe, config.data.known) == ("fraction", 0.25)
    assert (config.method.options, config.linear.optimiser.lr) == ({}, 0.5)
