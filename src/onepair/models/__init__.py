"""Networks: backbones by name, their weights, the classifier on top, its files, and its heat maps."""

from onepair.models.backbone import Backbone, Classifier, NoMapsError, SmallCNN, Spatial
from onepair.models.store import load_classifier, save_weights
from onepair.models.weights import State, UnknownBackboneError, WeightsError, create_backbone, parse_weights, read_state

__all__ = [
    "Backbone",
    "Classifier",
    "NoMapsError",
    "SmallCNN",
    "Spatial",
    "State",
    "UnknownBackboneError",
    "WeightsError",
    "create_backbone",
    "load_classifier",
    "parse_weights",
    "read_state",
    "save_weights",
]
