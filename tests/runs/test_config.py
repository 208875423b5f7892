"""Settings: to TOML and back, and what is said of those that do not exist or do not fit."""

import tomllib
from dataclasses import fields, replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from onepair.runs.config import (
    Config,
    ConfigError,
    DataConfig,
    MethodConfig,
    ModelConfig,
    OptimiserConfig,
    build_config,
    differences,
    merge,
    parse_setting,
    read_config,
    to_toml,
)

positive = st.floats(1e-12, 1e12)
text = st.text(st.characters(exclude_categories=["Cs"]))
options = st.dictionaries(text, st.booleans() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | text)
configs = st.builds(
    Config,
    data=st.builds(
        DataConfig,
        source=text,
        images=st.none() | text,
        seed=st.integers(0, 2**32 - 1),
        validation=st.floats(0.01, 0.99),
    ),
    model=st.builds(ModelConfig, weights=st.none() | text, image_size=st.none() | st.integers(1, 999)),
    method=st.builds(MethodConfig, name=text, options=options),
    optimiser=st.builds(OptimiserConfig, lr=positive, ema=st.none() | st.floats(0.01, 0.99)),
    epochs=st.integers(1, 1000),
    linear_lr=st.none() | positive,
)


@given(configs)
def test_toml_gives_the_same_configuration_back(config):
    assert build_config(tomllib.loads(to_toml(config))) == config


def test_a_file_is_read_and_defaults_fill_the_rest(tmp_path):
    (tmp_path / "a.toml").write_text('epochs = 3\n[method]\nname = "role"\n[method.options]\nexpected_positives = 2\n')
    config = build_config(read_config(tmp_path / "a.toml"))
    assert config == Config(epochs=3, method=MethodConfig("role", {"expected_positives": 2}))


@pytest.mark.parametrize("content", [b"epochs = = 3", b"\xff\xfe"])
def test_a_file_that_is_not_toml(tmp_path, content):
    (tmp_path / "a.toml").write_bytes(content)
    with pytest.raises(ConfigError, match=r"a\.toml: is not TOML"):
        read_config(tmp_path / "a.toml")


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(ConfigError, match=r"gone\.toml: cannot be read \(No such file"):
        read_config(tmp_path / "gone.toml")


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"epoch": 3}, "there is no setting epoch; did you mean epochs?"),
        ({"optimizer": {}}, "there is no setting optimizer; did you mean optimiser?"),
        ({"optimiser": {"momentun": 1}}, "there is no setting optimiser.momentun; did you mean optimiser.momentum?"),
        ({"zzz": 3}, "there is no setting zzz; there are data, model, method"),
        ({"epochs": 2.5}, "epochs must be a whole number, got 2.5"),
        ({"epochs": True}, "epochs must be a whole number, got True"),
        ({"epochs": "3"}, "epochs must be a whole number, got '3'"),
        ({"optimiser": {"lr": "fast"}}, "optimiser.lr must be a number, got 'fast'"),
        ({"optimiser": {"lr": False}}, "optimiser.lr must be a number, got False"),
        ({"model": {"image_size": 1.5}}, "model.image_size must be a whole number, got 1.5"),
        ({"model": {"mode": "linaer"}}, "model.mode must be 'linear', 'finetune', 'linear-init', got 'linaer'"),
        ({"model": {"mode": ["linear"]}}, "model.mode must be"),
        ({"model": "resnet"}, "model is a section of settings, got 'resnet'"),
        ({"data": {"source": 2012}}, "data.source must be text, got 2012"),
        ({"method": {"options": 3}}, "method.options must be a table, got 3"),
        ({"epochs": 0}, "epochs must be above 0, got 0"),
        ({"batch_size": -1}, "batch_size must be above 0"),
        ({"optimiser": {"lr": float("nan")}}, "optimiser.lr must be above 0, got nan"),
        ({"optimiser": {"lr": float("inf")}}, "optimiser.lr must be above 0, got inf"),
        ({"linear_lr": 0}, "linear_lr must be above 0, got 0.0"),
        ({"model": {"image_size": 0}}, "model.image_size must be above 0"),
        ({"model": {"flip": 2}}, "model.flip must lie between 0 and 1"),
        ({"data": {"validation": 1}}, "data.validation must lie between 0 and 1"),
        ({"data": {"seed": -1}}, "data.seed must be 0 or more"),
        ({"seed": 2**32}, "seed must be 0 or more, and below 2^32"),
        ({"optimiser": {"momentum": -0.1}}, "optimiser.momentum must be 0 or more"),
        ({"optimiser": {"weight_decay": -1}}, "optimiser.weight_decay must be 0 or more"),
        ({"optimiser": {"warmup_epochs": -1}}, "optimiser.warmup_epochs must be 0 or more"),
        ({"optimiser": {"ema": 1.0}}, "optimiser.ema must lie between 0 and 1"),
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
        ("epochs=3", {"epochs": 3}),
        (" epochs = 3 ", {"epochs": 3}),
        ("optimiser.lr=1e-3", {"optimiser": {"lr": 0.001}}),
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


def test_none_unsets_a_number():
    settings = [{"optimiser": {"ema": 0.9}}, parse_setting("optimiser.ema=none")]
    assert build_config(merge(settings)).optimiser.ema is None


def test_weights_none_are_random_weights():
    assert build_config(parse_setting("model.weights=none")).model.weights == "none"


def test_later_layers_win_key_by_key():
    layers = [{"a": 1, "b": {"c": 1, "d": 1}}, {"b": {"c": 2}}, {"a": 3, "e": {"f": 3}}]
    assert merge(layers) == {"a": 3, "b": {"c": 2, "d": 1}, "e": {"f": 3}}
    assert layers[0] == {"a": 1, "b": {"c": 1, "d": 1}}
    assert merge([]) == {}


def test_differences_name_keys_and_values():
    old = Config(method=MethodConfig("opml", {"alpha": 0.6}))
    new = replace(old, epochs=3, method=MethodConfig("opml", {"alpha": 0.7, "beta": 0.1}))
    assert differences(old, old) == []
    assert differences(old, new) == [
        "epochs is 3, was 10",
        "method.options.alpha is 0.7, was 0.6",
        "method.options.beta is 0.1, was None",
    ]


def test_configurations_cannot_be_changed():
    for field in fields(Config):
        with pytest.raises(AttributeError):
            setattr(Config(), field.name, None)
