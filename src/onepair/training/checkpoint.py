"""When to save and when to stop, and what a stage has saved."""

import json
import signal
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from types import FrameType, TracebackType
from typing import Any

import safetensors
import safetensors.torch
import torch
from lightning_fabric import Fabric
from torch import Tensor

from onepair.errors import RunError, Stopped
from onepair.files import write_atomically

Weights = dict[str, Tensor]


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


def unfit(path: Path, error: Exception) -> RunError:
    """The sentence about a file that is no checkpoint, or one of something else."""
    reason = " ".join(str(error).split())
    return RunError(f"{path}: is not a checkpoint that can be read ({reason}); delete it to start anew")


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


class StageCheckpoint:
    """The files of a stage in the folder of its run.

    The best weights have a file by their epoch, which the state refers to. It is written before the state and the older
    one deleted after it, so that whenever the process ends, the state on disk finds the weights that belong to it; and
    while an epoch stays the best they are not written again.
    """

    def __init__(self, folder: Path, stage: str) -> None:
        self.folder, self.stage = folder, stage
        self.last = folder / f"{stage}-last.safetensors"
        self._best: Path | None = None  # that is written

    def save(self, state: Mapping[str, Any], *, best: Weights, best_epoch: int) -> None:
        """Save a state; before the end of the first epoch there are no best weights, and `best_epoch` is 0."""
        file = self._best_file(best_epoch)
        if best_epoch and file != self._best:
            save_state(file, best)
            self._best = file
        save_state(self.last, {**state, "best_epoch": best_epoch})
        self._remove_others(file)

    def load(self) -> tuple[dict[str, Any], Weights]:
        """The last state, and the best weights that belong to it.

        Older ones go, too: a process that is killed after its last state leaves none that would remove them.
        """
        state = load_state(self.last)
        best_epoch = state.pop("best_epoch", None)
        if not isinstance(best_epoch, int):
            raise unfit(self.last, KeyError("best_epoch"))
        file = self._best_file(best_epoch)
        best = load_state(file) if best_epoch else {}
        self._best = file
        self._remove_others(file)
        return state, best

    def _remove_others(self, best: Path) -> None:
        for other in self.folder.glob(self._best_file("*").name):
            if other != best:
                other.unlink(missing_ok=True)  # other processes of the run may remove it, too

    def _best_file(self, epoch: int | str) -> Path:
        return self.folder / f"{self.stage}-best-{epoch}.safetensors"


SECONDS_BETWEEN_CHECKPOINTS = 60.0
SECONDS_BETWEEN_LOOKS = 1.0  # of several processes, which have to wait for each other to look

_NAMES = {signal.SIGINT: "Ctrl-C", signal.SIGTERM: "SIGTERM"}


class StopRequests:
    """Takes note of Ctrl-C and SIGTERM instead of dying from them; a second one is obeyed at once."""

    def __init__(self) -> None:
        self.received = 0  # the number of the signal
        self._before: dict[int, Any] = {}

    def __enter__(self) -> "StopRequests":
        if threading.current_thread() is threading.main_thread():  # no other may ask for signals
            self._before = {number: signal.signal(number, self._take_note) for number in _NAMES}
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler)
        self._before = {}

    def _take_note(self, number: int, frame: FrameType | None) -> None:
        self.received = number
        self.__exit__(None, None, None)

    def raise_if_asked(self, *, kept: str) -> None:
        """Stop, if that was asked for."""
        if self.received:
            raise stopped(self.received, kept=kept)


def stopped(number: int, *, kept: str, shown: bool = True) -> Stopped:
    """The end of a run that a signal stopped; of several processes, one tells of it and has the signal's exit code."""
    sentence = f"stopped by {_NAMES[signal.Signals(number)]}; {kept}; the same command goes on"
    return Stopped(sentence if shown else "", code=128 + number if shown else 0)


class Agreement:
    """What the processes of a run agree on after every batch: whether it is time to save, and whether to stop.

    All call `look` after the same batches. Several of them look at their clocks and signals only every second or so,
    since to agree they have to wait for each other; after how many batches, they agree on as well.
    """

    def __init__(self, fabric: Fabric, requests: StopRequests) -> None:
        self.fabric, self.requests = fabric, requests
        self.between = self.left = 1  # batches from one look to the next
        self.looked = self.saved_at = time.monotonic()

    def look(self, *, surely: bool = False) -> tuple[int, bool]:
        """The signal that asks to stop, or 0, and whether to save; nothing, unless it is `surely` time to look."""
        self.left -= 1
        if self.left > 0 and not surely:
            return 0, False
        now = time.monotonic()
        due = now - self.saved_at > SECONDS_BETWEEN_CHECKPOINTS
        if self.fabric.world_size == 1:
            self.left = 1
            return self.requests.received, due
        in_time = int(self.between * SECONDS_BETWEEN_LOOKS / max(now - self.looked, 1e-6))
        wanted = [self.requests.received, due, max(1, min(in_time, 2 * self.between))]
        agreed: Any = self.fabric.all_reduce(torch.tensor(wanted, device=self.fabric.device), reduce_op="max")
        received, due, self.between = agreed.tolist()
        self.left, self.looked = self.between, now
        return received, bool(due)

    def saved(self) -> None:
        self.saved_at = time.monotonic()
