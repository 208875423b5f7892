"""The runner: what is done, in which order it is chosen, and that nothing is done twice or lost."""

import json
import os
from dataclasses import replace

import pytest

from onepair.errors import ConfigError, DataError
from onepair.experiments import study as running
from onepair.experiments.records import EXPERIMENTS, Dataset, Experiment, Overrides, Row, make_config
from onepair.experiments.study import GUESSES, make_plan, plan_run, unique
from onepair.runs.config import parse_setting
from tests.experiments.small import ARGUMENTS, BCE, OPML, OVERRIDES, TABLE, make_study
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


FIGURE = replace(TABLE, name="fig", rows=(OPML,), sweep={"alpha": (0.2, 0.3)})


def counts(plan):
    return [(step.search_done, step.search, step.runs_done, step.runs, step.left) for step in plan]


def test_before_anything_is_done(study):
    assert counts(make_plan(study(seeds=3), [TABLE])) == [(0, 0, 0, 3, 3)] * 2
    plan = make_plan(study(seeds=3, search=True), [TABLE])
    assert counts(plan) == [(0, 2, 0, 2, 4), (0, 18, 0, 2, 20)], "the chosen one's first seed is part of the search"


def test_nothing_is_counted_twice(study):
    plan = make_plan(study(seeds=3, search=True), [TABLE, replace(TABLE, name="again"), FIGURE])
    assert counts(plan)[2:] == [(0, 0, 0, 0, 0)] * 2 + [(0, 0, 0, 6, 6)]


def test_a_guess_goes_by_epochs_and_images(study):
    step, _ = make_plan(study(seeds=3), [TABLE])
    training_images = round(0.8 * TRAIN)
    assert step.guessed
    assert step.seconds == pytest.approx(3 * 2 * training_images * GUESSES["linear"])


def test_half_way_and_at_the_end(study):
    half = study(seeds=2, methods=["bce"])
    half.run(TABLE)
    bce, opml = make_plan(study(seeds=3), [TABLE])
    assert counts([bce, opml]) == [(0, 0, 2, 3, 1), (0, 0, 0, 3, 3)]
    seconds = [record["seconds"] for run in half.run(TABLE)[0].runs for record in run.history]
    assert bce.seconds == pytest.approx(2 * sum(seconds) / len(seconds)), "one run of two epochs"
    assert opml.seconds == pytest.approx(3 * bce.seconds), "other runs on the same dataset tell, too"
    assert not bce.guessed


def test_a_finished_search(searched, images, cache):
    study, _ = searched
    assert counts(make_plan(study, [TABLE])) == [(2, 2, 1, 1, 0), (18, 18, 1, 1, 0)]
    more = make_study(images, study.out, cache, seeds=3, search=True)
    assert [step.left for step in make_plan(more, [TABLE])] == [1, 1]


def test_all_of_the_paper(study):
    plan = make_plan(study(search=True, seeds=3, overrides=replace(OVERRIDES, epochs=None)), EXPERIMENTS.values())
    by_name = {name: sum(step.left for step in plan if step.experiment.name == name) for name in EXPERIMENTS}
    assert by_name["fig-alpha-beta"] == 81 - 9, "nine of the pairs are tried by the search already"
    assert by_name["fig-lambda"] == 6 * 3
    assert by_name["fig-epochs"] == 3 * 3
    assert by_name["fig-confidence"] == by_name["fig-gradcam"] == by_name["fig-gradients"] == 0


VOC, SP = Dataset("voc2012", "/a/VOCdevkit", "voc"), Row("OPML-SP", "opml-sp")


@pytest.fixture
def planned(tmp_path):
    def make(values=None, *, dataset=VOC, row=SP, seed=0, shown=False, **overrides):
        config = make_config(dataset, row, values or {}, seed=seed, overrides=Overrides(mode="linear", **overrides))
        return plan_run(dataset, row, values or {}, config, out=tmp_path, shown=shown)

    return make


def test_the_same_run_has_the_same_folder(planned, tmp_path):
    assert planned().name == planned(shown=True).name == planned({"alpha": 0.6}).name, "0.6 is VOC's own"
    assert planned().name.startswith("voc2012-opml-sp-linear-seed0-")
    assert planned().folder.path.parent == tmp_path / "runs"
    elsewhere = replace(VOC, source="/b/VOC", format="auto")
    assert planned(dataset=elsewhere).name == planned().name


def test_another_run_has_another_folder(planned):
    others = [
        planned(),
        planned(seed=1),
        planned({"alpha": 0.5}),
        planned({"lr": 0.5}),
        planned(epochs=3),
        planned(row=Row("OPML-SP", "opml-sp", labels="full")),
        planned(row=Row("OPML", "opml")),
        planned(dataset=Dataset("voc2012", "/a", "voc"), backbone="resnet18"),
        planned(dataset=Dataset("mine", "/a/mine.csv")),
        planned(dataset=Dataset("mine", "/b/mine.csv")),
    ]
    assert len({each.name for each in others}) == len(others)


def test_folders_stay_where_they_are_from_version_to_version(planned):
    """Or the runs of a study of many hours would not be found again."""
    assert planned().name == "voc2012-opml-sp-linear-seed0-dd34543d"


def test_a_title_for_people(planned):
    assert planned({"alpha": 0.5, "gamma_gradient": True}, seed=2).title == (
        "VOC 2012, OPML-SP, alpha=0.5 gamma_gradient=true, seed 2"
    )
    assert planned(row=Row("BCE", "bce", labels="full")).title == "VOC 2012, BCE, full labels, seed 0"


def test_what_is_deleted_and_what_is_kept(planned):
    loser, shown = planned({"alpha": 0.5}), planned(shown=True)
    files = ("results.json", "model.json", "model.safetensors", "linear-last.safetensors", "scores_test.npy")
    for each in (loser, shown):
        each.folder.path.mkdir(parents=True)
        for name in files:
            (each.folder.path / name).touch()
        each.keep()
        each.tidy(whole=False)
    assert {path.name for path in loser.folder.path.iterdir()} == {"results.json", "model.json"}
    whole = {*files, ".shown"} - {"linear-last.safetensors"}
    assert {path.name for path in shown.folder.path.iterdir()} == whole
    shown.tidy(whole=True)
    assert {path.name for path in shown.folder.path.iterdir()} == whole


def test_a_reduced_run_is_done_as_a_candidate_but_not_to_be_shown(planned):
    for name in ("results.json", "model.json"):
        planned().folder.path.mkdir(parents=True, exist_ok=True)
        (planned().folder.path / name).touch()
    assert planned().done
    assert not planned(shown=True).done
    (planned().folder.path / "model.safetensors").touch()
    assert planned(shown=True).done


def test_a_failure_is_done(planned):
    planned().folder.path.mkdir(parents=True)
    assert not planned().done
    planned().folder.write_json("failure.json", {"reason": "it diverged"})
    assert planned(shown=True).done
    assert planned().failure == "it diverged"


def test_each_folder_once_and_shown_if_any_is_shown(planned):
    chosen = unique([planned(), planned(seed=1), planned(shown=True)])
    assert [(each.name, each.shown) for each in chosen] == [(planned().name, True), (planned(seed=1).name, False)]
