"""A run that is asked to stop does so at the end of a batch, says what it has saved, and goes on from there."""

import os
import signal

import numpy as np
import pytest
import torch
from lightning_fabric import Fabric

from onepair.errors import Stopped
from onepair.models.backbone import SmallCNN
from onepair.runs.folder import RunFolder
from onepair.training import checkpoint as stopping
from onepair.training import loop
from onepair.training.checkpoint import StopRequests, load_state
from onepair.training.loop import Trainer
from onepair.training.sources import FeatureSource, score
from tests.training.processes import run_command
from tests.training.test_processes import arguments, assert_same, in_two
from tests.training.test_resume import records
from tests.training.tiny import Listener, train_tiny

BATCHES = 4  # in an epoch


@pytest.fixture
def dropout(monkeypatch):
    """Give the small network a layer that draws at random."""
    make = SmallCNN.__init__

    def with_dropout(network):
        make(network)
        network.append(torch.nn.Dropout(0.3))

    monkeypatch.setattr(SmallCNN, "__init__", with_dropout)


class Asking(Listener):
    """Sends a signal after the n-th batch."""

    def __init__(self, number, *signals):
        super().__init__()
        self.number, self.signals = number, signals

    def on_batch_end(self, **facts):
        super().on_batch_end(**facts)
        if len(self.batches) == self.number:
            for each in self.signals:
                signal.raise_signal(each)


def outcome(folder):
    kept = {
        file.name: file.read_bytes()
        for file in folder.path.iterdir()
        if file.name not in (".lock", "metrics.jsonl") and "-last" not in file.name
    }
    return records(folder), kept


@pytest.mark.usefixtures("dropout")
@pytest.mark.parametrize(
    ("every", "settings"),
    [
        (
            3,
            (
                "model.mode=finetune",
                "method.name=opml-sp",
                "finetune.epochs=3",
                "finetune.optimiser.ema=0.9",
                "finetune.optimiser.schedule=cosine",
            ),
        ),
        (1, ("model.mode=linear-init", "method.name=ll-cp", "linear.epochs=2", "finetune.epochs=1")),
        (3, ("method.name=role", "linear.epochs=3", "linear.optimiser.warmup_epochs=1.5")),
    ],
    ids=["finetune", "both stages", "linear"],
)
def test_a_run_that_is_stopped_again_and_again_ends_as_if_nothing_had_happened(train, tmp_path, every, settings):
    whole = train(*settings, out="whole")
    stops = []
    while not (tmp_path / "stopped" / "results.json").exists():
        try:
            train(*settings, out="stopped", listener=Asking(every, signal.SIGTERM))
        except Stopped as stop:
            stops.append((stop.code, str(stop)))
    assert len(stops) == 3 * BATCHES // every
    for code, sentence in stops:
        assert code == 143
        assert "stopped by SIGTERM; saved in" in sentence
        assert sentence.endswith("; the same command goes on")
    assert outcome(RunFolder(tmp_path / "stopped")) == outcome(whole.folder)


def test_dropout_is_drawn_anew_for_every_batch(train, monkeypatch):
    drawn, loss = [], Trainer._loss

    def spy(trainer, part):
        drawn.append(torch.rand(3).tolist())
        return loss(trainer, part)

    monkeypatch.setattr(Trainer, "_loss", spy)
    train("linear.epochs=2")
    train("linear.epochs=2", out="again")
    train("linear.epochs=2", "seed=4", out="other")
    assert drawn[: 2 * BATCHES] == drawn[2 * BATCHES : 4 * BATCHES]
    assert len({tuple(each) for each in drawn}) == 4 * BATCHES


@pytest.mark.parametrize("method", ["opml-sp", "bce"])
@pytest.mark.parametrize("part", [1, 2])
def test_a_run_may_stop_between_batches_that_are_scored(train, images, monkeypatch, method, part):
    """Nothing that an epoch ends with is done twice; the run goes on with the scores alone."""
    settings = (f"method.name={method}", "model.mode=finetune")
    whole = train(*settings, out="whole")
    plain, calls = loop.score, 0

    def ask(*arguments, after_batch, **options):
        nonlocal calls
        calls += 1
        if calls == part:
            signal.raise_signal(signal.SIGINT)
        return plain(*arguments, after_batch=after_batch, **options)

    monkeypatch.setattr(loop, "score", ask)
    with pytest.raises(
        Stopped, match=r"stopped by Ctrl-C; saved in .* \(finetune epoch \d, [04] batches done\)"
    ) as stop:
        train(*settings, out="stopped")
    assert stop.value.code == 130
    done = train(*settings, out="stopped")
    assert outcome(done.folder) == outcome(whole.folder)


def test_extraction_stops_and_goes_on(train, tmp_path, images, monkeypatch):
    class Impatient(Listener):
        def on_progress(self, what, done, total):
            signal.raise_signal(signal.SIGINT)

    with pytest.raises(Stopped, match="stopped by Ctrl-C; the features extracted so far are kept; the same command"):
        train_tiny(images, out=tmp_path / "run", cache=tmp_path / "cache", listener=Impatient())
    assert train_tiny(images, out=tmp_path / "run", cache=tmp_path / "cache").results.test_map


def test_a_second_signal_is_obeyed_at_once(train):
    with pytest.raises(KeyboardInterrupt):
        train(listener=Asking(2, signal.SIGINT, signal.SIGINT))


def test_signals_mean_what_they_did_when_a_run_is_over(train):
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    train()
    with pytest.raises(Stopped, match=r"stopped by SIGTERM; saved in .*; the same command goes on$") as stop:
        train(out="stopped", listener=Asking(2, signal.SIGTERM))
    assert stop.value.code == 143
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_checkpoints_are_written_within_an_epoch_when_it_is_time(train, monkeypatch):
    now, saved, save = [0.0], [], Trainer._save

    def note(trainer):
        saved.append((trainer.progress.epoch, trainer.progress.batches))
        save(trainer)

    class Slow(Listener):
        def on_batch_end(self, **facts):
            now[0] += 0.4 * stopping.SECONDS_BETWEEN_CHECKPOINTS

    monkeypatch.setattr(stopping.time, "monotonic", lambda: now[0])
    monkeypatch.setattr(Trainer, "_save", note)
    train("linear.epochs=2", listener=Slow())
    assert saved == [(0, 3), (1, 2), (2, 0)]


def ask_one(given, rank, number):
    """In two processes, of which one gets a signal."""
    if os.environ["LOCAL_RANK"] == str(rank):
        loss, calls = Trainer._loss, []

        def asking(trainer, part):
            calls.append(part)
            if len(calls) == 2:
                os.kill(os.getpid(), number)
            return loss(trainer, part)

        Trainer._loss = asking
    run_command(given)


def test_processes_stop_together_though_one_is_asked(images, cache, tmp_path):
    settings = ("method.name=opml-sp", "linear.epochs=6")
    given = arguments(images, cache, tmp_path / "two", *settings)
    codes, logs = in_two(tmp_path, ask_one, given, 1, signal.SIGTERM)
    assert codes == [143, 0], logs
    assert logs[0].count("onepair: stopped by SIGTERM; saved in") == 1
    assert "stopped" not in logs[1]
    assert load_state(tmp_path / "two" / "linear-last.safetensors")["progress"]["epoch"] < 6
    codes, logs = in_two(tmp_path, run_command, given)
    assert codes == [0, 0], logs
    assert_same(RunFolder(tmp_path / "two"), train_tiny(images, *settings, out=tmp_path / "one", cache=cache).folder)


class Precise(torch.nn.Module):
    """Tells in which precision it is used."""

    def forward(self, inputs):
        assert torch.is_autocast_enabled("cpu")
        return torch.full((len(inputs), 1), torch.finfo(torch.get_autocast_dtype("cpu")).bits)


def test_scores_are_computed_in_the_precision_of_training():
    fabric = Fabric(accelerator="cpu", devices=1, precision="bf16-mixed")
    scores = score(fabric, Precise(), FeatureSource(torch.zeros(3, 2)), np.arange(3), batch_size=2)
    assert scores.tolist() == [[16.0]] * 3


def test_nothing_is_asked_outside_of_a_run():
    requests = StopRequests()
    with requests:
        signal.raise_signal(signal.SIGTERM)
    with pytest.raises(Stopped):
        requests.raise_if_asked(kept="all")
