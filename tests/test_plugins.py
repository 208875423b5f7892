"""Packages that add to onepair by entry points: a package that is installed in a folder of its own."""

import subprocess
import sys
import textwrap

import numpy as np
import pytest
from PIL import Image

from onepair.data import READERS, DataError, read_dataset
from onepair.errors import PluginError
from onepair.methods import METHODS, create_method
from onepair.metrics import METRICS
from onepair.models import BACKBONES, create_backbone
from onepair.plugins import Registry

METHOD = """
from onepair.losses import BCELoss
from onepair.methods import FixedTargets, register

@register(name="plain", title="Plain", paper="None", equation="BCE", description="A method of another package.")
class Plain(FixedTargets):
    def __init__(self) -> None:
        super().__init__(BCELoss())
"""
METRIC = """
from onepair.metrics import register_metric

@register_metric("rows")
def rows(scores, labels):
    return float(len(scores))
"""
READER = """
from onepair.data import LabelTable, register_reader

@register_reader("pairs", detect=lambda path: path.suffix == ".pairs", layout="a .pairs file")
def read(path, *, unlisted="unknown", report=None):
    'Files and classes, one pair in a line.'
    pairs = [line.split() for line in path.read_text().splitlines()]
    files, classes = (sorted({pair[i] for pair in pairs}) for i in (0, 1))
    other = 0 if unlisted == "negative" else -1
    labels = [[1 if [file, name] in pairs else other for name in classes] for file in files]
    return LabelTable(tuple(files), tuple(classes), labels, np.array(["train"] * len(files)), path.parent)

import numpy as np
"""
BACKBONE = """
from onepair.data.images.decode import Preprocessing
from onepair.models import register_backbone
from torch import nn

@register_backbone("mean-colour-of-plugin", Preprocessing(8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)))
class MeanColour(nn.Module):
    num_features = 3

    def forward(self, images):
        return images.mean((2, 3))
"""
ENTRY_POINTS = """
[onepair.methods]
plain = plugin_method
[onepair.metrics]
rows = plugin_metric:rows
[onepair.readers]
pairs = plugin_reader
[onepair.backbones]
mean-colour = plugin_backbone:MeanColour
"""


def install(folder, modules, entry_points):
    """What pip leaves of a package: its modules, and a folder that says what it offers."""
    information = folder / "plugin-1.0.dist-info"
    information.mkdir(parents=True)
    (information / "METADATA").write_text("Metadata-Version: 2.1\nName: plugin\nVersion: 1.0\n")
    (information / "entry_points.txt").write_text(entry_points)
    for name, text in modules.items():
        (folder / f"{name}.py").write_text(textwrap.dedent(text))
    return folder


def run(folder, *arguments, **options):
    code = f"import sys; sys.path.insert(0, {str(folder)!r}); from onepair.cli.main import main; main()"
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], capture_output=True, text=True, check=False, **options
    )


MODULES = {
    "plugin_method": METHOD,
    "plugin_metric": METRIC,
    "plugin_reader": READER,
    "plugin_backbone": BACKBONE,
}


@pytest.fixture(scope="module")
def plugin(tmp_path_factory):
    return install(tmp_path_factory.mktemp("site"), MODULES, ENTRY_POINTS)


@pytest.mark.parametrize("installed", [True, False], ids=["installed", "--import"])
def test_all_four_kinds_make_a_run_by_the_command_line(plugin, installed, tmp_path):
    random = np.random.default_rng(0)
    for row in range(12):
        Image.fromarray(random.integers(0, 256, (8, 8, 3), np.uint8)).save(tmp_path / f"{row}.png")
    (tmp_path / "labels.pairs").write_text("".join(f"{row}.png {'dog' if row % 2 else 'cat'}\n" for row in range(12)))
    words = []
    if not installed:  # a folder of modules, and nothing that says what they offer
        for name, text in MODULES.items():
            (tmp_path / f"{name}.py").write_text(text)
        words = [word for name in MODULES for word in ("--import", name)]
    site, options = plugin if installed else tmp_path / "nothing", {"cwd": tmp_path}
    setup = ("--method", "plain", "--backbone", "mean-colour-of-plugin", "--weights", "none")
    reading = ("--unlisted", "negative", "--format", "pairs")
    where = ("--out", "run", "--cache", tmp_path / "cache", "--workers", "0")
    trained = run(site, *words, "train", "labels.pairs", *reading, *setup, *where, **options)
    assert trained.returncode == 0, trained.stderr
    found = run(site, *words, "evaluate", "run", "--split", "train", "--metric", "rows", **options)
    assert found.returncode == 0, found.stderr
    assert "rows 12.0000" in found.stdout
    assert run(site, *words, "predict", "run", "3.png", **options).returncode == 0


@pytest.mark.parametrize(
    ("text", "reason"), [("raise ValueError('no')", "ValueError: no"), (None, "ModuleNotFoundError: No module named")]
)
def test_a_module_that_cannot_be_imported_ends_in_a_sentence(text, reason, tmp_path):
    if text:
        (tmp_path / "broken.py").write_text(text)
    done = run(tmp_path / "nothing", "--import", "broken", "methods", cwd=tmp_path)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"onepair: --import broken: cannot be imported ({reason}")


def test_a_method_of_another_package_is_listed_by_the_command_line(plugin):
    listed = run(plugin, "methods")
    assert listed.returncode == 0, listed.stderr
    assert "A method of another package" in listed.stdout
    assert run(plugin, "methods", "plain").returncode == 0


def test_a_backbone_of_another_package_computes_features(plugin, tmp_path):
    out, cache = tmp_path / "features.npy", tmp_path / "cache"
    options = ("--backbone", "mean-colour-of-plugin", "--cache", str(cache), "--workers", "0", "--out", str(out))
    done = run(plugin, "features", "digits", *options)
    assert done.returncode == 0, done.stderr
    assert np.load(out).shape == (4000, 3)


def test_what_another_package_offers_is_used_from_python(plugin, monkeypatch):
    monkeypatch.syspath_prepend(plugin)
    for registry in (METHODS, METRICS, BACKBONES):
        monkeypatch.setattr(registry, "_entries", dict(registry._entries))
        monkeypatch.setattr(registry, "_loaded", False)
    assert type(create_method("plain")).__name__ == "Plain"
    assert METRICS["rows"](np.zeros((3, 2)), np.zeros((3, 2))) == 3
    backbone = create_backbone("mean-colour-of-plugin", image_size=4)
    assert (backbone.feature_dim, backbone.preprocessing.size) == (3, 4)
    assert {"map", "coverage", "ranking-loss", "rows"} <= set(METRICS)


def test_a_reader_of_another_package_reads_a_dataset(plugin, monkeypatch, tmp_path):
    monkeypatch.syspath_prepend(plugin)
    there = {name: reader for name, reader in READERS._entries.items() if name != "pairs"}  # as a document adds
    monkeypatch.setattr(READERS, "_entries", there)
    monkeypatch.setattr(READERS, "_loaded", False)
    (tmp_path / "labels.pairs").write_text("a.jpg dog\nb.jpg cat\nb.jpg dog\n")
    assert read_dataset(tmp_path / "labels.pairs").labels.tolist() == [[-1, 1], [1, 1]]
    assert read_dataset(tmp_path / "labels.pairs", unlisted="negative").labels.tolist() == [[0, 1], [1, 1]]
    with pytest.raises(DataError, match="is read as pairs, which takes no zeros"):
        read_dataset(tmp_path / "labels.pairs", format="pairs", zeros="unknown")


def test_a_reader_of_another_package_is_used_by_the_command_line(plugin, tmp_path):
    listed = run(plugin, "datasets")
    assert listed.returncode == 0, listed.stderr
    assert "pairs  Files and classes, one pair in a line." in listed.stdout
    (tmp_path / "labels.pairs").write_text("a.jpg dog\nb.jpg cat\n")
    checked = run(plugin, "check", str(tmp_path / "labels.pairs"))
    assert "2 images" in checked.stdout, checked.stdout + checked.stderr


def test_a_registry_loads_entry_points_once_and_only_if_it_must(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(
        install(tmp_path, {"plugin_unit": "raise ImportError('gone')"}, "[x.y]\nu = plugin_unit")
    )
    units = Registry[int]("x.y", "unit")
    units.add("metre", 1)
    assert units["metre"] == 1
    for look in (list, len, lambda registry: registry.get("foot")):
        with pytest.raises(PluginError, match=r"package plugin offers 'u' as one of x\.y.*ImportError: gone"):
            look(units)


def test_a_registry_has_each_name_once():
    units = Registry[int]("x.z", "unit")
    units.add("metre", 1)
    with pytest.raises(ValueError, match="there already is a unit 'metre'"):
        units.add("metre", 2)
    assert dict(units) == {"metre": 1}
    assert "foot" not in units
