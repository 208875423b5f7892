"""What a search may choose can be run, and lies around what one begins with."""

import itertools

import pytest

from onepair.experiments.records import GRIDS
from onepair.experiments.tuning import SPACES, Range, space_of, start_of, with_values
from onepair.methods import METHODS, create_method
from onepair.runs.config import Config, MethodConfig, ModelConfig, preset, preset_titles, resolve_config


@pytest.mark.parametrize("name", SPACES)
def test_every_corner_makes_a_method(name):
    needed = METHODS[name].run_options(epochs=25)
    ends = [(each.low, each.high) if isinstance(each, Range) else each for each in SPACES[name].values()]
    for corner in itertools.product(*ends):
        create_method(name, **dict(zip(SPACES[name], corner, strict=True)), **needed)


def test_the_grids_lie_within():
    for name, grid in GRIDS.items():
        for option, tried in grid.items():
            space = SPACES[name][option]
            inside = (space.low <= min(tried) and max(tried) <= space.high) if isinstance(space, Range) else None
            assert inside or set(tried) == set(space), (name, option)


@pytest.mark.parametrize("mode", ["linear", "finetune", "linear-init"])
@pytest.mark.parametrize("name", preset_titles())
def test_every_preset_lies_within(name, mode):
    for method in METHODS:
        config = resolve_config(preset(name, method), {"model": {"mode": mode}})
        space, start = space_of(config), start_of(config)
        assert space.keys() == start.keys()
        for option, value in start.items():
            choices = space[option]
            assert choices.low <= value <= choices.high if isinstance(choices, Range) else value in choices
        assert with_values(config, start).stages == config.stages


def test_values_reach_the_method_and_the_last_stage():
    config = Config(method=MethodConfig("opml", {"beta": 0.3}), model=ModelConfig(mode="linear-init"))
    changed = with_values(config, {"alpha": 0.2, "lr": 0.5})
    assert changed.method.options == {"alpha": 0.2, "beta": 0.3}
    assert (changed.finetune.optimiser.lr, changed.linear) == (0.5, config.linear)


def test_a_classifier_that_is_solved_for_has_no_learning_rate_to_choose():
    config = Config(model=ModelConfig(mode="linear"))
    assert "lr" not in space_of(config)
    assert with_values(config, {"alpha": 0.2}).method.options == {"alpha": 0.2}
    published = resolve_config({"linear": {"protocol": "epochs"}})
    assert space_of(published)["lr"] == Range(3e-5, 3e-3, log=True)
    assert with_values(published, {"lr": 0.5}).linear.optimiser.lr == 0.5


def test_an_option_that_is_set_to_nothing_has_no_start():
    config = Config(method=MethodConfig("focal", {"alpha": None}))
    assert start_of(config) == {"gamma": 2.0}
    assert space_of(config)["alpha"] == SPACES["focal"]["alpha"]
