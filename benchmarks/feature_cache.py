"""Feature cache against the bare model: how much of the model's speed is left when images come from disk.

    python benchmarks/feature_cache.py IMAGES_DIR [--images 512] [--rounds 5]

"bare" runs timm's model, as it is, on normalised float tensors already in memory; "cache" reads, decodes, scales,
extracts with batch norms folded into convolutions, and writes. Both use the same threads, batch size and channels-last
memory, and take turns, so that other work on the machine slows both; the median of the rounds' ratios counts. Torch
computes both: how much faster other engines are, benchmarks/inference.py tells.
"""

import argparse
import statistics
import tempfile
import time
from pathlib import Path

import numpy as np
import torch

from onepair.data.images.batches import image_batches, normalise
from onepair.data.images.blocks import cores
from onepair.data.label_table import LabelTable
from onepair.features import extract_features
from onepair.inference.engine_selector import EngineSelector
from onepair.label_matrix import LabelMatrix
from onepair.models import Backbone, create_backbone


def main() -> None:
    arguments = parse_arguments()
    table = first_images(arguments.folder, arguments.images)
    backbone = create_backbone(arguments.backbone)
    tensors = in_memory(table, backbone, arguments.batch_size)
    bare_speed(backbone, tensors[:2])

    print(
        f"{arguments.backbone}, {len(table)} images, {torch.get_num_threads()} threads, {arguments.workers} that read"
    )
    print("round   bare img/s   cache img/s   ratio")
    ratios = []
    for turn in range(1, arguments.rounds + 1):
        bare = bare_speed(backbone, tensors)
        cache = cache_speed(backbone, table, arguments.workers)
        ratios.append(cache / bare)
        print(f"{turn:5}   {bare:10.1f}   {cache:11.1f}   {ratios[-1]:5.2f}", flush=True)
    print(f"median ratio {statistics.median(ratios):.2f}")


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--workers", type=int, default=cores())
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    return parser.parse_args()


def first_images(folder: Path, count: int) -> LabelTable:
    files = tuple(sorted(file.name for file in folder.iterdir()))[:count]
    return LabelTable(
        files=files,
        classes=("any",),
        labels=LabelMatrix.of(np.zeros((len(files), 1), np.int8)),
        split=np.full(len(files), "train"),
        root=folder,
    )


def in_memory(table: LabelTable, backbone: Backbone, batch_size: int) -> list[torch.Tensor]:
    batches = image_batches(
        table, np.arange(len(table)), backbone.preprocessing, batch_size=batch_size, training=False, workers=0
    )
    return [normalise(batch.images, backbone.preprocessing) for batch in batches]


@torch.inference_mode()
def bare_speed(backbone: Backbone, tensors: list[torch.Tensor]) -> float:
    start = time.perf_counter()
    for tensor in tensors:
        backbone(tensor)
    return sum(map(len, tensors)) / (time.perf_counter() - start)


def cache_speed(backbone: Backbone, table: LabelTable, workers: int) -> float:
    engines = EngineSelector(backbone, devices=[torch.device("cpu")])
    engines(1)  # what is done once takes no part
    with tempfile.TemporaryDirectory() as folder:
        start = time.perf_counter()
        extract_features(
            table, backbone, backbone.preprocessing, lambda _: engines(1), folder=Path(folder), workers=workers
        )
        return len(table) / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
