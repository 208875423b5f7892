"""Runs that are killed and go on end in the same bytes as those that are not."""

import signal

import numpy as np
import pytest
import torch

from onepair.errors import RunError, Stopped
from onepair.runs.folder import RunFolder
from onepair.training import loop
from onepair.training import run as running
from onepair.training.checkpoint import load_state, save_state
from tests.training.processes import command, exit_code
from tests.training.tiny import SETTINGS, Listener

RUNS = {
    "finetune, averaged": (
        "model.mode=finetune",
        "finetune.epochs=4",
        "method.name=opml-sp",
        "finetune.optimiser.ema=0.9",
        "finetune.optimiser.name=sgd",
        "finetune.optimiser.schedule=cosine",
    ),
    "finetune, from a stage": (
        "model.mode=finetune",
        "finetune.epochs=4",
        "model.train_from='6'",
        "method.name=role",
    ),
    "both stages": ("model.mode=linear-init", "linear.epochs=4", "finetune.epochs=3", "method.name=ll-cp"),
}


def records(folder):
    """The lines of metrics, without those of their facts that are times."""
    times = ("images_per_second", "seconds")
    return [{key: value for key, value in record.items() if key not in times} for record in folder.metrics()]


@pytest.mark.parametrize("name", RUNS)
def test_a_killed_run_ends_as_if_nothing_had_happened(images, cache, tmp_path, name):
    settings = [part for setting in (*SETTINGS, *RUNS[name]) for part in ("--set", setting)]

    def run(out, die_at=None):
        arguments = ("train", images, *settings, "--cache", cache, "--workers", 0, "--out", tmp_path / out)
        return exit_code(command(*arguments, log=tmp_path / f"{out}.log", die_at=die_at))

    assert run("whole") == 0, (tmp_path / "whole.log").read_text()
    random = np.random.default_rng(list(name.encode()))
    # A start writes some files, an epoch two checkpoints, each with two calls to make it durable; it has four batches.
    deaths = [("batch", random.integers(5, 9)), ("write", random.integers(8, 18))]
    for death in deaths:
        assert run("killed", death) == -signal.SIGKILL, f"{death}: {(tmp_path / 'killed.log').read_text()}"
        assert not (tmp_path / "killed" / "results.json").exists()
    assert run("killed") == 0, (tmp_path / "killed.log").read_text()

    whole, killed = tmp_path / "whole", tmp_path / "killed"
    assert records(RunFolder(killed)) == records(RunFolder(whole))
    for file in sorted(whole.iterdir()):
        if file.name not in (".lock", "metrics.jsonl") and "-last" not in file.name:
            assert (killed / file.name).read_bytes() == file.read_bytes(), file.name


def test_metrics_written_after_the_last_checkpoint_are_not_repeated(train, tmp_path, monkeypatch):
    end = loop.Trainer._save
    monkeypatch.setattr(loop.Trainer, "_save", lambda trainer: pytest.exit("killed"))
    with pytest.raises(pytest.exit.Exception):
        train()
    assert len(RunFolder(tmp_path / "run").metrics()) == 3
    monkeypatch.setattr(loop.Trainer, "_save", end)
    assert [record["epoch"] for record in train().folder.metrics()] == [1, 2, 3]


class Stopping(Listener):
    """Stops a run after its second epoch."""

    def on_epoch_end(self, record):
        super().on_epoch_end(record)
        if len(self.epochs) == 2:
            raise Stopped("", code=143)


def without(state, *keys):
    for key in keys[:-1]:
        state = state[key]
    del state[keys[-1]]


SPOILED = {
    "no progress": lambda state: without(state, "progress"),
    "no epoch": lambda state: state["progress"].update(epoch="two"),
    "weights of another shape": lambda state: state["model"].update(weight=torch.zeros(3)),
    "a weight less": lambda state: without(state, "model", "weight"),
    "a method's state of another shape": lambda state: state["method"].update(targets=torch.zeros(119)),
    "an average less": lambda state: without(state, "optimiser", "state", 0, "exp_avg"),
    "an average of another shape": lambda state: state["optimiser"]["state"][0].update(exp_avg=torch.zeros(3)),
    "no tensor": lambda state: state["optimiser"]["state"][0].update(step=None),
    "a list": lambda state: state.update(optimiser=[]),
}


@pytest.mark.parametrize("what", SPOILED)
def test_a_checkpoint_of_another_form_is_a_sentence(train, tmp_path, what):
    with pytest.raises(Stopped):
        train(listener=Stopping())
    file = tmp_path / "run" / "linear-last.safetensors"
    state = load_state(file)
    SPOILED[what](state)
    save_state(file, state)
    with pytest.raises(RunError, match=r"linear-last\.safetensors: is not a checkpoint .*; delete it") as caught:
        train()
    assert "\n" not in str(caught.value)


def test_best_weights_of_another_network_are_a_sentence(train, tmp_path):
    with pytest.raises(Stopped):
        train(listener=Stopping())
    (best,) = (tmp_path / "run").glob("linear-best-*.safetensors")
    save_state(best, {"weight": torch.zeros(3)})
    with pytest.raises(RunError, match="best weights are those of another network"):
        train()


def test_images_are_decoded_once_to_see_whether_they_can_be_read(train, monkeypatch):
    looks, look = [], running.image_batches
    monkeypatch.setattr(running, "image_batches", lambda *given, **options: looks.append(1) or look(*given, **options))
    with pytest.raises(Stopped):
        train("model.mode=finetune", "finetune.epochs=3", listener=Stopping())
    assert train("model.mode=finetune", "finetune.epochs=3").folder.finished
    assert len(looks) == 1
