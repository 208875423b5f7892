"""`onepair config` prints what `onepair train` would do, and `--config` takes it back."""

import tomllib

import pytest

from onepair.runs.config import build_config, preset, read_config, resolve_config


def test_it_prints_a_complete_file_that_is_read_back(in_process, tmp_path):
    code, output, errors = in_process("config", "--preset", "voc2012", "--method", "opml-sp")
    assert (code, errors) == (0, "")
    assert output.startswith(
        "# Train with it: onepair train DATA --config FILE, or onepair train DATA --preset voc2012 "
    )
    assert "# The paper's test mAP is 89.20 (0.03)" in output
    (tmp_path / "a.toml").write_text(output)
    assert build_config(read_config(tmp_path / "a.toml")) == resolve_config(preset("voc2012", "opml-sp"))
    assert (
        in_process("config", "--config", tmp_path / "a.toml").stdout.partition("\n\n")[2] == output.partition("\n\n")[2]
    )


def test_options_and_settings_are_in_it(in_process):
    options = ("--preset", "cub", "--method", "focal", "--mode", "linear", "--set", "method.options.alpha=none")
    code, output, errors = in_process("config", *options)
    assert (code, errors) == (0, "")
    assert "--set method.options.alpha=none" in output.splitlines()[0]
    assert "paper" not in output
    written = tomllib.loads(output)
    assert (written["model"]["mode"], written["method"]["options"]) == ("linear", {"alpha": "none"})
    assert build_config(written).method.options == {"alpha": None}


def test_every_setting_is_explained(in_process):
    code, output, errors = in_process("config", "--explain")
    assert (code, errors) == (0, "")
    for word in ("data.observe", "model.mode", "linear.epochs", "finetune.batch_size", "method.options"):
        assert word in output
    assert "The learning rate." in " ".join(output.split())


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--preset", "voc2021"], "there is no preset voc2021; did you mean voc2012?"),
        (["--method", "opml-sb"], "there is no method 'opml-sb'; did you mean 'opml-sp'?"),
        (["--set", "method.options.alpha=7"], "alpha"),
    ],
)
def test_mistakes_end_in_a_sentence(in_process, arguments, sentence):
    code, output, errors = in_process("config", *arguments)
    assert (code, output) == (2, "")
    assert sentence in errors
    assert errors.count("\n") == 1
