"""What the training loop may expect of every method, which methods there are, and what is known of each."""

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, Literal, TypeVar

import numpy as np
import torch
from numpy.typing import ArrayLike
from torch import Tensor, nn

from onepair.errors import ConfigError, UserError
from onepair.label_matrix import LabelMatrix, limit, too_many
from onepair.labels import POSITIVE, validate_labels
from onepair.losses import Loss
from onepair.metrics import ScoreBlocks, one_block
from onepair.plugins import Registry, nearest


class SparseObserved:
    """What a method sees of the observed labels (N, L) where these are kept by their entries: `[rows]`, as of a tensor.

    They stay in the memory of the machine; the labels of a batch are made dense, and moved to where its rows are.
    """

    device = torch.device("cpu")

    def __init__(self, labels: LabelMatrix) -> None:
        self.labels = labels

    @property
    def shape(self) -> torch.Size:
        return torch.Size(self.labels.shape)

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, rows: Tensor) -> Tensor:
        return torch.from_numpy(self.labels[rows.cpu().numpy()]).to(rows.device, non_blocking=True)


class SparseCorrected(nn.Module):
    """Observed labels, some of which are corrected: a method's state, kept by the entries that differ."""

    def __init__(self, observed: SparseObserved) -> None:
        super().__init__()
        self._observed = observed
        self._corrected = observed

    def __getitem__(self, rows: Tensor) -> Tensor:
        return self._corrected[rows]

    @property
    def labels(self) -> LabelMatrix:
        return self._corrected.labels

    def take(self, corrected: LabelMatrix) -> None:
        """Take labels that differ from the observed ones by more positives."""
        self._corrected = SparseObserved(corrected)

    def get_extra_state(self) -> dict[str, Tensor]:
        rows, columns = (torch.from_numpy(each) for each in self.labels.positives())
        return {"rows": rows, "columns": columns}

    def set_extra_state(self, state: Any) -> None:
        self.take(self._observed.labels.with_entries(state["rows"].numpy(), state["columns"].numpy(), POSITIVE))


Observed = Tensor | SparseObserved


def as_observed(labels: LabelMatrix) -> Observed:
    """Observed labels as `Method.begin` takes them: dense, unless they are too many."""
    return SparseObserved(labels) if labels.is_large else torch.from_numpy(labels.dense())


def count(observed: Observed, value: int) -> Tensor:
    """How many labels of each class, (L,), hold a value."""
    if isinstance(observed, SparseObserved):
        return torch.from_numpy(observed.labels.count(value))
    return (observed == value).sum(0)


class Method(nn.Module):
    """A loss, plus what happens to its targets between epochs.

    The loop calls `begin` once, `forward` with every batch, and `end_epoch` after every epoch. All state but the labels
    is in the `state_dict`; to resume, call `begin` with the same labels, then `load_state_dict`. The batch is of all
    processes together, and `rows`, `scores` and the labels are on one device.
    """

    needs_scores: bool = False  # True: `end_epoch` is given the scores of the whole training set
    keeps_matrix: bool = False  # True: has a number for every cell (N, L), so that there must not be too many of them
    needs_priors: bool = False  # True: `take_priors` is called before `end_epoch`, after epochs 1, 2, 4, 8, …
    lr_multiplier: float = 1.0  # of the learning rate, for the method's own parameters
    sums_labels: bool = False  # True: the loss of a row sums over its labels; False: it is their mean
    boost: float = 1.0  # of the classifier's activations above 0 at every place of the image; 1: it is not needed

    observed: Observed  # (N, L) int8 of 1, 0, -1; never changed

    def begin(self, observed: Observed) -> None:
        """Take the (N, L) observed labels and make all state that depends on their shape.

        Where they are too many for a matrix they come as `SparseObserved`, which is indexed by rows as a tensor is.
        """
        if isinstance(observed, SparseObserved):
            if not self.keeps_matrix:
                self.observed = observed
                return
            self.require_room(*observed.shape)
            observed = torch.from_numpy(observed.labels.dense())
        if observed.ndim != 2 or observed.dtype != torch.int8:
            raise ValueError(
                f"observed must be a matrix (samples, classes) of int8, got {tuple(observed.shape)} of {observed.dtype}"
            )
        self.register_buffer("observed", observed, persistent=False)  # `begin` makes it anew

    def require_room(self, rows: int, classes: int) -> None:
        """Refuse labels that are too many for a method that has a number for each of them."""
        if self.keeps_matrix and too_many(rows, classes):
            raise UserError(
                f"this method has a number for each of {classes:,} labels of each of {rows:,} images, and there can be "
                f"{limit():,} of them; choose another method, as opml-plus"
            )

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        """The loss of a batch: (B, L) logits of the samples `rows`, (B,) int64 indices into the observed labels."""
        raise NotImplementedError

    def penalty(self, classifier: nn.Module) -> Tensor | None:
        """What the method adds to the loss for the classifier's weights, if anything."""
        return None

    def take_priors(self, priors: Tensor) -> None:
        """Take an estimate (L,) of the share of positives of every class, made on other images after an epoch."""

    def end_epoch(self, epoch: int, scores: Tensor | ScoreBlocks | None) -> None:
        """Learn from an epoch, counted from 1; `scores` are (N, L) logits if `needs_scores`, else None.

        They come in blocks of rows where the observed labels are `SparseObserved`.
        """


class FixedTargets(Method):
    """A loss of the observed labels; nothing happens between epochs."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        self.loss = loss

    def forward(self, logits: Tensor, rows: Tensor) -> Tensor:
        loss: Tensor = self.loss(logits, self.observed[rows])
        return loss


class EpochAware(Method):
    """A method that does something else in every epoch, or from some epoch on."""

    finished_epochs: Tensor

    def begin(self, observed: Observed) -> None:
        super().begin(observed)
        self.register_buffer("finished_epochs", torch.zeros((), dtype=torch.int64, device=observed.device))
        self._finished: int | None = 0  # the same at hand: to ask a GPU for it in every step would hold it up

    @property
    def finished(self) -> int:
        """How many epochs are over: in epoch t = 1, 2, … it is t - 1."""
        if self._finished is None:
            self._finished = int(self.finished_epochs)
        return self._finished

    def _load_from_state_dict(self, *arguments: Any) -> None:  # also called where the method is part of a module
        self._finished = None
        super()._load_from_state_dict(*arguments)

    def end_epoch(self, epoch: int, scores: Tensor | ScoreBlocks | None) -> None:
        self.finished_epochs.fill_(epoch)
        self._finished = epoch


class MatrixMethod(Method):
    """A method that keeps a number for every label of every sample, and so sees the observed labels as a matrix."""

    keeps_matrix = True

    observed: Tensor


def blocks_of(scores: Tensor | ScoreBlocks | None) -> ScoreBlocks:
    """The scores in blocks: a matrix is one."""
    if scores is None or isinstance(scores, Tensor):
        return one_block(at_least_single(require_scores(scores)).cpu().numpy())
    return scores


def require_scores(scores: Tensor | ScoreBlocks | None) -> Tensor:
    """The scores as one matrix, or an error that says whose duty they are."""
    if not isinstance(scores, Tensor):
        given = type(scores).__name__
        raise ValueError(f"this method needs the scores of the training set after every epoch, but got {given}")
    return scores


def at_least_single(logits: Tensor) -> Tensor:
    """The logits in float32 or better, before anything is computed from them."""
    return logits.to(torch.promote_types(logits.dtype, torch.float32))


def highest_scored(scores: Tensor, candidates: Tensor, count: int) -> Tensor:
    """The mask of the `count` highest-scored candidates, of all if there are fewer; among equals the first win.

    Args:
        scores: finite numbers, of any shape.
        candidates: mask of the cells to choose from, of the same shape.
        count: how many to choose.

    Examples:
        >>> highest_scored(torch.tensor([3.0, 2.0, 2.0, 1.0]), torch.tensor([False, True, True, True]), 1)
        tensor([False,  True, False, False])
    """
    if count == 0:
        return torch.zeros_like(candidates)
    # Selecting the lowest score to be chosen is an order of magnitude faster than sorting all of them.
    values = scores.masked_fill(~candidates, -torch.inf).flatten()
    lowest = values.kthvalue(max(len(values) - count, 0) + 1).values
    above, level = values > lowest, values == lowest
    first = level & (level.cumsum(0) <= count - above.sum())
    return (above | first).view_as(candidates) & candidates


def highest_scored_per_class(scores: Tensor, candidates: Tensor, counts: Sequence[int]) -> Tensor:
    """`highest_scored` in every column of an (N, L) matrix, each with a count of its own."""
    columns = zip(scores.T.contiguous(), candidates.T.contiguous(), counts, strict=True)
    return torch.stack([highest_scored(*column) for column in columns], dim=1)


Observes = Literal["as given", "single positive and all negatives"]
MethodClass = TypeVar("MethodClass", bound=type[Method])


@dataclass(frozen=True)
class MethodInfo:
    """What is known of a method before one is made."""

    name: str
    title: str  # as in the paper's tables
    paper: str
    equation: str
    description: str
    observes: Observes  # the labels that the loop hands over
    build: type[Method]
    convex: bool = False  # whether the loss is convex in the scores while its targets stay
    rounds: int = 1  # solutions on fixed features, between which targets are made anew; 0: it needs many small steps

    @property
    def options(self) -> tuple[str, ...]:
        """The names of all options: the keywords of the constructor."""
        return tuple(self._keywords)

    @property
    def defaults(self) -> Mapping[str, object]:
        """The value of every option that need not be given."""
        return MappingProxyType(
            {name: keyword.default for name, keyword in self._keywords.items() if keyword.default is not keyword.empty}
        )

    def run_options(self, *, epochs: int, seed: int = 0) -> dict[str, int]:
        """The options that a run fills in, of those that the method has: its epochs and its seed."""
        return {name: value for name, value in (("epochs", epochs), ("seed", seed)) if name in self._keywords}

    @property
    def solvable(self) -> bool:
        """Whether a linear classifier on fixed features can be solved for by this method."""
        return self.rounds > 0 and not self.needs_places

    @property
    def needs_places(self) -> bool:
        """Whether the method needs the features of every place of an image, which pooled features do not have."""
        return "boost" in self._keywords

    @property
    def _keywords(self) -> dict[str, inspect.Parameter]:
        parameters = inspect.signature(self.build).parameters
        return {name: given for name, given in parameters.items() if given.kind is given.KEYWORD_ONLY}


METHODS = Registry[MethodInfo]("onepair.methods", "method")


def register(
    *,
    name: str,
    title: str,
    paper: str,
    equation: str,
    description: str,
    observes: Observes = "as given",
    convex: bool = False,
    rounds: int = 1,
) -> Callable[[MethodClass], MethodClass]:
    """Make a method known by its name; the keywords of its constructor are its options.

    A package that names its module as an entry point of the group `onepair.methods` is imported when it is needed.
    """

    def add(build: MethodClass) -> MethodClass:
        METHODS.add(name, MethodInfo(name, title, paper, equation, description, observes, build, convex, rounds))
        return build

    return add


def find_method(name: str) -> MethodInfo:
    """What is known of the method of this name."""
    if name not in METHODS:
        raise ConfigError(f"there is no method {name!r}; {nearest(name, METHODS)}")
    return METHODS[name]


def create_method(name: str, *, labels: ArrayLike | Tensor | LabelMatrix | None = None, **options: object) -> Method:
    """Make the method of this name.

    Args:
        name: as `onepair methods` lists it.
        labels: (N, L), all labels that it will ever see, with which it begins; numpy, torch or lists, of 1, 0, and
            -1 or NaN for unknown. Without them, call `begin` before the first batch.
        options: the keywords of the method's constructor.

    Raises:
        ConfigError: there is no such method, or option of it.

    Examples:
        >>> create_method("opml-sp", label_num=1.2).needs_scores
        True
        >>> create_method("opml", labels=[[1, float("nan")], [0, 1]]).observed
        tensor([[ 1, -1],
                [ 0,  1]], dtype=torch.int8)
        >>> create_method("opml-sb")
        Traceback (most recent call last):
        onepair.errors.ConfigError: there is no method 'opml-sb'; did you mean 'opml-sp'?
    """
    info = find_method(name)
    for option in options:
        if option not in info.options:
            raise ConfigError(f"method {name!r} has no option {option!r}; {nearest(option, info.options)}")
    for option in info.options:
        if option not in options and option not in info.defaults:
            raise ValueError(f"method {name!r} needs the option {option!r}")
    method = info.build(**options)
    if labels is not None:
        method.begin(_observed(labels))
    return method


def _observed(labels: ArrayLike | Tensor | LabelMatrix) -> Observed:
    if isinstance(labels, LabelMatrix) and too_many(*labels.shape):
        return SparseObserved(labels)
    matrix = labels.detach().cpu() if isinstance(labels, Tensor) else labels
    return torch.from_numpy(validate_labels(np.asarray(matrix)).copy())
