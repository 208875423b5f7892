"""What each table and figure of the paper shows, its published numbers, the grids that are searched, and its runs."""

import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from functools import cache
from importlib.resources import files
from itertools import product
from pathlib import Path
from typing import Any, Literal, NamedTuple

from onepair.data import READERS
from onepair.data.text_files import exists, real
from onepair.errors import ConfigError, DataError
from onepair.methods import METHODS
from onepair.remote import as_path, is_url
from onepair.runs.config import STAGES, Config, merge, nested, preset, preset_titles, resolve_config

Values = Mapping[str, Any]  # options of a method, `lr`, and settings by their full names, as `data.known`
Grid = Mapping[str, Sequence[Any]]  # the values to try of each
Picture = Literal["table", "confidence", "epochs", "grid", "curve", "gradients", "activations", "shares"]


@dataclass(frozen=True)
class Row:
    """A method, and the labels it learns from."""

    title: str
    method: str
    labels: Literal["single", "full", "fraction"] = "single"
    linear_init: bool = False  # train the classifier first, then the whole network

    @property
    def published(self) -> str:
        """Its name among the published numbers of these labels."""
        return f"{self.method}-li" if self.linear_init else self.method

    @property
    def knows_negatives(self) -> bool:
        """Whether it sees more than single positives, though not all labels."""
        return METHODS[self.method].observes != "as given"

    @property
    def needs_network(self) -> bool:
        """Whether there is no such row where only a classifier on fixed features is trained."""
        return self.linear_init or METHODS[self.method].needs_places

    @property
    def shown_labels(self) -> str:
        """What it sees, in the words of the paper's tables."""
        if self.labels == "single":
            return "1 P, all N" if self.knows_negatives else "1 P"
        return "all P, all N" if self.labels == "full" else "some P, some N"

    @property
    def label(self) -> str:
        """A name that no other row of a table has."""
        return self.title if self.shown_labels == "1 P" else f"{self.title} ({self.shown_labels})"


@dataclass(frozen=True)
class Experiment:
    """A table or a figure: what is run, and what is drawn of it."""

    name: str
    title: str
    caption: str
    picture: Picture = "table"
    rows: Sequence[Row] = ()
    sweep: Grid = field(default_factory=dict)  # values that every row is run with, all combinations
    seeds: int | None = None  # None: as many as the user asks for
    epochs: int | None = None  # None: those of the dataset

    def known_rows(self) -> list[Row]:
        """The rows whose method there is."""
        return [row for row in self.rows if row.method in METHODS]


def combinations(grid: Grid) -> list[Values]:
    """Every point of a grid.

    >>> combinations({"alpha": (0.4, 0.7), "lr": (0.1,)})
    [{'alpha': 0.4, 'lr': 0.1}, {'alpha': 0.7, 'lr': 0.1}]
    """
    return [dict(zip(grid, values, strict=True)) for values in product(*grid.values())]


def values_text(values: Values) -> str:
    """Options as one would give them to a method.

    >>> values_text({"alpha": 0.4, "lr": 0.0003, "gamma_gradient": False})
    'alpha=0.4 lr=0.0003 gamma_gradient=false'
    """
    return " ".join(
        f"{name}={str(value).lower() if isinstance(value, bool) else f'{value:g}'}" for name, value in values.items()
    )


def find_experiment(name: str) -> Experiment:
    """The table or figure of this name."""
    if name not in EXPERIMENTS:
        near = get_close_matches(name, EXPERIMENTS, n=2, cutoff=0.5)
        advice = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(EXPERIMENTS)} and all"
        raise ConfigError(f"there is no table or figure {name!r}; {advice}")
    return EXPERIMENTS[name]


_FULL = Row("BCE", "bce", labels="full")
_BCE = Row("BCE", "bce")
_OPML = Row("OPML", "opml")
_OPML_HR = Row("OPML + HR", "opml-hr")
_OPML_SP = Row("OPML-SP", "opml-sp")
_OPML_PLUS = Row("OPML+", "opml-plus")
_KNOWN = Row("BCE (known)", "bce-known")
_TILDE = (0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9)

EXPERIMENTS = {
    experiment.name: experiment
    for experiment in (
        Experiment(
            name="table2",
            title="Learning from single positives",
            caption="Test mAP of methods for single positive labels. P and N are the positive and negative labels that "
            "each training image keeps.",
            rows=(
                _FULL,
                Row("BCE", "bce-1p-alln"),
                _BCE,
                Row("BCE+DW", "bce-dw"),
                Row("BCE+L1R", "bce-l1"),
                Row("BCE+L2R", "bce-l2"),
                Row("BCE+LS", "bce-ls"),
                Row("BCE+N-LS", "bce-nls"),
                Row("ROLE", "role"),
                Row("ROLE+LI", "role", linear_init=True),
                Row("LL-R", "ll-r"),
                Row("LL-Ct", "ll-ct"),
                Row("LL-Cp", "ll-cp"),
                Row("BCE+EntMax", "entmax"),
                Row("BCE+EntMax+APL", "entmax-apl"),
                _OPML_SP,
                _OPML_PLUS,
            ),
        ),
        Experiment(
            name="table3",
            title="Common losses on single positives",
            caption="Test mAP of losses that take every unobserved label for negative.",
            rows=(_BCE, Row("Focal", "focal"), Row("ASL", "asl"), Row("ZLPR", "zlpr"), _OPML),
        ),
        Experiment(
            name="table4",
            title="The parts of OPML-SP",
            caption="Test mAP from single positives: OPML, each part of OPML-SP added alone, and all three together.",
            rows=(
                _OPML,
                _OPML_HR,
                Row("OPML + smoothing", "opml-soft"),
                Row("OPML + correction", "opml-correct"),
                _OPML_SP,
                _OPML_PLUS,
            ),
        ),
        Experiment(
            name="table5",
            title="Common losses on full labels",
            caption="Test mAP where all labels of the training images are known.",
            rows=(
                _FULL,
                Row("Focal", "focal", labels="full"),
                Row("ASL", "asl", labels="full"),
                Row("ZLPR", "zlpr", labels="full"),
                Row("OPML", "opml", labels="full"),
            ),
        ),
        Experiment(
            name="table-newer",
            title="Methods since the paper",
            caption="Test mAP from single positives of methods that came after the paper or stand beside it, and of "
            "some that the paper compares.",
            rows=(
                _FULL,
                Row("BCE", "bce-1p-alln"),
                _BCE,
                _KNOWN,
                Row("BCE+PW", "bce-pw"),
                Row("BCE+PW (bounded)", "bce-pw-bound"),
                Row("Hill", "hill"),
                Row("SPLC", "splc"),
                Row("P-ASL", "p-asl"),
                Row("Two-way", "two-way"),
                Row("LL-R", "ll-r"),
                Row("LL-R + BoostLU", "ll-r-boostlu"),
                Row("BCE+EntMax", "entmax"),
                Row("MIME (its rule)", "mime"),
                Row("GR", "gr"),
                Row("CRISP (our reading)", "crisp"),
                _OPML_SP,
                _OPML_PLUS,
            ),
        ),
        Experiment(
            name="fig-confidence",
            title="Confidence at the true positives",
            caption="How confident a model is of the labels that are true: the positive labels of the test set by "
            "predicted probability, mean of the seeds.",
            picture="confidence",
            rows=(_BCE, _OPML),
        ),
        Experiment(
            name="fig-epochs",
            title="Epoch after epoch",
            caption="Validation mAP after each epoch, mean of the seeds, with a band of one standard deviation. The "
            "paper shows test mAP, but here test images are scored only once, at the end.",
            picture="epochs",
            rows=(_BCE, _OPML, _OPML_HR),
            epochs=40,
        ),
        Experiment(
            name="fig-learning",
            title="While the network learns",
            caption="Validation mAP after each epoch of the last stage, mean of the seeds, of a method of every kind.",
            picture="epochs",
            rows=(_FULL, _BCE, Row("LL-R", "ll-r"), Row("BCE+EntMax", "entmax"), _OPML, _OPML_SP, _OPML_PLUS),
        ),
        Experiment(
            name="fig-alpha-beta",
            title="The choice of α̃ and β̃",
            caption="Test mAP of OPML from single positives; the best pair is framed.",
            picture="grid",
            rows=(_OPML,),
            sweep={"alpha": _TILDE, "beta": _TILDE},
            seeds=1,
        ),
        Experiment(
            name="fig-lambda",
            title="The choice of λ",
            caption="Test mAP of OPML with the high-rank penalty, from single positives; the bars show one standard "
            "deviation, the dot the best.",
            picture="curve",
            rows=(_OPML_HR,),
            sweep={"high_rank_weight": (1e-5, 1e-4, 1e-3, 1e-2, 2e-2, 5e-2)},
        ),
        Experiment(
            name="fig-known",
            title="From few labels to all",
            caption="Test mAP over the share of all labels, positive and negative, that is known of the training "
            "images, drawn at random.",
            picture="shares",
            rows=tuple(
                Row(info.title, name, labels="fraction")
                for name, info in METHODS.items()
                if info.observes == "as given"
            ),
            sweep={"data.known": (0.1, 0.25, 0.5, 0.75, 1.0)},
        ),
        Experiment(
            name="fig-gradients",
            title="Gradients of BCE and OPML",
            caption="The gradient of the loss with respect to a score. With OPML, that of a negative label depends on "
            "the other negatives as well: once one of them scores high, the others are left alone.",
            picture="gradients",
        ),
        Experiment(
            name="fig-gradcam",
            title="Where the model sees each label",
            caption="Class activation maps of training images with one observed label (blue), and the probability of "
            "each label. Green: labels that the ground truth has, but that were not observed. Orange: labels that the "
            "model finds and the ground truth does not have.",
            picture="activations",
            rows=(_OPML_SP,),
            seeds=1,
        ),
    )
}


class Spread(NamedTuple):
    """Mean and standard deviation of test mAP over runs, from 0 to 100; no deviation of a single run."""

    mean: float
    std: float | None = None

    def __str__(self) -> str:
        return f"{self.mean:.2f}" if self.std is None else f"{self.mean:.2f} ({self.std:.2f})"


def published(labels: str, method: str, dataset: str) -> Spread | None:
    """What the paper reports, or None where it reports nothing.

    >>> str(published("single", "opml-sp", "voc2012"))
    '89.20 (0.03)'
    """
    values = _numbers()[labels].get(method, {}).get(dataset)
    return None if values is None else Spread(*values)


def published_best(method: str, dataset: str) -> dict[str, float]:
    """The values of a method that the paper found best on a dataset; empty where it says nothing.

    >>> published_best("opml", "voc2012")
    {'alpha': 0.7, 'beta': 0.4}
    """
    best: dict[str, float] = _numbers()["best"].get(method, {}).get(dataset, {})
    return best


def source() -> str:
    """Which paper, and how its numbers were made."""
    return f"{_numbers()['source']}; {_numbers()['setting']}; {_numbers()['since']}"


@cache
def _numbers() -> dict[str, Any]:
    return tomllib.loads(files(__package__).joinpath("published.toml").read_text("utf-8"))


LEARNING_RATES = {"linear": (1.0, 10 / 3), "finetune": (0.3, 1.0, 3.0)}  # times that of the last stage's settings
SLOW_LEARNING_RATES = {**LEARNING_RATES, "linear": (1 / 3, 1.0)}
SLOW = ("gr",)  # methods that pull unknown labels up from the first step on, and go too far where steps are large

_TILDES: Grid = {"alpha": (0.1, 0.4, 0.7), "beta": (0.4, 0.7, 0.9)}
_DELTA: Grid = {"delta": (5e-4, 2e-3, 5e-3)}

GRIDS: Mapping[str, Grid] = {  # methods that are not here have nothing to choose but the learning rate
    "bce-l1": {"weight": (1e-6, 1e-5, 1e-4)},
    "bce-l2": {"weight": (1e-5, 1e-4, 1e-3)},
    "focal": {"alpha": (0.25, 0.5)},  # 0.5 weighs positives and negatives alike
    "asl": {"gamma_positive": (0.0, 1.0)},
    "ll-r": _DELTA,
    "ll-r-boostlu": _DELTA,
    "ll-ct": _DELTA,
    "ll-cp": _DELTA,
    "entmax": {"entropy_weight": (0.1, 0.2, 0.4)},
    "entmax-apl": {"entropy_weight": (0.1, 0.2, 0.4), "weight": (0.02, 0.2)},
    "gr": {"last_slope": (2.0, 10.0), "last_shift": (-8.0, -2.0)},
    "crisp": {"warmup": (1, 3, 5)},
    "hill": {"turn": (1.5, 2.0)},
    "splc": {"threshold": (0.6, 0.8)},
    "p-asl": {"left_out": (0.5, 5.0), "gamma_unknown": (2.0, 4.0)},
    "two-way": {"positive_temperature": (1.0, 4.0)},
    "mime": {"threshold": (0.5, 0.8, 0.95)},
    "opml": _TILDES,
    "opml-hr": _TILDES,
    "opml-soft": {**_TILDES, "gamma_gradient": (False, True)},
    "opml-correct": {**_TILDES, "label_num": (0.8, 1.6)},
    "opml-sp": {**_TILDES, "gamma_gradient": (False, True), "label_num": (0.8, 1.6)},
}


def grid_of(method: str, *, mode: str, lr: float) -> Grid:
    """All that is searched for a method whose learning rate is `lr` by default.

    >>> grid_of("asl", mode="linear", lr=3e-4)
    {'gamma_positive': (0.0, 1.0), 'lr': (0.0003, 0.001)}
    """
    factors = (SLOW_LEARNING_RATES if method in SLOW else LEARNING_RATES)[mode]
    rates = tuple(float(f"{factor * lr:.2g}") for factor in factors)
    return {**GRIDS.get(method, {}), "lr": rates}


TITLES = preset_titles()  # of the datasets that have settings of their own
_FORMATS = {"voc2012": "voc", "coco2014": "coco", "nuswide": "nuswide", "cub": "cub", "digits": "digits"}


@dataclass(frozen=True)
class Dataset:
    """A dataset to run an experiment on."""

    name: str  # a key of `TITLES`, or the name of the file or folder
    source: str  # a path, or "digits"
    format: str = "auto"  # of the reader

    @property
    def title(self) -> str:
        return TITLES.get(self.name, self.name)

    @property
    def identity(self) -> str:
        """What tells it from any other; a dataset that everybody knows is the same wherever it is kept."""
        return self.name if self.name in TITLES else str(real(as_path(self.source)))

    @property
    def argument(self) -> str:
        """How to name it on a command line, but for where it is kept."""
        return self.name if self.source == self.name else f"{self.name}=PATH" if self.name in TITLES else "PATH"


def parse_dataset(text: str) -> Dataset:
    """The dataset that a user means by NAME=PATH, by "digits", or by a path alone, whose layout then tells its name.

    >>> parse_dataset("digits")
    Dataset(name='digits', source='digits', format='digits')
    >>> parse_dataset("voc2021=VOCdevkit")
    Traceback (most recent call last):
    onepair.errors.DataError: there is no dataset 'voc2021'; did you mean voc2012?
    """
    if text == "digits":  # also beside a folder of that name, as one that the results are written to
        return Dataset("digits", "digits", "digits")
    if exists(as_path(text)):
        return _found_at(text)
    name, named, path = text.partition("=")
    if name not in TITLES and name not in READERS:
        raise DataError(f"there is no {'dataset' if named else 'dataset or path'} {name!r}; {_advice(name)}")
    format = _FORMATS.get(name, name)
    if not named:
        raise DataError(f"where is {name}? Give its path, as {name}=PATH; {_origin(format)}")
    if not exists(as_path(path)):
        raise DataError(f"{path}: there is no such file or folder; {_origin(format)}")
    return Dataset(name if name in TITLES else _own_name(path), path, format)


def _found_at(path: str) -> Dataset:
    formats = [reader.name for reader in READERS.values() if not is_url(path) and reader.detect(Path(path))]
    for name, format in _FORMATS.items():
        if formats == [format] and Path(path).is_dir():
            return Dataset(name, path, format)
    return Dataset(_own_name(path), path)  # reading it says what is wrong, if anything is


def _own_name(path: str) -> str:
    """The name of a file or folder, but never that of a dataset with settings and published numbers of its own."""
    stem = Path(path).stem
    return f"my-{stem}" if stem in TITLES else stem


def _advice(name: str) -> str:
    near = get_close_matches(name, [*TITLES, *READERS], n=1)
    return f"did you mean {near[0]}?" if near else f"name one of {', '.join(TITLES)} as NAME=PATH, or a path"


def _origin(format: str) -> str:
    reader = READERS[format]
    return f"it is {reader.layout}, made of {reader.origin}"


Mode = Literal["linear", "finetune", "linear-init"]
OBSERVE = {"single": "single-positive", "full": "given", "fraction": "fraction"}  # by the labels of a row

PAPER = "resnet50.tv_in1k"  # the backbone, where no preset names one


@dataclass(frozen=True)
class Overrides:
    """Settings that win over those of a dataset's preset."""

    mode: Mode = "finetune"
    backbone: str | None = None
    epochs: int | None = None
    others: Sequence[Mapping[str, Any]] = ()  # nested settings, as of `parse_setting`


def make_config(
    dataset: Dataset, row: Row, values: Values, *, seed: int, overrides: Overrides, epochs: int | None = None
) -> Config:
    """The configuration of one run.

    Args:
        dataset, row: what is learned from what, with the settings of its preset, if there is one.
        values: options of the method, `lr` and other settings that win over those, as one point of a grid.
        seed: of the run; that of the observed labels is the published one.
        overrides: win over everything.
        epochs: of the experiment, where it has a number of its own.
    """
    settings = [nested(name, value) for name, value in values.items() if "." in name]
    options = {name: value for name, value in values.items() if name != "lr" and "." not in name}
    mode = "linear-init" if row.linear_init else overrides.mode
    chosen: dict[str, Any] = {
        "data": {
            "source": dataset.source,
            "format": dataset.format,
            "observe": OBSERVE[row.labels],
        },
        "model": {"mode": mode},
        "method": {"name": row.method, "options": options},
        "seed": seed,
    }
    if overrides.backbone is not None:
        chosen["model"]["backbone"] = overrides.backbone
    last: dict[str, Any] = {}
    if "lr" in values:
        last["optimiser"] = {"lr": values["lr"]}
    if length := overrides.epochs or epochs:
        last["epochs"] = length
    below = preset(dataset.name, row.method) if dataset.name in TITLES else {"model": {"backbone": PAPER}}
    below = merge([{"linear": {"protocol": "epochs"}}, below])
    return resolve_config(below, merge([chosen, {STAGES[mode][-1]: last}, *settings, *overrides.others]))
