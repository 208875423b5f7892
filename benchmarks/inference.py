"""Engines side by side: how many images a second each computes on the CPU, alone and while JPEG files are read.

    python benchmarks/inference.py [--images 64] [--files 192] [--rounds 5] [--backbone tf_efficientnet_lite0]

Needs no data: pixels are random, files are made up. Engines take turns, so that other work on the machine slows all of
them; medians over the rounds count, and ratios to torch as it is. OpenVINO takes part if it is installed.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import torch
from PIL import Image

from onepair.data.images.batches import normalise
from onepair.data.images.blocks import image_blocks, stream_scores
from onepair.inference.engine import Engine, Float32
from onepair.inference.engine_selector import TorchEngine, backbone_in_onnx
from onepair.models import Backbone, create_backbone

CPU = [torch.device("cpu")]


class Compiled:
    """A network that torch.compile has made faster."""

    def __init__(self, backbone: Backbone, batch_size: int) -> None:
        self.batch_size, self.preprocessing = batch_size, backbone.preprocessing
        self.network = torch.compile(backbone.network)

    @torch.inference_mode()
    def __call__(self, inputs: np.ndarray) -> Float32:
        images = torch.from_numpy(inputs).permute(0, 3, 1, 2)
        found: Float32 = self.network(normalise(images, self.preprocessing)).numpy()
        return found


class OpenVino:
    """An ONNX graph computed by OpenVINO."""

    def __init__(self, graph: Path, batch_size: int) -> None:
        openvino = import_module("openvino")
        self.batch_size = batch_size
        settings = {"INFERENCE_NUM_THREADS": torch.get_num_threads(), "INFERENCE_PRECISION_HINT": "f32"}
        self.model = openvino.Core().compile_model(graph, "CPU", settings)

    def __call__(self, inputs: np.ndarray) -> Float32:
        found: Float32 = self.model({"images": inputs})["features"]
        return found


def main() -> None:
    arguments = parse_arguments()
    torch.set_num_threads(arguments.threads)
    backbone = create_backbone(arguments.backbone, weights=None if arguments.pretrained else "none")
    with tempfile.TemporaryDirectory() as folder:
        engines = make_engines(backbone, arguments, Path(folder))
        size = backbone.preprocessing.size
        pixels = np.random.default_rng(0).integers(0, 256, (arguments.images, size, size, 3), dtype=np.uint8)
        files = make_files(Path(folder), arguments.files)
        expected = engines["torch"](pixels[: arguments.batch_size])
        for name, engine in engines.items():  # the first call is slow: it compiles, or allocates
            found = engine(pixels[: arguments.batch_size])
            error = np.abs(found - expected).max() / np.abs(expected).max()
            print(f"{name:<24} differs from torch by {error:.1e} of the largest feature")
        heading = f"{arguments.backbone}, {size} pixels, batches of {arguments.batch_size}, {arguments.threads} threads"
        show(f"{heading}, {arguments.images} images in memory", engines, arguments, lambda each: alone(each, pixels))
        show(
            f"{heading}, {arguments.files} JPEG files",
            engines,
            arguments,
            lambda each: with_files(each, backbone, files),
        )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser()
    parser.add_argument("--images", type=int, default=64)
    parser.add_argument("--files", type=int, default=192)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batch-size", type=int, default=8)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--backbone", default="tf_efficientnet_lite0")
    parser.add_argument("--pretrained", action="store_true", help="real weights, from a package or a download")
    return parser.parse_args()


def make_engines(backbone: Backbone, arguments: argparse.Namespace, folder: Path) -> dict[str, Engine]:
    engines: dict[str, Engine] = {
        "torch": TorchEngine(backbone, backbone.preprocessing, devices=CPU),
        "torch, compiled": Compiled(backbone, arguments.batch_size),
    }
    start = time.perf_counter()
    graph = backbone_in_onnx(backbone, cache=folder)
    print(f"the graph took {time.perf_counter() - start:.1f} s to make and check")
    if graph is not None:
        engines["ONNX Runtime"] = graph
        if find_spec("openvino"):
            engines["OpenVINO"] = OpenVino(next((folder / "graphs").iterdir()), arguments.batch_size)
    return engines


def make_files(folder: Path, count: int) -> list[Path]:
    """Photo-like JPEG files of 500 × 375: smooth, with some noise."""
    random = np.random.default_rng(1)
    files = []
    for number in range(count):
        coarse = Image.fromarray(random.integers(0, 256, (12, 16, 3), dtype=np.uint8))
        smooth = np.asarray(coarse.resize((500, 375), Image.Resampling.BICUBIC), np.int16)
        noisy = np.clip(smooth + random.integers(-8, 9, smooth.shape), 0, 255).astype(np.uint8)
        files.append(folder / f"{number}.jpg")
        Image.fromarray(noisy).save(files[-1], quality=90)
    return files


def show(
    title: str, engines: dict[str, Engine], arguments: argparse.Namespace, measure: Callable[[Engine], float]
) -> None:
    speeds: dict[str, list[float]] = {name: [] for name in engines}
    for _ in range(arguments.rounds):
        for name, engine in engines.items():
            speeds[name].append(measure(engine))
    print(f"\n{title}\n{'engine':<24} images/s   ratio")
    plain = statistics.median(speeds["torch"])
    for name, each in speeds.items():
        print(f"{name:<24} {statistics.median(each):8.1f}   {statistics.median(each) / plain:5.2f}", flush=True)


def alone(engine: Engine, pixels: np.ndarray) -> float:
    start = time.perf_counter()
    for first in range(0, len(pixels), engine.batch_size):
        engine(pixels[first : first + engine.batch_size])
    return len(pixels) / (time.perf_counter() - start)


def with_files(engine: Engine, backbone: Backbone, files: list[Path]) -> float:
    start = time.perf_counter()
    blocks = image_blocks(files, backbone.preprocessing, batch_size=engine.batch_size)
    done = sum(len(scored.rows) for scored in stream_scores(engine, blocks))
    return done / (time.perf_counter() - start)


if __name__ == "__main__":
    main()
