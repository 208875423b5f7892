"""The models that give a solved run its out-of-fold scores: a linear layer for each fold."""

import copy
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from onepair.labels import Indices
from onepair.runs.folder import RunError

if TYPE_CHECKING:
    from onepair.models import Classifier

NAME = "folds.safetensors"


@dataclass(frozen=True, eq=False)
class FoldModels:
    """K linear layers on the same features, each fitted without one fold of the training images."""

    coef: NDArray[np.float32]  # (K, L, D)
    intercept: NDArray[np.float32]  # (K, L)
    fold: Indices  # (N,), of every training image

    def __len__(self) -> int:
        return len(self.coef)

    def classifier(self, whole: "Classifier", number: int) -> "Classifier":
        """The classifier of all images with the layer of one fold in its place."""
        import torch

        head = copy.deepcopy(whole.head)
        head.load_state_dict(
            {"weight": torch.from_numpy(self.coef[number]), "bias": torch.from_numpy(self.intercept[number])}
        )
        other = copy.copy(whole)
        other._modules = {**whole._modules, "head": head}
        return other

    def write(self, folder: Path) -> None:
        import torch

        from onepair.models import save_weights

        parts = {"coef": self.coef, "intercept": self.intercept, "fold": self.fold.astype(np.int64)}
        save_weights(folder / NAME, {name: torch.from_numpy(part) for name, part in parts.items()})


def read_folds(folder: Path, *, rows: int, classes: int) -> FoldModels | None:
    """What `write` wrote, if anything."""
    path = folder / NAME
    if not path.exists():
        return None
    from onepair.models.weights import WeightsError, read_state

    try:
        state = {name: tensor.numpy() for name, tensor in read_state(path).items()}
        coef, intercept, fold = (state[name] for name in ("coef", "intercept", "fold"))
    except (WeightsError, KeyError):
        raise RunError(f"{path}: is damaged; train the run anew with --restart") from None
    fits = coef.ndim == 3 and intercept.shape == coef.shape[:2] == (len(coef), classes) and fold.shape == (rows,)
    if not fits or not (np.isfinite(coef).all() and np.isfinite(intercept).all()) or fold.max(initial=0) >= len(coef):
        raise RunError(f"{path}: does not fit the run; train it anew with --restart")
    return FoldModels(coef, intercept, fold)
