"""Runs that are killed and go on end in the same bytes as those that are not."""

import signal

import numpy as np
import pytest

from onepair.runs.folder import RunFolder
from onepair.training import loop
from tests.training.processes import command, exit_code
from tests.training.tiny import SETTINGS

RUNS = {
    "finetune, averaged": (
        "model.mode=finetune",
        "finetune.epochs=6",
        "method.name=opml-sp",
        "finetune.optimiser.ema=0.9",
        "finetune.optimiser.name=sgd",
    ),
    "finetune, role": ("model.mode=finetune", "finetune.epochs=6", "method.name=role"),
    "finetune, from a stage": (
        "model.mode=finetune",
        "finetune.epochs=6",
        "model.train_from='6'",
        "finetune.optimiser.ema=0.9",
    ),
    "linear": ("linear.epochs=8", "method.name=opml-sp"),
    "linear, role": (
        "linear.epochs=8",
        "method.name=role",
        "linear.optimiser.name=sgd",
        "linear.optimiser.schedule=cosine",
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
    deaths = [("batch", random.integers(5, 9)), ("write", random.integers(8, 14)), ("write", random.integers(8, 18))]
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
