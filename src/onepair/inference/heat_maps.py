"""Heat maps: where in an image a classifier sees a class."""

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional as F

from onepair.data.images.batches import normalise
from onepair.data.images.blocks import image_blocks, images_of
from onepair.data.label_table import LabelTable
from onepair.errors import NoMapsError
from onepair.inference.engine_selector import EngineSelector
from onepair.labels import Indices
from onepair.models import Backbone, Classifier, Spatial
from onepair.models.backbone import KernelHead, grid_of

_BATCH = 16  # images, where torch computes the whole network


def activation_maps(classifier: Classifier, images: Tensor, classes: Tensor | None = None) -> Tensor:
    """Compute class activation maps (B, C, h, w), in logits: the mean over each map is the logit of its class.

    Where features are averaged over their places before the linear layer, the logit of an image is the mean of the
    logits of its places, and one forward pass gives the maps of all classes (CAM, Zhou et al. 2016). Elsewhere it is
    Grad-CAM (Selvaraju et al. 2017) on the last features that have a place, without its ReLU, in the unit of logits and
    moved to the right mean; where features are averaged it would give the same.

    The classifier is used in evaluation mode, and left as it was.

    Args:
        classifier: on the device of the images.
        images: (B, 3, S, S), normalised.
        classes: (B, C), for each image those that are wanted; None for all.
    """
    with _evaluating(classifier):
        spatial = classifier.backbone.spatial(images)
        if classifier.boost != 1:
            return classifier.boosted(_cam(classifier.head, spatial, classes))
        plain = _is_mean(spatial) and not isinstance(classifier.head, KernelHead)
        return (_cam if plain else _grad_cam)(classifier.head, spatial, classes)


def evidence(maps: Tensor) -> Tensor:
    """Make activation maps (B, C, h, w) fit to be shown: how strongly each place speaks for a class, from 0 to 1.

    Places share what they say with their neighbours, since what a network sees at one place reaches beyond it. What
    speaks against the class is 0. The strongest place is 1, unless it is below a logit of 1: a map without evidence
    stays dark.
    """
    steps = torch.tensor([1.0, 2.0, 1.0], device=maps.device, dtype=maps.dtype) / 4
    kernel = torch.outer(steps, steps).expand(maps.shape[1], 1, 3, 3)
    smooth = F.conv2d(F.pad(maps, (1, 1, 1, 1), mode="replicate"), kernel, groups=maps.shape[1]).clamp(min=0)
    return smooth / smooth.amax((2, 3), keepdim=True).clamp(min=1)


def averages_places(backbone: Backbone) -> bool:
    """Say whether the features of an image are the mean of those of its places, and nothing is done to them after."""
    try:
        return _is_mean(_probe(backbone, backbone.preprocessing.size))
    except NoMapsError:
        return False


def suggestion_maps(
    classifier: Classifier,
    table: LabelTable,
    rows: Indices,
    classes: Indices,
    *,
    workers: int | None = None,
    cache: Path | None = None,
    on_progress: Callable[[int, int], None] | None = None,
) -> NDArray[np.uint8]:
    """Compute the `evidence` (S, h, w) for S pairs of an image and a class, from 0 to 255.

    Every image is read once, however many of its classes are asked for.

    Args:
        classifier: computes on the device where it is.
        table, rows: the images, (S,) rows of the table in any order.
        classes: (S,) columns of the table.
        workers: as in `image_blocks`.
        cache: as for `EngineSelector`.
        on_progress: is called after each batch with the images done and the images in all.
    """
    if len(rows) == 0:
        return np.zeros((0, 1, 1), np.uint8)
    order = np.argsort(rows, kind="stable")  # image by image
    images, counts = np.unique(rows, return_counts=True)
    ends = np.cumsum(counts)
    backbone, device = classifier.backbone, classifier.head.weight.device
    preprocessing = replace(backbone.preprocessing, size=backbone.map_size)
    mapper = _by_places(classifier, len(images), cache) or _by_gradients(classifier)
    blocks = image_blocks(images_of(table, images), preprocessing, batch_size=mapper.batch_size, workers=workers)
    found, done = [], 0
    for block in blocks:
        count = counts[done : block.seen]
        done = block.seen
        used = np.arange(count.max()) < count[:, None]  # images have different numbers of classes
        wanted = np.zeros(used.shape, np.int64)
        wanted[used] = classes[order[ends[done - 1] - count.sum() : ends[done - 1]]]
        maps = evidence(mapper.maps(block.inputs, torch.from_numpy(wanted).to(device)))
        found.append((255 * maps).round().byte().cpu().numpy()[used])
        if on_progress:
            on_progress(done, len(images))
    by_image = np.concatenate(found)
    maps_of = np.empty_like(by_image)
    maps_of[order] = by_image
    return maps_of


class _Mapper(NamedTuple):
    maps: Callable[[NDArray[Any], Tensor], Tensor]  # of images (B, S, S, 3) and classes (B, C), as `activation_maps`
    batch_size: int


def _by_places(classifier: Classifier, images: int, cache: Path | None) -> _Mapper | None:
    """Compute the logits of each place by the fastest engine; None where features are not the mean over places."""
    head, backbone = classifier.head, classifier.backbone
    size = backbone.map_size
    spatial = _probe(backbone, size)
    if isinstance(head, KernelHead) or not _is_mean(spatial):
        return None
    network = _Places(backbone, spatial.features[0].numel())
    places = Backbone(f"{backbone.name}-places", network, replace(backbone.preprocessing, size=size)).eval()
    engine = EngineSelector(places, devices=[head.weight.device], cache=cache)(images)

    @torch.no_grad()
    def maps(images: NDArray[Any], classes: Tensor) -> Tensor:
        features = torch.from_numpy(engine(images)).to(head.weight.device)
        by_place = features.view(len(images), -1, head.in_features)
        logits = torch.einsum("bpd,bcd->bcp", by_place, head.weight[classes]) + head.bias[classes][:, :, None]
        side = math.isqrt(logits.shape[2])
        return classifier.boosted(logits.view(*classes.shape, side, side))

    return _Mapper(maps, engine.batch_size)


def _by_gradients(classifier: Classifier) -> _Mapper:
    device, preprocessing = classifier.head.weight.device, classifier.backbone.preprocessing

    def maps(images: NDArray[Any], classes: Tensor) -> Tensor:
        inputs = torch.from_numpy(images).permute(0, 3, 1, 2).to(device)
        return activation_maps(classifier, normalise(inputs, preprocessing), classes)

    return _Mapper(maps, _BATCH)


class _Places(nn.Module):
    """The features of every place of an image, place after place in one row: (B, 3, S, S) to (B, h·w·C)."""

    def __init__(self, backbone: Backbone, num_features: int) -> None:
        super().__init__()
        self.network: Any = backbone.network
        self.num_features = num_features

    def forward(self, images: Tensor) -> Tensor:
        grid = grid_of(self.network, self.network.forward_features(images))
        return grid.movedim(1, -1).flatten(1)


def _probe(backbone: Backbone, size: int) -> Spatial:
    probe = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with _evaluating(backbone):
        return backbone.spatial(probe.to(backbone.device))


def _cam(head: nn.Linear, spatial: Spatial, classes: Tensor | None) -> Tensor:
    """Compute the logits of each place."""
    with torch.no_grad():
        maps = torch.einsum("bdhw,cd->bchw", spatial.features, head.weight) + head.bias[:, None, None]
        return maps if classes is None else maps.take_along_dim(classes[:, :, None, None], dim=1)


@torch.enable_grad()
def _grad_cam(head: nn.Linear, spatial: Spatial, classes: Tensor | None) -> Tensor:
    """Weight the features of each place by the slope of the logit along each feature, summed over all places."""
    logits: Tensor = head(spatial.pooled)
    chosen = logits if classes is None else logits.gather(1, classes)
    maps = []
    for logit in chosen.unbind(1):
        # No image of a batch depends on another, so the gradient of the sum holds that of each.
        (slopes,) = torch.autograd.grad(logit.sum(), spatial.features, retain_graph=True)
        maps.append((slopes.sum((2, 3), keepdim=True) * spatial.features.detach()).sum(1))
    stacked, means = torch.stack(maps, dim=1), chosen.detach()
    return stacked + (means - stacked.mean((2, 3)))[:, :, None, None]


def _is_mean(spatial: Spatial) -> bool:
    mean, pooled = spatial.features.mean((2, 3)), spatial.pooled
    return mean.shape == pooled.shape and torch.allclose(mean, pooled, rtol=1e-4, atol=1e-5)


@contextmanager
def _evaluating(model: nn.Module) -> Iterator[None]:
    """Evaluation mode for a while; each part then goes back to the mode it was in."""
    training = [part for part in model.modules() if part.training]
    model.eval()
    try:
        yield
    finally:
        for part in training:
            part.training = True
