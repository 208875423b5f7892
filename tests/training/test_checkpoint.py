"""Checkpoints: whatever goes in comes out, and a damaged file is named."""

import math

import pytest
import safetensors.torch
import torch
from torch import nn

from onepair.errors import RunError
from onepair.training.checkpoint import load_state, save_state
from onepair.training.hardware import cpu_state


def same(a, b):
    if isinstance(a, torch.Tensor):
        return a.dtype == b.dtype and a.shape == b.shape and torch.equal(a, b)
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, list | tuple):
        return isinstance(b, list) and len(a) == len(b) and all(map(same, a, b))
    return type(a) is type(b) and a == b


@pytest.mark.parametrize(
    "state",
    [
        {},
        {"a": {}, "b": [], "c": [[], {}]},
        {0: "an integer", "0": "a text", "none": None, "yes": True},
        {"best": -math.inf, "worst": math.inf, "small": 5e-324, "exact": 0.1 + 0.2, "big": 2**70},
        {"betas": (0.9, 0.999), "umlaut": 'ä"\n\0'},
        {"a.b": torch.tensor(1), "a": {"b": torch.tensor(2), "b.c": torch.tensor(3)}},
        {"state": {0: {"step": torch.tensor(4.0)}, 1: {"step": torch.tensor(5.0)}}},
        {"value": {"tensor": "a"}, "items": [1], "list": {"items": [], "value": None}},
    ],
    ids=str,
)
def test_nested_states_come_back(tmp_path, state):
    save_state(tmp_path / "a.safetensors", state)
    assert same(state, load_state(tmp_path / "a.safetensors"))


def test_not_a_number_comes_back(tmp_path):
    save_state(tmp_path / "a.safetensors", {"loss": math.nan})
    assert math.isnan(load_state(tmp_path / "a.safetensors")["loss"])


@pytest.mark.parametrize("shape", [(), (0,), (0, 3), (2, 3)], ids=str)
@pytest.mark.parametrize(
    "dtype",
    [
        torch.float64,
        torch.float32,
        torch.float16,
        torch.bfloat16,
        torch.int64,
        torch.int32,
        torch.int16,
        torch.int8,
        torch.uint8,
        torch.bool,
    ],
    ids=str,
)
def test_tensors_of_every_kind_come_back(tmp_path, dtype, shape):
    state = {"tensor": torch.ones(shape, dtype=dtype)}
    save_state(tmp_path / "a.safetensors", state)
    assert same(state, load_state(tmp_path / "a.safetensors"))


def test_tensors_may_share_memory_and_have_any_layout(tmp_path):
    whole = torch.arange(24.0).view(2, 3, 2, 2)
    state = {"whole": whole, "again": whole, "part": whole[:, 1], "turned": whole.mT}
    state["channels last"] = whole.to(memory_format=torch.channels_last)
    state["parameter"] = nn.Parameter(whole[0])
    save_state(tmp_path / "a.safetensors", state)
    loaded = load_state(tmp_path / "a.safetensors")
    assert same({**state, "parameter": whole[0]}, loaded)
    loaded["whole"].zero_()
    assert loaded["again"].any()


def test_a_trained_optimiser_comes_back(tmp_path):
    model = nn.Linear(3, 2)
    optimiser = torch.optim.Adam([{"params": [model.weight], "base_lr": 0.1}, {"params": [model.bias]}], lr=0.1)
    model(torch.ones(1, 3)).sum().backward()
    optimiser.step()
    save_state(tmp_path / "a.safetensors", optimiser.state_dict())
    again = torch.optim.Adam([{"params": [model.weight], "base_lr": 5}, {"params": [model.bias]}])
    again.load_state_dict(load_state(tmp_path / "a.safetensors"))
    assert again.param_groups[0]["base_lr"] == 0.1
    for parameter, state in optimiser.state.items():
        assert same(state, again.state[parameter])


def damaged(content):
    yield "empty", b""
    yield "noise", b"no checkpoint in here"
    yield "cut short", content[:-1]
    yield "cut in its header", content[:40]
    yield "no outline", safetensors.torch.save({"a": torch.zeros(1)})
    for outline in ("", "[]", "{}", "3", '{"tensor": "gone"}', '{"items": [[1, 2, 3]]}', '{"a": 1, "b": 2}'):
        yield f"outline {outline}", safetensors.torch.save({"a": torch.zeros(1)}, {"outline": outline})


def test_damaged_files_are_named(tmp_path):
    file = tmp_path / "a.safetensors"
    save_state(file, {"a": torch.zeros(5)})
    for how, content in damaged(file.read_bytes()):
        file.write_bytes(content)
        with pytest.raises(RunError, match=r"a\.safetensors: is not a checkpoint.*delete it"):
            pytest.fail(f"{how}: {load_state(file)}")
    with pytest.raises(RunError, match="is not a checkpoint"):
        load_state(tmp_path / "gone.safetensors")


def test_the_state_of_a_wrapped_module_has_plain_names():
    inner = nn.Linear(2, 1)
    wrapped = torch.optim.swa_utils.AveragedModel(inner).module
    outer = nn.Module()
    outer.module = inner
    assert cpu_state(inner).keys() == cpu_state(wrapped).keys() == cpu_state(outer).keys() == {"weight", "bias"}
