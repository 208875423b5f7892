"""A search for settings: what it tries, that it goes on, and that it never tests."""

import itertools
from dataclasses import replace

import numpy as np
import pytest

from onepair.errors import RunError, TrainingError
from onepair.experiments import study as working
from onepair.experiments.records import GRIDS
from onepair.experiments.tuning import (
    SPACES,
    Range,
    Trial,
    best_of_trials,
    history,
    space_of,
    start_of,
    tune,
    with_values,
    write_history,
)
from onepair.methods import METHODS, create_method
from onepair.runs.config import (
    Config,
    MethodConfig,
    ModelConfig,
    build_config,
    preset,
    preset_titles,
    read_config,
    resolve_config,
)
from onepair.runs.folder import RunFolder
from onepair.training.hardware import Hardware
from tests.experiments.small import Notes
from tests.training.tiny import TEST, TRAIN, tiny_config, train_tiny, write_images


@pytest.fixture
def search(images, cache, tmp_path):
    """Search on the tiny dataset, in a folder of the test's own; the trials, and the runs that were done for them."""

    def run(*settings, trials, out="out", notes=None):
        hardware = Hardware(accelerator="cpu", devices=1, workers=0, cache=cache)
        config = tiny_config(images, "method.name=opml", "linear.epochs=2", *settings)
        return tune(tmp_path / out, config, trials=trials, hardware=hardware, callbacks=[notes or Notes()]).trials

    return run


def test_it_begins_with_the_settings_as_they_are_and_keeps_the_best(search, images, tmp_path):
    given = tiny_config(images, "method.name=opml", "linear.epochs=2")
    tried = search(trials=4)
    assert [trial.number for trial in tried] == [0, 1, 2, 3]
    assert tried[0].values == start_of(given)
    assert len({tuple(trial.values.items()) for trial in tried}) == 4
    best = best_of_trials(tried)
    config = build_config(read_config(tmp_path / "out" / "best.toml"))
    assert config.linear.optimiser.lr == best.values["lr"]
    assert config.method.options == {name: value for name, value in best.values.items() if name != "lr"}
    assert replace(config, method=given.method, linear=given.linear) == given
    assert f"onepair train --config {tmp_path / 'out' / 'best.toml'}" in (tmp_path / "out" / "best.toml").read_text()


def test_every_trial_is_the_run_that_training_would_be(search, images, cache, tmp_path):
    for trial in search(trials=2):
        settings = [f"linear.optimiser.lr={trial.values['lr']}", "method.name=opml", "linear.epochs=2"]
        options = [f"method.options.{name}={trial.values[name]}" for name in ("alpha", "beta")]
        done = train_tiny(images, *settings, *options, out=tmp_path / f"trial{trial.number}", cache=cache)
        assert done.results.validation_map == trial.validation_map


def test_test_images_are_never_looked_at(search, tmp_path):
    search(trials=2)
    runs = sorted((tmp_path / "out" / "runs").iterdir())
    assert len(runs) == 2
    for run in runs:
        results = RunFolder(run).results()
        assert (results.test_map, results.test_classes, results.test_class_ap) == (None, None, {})
        assert not list(run.glob("scores_*")) + list(run.glob("*.safetensors"))


def test_test_images_that_cannot_be_read_do_not_matter(cache, tmp_path):
    table = write_images(tmp_path)
    for row in range(TRAIN, TRAIN + TEST):
        (tmp_path / f"{row:02}.png").write_bytes(b"not an image")
    config = tiny_config(table, "method.name=bce", "linear.epochs=1")
    hardware = Hardware(accelerator="cpu", devices=1, workers=0, cache=cache)
    assert len(tune(tmp_path / "out", config, trials=1, hardware=hardware, callbacks=[Notes()]).trials) == 1


def test_an_interrupted_search_ends_as_if_nothing_had_happened(search, monkeypatch):
    whole = search(trials=4, out="whole")
    train, calls = working.train, iter(range(100))

    def dying(*arguments, **options):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return train(*arguments, **options)

    monkeypatch.setattr(working, "train", dying)
    with pytest.raises(KeyboardInterrupt):
        search(trials=4, out="cut")
    monkeypatch.undo()
    notes = Notes()
    assert search(trials=4, out="cut", notes=notes) == whole
    assert len(notes.ended) == 2
    notes = Notes()
    assert search(trials=4, out="cut", notes=notes) == whole
    assert not notes.begun
    assert search(trials=5, out="cut")[:4] == whole  # more are added to them


def test_a_trial_that_diverges_is_marked_and_the_search_goes_on(search, monkeypatch):
    train, calls = working.train, iter(range(100))

    def diverging(*arguments, **options):
        if next(calls) == 1:
            raise TrainingError("the loss is nan")
        return train(*arguments, **options)

    monkeypatch.setattr(working, "train", diverging)
    tried = search(trials=3)
    assert [trial.validation_map is None for trial in tried] == [False, True, False]
    assert best_of_trials(tried).number != 1
    assert best_of_trials(tried[1:2]) is None


def test_a_folder_is_of_one_configuration(search):
    search(trials=1)
    with pytest.raises(RunError, match=r"another configuration \(linear\.epochs is 5, was 2\)"):
        search("linear.epochs=5", trials=1)


TRIED = [
    Trial(number, {"alpha": 0.1 * number, "lr": 1e-3}, value)
    for number, value in enumerate([None, 0.5, 0.4, None, 0.625, 0.5])
]


def test_the_history_shows_every_trial_and_the_best_so_far(tmp_path):
    from matplotlib.figure import Figure

    drawing = history(TRIED)
    assert isinstance(drawing.figure, Figure)
    dots, best, failed = drawing.figure.axes[0].get_lines()
    np.testing.assert_allclose(dots.get_ydata(), [np.nan, 50, 40, np.nan, 62.5, 50])
    np.testing.assert_allclose(best.get_ydata(), [np.nan, 50, 50, 50, 62.5, 62.5])
    assert list(failed.get_xdata()) == [1, 4]
    files = write_history(tmp_path, TRIED)
    assert [file.name for file in files] == ["trials.csv", "history.svg", "history.png"]
    lines = files[0].read_text().splitlines()
    assert lines[0] == "trial,validation_map,alpha,lr"
    assert lines[1:3] == ["1,,0.0,0.001", "2,50.000,0.1,0.001"]


def test_the_best_is_written_also_after_a_kill_behind_the_last_trial(search, tmp_path):
    whole, best = search(trials=1), tmp_path / "out" / "best.toml"
    content = best.read_bytes()
    best.unlink()
    assert search(trials=1) == whole
    assert best.read_bytes() == content


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
