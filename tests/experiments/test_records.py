"""Tables and figures are records, and every record can be run and drawn."""

from dataclasses import replace

import pytest

from onepair.data.formats.read import read_dataset
from onepair.errors import ConfigError, DataError
from onepair.experiments.figures import PICTURES, activations
from onepair.experiments.records import (
    EXPERIMENTS,
    GRIDS,
    LEARNING_RATES,
    TITLES,
    Dataset,
    Experiment,
    Overrides,
    Row,
    Spread,
    combinations,
    find_experiment,
    grid_of,
    make_config,
    parse_dataset,
    published,
    published_best,
    source,
)
from onepair.methods import METHODS, create_method
from onepair.runs.config import DataConfig, all_settings, parse_setting, preset, preset_titles, resolve_config
from tests.data import layouts


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


def test_every_grid_is_of_a_method():
    assert set(GRIDS) <= set(METHODS)


@pytest.mark.parametrize("name", METHODS)
def test_every_point_makes_a_method(name):
    needed = METHODS[name].run_options(epochs=25)
    points = [{k: v for k, v in point.items() if k != "lr"} for point in combinations(GRIDS.get(name, {}))]
    assert len(points) == len({tuple(point.items()) for point in points})
    for point in points:
        create_method(name, **point, **needed)


@pytest.mark.parametrize("mode", LEARNING_RATES)
@pytest.mark.parametrize("dataset", TITLES)
def test_the_learning_rate_of_the_settings_is_among_those_tried(dataset, mode):
    for row in EXPERIMENTS["table2"].known_rows():
        config = make_config(Dataset(dataset, "x"), row, {}, seed=0, overrides=Overrides(mode=mode))
        lr = config.stages[config.last_stage].optimiser.lr
        assert lr in grid_of(row.method, mode=mode, lr=lr)["lr"]


def test_the_grid_of_voc_features():
    row = Row("OPML-SP", "opml-sp")
    lr = make_config(Dataset("voc2012", "x"), row, {}, seed=0, overrides=Overrides(mode="linear")).linear.optimiser.lr
    assert grid_of("opml-sp", mode="linear", lr=lr) == {
        "alpha": (0.1, 0.4, 0.7),
        "beta": (0.4, 0.7, 0.9),
        "gamma_gradient": (False, True),
        "label_num": (0.8, 1.6),
        "lr": (3e-4, 1e-3),
    }


def test_by_name_and_path(tmp_path):
    assert parse_dataset(f"voc2012={tmp_path}") == Dataset("voc2012", str(tmp_path), "voc")
    assert parse_dataset(f"coco={tmp_path}") == Dataset(tmp_path.stem, str(tmp_path), "coco")
    assert parse_dataset("digits") == Dataset("digits", "digits", "digits")


def test_digits_are_the_embedded_ones_also_beside_a_folder_of_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "digits").mkdir()
    dataset = parse_dataset("digits")
    assert dataset == Dataset("digits", "digits", "digits")
    assert read_dataset(dataset.source, format=dataset.format).pixels is not None
    assert parse_dataset("./digits") == Dataset("my-digits", "./digits")


def test_a_known_layout_is_known_without_a_name(tmp_path):
    assert parse_dataset(str(layouts.voc(tmp_path / "a"))).name == "voc2012"
    assert parse_dataset(str(layouts.coco_2014(tmp_path / "b"))) == Dataset("coco2014", str(tmp_path / "b"), "coco")
    one_file = layouts.coco_file(tmp_path)
    assert parse_dataset(str(one_file)) == Dataset("birds", str(one_file)), "this is not COCO 2014 itself"


def test_a_path_of_ones_own(tmp_path):
    folder = tmp_path / "odd=name"
    folder.mkdir()
    table = folder / "mine.csv"
    table.write_text("file,a\nx.png,1\n")
    assert parse_dataset(str(table)) == Dataset("mine", str(table))


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        ("voc2021=x", r"no dataset 'voc2021'; did you mean voc2012"),
        ("voc2021", r"no dataset or path 'voc2021'; did you mean voc2012"),
        ("zzz=x", r"no dataset 'zzz'; name one of voc2012, .*, digits as NAME=PATH, or a path"),
        ("cub", r"where is cub\? Give its path, as cub=PATH; it is a folder CUB_200_2011 .*CUB_200_2011.tgz from"),
        ("voc2012=gone", r"gone: there is no such file or folder; it is .*VOCdevkit/VOC2012.*VOCtrainval_11-May-2012"),
        ("gone.csv", r"no dataset or path 'gone.csv'"),
    ],
)
def test_mistakes(text, sentence, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(DataError, match=sentence):
        parse_dataset(text)


def test_a_well_known_dataset_is_the_same_wherever_it_is_kept(tmp_path):
    assert Dataset("cub", "/a").identity == Dataset("cub", "/b").identity
    assert Dataset("mine", "/a/mine.csv").identity != Dataset("mine", "/b/mine.csv").identity


def test_a_command_does_not_tell_where_data_are_kept():
    arguments = [Dataset("cub", "/home/me/cub").argument, Dataset("digits", "digits").argument]
    assert [*arguments, Dataset("mine", "/home/me/mine.csv").argument] == ["cub=PATH", "digits", "PATH"]


VOC, DIGITS = Dataset("voc2012", "VOCdevkit", "voc"), Dataset("digits", "digits", "digits")
SP = Row("OPML-SP", "opml-sp")


def learning(config):
    """All that decides a run but the dataset's path and format."""
    return replace(config, data=DataConfig(observe=config.data.observe))


@pytest.mark.parametrize("mode", ["linear", "finetune", "linear-init"])
@pytest.mark.parametrize("name", preset_titles())
def test_they_are_those_of_the_preset(name, mode):
    for method in METHODS:
        ours = make_config(Dataset(name, "path"), Row(method, method), {}, seed=0, overrides=Overrides(mode=mode))
        assert learning(ours) == learning(resolve_config(preset(name, method), {"model": {"mode": mode}})), method


@pytest.mark.parametrize(
    ("method", "labels", "observe"), [("opml-sp", "single", "single-positive"), ("bce", "full", "given")]
)
def test_those_of_digits_are_its_presets(method, labels, observe):
    ours = make_config(DIGITS, Row(method, method, labels=labels), {}, seed=0, overrides=Overrides())
    settings = {"data": {"source": "digits", "observe": observe}, "finetune": {"epochs": 20}}
    assert learning(ours) == learning(resolve_config(preset("digits", method), settings))


def test_a_dataset_of_ones_own_has_the_protocol_and_the_network_of_the_paper():
    config = make_config(Dataset("mine", "mine.csv"), SP, {}, seed=3, overrides=Overrides(mode="linear"))
    assert config == resolve_config(
        {},
        {
            "data": {"source": "mine.csv", "observe": "single-positive"},
            "model": {"mode": "linear", "backbone": "resnet50.tv_in1k"},
            "method": {"name": "opml-sp"},
            "linear": {"protocol": "epochs"},
            "seed": 3,
        },
    )


def test_values_win_over_settings_and_overrides_over_values():
    values = {"alpha": 0.2, "lr": 0.5}
    config = make_config(VOC, SP, values, seed=1, overrides=Overrides())
    assert (config.method.options["alpha"], config.method.options["beta"]) == (0.2, 0.4)
    assert (config.finetune.optimiser.lr, config.seed) == (0.5, 1)
    others = [parse_setting("finetune.optimiser.lr=0.7"), parse_setting("method.options.alpha=0.3")]
    config = make_config(VOC, SP, values, seed=1, overrides=Overrides(others=others))
    assert (config.finetune.optimiser.lr, config.method.options["alpha"]) == (0.7, 0.3)


def test_the_number_of_epochs_is_the_users_then_the_experiments_then_the_datasets():
    for mode, epochs in (("finetune", 15), ("linear", 25), ("linear-init", 15)):
        own = make_config(VOC, SP, {}, seed=0, overrides=Overrides(mode=mode))
        figure = make_config(VOC, SP, {}, seed=0, overrides=Overrides(mode=mode), epochs=40)
        asked = make_config(VOC, SP, {}, seed=0, overrides=Overrides(mode=mode, epochs=3), epochs=40)
        lengths = [config.stages[config.last_stage].epochs for config in (own, figure, asked)]
        assert lengths == [epochs, 40, 3]


def test_another_backbone_does_not_take_over_the_image_size():
    config = make_config(VOC, SP, {}, seed=0, overrides=Overrides(backbone="tf_efficientnet_lite0"))
    assert (config.model.backbone, config.model.image_size) == ("tf_efficientnet_lite0", None)


def test_rows_with_full_labels_and_with_a_linear_start():
    full = make_config(VOC, Row("BCE", "bce", labels="full"), {}, seed=0, overrides=Overrides())
    start = make_config(VOC, Row("ROLE+LI", "role", linear_init=True), {}, seed=0, overrides=Overrides())
    assert (full.data.observe, full.model.mode) == ("given", "finetune")
    assert (start.data.observe, start.model.mode) == ("single-positive", "linear-init")


def test_a_value_with_a_dot_is_a_setting():
    row = Row("BCE", "bce", labels="fraction")
    config = make_config(VOC, row, {"data.known": 0.25, "lr": 0.5}, seed=0, overrides=Overrides(mode="linear"))
    assert (config.data.observe, config.data.known) == ("fraction", 0.25)
    assert (config.method.options, config.linear.optimiser.lr) == ({}, 0.5)
