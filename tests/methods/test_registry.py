import dataclasses

import numpy as np
import pytest
import torch

from onepair.label_matrix import LabelMatrix
from onepair.methods import METHODS, Method, create_method, register

NAMES = [
    "bce",
    "bce-1p-alln",
    "bce-dw",
    "bce-l1",
    "bce-l2",
    "bce-ls",
    "bce-nls",
    "focal",
    "asl",
    "zlpr",
    "role",
    "ll-r",
    "ll-r-boostlu",
    "ll-ct",
    "ll-cp",
    "entmax",
    "entmax-apl",
    "opml",
    "opml-hr",
    "opml-soft",
    "opml-correct",
    "opml-sp",
    "opml-plus",
    "opml-ls",
    "ridge",
    "bce-known",
    "bce-pw",
    "bce-pw-bound",
    "hill",
    "splc",
    "p-asl",
    "two-way",
    "mime",
    "gr",
    "crisp",
]

RECORD = {"title": "Mine", "paper": "None", "equation": "0", "description": "Nothing."}


@pytest.fixture
def scratch(monkeypatch):
    """A registry to write in."""
    monkeypatch.setattr(METHODS, "_entries", dict(METHODS))
    return METHODS


def test_every_name_is_there():
    assert set(METHODS) == set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_records_are_complete(name):
    info = METHODS[name]
    assert info.name == name
    assert all([info.title, info.paper, info.equation, info.description])
    assert "\n" not in info.description
    assert issubclass(info.build, Method)
    assert set(info.options) - set(info.defaults) == ({"epochs"} & set(info.options))


def test_titles_and_descriptions_tell_methods_apart():
    assert len({info.title for info in METHODS.values()}) == len(METHODS)
    assert len({info.description for info in METHODS.values()}) == len(METHODS)


def test_defaults_are_those_of_the_constructor():
    assert METHODS["opml-sp"].defaults == {
        "alpha": 0.6,
        "beta": 0.4,
        "high_rank_weight": 1e-3,
        "epsilon": 0.7,
        "gamma_gradient": True,
        "label_num": 0.8,
        "correction_start": 1,
    }
    assert METHODS["bce"].defaults == {}


def test_records_say_what_the_loop_must_bring():
    assert {name: told for name in METHODS if (told := METHODS[name].run_options(epochs=7, seed=2))} == {
        "role": {"seed": 2},
        "entmax-apl": {"epochs": 7},
        "gr": {"epochs": 7},
    }
    assert [name for name in METHODS if METHODS[name].needs_places] == ["ll-r-boostlu"]
    oracles = [name for name in METHODS if METHODS[name].observes != "as given"]
    assert oracles == ["bce-1p-alln"]


def test_records_cannot_be_changed():
    with pytest.raises(dataclasses.FrozenInstanceError):
        METHODS["opml"].title = "mine"
    with pytest.raises(TypeError):
        METHODS["mine"] = METHODS["opml"]
    with pytest.raises(TypeError):
        METHODS["opml"].defaults["alpha"] = 0.9


def test_a_new_method_is_one_class(scratch):
    @register(name="mine", **RECORD)
    class Mine(Method):
        def __init__(self, *, strength: float = 2.0) -> None:
            super().__init__()
            self.strength = strength

    assert create_method("mine", strength=3.0).strength == 3.0
    assert scratch["mine"].defaults == {"strength": 2.0}
    assert scratch["mine"].build is Mine


def test_a_name_can_be_given_once(scratch):
    with pytest.raises(ValueError, match=r"already is a method 'opml'"):
        register(name="opml", **RECORD)(Method)


@pytest.mark.parametrize(
    ("name", "options", "sentence"),
    [
        ("opmlsp", {}, "no method 'opmlsp'; did you mean 'opml-sp'?"),
        ("xxxxxxx", {}, "no method 'xxxxxxx'; choose from"),
        ("opml-sp", {"epsilom": 1.0}, "'opml-sp' has no option 'epsilom'; did you mean 'epsilon'?"),
        ("opml", {"epsilon": 1.0}, "'opml' has no option 'epsilon'; choose from alpha, beta"),
        ("bce", {"weight": 1.0}, "'bce' has no option 'weight'; it has none"),
        ("entmax-apl", {}, "'entmax-apl' needs the option 'epochs'"),
        ("entmax-apl", {"epochs": 5}, "warmup must be at least 1 and below the 5 epochs, got 5"),
        ("opml", {"alpha": 1.0}, "alpha must lie between 0 and 1"),
        ("opml-hr", {"high_rank_weight": -1.0}, "high_rank_weight must be a finite number of at least 0"),
        ("opml-soft", {"epsilon": 0.0}, "epsilon must be above 0"),
        ("opml-correct", {"label_num": -1.0}, "label_num must be a finite number of at least 0"),
        ("bce-nls", {"smoothing": 2.0}, "smoothing must lie between 0 and 1"),
        ("bce-l1", {"weight": -1.0}, "weight must be a finite number of at least 0"),
        ("ll-r", {"delta": -0.1}, "delta must be a finite number of at least 0"),
        ("role", {"expected_positives": -1.0}, "expected_positives must be a finite number of at least 0"),
    ],
)
def test_mistakes_are_named(name, options, sentence):
    with pytest.raises(ValueError) as error:  # noqa: PT011
        create_method(name, **options)
    assert sentence in str(error.value)


@pytest.mark.parametrize("labels", [
    [[1, -1], [0, 1]],
    np.array([[1, np.nan], [0, 1]]),
    torch.tensor([[1.0, torch.nan], [0.0, 1.0]], requires_grad=True),
    LabelMatrix.of([[1, -1], [0, 1]]),
], ids=["list", "numpy", "torch", "entries"])  # fmt: skip
def test_a_method_begins_with_labels_of_any_kind(labels):
    method = create_method("opml-sp", labels=labels)
    assert method.observed.tolist() == [[1, -1], [0, 1]]
    assert method.observed.dtype == torch.int8
    assert method(torch.zeros(2, 2), torch.tensor([0, 1])).isfinite()


def test_a_method_does_not_share_the_memory_of_its_labels():
    labels = np.array([[1, 0]], np.int8)
    method = create_method("bce", labels=labels)
    labels[:] = 0
    assert method.observed.tolist() == [[1, 0]]
    assert create_method("bce", labels=np.array([[True, False]])).observed.tolist() == [[1, 0]]
    with pytest.raises(ValueError, match="row 0, column 1 holds 2"):
        create_method("bce", labels=[[0, 2]])
