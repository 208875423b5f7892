"""onepair: multi-label classifiers from incomplete labels, down to a single positive per sample."""

import logging
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onepair import hf, lightning  # noqa: F401 (modules, which a star would import with all that they need)
    from onepair.data import LabelTable, read_dataset, register_reader, write_table
    from onepair.data.images.decode import Preprocessing
    from onepair.dataset import Dataset
    from onepair.errors import OnepairError
    from onepair.finding import find_by_blocks, rank
    from onepair.inference.prediction import Model, load
    from onepair.label_matrix import LabelMatrix
    from onepair.labels import (
        NEGATIVE,
        POSITIVE,
        UNKNOWN,
        observe_fraction,
        observe_positives,
        split_validation,
        validate_labels,
    )
    from onepair.linear.estimator import CalibratedMultiLabel, OPMLClassifier
    from onepair.losses import (
        OPMLLoss,
        OPMLPlusLoss,
        SoftOPMLLoss,
        ZLPRLoss,
        high_rank_penalty,
        opml_loss,
        opml_plus_loss,
        soft_opml_loss,
        zlpr_loss,
    )
    from onepair.methods import create_method
    from onepair.metrics import average_precision, mean_average_precision
    from onepair.models import create_backbone, register_backbone
    from onepair.probability import fit_decisions
    from onepair.torch_metrics import MeanAveragePrecision
    from onepair.training.callbacks import Callback
    from onepair.training.hardware import Hardware
    from onepair.workflow import Run, compare, reproduce, train, tune

__version__ = "0.1.0"

logging.getLogger("onepair").addHandler(logging.NullHandler())  # quiet, unless a program asks for messages

# Where each public name lives. A name is imported when it is first used, so that `import onepair` stays instant.
_HOMES = {
    "onepair.data": ["LabelTable", "read_dataset", "register_reader", "write_table"],
    "onepair.data.images.decode": ["Preprocessing"],
    "onepair.errors": ["OnepairError"],
    "onepair.finding": ["find_by_blocks", "rank"],
    "onepair.label_matrix": ["LabelMatrix"],
    "onepair.models": ["create_backbone", "register_backbone"],
    "onepair.probability": ["fit_decisions"],
    "onepair.linear.estimator": ["CalibratedMultiLabel", "OPMLClassifier"],
    "onepair.labels": [
        "NEGATIVE",
        "POSITIVE",
        "UNKNOWN",
        "observe_fraction",
        "observe_positives",
        "split_validation",
        "validate_labels",
    ],
    "onepair.losses": [
        "OPMLLoss",
        "OPMLPlusLoss",
        "SoftOPMLLoss",
        "ZLPRLoss",
        "high_rank_penalty",
        "opml_loss",
        "opml_plus_loss",
        "soft_opml_loss",
        "zlpr_loss",
    ],
    "onepair.methods": ["create_method"],
    "onepair.metrics": ["average_precision", "mean_average_precision"],
    "onepair.dataset": ["Dataset"],
    "onepair.torch_metrics": ["MeanAveragePrecision"],
    "onepair.inference.prediction": ["Model", "load"],
    "onepair.workflow": ["Run", "compare", "reproduce", "train", "tune"],
    "onepair.training.callbacks": ["Callback"],
    "onepair.training.hardware": ["Hardware"],
}
_MODULES = ("hf", "lightning")  # for the loops of others
_HOME_OF = {name: home for home, names in _HOMES.items() for name in names}

__all__ = [
    "NEGATIVE",
    "POSITIVE",
    "UNKNOWN",
    "CalibratedMultiLabel",
    "Callback",
    "Dataset",
    "Hardware",
    "LabelMatrix",
    "LabelTable",
    "MeanAveragePrecision",
    "Model",
    "OPMLClassifier",
    "OPMLLoss",
    "OPMLPlusLoss",
    "OnepairError",
    "Preprocessing",
    "Run",
    "SoftOPMLLoss",
    "ZLPRLoss",
    "average_precision",
    "compare",
    "create_backbone",
    "create_method",
    "find_by_blocks",
    "fit_decisions",
    "high_rank_penalty",
    "load",
    "mean_average_precision",
    "observe_fraction",
    "observe_positives",
    "opml_loss",
    "opml_plus_loss",
    "rank",
    "read_dataset",
    "register_backbone",
    "register_reader",
    "reproduce",
    "soft_opml_loss",
    "split_validation",
    "train",
    "tune",
    "validate_labels",
    "write_table",
    "zlpr_loss",
]


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return import_module(f"onepair.{name}")
    if name not in _HOME_OF:
        raise AttributeError(f"module 'onepair' has no attribute {name!r}")
    return getattr(import_module(_HOME_OF[name]), name)


def __dir__() -> list[str]:
    return sorted([*globals(), *__all__, *_MODULES])
