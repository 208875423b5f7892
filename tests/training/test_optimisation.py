"""Optimisers, learning rates and averaged weights."""

import copy
import math

import pytest
import torch
from torch import nn

from onepair.runs.config import OptimiserConfig
from onepair.training.loop import Group, averaged, lr_factor, make_optimiser, restore, set_lr


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, [1, 1, 1, 1, 1]),
        ({"warmup_epochs": 2}, [0, 0.5, 1, 1, 1]),
        ({"warmup_epochs": 0.5}, [0, 1, 1, 1, 1]),
        ({"schedule": "cosine"}, [1, (2 + math.sqrt(2)) / 4, 0.5, (2 - math.sqrt(2)) / 4, 0]),
        ({"schedule": "cosine", "warmup_epochs": 2}, [0, (2 + math.sqrt(2)) / 8, 0.5, (2 - math.sqrt(2)) / 4, 0]),
    ],
    ids=str,
)
def test_learning_rate_over_four_epochs(settings, expected):
    factors = [lr_factor(OptimiserConfig(**settings), float(epoch), 4) for epoch in range(5)]
    assert factors == pytest.approx(expected)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_every_group_keeps_its_own_rate(name):
    config = OptimiserConfig(name=name, lr=0.5, momentum=0.8, weight_decay=0.1)
    body, head = nn.Linear(2, 2), nn.Linear(2, 1)
    optimiser = make_optimiser(config, [Group(body), Group(nn.Identity(), 5), Group(head, 10)])
    assert type(optimiser).__name__.lower() == name
    for factor in (1, 0, 0.25):
        set_lr(optimiser, factor)
        assert [group["lr"] for group in optimiser.param_groups] == [0.5 * factor, 5 * factor]
    assert all(group["weight_decay"] == 0.1 for group in optimiser.param_groups)
    assert name != "sgd" or optimiser.param_groups[0]["momentum"] == 0.8


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_a_restored_optimiser_goes_on_alike_in_any_memory_layout(name):
    torch.manual_seed(0)
    first = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
    gradients = [torch.randn(4, 3, 3, 3) for _ in range(4)]

    def steps(model, optimiser, gradients):
        for gradient in gradients:
            model.weight.grad = torch.empty_like(model.weight).copy_(gradient)
            optimiser.step()

    config = OptimiserConfig(name=name, lr=0.1)
    one = make_optimiser(config, [Group(first)])
    steps(first, one, gradients[:2])
    second = copy.deepcopy(first)
    other = make_optimiser(config, [Group(second)])
    state = copy.deepcopy(one.state_dict())
    for values in state["state"].values():
        values.update({key: value.contiguous() for key, value in values.items()})
    restore(other, state)
    steps(first, one, gradients[2:])
    steps(second, other, gradients[2:])
    assert torch.equal(first.weight, second.weight)


@pytest.mark.parametrize("name", ["sgd", "adam", "adamw"])
def test_what_does_not_decay_stays_where_it_is(name):
    pulled, free = nn.Linear(2, 2), nn.Linear(2, 2)
    config = OptimiserConfig(name=name, lr=0.1, weight_decay=0.5)
    optimiser = make_optimiser(config, [Group(pulled), Group(free, decays=False)])
    before = [copy.deepcopy(layer.state_dict()) for layer in (pulled, free)]
    for layer in (pulled, free):
        for parameter in layer.parameters():
            parameter.grad = torch.zeros_like(parameter)
    optimiser.step()
    assert all(
        (layer.abs() < old.abs()).all() for layer, old in zip(pulled.parameters(), before[0].values(), strict=True)
    )
    assert all(torch.equal(layer, old) for layer, old in zip(free.parameters(), before[1].values(), strict=True))


def test_averaged_weights_and_batch_norms():
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(3, 2), nn.BatchNorm1d(2))
    average = averaged(model, 0.75)
    expected = None
    for _ in range(3):
        with torch.no_grad():
            for tensor in (*model.parameters(), model[1].running_mean):
                tensor.normal_()
        average.update_parameters(model)
        now = copy.deepcopy({name: value for name, value in model.state_dict().items() if value.is_floating_point()})
        expected = now if expected is None else {name: 0.75 * expected[name] + 0.25 * now[name] for name in now}
    for name, value in expected.items():
        torch.testing.assert_close(average.module.state_dict()[name], value)
    assert not any(parameter.requires_grad for parameter in average.parameters())
