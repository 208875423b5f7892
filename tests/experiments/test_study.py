"""The runner: what is done, in which order it is chosen, and that nothing is done twice or lost."""

import json
import os
from dataclasses import replace

import pytest

from onepair.errors import ConfigError, DataError
from onepair.experiments import study as running
from onepair.experiments.records import Experiment, Row
from onepair.runs.config import parse_setting
from tests.experiments.small import ARGUMENTS, BCE, OPML, OVERRIDES, TABLE
from tests.training import processes
from tests.training.tiny import TEST, TRAIN, labels_of, write_table

SWEEP = replace(TABLE, rows=(OPML,), sweep={"alpha": (0.2, 0.6)}, seeds=1)


def results(study):
    return {path.parent.name: path.read_bytes() for path in study.out.glob("runs/*/results.json")}


def test_a_run_for_each_row_and_seed(study):
    first = study(seeds=2)
    bce, opml = first.run(TABLE)
    assert [run.config.seed for run in bce.planned] == [0, 1]
    assert (bce.line.row, opml.line.row) == (BCE, OPML)
    assert len(first.callbacks[0].begun) == len(set(first.callbacks[0].begun)) == 4
    maps = [json.loads((run.folder.path / "results.json").read_text())["test_map"] for run in opml.planned]
    assert opml.test_maps == [100 * value for value in maps]
    assert opml.spread.mean == pytest.approx(50 * sum(maps))
    assert opml.spread.std == pytest.approx(abs(maps[0] - maps[1]) * 100 / 2**0.5)
    assert not list(first.out.glob("runs/*/*-last.safetensors"))
    assert len(list(first.out.glob("runs/*/model.safetensors"))) == 4


def test_finished_runs_are_reused(study, searched):
    study(seeds=1).run(TABLE)
    again = study(seeds=2)
    again.run(replace(TABLE, name="table4", rows=(OPML, Row("OPML + HR", "opml-hr"))))
    assert len(again.callbacks[0].begun) == 3, "of four, the first seed of OPML was there"
    assert study(seeds=2).run(TABLE)
    done, _ = searched
    assert done.run(TABLE)
    assert len(done.callbacks[0].begun) == len(set(done.callbacks[0].begun))


def test_sharing_in_one_process_changes_nothing(study):
    """What many runs share, the first of them made alone."""
    together = study(out="together", seeds=2)
    together.run(TABLE)
    for method in ("opml", "bce"):
        study(out="alone", seeds=1, methods=[method]).run(TABLE)
    alone = results(study(out="alone"))
    assert len(alone) == 2
    assert alone.items() <= results(together).items()


def test_the_search_chooses_by_validation_with_the_first_seed(searched):
    study, outcomes = searched
    for outcome in outcomes:
        candidates = study.candidates(outcome.line)
        assert {run.config.seed for run in candidates} == {0}
        maps = [run.folder.results().validation_map for run in candidates]
        best = candidates[maps.index(max(maps))]
        assert outcome.chosen == best.values
        assert outcome.planned[0].name == best.name
        assert len(outcome.runs) == 2
    assert len(study.candidates(outcomes[1].line)) == 18  # alpha, beta, lr


def test_a_search_keeps_the_weights_of_the_chosen_only(searched):
    study, outcomes = searched
    shown = {run.name for outcome in outcomes for run in outcome.planned}
    assert {path.parent.name for path in study.out.glob("runs/*/model.safetensors")} == shown
    assert {path.parent.name for path in study.out.glob("runs/*/scores_test.npy")} == shown
    assert len(results(study)) == 2 + 18 + 2


def test_a_sweep_runs_every_value_and_keeps_no_weights(study):
    done = study()
    outcomes = done.run(SWEEP)
    assert [outcome.swept for outcome in outcomes] == [{"alpha": 0.2}, {"alpha": 0.6}]
    assert [outcome.planned[0].config.method.options["alpha"] for outcome in outcomes] == [0.2, 0.6]
    assert all(len(outcome.runs) == 1 for outcome in outcomes)
    assert not list(done.out.glob("runs/*/*.safetensors"))


def test_a_run_of_which_too_little_was_kept_is_done_again(study):
    study().run(SWEEP)  # 0.6 is what OPML has by default
    again = study(seeds=1, methods=["opml"])
    (outcome,) = again.run(TABLE)
    assert again.callbacks[0].begun == [outcome.planned[0].name]
    assert (outcome.planned[0].folder.path / "model.safetensors").exists()
    study().run(SWEEP)
    assert (outcome.planned[0].folder.path / "model.safetensors").exists(), "a run that is shown stays whole"


def test_the_epochs_of_an_experiment(study):
    (outcome,) = study(seeds=1, methods=["bce"], overrides=replace(OVERRIDES, epochs=None)).run(
        replace(TABLE, epochs=4)
    )
    assert len(outcome.runs[0].history) == 4


def test_linear_starts_are_for_finetuning(study):
    experiment = replace(TABLE, rows=(BCE, Row("BCE+LI", "bce", linear_init=True)))
    assert [line.row for line in study().lines(experiment)] == [BCE]
    fine = study(overrides=replace(OVERRIDES, mode="finetune"))
    assert len(fine.lines(experiment)) == 2


def test_a_run_that_diverges_is_a_failure_and_not_tried_again(study):
    overrides = replace(OVERRIDES, others=[*OVERRIDES.others, parse_setting("linear.optimiser.lr=1e38")])
    first = study(seeds=1, methods=["bce"], overrides=overrides)
    (outcome,) = first.run(TABLE)
    assert outcome.spread is None
    assert "try a smaller linear.optimiser.lr" in outcome.failure
    again = study(seeds=1, methods=["bce"], overrides=overrides)
    assert again.run(TABLE)[0].failure == outcome.failure
    assert again.callbacks[0].begun == []
    everything = study(seeds=1, methods=["bce"], overrides=overrides, search=True, out="searching")
    (outcome,) = everything.run(TABLE)
    assert outcome.failure == "not one candidate of the search could be trained"


def test_mistakes_are_found_before_anything_runs(study, tmp_path, images):
    impossible = study(
        overrides=replace(OVERRIDES, others=[*OVERRIDES.others, parse_setting("method.options.alpha=2.0")])
    )
    with pytest.raises(ConfigError, match="alpha"):
        impossible.run(replace(TABLE, rows=(OPML, BCE)))
    untested = write_table(images.parent / "untested.csv", ["train"] * (TRAIN + TEST), labels_of(TRAIN + TEST))
    with pytest.raises(DataError, match=r"untested\.csv: has no test images with labels"):
        study(source=untested).run(TABLE)
    assert not (tmp_path / "out").exists()


def test_kill_9_loses_nothing(study, images, cache, tmp_path):
    whole = study(out="whole", seeds=2)
    whole.run(TABLE)
    arguments = ("reproduce", "table3", "--data", images, *ARGUMENTS, "--seeds", 2, "--methods", "bce,opml")
    options = {"log": tmp_path / "log", "XDG_CACHE_HOME": str(cache.parent)}
    killed = processes.command(*arguments, "--out", tmp_path / "out", die_at=("batch", 2 * 8 + 5), **options)
    assert processes.exit_code(killed) == -9
    before = results(study())
    assert len(before) == 2, "the third run was killed in its second epoch"
    resumed = study(seeds=2)
    resumed.run(TABLE)
    assert len(resumed.callbacks[0].begun) == 2
    assert results(resumed) == results(whole)
    assert before.items() <= results(resumed).items()


def noting(arguments, file, both):
    """The command; notes each run that this process trains, and begins when the other process is at work too."""
    real, waited = running.train, []

    def train(config, folder, **others):
        if not waited:
            waited.append(both.wait(timeout=processes.SECONDS))
        with file.open("a") as notes:
            notes.write(f"{os.getpid()} {folder.path.name}\n")
        return real(config, folder, **others)

    running.train = train
    processes.run_command(arguments)


def test_two_processes_share_a_study(study, images, cache, tmp_path):
    expected = study(out="expected", seeds=2, search=True)
    expected.run(TABLE)
    arguments = ["reproduce", "table3", "--data", images, *ARGUMENTS, "--seeds", 2, "--methods", "bce,opml"]
    arguments += ["--search", "grid", "--out", tmp_path / "out"]
    both, notes = processes._SERVER.Barrier(2), tmp_path / "notes"
    started = [
        processes.start(
            noting,
            list(map(str, arguments)),
            notes,
            both,
            log=tmp_path / f"log{number}",
            XDG_CACHE_HOME=str(cache.parent),
        )
        for number in range(2)
    ]
    codes = processes.exit_codes(started)
    logs = [(tmp_path / f"log{number}").read_text() for number in range(2)]
    assert codes == [0, 0], logs
    trained = [line.split() for line in notes.read_text().splitlines()]
    names = [name for _, name in trained]
    assert len(names) == len(set(names)) == 2 + 18 + 2
    assert len({process for process, _ in trained}) == 2
    assert results(study()) == results(expected)
    assert (tmp_path / "out" / "table3.md").exists()


def test_an_experiment_without_rows_needs_no_runs(study):
    assert study().run(Experiment(name="fig", title="", caption="")) == []
