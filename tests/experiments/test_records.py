"""Tables and figures are records, and every record can be run and drawn."""

import pytest

from onepair.errors import ConfigError
from onepair.experiments.figures import PICTURES, activations
from onepair.experiments.records import EXPERIMENTS, Experiment, Row, find_experiment
from onepair.methods import METHODS
from onepair.runs.config import all_settings


def test_all_of_the_paper_is_there_and_what_came_since():
    assert list(EXPERIMENTS) == [
        *("table2", "table3", "table4", "table5", "table-newer"),
        *(
            "fig-confidence",
            "fig-epochs",
            "fig-learning",
            "fig-alpha-beta",
            "fig-lambda",
            "fig-known",
            "fig-gradients",
            "fig-gradcam",
        ),
    ]


@pytest.mark.parametrize("experiment", EXPERIMENTS.values(), ids=lambda experiment: experiment.name)
def test_a_record_is_complete(experiment):
    assert experiment.picture in {"table", "activations", *PICTURES}
    assert callable(activations)
    assert {row.method for row in experiment.rows} <= {*METHODS, "opml-plus"}
    for row in experiment.known_rows():
        assert set(experiment.sweep) <= {*METHODS[row.method].options, *(setting.key for setting in all_settings())}
    labels = [(row.title, row.shown_labels) for row in experiment.known_rows()]
    assert len(set(labels)) == len(labels)


def test_a_row_without_its_method_is_left_out_until_there_is_one():
    experiment = Experiment(name="a", title="", caption="", rows=(Row("BCE", "bce"), Row("Later", "not-yet")))
    assert [row.method for row in experiment.known_rows()] == ["bce"]


def test_labels_in_the_words_of_the_paper():
    assert Row("BCE", "bce", labels="full").shown_labels == "all P, all N"
    assert Row("BCE", "bce-1p-alln").shown_labels == "1 P, all N"
    assert Row("BCE", "bce").shown_labels == "1 P"
    assert Row("BCE", "bce", labels="fraction").shown_labels == "some P, some N"
    assert Row("ROLE+LI", "role", linear_init=True).published == "role-li"


def test_names_that_do_not_exist():
    with pytest.raises(ConfigError, match=r"no table or figure 'tabel2'; did you mean table2"):
        find_experiment("tabel2")
    with pytest.raises(ConfigError, match=r"'xyz'; there are table2, .*, fig-gradcam and all"):
        find_experiment("xyz")
