"""Networks as ONNX graphs, and a run's model as an ONNX file, which needs neither torch nor onepair to be used."""

import json
import logging
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from time import perf_counter
from typing import Any, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from onepair.data.images.batches import normalise
from onepair.data.images.blocks import Input, image_blocks, row_blocks
from onepair.data.images.decode import Preprocessing
from onepair.errors import ModelError
from onepair.files import write_atomically, writing
from onepair.inference.engine import open_session
from onepair.inference.model_files import CARD, load_model, read_description
from onepair.inference.prediction import METADATA, load
from onepair.metrics import Floats
from onepair.models import Classifier, IdentityBackbone
from onepair.probability.calibration import Isotonic, Platt
from onepair.probability.thresholds import Thresholds

PACKAGES = ("onnx", "onnxruntime", "onnxscript")

_OPSET = 18
_TOLERANCE = 1e-4  # between logits of the file and of torch, relative to the largest
_WEIGHTED = ("Conv", "Gemm", "MatMul")
_BATCH, _ROUNDS = 8, 3  # of images, and of measurements of a quantised graph
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
    for index in reversed(range(len(model.graph.value_info))):  # tools that quantise take all that is here for computed
        if model.graph.value_info[index].name in weights:
            del model.graph.value_info[index]
    if metadata:
        onnx.helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def random_images(preprocessing: Preprocessing, count: int) -> Tensor:
    """Make pixels (count, S, S, 3) to try a network with, always the same."""
    shape = (count, preprocessing.size, preprocessing.size, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


class Quantised(NamedTuple):
    """What 8 bits gain and cost, on the calibration images or else on noise."""

    images: int
    per_second: float
    float_per_second: float  # of the file that was not quantised, measured in turns with it
    agreement: float  # the share of all labels that both predict alike


class Exported(NamedTuple):
    """What was written."""

    size: int  # bytes
    inputs: list[str]  # as "images: uint8 (batch, 224, 224, 3)"
    outputs: list[str]
    difference: float  # the largest between its logits and torch's, before they were quantised
    quantised: Quantised | None = None


def export_onnx(
    run: Path,
    out: Path,
    *,
    float_input: bool = False,
    quantize: Literal["int8"] | None = None,
    calibration: Any = None,
) -> Exported:
    """Write the model of a run as one ONNX file, after a check that it computes what torch does.

    Its input `images` has RGB pixels, uint8 (batch, S, S, 3), scaled to size but otherwise as they are; where the model
    was trained on vectors, its input is `vectors`, float32 (batch, D). Its outputs are
    `logits`, calibrated `probabilities` and the predicted `labels`, all (batch, L). The metadata "onepair" holds, as
    JSON, what else there is to know: classes, preprocessing, decisions, backbone.

    Args:
        run: the folder of a finished run.
        out: the file to write, a .onnx.
        float_input: take normalised images instead, float32 (batch, 3, S, S).
        quantize: "int8" keeps the weights of the network in 8 bits: a quarter of the size at the same speed.
        calibration: some dozens of images, or vectors, as the model takes them: with these, the network computes in 8
            bits too, which is faster on processors that are made for it.

    Returns:
        What was written.

    Raises:
        ModelError: the model cannot be an ONNX file, or an option does not fit it.
    """
    if quantize not in (None, "int8"):
        raise ModelError(f"a model is quantised to int8, not to {quantize!r}")
    if calibration is not None and quantize is None:
        raise ModelError("calibration images are for a model that is quantised; add quantize='int8'")
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
    if quantize is not None:
        inputs = None if calibration is None else _inputs(graph, load(run).each(calibration))
        content, quantised = _quantise(content, graph, inputs)
        exported = exported._replace(size=len(content), quantised=quantised)
    with writing(out):
        write_atomically(out, content)
        if (run / CARD).exists():
            write_atomically(out.with_suffix(".md"), (run / CARD).read_bytes())
    return exported


def _inputs(graph: "_Graph", given: Iterator[Input]) -> list[NDArray[Any]]:
    """Batches of what the graph takes, of images or vectors."""
    if graph.of_vectors:
        blocks = row_blocks(given, lambda rows: np.stack(rows).astype(np.float32), batch_size=_BATCH)
        batches = [block.inputs for block in blocks]
    else:
        preprocessing = graph.classifier.backbone.preprocessing
        batches = [block.inputs for block in image_blocks(given, preprocessing, batch_size=_BATCH)]
        if graph.float_input:
            batches = [
                normalise(torch.from_numpy(each).permute(0, 3, 1, 2), preprocessing).contiguous().numpy()
                for each in batches
            ]
    if not batches:
        raise ModelError("there is not one image to calibrate by")
    return batches


def _quantise(content: bytes, graph: "_Graph", inputs: list[NDArray[Any]] | None) -> tuple[bytes, Quantised]:
    """The graph in 8 bits, and how it compares with itself before: static by inputs, or else its weights alone."""
    import onnx
    from onnxruntime import quantization

    model = onnx.load_from_string(content)
    (name,) = (each.name for each in model.graph.input)
    # The head is cheap, and its large weights cancel each other: in 8 bits it would say something else.
    head = [] if graph.of_vectors else [node.name for node in model.graph.node if "logits" in node.output]
    if inputs is None:
        quantised = _with_small_weights(model, head)
    else:
        with TemporaryDirectory() as folder, _quiet():
            file, batches = Path(folder) / "model.onnx", _Batches(iter([{name: each} for each in inputs]))
            quantization.quantize_static(model, file, batches, per_channel=True, nodes_to_exclude=head)
            quantised = file.read_bytes()
    measured = inputs or [_example(graph, _BATCH).numpy() for _ in range(4)]
    sessions = [open_session(each) for each in (content, quantised)]
    seconds, labels = np.zeros((_ROUNDS, 2)), [np.zeros(0), np.zeros(0)]
    for row in seconds:
        for index, session in enumerate(sessions):
            start = perf_counter()
            labels[index] = np.concatenate([session.run(["labels"], {name: each})[0] for each in measured])
            row[index] = perf_counter() - start
    images = len(labels[0])
    float_speed, speed = images / np.median(seconds, axis=0)
    return quantised, Quantised(images, float(speed), float(float_speed), float((labels[0] == labels[1]).mean()))


def _with_small_weights(model: Any, but: Sequence[str]) -> bytes:
    """The graph with the weights of all nodes `but` some in 8 bits, and a scale for each output channel.

    ONNX Runtime makes floats of them when it opens the file, so that it computes as fast as before.
    """
    from onnx import TensorProto, helper, numpy_helper

    graph = model.graph
    weighted = [node for node in graph.node if node.op_type in _WEIGHTED and node.name not in but]
    axes = {node.input[1]: -1 if node.op_type == "MatMul" else 0 for node in weighted}
    for tensor in [each for each in graph.initializer if each.name in axes]:
        weights = numpy_helper.to_array(tensor)
        axis = axes[tensor.name] % weights.ndim
        others = tuple(each for each in range(weights.ndim) if each != axis)
        scale = np.abs(weights).max(others, keepdims=True) / 127
        scale = np.maximum(scale, np.finfo(np.float32).tiny).astype(np.float32)
        small, scaled, wide = (f"{tensor.name}.{part}" for part in ("int8", "scale", "float"))
        graph.initializer.remove(tensor)
        graph.initializer.append(numpy_helper.from_array(np.rint(weights / scale).astype(np.int8), small))
        graph.initializer.append(numpy_helper.from_array(scale, scaled))
        graph.node.insert(0, helper.make_node("Mul", [wide, scaled], [tensor.name]))
        graph.node.insert(0, helper.make_node("Cast", [small], [wide], to=TensorProto.FLOAT))
    return bytes(model.SerializeToString())


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the warnings of onnxruntime's tools, which advise what was tried and changes nothing."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)


class _Batches:
    """Inputs for `quantize_static`, one batch at a time."""

    def __init__(self, batches: Iterator[dict[str, NDArray[Any]]]) -> None:
        self.batches = batches

    def get_next(self) -> dict[str, NDArray[Any]] | None:
        return next(self.batches, None)


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
