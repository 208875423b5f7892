"""A planned run's folder: named by what decides the run, and emptied of what is not needed."""

from dataclasses import replace

import pytest

from onepair.experiments.records import Dataset, Overrides, Row, make_config
from onepair.experiments.study import plan_run, unique

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
