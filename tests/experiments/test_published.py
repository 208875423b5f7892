"""The published numbers, compared with some copied by hand from the paper."""

import pytest

from onepair.experiments.records import EXPERIMENTS, Spread, published, published_best, source

PAPER = ("voc2012", "coco2014", "nuswide", "cub")


@pytest.mark.parametrize(
    ("labels", "method", "dataset", "mean", "std"),
    [
        ("full", "bce", "voc2012", 89.42, 0.27),
        ("full", "bce", "cub", 30.90, 0.64),
        ("full", "asl", "coco2014", 77.61, 0.32),
        ("full", "opml", "nuswide", 53.98, 0.20),
        ("single", "bce-1p-alln", "coco2014", 71.39, 0.19),
        ("single", "bce", "voc2012", 85.89, 0.38),
        ("single", "bce-l1", "cub", 17.59, 1.82),
        ("single", "role-li", "nuswide", 45.98, 0.26),
        ("single", "ll-cp", "nuswide", 47.92, 0.02),
        ("single", "entmax-apl", "voc2012", 89.19, 0.31),
        ("single", "focal", "voc2012", 87.59, 0.58),
        ("single", "opml-hr", "coco2014", 69.36, 0.02),
        ("single", "opml-soft", "nuswide", 48.98, 0.20),
        ("single", "opml-correct", "cub", 23.62, 0.18),
        ("single", "opml-sp", "cub", 24.11, 0.22),
        ("single", "gr", "voc2012", 89.83, None),
        ("single", "crisp", "coco2014", 74.64, None),
        ("single", "mime", "cub", 21.89, None),
    ],
)
def test_numbers(labels, method, dataset, mean, std):
    assert published(labels, method, dataset) == (mean, std)


def test_every_row_of_the_paper_has_a_number_for_every_dataset():
    rows = {row for name in ("table2", "table3", "table4", "table5") for row in EXPERIMENTS[name].rows}
    without = {row.method for row in rows for name in PAPER if published(row.labels, row.published, name) is None}
    assert without == {"opml-plus"}
    assert len(rows) == 28


def test_what_the_paper_does_not_say():
    assert published("single", "opml-sp", "digits") is None
    assert published("full", "opml-sp", "voc2012") is None
    assert published_best("opml-sp", "voc2012") == {}
    assert published_best("opml-hr", "cub") == {"high_rank_weight": 1e-2}


def test_the_source_is_named():
    assert "Li, Wang, Chen" in source()
    assert "ResNet-50" in source()


def test_a_spread_in_words():
    assert str(Spread(89.2, 0.034)) == "89.20 (0.03)"
    assert str(Spread(89.2, None)) == "89.20"
