"""One process against a Ray cluster of this machine: how many images a second, in one run.

    python benchmarks/ray_engine.py VOCDEVKIT [--images 1500] [--rounds 3] [--backbone tf_efficientnet_lite0]

Both read the same files and compute them with the engine that so many images get, and take turns. Starting the cluster,
and the processes that read and compute, is timed apart: what counts is from the first block on. Seconds are of the
clock, so that other work on the machine slows both.
"""

import argparse
import statistics
import time
from pathlib import Path

import numpy as np

from onepair.data.images.blocks import stream_images
from onepair.inference.engine import Engine
from onepair.inference.engine_selector import EngineSelector
from onepair.inference.ray_engine import Cluster
from onepair.models import Backbone, create_backbone


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("photos", type=Path)
    parser.add_argument("--images", type=int, default=1500)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    arguments = parser.parse_args()
    files = sorted(arguments.photos.rglob("*.jpg"))[: arguments.images]
    backbone = create_backbone(arguments.backbone)
    engines = EngineSelector(backbone)
    here = engines(len(files))
    with Cluster() as over:
        start = time.perf_counter()
        there = over(engines)(len(files))
        print(f"{len(files)} files; the cluster took {time.perf_counter() - start:.1f} s to start")
        speeds: dict[str, list[float]] = {"one process": [], "Ray": []}
        for _ in range(arguments.rounds):
            expected, waited, speed = measure(here, files, backbone)
            speeds["one process"].append(speed)
            found, waited, speed = measure(there, files, backbone)
            speeds["Ray"].append(speed)
            print(f"Ray gave its first block after {waited:.1f} s; the same values: {np.array_equal(found, expected)}")
    alone = statistics.median(speeds["one process"])
    for name, each in speeds.items():
        print(f"{name:<12} {statistics.median(each):7.1f} images/s   {statistics.median(each) / alone:5.2f}")


def measure(engine: Engine, files: list[Path], backbone: Backbone) -> tuple[np.ndarray, float, float]:
    """The features, the seconds until the first block, and images a second after it."""
    begun = time.perf_counter()
    blocks = stream_images(engine, files, backbone.preprocessing)
    parts = [next(blocks)]
    first = time.perf_counter()
    parts += blocks
    seconds = time.perf_counter() - first
    features = np.concatenate([part.scores for part in parts])
    return features, first - begun, (len(files) - len(parts[0].rows)) / seconds


if __name__ == "__main__":
    main()
