"""Heat maps: where in an image a classifier sees a class."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from onepair.errors import NoMapsError
from onepair.models.backbone import Backbone, Classifier, Spatial, grid_of


def activation_maps(classifier: Classifier, images: Tensor, classes: Tensor | None = None) -> Tensor:
    """Class activation maps (B, C, h, w), in logits: the mean over each map is the logit of its class.

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
            return classifier.boosted(_averaged(classifier.head, spatial, classes))
        return (_averaged if _is_mean(spatial) else _grad_cam)(classifier.head, spatial, classes)


def evidence(maps: Tensor) -> Tensor:
    """How strongly each place speaks for a class, from 0 to 1: activation maps (B, C, h, w) made fit to be shown.

    Places share what they say with their neighbours, since what a network sees at one place reaches beyond it. What
    speaks against the class is 0. The strongest place is 1, unless it is below a logit of 1: a map without evidence
    stays dark.
    """
    steps = torch.tensor([1.0, 2.0, 1.0], device=maps.device, dtype=maps.dtype) / 4
    kernel = torch.outer(steps, steps).expand(maps.shape[1], 1, 3, 3)
    smooth = F.conv2d(F.pad(maps, (1, 1, 1, 1), mode="replicate"), kernel, groups=maps.shape[1]).clamp(min=0)
    return smooth / smooth.amax((2, 3), keepdim=True).clamp(min=1)


class Places(nn.Module):
    """The features of every place of an image, place after place in one row: (B, 3, S, S) to (B, h·w·C)."""

    def __init__(self, backbone: Backbone, num_features: int) -> None:
        super().__init__()
        self.network: Any = backbone.network
        self.num_features = num_features

    def forward(self, images: Tensor) -> Tensor:
        grid = grid_of(self.network, self.network.forward_features(images))
        return grid.movedim(1, -1).flatten(1)


def places_of(backbone: Backbone, size: int) -> Backbone | None:
    """A network of its own that gives the features of every place of images of this size.

    None where the features of an image are not the mean of those: then it takes gradients to say where a class is.
    """
    spatial = _probed(backbone, size)
    if not _is_mean(spatial):
        return None
    places = Places(backbone, spatial.features[0].numel())
    return Backbone(f"{backbone.name}-places", places, replace(backbone.preprocessing, size=size)).eval()


def averages_places(backbone: Backbone) -> bool:
    """Whether the features of an image are the mean of those of its places, and nothing is done to them after."""
    try:
        return _is_mean(_probed(backbone, backbone.preprocessing.size))
    except NoMapsError:
        return False


def _probed(backbone: Backbone, size: int) -> Spatial:
    probe = torch.randn(2, 3, size, size, generator=torch.Generator().manual_seed(0))
    with _evaluating(backbone):
        return backbone.spatial(probe.to(backbone.device))


def _averaged(head: nn.Linear, spatial: Spatial, classes: Tensor | None) -> Tensor:
    """The logits of each place."""
    with torch.no_grad():
        maps = torch.einsum("bdhw,cd->bchw", spatial.features, head.weight) + head.bias[:, None, None]
        return maps if classes is None else maps.take_along_dim(classes[:, :, None, None], dim=1)


@torch.enable_grad()
def _grad_cam(head: nn.Linear, spatial: Spatial, classes: Tensor | None) -> Tensor:
    """The features of each place, times the slope of the logit along each feature summed over all places."""
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
