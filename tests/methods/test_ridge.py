import pytest

from onepair.methods import create_method
from tests.methods.training import CLASSES, OBSERVED, SlowMethod, assert_follows, labels_of


class SlowRidge(SlowMethod):
    def begin(self):
        self.share = []
        for column in zip(*self.observed, strict=True):
            positive, negative = column.count(1), column.count(0)
            known, others = positive + negative, len(column) - positive
            self.share.append(positive / known * negative / others if known and others else 0.0)

    def loss(self, scores, rows):
        total = 0.0
        for row, sample in enumerate(rows):
            for label in range(CLASSES):
                target = self.observed[sample][label]
                total += (scores[row][label] - (self.share[label] if target == -1 else target)) ** 2 / 2
        return total / len(rows)


@pytest.mark.parametrize("kind", OBSERVED)
def test_follows_the_slow_reference(kind):
    assert_follows("ridge", SlowRidge, kind)


def test_an_unknown_label_is_a_share_of_a_positive_where_negatives_are_known():
    shares = {}
    for kind in OBSERVED:
        method = create_method("ridge")
        method.begin(labels_of(kind))
        shares[kind] = method.share
    assert (shares["single positives"] == 0).all()
    assert (shares["all unknown"] == 0).all()
    assert shares["mixed"][1].item() == pytest.approx(4 / 6 * 2 / 7)  # 4 positive, 2 negative, 5 unknown
