"""A model as a run leaves it, without the run."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import torch

from onepair.data.formats.digits import read_digits
from onepair.data.images.batches import normalise, prepare
from onepair.inference import model_files
from onepair.models import Classifier, create_backbone
from onepair.probability.thresholds import fit_decisions

SCENES = read_digits(train=60, test=40)


def save_model(folder: Path, *, backbone: str = "small-cnn", calibration: str = "platt") -> Path:
    """A network with random weights that tells scenes apart, and decisions that fit it, not the digits."""
    torch.manual_seed(3)
    classifier = Classifier(create_backbone(backbone, weights="none"), SCENES.classes)
    train = SCENES.pixels[SCENES.rows("train")]
    for module in classifier.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            module.momentum = None  # its means become those of the next images
    with torch.no_grad():
        classifier.train()(tensors(classifier, train))
        logits = classifier.eval()(tensors(classifier, train))
        classifier.head.weight /= logits.std(0)[:, None]
        classifier.head.bias.copy_((classifier.head.bias - logits.mean(0)) / logits.std(0))
        scores = classifier(tensors(classifier, train)).numpy()
    noise = np.random.default_rng(5).normal(size=scores.shape)
    decisions = fit_decisions(scores, scores + noise / 2 > 0.5, calibration=calibration)
    between = decisions.thresholds + 0.01  # no scene of the test split has just this score
    between[-1] = np.inf
    folder.mkdir(exist_ok=True)
    model_files.save_model(folder, classifier, replace(decisions, thresholds=between))
    return folder


def tensors(classifier: Classifier, pixels: np.ndarray) -> torch.Tensor:
    """Images as the network takes them, one by one."""
    preprocessing = classifier.backbone.preprocessing
    return normalise(torch.stack([prepare(each, preprocessing) for each in pixels]), preprocessing)
