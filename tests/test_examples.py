"""The examples run, and learn."""

import runpy
import sys
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient

from onepair import OPMLLoss
from onepair.methods import create_method

EXAMPLES = Path(__file__).parent.parent / "examples"


@pytest.fixture
def example(monkeypatch):
    """What an example defines."""
    monkeypatch.syspath_prepend(str(EXAMPLES))
    yield lambda name: runpy.run_path(str(EXAMPLES / f"{name}.py"))
    sys.modules.pop("method_in_your_loop", None)


def test_every_example_is_short():
    lengths = {file.name: len(file.read_text("utf-8").splitlines()) for file in EXAMPLES.glob("*.py")}
    assert len(lengths) >= 4
    assert not {name: length for name, length in lengths.items() if length > 60}


def test_torch_loop(example):
    assert (
        example("torch_loop")["train"](OPMLLoss(alpha=0.6, beta=0.4), epochs=2) > 0.35
    )  # 0.26 of all labels are positive


def test_sklearn_pipeline(example, capsys):
    assert example("sklearn_pipeline")["main"]() > 0.9
    assert "bread" in capsys.readouterr().out


def test_method_in_your_loop(example):
    train = example("method_in_your_loop")["train"]
    assert train(create_method("opml-sp"), epochs=20) > train(create_method("bce"), epochs=20) > 0.8


@pytest.mark.filterwarnings("ignore")  # Lightning's own
def test_lightning_module(example):
    assert example("lightning_module")["main"]() > 0.8


@pytest.mark.filterwarnings("ignore")  # those of transformers
def test_hugging_face_trainer(example):
    assert example("hugging_face_trainer")["main"]() > 0.6  # 0.31 of all labels are positive


def test_from_holes_to_labels(tmp_path, monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    for name in ("IPYTHONDIR", "JUPYTER_RUNTIME_DIR"):
        monkeypatch.setenv(name, str(tmp_path))
    notebook = nbformat.read(EXAMPLES / "from_holes_to_labels.ipynb", as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("print(precision, before, after)"))
    NotebookClient(notebook, timeout=1800, resources={"metadata": {"path": str(tmp_path)}}).execute()
    precision, before, after = map(float, notebook.cells[-1].outputs[0].text.split())
    assert precision > 0.9  # of the labels that were filled in, by the truth that was hidden
    assert after > before + 50
