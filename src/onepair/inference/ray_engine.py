"""Images computed by Ray: read on all CPUs of a cluster, and computed by actors that each hold the network once.

The driver hands out images in the batches that one process would compute, and takes what is made of them in the same
order: a row is there exactly once, with the same values. What dies on the way, a process or a node, is done again
by Ray, without end; so what is read again is read in a process apart, which an image that kills it does not hold up.
Files are written by the driver alone.
"""

from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.data.computing import Scored
from onepair.data.decoding import Pixels
from onepair.data.preprocessing import Preprocessing
from onepair.data.problems import Problem, Report
from onepair.data.streaming import Input, Row, image_blocks
from onepair.inference.engine import Engine, Float32
from onepair.inference.ray_cluster import Cluster, RayError, told

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
    def name(self) -> str:
        return self.engine.name

    @property
    def batch_size(self) -> int:
        return self.engine.batch_size

    def __call__(self, inputs: NDArray[Any]) -> Float32:
        return self.engine(inputs)

    def stream(
        self, images: Iterable[Input], preprocessing: Preprocessing, *, flip: bool, report: Report
    ) -> Iterator[Scored]:
        """As `onepair.data.computing.stream_images`."""
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
        with told():
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
