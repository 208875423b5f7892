"""What is searched can be run."""

import pytest

from onepair.experiments.records import (
    EXPERIMENTS,
    GRIDS,
    LEARNING_RATES,
    TITLES,
    Dataset,
    Overrides,
    Row,
    combinations,
    grid_of,
    make_config,
)
from onepair.methods import METHODS, create_method


def test_every_grid_is_of_a_method():
    assert set(GRIDS) <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_every_point_makes_a_method(name):
    needed = METHODS[name].run_options(epochs=25)
    points = [{k: v for k, v in point.items() if k != "lr"} for point in combinations(GRIDS.get(name, {}))]
    assert len(points) == len({tuple(point.items()) for point in points})
    for point in points:
        create_method(name, **point, **needed)


@pytest.mark.parametrize("mode", LEARNING_RATES)
@pytest.mark.parametrize("dataset", TITLES)
def test_the_learning_rate_of_the_settings_is_among_those_tried(dataset, mode):
    for row in EXPERIMENTS["table2"].known_rows():
        config = make_config(Dataset(dataset, "x"), row, {}, seed=0, overrides=Overrides(mode=mode))
        lr = config.stages[config.last_stage].optimiser.lr
        assert lr in grid_of(row.method, mode=mode, lr=lr)["lr"]


def test_the_grid_of_voc_features():
    row = Row("OPML-SP", "opml-sp")
    lr = make_config(Dataset("voc2012", "x"), row, {}, seed=0, overrides=Overrides(mode="linear")).linear.optimiser.lr
    assert grid_of("opml-sp", mode="linear", lr=lr) == {
        "alpha": (0.1, 0.4, 0.7),
        "beta": (0.4, 0.7, 0.9),
        "gamma_gradient": (False, True),
        "label_num": (0.8, 1.6),
        "lr": (3e-4, 1e-3),
    }
