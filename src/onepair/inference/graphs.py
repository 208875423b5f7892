"""Networks as ONNX graphs: how one is made, and where those of backbones are kept."""

import copy
import hashlib
import json
import warnings
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from onepair.data.images.batches import normalise
from onepair.data.images.decode import Preprocessing
from onepair.files import write_atomically
from onepair.inference.engine import OnnxEngine, open_session
from onepair.models import Backbone

PACKAGES = ("onnx", "onnxruntime", "onnxscript")

_OPSET = 18
_TOLERANCE = 1e-4  # of the largest feature
_LARGEST = 2**31  # bytes of a protocol buffer


def missing_packages() -> list[str]:
    """Those that ONNX graphs need and that are not installed."""
    return [name for name in PACKAGES if find_spec(name) is None]


def fits(network: nn.Module) -> bool:
    """Whether a network's weights fit into an ONNX file."""
    return sum(int(tensor.nbytes) for tensor in network.state_dict().values()) <= _LARGEST


def to_onnx(
    network: nn.Module,
    images: Tensor,
    *,
    outputs: list[str],
    metadata: dict[str, str] | None = None,
    input: str = "images",
) -> bytes:
    """A network that takes images, or what else `input` names, of any number, as an ONNX graph that says nothing of
    this machine."""
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
    if metadata:
        onnx.helper.set_model_props(model, metadata)
    onnx.checker.check_model(model, full_check=True)
    return bytes(model.SerializeToString())


def random_images(preprocessing: Preprocessing, count: int) -> Tensor:
    """Pixels (count, S, S, 3) to try a network with, always the same."""
    shape = (count, preprocessing.size, preprocessing.size, 3)
    return torch.randint(0, 256, shape, dtype=torch.uint8, generator=torch.Generator().manual_seed(0))


def backbone_in_onnx(backbone: Backbone, *, cache: Path) -> OnnxEngine | None:
    """A backbone computed by ONNX Runtime, or None where that cannot be had or does not give torch's features.

    To make the graph and compare it with torch takes some seconds; it is kept in `graphs` of the cache folder, under a
    name made of all that decides it. An empty file there says that it could not be made.
    """
    if missing_packages() or not fits(backbone.network):
        return None
    file = cache / "graphs" / f"{backbone.name.replace('/', '-')}-{_key(backbone)}.onnx"
    try:
        content = file.read_bytes()
    except OSError:
        content = _checked_graph(backbone)
        file.parent.mkdir(parents=True, exist_ok=True)
        write_atomically(file, content)
    try:
        return OnnxEngine(open_session(content), "features", file=file) if content else None
    except Exception:  # a damaged file; the runtime has a dozen kinds for that
        file.unlink(missing_ok=True)
        return None


class _FromPixels(nn.Module):
    """A backbone that normalises its images itself."""

    def __init__(self, backbone: Backbone) -> None:
        super().__init__()
        self.network = copy.deepcopy(backbone.network).cpu().eval()
        self.preprocessing = backbone.preprocessing

    def forward(self, images: Tensor) -> Tensor:
        features: Tensor = self.network(normalise(images.permute(0, 3, 1, 2), self.preprocessing))
        return features


def _checked_graph(backbone: Backbone) -> bytes:
    """The graph, or nothing where it cannot be made or computes something else than torch."""
    network = _FromPixels(backbone)
    images = random_images(backbone.preprocessing, 3)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what cannot be exported is computed by torch: nothing to worry about
            content = to_onnx(network, images[:2], outputs=["features"])
        found = OnnxEngine(open_session(content), "features")(images.numpy())
    except Exception:  # the exporter and the runtime fail in every way there is
        return b""
    with torch.inference_mode():
        expected = network(images).numpy()
    return content if np.abs(found - expected).max() <= _TOLERANCE * np.abs(expected).max() else b""


def _key(backbone: Backbone) -> str:
    decides = {
        "weights": backbone.weights_id(),
        "preprocessing": asdict(backbone.preprocessing),
        "versions": [version(name) for name in ("torch", *PACKAGES)],
    }
    return hashlib.sha256(json.dumps(decides).encode()).hexdigest()[:32]
