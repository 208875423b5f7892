"""What every registered method must do, whatever it is."""

import dataclasses

import numpy as np
import pytest
import torch

from onepair.errors import UserError
from onepair.label_matrix import LabelMatrix
from onepair.methods import METHODS, Method, create_method, register
from onepair.methods.method import SparseObserved, highest_scored, highest_scored_per_class
from onepair.training.checkpoint import load_state, save_state
from tests.methods.training import CLASSES, EPOCHS, LIVELY, OBSERVED, ROWS, Loop, batches, labels_of, lively

every_method = pytest.mark.parametrize("name", METHODS)
every_kind = pytest.mark.parametrize("kind", OBSERVED)


@every_kind
@every_method
def test_observed_labels_are_never_changed(name, kind):
    observed = labels_of(kind)
    loop = Loop(lively(name), observed)
    for epoch in range(1, EPOCHS + 1):
        assert torch.tensor(loop.epoch(epoch)).isfinite().all()
    assert torch.equal(loop.method.observed, labels_of(kind))
    assert torch.equal(observed, labels_of(kind))


@every_kind
@every_method
def test_known_labels_keep_their_value_in_every_target(name, kind):
    loop = Loop(lively(name), labels_of(kind))
    for epoch in range(1, EPOCHS + 1):
        loop.epoch(epoch)
    known = labels_of(kind) != -1
    state = loop.method.state_dict()
    if "targets" in state:
        assert state["targets"].dtype == torch.int8
        assert torch.equal(state["targets"][known], labels_of(kind)[known])
    if "soft_labels" in state:
        assert (state["soft_labels"][known] == -1).all()


@every_method
def test_resumes_bit_for_bit_in_the_middle_of_an_epoch(name):
    whole = Loop(lively(name), labels_of("mixed"))
    whole.epoch(1)
    whole.epoch(2)
    first, *rest = batches(3)
    whole.step(first)

    resumed = Loop(lively(name), labels_of("mixed"))
    whole_part, resumed_part = (torch.nn.ModuleList([loop.method]) for loop in (whole, resumed))  # as in any checkpoint
    resumed_part.load_state_dict({key: value.clone() for key, value in whole_part.state_dict().items()})
    resumed.classifier.load_state_dict({key: value.clone() for key, value in whole.classifier.state_dict().items()})
    for loop in (whole, resumed):
        loop.losses = [loop.step(rows) for rows in rest]
        loop.end_epoch(3)
        loop.losses += loop.epoch(4)
    assert whole.losses == resumed.losses
    whole_state, resumed_state = whole.state(), resumed.state()
    assert whole_state.keys() == resumed_state.keys()
    assert all(torch.equal(whole_state[key], resumed_state[key]) for key in whole_state)


@every_method
def test_state_holds_no_tensor_twice(name):
    """As safetensors, which writes the checkpoints, requires."""
    method = lively(name)
    method.begin(labels_of("mixed"))
    addresses = [tensor.data_ptr() for tensor in method.state_dict().values()]
    assert len(set(addresses)) == len(addresses)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@every_method
def test_any_precision_and_a_batch_of_one(name, dtype):
    method = lively(name)
    method.begin(labels_of("mixed"))
    scores = 9 * torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(0))
    for epoch in (1, 2):
        method.end_epoch(epoch, scores.to(dtype) if method.needs_scores else None)
    for rows in (torch.arange(ROWS), torch.tensor([1])):
        logits = scores[rows].to(dtype).requires_grad_()
        loss = method(logits, rows)
        loss.backward()
        assert loss.shape == ()
        assert loss.dtype == torch.float32
        assert loss.isfinite()
        assert logits.grad.isfinite().all()


@every_method
def test_one_class(name):
    method = lively(name)
    method.begin(torch.tensor([[1], [-1], [0]], dtype=torch.int8))
    assert method(torch.zeros(3, 1), torch.arange(3)).isfinite()


@every_method
def test_order_of_the_batch_does_not_matter(name):
    logits = torch.randn(ROWS, CLASSES, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    losses = []
    for rows in (torch.arange(ROWS), torch.arange(ROWS).flip(0)):
        method = lively(name)
        method.begin(labels_of("mixed"))
        method.end_epoch(1, logits if method.needs_scores else None)
        losses.append(method(logits[rows], rows).item())
    assert losses[0] == pytest.approx(losses[1])


@pytest.mark.parametrize("name", [name for name in METHODS if lively(name).needs_scores])
def test_missing_scores_are_an_error(name):
    method = lively(name)
    method.begin(labels_of("mixed"))
    with pytest.raises(ValueError, match="needs the scores of the training set"):
        method.end_epoch(1, None)


@pytest.mark.parametrize("observed", [torch.zeros(3, dtype=torch.int8), torch.zeros(3, 2)])
def test_observed_must_be_a_matrix_of_int8(observed):
    with pytest.raises(ValueError, match="matrix"):
        Method().begin(observed)


def test_only_role_has_parameters_of_its_own():
    own = []
    for name in METHODS:
        method = lively(name)
        method.begin(labels_of("mixed"))
        own += [name] if list(method.parameters()) else []
        assert method.lr_multiplier == (10.0 if name == "role" else 1.0)
    assert own == ["role"]


def test_lively_options_are_of_methods_that_exist():
    assert set(LIVELY) <= set(METHODS)


class Blocks:
    """Scores a few rows at a time."""

    def __init__(self, scores):
        self.scores = scores.numpy()

    def __iter__(self):
        for start in range(0, ROWS, 3):
            yield slice(start, min(start + 3, ROWS)), self.scores[start : start + 3]


def trained(name, observed, *, interrupted=False):
    """The losses of two epochs, and the state after them; `interrupted` puts it into another method half-way."""
    method = lively(name)
    method.begin(observed)
    scores, losses = torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(3)), []
    for epoch in (1, 2, 3):
        losses += [method(scores[rows] * epoch, rows).item() for rows in batches(epoch)]
        given = scores / epoch if isinstance(observed, torch.Tensor) else Blocks(scores / epoch)
        if method.needs_priors:
            method.take_priors(torch.linspace(0.1, 0.9, CLASSES))
        method.end_epoch(epoch, given if method.needs_scores else None)
        if interrupted:
            state, method = method.state_dict(), lively(name)
            method.begin(observed)
            method.load_state_dict(state)
    return losses


@every_kind
@every_method
def test_labels_by_their_entries_are_learned_from_as_a_matrix_is(name, kind, monkeypatch):
    observed = labels_of(kind)
    rows = SparseObserved(LabelMatrix.of(observed.numpy()))
    if lively(name).keeps_matrix:
        monkeypatch.setattr("onepair.label_matrix.MOST_CELLS", ROWS * CLASSES - 1)
        with pytest.raises(UserError, match=f"each of {CLASSES} labels of each of {ROWS} images"):
            lively(name).begin(rows)
        return
    assert trained(name, rows) == trained(name, rows, interrupted=True) == trained(name, observed)


def test_corrected_labels_survive_a_checkpoint(tmp_path):
    rows = SparseObserved(LabelMatrix.of(labels_of("mixed").numpy()))
    methods = [lively("opml-sp"), lively("opml-sp")]
    for method in methods:
        method.begin(rows)
    methods[0].end_epoch(1, Blocks(torch.randn(ROWS, CLASSES, generator=torch.Generator().manual_seed(3))))
    save_state(tmp_path / "state.safetensors", {"method": methods[0].state_dict()})
    methods[1].load_state_dict(load_state(tmp_path / "state.safetensors")["method"])
    assert methods[1].targets.labels.same_as(methods[0].targets.labels)
    assert not methods[1].targets.labels.same_as(rows.labels)


@every_method
def test_whether_a_loss_sums_over_labels_or_is_their_mean_is_said(name):
    """Three times as many labels, all but unlikely: a sum stays what it was, and a mean becomes a third."""
    observed = torch.full((4, 3), -1, dtype=torch.int8)
    observed[range(4), [0, 1, 2, 0]] = 1
    pulls = []
    for more in (0, 6):
        method = lively(name)
        method.begin(torch.cat([observed, torch.full((4, more), -1, dtype=torch.int8)], dim=1))
        logits = torch.cat([torch.zeros(4, 3), torch.full((4, more), -30.0)], dim=1).requires_grad_()
        method(logits, torch.arange(4)).backward()
        pulls.append(logits.grad[0, 0].item())
    assert pulls[0] < 0
    expected = 1 if method.sums_labels else 1 / 3
    assert pulls[1] / pulls[0] == pytest.approx(expected, rel=0.25)


@pytest.mark.parametrize("seed", range(5))
def test_the_highest_scored_are_those_of_sorted_columns_also_with_ties(seed):
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(-2, 3, (40, 6), generator=generator).float()
    candidates = torch.rand(40, 6, generator=generator) < 0.5
    counts = [0, 1, 2, 7, 20, 40]
    expected = torch.zeros_like(candidates)
    for column, count in enumerate(counts):
        rows = candidates[:, column].nonzero().flatten().tolist()
        expected[sorted(rows, key=lambda row, column=column: (-scores[row, column], row))[:count], column] = True
    assert torch.equal(highest_scored_per_class(scores, candidates, counts), expected)
    assert torch.equal(highest_scored(scores[:, 3], candidates[:, 3], 7), expected[:, 3])
    assert not highest_scored(scores, torch.zeros_like(candidates), 2).any()


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
