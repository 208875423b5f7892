"""Networks: from images to features, what stands in their place for vectors and texts, and the classifier on top."""

import copy
import difflib
import hashlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from onepair.data.images.decode import Preprocessing
from onepair.data.label_table import TFIDF, VECTORS, LabelTable
from onepair.errors import ConfigError, DataError, NoMapsError
from onepair.labels import Indices
from onepair.plugins import Registry

_PREFIX = "head.kernel."  # of its tensors in the weights of a classifier
Factory = TypeVar("Factory", bound=Callable[[], nn.Module])


class RegisteredBackbone(NamedTuple):
    """A network that is not one of timm's."""

    factory: Callable[[], nn.Module]
    preprocessing: Preprocessing


BACKBONES = Registry[RegisteredBackbone]("onepair.backbones", "backbone")


def register_backbone(name: str, preprocessing: Preprocessing) -> Callable[[Factory], Factory]:
    """Make an image network known by its name, for `create_backbone` and `--backbone`.

    A package that names its module as an entry point of the group `onepair.backbones` is imported when it is needed.

    Args:
        name: for example "my-net".
        preprocessing: how images are scaled and normalised; `image_size` of a run replaces its size.

    Returns:
        A decorator for a class or function without arguments that makes an `nn.Module`. The network takes normalised
        images (B, 3, S, S), gives features (B, D), and says D as `num_features`. Heat maps need `forward_features`
        and `forward_head`, as timm's networks have them.

    Examples:
        >>> @register_backbone("mean-colour", Preprocessing(8, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)))
        ... class MeanColour(nn.Module):
        ...     num_features = 3
        ...
        ...     def forward(self, images):
        ...         return images.mean((2, 3))
        >>> BACKBONES["mean-colour"].preprocessing.size
        8
    """

    def add(factory: Factory) -> Factory:
        BACKBONES.add(name, RegisteredBackbone(factory, preprocessing))
        return factory

    return add


class Spatial(NamedTuple):
    """The last features of a network that still have a place, and what the rest of it makes of them."""

    features: Tensor  # (B, C, h, w), ready to be differentiated by
    pooled: Tensor  # (B, D), the feature vectors


class Backbone(nn.Module):
    """An image network that ends in one pooled feature vector: (B, 3, S, S) normalised images to (B, D)."""

    _hashed: tuple[list[tuple[int, int]] | None, str] = (None, "")  # versions of the weights, and their hash

    def __init__(self, name: str, network: nn.Module, preprocessing: Preprocessing) -> None:
        super().__init__()
        self.name = name
        self.network = network
        self.preprocessing = preprocessing
        # Some heads of timm's have a layer of their own before the classes, and give what that makes of the features.
        self.feature_dim: int = getattr(network, "head_hidden_size", None) or network.num_features  # type: ignore[assignment]

    @property
    def device(self) -> torch.device:
        return next((weight.device for weight in self.parameters()), torch.device("cpu"))

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(images)
        return features

    def spatial(self, images: Tensor) -> Spatial:
        """The last features that still have a place, and the pooled ones: where class activation maps come from.

        They are what is pooled; but where that is a class token, they are the input of the last block, in which it
        reads the other tokens for the last time. In evaluation mode the pooled features are those of `forward`.
        """
        network: Any = self.network
        if not hasattr(network, "forward_features"):
            raise NoMapsError(f"there are no heat maps for {self.name}: it has no forward_features and forward_head")
        taken: list[Tensor] = []

        def take(features: Any) -> Tensor:
            """Start the gradient here: nothing before is differentiated."""
            grid = grid_of(network, features) if isinstance(features, Tensor) else None
            if grid is None or len(grid) != len(images) or grid.shape[2] != grid.shape[3]:
                raise NoMapsError(f"there are no heat maps for {self.name}: its features do not lie in a square grid")
            taken.append(grid.detach().requires_grad_())
            torch.set_grad_enabled(True)
            return _from_grid(network, taken[0], features)

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
        """Return the sha256 of the weights as they are now, computed anew only after a change to them."""
        state = self.network.state_dict()
        versions = [(tensor.data_ptr(), tensor._version) for tensor in state.values()]
        if versions == self._hashed[0]:
            return self._hashed[1]
        digest = hashlib.sha256()
        for name, tensor in state.items():
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
            digest.update(tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy())
        self._hashed = versions, digest.hexdigest()
        return self._hashed[1]


@register_backbone("small-cnn", Preprocessing(32, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5)))
class SmallCNN(nn.Sequential):
    """Four convolutions for images of a few dozen pixels, as those of the embedded dataset: it trains in seconds."""

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


class Classifier(nn.Module):
    """A backbone and one linear layer: (B, 3, S, S) normalised images to (B, L) logits.

    Args:
        backbone: the network below.
        classes: the names of the labels.
        boost: a factor on what speaks for a class (BoostLU, Kim et al. 2023). Unless it is 1, the linear layer is
            applied at every place of the last features, as a convolution of 1 × 1; what is above 0 is multiplied; and
            the logits are the mean over all places.
    """

    def __init__(self, backbone: Backbone, classes: Sequence[str], *, boost: float = 1.0) -> None:
        super().__init__()
        self.backbone = backbone
        self.head = nn.Linear(backbone.feature_dim, len(classes))
        self.classes = tuple(classes)
        self.boost = boost

    def forward(self, images: Tensor) -> Tensor:
        if self.boost == 1:
            logits: Tensor = self.head(self.backbone(images))
            return logits
        network: Any = self.backbone.network
        return self.of_features(network.forward_features(images))

    def of_features(self, features: Tensor) -> Tensor:
        """The logits of what `forward_features` of the network gives."""
        network: Any = self.backbone.network
        if self.boost == 1:
            logits: Tensor = self.head(network.forward_head(features))
            return logits
        at_places = self.head(grid_of(self.backbone.network, features).movedim(1, -1))
        return self.boosted(at_places).mean((1, 2))

    def boosted(self, activations: Tensor) -> Tensor:
        """Activations of classes, in any layout, with those above 0 multiplied."""
        return activations + (self.boost - 1) * activations.relu()


def grid_of(network: nn.Module, features: Tensor) -> Tensor:
    """Features or tokens as (B, C, h, w). Tokens that have no place, as that of the class, come before the others."""
    if features.ndim == 4:
        return features.movedim(-1, 1) if _channels_last(network) else features
    side = math.isqrt(features.shape[1])
    return features[:, -(side**2) :].transpose(1, 2).reshape(len(features), -1, side, side)


def _from_grid(network: nn.Module, grid: Tensor, features: Tensor) -> Tensor:
    """The way back, with the tokens that have no place taken from `features`."""
    if features.ndim == 4:
        return grid.movedim(1, -1) if _channels_last(network) else grid
    tokens = grid.flatten(2).transpose(1, 2)
    return torch.cat([features[:, : -tokens.shape[1]], tokens], dim=1)


def _channels_last(network: nn.Module) -> bool:
    return getattr(network, "output_fmt", None) == "NHWC"


class Kernel(nn.Module):
    """The kernel of features x (B, D) with M landmarks z: `exp(-|scale · (x - centre) - z|²)`, (B, M).

    Examples:
        >>> Kernel(torch.zeros(1), torch.ones(1), torch.tensor([[0.0], [2.0]]))(torch.tensor([[0.0]]))
        tensor([[1.0000, 0.0183]])
    """

    centre: Tensor  # (D,)
    scale: Tensor  # (D,)
    landmarks: Tensor  # (M, D), scaled

    def __init__(self, centre: Tensor, scale: Tensor, landmarks: Tensor) -> None:
        super().__init__()
        self.register_buffer("centre", centre)
        self.register_buffer("scale", scale)
        self.register_buffer("landmarks", landmarks)

    def forward(self, features: Tensor) -> Tensor:
        scaled = (features - self.centre) * self.scale
        squares = scaled.square().sum(1, keepdim=True) + self.landmarks.square().sum(1)
        return torch.exp(-(squares - 2 * scaled @ self.landmarks.T).clamp(min=0))


class KernelHead(nn.Linear):
    """A linear layer on the kernel of features: (B, D) to (B, L), with a weight for every landmark."""

    def __init__(self, kernel: Kernel, classes: int) -> None:
        super().__init__(len(kernel.landmarks), classes)
        self.kernel = kernel

    def forward(self, features: Tensor) -> Tensor:
        return super().forward(self.kernel(features))


def head_for(state: Mapping[str, Tensor], features: int, classes: int) -> nn.Linear:
    """The head of a classifier that these weights fit, as yet without them."""
    if not any(name.startswith(_PREFIX) for name in state):
        return nn.Linear(features, classes)
    landmarks = len(state.get(f"{_PREFIX}landmarks", ()))
    return KernelHead(Kernel(torch.zeros(features), torch.zeros(features), torch.zeros(landmarks, features)), classes)


WIDTH = 512  # of the vectors that texts become, at most
TERMS = 30_000  # words and pairs of words that count, at most


class IdentityBackbone(Backbone):
    """No network at all: what it gives is what it is given. It has no preprocessing, as it sees no image."""

    def __init__(self, width: int, name: str = VECTORS) -> None:
        nn.Module.__init__(self)
        self.name, self.network, self.feature_dim = name, nn.Identity(), width

    def vectors_of(self, table: LabelTable, rows: Indices) -> NDArray[Any]:
        """The vectors (n, D) of rows of a table."""
        if table.vectors is None:
            raise DataError(f"{table.root}: the model takes vectors; name those of the table with --features")
        if table.vectors.width != self.feature_dim:
            raise DataError(
                f"{table.vectors.source}: has vectors of {table.vectors.width:,} values, and the model was trained on "
                f"{self.feature_dim:,}; compute them as those were"
            )
        return table.vectors.take(rows)


class TextBackbone(IdentityBackbone):
    """Texts as vectors: their words and pairs of words, weighted by TF-IDF and brought to fewer dimensions by an SVD.

    What it has learned from texts are tensors, saved as those of any network, and the list of terms.

    Args:
        vocabulary: the V terms that count, in their order.
        width: D, of the vectors.
    """

    def __init__(self, vocabulary: Sequence[str], width: int) -> None:
        super().__init__(width, TFIDF)
        self.vocabulary = tuple(vocabulary)
        self.network.register_buffer("idf", torch.zeros(len(self.vocabulary), dtype=torch.float64))
        self.network.register_buffer("components", torch.zeros(width, len(self.vocabulary)))

    @classmethod
    def fit(cls, texts: Sequence[str]) -> "TextBackbone":
        """What texts teach: which terms there are, how rare each is, and which of them go together."""
        from sklearn.decomposition import TruncatedSVD

        vectorizer = _vectorizer(max_features=TERMS, min_df=2 if len(texts) >= 100 else 1)
        try:
            weights = vectorizer.fit_transform(texts)
        except ValueError:  # scikit-learn's own sentence speaks of its arguments
            raise DataError("the texts of the training rows hold no words, so that nothing can be learned") from None
        width = min(WIDTH, min(weights.shape) - 1)
        if width < 1:
            raise DataError("the texts of the training rows hold one word only, so that nothing can be learned")
        found = TruncatedSVD(width, random_state=0).fit(weights)
        backbone = cls(vectorizer.get_feature_names_out().tolist(), width)
        backbone.network.load_state_dict(
            {"idf": torch.from_numpy(vectorizer.idf_), "components": torch.from_numpy(found.components_)}
        )
        return backbone.eval()

    def encode(self, texts: Sequence[str]) -> NDArray[np.float32]:
        """The vectors (n, D) of texts, with values as large as a network's; zeros for one without a known term."""
        if len(texts) == 0:
            return np.empty((0, self.feature_dim), np.float32)
        vectorizer = _vectorizer(vocabulary={term: index for index, term in enumerate(self.vocabulary)})
        idf, components = (tensor.cpu().numpy() for tensor in (self._buffer("idf"), self._buffer("components")))
        vectorizer.idf_ = idf
        reduced = np.asarray(vectorizer.transform(texts) @ components.T, np.float32)
        length = np.linalg.norm(reduced, axis=1, keepdims=True)
        return np.asarray(reduced / np.where(length > 0, length, 1) * self.feature_dim**0.5, np.float32)

    def _buffer(self, name: str) -> Tensor:
        return self.network.get_buffer(name)

    def vectors_of(self, table: LabelTable, rows: Indices) -> NDArray[Any]:
        if table.texts is None:
            raise DataError(f"{table.root}: the model reads texts, and the table has no column text")
        return self.encode([table.texts[row] for row in rows.tolist()])


def _vectorizer(**options: Any) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer

    return TfidfVectorizer(ngram_range=(1, 2), sublinear_tf=True, **options)


_MOST_NAMED = 24  # stages in a sentence
_TOLERANCE = 1e-4  # of the largest feature


class FrozenPrefix(NamedTuple):
    """The part of a network before a stage, and what follows it."""

    backbone: Backbone  # a copy of what lies before the stage: from images to what the stage takes of them, (B, D)
    shape: tuple[int, ...]  # of what the stage takes of one image
    steps: tuple[str, ...]  # the modules that follow each other from the stage to the last features
    trainable: tuple[str, ...]  # the modules that learn: the steps, and what makes one vector of the features


class TrainableSuffix(nn.Module):
    """A classifier that begins at a stage: from what the stage takes (B, D) to logits (B, L).

    Its weights are the classifier's own, and those that lie before the stage do not learn.
    """

    def __init__(self, classifier: Classifier, prefix: FrozenPrefix) -> None:
        super().__init__()
        self.classifier, self.shape, self.steps = classifier, prefix.shape, prefix.steps
        network = classifier.backbone.network.requires_grad_(False)
        for name in prefix.trainable:
            network.get_submodule(name).requires_grad_()

    def forward(self, activations: Tensor) -> Tensor:
        given = _unflatten(activations, self.shape)
        return self.classifier.of_features(_after(self.classifier.backbone.network, self.steps, given))


def split_at(backbone: Backbone, stage: str) -> FrozenPrefix:
    """Split a backbone at one of its modules, as "blocks.5" of an EfficientNet or "layer4" of a ResNet.

    Which modules follow each other is seen in one forward pass: each takes what the one before has given. So any module
    will do that all information goes through; of others it is said that they will not.
    """
    if not hasattr(backbone.network, "forward_features"):
        raise ConfigError(f"{backbone.name} cannot be split: it has no forward_features and forward_head")
    was_training = backbone.network.training
    backbone.network.eval()
    try:
        with torch.no_grad():
            return _split(backbone, stage)
    finally:
        backbone.network.train(was_training)


def _split(backbone: Backbone, stage: str) -> FrozenPrefix:
    network: Any = backbone.network
    size = backbone.preprocessing.size
    probe = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0)).to(backbone.device)
    calls, features = _watch(network, lambda: network.forward_features(probe))
    steps = _steps(calls, stage, features)
    if steps is None:
        raise _no_stage(backbone.name, stage, [call.name for call in calls if _steps(calls, call.name, features)])
    head, expected = _watch(network, lambda: network.forward_head(features.clone()))
    prefix = _Prefix(network, steps)
    given = prefix.network.forward_features(probe)
    prefix.num_features = given[0].numel()
    shape, names = tuple(given.shape[1:]), [call.name for call in head if call.name]
    again = network.forward_head(_after(network, steps, _unflatten(prefix(probe), shape)))
    if (again - expected).abs().max() > _TOLERANCE * expected.abs().max():
        raise ConfigError(
            f"{backbone.name} cannot be split at {stage}, past which other information goes; name a whole stage"
        )
    before = Backbone(f"{backbone.name}-before-{stage}", prefix, backbone.preprocessing).eval()
    return FrozenPrefix(before, shape, steps, (*steps, *names))


class _Prefix(nn.Module):
    """The modules before a stage: from images to what the stage takes, each image's in one row."""

    num_features: int

    def __init__(self, network: nn.Module, steps: Sequence[str]) -> None:
        super().__init__()
        self.network: Any = copy.deepcopy(network)
        for name in steps:
            parent, _, child = name.rpartition(".")
            setattr(self.network.get_submodule(parent), child, nn.Identity())

    def forward(self, images: Tensor) -> Tensor:
        return _flatten(self.network.forward_features(images))


def _after(network: Any, steps: Sequence[str], given: Tensor) -> Tensor:
    """Compute the last features before the head of what a stage takes."""
    for name in steps:
        given = network.get_submodule(name)(given)
    return given


def _flatten(given: Tensor) -> Tensor:
    """Put each image into one row, the values of a place beside each other: so convolutions are fast."""
    return (given.movedim(1, -1) if given.ndim == 4 else given).flatten(1)


def _unflatten(rows: Tensor, shape: tuple[int, ...]) -> Tensor:
    """Go the way back, without a copy."""
    if len(shape) != 3:
        return rows.view(len(rows), *shape)
    channels, height, width = shape
    return rows.view(len(rows), height, width, channels).movedim(-1, 1)


@dataclass
class _Call:
    """One call of a module in a forward pass."""

    name: str
    begun: int  # counting beginnings and ends together
    taken: Any
    given: Any = None
    ended: int = -1


def _watch(network: nn.Module, action: Callable[[], Tensor]) -> tuple[list[_Call], Tensor]:
    """Return all calls of a network's modules during an action, in the order in which they begin, and its result."""
    calls: list[_Call] = []
    open_calls: list[_Call] = []
    clock = iter(range(10**9))

    def begin(name: str) -> Callable[..., None]:
        def note(_: nn.Module, inputs: tuple[Any, ...]) -> None:
            calls.append(_Call(name, next(clock), inputs[0] if inputs else None))
            open_calls.append(calls[-1])

        return note

    def end(_: nn.Module, __: Any, output: Any) -> None:
        call = open_calls.pop()
        call.given, call.ended = output, next(clock)

    hooks = [module.register_forward_pre_hook(begin(name)) for name, module in network.named_modules()]
    hooks += [module.register_forward_hook(end) for module in network.modules()]
    try:
        return calls, action()
    finally:
        for hook in hooks:
            hook.remove()


def _steps(calls: Sequence[_Call], stage: str, end: Tensor) -> tuple[str, ...] | None:
    """Return the modules that lead from a stage to the last features, the largest that begin with it; or None."""
    steps: list[_Call] = []
    following: _Call | None = next((call for call in calls if call.name == stage and stage), None)
    while following is not None:
        last = following
        steps.append(last)
        following = next((call for call in calls if call.begun > last.ended and call.taken is last.given), None)
    return tuple(call.name for call in steps) if steps and steps[-1].given is end else None


def _no_stage(name: str, stage: str, stages: Sequence[str]) -> ConfigError:
    outer = [each for each in dict.fromkeys(stages) if each.count(".") <= 1]
    near = difflib.get_close_matches(stage, outer, n=1)
    more = ", …" if len(outer) > _MOST_NAMED else ""
    there = f"did you mean {near[0]}?" if near else f"there are {', '.join(outer[:_MOST_NAMED])}{more}"
    return ConfigError(f"{name} cannot be trained from {stage!r}; {there}")
