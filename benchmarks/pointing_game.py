"""The pointing game on VOC 2012 val: does the highest point of a class's heat map fall on an object of that class?

    python benchmarks/pointing_game.py VOCDEVKIT BOXES_CSV [--run RUN] [--size 352] [--every 1]

BOXES_CSV has columns file, class, xmin, ymin, xmax, ymax, in fractions of the width and height. Every positive label
of every val image is played once: a hit is a point in any box of that class, those of difficult objects included. The
usual protocol (Zhang et al. 2018) also counts a point up to 15 pixels away from a box, on original images, whose longer
side is 500: "± 15 pixels". A map without positive evidence is a miss. Hits are averaged within each class, then over
all classes.

Three points are compared: the centre of the highest cell of the plain class activation map; its highest point after
bicubic interpolation; and that of the map as `onepair find` and `onepair explain` show it, smoothed before. Without
--run, a linear classifier on EfficientNet-Lite0 is trained first, by OPML-SP from single positives.
"""

import argparse
import csv
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from PIL import Image
from torch import Tensor
from torch.nn.functional import interpolate

from onepair.data.formats.read import read_dataset
from onepair.data.images.batches import image_batches, normalise
from onepair.data.label_table import LabelTable
from onepair.files import cache_folder
from onepair.inference.heat_maps import activation_maps, evidence
from onepair.inference.model_files import load_model
from onepair.labels import POSITIVE, Indices
from onepair.models import Classifier
from onepair.probability.thresholds import Thresholds
from onepair.runs.config import preset, resolve_config
from onepair.runs.folder import RunFolder
from onepair.training.hardware import Hardware
from onepair.training.run import train

TOLERANCE = 15 / 500  # of the longer side
FINE = 112  # points across an interpolated map
SHOWN = "as shown"

Floats = NDArray[np.float64]


def main() -> None:
    arguments = parse_arguments()
    table = read_dataset(arguments.devkit)
    classifier, _ = load_model(arguments.run) if arguments.run else train_linear(arguments.devkit)
    rows = table.rows("test")[:: arguments.every]
    images, classes = np.nonzero(table.labels[rows] == POSITIVE)
    size = arguments.size or classifier.backbone.map_size
    start = time.perf_counter()
    maps = compute_maps(classifier, table, rows, size)[images, classes][:, None]
    speed = len(rows) / (time.perf_counter() - start)
    print(
        f"{classifier.backbone.name} at {size} pixels, maps of {maps.shape[2]} × {maps.shape[3]}; {len(rows):,} "
        f"images, {len(maps):,} labels; {speed:.0f} images/s with {torch.get_num_threads()} threads\n"
    )

    shown = evidence(maps)
    points = {"highest cell": peaks(maps), "bicubic": peaks(finer(maps)), SHOWN: peaks(finer(shown))}
    points[SHOWN][(shown == 0).all((1, 2, 3)).numpy()] = np.nan
    boxes = read_boxes(arguments.boxes)
    files, names = [Path(table.files[rows[image]]).name for image in images], [table.classes[each] for each in classes]
    objects = [boxes[file, name] for file, name in zip(files, names, strict=True)]
    shapes = [image_shape(table.path(rows[image])) for image in images]
    print_hits({way: misses(each, objects, shapes) for way, each in points.items()}, names)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("devkit", type=Path)
    parser.add_argument("boxes", type=Path)
    parser.add_argument("--run", type=Path, help="the folder of a finished run on VOC 2012")
    parser.add_argument("--size", type=int, help="pixels of the images; by default as in onepair find")
    parser.add_argument("--every", type=int, default=1, help="play with every so many-th image")
    return parser.parse_args()


def train_linear(devkit: Path) -> tuple[Classifier, Thresholds]:
    data = {"source": str(devkit), "observe": "single-positive"}
    model = {"backbone": "tf_efficientnet_lite0", "mode": "linear"}
    config = resolve_config(preset("voc2012", "opml-sp"), {"data": data, "model": model})
    with tempfile.TemporaryDirectory() as folder:
        train(config, RunFolder(Path(folder)), hardware=Hardware(cache=cache_folder()))
        return load_model(Path(folder))


def compute_maps(classifier: Classifier, table: LabelTable, rows: Indices, size: int) -> Tensor:
    """The maps (N, L, h, w) of all classes."""
    preprocessing = replace(classifier.backbone.preprocessing, size=size)
    batches = image_batches(table, rows, preprocessing, batch_size=16, training=False)
    return torch.cat([activation_maps(classifier, normalise(batch.images, preprocessing)) for batch in batches])


def finer(maps: Tensor) -> Tensor:
    return torch.cat([interpolate(part, size=(FINE, FINE), mode="bicubic") for part in torch.split(maps, 256)])


def peaks(maps: Tensor) -> Floats:
    """The centre of the highest cell of each map (N, 1, h, w), as fractions (x, y) of width and height."""
    height, width = maps.shape[2:]
    y, x = np.divmod(maps.flatten(1).argmax(1).numpy(), width)
    return np.stack([(x + 0.5) / width, (y + 0.5) / height], axis=1)


def read_boxes(path: Path) -> dict[tuple[str, str], Floats]:
    """By file and class, the boxes (K, 4) as xmin, ymin, xmax, ymax."""
    found = defaultdict(list)
    with path.open(newline="") as file:
        for line in csv.DictReader(file):
            found[line["file"], line["class"]].append([float(line[side]) for side in ("xmin", "ymin", "xmax", "ymax")])
    return {key: np.array(boxes) for key, boxes in found.items()}


def image_shape(path: Path) -> Floats:
    """Width and height, the longer one as 1."""
    with Image.open(path) as image:
        return np.array(image.size) / max(image.size)


def misses(points: Floats, objects: Sequence[Floats], shapes: Sequence[Floats]) -> Floats:
    """How far each point lies outside the nearest box, in longer sides of the image; 0 within."""
    distances = []
    for point, boxes, shape in zip(points, objects, shapes, strict=True):
        beyond = np.maximum(boxes[:, :2] - point, point - boxes[:, 2:]).clip(0) * shape
        distances.append(np.hypot(*beyond.T).min())
    return np.array(distances)


def print_hits(missed: dict[str, Floats], names: Sequence[str]) -> None:
    print("| point | hits | ± 15 pixels |")
    print("|---|---|---|")
    by_class = {way: hits_by_class(each, names) for way, each in missed.items()}
    for way, hits in by_class.items():
        exact, near = np.mean(list(hits.values()), axis=0)
        print(f"| {way} | {exact:.3f} | {near:.3f} |")
    print(f"\n| class, {SHOWN} | hits | ± 15 pixels |")
    print("|---|---|---|")
    for name, (exact, near) in by_class[SHOWN].items():
        print(f"| {name} | {exact:.3f} | {near:.3f} |")


def hits_by_class(missed: Floats, names: Sequence[str]) -> dict[str, tuple[float, float]]:
    """The share of hits, without and with tolerance; a point that is nowhere (NaN) is none."""
    of = {name: missed[np.array(names) == name] for name in sorted(set(names))}
    return {name: (float((each == 0).mean()), float((each <= TOLERANCE).mean())) for name, each in of.items()}


if __name__ == "__main__":
    main()
