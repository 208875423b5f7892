"""Heat maps of many images: each shows where its class is, whatever computes it."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch import nn
from torch.nn import functional as F

from onepair.data.images import blocks as streaming
from onepair.data.images.batches import normalise, prepare
from onepair.data.images.decode import Preprocessing, decode
from onepair.data.label_table import LabelTable
from onepair.inference import torch_engine as choice
from onepair.inference.heat_maps import suggestion_maps
from onepair.models import Backbone, Classifier
from onepair.models.maps import activation_maps, evidence
from tests.models.test_maps import make_classifier


class Blocks(nn.Module):
    """The mean colour of squares of eight pixels, averaged."""

    num_features = 3

    def forward_features(self, images):
        return F.avg_pool2d(images, 8)

    def forward_head(self, features):
        return features.mean((2, 3))

    def forward(self, images):
        return self.forward_head(self.forward_features(images))


@pytest.fixture(scope="module")
def coloured(tmp_path_factory):
    """Black images with a red square, a green and a blue one, and a classifier that knows the colours."""
    folder = tmp_path_factory.mktemp("coloured")
    places = np.array([[(0, 3), (2, 0), (3, 3)], [(1, 1), (0, 0), (2, 3)], [(3, 0), (3, 2), (0, 1)]])  # rows, columns
    for number, squares in enumerate(places):
        pixels = np.zeros((32, 64, 3), np.uint8)  # twice as wide as the classifier sees it
        for colour, (y, x) in enumerate(squares):
            pixels[8 * y : 8 * y + 8, 16 * x : 16 * x + 16, colour] = 255
        Image.fromarray(pixels).save(folder / f"{number}.png")
    table = LabelTable(
        files=tuple(f"{number}.png" for number in range(3)),
        classes=("red", "green", "blue"),
        labels=np.ones((3, 3), np.int8),
        split=np.full(3, "train"),
        root=folder,
    )
    preprocessing = Preprocessing(32, mean=(0.0, 0.0, 0.0), std=(1.0, 1.0, 1.0))
    classifier = Classifier(Backbone("blocks", Blocks(), preprocessing), table.classes)
    with torch.no_grad():
        classifier.head.weight.copy_(10 * torch.eye(3))
        classifier.head.bias.zero_()
    return classifier, table, places


def test_suggestions_show_where_things_are(coloured, monkeypatch):
    classifier, table, places = coloured
    monkeypatch.setattr(choice, "ON_CPU", 2)
    reads = []

    def counted(path, **options):
        reads.append(path.name)
        return decode(path, **options)

    monkeypatch.setattr(streaming, "decode", counted)
    rows, classes = np.array([2, 0, 2, 1, 0, 2, 0]), np.array([1, 0, 0, 2, 2, 1, 1])
    told = []
    found = suggestion_maps(
        classifier, table, rows, classes, workers=0, on_progress=lambda done, total: told.append((done, total))
    )
    assert (found.shape, found.dtype) == ((7, 4, 4), np.uint8)
    for row, column, map_ in zip(rows, classes, found, strict=True):
        assert tuple(np.unravel_index(map_.argmax(), (4, 4))) == tuple(places[row, column])
        assert map_.max() == 255
    assert sorted(reads) == ["0.png", "1.png", "2.png"]
    assert told == [(2, 3), (3, 3)]


@pytest.mark.parametrize(("name", "boost"), [("test_resnet", 1.0), ("test_resnet", 5.0), ("test_vit", 1.0)])
def test_suggestions_agree_with_maps_one_by_one(coloured, monkeypatch, tmp_path, name, boost):
    _, table, _ = coloured
    classifier = make_classifier(name)
    classifier.boost = boost
    classifier.classes = table.classes
    preprocessing = replace(classifier.backbone.preprocessing, size=classifier.backbone.map_size)
    rows, classes = np.array([1, 0, 0, 2, 1, 1]), np.array([2, 0, 1, 2, 0, 1])
    found = suggestion_maps(classifier, table, rows, classes, workers=0, cache=tmp_path)
    for row, column, map_ in zip(rows.tolist(), classes.tolist(), found, strict=True):
        image = normalise(prepare(decode(table.path(row)), preprocessing)[None], preprocessing)
        expected = 255 * evidence(activation_maps(classifier, image))[0, column]
        assert np.abs(map_ - expected.numpy()).max() <= 1


def test_no_suggestions(coloured):
    classifier, table, _ = coloured
    assert len(suggestion_maps(classifier, table, np.zeros(0, np.intp), np.zeros(0, np.intp))) == 0


def test_one_graph_for_many_images(coloured, tmp_path, monkeypatch):
    """ONNX Runtime computes what torch does, as for features."""
    _, table, _ = coloured
    classifier = make_classifier("test_resnet")
    rows, classes = np.array([1, 0, 0, 2]), np.array([2, 0, 1, 2])
    expected = suggestion_maps(classifier, table, rows, classes, workers=0)
    monkeypatch.setattr(choice, "MANY", 1)
    found = suggestion_maps(classifier, table, rows, classes, workers=0, cache=tmp_path)
    assert [file.stat().st_size > 0 for file in (tmp_path / "graphs").iterdir()] == [True]
    assert np.abs(found.astype(int) - expected).max() <= 1
