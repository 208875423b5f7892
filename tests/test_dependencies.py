"""What has to be installed: every import is declared, extras are asked for by a sentence, losses need little."""

import ast
import os
import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from onepair.errors import EXTRAS, MissingExtraError, require_extra

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]


def plain(name: str) -> str:
    """A distribution's name as all spellings of it have in common."""
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", name)[0]).lower()


BASE = {plain(requirement) for requirement in PROJECT["dependencies"]}
DECLARED = {
    name: {plain(requirement) for requirement in requirements}
    for name, requirements in PROJECT["optional-dependencies"].items()
}


def third_party_imports() -> dict[str, set[str]]:
    """The packages that are imported anywhere under src, by name, with the files that do."""
    found: dict[str, set[str]] = {}
    for file in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text("utf-8"))):
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            else:
                names = [node.module or ""] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            for package in {name.partition(".")[0] for name in names} - sys.stdlib_module_names - {"onepair"}:
                found.setdefault(package, set()).add(file.name)
    return found


HOSTS = {"IPython", "lightning", "torchmetrics", "transformers"}  # imported where they run us


def test_every_import_is_declared():
    imported, distributions = third_party_imports(), packages_distributions()
    assert {"torch", "filelock", "optuna", "fastapi"} <= set(imported)
    everything = BASE.union(*(DECLARED[name] for name in EXTRAS))
    missing = {
        package: sorted(files)
        for package, files in imported.items()
        if package not in HOSTS and not everything & {plain(name) for name in distributions[package]}
    }
    assert not missing


def test_the_extras_are_those_of_the_project():
    distributions = packages_distributions()
    for name, modules in EXTRAS.items():
        assert {plain(distributions[module][0]) for module in modules} == DECLARED[name]
        assert not DECLARED[name] & BASE
    assert PROJECT["optional-dependencies"]["all"] == [f"onepair[{','.join(name for name in EXTRAS if name != 'ray')}]"]
    assert any("onepair[all" in requirement for requirement in PROJECT["optional-dependencies"]["dev"])


def test_every_package_that_is_needed_is_pinned_within_its_range():
    """Those of pyproject.toml, and in turn what each of those says that it needs."""
    lines = (ROOT / "constraints.txt").read_text("utf-8").splitlines()
    pins = {plain(name): number for name, _, number in (line.partition("==") for line in lines)}
    wrong, seen = set(), set()
    waiting = [Requirement("hatchling"), *map(Requirement, PROJECT["dependencies"])]
    for requirements in PROJECT["optional-dependencies"].values():
        waiting += [Requirement(each) for each in requirements if plain(each) != "onepair"]
    while waiting:
        needed = waiting.pop()
        name, extras = plain(needed.name), frozenset(needed.extras)
        if name not in pins or not needed.specifier.contains(pins[name]):
            wrong.add(f"{needed}, but {pins.get(name, 'no pin')}")
        if (name, extras) not in seen:
            seen.add((name, extras))
            waiting += [each for each in map(Requirement, requires(name) or []) if _applies(each, extras)]
    assert not wrong
    assert len(seen) > len(BASE)


def _applies(requirement: Requirement, extras: frozenset[str]) -> bool:
    return requirement.marker is None or any(requirement.marker.evaluate({"extra": extra}) for extra in extras or {""})


def test_a_missing_extra_is_a_sentence(monkeypatch):
    require_extra(*EXTRAS)
    monkeypatch.setitem(sys.modules, "fastapi", None)
    monkeypatch.setitem(sys.modules, "optuna", None)
    with pytest.raises(MissingExtraError) as caught:
        require_extra("review")
    assert str(caught.value) == "this needs fastapi; install with: pip install 'onepair[review]'"
    with pytest.raises(MissingExtraError, match=r"needs fastapi, optuna; .* 'onepair\[review,tune\]'"):
        require_extra("review", "report", "tune")


# Runs the command where the modules of all extras cannot be imported; the network that one brings is only data.
WITHOUT_EXTRAS = """
import sys
from onepair.errors import EXTRAS
EXTRAS.pop("pretrained")
sys.modules.update({module: None for modules in EXTRAS.values() for module in modules})
from onepair.cli.main import main
main()
"""


@pytest.mark.parametrize(
    ("arguments", "extra"),
    [
        (["review", "run"], "review"),
        (["audit", "run"], "review"),
        (["explain", "run", "a.png"], "report"),
        (["compare", "a", "b", "--out", "report.html"], "report"),
        (["reproduce", "fig-gradients"], "report"),
        (["tune", "digits"], "tune"),
        (["export", "run"], "onnx"),
        (["train", "digits", "--tensorboard"], "tensorboard"),
        (["features", "digits", "--engine", "ray"], "ray"),
        (["predict", "run", "photos", "--engine", "ray"], "ray"),
        (["find", "run", "--engine", "ray"], "ray"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_command_without_its_extra_ends_in_a_sentence(tmp_path, arguments, extra):
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("onepair: this needs ")
    assert done.stderr.endswith(f"; install with: pip install 'onepair[{extra}]'\n")
    assert done.stderr.count("\n") == 1
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("arguments", [["methods"], ["check", "digits"], ["config"]], ids=" ".join)
def test_the_other_commands_need_no_extra(tmp_path, arguments):
    command = [sys.executable, "-c", WITHOUT_EXTRAS, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")


def test_all_modules_of_the_base_import_without_extras():
    """All that is no part of an extra: the commands, and the rooms up to training and finding."""
    rooms = ("data", "finding", "inference", "linear", "losses", "methods", "models", "probability", "runs", "training")
    modules = [
        ".".join(file.relative_to(ROOT / "src").with_suffix("").parts)
        for room in rooms
        for file in sorted((ROOT / "src" / "onepair" / room).glob("[!_]*.py"))
    ]
    modules += ["onepair.words", "onepair.report.compared_runs", "onepair.training.callbacks"]
    script = WITHOUT_EXTRAS.replace("from onepair.cli.main import main\nmain()", "") + (
        "import importlib\nfor name in sys.argv[1:]:\n    importlib.import_module(name)\n"
    )
    done = subprocess.run([sys.executable, "-c", script, *modules], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# Refuses every package but torch and numpy, and what those import themselves.
LOSSES_ALONE = """
import sys
import numpy, torch
class Refuse:
    def find_spec(self, name, path=None, target=None):
        top = name.partition(".")[0]
        if top not in sys.stdlib_module_names and top not in loaded and top != "onepair":
            raise ModuleNotFoundError(f"onepair.losses needs {name}", name=name)
loaded = {"torch", "numpy"}
for name in {name.partition(".")[0] for name in sys.modules} - sys.stdlib_module_names - loaded - {"__main__"}:
    for module in [each for each in sys.modules if each.partition(".")[0] == name]:
        sys.modules[module] = None
sys.meta_path.insert(0, Refuse())
import onepair.losses
from onepair import OPMLLoss
logits = torch.zeros(2, 3, requires_grad=True)
loss = OPMLLoss(alpha=0.5, beta=0.5)(logits, torch.tensor([[1, -1, 0], [-1, 1, -1]]))
loss.backward()
print(loss.item())
"""


def test_losses_need_torch_and_numpy_alone():
    done = subprocess.run([sys.executable, "-c", LOSSES_ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert float(done.stdout) > 0


@pytest.mark.skipif("ONEPAIR_CLEAN_INSTALL" not in os.environ, reason="downloads torch: set ONEPAIR_CLEAN_INSTALL=1")
def test_losses_in_a_new_environment(tmp_path):
    venv.create(tmp_path / "new", with_pip=True)
    python = tmp_path / "new" / ("Scripts" if os.name == "nt" else "bin") / "python"
    install = [python, "-m", "pip", "install", "-qq", "--constraint", ROOT / "constraints.txt"]
    subprocess.run([*install, "torch", "numpy"], check=True)
    subprocess.run([*install, "--no-deps", ROOT], check=True)
    done = subprocess.run([python, "-c", LOSSES_ALONE], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
