"""The Python in the documents runs, block after block, as a reader would type it."""

import re
from pathlib import Path

import pytest
import torch

ROOT = Path(__file__).parent.parent
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)


def run_blocks(name):
    blocks = CODE.findall((ROOT / name).read_text("utf-8"))
    assert blocks, f"{name} shows no Python"
    namespace = {}
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)  # noqa: S102 (our own documents)
    return namespace


def test_readme():
    names = run_blocks("README.md")
    assert names["single"].shape == (80, 20)
    assert names["table"].labels.shape == (4000, 10)
    assert len(names["table"].rows("train")) == 3000
    assert names["mean_average_precision"](names["scores"], names["labels"]) == (1.0, 2)


def test_simplest_loss_of_contributing_keeps_the_contract():
    hinge_loss = run_blocks("CONTRIBUTING.md")["hinge_loss"]
    logits = torch.tensor([[0.5, -2.0, 0.0]], requires_grad=True)
    value = hinge_loss(logits, torch.tensor([[1, 0, -1]]))
    assert value.item() == pytest.approx((0.5 + 0 + 1) / 3)
    with pytest.raises(ValueError, match="labels: row 0"):
        hinge_loss(logits, torch.tensor([[1, 0, 7]]))
