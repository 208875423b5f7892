"""A classifier's weights as a file."""

from collections.abc import Sequence
from pathlib import Path

import safetensors.torch
import torch

from onepair.data.preprocessing import Preprocessing
from onepair.files import write_atomically
from onepair.models.backbone import Backbone, Classifier
from onepair.models.given import GivenVectors, TextBackbone
from onepair.models.weights import State, WeightsError, create_backbone, read_state
from onepair.words import counted


def save_weights(path: Path, state: State) -> None:
    """Write a state dict as safetensors; the file is complete or not there."""
    plain = {name: tensor.detach().cpu().contiguous() for name, tensor in state.items()}
    write_atomically(path, safetensors.torch.save(plain))


def load_classifier(
    weights: Path,
    *,
    backbone: str,
    preprocessing: Preprocessing | None,
    classes: Sequence[str],
    boost: float = 1.0,
    width: int | None = None,
    vocabulary: Sequence[str] = (),
) -> Classifier:
    """The classifier whose weights `save_weights` wrote, on the CPU and ready to predict.

    Args:
        weights: the file.
        backbone: its name, as for `create_backbone`.
        preprocessing: what its images went through; None where its inputs are vectors or texts.
        classes: the names of its labels.
        boost: as for `Classifier`.
        width: of its vectors, where those are its inputs, or are made of texts.
        vocabulary: the terms of its texts.
    """
    if preprocessing is None:
        network: Backbone = TextBackbone(vocabulary, width or 0) if vocabulary else GivenVectors(width or 0)
    else:
        network = create_backbone(backbone, weights="none", image_size=preprocessing.size)
        network.preprocessing = preprocessing
    classifier = Classifier(network, classes, boost=boost)
    try:
        classifier.load_state_dict(read_state(weights))
    except RuntimeError:
        raise WeightsError(f"{weights}: does not fit a {backbone} with {counted(len(classes), 'class')}") from None
    return classifier.to(memory_format=torch.channels_last).eval()
