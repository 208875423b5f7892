"""What every registered method must do, whatever it is."""

import pytest
import torch

from onepair.errors import UserError
from onepair.label_matrix import LabelMatrix
from onepair.methods import METHODS, Method
from onepair.methods.method import SparseObserved, highest_scored, highest_scored_per_class
from onepair.runs.folder import load_state, save_state
from tests.methods.training import CLASSES, EPOCHS, LIVELY, OBSERVED, ROWS, Loop, batches, labels_of, lively

every_method = pytest.mark.parametrize("name", METHODS)
every_kind = pytest.mark.parametrize("kind", OBSERVED)


@every_kind
@every_method
def test_observed_labels_are_never_changed(name, kind):
    observed = labels_of(kind)
    loop = Loop(lively(name), observed)
    for epoch in range(1, EPOCHS + 1):
        assert torch.tensor(loop.epoch(epoch)).isfinite().all()
    assert torch.equal(loop.method.observed, labels_of(kind))
    assert torch.equal(observed, labels_of(kind))


@every_kind
@every_method
def test_known_labels_keep_their_value_in_every_target(name, kind):
    loop = Loop(lively(name), labels_of(kind))
    for epoch in range(1, EPOCHS + 1):
        loop.epoch(epoch)
    known = labels_of(kind) != -1
    state = loop.method.state_dict()
    if "targets" in state:
        assert state["targets"].dtype == torch.int8
        assert torch.equal(state["targets"][known], labels_of(kind)[known])
    if "soft_labels" in state:
        assert (state["soft_labels"][known] == -1).all()


@every_method
def test_resumes_bit_for_bit_in_the_middle_of_an_epoch(name):
    whole = Loop(lively(name), labels_of("mixed"))
    whole.epoch(1)
    whole.epoch(2)
    first, *rest = batches(3)
    whole.step(first)

    resumed = Loop(lively(name), labels_of("mixed"))
    whole_part, resumed_part = (torch.nn.ModuleList([loop.method]) for loop in (whole, resumed))  # as in any checkpoint
    resumed_part.load_state_dict({key: value.clone() for key, value in whole_part.state_dict().items()})
    resumed.classifier.load_state_dict({key: value.clone() for key, value in whole.classifier.state_dict().items()})
    for loop in (whole, resumed):
        loop.losses = [loop.step(rows) for rows in rest]
        loop.end_epoch(3)
        loop.losses += loop.epoch(4)
    assert whole.losses == resumed.losses
    whole_state, resumed_state = whole.state(), resumed.state()
    assert whole_state.keys() == resumed_state.keys()
    assert all(torch.equal(whole_state[key], resumed_state[key]) for key in whole_state)


@every_method
def test_state_holds_no_tensor_twice(name):
    """As safetensors, which writes the checkpoints, requires."""
    method = lively(name)
    method.begin(labels_of("mixed"))
    addresses = [tensor.data_ptr() for tensor in method.state_dict().values()]
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@every_method
def test_any_precision_and_a_batch_of_one(name, dtype):
    method = lively(name)
    method.begin(labels_of("mixed"))
    scores = 9 * torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0))
    for epoch in (1, 2):
        method.end_epoch(epoch, scores.to(dtype) if method.needs_scores else None)
    for rows in (torch.arange(ROWS), torch.tensor([1])):
        logits = scores[rows].to(dtype).requires_grad_()
        loss = method(logits, rows)
        loss.backward()
        assert loss.shape == ()
        assert loss.dtype == torch.float32
        assert loss.isfinite()
        assert logits.grad.isfinite().all()


@every_method
def test_one_class(name):
    method = lively(name)
    method.begin(torch.tensor([[1], [-1], [0]], dtype=torch.int8))
    assert method(torch.zeros(3, 1), torch.arange(3)).isfinite()


@every_method
def test_order_of_the_batch_does_not_matter(name):
    logits = torch.randn(ROWS, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    losses = []
    for rows in (torch.arange(ROWS), torch.arange(ROWS).flip(0)):
        method = lively(name)
        method.begin(labels_of("mixed"))
        method.end_epoch(1, logits if method.needs_scores else None)
        losses.append(method(logits[rows], rows).item())
    assert losses[0] == pytest.approx(losses[1])


@pytest.mark.parametrize("name", [name for name in METHODS if lively(name).needs_scores])
def test_missing_scores_are_an_error(name):
    method = lively(name)
    method.begin(labels_of("mixed"))
    with pytest.raises(ValueError, match="needs the scores of the training set"):
        method.end_epoch(1, None)


@pytest.mark.parametrize("observed", [torch.zeros(3, dtype=torch.int8), torch.zeros(3, 2)])
def test_observed_must_be_a_matrix_of_int8(observed):
    with pytest.raises(ValueError, match="matrix"):
        Method().begin(observed)


def test_only_role_has_parameters_of_its_own():
    own = []
    for name in METHODS:
        method = lively(name)
        method.begin(labels_of("mixed"))
        own += [name] if list(method.parameters()) else []
        assert method.lr_multiplier == (10.0 if name == "role" else 1.0)
    assert own == ["role"]


def test_lively_options_are_of_methods_that_exist():
    assert set(LIVELY) <= set(METHODS)


class Blocks:
    """Scores a few rows at a time."""

    def __init__(self, scores):
        self.scores = scores.numpy()

    def __iter__(self):
        for start in range(0, ROWS, 3):
            yield slice(start, min(start + 3, ROWS)), self.scores[start : start + 3]


def trained(name, observed, *, interrupted=False):
    """The losses of two epochs, and the state after them; `interrupted` puts it into another method half-way."""
    method = lively(name)
    method.begin(observed)
    scores, losses = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(3)), []
    for epoch in (1, 2, 3):
        losses += [method(scores[rows] * epoch, rows).item() for rows in batches(epoch)]
        given = scores / epoch if isinstance(observed, torch.Tensor) else Blocks(scores / epoch)
        if method.needs_priors:
            method.take_priors(torch.linspace(0.1, 0.9, CLASSES))
        method.end_epoch(epoch, given if method.needs_scores else None)
        if interrupted:
            state, method = method.state_dict(), lively(name)
            method.begin(observed)
            method.load_state_dict(state)
    return losses


@every_kind
@every_method
def test_labels_by_their_entries_are_learned_from_as_a_matrix_is(name, kind, monkeypatch):
    observed = labels_of(kind)
    rows = SparseObserved(LabelMatrix.of(observed.numpy()))
    if lively(name).keeps_matrix:
        monkeypatch.setattr("onepair.label_matrix.MOST_CELLS", ROWS * CLASSES - 1)
        with pytest.raises(UserError, match=f"each of {CLASSES} labels of each of {ROWS} images"):
            lively(name).begin(rows)
        return
    assert trained(name, rows) == trained(name, rows, interrupted=True) == trained(name, observed)


def test_corrected_labels_survive_a_checkpoint(tmp_path):
    rows = SparseObserved(LabelMatrix.of(labels_of("mixed").numpy()))
    methods = [lively("opml-sp"), lively("opml-sp")]
    for method in methods:
        method.begin(rows)
    methods[0].end_epoch(1, Blocks(torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(3))))
    save_state(tmp_path / "state.safetensors", {"method": methods[0].state_dict()})
    methods[1].load_state_dict(load_state(tmp_path / "state.safetensors")["method"])
    assert methods[1].targets.labels.same_as(methods[0].targets.labels)
    assert not methods[1].targets.labels.same_as(rows.labels)


@every_method
def test_whether_a_loss_sums_over_labels_or_is_their_mean_is_said(name):
    """Three times as many labels, all but unlikely: a sum stays what it was, and a mean becomes a third."""
    observed = torch.full((4, 3), -1, dtype=torch.int8)
    observed[range(4), [0, 1, 2, 0]] = 1
    pulls = []
    for more in (0, 6):
        method = lively(name)
        method.begin(torch.cat([observed, torch.full((4, more), -1, dtype=torch.int8)], dim=1))
        logits = torch.cat([torch.zeros(4, 3), torch.full((4, more), -30.0)], dim=1).requires_grad_()
        method(logits, torch.arange(4)).backward()
        pulls.append(logits.grad[0, 0].item())
    assert pulls[0] < 0
    expected = 1 if method.sums_labels else 1 / 3
    assert pulls[1] / pulls[0] == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("seed", range(5))
def test_the_highest_scored_are_those_of_sorted_columns_also_with_ties(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (40, 6), generator=generator).float()
    candidates = torch.rand(40, 6, generator=generator) < 0.5
    counts = [0, 1, 2, 7, 20, 40]
    expected = torch.zeros_like(candidates)
    for column, count in enumerate(counts):
        rows = candidates[:, column].nonzero().flatten().tolist()
        expected[sorted(rows, key=lambda row, column=column: (-scores[row, column], row))[:count], column] = True
    assert torch.equal(highest_scored_per_class(scores, candidates, counts), expected)
    assert torch.equal(highest_scored(scores[:, 3], candidates[:, 3], 7), expected[:, 3])
    assert not highest_scored(scores, torch.zeros_like(candidates), 2).any()
