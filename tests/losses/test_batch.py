"""What is promised of every loss."""

import inspect
import shutil
from functools import partial

import pytest
import torch

from onepair import losses
from tests.losses.batches import CELL_BY_CELL, LOSSES, extreme_cases, random_batch

every_loss = pytest.mark.parametrize("loss", LOSSES.values(), ids=LOSSES.keys())
every_unknown = pytest.mark.parametrize("unknown", ["negative", "ignore"])


@every_loss
@every_unknown
def test_gradient_is_right(loss, unknown):
    logits, labels = random_batch()
    assert torch.autograd.gradcheck(lambda s: loss(s, labels, unknown=unknown, reduction="none"), logits)


@every_loss
@every_unknown
def test_finite_value_and_gradient(loss, unknown):
    for case in extreme_cases():
        value = loss(case.logits, case.labels, unknown=unknown)
        value.backward()
        assert torch.isfinite(value), case
        assert torch.isfinite(case.logits.grad).all(), case
        assert case.logits.grad.dtype == case.logits.dtype, case


@every_loss
@every_unknown
def test_saturated_gradient_equals_double_precision(loss, unknown):
    """Where half precision saturates, the gradient is still the one of exact arithmetic."""
    logits = torch.tensor([[1e4, -1e4, 30.0, -30.0, 0.5]])
    for row in ([1, 0, 1, 0, -1], [0, 1, 0, 1, -1], [-1, -1, -1, -1, 1]):
        gradients = []
        for dtype in (torch.float16, torch.float64):
            copy = logits.to(dtype).requires_grad_()
            loss(copy, torch.tensor([row]), unknown=unknown, reduction="sum").backward()
            gradients.append(copy.grad.double())
        torch.testing.assert_close(*gradients, atol=1e-3, rtol=1e-2)


@every_loss
@every_unknown
def test_reductions_agree(loss, unknown):
    logits, labels = random_batch()
    per_row = loss(logits, labels, unknown=unknown, reduction="none")
    assert per_row.shape == (len(labels),)
    torch.testing.assert_close(loss(logits, labels, unknown=unknown, reduction="sum"), per_row.sum())
    torch.testing.assert_close(loss(logits, labels, unknown=unknown, reduction="mean"), per_row.mean())


@every_loss
def test_labels_of_numpy_and_of_another_device(loss):
    logits, labels = random_batch()
    assert loss(logits, labels.numpy()) == loss(logits, labels)
    with pytest.raises(ValueError, match="logits are on cpu and labels on meta; move one to the other"):
        loss(logits, labels.to("meta"))


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {"soft-opml"}))  # whose γ differs by class
def test_permuting_classes_changes_nothing(name):
    logits, labels = random_batch()
    order = torch.randperm(labels.shape[1], generator=torch.Generator().manual_seed(0))
    torch.testing.assert_close(LOSSES[name](logits[:, order], labels[:, order]), LOSSES[name](logits, labels))


@every_loss
def test_ignored_cells_have_no_gradient_and_no_say(loss):
    logits, labels = random_batch()
    loss(logits, labels, unknown="ignore").backward()
    assert (logits.grad[labels == -1] == 0).all()
    moved = torch.where(labels == -1, logits + 7, logits)
    torch.testing.assert_close(loss(moved, labels, unknown="ignore"), loss(logits, labels, unknown="ignore"))


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - {"soft-opml"}))  # whose unknown labels are partly positive
def test_unknown_as_negative_equals_zeros(name):
    logits, labels = random_batch()
    assumed = LOSSES[name](logits, labels, unknown="negative")
    torch.testing.assert_close(assumed, LOSSES[name](logits, labels.clamp(min=0)))


@every_loss
def test_labels_of_any_dtype(loss):
    logits, labels = random_batch()
    expected = loss(logits, labels)
    for dtype in (torch.int64, torch.float32, torch.float16):
        torch.testing.assert_close(loss(logits, labels.to(dtype)), expected)
    with_nan = torch.where(labels == -1, torch.nan, labels.double())
    torch.testing.assert_close(loss(logits, with_nan), expected)
    known = labels.clamp(min=0)
    torch.testing.assert_close(loss(logits, known.bool()), loss(logits, known))


@every_loss
@every_unknown
def test_places_of_a_sequence_are_rows(loss, unknown):
    logits, labels = random_batch(rows=6)
    per_row = loss(logits, labels, unknown=unknown, reduction="none")
    sequences = (each.unflatten(0, (2, 3)) for each in (logits, labels))
    torch.testing.assert_close(loss(*sequences, unknown=unknown, reduction="none"), per_row.view(2, 3))


@every_loss
@pytest.mark.parametrize("shape", [(0, 3), (2, 0, 3)])
def test_an_empty_batch_costs_nothing(loss, shape):
    logits = torch.zeros(shape, requires_grad=True)
    for reduction in ("mean", "sum"):
        value = loss(logits, torch.zeros(shape), reduction=reduction)
        value.backward()
        assert value == 0
    assert loss(logits, torch.zeros(shape), reduction="none").shape == shape[:-1]


SOFT = sorted(CELL_BY_CELL - {"focal"})  # whose equation says "if positive"


@pytest.mark.parametrize("share", [0.0, 0.3, 1.0])
@pytest.mark.parametrize(
    "loss", [*(LOSSES[name] for name in SOFT), partial(losses.bce_loss, smoothing=0.1, negative_weight=0.2)]
)
def test_a_soft_label_is_both_by_its_share(loss, share):
    logits = torch.tensor([[0.7, -1.2]], dtype=torch.float64)
    positive, negative, soft = (loss(logits, torch.tensor([[each, torch.nan]])) for each in (1.0, 0.0, share))
    torch.testing.assert_close(soft, share * positive + (1 - share) * negative, rtol=1e-6, atol=0)


@pytest.mark.parametrize("name", sorted(LOSSES.keys() - set(SOFT)))
def test_soft_labels_are_refused_where_the_equation_has_no_place_for_them(name):
    with pytest.raises(ValueError, match=r"row 0, column 1 holds 0\.5; a label is 1"):
        LOSSES[name](torch.zeros(1, 2), torch.tensor([[0.0, 0.5]]))


@pytest.mark.parametrize("name", sorted(CELL_BY_CELL))
@every_unknown
def test_weights_multiply_the_losses_of_labels(name, unknown):
    loss = partial(LOSSES[name], unknown=unknown, reduction="none")
    logits, labels = random_batch(rows=3, classes=4)
    weight = torch.rand(3, 4, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    alone = [loss(logits[:, [k]], labels[:, [k]]) / (1 if name == "opml-plus" else 4) for k in range(4)]
    torch.testing.assert_close(loss(logits, labels, weight=weight), (torch.stack(alone, 1) * weight).sum(1))
    torch.testing.assert_close(loss(logits, labels, weight=weight[0]), (torch.stack(alone, 1) * weight[0]).sum(1))


def test_a_module_has_weights_of_classes_and_a_call_may_bring_others():
    logits, labels = random_batch(rows=3, classes=4)
    weight, other = torch.arange(4.0), torch.ones(3, 4)
    module = losses.BCELoss(weight=weight)
    torch.testing.assert_close(module(logits, labels), losses.bce_loss(logits, labels, weight=weight))
    torch.testing.assert_close(module(logits, labels, weight=other), losses.bce_loss(logits, labels))
    with pytest.raises(ValueError, match=r"weight must have the shape of the logits, \(3, 4\), or one number for each"):
        losses.bce_loss(logits, labels, weight=torch.ones(3))
    with pytest.raises(ValueError, match="weight must hold finite numbers of at least 0"):
        losses.BCELoss(weight=torch.tensor([1.0, -1.0]))


@every_loss
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_low_precision_is_computed_in_float32(loss, dtype):
    logits, labels = random_batch(rows=64, classes=300)
    low = logits.detach().to(dtype)
    value = loss(low, labels, reduction="sum")
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(low.float(), labels, reduction="sum"), rtol=2e-3, atol=0)


@every_loss
def test_autocast_changes_nothing(loss):
    logits, labels = random_batch()
    logits = logits.detach().float().requires_grad_()
    (plain,) = torch.autograd.grad(loss(logits, labels), logits)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        value = loss(logits, labels)
    assert value.dtype == torch.float32
    (gradient,) = torch.autograd.grad(value, logits)
    torch.testing.assert_close(gradient, plain)


BACKENDS = ["aot_eager", *(["inductor"] if shutil.which("g++") else [])]


@every_loss
@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.filterwarnings("ignore")  # of the compiler's own making
def test_compiles_into_one_graph(loss, backend):
    logits, labels = random_batch()
    logits = logits.detach().float().requires_grad_()
    value = torch.compile(loss, backend=backend, fullgraph=True)(logits, labels)
    (gradient,) = torch.autograd.grad(value, logits)
    expected = loss(logits, labels)
    torch.testing.assert_close(value, expected)
    torch.testing.assert_close(gradient, torch.autograd.grad(expected, logits)[0])


@every_loss
@pytest.mark.parametrize(
    ("logits", "labels", "sentence"),
    [
        (torch.zeros(2, 3), torch.zeros(2, 2), r"one shape, got \(2, 3\) and \(2, 2\)"),
        (torch.zeros(3), torch.zeros(3), r"matrices \(batch, classes\)"),
        (torch.zeros(2, 0), torch.zeros(2, 0), "with a class or more"),
        (torch.zeros(2, 2, dtype=torch.int64), torch.zeros(2, 2), "floating point"),
        (torch.tensor([[0.0, float("nan")]]), torch.zeros(1, 2), "logits: row 0, column 1 holds nan"),
        (torch.tensor([[0.0], [float("inf")]]), -torch.ones(2, 1), "logits: row 1, column 0 holds inf"),
        (torch.zeros(2, 2), torch.tensor([[0, 1], [2, 0]]), "labels: row 1, column 0 holds 2; a label is 1"),
        (torch.zeros(1, 2), torch.tensor([[0, -2]]), "row 0, column 1 holds -2"),
        (torch.zeros(1, 2), torch.tensor([[0, 257]]), "row 0, column 1 holds 257"),  # 1 in int8
        (torch.zeros(1, 2), torch.tensor([[0.0, -0.5]]), "row 0, column 1 holds -0.5"),
        (torch.zeros(1, 2), torch.tensor([[0.0, float("inf")]]), "row 0, column 1 holds inf"),
        (torch.zeros(1, 2, 2), torch.tensor([[[0, 0], [0, 2]]]), r"row \(0, 1\), column 1 holds 2"),
    ],
)
def test_bad_batch_is_refused(loss, logits, labels, sentence):
    with pytest.raises(ValueError, match=sentence):
        loss(logits, labels)


def test_logits_whose_sum_overflows_are_finite():
    logits = torch.full((2, 2), 3e38)
    assert losses.bce_loss(logits, torch.ones(2, 2)) == 0


@every_loss
def test_unknown_choices_are_refused(loss):
    logits, labels = random_batch()
    with pytest.raises(ValueError, match="reduction must be one of 'mean', 'sum', 'none', got 'average'"):
        loss(logits, labels, reduction="average")
    with pytest.raises(ValueError, match="unknown must be one of"):
        loss(logits, labels, unknown="positive")


def options_of(function):
    parameters = inspect.signature(function).parameters.values()
    return {each.name: each.default for each in parameters if each.default is not each.empty}


@pytest.mark.parametrize("module", losses.Loss.__subclasses__())
def test_module_has_the_options_of_its_function(module):
    function = getattr(losses, module.__doc__.split("`")[1])
    assert options_of(module) == module().options == options_of(function)


@pytest.mark.parametrize(
    ("build", "sentence"),
    [
        (lambda: losses.OPMLLoss(alpha=1.0), "alpha must lie between 0 and 1, both excluded, got 1.0"),
        (lambda: losses.OPMLLoss(beta=float("nan")), "beta must lie between"),
        (lambda: losses.SoftOPMLLoss(alpha=0.0), "alpha must lie between"),
        (lambda: losses.BCELoss(smoothing=1.5), "smoothing must lie between 0 and 1, got 1.5"),
        (lambda: losses.BCELoss(negative_weight=-1.0), "negative_weight must be a finite number of at least 0"),
        (lambda: losses.FocalLoss(gamma=-1.0), "gamma must be"),
        (lambda: losses.FocalLoss(alpha=2.0), "alpha must lie between 0 and 1 or be None"),
        (lambda: losses.AsymmetricLoss(margin=1.0), "margin must be at least 0 and below 1"),
        (lambda: losses.AsymmetricLoss(gamma_positive=float("inf")), "gamma_positive must be"),
        (lambda: losses.EntropyMaximizationLoss(entropy_weight=-0.1), "entropy_weight must be"),
        (lambda: losses.HillLoss(gamma=-1.0), "gamma must be"),
        (lambda: losses.HillLoss(turn=-1.0), "turn must be"),
        (lambda: losses.ZLPRLoss(reduction="rows"), "reduction must be"),
        (lambda: losses.OPMLPlusLoss(missing=-1.0), "missing must be a finite number of at least 0"),
        (lambda: losses.OPMLPlusLoss(trust=1.0), "trust must lie between"),
    ],
)
def test_bad_options_are_refused_when_the_module_is_built(build, sentence):
    with pytest.raises(ValueError, match=sentence):
        build()


def test_no_loss_is_left_out():
    """Rows and columns compete in the two-way loss, which has tests of its own; that of soft OPML is wrapped."""
    tested = {getattr(loss, "func", loss).__name__ for loss in LOSSES.values()} | {"soft_opml_loss"}
    assert "soft-opml" in LOSSES
    assert {name for name in losses.__all__ if name.endswith("_loss")} - tested == {"two_way_loss"}
