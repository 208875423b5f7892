"""Settings: to TOML and back, and what is said of those that do not exist or do not fit."""

import os
import tomllib
from dataclasses import asdict, fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepair.errors import ConfigError
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
    read_config,
    resolve_config,
    to_toml,
)

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
