"""The presets hold the values that were published, and work with every method."""

import tomllib
from importlib.resources import files

import pytest

from onepair.errors import ConfigError
from onepair.methods import METHODS, create_method
from onepair.runs.config import preset, preset_titles, resolve_config, with_preset

PAPER = ("voc2012", "coco2014", "nuswide", "cub")
# By dataset: batch, learning rate, epochs, and of OPML-SP α̃, β̃, ε and Label_num, as in the paper's table of settings.
OPML_SP = {
    "voc2012": (8, 1e-4, 15, 0.6, 0.4, 0.7, 0.8),
    "coco2014": (16, 2e-4, 10, 0.4, 0.5, 1.0, 1.2),
    "nuswide": (128, 1e-3, 10, 0.6, 0.4, 1.0, 1.1),
    "cub": (8, 4e-4, 10, 0.6, 0.2, 1.0, 22.0),
}


def config(name, method, **model):
    return resolve_config(preset(name, method), {"model": model})


def test_there_is_one_for_each_dataset_of_the_paper_and_for_the_embedded_one():
    assert tuple(preset_titles()) == (*PAPER, "digits")


@pytest.mark.parametrize("name", PAPER)
def test_opml_sp_is_the_papers(name):
    fine = config(name, "opml-sp")
    options = fine.method.options
    found = (fine.finetune.batch_size, fine.finetune.optimiser.lr, fine.finetune.epochs)
    assert (*found, *(options[key] for key in ("alpha", "beta", "epsilon", "label_num"))) == OPML_SP[name]
    assert options["high_rank_weight"] == 1e-3
    assert options["gamma_gradient"] is (name != "voc2012")
    optimiser = fine.finetune.optimiser
    assert (optimiser.name, optimiser.momentum, optimiser.weight_decay) == ("sgd", 0.9, 1e-3)
    assert optimiser.head_lr_multiplier == 10


@pytest.mark.parametrize(("name", "alpha", "beta"), [("voc2012", 0.7, 0.4), ("cub", 0.9, 0.5)])
def test_opml_alone_has_the_papers_best_values(name, alpha, beta):
    assert config(name, "opml").method.options == {"alpha": alpha, "beta": beta}


@pytest.mark.parametrize("name", PAPER)
@pytest.mark.parametrize("method", ["ll-r", "ll-ct", "ll-cp"])
def test_large_loss_is_its_authors(name, method):
    stage = config(name, method).finetune
    assert (stage.batch_size, stage.optimiser.name, stage.optimiser.lr) == (16, "adam", 1e-5)


@pytest.mark.parametrize(
    ("name", "positives", "entropy", "warmup", "weight", "lr", "batch"),
    [
        ("voc2012", 1.5, 0.2, 5, 0.02, 1e-5, 8),
        ("coco2014", 2.9, 0.1, 5, 0.9, 1e-5, 16),
        ("nuswide", 1.9, 0.1, 4, 0.2, 1e-5, 16),
        ("cub", 31.4, 0.01, 3, 0.4, 1e-4, 8),
    ],
)
def test_role_and_entropy_maximisation_are_their_authors(name, positives, entropy, warmup, weight, lr, batch):
    assert config(name, "role").method.options == {"expected_positives": positives}
    assert config(name, "entmax").method.options == {"entropy_weight": entropy}
    apl = config(name, "entmax-apl")
    assert apl.method.options == {"entropy_weight": entropy, "warmup": warmup, "weight": weight}
    assert (apl.finetune.optimiser.lr, apl.finetune.batch_size) == (lr, batch)
    assert config(name, "entmax").finetune == apl.finetune  # the pair tells what pseudo-labels add, and nothing else


@pytest.mark.parametrize("name", preset_titles())
@pytest.mark.parametrize("method", METHODS)
def test_it_makes_every_method(name, method):
    for mode in ("linear", "finetune", "linear-init"):
        made = config(name, method, mode=mode)
        assert (made.method.name, made.model.mode, made.data.observe) == (method, mode, "single-positive")
        epochs = sum(stage.epochs for stage in made.stages.values())
        create_method(method, **made.method.options, **METHODS[method].run_options(epochs=epochs))
        if name in PAPER:
            assert (made.model.backbone, made.model.image_size) == ("resnet50.tv_in1k", 448)
            linear, optimiser = made.linear, made.linear.optimiser
            assert (linear.protocol, linear.epochs, linear.batch_size) == ("epochs", 25, 16)
            assert (optimiser.name, optimiser.lr, optimiser.schedule) == ("adam", 3e-4, "constant")


def test_every_method_named_in_the_file_exists():
    for section in tomllib.loads(files("onepair.runs").joinpath("presets.toml").read_text("utf-8")).values():
        assert set(section["methods"]) <= set(METHODS)


def test_an_unknown_preset_names_the_nearest():
    with pytest.raises(ConfigError, match="there is no preset voc; did you mean voc2012"):
        preset("voc", "bce")
    with pytest.raises(ConfigError, match="there is no preset zzz; there are voc2012, coco2014"):
        preset("zzz", "bce")
    with pytest.raises(ConfigError, match="there is no preset paper"):
        preset("paper", "bce")


def test_a_preset_lies_under_everything_for_the_method_chosen_on_top():
    layers = with_preset("voc2012", {"method": {"name": "bce"}, "seed": 1}, {"method": {"name": "opml"}})
    made = resolve_config(*layers)
    assert (made.method.name, made.method.options, made.seed) == ("opml", {"alpha": 0.7, "beta": 0.4}, 1)
    assert with_preset(None, {"seed": 1}) == [{"seed": 1}]
    assert resolve_config(*with_preset("voc2012", {})).method.name == "opml-plus"
