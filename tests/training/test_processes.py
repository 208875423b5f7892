"""Two processes compute what one does."""

import json
import os
import shutil
import socket
import subprocess
import sys
from types import SimpleNamespace

import numpy as np
import pytest
import safetensors.torch
import timm
import torch
from lightning_fabric import Fabric
from torch import nn

from onepair.errors import BusyError
from onepair.finding.find import find_labels
from onepair.runs.finished import FinishedRun
from onepair.runs.folder import RunFolder
from onepair.training.hardware import Hardware, on_first, share_norms
from onepair.training.sources import gather, shard_of
from tests.training.processes import dying_command, exit_codes, run_command, start, together
from tests.training.test_run import model_scores
from tests.training.tiny import SETTINGS, TEST, TRAIN, train_tiny

TWO = ("--accelerator", "cpu", "--devices", "2", "--strategy", "ddp", "--workers", "0")


def arguments(images, cache, out, *settings, hardware=TWO):
    every = [part for setting in (*SETTINGS, *settings) for part in ("--set", setting)]
    return list(map(str, ("train", images, *every, "--cache", cache, "--out", out, *hardware)))


def in_two(tmp_path, function, *given):
    logs = [tmp_path / f"{rank}.log" for rank in range(2)]
    codes = together(function, *given, logs=logs)
    return codes, [log.read_text() for log in logs]


def assert_same(two, one):
    """The outcome of two processes is that of one, but for the rounding of sums in another order."""
    for a, b in zip(two.metrics(), one.metrics(), strict=True):
        assert (a["epoch"], a["best_epoch"]) == (b["epoch"], b["best_epoch"])
        assert a["loss"] == pytest.approx(b["loss"], abs=1e-4)
        assert a["validation_map"] == pytest.approx(b["validation_map"], abs=1e-4)
    assert two.results().test_map == pytest.approx(one.results().test_map, abs=1e-4)
    weights = [safetensors.torch.load_file(folder.path / "model.safetensors") for folder in (two, one)]
    torch.testing.assert_close(*weights, rtol=1e-4, atol=1e-4)
    for split in ("validation", "test"):
        np.testing.assert_allclose(two.scores(split), one.scores(split), rtol=1e-4, atol=1e-4)


def test_two_processes_train_as_one(images, cache, tmp_path):
    """30 rows in batches of 29: of a batch, one process has 15 and one 14; of the last, one has a row and one none."""
    settings = ("method.name=role", "linear.optimiser.name=sgd", "linear.batch_size=29")
    codes, logs = in_two(tmp_path, run_command, arguments(images, cache, tmp_path / "two", *settings))
    assert codes == [0, 0], logs
    assert_same(RunFolder(tmp_path / "two"), train_tiny(images, *settings, out=tmp_path / "one", cache=cache).folder)
    assert "epoch 1" in logs[0]
    assert "epoch" not in logs[1].split("best epoch")[0]


def test_the_command_starts_its_processes_itself(images, cache, tmp_path):
    settings = ("method.name=bce", "linear.batch_size=7")
    command = [sys.executable, "-m", "onepair", *arguments(images, cache, tmp_path / "two", *settings)]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert_same(RunFolder(tmp_path / "two"), train_tiny(images, *settings, out=tmp_path / "one", cache=cache).folder)


def test_two_machines_train_as_one(images, cache, tmp_path):
    """As torchrun starts them: one process on each, which meet on loopback."""
    settings = ("method.name=bce-l2", "linear.optimiser.ema=0.8", "linear.batch_size=7")
    two_nodes = ("--accelerator", "cpu", "--devices", "1", "--nodes", "2", "--strategy", "ddp", "--workers", "0")
    given = arguments(images, cache, tmp_path / "two", *settings, hardware=two_nodes)
    logs = [tmp_path / f"{node}.log" for node in range(2)]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    together = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2", "TORCHELASTIC_RUN_ID": "two"}
    each = {"LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}
    nodes = [
        start(run_command, given, log=log, RANK=str(node), GROUP_RANK=str(node), **together, **each)
        for node, log in enumerate(logs)
    ]
    assert exit_codes(nodes) == [0, 0], [log.read_text() for log in logs]
    assert_same(RunFolder(tmp_path / "two"), train_tiny(images, *settings, out=tmp_path / "one", cache=cache).folder)


def test_two_processes_go_on_after_a_kill(images, cache, tmp_path):
    settings = ("method.name=opml-sp",)
    given = arguments(images, cache, tmp_path / "two", *settings)
    codes, logs = in_two(tmp_path, dying_command, given, ("batch", 6))  # in the second of three epochs
    assert codes == [-9, -9], logs
    codes, logs = in_two(tmp_path, run_command, given)
    assert codes == [0, 0], logs
    assert "epoch 2" in logs[0]
    assert_same(RunFolder(tmp_path / "two"), train_tiny(images, *settings, out=tmp_path / "one", cache=cache).folder)


def test_two_processes_on_cpus_fine_tune_as_one_that_holds_its_norms(images, cache, tmp_path):
    settings = (
        "model.mode=finetune",
        "finetune.epochs=3",
        "finetune.optimiser.name=sgd",
        "finetune.optimiser.ema=0.5",
        "finetune.batch_size=29",
    )
    codes, logs = in_two(tmp_path, run_command, arguments(images, cache, tmp_path / "two", *settings))
    assert codes == [0, 0], logs
    assert logs[0].count("batch norms keep the means and variances") == 1
    one = train_tiny(images, *settings, "finetune.hold_norms=true", out=tmp_path / "one", cache=cache).folder
    two = RunFolder(tmp_path / "two")
    assert_same(two, one)
    scores = model_scores(two, np.arange(TRAIN, TRAIN + TEST), images)  # of the averaged weights, which are the model
    np.testing.assert_allclose(two.scores("test"), scores, rtol=1e-5, atol=1e-5)


def test_batch_norms_of_several_gpus_are_torchs_own():
    network = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm2d(4), timm.layers.BatchNormAct2d(5))
    names = network.state_dict().keys()
    share_norms(SimpleNamespace(world_size=2, device=torch.device("cuda")), network)
    assert all(isinstance(norm, nn.SyncBatchNorm) for norm in network)
    assert network.state_dict().keys() == names


def refuse_at_opening(given):
    """As when another process takes the folder after the first look at it."""

    def opened(folder, config):
        raise BusyError("the folder is taken")

    RunFolder.opened = opened
    run_command(given)


def test_a_refusal_stops_both_and_is_said_once(images, cache, tmp_path):
    codes, logs = in_two(tmp_path, refuse_at_opening, arguments(images, cache, tmp_path / "two"))
    assert codes == [2, 2], logs
    assert "onepair: the folder is taken" in logs[0]
    assert "taken" not in logs[1]


def two_processes():
    fabric = Fabric(accelerator="cpu", devices=2, strategy="ddp")
    fabric.launch()
    return fabric


def not_a_sum_over_rows(logits):
    return logits.logsumexp(0).square().sum()


def gather_parts_of(sizes):
    """In each process: the values, in their order, and the gradient are those of the whole batch."""
    fabric = two_processes()
    shard = shard_of(fabric)
    for size in sizes:
        torch.manual_seed(size)
        inputs = torch.randn(size, 3)
        whole, part = torch.nn.Linear(3, 2), torch.nn.Linear(3, 2)
        part.load_state_dict(whole.state_dict())
        wrapped = fabric.setup(part)
        mine = slice(shard.process, None, shard.processes)
        logits = gather(fabric, wrapped(inputs[mine]), size)
        torch.testing.assert_close(logits, whole(inputs))
        not_a_sum_over_rows(whole(inputs)).backward()
        fabric.backward(not_a_sum_over_rows(logits))
        for parameter, expected in zip(part.parameters(), whole.parameters(), strict=True):
            torch.testing.assert_close(parameter.grad, expected.grad)


def test_gathering_gives_the_whole_batch_and_its_gradient(tmp_path):
    codes, logs = in_two(tmp_path, gather_parts_of, [6, 5, 2, 1])
    assert codes == [0, 0], logs


def act_and_fail_on_first():
    def fail():
        raise OSError("no space left")

    fabric, done = two_processes(), []
    on_first(fabric, lambda: done.append(fabric.global_rank))
    assert done == ([0] if fabric.is_global_zero else [])
    on_first(fabric, fail)


def test_the_first_process_acts_for_all_and_what_fails_in_it_ends_the_others(tmp_path):
    codes, logs = in_two(tmp_path, act_and_fail_on_first)
    assert codes == [1, 2], logs
    assert "no space left" in logs[0]
    assert "no space left" not in logs[1]


def test_two_processes_begin_a_finished_run_anew(images, cache, tmp_path):
    train_tiny(images, out=tmp_path / "run", cache=cache)
    codes, logs = in_two(tmp_path, run_command, [*arguments(images, cache, tmp_path / "run"), "--restart"])
    assert codes == [0, 0], logs
    assert logs[0].count(f"what was in {tmp_path / 'run'} is in {tmp_path / 'run-before-1'} now") == 1
    assert RunFolder(tmp_path / "run").finished


def test_finding_with_two_processes_is_finding_with_one(images, cache, tmp_path):
    settings = ("model.mode=finetune", "method.name=opml-sp", "finetune.hold_norms=true")
    run = train_tiny(images, *settings, out=tmp_path / "one", cache=cache).folder
    shutil.copytree(run.path, tmp_path / "two")
    find_labels(
        FinishedRun(run.path),
        folds=2,
        hardware=Hardware(accelerator="cpu", devices=1, workers=0, cache=cache),
        callbacks=(),
    )
    options = ("--folds", "2", "--accelerator", "cpu", "--devices", "2", "--workers", "0", "--cache", cache)
    codes, logs = in_two(tmp_path, run_command, list(map(str, ("find", tmp_path / "two", *options))))
    assert codes == [0, 0], logs
    assert logs[0].count("fold 2 of 2") == logs[0].count("to confirm them: onepair review") == 1
    assert "fold" not in logs[1]
    assert "confirm" not in logs[1]
    one, two = (json.loads((path / "finding" / "summary.json").read_text()) for path in (run.path, tmp_path / "two"))
    assert two["missing"] == pytest.approx(one["missing"], rel=1e-2)
    names = {path.name for path in (run.path / "finding").iterdir()}
    assert {path.name for path in (tmp_path / "two" / "finding").iterdir()} == names
    for part in (1, 2):
        folds = [RunFolder(path / "finding" / "folds" / f"{part}-of-2") for path in (run.path, tmp_path / "two")]
        np.testing.assert_allclose(folds[0].scores("test"), folds[1].scores("test"), rtol=1e-3, atol=1e-3)


def test_the_find_command_starts_its_processes_itself(images, cache, tmp_path):
    run = train_tiny(images, out=tmp_path / "run", cache=cache).folder
    options = ("--folds", "2", "--accelerator", "cpu", "--devices", "2", "--workers", "0", "--cache", str(cache))
    command = [sys.executable, "-m", "onepair", "find", str(run.path), *options]
    environment = {**os.environ, "OMP_NUM_THREADS": "1"}
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=environment, timeout=600)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("to confirm them") == 1
    assert (run.path / "finding" / "summary.json").exists()


def look_at_images(given):
    """Each process looks at its share of the images, and takes its time; extraction likewise."""
    from onepair.training import sources as running

    seen, extract = [], running.extract_features

    def spy(*arguments, rows, on_progress=None, **options):
        if on_progress is not None:
            seen.append(rows.tolist())
        return extract(*arguments, rows=rows, on_progress=on_progress, **options)

    running.extract_features = spy
    try:
        run_command(given)
    finally:
        print(f"extracted {seen}")


def test_each_process_extracts_its_share_of_the_features(images, tmp_path):
    given = arguments(images, tmp_path / "cache", tmp_path / "two", "data.on_error=skip")
    codes, logs = in_two(tmp_path, look_at_images, given)
    assert codes == [0, 0], logs
    shares = [json.loads(log.split("extracted ")[1])[0] for log in logs]
    assert sorted(shares[0] + shares[1]) == list(range(TRAIN + TEST))
    assert abs(len(shares[0]) - len(shares[1])) <= 1
