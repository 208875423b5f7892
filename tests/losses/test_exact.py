"""Every loss against its definition in a hundred digits, at the extremes of its input, and however it is called.

The references know nothing of overflow: their numbers have exponents without end. Gradients are differences in the same
arithmetic, so that they hold where doubles would see nothing but rounding.
"""

import mpmath
import pytest
import torch
from hypothesis import example, given, settings
from hypothesis import strategies as st
from mpmath import mp, mpf

from onepair import losses
from tests.losses.batches import EDGE_CASES, LOSSES, counts_as

mp.dps = 100
H = mpf(10) ** -35  # of a difference, at logits up to 1e30

EXTREMES = (0.0, -0.0, 5e-324, -1e-310, 1e-8, 1.0, -1.0, 36.7, -37.0, 88.8, -709.8, 745.2, 1e4, -1e4, 1e30, -1e30)


def log_sigmoid(score):
    return -mpmath.log1p(mp.exp(-score))


def sigmoid(score):
    return 1 / (1 + mp.exp(-score))


def per_cell(positive, negative, unknown_cell=None):
    """A loss that is the mean over the cells of a row, by what each kind of cell adds."""

    def row(scores, kinds):
        adds = {"positive": positive, "negative": negative, "ignore": lambda _: mpf(0), "unknown": unknown_cell}
        return mp.fsum(adds[kind](score) for score, kind in zip(scores, kinds, strict=True)) / len(scores)

    return row


def one_pair(alpha, beta):
    def row(scores, kinds):
        cells = list(zip(scores, kinds, strict=True))
        low = mp.fsum(mp.exp(-score) for score, kind in cells if kind == "positive")
        high = mp.fsum(mp.exp(score) for score, kind in cells if kind == "negative")
        return mp.log(alpha / (1 - alpha) + low) + mp.log(beta / (1 - beta) + high)

    return row


SHARES = (0.3, 1e-300, 1.0, 0.0)  # γ of the first class, of the second, …


def soft_opml_of_shares(logits, labels, **options):
    gamma = torch.tensor(SHARES, dtype=logits.dtype)[: logits.shape[1]].expand_as(logits)
    return losses.soft_opml_loss(logits, labels, gamma=gamma, **options)


def soft_one_pair(scores, kinds):
    alpha, beta = mpf(0.6) / (1 - mpf(0.6)), mpf(0.4) / (1 - mpf(0.4))
    cells = list(zip(scores, kinds, map(mpf, SHARES), strict=False))
    certain = mp.fsum(mp.exp(-s) for s, kind, _ in cells if kind == "positive")
    soft = mp.fsum(gamma * mp.exp(-s) for s, kind, gamma in cells if kind == "unknown")
    high = mp.fsum(mp.exp(s) for s, kind, _ in cells if kind == "negative")
    high += mp.fsum((1 - gamma) * mp.exp(s) for s, kind, gamma in cells if kind == "unknown")
    return mp.log(alpha + certain) + mp.log(alpha + soft) + mp.log(beta + high)


def asymmetric_negative(score):
    shifted = max(sigmoid(score) - mpf(0.05), mpf(0))
    return -(shifted**4) * mp.log(1 - shifted)


def propensity_positive(inverse):
    return lambda s: -inverse * log_sigmoid(s) + (inverse - 1) * log_sigmoid(-s)


def entropy(score):
    chance = sigmoid(score)
    rest = sigmoid(-score)
    return -chance * log_sigmoid(score) - rest * log_sigmoid(-score)


def plus(scores, kinds):
    alpha, beta = mpf(0.3) / (1 - mpf(0.3)), mpf(0.15) / (1 - mpf(0.15))
    rest = beta / (alpha + beta)
    adds = {
        "positive": lambda s: mp.log(alpha + mp.exp(-s)),
        "negative": lambda s: -rest * log_sigmoid(s) - (1 - rest) * log_sigmoid(-s),
        "ignore": lambda _: mpf(0),
    }
    return mp.fsum(adds[kind](score) for score, kind in zip(scores, kinds, strict=True))


INVERSE = 1 / mpf(0.6)
REFERENCES = {
    "opml": one_pair(mpf(0.6), mpf(0.4)),
    "soft-opml": soft_one_pair,
    "zlpr": one_pair(mpf(0.5), mpf(0.5)),
    "bce": per_cell(lambda s: -log_sigmoid(s), lambda s: -log_sigmoid(-s)),
    "focal": per_cell(
        lambda s: -mpf(0.25) * sigmoid(-s) ** 2 * log_sigmoid(s),
        lambda s: -mpf(0.75) * sigmoid(s) ** 2 * log_sigmoid(-s),
    ),
    "asymmetric": per_cell(lambda s: -log_sigmoid(s), asymmetric_negative),
    "hill": per_cell(
        lambda s: -(sigmoid(1 - s) ** 2) * log_sigmoid(s - 1),
        lambda s: (mpf(1.5) - sigmoid(s)) * sigmoid(s) ** 2,
    ),
    "propensity": per_cell(propensity_positive(INVERSE), lambda s: -log_sigmoid(-s)),
    "bounded propensity": per_cell(lambda s: -(2 * INVERSE - 1) * log_sigmoid(s), lambda s: -log_sigmoid(-s)),
    "entropy": per_cell(lambda s: -log_sigmoid(s), lambda s: -log_sigmoid(-s), lambda s: -mpf(0.2) * entropy(s)),
    "opml-plus": plus,
}
every_loss = pytest.mark.parametrize("name", LOSSES)


def kinds_of(name, row, unknown):
    soft = unknown != "ignore" and (name == "soft-opml" or (name == "entropy" and unknown == "entropy"))
    return [counts_as(label, "unknown" if soft else unknown) for label in row]


def exact(name, logits, labels, unknown):
    """The loss of every row and its gradient, in a hundred digits."""
    values, gradients = [], []
    for scores, row in zip(logits.tolist(), labels.tolist(), strict=True):
        scores, kinds = list(map(mpf, scores)), kinds_of(name, row, unknown)
        values.append(REFERENCES[name](scores, kinds))
        for place in range(len(scores)):
            both = [[*scores[:place], scores[place] + step, *scores[place + 1 :]] for step in (H, -H)]
            above, below = (REFERENCES[name](moved, kinds) for moved in both)
            gradients.append((above - below) / (2 * H))
    return values, gradients


def assert_exact(found, expected, scale):
    """Within some units in the last place of the largest number there was to compute with."""
    for ours, theirs in zip(found.detach().flatten().tolist(), expected, strict=True):
        assert abs(mpf(ours) - theirs) <= mpf(1e-13) * (1 + scale + abs(theirs)), (ours, mp.nstr(theirs, 20))


@st.composite
def batches(draw):
    rows, classes = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    cells = rows * classes
    logits = draw(st.lists(st.sampled_from(EXTREMES) | st.floats(-40, 40), min_size=cells, max_size=cells))
    if draw(st.integers(0, 4)) == 0:  # all equal
        logits = logits[:1] * cells
    labels = draw(st.lists(st.sampled_from([-1, 0, 1]), min_size=cells, max_size=cells))
    shape = rows, classes
    return torch.tensor(logits, dtype=torch.float64).view(shape), torch.tensor(labels, dtype=torch.int8).view(shape)


@every_loss
@settings(max_examples=15)
@given(batch=batches(), ignore=st.booleans())
def test_equals_the_definition_in_a_hundred_digits(name, batch, ignore):
    logits, labels = batch
    unknown = "ignore" if ignore else "entropy" if name == "entropy" else "negative"
    logits.requires_grad_()
    loss = soft_opml_of_shares if name == "soft-opml" else LOSSES[name]
    found = loss(logits, labels, unknown=unknown, reduction="none")
    found.sum().backward()
    values, gradients = exact(name, logits.detach(), labels, unknown)
    assert_exact(found, values, logits.abs().max().item())
    assert_exact(logits.grad, gradients, 0)


@settings(max_examples=30)
@given(batch=batches(), ignore=st.booleans())
@example(batch=(torch.tensor([[0.0, 0.0], [-21.0, 0.0]]).double(), torch.tensor([[-1, -1], [1, -1]])), ignore=False)
def test_two_way_equals_its_definition(batch, ignore):
    logits, labels = batch
    unknown = "ignore" if ignore else "negative"
    total = mpf(0)
    for scores, kinds in ((logits, labels), (logits.T, labels.T)):
        gaps = []
        for line, row in zip(scores.tolist(), kinds.tolist(), strict=True):
            cells = [(mpf(score), counts_as(label, unknown)) for score, label in zip(line, row, strict=True)]
            low = mp.fsum(mp.exp(-score / 4) for score, kind in cells if kind == "positive")
            high = mp.fsum(mp.exp(score) for score, kind in cells if kind == "negative")
            if low and high:
                gaps.append(mpmath.log1p(mp.exp(mp.log(high) + 4 * mp.log(low))))
        total += mp.fsum(gaps) / max(len(gaps), 1)
    logits.requires_grad_()
    value = losses.two_way_loss(logits, labels, unknown=unknown)
    value.backward()
    assert_exact(value[None], [total], logits.abs().max().item())
    assert logits.grad.isfinite().all()
    part = labels != -1 if ignore else torch.ones_like(labels, dtype=torch.bool)
    assert (logits.grad[~part] == 0).all()


@pytest.mark.parametrize("size", [1e30, 1e36])
def test_two_way_keeps_cells_apart_that_take_no_part(size):
    """However far down a negative is, it is compared with the positive alone, not with what is left out."""
    logits = torch.tensor([[0.0, -size, 0.0, 0.0]], requires_grad=True)
    losses.two_way_loss(logits, torch.tensor([[1, 0, -1, -1]]), unknown="ignore").backward()
    assert logits.grad.tolist() == [[0.0, 0.0, 0.0, 0.0]]
    logits = torch.tensor([[-size, -size, 0.0, 0.0]], requires_grad=True)
    losses.two_way_loss(logits, torch.tensor([[1, 0, -1, -1]]), unknown="ignore").backward()
    torch.testing.assert_close(logits.grad, torch.tensor([[-0.5, 0.5, 0.0, 0.0]]))


def ways(loss, logits, labels):
    """The gradient of a loss, by the ways there are to ask for it."""

    def of(scores):
        return loss(scores, labels)

    expanded = logits[:, :1].expand_as(logits) * 0 + logits
    padded = torch.empty(logits.shape[0], 2 * logits.shape[1], dtype=logits.dtype)[:, ::2].copy_(logits)
    doubled = torch.stack([logits, logits])
    yield "torch.func.grad", torch.func.grad(of)(logits)
    yield "torch.func.vmap of grad", torch.func.vmap(torch.func.grad(of))(doubled)[1]
    yield "torch.func.grad of vmap", torch.func.grad(lambda both: torch.func.vmap(of)(both).sum())(doubled)[0]
    yield "columns in memory", _gradient(of, logits.T.contiguous().T)
    yield "every second column", _gradient(of, padded)
    yield "expanded", _gradient(of, expanded)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        yield "autocast", _gradient(of, logits)


def _gradient(of, logits):
    logits = logits.detach().requires_grad_()
    return torch.autograd.grad(of(logits), logits)[0]


@pytest.mark.parametrize("name", [*LOSSES, "two-way"])
def test_every_way_to_call_it_gives_the_same_gradient(name):
    loss = LOSSES.get(name, losses.two_way_loss)
    for case, labels in EDGE_CASES.items():
        labels = torch.tensor(labels)
        for scale in (1.0, 1e4):
            signs = torch.tensor([1.0, -1.0, 0.3]).repeat(labels.numel())[: labels.numel()].view(labels.shape)
            plain = _gradient(lambda scores, labels=labels: loss(scores, labels), scale * signs)
            for way, gradient in ways(loss, scale * signs, labels):
                torch.testing.assert_close(
                    gradient, plain, msg=lambda told, at=(way, case, scale): f"{at}: {told}", atol=1e-6, rtol=1e-5
                )


@every_loss
def test_expanded_labels_and_logits(name):
    """One row for all of a batch, without a copy."""
    logits, labels = torch.tensor([[0.5, -2.0, 1e4]]), torch.tensor([[1, 0, -1]])
    many = LOSSES[name](logits.expand(5, 3), labels.expand(5, 3), reduction="none")
    torch.testing.assert_close(many, LOSSES[name](logits, labels, reduction="none").expand(5))


@st.composite
def probabilities(draw):
    rows, classes = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    chance = st.sampled_from([0.0, 1.0, 5e-324, 1e-12, 0.5]) | st.floats(0, 1)
    values = draw(st.lists(chance, min_size=rows * classes, max_size=rows * classes))
    return torch.tensor(values, dtype=torch.float64).view(rows, classes)


@settings(max_examples=40)
@given(probabilities())
def test_high_rank_equals_its_definition(matrix):
    exact_matrix = mp.matrix(matrix.tolist())
    gram = exact_matrix * exact_matrix.T if matrix.shape[0] <= matrix.shape[1] else exact_matrix.T * exact_matrix
    expected = -mp.log(mp.det(gram + mpf(1e-6) * mp.eye(len(gram))))
    # A determinant of squares: what is lost of an eigenvalue near the ridge is lost of its logarithm.
    assert abs(mpf(losses.high_rank_penalty(matrix).item()) - expected) <= mpf(1e-8) * (1 + abs(expected))
    logits = matrix.clone().requires_grad_()
    losses.high_rank_penalty(logits).backward()
    assert logits.grad.isfinite().all()
