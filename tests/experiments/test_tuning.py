"""A search for settings: what it tries, that it goes on, that processes share it, and that it never tests."""

import subprocess
import sys
from dataclasses import replace

import numpy as np
import pytest

from onepair.errors import RunError, TrainingError
from onepair.experiments import study as working
from onepair.experiments import tuning as tuning_module
from onepair.experiments.search import journal_study
from onepair.experiments.tuning import STUDY, Tried, Tuning, best_of_trials, history, start_of, write_history
from onepair.runs.config import build_config, read_config, to_toml
from onepair.runs.folder import RunFolder
from onepair.training.hardware import Machine
from tests.experiments.small import Notes
from tests.training.tiny import TEST, TRAIN, tiny_config, train_tiny, write_images


@pytest.fixture
def tuning(images, cache, tmp_path):
    """Make a search on the tiny dataset, in a folder of the test's own."""

    def make(*settings, trials, out="out"):
        config = tiny_config(images, "method.name=opml", "linear.epochs=2", *settings)
        machine = Machine(accelerator="cpu", devices=1, workers=0, cache=cache)
        return Tuning(tmp_path / out, config, trials=trials, machine=machine, watch=Notes())

    return make


def test_it_begins_with_the_settings_as_they_are_and_keeps_the_best(tuning, tmp_path):
    search = tuning(trials=4)
    tried = search.run()
    assert [trial.number for trial in tried] == [0, 1, 2, 3]
    assert tried[0].values == start_of(search.config)
    assert len({tuple(trial.values.items()) for trial in tried}) == 4
    best = best_of_trials(tried)
    config = build_config(read_config(tmp_path / "out" / "best.toml"))
    assert config.linear.optimiser.lr == best.values["lr"]
    assert config.method.options == {name: value for name, value in best.values.items() if name != "lr"}
    assert replace(config, method=search.config.method, linear=search.config.linear) == search.config
    assert f"onepair train --config {tmp_path / 'out' / 'best.toml'}" in (tmp_path / "out" / "best.toml").read_text()


def test_every_trial_is_the_run_that_training_would_be(tuning, images, cache, tmp_path):
    search = tuning(trials=2)
    for trial in search.run():
        settings = [f"linear.optimiser.lr={trial.values['lr']}", "method.name=opml", "linear.epochs=2"]
        options = [f"method.options.{name}={trial.values[name]}" for name in ("alpha", "beta")]
        done = train_tiny(images, *settings, *options, out=tmp_path / f"trial{trial.number}", cache=cache)
        assert done.results.validation_map == trial.validation_map


def test_test_images_are_never_looked_at(tuning, tmp_path):
    search = tuning(trials=2)
    search.run()
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
    machine = Machine(accelerator="cpu", devices=1, workers=0, cache=cache)
    assert len(Tuning(tmp_path / "out", config, trials=1, machine=machine, watch=Notes()).run()) == 1


def test_an_interrupted_search_ends_as_if_nothing_had_happened(tuning, monkeypatch):
    whole = tuning(trials=4, out="whole").run()
    calls = iter(range(100))

    def dying(*arguments, **options):
        if next(calls) == 2:
            raise KeyboardInterrupt
        return do(*arguments, **options)

    do = tuning_module.do
    monkeypatch.setattr(tuning_module, "do", dying)
    with pytest.raises(KeyboardInterrupt):
        tuning(trials=4, out="cut").run()
    monkeypatch.undo()
    again = tuning(trials=4, out="cut")
    assert len(again.tried()) == 2
    assert again.run() == whole
    assert len(again.watch.ended) == 2
    last = tuning(trials=4, out="cut")
    assert last.run() == whole
    assert not last.watch.begun
    assert len(tuning(trials=5, out="cut").run()) == 5  # more are added to them


@pytest.mark.parametrize("torn", [b"", b'{"op_code":4,"worker'], ids=["between two lines", "within a line"])
def test_a_trial_that_was_killed_before_it_had_its_values_changes_nothing(tuning, tmp_path, torn):
    whole = tuning(trials=2, out="whole").run()
    (tmp_path / "out").mkdir()
    search, journal = tuning(trials=2), tmp_path / "out" / "trials.journal"
    with journal_study(journal, STUDY) as study:
        study.ask().suggest_float("alpha", 0.05, 0.95)
    with journal.open("ab") as lines:
        lines.write(torn)
    (tmp_path / "out" / "config.toml").write_text(to_toml(search.config))
    assert search.run() == whole


def test_a_trial_that_diverges_is_marked_and_the_search_goes_on(tuning, monkeypatch):
    train, calls = working.train, iter(range(100))

    def diverging(*arguments, **options):
        if next(calls) == 1:
            raise TrainingError("the loss is nan")
        return train(*arguments, **options)

    monkeypatch.setattr(working, "train", diverging)
    tried = tuning(trials=3).run()
    assert [trial.validation_map is None for trial in tried] == [False, True, False]
    assert best_of_trials(tried).number != 1
    assert best_of_trials(tried[1:2]) is None


def test_a_folder_is_of_one_configuration(tuning):
    tuning(trials=1).run()
    with pytest.raises(RunError, match=r"another configuration \(linear\.epochs is 5, was 2\)"):
        tuning("linear.epochs=5", trials=1).run()


SHARE = """
import sys
from pathlib import Path
from onepair.experiments.tuning import Tuning
from onepair.runs.config import build_config, read_config
from onepair.training.hardware import Machine
from tests.experiments.small import Notes
out, cache = map(Path, sys.argv[1:])
machine = Machine(accelerator="cpu", devices=1, workers=0, cache=cache)
search = Tuning(out, build_config(read_config(out.parent / "a.toml")), trials=6, machine=machine, watch=Notes())
search.run()
print(len(search.watch.ended))
"""


def test_processes_share_a_search(tuning, cache, tmp_path):
    (tmp_path / "a.toml").write_text(to_toml(tuning(trials=6).config))
    command = [sys.executable, "-c", SHARE, tmp_path / "out", cache]
    processes = [subprocess.Popen(command, stdout=subprocess.PIPE, text=True) for _ in range(2)]
    counts = [int(process.communicate()[0]) for process in processes]
    assert sum(counts) == 6
    tried = tuning(trials=6).run()
    assert [trial.number for trial in tried] == list(range(6))
    assert (
        len({tuple(trial.values.items()) for trial in tried}) == len(list((tmp_path / "out" / "runs").iterdir())) == 6
    )


TRIED = [
    Tried(number, {"alpha": 0.1 * number, "lr": 1e-3}, value)
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


def test_the_best_is_written_also_after_a_kill_behind_the_last_trial(tuning, tmp_path):
    whole, best = tuning(trials=1).run(), tmp_path / "out" / "best.toml"
    content = best.read_bytes()
    best.unlink()
    assert tuning(trials=1).run() == whole
    assert best.read_bytes() == content
