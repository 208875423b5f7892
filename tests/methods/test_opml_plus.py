import copy
import math

import pytest
import torch

from onepair.losses import opml_loss
from onepair.methods import create_method
from tests.methods.test_opml_sp import sigmoid, slow_ap
from tests.methods.training import CLASSES, OBSERVED, ROWS, SlowMethod, assert_follows, labels_of


class SlowPlus(SlowMethod):
    """OPML+ label by label."""

    def begin(self, alpha, beta, weight, label_num, correction_start):
        self.alpha, self.beta = alpha / (1 - alpha), beta / (1 - beta)
        self.label_num, self.correction_start = label_num, correction_start
        self.weight = weight * sum(1 in labels for labels in self.observed) / ROWS
        self.targets = copy.deepcopy(self.observed)

    def before_step(self, scores, rows):
        self.fixed_scores = scores

    def loss(self, scores, rows):
        return sum(self.row_loss(scores[row], self.fixed_scores[row], sample) for row, sample in enumerate(rows)) / len(
            rows
        )

    def row_loss(self, scores, fixed, sample):
        positives, up, down = [], [], []
        others = CLASSES - self.observed[sample].count(1)
        for column in range(CLASSES):
            score, label = scores[column], self.observed[sample][column]
            if label == 1:
                positives.append(math.exp(-score))
            elif label == 0:
                down.append(math.exp(score) / others)
            else:
                gamma = 1.0 if self.targets[sample][column] == 1 else sigmoid(fixed[column])
                up.append(gamma * math.exp(-score) / others)
                down.append((1 - gamma) * math.exp(score) / others)
        rest = math.log(self.alpha + sum(up)) + math.log(self.beta + sum(down))
        return math.log(self.alpha + sum(positives)) + self.weight * rest

    def end_epoch(self, epoch, scores):
        if epoch < self.correction_start:
            return
        self.targets = copy.deepcopy(self.observed)
        for column in range(CLASSES):
            column_scores = [scores[sample][column] for sample in range(ROWS)]
            positives = [sample for sample in range(ROWS) if self.observed[sample][column] == 1]
            unknown = [sample for sample in range(ROWS) if self.observed[sample][column] == -1]
            count = round(len(positives) * self.label_num * (1 - slow_ap(column_scores, positives)))
            for sample in sorted(unknown, key=lambda sample: -column_scores[sample])[:count]:
                self.targets[sample][column] = 1

    def state(self):
        return {"observed": self.observed, "targets": self.targets}


@pytest.mark.parametrize("kind", OBSERVED)
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"label_num": 3.0, "correction_start": 1},
        {"alpha": 0.6, "beta": 0.4, "weight": 3.0, "label_num": 0.0},
        {"label_num": 2.0, "correction_start": 2, "weight": 0.3},
    ],
    ids=str,
)
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


def test_state_is_the_labels_and_their_correction():
    method = create_method("opml-plus")
    method.begin(labels_of("mixed"))
    assert set(method.state_dict()) == {"observed", "targets"}


@pytest.mark.parametrize("unknowns", [1, 5, 373])
@pytest.mark.parametrize(("alpha", "beta"), [(0.3, 0.15), (0.5, 0.5), (0.2, 0.6)])
def test_unknown_labels_rest_at_one_probability(unknowns, alpha, beta):
    """At β / (α + β) nothing moves them; below they are pulled up, above pushed down."""
    method = begun([[1] + [-1] * unknowns], alpha=alpha, beta=beta)
    balance = math.log(method.beta / method.alpha)
    assert gradient_of(method, [[1.0] + [balance] * unknowns])[0, 1:].abs().max() < 1e-12
    assert (gradient_of(method, [[1.0] + [balance - 1] * unknowns])[0, 1:] < 0).all()
    assert (gradient_of(method, [[1.0] + [balance + 1] * unknowns])[0, 1:] > 0).all()


@pytest.mark.parametrize("other", [-1, 0], ids=["unknown", "negative"])
def test_the_number_of_labels_does_not_matter(other):
    """Every label but the positive one twice: the same loss, and each of the two moves half as much."""
    once, twice = begun([[1, -1, other]]), begun([[1, -1, other, -1, other]])
    scores, scores_twice = [[0.5, -1.0, 2.0]], [[0.5, -1.0, 2.0, -1.0, 2.0]]
    rows = torch.tensor([0])
    torch.testing.assert_close(once(torch.tensor(scores), rows), twice(torch.tensor(scores_twice), rows))
    torch.testing.assert_close(2 * gradient_of(twice, scores_twice)[:, 1:3], gradient_of(once, scores)[:, 1:])


def test_with_one_negative_a_row_and_no_unknown_it_is_opml():
    labels = [[1, 0, 1], [0, 1, 1]]
    logits = torch.tensor([[0.5, -1.0, 2.0], [3.0, 0.1, -0.2]])
    method = begun(labels, alpha=0.6, beta=0.4)
    expected = opml_loss(logits, torch.tensor(labels), alpha=0.6, beta=0.4) + math.log(1.5)  # no unknowns: log α
    torch.testing.assert_close(method(logits, torch.arange(2)), expected)


def test_a_corrected_label_is_only_pulled_up():
    method = begun([[1, -1, -1], [-1, 1, -1]], label_num=2.0, correction_start=1)
    method.end_epoch(1, torch.tensor([[0.0, 1.0, 0.0], [1.0, 0.0, 0.0]]))  # AP = ½ of two classes: one correction each
    assert method.targets.tolist() == [[1, 1, -1], [1, 1, -1]]
    above = [[5.0, 5.0, 5.0], [5.0, 5.0, 5.0]]
    gradient = gradient_of(method, above)
    assert (gradient[:, :2] < 0).all()
    assert (gradient[:, 2] > 0).all()
    assert gradient[0, 1] > gradient[0, 0]  # the observed positive is pulled harder


def test_corrections_wait_and_are_made_anew():
    method = create_method("opml-plus", label_num=3.0, correction_start=2)
    method.begin(labels_of("single positives"))
    scores = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0))
    method.end_epoch(1, scores)
    assert torch.equal(method.targets, method.observed)
    method.end_epoch(2, scores)
    assert not torch.equal(method.targets, method.observed)
    method.end_epoch(3, labels_of("single positives").float())  # every AP is 1: nothing is missing
    assert torch.equal(method.targets, method.observed)


def test_rows_without_positives_share_the_weight():
    """A row with a positive, among three without: what is unknown in it weighs a quarter."""
    labelled, empty = [1, -1, 0], [-1, -1, -1]
    alone, among = begun([labelled]), begun([labelled, empty, empty, empty])
    scores = [[0.5, 1.0, -1.0]]
    whole, quarter = gradient_of(alone, scores)[0], gradient_of(among, scores)[0]
    torch.testing.assert_close(quarter, whole * torch.tensor([1, 0.25, 0.25], dtype=torch.float64))


def test_a_high_unknown_label_is_pushed_down_in_single_precision():
    """Where sigmoid rounds to 1, its complement does not round to 0."""
    logits = torch.tensor([[0.0, 40.0]], requires_grad=True)
    begun([[1, -1]])(logits, torch.tensor([0])).backward()
    assert logits.grad[0, 1].item() == pytest.approx(1 / (1 + 0.15 / 0.85), rel=1e-5)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"alpha": 0.0}, "alpha must lie between 0 and 1"),
        ({"beta": 1.0}, "beta must lie between 0 and 1"),
        ({"weight": -1.0}, "weight must be a finite number of at least 0"),
        ({"label_num": math.inf}, "label_num must be a finite number of at least 0"),
    ],
)
def test_options_out_of_range_are_refused(options, reason):
    with pytest.raises(ValueError, match=reason):
        create_method("opml-plus", **options)
