"""A trained model in use: the labels of images, from the folder of a run with torch, from an ONNX file without."""

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from itertools import chain, pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onepair.data.decoding import Pixels, decode, image_files
from onepair.data.preprocessing import Preprocessing, scale
from onepair.data.problems import DataError
from onepair.inference.model_files import ModelError, load_model, parse_description
from onepair.probability.decisions import Decisions

if TYPE_CHECKING:
    from onepair.models import Classifier

Image = str | Path | Pixels  # a file, a folder of files, or an array (H, W, 3)
OnProgress = Callable[[int, int], None]  # images done, images in all

METADATA = "onepair"  # the key of an ONNX file's metadata that holds all of ours

_BATCH = 32


@dataclass(frozen=True)
class Prediction:
    """What a model says of one image."""

    file: str | None  # None for an array
    labels: tuple[str, ...]  # those predicted
    probabilities: dict[str, float]  # of all classes, calibrated


@dataclass(frozen=True, eq=False)
class Model(ABC):
    """A trained model, whatever computes it.

    Images are files, folders (all images in them and in the folders below), or uint8 arrays (H, W, 3); one, or many.
    """

    classes: tuple[str, ...]
    decisions: Decisions
    preprocessing: Preprocessing

    def predict(self, images: Image | Iterable[Image], *, on_progress: OnProgress | None = None) -> list[Prediction]:
        """The labels and probabilities of images, in their order."""
        each = _one_by_one(images)
        scores = self.scores(each, on_progress=on_progress)
        return [
            Prediction(
                file=None if isinstance(image, np.ndarray) else str(image),
                labels=tuple(name for name, chosen in zip(self.classes, row, strict=True) if chosen),
                probabilities=dict(zip(self.classes, shares.tolist(), strict=True)),
            )
            for image, row, shares in zip(
                each, self.decisions.labels(scores), self.decisions.probabilities(scores), strict=True
            )
        ]

    def scores(self, images: Image | Iterable[Image], *, on_progress: OnProgress | None = None) -> NDArray[np.float32]:
        """The logits (N, L) of images, in their order."""
        each = _one_by_one(images)
        parts = [np.empty((0, len(self.classes)), np.float32)]
        done = 0
        for batch in self._read(each):
            parts.append(self.logits(batch))
            done += len(batch)
            if on_progress:
                on_progress(done, len(each))
        return np.concatenate(parts)

    @abstractmethod
    def logits(self, batch: Pixels) -> NDArray[np.float32]:
        """The logits (B, L) of images that are scaled already, (B, size, size, 3)."""

    def _read(self, images: list[Path | Pixels]) -> Iterator[Pixels]:
        """Images in batches, read by threads: while one batch is in use they read the next."""
        with ThreadPoolExecutor() as pool:
            starts = range(0, len(images), _BATCH)
            batches = (pool.map(self._read_one, images[start : start + _BATCH]) for start in starts)
            for batch, _ in pairwise(chain(batches, [iter(())])):
                yield np.stack(list(batch))

    def _read_one(self, image: Path | Pixels) -> Pixels:
        pixels = image if isinstance(image, np.ndarray) else decode(image, at_least=self.preprocessing.size)
        return scale(pixels, self.preprocessing)


@dataclass(frozen=True, eq=False)
class TorchModel(Model):
    """The model of a run."""

    classifier: "Classifier"  # the network, on the device that it is to be used on

    def logits(self, batch: Pixels) -> NDArray[np.float32]:
        import torch

        from onepair.data.images import normalise

        device = next(self.classifier.parameters()).device
        images = torch.from_numpy(batch).permute(0, 3, 1, 2).to(device)
        with torch.inference_mode():
            logits: NDArray[np.float32] = self.classifier(normalise(images, self.preprocessing)).float().cpu().numpy()
        return logits


@dataclass(frozen=True, eq=False)
class OnnxModel(Model):
    """The model in a file that `onepair export` wrote, computed by ONNX Runtime on the CPU."""

    session: Any  # an onnxruntime.InferenceSession
    float_input: bool

    def logits(self, batch: Pixels) -> NDArray[np.float32]:
        images = self._normalise(batch) if self.float_input else batch
        logits: NDArray[np.float32] = self.session.run(["logits"], {"images": images})[0]
        return logits

    def _normalise(self, batch: Pixels) -> NDArray[np.float32]:
        mean, std = (
            np.array(values, np.float32) * np.float32(255)
            for values in (self.preprocessing.mean, self.preprocessing.std)
        )
        return np.ascontiguousarray(((batch - mean) / std).transpose(0, 3, 1, 2))


def load(path: str | Path) -> Model:
    """The model of a run, by its folder, or that of a file that `onepair export` wrote.

    A run's model is put on the best device at hand. To use an ONNX file, torch is not even imported.
    """
    path = Path(path)
    if path.suffix == ".onnx" and not path.is_dir():
        return _load_onnx(path)
    if path.exists() and not path.is_dir():
        raise ModelError(f"{path}: is no model; give the folder of a run, or an .onnx file of onepair export")
    return _load_torch(path)


def _one_by_one(images: Image | Iterable[Image]) -> list[Path | Pixels]:
    """Every single image."""
    if isinstance(images, str | Path):
        return list(image_files(Path(images)))
    if isinstance(images, np.ndarray) and images.ndim != 4:
        if images.dtype != np.uint8 or images.ndim != 3 or images.shape[2] != 3:
            raise DataError(f"the array of an image is uint8 (H, W, 3), not {images.dtype} {images.shape}")
        return [images]
    return [each for image in images for each in _one_by_one(image)]


def _load_torch(folder: Path) -> TorchModel:
    from lightning_fabric import Fabric

    classifier, decisions = load_model(folder)
    classifier.to(Fabric(accelerator="auto", devices=1).device)
    return TorchModel(classifier.classes, decisions, classifier.backbone.preprocessing, classifier)


def _load_onnx(path: Path) -> OnnxModel:
    try:
        import onnxruntime
    except ImportError:
        raise ModelError(f"{path}: needs ONNX Runtime; install it with: pip install 'onepair[onnx]'") from None
    if not path.exists():
        raise ModelError(f"{path}: no such file")
    try:
        session = onnxruntime.InferenceSession(path, providers=["CPUExecutionProvider"])
    except Exception as error:  # the runtime has a dozen kinds for what is wrong with a file
        raise ModelError(f"{path}: is not an ONNX file that can be read") from error
    try:
        stored = json.loads(session.get_modelmeta().custom_metadata_map[METADATA])
        float_input = stored["input"] == "float32"
    except (KeyError, TypeError, json.JSONDecodeError):
        raise ModelError(f"{path}: does not say what its labels are; only files of onepair export do") from None
    described = parse_description(stored, where=path)
    return OnnxModel(described.classes, described.decisions, described.preprocessing, session, float_input)
