"""Training images that look a little different each time, the same ones for the same seed, epoch and row."""

import threading

import torch
from torch import Tensor
from torchvision.transforms import v2

from onepair.data.decoding import Pixels
from onepair.data.preprocessing import Augmentation, Preprocessing

_DRAWING = threading.Lock()  # there is one generator for all threads, and images at URLs come in several
LEAST = 0.5  # of an image's area that a crop keeps: a smaller one would often leave out what a label speaks of


def augment(pixels: Pixels, preprocessing: Preprocessing, augmentation: Augmentation, *, draw: int) -> Tensor:
    """A random part of an image (H, W, 3), scaled to a uint8 tensor (3, size, size).

    "crop" does no more; "strong" then changes its colours, contrast or geometry by one operation of random strength
    (TrivialAugment, Müller and Hutter 2021), a policy that has nothing to tune.

    Args:
        pixels: as decoded.
        preprocessing: the size, and how to interpolate.
        augmentation: which.
        draw: decides everything random.
    """
    with _DRAWING, torch.random.fork_rng(devices=[]):
        torch.manual_seed(draw)
        augmented: Tensor = _transform(preprocessing, augmentation)(torch.tensor(pixels).permute(2, 0, 1))
    return augmented


def _transform(preprocessing: Preprocessing, augmentation: Augmentation) -> v2.Transform:
    way = v2.InterpolationMode(preprocessing.interpolation)
    crop = v2.RandomResizedCrop(preprocessing.size, scale=(LEAST, 1), interpolation=way, antialias=True)
    return crop if augmentation == "crop" else v2.Compose([crop, v2.TrivialAugmentWide(fill=128)])
