"""Networks: backbones by name, their weights, and the classifier on top."""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from onepair.models.backbone import (
        BACKBONES,
        Backbone,
        Classifier,
        IdentityBackbone,
        SmallCNN,
        Spatial,
        TextBackbone,
        register_backbone,
    )
    from onepair.models.weights import (
        State,
        create_backbone,
        parse_weights,
        read_state,
        save_weights,
    )

__all__ = [
    "BACKBONES",
    "Backbone",
    "Classifier",
    "IdentityBackbone",
    "SmallCNN",
    "Spatial",
    "State",
    "TextBackbone",
    "create_backbone",
    "parse_weights",
    "read_state",
    "register_backbone",
    "save_weights",
]

_IN_WEIGHTS = ("State", "create_backbone", "parse_weights", "read_state", "save_weights")


def __getattr__(name: str) -> Any:
    """Import what is asked for, and torch with it; to look for weights on this machine needs neither."""
    if name not in __all__:
        raise AttributeError(f"module 'onepair.models' has no attribute {name!r}")
    return getattr(import_module(f"onepair.models.{'weights' if name in _IN_WEIGHTS else 'backbone'}"), name)
