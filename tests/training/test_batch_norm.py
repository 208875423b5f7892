"""Batch norms over several processes are those of one."""

import copy

import pytest
import timm
import torch
from lightning_fabric import Fabric
from torch import nn
from torch.nn import functional as F

from onepair.runs.folder import RunFolder
from onepair.training.distributed import whole_batch_norms
from tests.training.processes import run_command
from tests.training.test_processes import arguments, assert_same, in_two, two_processes
from tests.training.tiny import train_tiny


def networks():
    """Batch norms of every kind: in one dimension and in two, without weights, of timm's with an activation inside."""
    torch.manual_seed(0)
    activated = timm.layers.BatchNormAct2d(4)
    nn.init.normal_(activated.weight)
    return {
        "2d": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(36, 2)), (3, 5, 5)),
        "1d": (nn.Sequential(nn.Linear(6, 4), nn.BatchNorm1d(4, affine=False, momentum=0.4)), (6,)),
        "timm": (nn.Sequential(nn.Conv2d(3, 4, 3), activated, nn.Flatten()), (3, 5, 5)),
        "no memory": (nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4, track_running_stats=False)), (3, 5, 5)),
    }


def norms_of_parts(sizes):
    """In each process: outputs, gradients and running statistics are those that one process has of the whole batch."""
    fabric = two_processes()
    for name, (network, shape) in networks().items():
        whole, part = copy.deepcopy(network).double(), copy.deepcopy(network).double()
        for size in sizes:
            torch.manual_seed(size)
            inputs = (
                1000 + torch.randn(size, *shape).double()
            ).requires_grad_()  # far from 0, where squares lose their digits
            mine = inputs.detach()[fabric.global_rank :: 2].clone().requires_grad_()
            factors = torch.randn_like(whole(inputs))
            expected = whole.load_state_dict(part.state_dict()) and whole(inputs)
            with whole_batch_norms(fabric):
                outputs = part(mine)
            torch.testing.assert_close(outputs, expected[fabric.global_rank :: 2], msg=name)
            (expected.sigmoid() * factors).sum().backward()
            (outputs.sigmoid() * factors[fabric.global_rank :: 2]).sum().backward()
            torch.testing.assert_close(mine.grad, inputs.grad[fabric.global_rank :: 2], msg=name)
            torch.testing.assert_close(part.state_dict(), whole.state_dict())
            for own, other in zip(part.parameters(), whole.parameters(), strict=True):
                torch.distributed.all_reduce(own.grad)
                torch.testing.assert_close(own.grad, other.grad)
                own.grad = other.grad = None
        part.eval()
        with whole_batch_norms(fabric):  # where nothing is learned, nobody is waited for
            if fabric.is_global_zero and name != "no memory":
                torch.testing.assert_close(part(mine), whole.eval()(mine))


def test_parts_of_any_size_are_normalised_as_one_batch(tmp_path):
    codes, logs = in_two(tmp_path, norms_of_parts, [6, 5, 3, 2])
    assert codes == [0, 0], logs


def norm_without_rows():
    """A process may have no part of the last batch."""
    fabric = two_processes()
    norm, inputs = nn.BatchNorm2d(3), torch.randn(1, 3, 4, 4)
    expected, mine = copy.deepcopy(norm)(inputs), inputs[fabric.global_rank :: 2].clone().requires_grad_()
    with whole_batch_norms(fabric):
        outputs = norm(mine)
    torch.testing.assert_close(outputs, expected[fabric.global_rank :: 2])
    outputs.square().sum().backward()
    assert mine.grad.isfinite().all()


def test_a_part_may_be_empty(tmp_path):
    codes, logs = in_two(tmp_path, norm_without_rows)
    assert codes == [0, 0], logs


def test_alone_it_is_torch_that_computes():
    norm, inputs = nn.BatchNorm2d(3), torch.randn(4, 3, 2, 2)
    expected = copy.deepcopy(norm)(inputs)
    with whole_batch_norms(Fabric(accelerator="cpu", devices=1)):
        assert torch.equal(norm(inputs), expected)
        assert torch.equal(F.relu(inputs), inputs.clamp(min=0))


# 30 rows in batches of 7 and 29: parts of 4 and 3, of 15 and 14, and at the end of 1 and none.
@pytest.mark.parametrize("batch_size", [7, 29])
def test_two_processes_fine_tune_as_one(images, cache, tmp_path, batch_size):
    settings = (
        "model.mode=finetune",
        "finetune.epochs=3",
        "finetune.optimiser.name=sgd",
        "finetune.optimiser.ema=0.5",
        f"finetune.batch_size={batch_size}",
    )
    codes, logs = in_two(tmp_path, run_command, arguments(images, cache, tmp_path / "two", *settings))
    assert codes == [0, 0], logs
    assert_same(RunFolder(tmp_path / "two"), train_tiny(images, *settings, out=tmp_path / "one", cache=cache).folder)
