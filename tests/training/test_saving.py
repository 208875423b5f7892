"""The last state and the best weights belong together, whenever the process ends."""

import pytest
import torch

from onepair.errors import RunError
from onepair.training import checkpoint as saving
from onepair.training.checkpoint import StageCheckpoint


def weights(value):
    return {"weight": torch.full((2,), float(value))}


def test_what_is_saved_comes_back(tmp_path):
    saved = StageCheckpoint(tmp_path, "linear")
    saved.save({"epoch": 0}, best={}, best_epoch=0)
    assert StageCheckpoint(tmp_path, "linear").load() == ({"epoch": 0}, {})
    saved.save({"epoch": 1}, best=weights(1), best_epoch=1)
    saved.save({"epoch": 2}, best=weights(2), best_epoch=2)
    state, best = StageCheckpoint(tmp_path, "linear").load()
    assert state == {"epoch": 2}
    assert torch.equal(best["weight"], weights(2)["weight"])
    assert {file.name for file in tmp_path.iterdir()} == {"linear-last.safetensors", "linear-best-2.safetensors"}


def test_weights_that_stay_the_best_are_not_written_again(tmp_path, monkeypatch):
    written, save_state = [], saving.save_state
    monkeypatch.setattr(saving, "save_state", lambda path, state: (written.append(path.name), save_state(path, state)))
    for saved in (StageCheckpoint(tmp_path, "linear"), StageCheckpoint(tmp_path, "linear")):
        if saved.last.exists():
            saved.load()
        for epoch in (1, 2):
            saved.save({"epoch": epoch}, best=weights(1), best_epoch=1)
    assert written == ["linear-best-1.safetensors", *["linear-last.safetensors"] * 4]


@pytest.mark.parametrize("survives", [0, 1, 2], ids=["before both", "between the two", "before the old one is deleted"])
def test_an_end_at_any_moment_leaves_a_pair(tmp_path, monkeypatch, survives):
    saved = StageCheckpoint(tmp_path, "linear")
    saved.save({"epoch": 1}, best=weights(1), best_epoch=1)
    left, save_state = survives, saving.save_state

    def die(path, state):
        nonlocal left
        if left == 0:
            raise KeyboardInterrupt
        left -= 1
        save_state(path, state)

    monkeypatch.setattr(saving, "save_state", die)
    monkeypatch.setattr(type(tmp_path), "unlink", lambda *_, **__: (_ for _ in ()).throw(KeyboardInterrupt))
    with pytest.raises(KeyboardInterrupt):
        saved.save({"epoch": 2}, best=weights(2), best_epoch=2)
    monkeypatch.undo()
    state, best = StageCheckpoint(tmp_path, "linear").load()
    assert state == {"epoch": 2 if survives == 2 else 1}
    assert torch.equal(best["weight"], weights(state["epoch"])["weight"])
    assert len([*tmp_path.glob("linear-best-*")]) == 1  # also where nothing will be saved any more
    again = StageCheckpoint(tmp_path, "linear")
    again.load()
    again.save({"epoch": 2}, best=weights(3), best_epoch=3)  # what an ended process left is not taken for it
    assert torch.equal(StageCheckpoint(tmp_path, "linear").load()[1]["weight"], weights(3)["weight"])
    assert len(list(tmp_path.iterdir())) == 2


@pytest.mark.parametrize("state", [{}, {"best_epoch": "1"}, {"best_epoch": None}], ids=str)
def test_another_file_in_its_place_is_a_sentence(tmp_path, state):
    saving.save_state(tmp_path / "linear-last.safetensors", state)
    with pytest.raises(RunError, match=r"linear-last\.safetensors: is not a checkpoint .*; delete it"):
        StageCheckpoint(tmp_path, "linear").load()
