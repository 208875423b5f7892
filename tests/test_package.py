"""What a user gets before using anything: a light import, a public namespace, a command."""

import inspect
import re
import subprocess
import sys

import pytest

import onepair
from onepair.workflow import Found


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


HELD = [
    *(onepair.Dataset, onepair.Run, onepair.Model, Found),
    *(onepair.train, onepair.tune, onepair.compare, onepair.reproduce, onepair.load, onepair.fit_decisions),
    *(onepair.average_precision, onepair.mean_average_precision, onepair.validate_labels),
    *(onepair.observe_positives, onepair.observe_fraction),
]
INNER = {"each", "stream", "score", "decide", "sampled"}  # of a model and a run, for other modules of ours


def calls_of(described):
    members = vars(described).items() if inspect.isclass(described) else [(described.__name__, described)]
    for name, member in members:
        call = getattr(member, "__func__", member)
        if inspect.isfunction(call) and not name.startswith("_") and name not in INNER:
            yield f"{described.__name__}.{name}", call


@pytest.mark.parametrize(("name", "call"), [pair for described in HELD for pair in calls_of(described)])
def test_every_argument_is_typed_and_described(name, call):
    signature, text = inspect.signature(call), inspect.getdoc(call)
    arguments = [each for each in signature.parameters if each not in ("self", "cls")]
    section = re.search(r"^Args:\n(.*?)(^\S|\Z)", text, re.MULTILINE | re.DOTALL)
    described = re.findall(r"^    (\w[\w, ]*):", section[1], re.MULTILINE) if section else []
    assert not set(arguments) - set(", ".join(described).split(", "))
    assert signature.return_annotation is not inspect.Signature.empty
    assert all(each.annotation is not each.empty for key, each in signature.parameters.items() if key in arguments)
    if signature.return_annotation is not None:
        assert re.search(r"^Returns:|^Return |, and return ", text, re.MULTILINE)


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
