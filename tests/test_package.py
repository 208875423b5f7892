"""What a user gets before using anything: a light import, a public namespace, a command."""

import inspect
import subprocess
import sys

import pytest

import onepair


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout


def test_import_does_not_load_torch():
    loaded = run_python("import onepair, sys; print(*sys.modules)").split()
    assert "onepair" in loaded
    assert not {"torch", "numpy", "typer"} & set(loaded)


def test_labels_and_metrics_do_not_load_torch():
    code = "import sys; from onepair import POSITIVE, average_precision; print('torch' in sys.modules)"
    assert run_python(code).strip() == "False"


@pytest.mark.parametrize("name", onepair.__all__)
def test_every_public_name_resolves(name):
    assert getattr(onepair, name) is not None
    assert name in dir(onepair)


@pytest.mark.parametrize("name", onepair.__all__)
def test_every_public_class_and_function_is_described_with_an_example(name):
    described = getattr(onepair, name)
    if inspect.isclass(described) or inspect.isfunction(described):
        assert described.__doc__.split("\n")[0].endswith(".")
        assert "\n    Examples:\n        >>> " in described.__doc__


def test_unknown_names_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'Opml'"):
        _ = onepair.Opml


def test_command_line_help_does_not_load_torch():
    code = (
        "import sys; from onepair.cli.main import app\n"
        "try: app(['--help'])\nexcept SystemExit as exit: print('exit', exit.code, 'torch' in sys.modules)"
    )
    output = run_python(code)
    assert "find the labels that are missing" in " ".join(output.split())
    assert "exit 0 False" in output
