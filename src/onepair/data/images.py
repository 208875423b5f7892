"""From the pixels of an image to the tensor that a backbone takes."""

import torch
from torch import Tensor

from onepair.data.decoding import Pixels
from onepair.data.preprocessing import Preprocessing, scale


def prepare(pixels: Pixels, preprocessing: Preprocessing, *, flip: bool = False) -> Tensor:
    """Scale an image (H, W, 3) to a uint8 tensor (3, size, size), mirrored if asked; colours stay as they are.

    >>> import numpy as np
    >>> prepare(np.zeros((4, 6, 3), np.uint8), Preprocessing(2, mean=(0, 0, 0), std=(1, 1, 1))).shape
    torch.Size([3, 2, 2])
    """
    tensor = torch.from_numpy(scale(pixels, preprocessing)).permute(2, 0, 1)
    return tensor.flip(-1) if flip else tensor


def normalise(images: Tensor, preprocessing: Preprocessing) -> Tensor:
    """Turn uint8 images (B, 3, S, S) into the floats a backbone takes, on the device where they are.

    >>> half = Preprocessing(1, mean=(0.5, 0.5, 0.5), std=(0.5, 0.5, 0.5))
    >>> normalise(torch.full((1, 3, 1, 1), 255, dtype=torch.uint8), half).flatten()
    tensor([1., 1., 1.])
    """
    mean, std = (
        torch.tensor(values, device=images.device).view(3, 1, 1) * 255
        for values in (preprocessing.mean, preprocessing.std)
    )
    return (images - mean).div_(std)
