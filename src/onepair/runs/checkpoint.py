"""The whole state of a run in one safetensors file: tensors as tensors, everything else as JSON in its header."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import safetensors
import safetensors.torch
from torch import Tensor

from onepair.errors import UserError
from onepair.files import write_atomically


class CheckpointError(UserError, ValueError):
    """A checkpoint that cannot be read."""


def save_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write nested dictionaries and lists of tensors, numbers, texts and None; the file is complete or not there."""
    tensors: dict[str, Tensor] = {}
    outline = _take_tensors(state, (), tensors)
    write_atomically(path, safetensors.torch.save(tensors, {"outline": json.dumps(outline)}))


def load_state(path: Path) -> dict[str, Any]:
    """What `save_state` wrote."""
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            outline = json.loads(file.metadata()["outline"])
            tensors = {key: file.get_tensor(key) for key in file.keys()}  # noqa: SIM118 (not a dict)
            state: dict[str, Any] = _put_tensors(outline, tensors)
    except (safetensors.SafetensorError, KeyError, TypeError, ValueError, AttributeError, OSError) as error:
        raise unfit(path, error) from None
    return state


def unfit(path: Path, error: Exception) -> CheckpointError:
    """The sentence about a file that is no checkpoint, or one of something else."""
    reason = " ".join(str(error).split())
    return CheckpointError(f"{path}: is not a checkpoint that can be read ({reason}); delete it to start anew")


def _take_tensors(value: Any, key: tuple[str, ...], tensors: dict[str, Tensor]) -> Any:
    """`value` with every tensor moved to `tensors` and a reference left in its place."""
    if isinstance(value, Tensor):
        name = ".".join(key)
        name = f"{name} {len(tensors)}" if name in tensors else name  # as for {"a.b": …, "a": {"b": …}}
        tensors[name] = value.detach().cpu().contiguous().clone()  # tensors that share memory are refused
        return {"tensor": name}
    if isinstance(value, Mapping):
        # Keys of an optimiser's state are integers, which JSON would turn into texts.
        return {"items": [[k, _take_tensors(v, (*key, str(k)), tensors)] for k, v in value.items()]}
    if isinstance(value, list | tuple):
        return {"list": [_take_tensors(v, (*key, str(i)), tensors) for i, v in enumerate(value)]}
    return {"value": value}


def _put_tensors(outline: Any, tensors: Mapping[str, Tensor]) -> Any:
    ((kind, content),) = outline.items()
    if kind == "tensor":
        return tensors[content]
    if kind == "items":
        return {key: _put_tensors(value, tensors) for key, value in content}
    if kind == "list":
        return [_put_tensors(value, tensors) for value in content]
    return content
