"""Heat maps of many images, by the fastest engine that can compute them."""

import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from onepair.data.images.batches import normalise
from onepair.data.images.blocks import image_blocks, images_of
from onepair.data.label_table import LabelTable
from onepair.inference.torch_engine import Engines
from onepair.labels import Indices
from onepair.models import Classifier
from onepair.models.maps import activation_maps, evidence, places_of

_BATCH = 16  # images, where torch computes the whole network


class _Look(NamedTuple):
    """Where a classifier sees classes."""

    maps: Callable[[NDArray[Any], Tensor], Tensor]  # of images (B, S, S, 3) and classes (B, C), as `activation_maps`
    batch_size: int


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
    """The `evidence` (S, h, w) for S pairs of an image and a class, from 0 to 255.

    Every image is read once, however many of its classes are asked for.

    Args:
        classifier: computes on the device where it is.
        table, rows: the images, (S,) rows of the table in any order.
        classes: (S,) columns of the table.
        workers: as in `image_blocks`.
        cache: as for `Engines`.
        on_progress: called after each batch with the images done and the images in all.
    """
    if len(rows) == 0:
        return np.zeros((0, 1, 1), np.uint8)
    order = np.argsort(rows, kind="stable")  # image by image
    images, counts = np.unique(rows, return_counts=True)
    ends = np.cumsum(counts)
    backbone, device = classifier.backbone, classifier.head.weight.device
    preprocessing = replace(backbone.preprocessing, size=backbone.map_size)
    look = _averaged(classifier, len(images), cache) or _whole(classifier)
    blocks = image_blocks(images_of(table, images), preprocessing, batch_size=look.batch_size, workers=workers)
    found, done = [], 0
    for block in blocks:
        count = counts[done : block.seen]
        done = block.seen
        used = np.arange(count.max()) < count[:, None]  # images have different numbers of classes
        wanted = np.zeros(used.shape, np.int64)
        wanted[used] = classes[order[ends[done - 1] - count.sum() : ends[done - 1]]]
        maps = evidence(look.maps(block.inputs, torch.from_numpy(wanted).to(device)))
        found.append((255 * maps).round().byte().cpu().numpy()[used])
        if on_progress:
            on_progress(done, len(images))
    by_image = np.concatenate(found)
    maps_of = np.empty_like(by_image)
    maps_of[order] = by_image
    return maps_of


def _averaged(classifier: Classifier, images: int, cache: Path | None) -> _Look | None:
    """Where features are averaged over places, the logits of each place, without a gradient."""
    head = classifier.head
    places = places_of(classifier.backbone, classifier.backbone.map_size)
    if places is None:
        return None
    engine = Engines(places, devices=[head.weight.device], cache=cache)(images)

    @torch.no_grad()
    def maps(images: NDArray[Any], classes: Tensor) -> Tensor:
        features = torch.from_numpy(engine(images)).to(head.weight.device)
        by_place = features.view(len(images), -1, head.in_features)
        logits = torch.einsum("bpd,bcd->bcp", by_place, head.weight[classes]) + head.bias[classes][:, :, None]
        side = math.isqrt(logits.shape[2])
        return classifier.boosted(logits.view(*classes.shape, side, side))

    return _Look(maps, engine.batch_size)


def _whole(classifier: Classifier) -> _Look:
    """Elsewhere, by the whole network and if need be the gradient of each logit."""
    device, preprocessing = classifier.head.weight.device, classifier.backbone.preprocessing

    def maps(images: NDArray[Any], classes: Tensor) -> Tensor:
        inputs = torch.from_numpy(images).permute(0, 3, 1, 2).to(device)
        return activation_maps(classifier, normalise(inputs, preprocessing), classes)

    return _Look(maps, _BATCH)
