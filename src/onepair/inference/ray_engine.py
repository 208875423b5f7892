"""Images computed by Ray, on a cluster that is there or one of this machine."""

import logging
import os
import secrets
import shutil
import signal
import socket
import sys
import tempfile
import threading
import warnings
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from onepair import __version__
from onepair.data.images.blocks import Input, Row, Scored, cores, image_blocks
from onepair.data.images.decode import Pixels, Preprocessing
from onepair.data.label_table import Problem, Report
from onepair.errors import RayError, UserError, require_extra
from onepair.inference.engine import Engine, Float32

if TYPE_CHECKING:
    from onepair.inference.engine import EngineFactory, Executor

OBJECT_STORE = 512 * 2**20  # bytes for blocks that are on their way; Ray writes to disk what is more
PATIENCE = 5.0  # seconds for a cluster to answer at all
WORKER_STARTS = 120.0  # seconds for a node to start a process
ATTEMPTS = 3  # to start a cluster
SETTINGS = b"\x04"  # the kind of frame that HTTP/2, which Ray speaks, begins with on both sides
HELLO = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(3) + SETTINGS + bytes(5)
LONGEST = 400  # letters of what Ray says


class Cluster:
    """A cluster that is started or joined when it is first needed, and left at the end of the block.

    Args:
        address: HOST:PORT of a cluster's head, or "auto" for the one that this machine belongs to; None starts one on
            this machine, which listens to nobody else.
        on_start: called before a cluster is started.
    """

    def __init__(self, address: str | None = None, *, on_start: Callable[[], object] = lambda: None) -> None:
        require_extra("ray")
        self.address, self.on_start = address, on_start
        self._held = ExitStack()
        if address is not None:
            _require_answer(address)

    def __enter__(self) -> "Executor":
        return self.over

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._held.close()

    def over(self, engines: "EngineFactory") -> "EngineFactory":
        """The same engines, computed by the cluster; on its GPUs, if it has any."""

        def chosen(images: int) -> Engine:
            on = getattr(engines, "on", None) if self.gpus else None
            return RayEngine((on(_gpu()) if on else engines)(images), self)

        return chosen

    @property
    def gpus(self) -> int:
        return int(self._resources.get("GPU", 0))

    @property
    def actors(self) -> int:
        """How many may hold the network: one for each GPU, or else on three of four CPUs, as the others read."""
        cpus = int(self._resources["CPU"])
        return self.gpus or max(1, cpus - max(1, cpus // 4))

    @cached_property
    def _resources(self) -> dict[str, float]:
        self._held.enter_context(_quiet())
        if self.address is None:
            self.on_start()
        self._held.enter_context(_started() if self.address is None else _joined(self.address))
        import ray

        context = ray.data.DataContext.get_current()
        context.enable_progress_bars = False
        context.execution_options.preserve_order = True
        resources: dict[str, float] = ray.cluster_resources()
        if resources.get("CPU", 0) < 2:
            raise RayError("Ray needs two CPUs, one to read images and one to compute; its cluster has fewer")
        _require_same_version()
        return resources


@contextmanager
def translated_errors() -> Iterator[None]:
    """Turn what happens to a cluster into a sentence; what is wrong with our own code stays as it is."""
    import ray

    try:
        yield
    except ray.exceptions.RayTaskError as error:
        raise (error.cause if isinstance(error.cause, UserError) else error) from None
    except ray.exceptions.RayError as error:
        raise RayError(f"Ray gave up: {_sentence(error)}; the same command goes on") from error


def _gpu() -> list[Any]:
    import torch

    return [torch.device("cuda", 0)]


@contextmanager
def _started() -> Iterator[None]:
    """A cluster of this machine alone: it listens on loopback, and answers to who knows its token."""
    with tempfile.TemporaryDirectory(prefix="onepair-", ignore_cleanup_errors=True) as folder:
        free = shutil.disk_usage(folder).free
        if free < 2 * OBJECT_STORE:
            raise RayError(f"{folder}: Ray needs {2 * OBJECT_STORE / 1e9:.1f} GB there, and {free / 1e9:.1f} are free")
        with _environment(
            RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER="0",  # whatever the system: a cluster of others is what this rules out
            RAY_AUTH_MODE="token",
            RAY_AUTH_TOKEN=secrets.token_hex(32),
        ):
            yield from _connected(
                address="local",
                num_cpus=max(2, cores()),
                object_store_memory=OBJECT_STORE,
                include_dashboard=False,
                _temp_dir=folder,
            )


@contextmanager
def _joined(address: str) -> Iterator[None]:
    yield from _connected(address=address)


def _connected(**options: Any) -> Iterator[None]:
    import ray

    terminated = signal.getsignal(signal.SIGTERM)
    try:
        with _muted():
            _init(**options)
            import ray.data
    except SystemExit:  # Ray's answer to SIGTERM, which has another one here
        ray.shutdown()
        _set_sigterm(terminated)
        signal.raise_signal(signal.SIGTERM)
        raise
    except Exception as error:  # a dozen kinds, and some of the bare one
        ray.shutdown()
        if isinstance(error, OSError) and error.errno is not None:  # of a disk
            raise
        raise RayError(f"Ray cannot be used ({_sentence(error)})") from error
    try:
        _set_sigterm(terminated)
        logging.getLogger("ray.data").handlers[:] = [logging.NullHandler()]
        yield
    finally:
        ray.shutdown()


def _init(**options: Any) -> None:
    """Start or join a cluster. Where others are at work, parts of a new one may give up on each other: then again."""
    import ray

    for attempt in range(ATTEMPTS):
        try:
            ray.init(log_to_driver=False, logging_level=logging.CRITICAL, **options)
            return
        except Exception as error:
            ray.shutdown()
            if "timed out during startup" not in str(error) or attempt + 1 == ATTEMPTS:
                raise


def _set_sigterm(handler: Any) -> None:
    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, handler)


@contextmanager
def _quiet() -> Iterator[None]:
    """Without what Ray tells of its users, and tells its users; it is also warned of its own ways."""
    with (
        warnings.catch_warnings(),
        _environment(
            RAY_USAGE_STATS_ENABLED="0",
            RAY_BACKEND_LOG_LEVEL="fatal",
            RAY_ENABLE_AUTO_CONNECT="0",  # or a thread that is still at work would start another cluster at the end
            RAY_DATA_DISABLE_PROGRESS_BARS="1",
            RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0",
        ),
    ):
        warnings.filterwarnings("ignore", module=r"ray\.")
        yield


@contextmanager
def _muted() -> Iterator[None]:
    """Ray's servers, and its part of this process, write to the terminal before they look at what they may."""
    sys.stderr.flush()
    terminal, nowhere = os.dup(2), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 2)
    try:
        yield
    finally:
        os.dup2(terminal, 2)
        os.close(terminal)
        os.close(nowhere)


@contextmanager
def _environment(**variables: str) -> Iterator[None]:
    before = {name: os.environ.get(name) for name in variables}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def _require_answer(address: str) -> None:
    """Look whether anybody is there, which Ray would do for a minute."""
    if address == "auto":
        return
    host, _, port = address.rpartition(":")
    if not host or not port.isdecimal() or "/" in host:
        raise RayError(f"--address {address}: a cluster is HOST:PORT, as ray start prints it, or auto")
    try:
        with socket.create_connection((host, int(port)), timeout=PATIENCE) as connection:
            connection.sendall(HELLO)
            if connection.recv(9)[3:4] != SETTINGS:
                raise OSError("something else is there")
    except (OSError, OverflowError) as error:
        raise RayError(
            f"--address {address}: no cluster answers ({error}); is it up? ray status --address {address} tells"
        ) from None


def _require_same_version() -> None:
    """Ask every node which onepair it has."""
    import ray
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy as On

    def look() -> str:  # a function of this one, so that a node can call it that has no onepair
        try:
            from onepair import __version__ as found
        except ImportError:
            return "none"
        return found

    nodes = {node["NodeManagerAddress"]: node["NodeID"] for node in ray.nodes() if node["Alive"]}
    asked = {
        name: ray.remote(look).options(num_cpus=0, scheduling_strategy=On(node, soft=False)).remote()
        for name, node in nodes.items()
    }
    for name, answer in asked.items():
        if (found := ray.get(answer, timeout=WORKER_STARTS)) != __version__:
            raise RayError(
                f"the Ray node {name} has onepair {found}, and this is {__version__}; install the same there"
            )


def _sentence(error: BaseException) -> str:
    """What Ray says in many lines, in one."""
    return " ".join(str(error).split())[:LONGEST] or type(error).__name__


IMAGES_PER_TASK = 64  # at least: fewer would be gone before the next task is there
WINDOW = 2**17  # images that are handed out at a time: nobody need know how many there are
ACTOR = 2**29  # bytes that an actor takes at least
TRIES = 2  # of an image to kill a process apart, before it is left out
DEADLY = "cannot be read as an image: whatever process decodes it is killed"


@dataclass(frozen=True, eq=False)
class RayEngine:
    """An engine, computed by the actors of a cluster. In this process it is what it was."""

    engine: Engine
    cluster: Cluster

    @property
    def batch_size(self) -> int:
        return self.engine.batch_size

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        return self.engine(inputs)

    def stream(
        self, images: Iterable[Input], preprocessing: Preprocessing, *, flip: bool, report: Report
    ) -> Iterator[Scored]:
        """As `onepair.data.images.blocks.stream_images`."""
        left, before = iter(images), 0
        for window in iter(lambda: list(islice(left, WINDOW)), []):
            for scored in self._window(window, preprocessing, flip, report):
                rows, seen = scored.rows + before, scored.seen + before
                yield scored._replace(rows=rows, seen=seen)
            before += len(window)

    def _window(
        self, images: list[Input], preprocessing: Preprocessing, flip: bool, report: Report
    ) -> Iterator[Scored]:
        size, expected = self.batch_size, 0
        with translated_errors():
            for done in _rows(self._dataset(images, preprocessing, flip)):
                first, count = int(done["first"]), len(images[expected : expected + size])
                if first != expected:
                    raise RuntimeError(f"Ray gave row {first} where row {expected} was due")
                expected += count
                for place, what in zip(done["places"], done["problems"], strict=True):
                    _report(images[first + place], what, preprocessing, str(done["node"]), report)
                rows = np.frombuffer(done["rows"], np.int64) + first
                if len(rows):
                    scores = np.frombuffer(done["scores"], np.float32).reshape(len(rows), -1)
                    yield Scored(scores, rows, expected, [images[row] for row in rows.tolist()])
        if expected != len(images):
            raise RuntimeError(f"Ray gave {expected} rows where {len(images)} were due")

    def _dataset(self, images: list[Input], preprocessing: Preprocessing, flip: bool) -> Any:
        import ray

        size = self.batch_size
        whole = [image.absolute() if isinstance(image, Path) else image for image in images]
        batches = [{"first": at, "images": whole[at : at + size]} for at in range(0, len(images), size)]
        tasks = max(1, min(len(batches), len(images) // IMAGES_PER_TASK))
        begun = ray.remote(num_cpus=0, max_restarts=-1, max_task_retries=-1)(_Begun).remote()
        reading = {"preprocessing": preprocessing, "flip": flip, "begun": begun}
        read = ray.data.from_items(batches, override_num_blocks=tasks).map(_read, fn_kwargs=reading, num_cpus=1)
        return read.map(
            _Compute,
            fn_constructor_args=(ray.put(self.engine), preprocessing.size),
            compute=ray.data.ActorPoolStrategy(min_size=1, max_size=self.cluster.actors),
            num_cpus=1,
            num_gpus=1 if self.cluster.gpus else 0,
            memory=ACTOR,  # besides, where both steps ask for the same Ray has the actors do the reading
        )


def _rows(dataset: Any) -> Iterator[dict[str, Any]]:
    """What is done, as soon as it is: Ray's own way to the rows keeps the last back until there is another."""
    for table in dataset.iter_batches(prefetch_batches=0, batch_size=None, batch_format="pyarrow"):
        yield from table.to_pylist()


class _Begun:
    """An actor that knows which batches somebody began to read, which nobody does twice but where a process died."""

    def __init__(self) -> None:
        self.times: Counter[int] = Counter()

    def again(self, first: int) -> bool:
        self.times[first] += 1
        return self.times[first] > 1


def _read(row: dict[str, Any], *, preprocessing: Preprocessing, flip: bool, begun: Any) -> dict[str, Any]:
    """Read a batch of images, on any node."""
    import ray

    places: list[int] = []
    problems: list[str] = []
    pixels: list[Pixels] = []
    rows: list[int] = []
    again = ray.get(begun.again.remote(row["first"]))
    for place, read in enumerate((_read_apart if again else _read_here)(row["images"], preprocessing, flip)):
        if isinstance(read, str):
            places.append(place)
            problems.append(read)
        else:
            pixels.append(read)
            rows.append(place)
    return {
        "first": row["first"],
        "node": ray.util.get_node_ip_address(),
        "places": places,
        "problems": problems,
        "rows": np.array(rows, np.int64).tobytes(),
        "pixels": b"".join(each.tobytes() for each in pixels),
    }


def _read_here(images: Iterable[Input], preprocessing: Preprocessing, flip: bool) -> Iterator[Pixels | str]:
    """The pixels of each image, or what is wrong with it."""
    return (_read_one(image, preprocessing, flip) for image in images)


def _read_apart(images: Iterable[Input], preprocessing: Preprocessing, flip: bool) -> Iterator[Pixels | str]:
    """The same in another process; where an image kills it, in the next one, without that image."""
    left, tries = list(images), 0
    while left:
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process, suppress(BrokenProcessPool):
            while left:
                yield process.submit(_read_one, left[0], preprocessing, flip).result()
                left, tries = left[1:], 0
            return
        tries += 1
        if tries == TRIES:
            yield DEADLY
            left, tries = left[1:], 0


def _read_one(image: Input, preprocessing: Preprocessing, flip: bool) -> Pixels | str:
    found: list[Problem] = []
    for block in image_blocks([image], preprocessing, batch_size=1, flip=flip, workers=0, report=found.append):
        pixels: Pixels = block.inputs[0]
        return pixels
    return found[0].what


class _Compute:
    """An actor that holds the network."""

    def __init__(self, engine: Any, size: int) -> None:
        import ray

        self.engine: Engine = ray.get(engine)
        self.size = size

    def __call__(self, row: dict[str, Any]) -> dict[str, Any]:
        inputs = np.frombuffer(row.pop("pixels"), np.uint8).reshape(-1, self.size, self.size, 3)
        scores = self.engine(inputs.copy()) if len(inputs) else np.empty((0, 0), np.float32)
        return {**row, "scores": np.ascontiguousarray(scores, np.float32).tobytes()}


def _report(image: Input, what: str, preprocessing: Preprocessing, node: str, report: Report) -> None:
    """Report an image that a node could not read, unless it can be read here: then the node is to blame."""
    if isinstance(image, Row):
        raise TypeError("vectors and texts are no images")
    if what == DEADLY:
        report(Problem("unreadable image", str(image), what))
        return
    own: list[Problem] = []
    for _ in image_blocks([image], preprocessing, batch_size=1, workers=0, report=own.append):
        raise RayError(
            f"{image}: can be read here, but not on the Ray node {node} ({what}); put images where all nodes see them "
            "under the same name"
        )
    report(own[0])
