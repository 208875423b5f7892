"""Networks as ONNX graphs, and a run's model as an ONNX file, which needs neither torch nor onepair to be used."""

import json
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from onepair.data.images.batches import normalise
from onepair.data.images.decode import Preprocessing
from onepair.errors import ModelError
from onepair.files import write_atomically, writing
from onepair.inference.engine import open_session
from onepair.inference.model_files import load_model, read_description
from onepair.inference.prediction import METADATA
from onepair.metrics import Floats
from onepair.models import Classifier, IdentityBackbone
from onepair.probability.calibration import Isotonic, Platt
from onepair.probability.thresholds import Thresholds

PACKAGES = ("onnx", "onnxruntime", "onnxscript")

_OPSET = 18
_TOLERANCE = 1e-4  # between logits of the file and of torch, relative to the largest
_LARGEST = 2**31  # bytes of a protocol buffer


def missing_packages() -> list[str]:
    """Return those that ONNX graphs need and that are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def fits(network: nn.Module) -> bool:
    """Say whether a network's weights fit into an ONNX file."""
    return sum(int(tensor.nbytes) for tensor in network.state_dict().values()) <= _LARGEST


def to_onnx(
    network: nn.Module,
    images: Tensor,
    *,
    outputs: list[str],
    metadata: dict[str, str] | None = None,
    input: str = "images",
) -> bytes:
    """Make an ONNX graph of a network, for any number of images, that says nothing of this machine."""
    import onnx
    from onnx_ir.passes.common import ClearMetadataAndDocStringPass

    program: Any = torch.onnx.export(
        network,
        (images,),
        dynamo=True,
        dynamic_shapes=({0: torch.export.Dim("batch")},),
        input_names=[input],
        output_names=outputs,
        opset_version=_OPSET,
        external_data=False,
        verbose=False,
    )
    ClearMetadataAndDocStringPass()(program.model)  # of every node, where in the code on this machine it comes from
    model = program.model_proto
    weights = {tensor.name for tensor in model.graph.initializer}
    for place in reversed(range(len(model.graph.value_info))):  # tools that quantise take all that is here for computed
        if model.graph.value_info[place].name in weights:
            del model.graph.value_info[place]
    if metadata:
        onnx.helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def random_images(preprocessing: Preprocessing, count: int) -> Tensor:
    """Make pixels (count, S, S, 3) to try a network with, always the same."""
    shape = (count, preprocessing.size, preprocessing.size, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


class Exported(NamedTuple):
    """What was written."""

    size: int  # bytes
    inputs: list[str]  # as "images: uint8 (batch, 224, 224, 3)"
    outputs: list[str]
    difference: float  # the largest between its logits and torch's


def export_onnx(run: Path, out: Path, *, float_input: bool = False) -> Exported:
    """Write the model of a run as one ONNX file, after a check that it computes what torch does.

    Its input `images` has RGB pixels, uint8 (batch, S, S, 3), scaled to size but otherwise as they are; where the model
    was trained on vectors, its input is `vectors`, float32 (batch, D). Its outputs are
    `logits`, calibrated `probabilities` and the predicted `labels`, all (batch, L). The metadata "onepair" holds, as
    JSON, what else there is to know: classes, preprocessing, decisions, backbone.

    Args:
        run: the folder of a finished run.
        out: the file to write, a .onnx.
        float_input: take normalised images instead, float32 (batch, 3, S, S).
    """
    if out.suffix != ".onnx":
        raise ModelError(f"{out}: the name of an ONNX file ends in .onnx")
    missing = missing_packages()
    if missing:
        raise ModelError(f"the export needs {', '.join(missing)}; install with: pip install 'onepair[onnx]'")
    described, (classifier, _) = read_description(run), load_model(run)
    if described.vocabulary:
        raise ModelError(
            f"{run}: reads texts, whose words an ONNX file cannot tell; use the run itself, with onepair predict or "
            "onepair.load"
        )
    if float_input and described.width is not None:
        raise ModelError(f"{run}: takes vectors, which are float32 as they are; leave --float-input out")
    if not out.parent.is_dir():
        raise ModelError(f"{out}: there is no folder {out.parent}")
    if not fits(classifier):
        raise ModelError(f"{run}: its weights are more than the 2 GB that an ONNX file can hold")
    graph = _Graph(classifier, described.decisions, float_input=float_input).eval()
    kind = "vectors" if graph.of_vectors else "float32" if float_input else "uint8"
    content = _convert(graph, {**described.to_dict(), "input": kind})
    exported = _check(content, graph)
    with writing(out):
        write_atomically(out, content)
    return exported


class _Graph(nn.Module):
    """What the file computes: logits, probabilities and labels of images."""

    thresholds: Tensor

    def __init__(self, classifier: Classifier, decisions: Thresholds, *, float_input: bool) -> None:
        super().__init__()
        self.classifier = classifier
        calibrator = decisions.calibrator
        self.calibrator = _Line(calibrator) if isinstance(calibrator, Platt) else _Curve(calibrator)
        self.register_buffer("thresholds", torch.from_numpy(_rounded_up(decisions.thresholds)))
        self.float_input = float_input
        self.of_vectors = isinstance(classifier.backbone, IdentityBackbone)

    def forward(self, images: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if not self.float_input and not self.of_vectors:
            images = normalise(images.permute(0, 3, 1, 2), self.classifier.backbone.preprocessing)
        logits = self.classifier(images)
        return logits, self.calibrator(logits), logits >= self.thresholds


class _Line(nn.Module):
    """`Platt` in torch."""

    slope: Tensor
    intercept: Tensor

    def __init__(self, platt: Platt) -> None:
        super().__init__()
        self.register_buffer("slope", torch.from_numpy(platt.slope).float())
        self.register_buffer("intercept", torch.from_numpy(platt.intercept).float())

    def forward(self, logits: Tensor) -> Tensor:
        return torch.sigmoid(logits * self.slope + self.intercept)


class _Curve(nn.Module):
    """`Isotonic` in torch: the first probability, and what it rises over the pieces that a score has passed."""

    first: Tensor  # (L,)
    start: Tensor  # (L, K), and so the others: every class has as many pieces as the one with most, some of no height
    width: Tensor
    height: Tensor

    def __init__(self, isotonic: Isotonic) -> None:
        super().__init__()
        length = max(map(len, isotonic.scores)) + 1  # at least one piece: ONNX Runtime cannot sum none
        corners, levels = (
            np.stack([np.pad(each, (0, length - len(each)), mode="edge") for each in curves])
            for curves in (isotonic.scores, isotonic.probabilities)
        )
        widths, heights = np.diff(corners), np.diff(levels)
        self.register_buffer("first", torch.from_numpy(levels[:, 0]).float())
        self.register_buffer("start", torch.from_numpy(corners[:, :-1]).float())
        self.register_buffer("width", torch.from_numpy(np.where(widths > 0, widths, 1.0)).float())
        self.register_buffer("height", torch.from_numpy(heights).float())

    def forward(self, logits: Tensor) -> Tensor:
        passed = ((logits[..., None] - self.start) / self.width).clamp(0, 1)
        return self.first + (passed * self.height).sum(-1)


def _rounded_up(thresholds: Floats) -> NDArray[np.float32]:
    """The least float32 that is at least a threshold: the same float32 logits reach both."""
    near = thresholds.astype(np.float32)
    return np.where(near < thresholds, np.nextafter(near, np.float32(np.inf)), near)


def _convert(graph: _Graph, description: dict[str, Any]) -> bytes:
    metadata = {METADATA: json.dumps(description, ensure_ascii=False)}
    try:
        return to_onnx(
            graph,
            _example(graph, 2),
            outputs=["logits", "probabilities", "labels"],
            metadata=metadata,
            input="vectors" if graph.of_vectors else "images",
        )
    except torch.onnx.OnnxExporterError as error:
        raise ModelError(f"{description['backbone']} cannot be exported by torch {torch.__version__}") from error


def _check(content: bytes, graph: _Graph) -> Exported:
    """Compute random images with ONNX Runtime and with torch, and compare."""
    session = open_session(content)
    images = _example(graph, 3)
    with torch.inference_mode():
        expected = graph(images)[0].numpy()
    (found,) = session.run(["logits"], {session.get_inputs()[0].name: images.numpy()})
    difference = float(np.abs(found - expected).max())
    if not difference <= _TOLERANCE * max(1, np.abs(expected).max()):
        raise ModelError(
            f"{graph.classifier.backbone.name} cannot be exported by torch {torch.__version__}: "
            f"the file's logits would differ from torch's by {difference:.1g}"
        )
    inputs, outputs = (list(map(_in_words, each)) for each in (session.get_inputs(), session.get_outputs()))
    return Exported(len(content), inputs, outputs, difference)


def _example(graph: _Graph, images: int) -> Tensor:
    """Random images as the graph takes them, or vectors."""
    if graph.of_vectors:
        width = graph.classifier.backbone.feature_dim
        return torch.randn(images, width, generator=torch.Generator().manual_seed(0))
    preprocessing = graph.classifier.backbone.preprocessing
    pixels = random_images(preprocessing, images)
    return normalise(pixels.permute(0, 3, 1, 2), preprocessing).contiguous() if graph.float_input else pixels


def _in_words(tensor: Any) -> str:
    kind = tensor.type.removeprefix("tensor(").removesuffix(")").replace("float", "float32")
    return f"{tensor.name}: {kind} ({', '.join(map(str, tensor.shape))})"
