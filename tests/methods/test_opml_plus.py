import math

import pytest
import torch

from onepair.methods import create_method
from tests.methods.test_opml_sp import sigmoid
from tests.methods.training import CLASSES, OBSERVED, SlowMethod, assert_follows, labels_of


class SlowPlus(SlowMethod):
    """OPML+ label by label; without priors, one positive is missing for every observed one."""

    def begin(self, alpha, beta, trust):
        self.alpha, beta = alpha / (1 - alpha), beta / (1 - beta)
        self.rest = beta / (self.alpha + beta)
        self.trusted = trust / (trust + 1)

    def loss(self, scores, rows):
        cells = (
            (scores[row][column], self.observed[sample][column])
            for row, sample in enumerate(rows)
            for column in range(CLASSES)
        )
        return sum(self.cell_loss(score, label) for score, label in cells) / len(rows)

    def cell_loss(self, score, label):
        if label == 1:
            return math.log(self.alpha + math.exp(-score))
        entropy = -self.rest * math.log(sigmoid(score)) - (1 - self.rest) * math.log(1 - sigmoid(score))
        return entropy if label == 0 else self.trusted * entropy


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize("options", [{}, {"alpha": 0.6, "beta": 0.4}, {"trust": 0.9}, {"trust": 0.01}], ids=str)
def test_follows_the_slow_reference(options, kind):
    assert_follows("opml-plus", SlowPlus, kind, **options)


def begun(observed, **options):
    method = create_method("opml-plus", **options)
    method.begin(torch.tensor(observed, dtype=torch.int8))
    return method


def gradient_of(method, logits):
    logits = torch.tensor(logits, dtype=torch.float64, requires_grad=True)
    method(logits, torch.arange(len(logits))).backward()
    return logits.grad


@pytest.mark.parametrize("scale", [1.0, 1e4])
def test_of_many_labels_with_few_known_each_counts_as_by_masks(scale, monkeypatch):
    random = torch.Generator().manual_seed(0)
    labels = torch.full((40, 2000), -1, dtype=torch.int8)
    for value, number in ((0, 300), (1, 200)):
        labels.view(-1)[torch.randint(labels.numel(), (number,), generator=random)] = value
    labels[0] = -1
    logits = (scale * torch.randn(labels.shape, generator=random, dtype=torch.float64)).tolist()
    method = begun(labels.tolist(), trust=0.3)
    found, loss = gradient_of(method, logits), method(torch.tensor(logits).double(), torch.arange(40))
    monkeypatch.setattr("onepair.losses.opml._MANY", math.inf)
    torch.testing.assert_close(found, gradient_of(method, logits))
    torch.testing.assert_close(loss, method(torch.tensor(logits).double(), torch.arange(40)))


def test_state_is_the_labels_and_how_many_are_missing():
    method = create_method("opml-plus")
    method.begin(labels_of("mixed"))
    assert set(method.state_dict()) == {"missing"}


@pytest.mark.parametrize("other", [-1, 0], ids=["unknown", "negative"])
@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.15), (0.5, 0.5), (0.2, 0.6)])
def test_labels_rest_at_one_probability(other, alpha, beta):
    """At β / (α + β) nothing moves them; below they are pulled up, above pushed down."""
    method = begun([[1, other, other, other]], alpha=alpha, beta=beta)
    balance = math.log(beta / (1 - beta) * (1 - alpha) / alpha)
    _, resting, low, high = gradient_of(method, [[1.0, balance, balance - 1, balance + 1]])[0].tolist()
    assert abs(resting) < 1e-12
    assert low < 0 < high


@pytest.mark.parametrize("others", [0, 5, 373])
def test_a_label_counts_the_same_however_many_others_there_are(others):
    """Its gradient is p - β / (α + β), with α and β the odds of 0.3 and 0.15, whatever is likely beside it."""
    rest = 0.15 / 0.85 / (0.15 / 0.85 + 0.3 / 0.7)
    gradient = gradient_of(begun([[0] + [0] * others]), [[0.7] + [3.0] * others])
    assert gradient[0, 0].item() == pytest.approx(1 / (1 + math.exp(-0.7)) - rest)


def test_every_positive_counts_by_itself():
    alone, among = (gradient_of(begun([labels]), [[0.5, 1.0, -1.0]]) for labels in ([1, 0, 0], [1, 1, 1]))
    torch.testing.assert_close(alone[0, 0], among[0, 0])


@pytest.mark.parametrize(
    ("priors", "missing"),
    [([0.5, 0.5], 1.0), ([0.25, 0.25], 0.0), ([0.1, 0.1], 0.0), ([0.75, 0.5], 1.5), ([9.0, 0.0], 1.0)],
)
def test_missing_positives_are_counted_by_the_priors(priors, missing):
    """Never fewer than none, nor more than are unknown."""
    method = begun([[1, -1], [-1, 1], [-1, 0], [0, -1]])
    method.take_priors(torch.tensor(priors))
    assert method.missing.item() == pytest.approx(missing)


def test_the_fewer_are_missing_the_more_an_unknown_label_counts():
    method, gradients = begun([[1, -1, 0]]), []
    for missing in (0.0, 0.5, 8.0):
        method.missing.fill_(missing)
        gradients.append(gradient_of(method, [[2.0, 2.0, 2.0]])[0])
    sure, doubtful, hopeless = (gradient[1].item() for gradient in gradients)
    assert sure > doubtful > hopeless > 0
    assert sure == pytest.approx(gradients[0][2].item())  # nothing is missing: it is as good as a negative
    assert hopeless < 0.03 * sure


def test_a_high_unknown_label_is_pushed_down_in_single_precision():
    logits = torch.tensor([[0.0, 40.0]], requires_grad=True)
    method = begun([[1, 0]])
    method(logits, torch.tensor([0])).backward()
    assert logits.grad[0, 1].item() == pytest.approx(1 - method.rest, rel=1e-5)


@pytest.mark.parametrize("option", ["alpha", "beta", "trust"])
@pytest.mark.parametrize("value", [0.0, 1.0, math.nan])
def test_options_out_of_range_are_refused(option, value):
    with pytest.raises(ValueError, match=f"{option} must lie between 0 and 1"):
        create_method("opml-plus", **{option: value})
