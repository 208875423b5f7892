"""Backbones by name, where their weights come from, and a classifier's weights as a file."""

import difflib
from dataclasses import replace
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal

import safetensors
import safetensors.torch
import timm
import torch
from torch import Tensor, nn

from onepair import models
from onepair.data.images.decode import Preprocessing
from onepair.errors import ConfigError, ModelError
from onepair.files import write_atomically
from onepair.models.backbone import BACKBONES, Backbone

Weights = Literal["pretrained", "none"] | Path | None
State = dict[str, Tensor]


def create_backbone(name: str, *, weights: Weights = None, image_size: int | None = None) -> Backbone:
    """Make a backbone by its name, in evaluation mode and channels-last memory.

    Args:
        name: one of `BACKBONES`, for example "small-cnn"; or a network of timm's, for example "resnet50.tv_in1k".
        weights: a file (safetensors, or a state dict saved by torch); "none" for random ones; "pretrained" for those
            that timm downloads; None for those of an installed package if there is one, else "pretrained". Registered
            backbones begin with the weights that they are made with, unless this is a file.
        image_size: instead of the size the weights were trained with.

    Examples:
        >>> backbone = create_backbone("small-cnn", weights="none", image_size=32)
        >>> backbone.training
        False
    """
    if name in BACKBONES:
        return _registered(name, weights, image_size)
    _require_known(name)
    packaged = models.packaged_weights(name) if weights is None else None
    download = weights == "pretrained" or (weights is None and packaged is None)
    network = _download(name, image_size) if download else _build(name, image_size)
    if packaged is not None:
        _load_in_order(network, packaged)
    elif weights is not None and weights not in ("none", "pretrained"):
        _load_by_name(network, Path(weights), name)
    network.to(memory_format=torch.channels_last)
    return Backbone(name, network, _preprocessing_of(network, image_size)).eval()


def _registered(name: str, weights: Weights, image_size: int | None) -> Backbone:
    network = BACKBONES[name].factory().to(memory_format=torch.channels_last)
    if weights == "pretrained":
        raise ModelError(f"{name} has no weights to download; leave --weights out, or name a file")
    if weights not in (None, "none"):
        _load_by_name(network, Path(weights), name)
    preprocessing = BACKBONES[name].preprocessing
    return Backbone(name, network, replace(preprocessing, size=image_size or preprocessing.size)).eval()


def parse_weights(text: str | None) -> Weights:
    """Where weights come from, as a user writes it: a word with a meaning, or a file."""
    if text is None or text == "auto":
        return None
    words: dict[str, Weights] = {"pretrained": "pretrained", "none": "none"}
    return words.get(text) or Path(text)


def read_state(path: Path) -> State:
    """Read weights from a safetensors file, or a dict of tensors saved by torch; nothing else is ever unpickled."""
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise ModelError(f"{path}: no such file") from None
    except (safetensors.SafetensorError, UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise ModelError(f"{path}: holds no readable weights; give a safetensors file or a torch state dict") from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise ModelError(f"{path}: is not a plain state dict, a dict of tensors by name")
    return state


def _require_known(name: str) -> None:
    known = [*BACKBONES, *timm.list_models(), *timm.list_pretrained()]
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {', '.join(nearest)}?" if nearest else "timm.list_models() lists all names"
        raise ConfigError(f"there is no backbone {name!r}; {hint}")


def _build(name: str, image_size: int | None, *, pretrained: bool = False) -> nn.Module:
    fixed_size = timm.get_pretrained_cfg_value(name, "fixed_input_size")
    return timm.create_model(name, pretrained=pretrained, num_classes=0, img_size=image_size if fixed_size else None)


def _download(name: str, image_size: int | None) -> nn.Module:
    try:
        return _build(name, image_size, pretrained=True)
    except Exception as error:  # the hub, the network and timm each fail in their own way
        here = models.backbones_at_hand()
        advice = f"on this machine are those of --backbone {' or '.join(here)}" if here else models.INSTALL
        raise ModelError(
            f"the pretrained weights of {name} could not be downloaded ({type(error).__name__}); "
            f"{advice}; or take weights from a file with --weights FILE"
        ) from error


def _preprocessing_of(network: nn.Module, image_size: int | None) -> Preprocessing:
    config = _config(network)
    return Preprocessing(
        size=image_size or config["input_size"][-1],
        mean=tuple(config["mean"]),
        std=tuple(config["std"]),
        interpolation="bilinear" if config["interpolation"] == "bilinear" else "bicubic",
    )


def _config(network: nn.Module) -> dict[str, Any]:
    return getattr(network, "pretrained_cfg", {})


def _load_in_order(network: nn.Module, path: Path) -> None:
    """Load weights that come in the network's order under other names, followed by a classifier of two tensors."""
    own, given = network.state_dict(), list(read_state(path).values())[:-2]
    if [tensor.shape for tensor in own.values()] != [tensor.shape for tensor in given]:
        raise ModelError(f"{path}: its {len(given)} weights do not have the shapes of this backbone's {len(own)}")
    network.load_state_dict(dict(zip(own, given, strict=True)))


def _load_by_name(network: nn.Module, path: Path, name: str) -> None:
    own, given = network.state_dict(), _without_classifier(read_state(path), network)
    wrong = {
        "missing": [key for key in own if key not in given],
        "unexpected": [key for key in given if key not in own],
        "of another shape": [key for key in own if key in given and own[key].shape != given[key].shape],
    }
    if any(wrong.values()):
        counts = (f"{len(keys)} {kind} ({_first(keys)})" for kind, keys in wrong.items() if keys)
        raise ModelError(f"{path} does not fit {name}: of its {len(own)} weights, {', '.join(counts)}")
    network.load_state_dict(given)


def _without_classifier(state: State, network: nn.Module) -> State:
    classifier = _config(network).get("classifier") or ()
    heads = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return {key: tensor for key, tensor in state.items() if not key.startswith(tuple(f"{head}." for head in heads))}


def _first(keys: list[str], count: int = 3) -> str:
    return ", ".join(keys[:count]) + (", …" if len(keys) > count else "")


def save_weights(path: Path, state: State) -> None:
    """Write a state dict as safetensors; the file is complete or not there."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    write_atomically(path, safetensors.torch.save(plain))
