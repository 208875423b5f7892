"""A cell's folder: named by what decides the run, and emptied of what is not needed."""

from dataclasses import replace

import pytest

from onepair.experiments.overrides import Dataset, Wishes, make_config
from onepair.experiments.records import Row
from onepair.experiments.search import make_cell, unique

VOC, SP = Dataset("voc2012", "/a/VOCdevkit", "voc"), Row("OPML-SP", "opml-sp")


@pytest.fixture
def cell(tmp_path):
    def make(values=None, *, dataset=VOC, row=SP, seed=0, shown=False, **wishes):
        config = make_config(dataset, row, values or {}, seed=seed, wishes=Wishes(mode="linear", **wishes))
        return make_cell(dataset, row, values or {}, config, out=tmp_path, shown=shown)

    return make


def test_the_same_run_has_the_same_folder(cell, tmp_path):
    assert cell().name == cell(shown=True).name == cell({"alpha": 0.6}).name, "0.6 is VOC's own"
    assert cell().name.startswith("voc2012-opml-sp-linear-seed0-")
    assert cell().folder.path.parent == tmp_path / "runs"
    elsewhere = replace(VOC, source="/b/VOC", format="auto")
    assert cell(dataset=elsewhere).name == cell().name


def test_another_run_has_another_folder(cell):
    others = [
        cell(),
        cell(seed=1),
        cell({"alpha": 0.5}),
        cell({"lr": 0.5}),
        cell(epochs=3),
        cell(row=Row("OPML-SP", "opml-sp", labels="full")),
        cell(row=Row("OPML", "opml")),
        cell(dataset=Dataset("voc2012", "/a", "voc"), backbone="resnet18"),
        cell(dataset=Dataset("mine", "/a/mine.csv")),
        cell(dataset=Dataset("mine", "/b/mine.csv")),
    ]
    assert len({each.name for each in others}) == len(others)


def test_folders_stay_where_they_are_from_version_to_version(cell):
    """Or the runs of a study of many hours would not be found again."""
    assert cell().name == "voc2012-opml-sp-linear-seed0-dd34543d"


def test_a_title_for_people(cell):
    assert cell({"alpha": 0.5, "gamma_gradient": True}, seed=2).title == (
        "VOC 2012, OPML-SP, alpha=0.5 gamma_gradient=true, seed 2"
    )
    assert cell(row=Row("BCE", "bce", labels="full")).title == "VOC 2012, BCE, full labels, seed 0"


def test_what_is_deleted_and_what_is_kept(cell):
    loser, shown = cell({"alpha": 0.5}), cell(shown=True)
    files = ("results.json", "model.json", "model.safetensors", "linear-last.safetensors", "scores_test.npy")
    for each in (loser, shown):
        each.folder.path.mkdir(parents=True)
        for name in files:
            (each.folder.path / name).touch()
        each.keep()
        each.reduce()
    assert {path.name for path in loser.folder.path.iterdir()} == {"results.json", "model.json"}
    assert {path.name for path in shown.folder.path.iterdir()} == {*files, ".shown"}
    shown.drop_checkpoints()
    assert not (shown.folder.path / "linear-last.safetensors").exists()
    assert (shown.folder.path / "model.safetensors").exists()


def test_a_reduced_run_is_done_as_a_candidate_but_not_to_be_shown(cell):
    for name in ("results.json", "model.json"):
        cell().folder.path.mkdir(parents=True, exist_ok=True)
        (cell().folder.path / name).touch()
    assert cell().done
    assert not cell(shown=True).done
    (cell().folder.path / "model.safetensors").touch()
    assert cell(shown=True).done


def test_a_failure_is_done(cell):
    cell().folder.path.mkdir(parents=True)
    assert not cell().done
    cell().fail("it diverged")
    assert cell(shown=True).done
    assert cell().failure == "it diverged"


def test_each_folder_once_and_shown_if_any_is_shown(cell):
    chosen = unique([cell(), cell(seed=1), cell(shown=True)])
    assert [(each.name, each.shown) for each in chosen] == [(cell().name, True), (cell(seed=1).name, False)]
