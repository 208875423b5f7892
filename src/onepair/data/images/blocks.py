"""Images or vectors in blocks, in order and in constant memory, and the function that scores them."""

import os
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from onepair.data.images.decode import Pixels, Preprocessing, decode, scale
from onepair.data.label_table import NOT_FINITE, LabelTable, Problem, Report, raise_problem
from onepair.errors import DataError
from onepair.labels import Indices
from onepair.remote import AT_ONCE, in_threads, is_remote

SHOWN = 512  # pixels that a panel of a chart or page has at most


class Row(NamedTuple):
    """A vector (D,) or a text, and what it is called; None where it has no name."""

    name: str | None
    value: NDArray[Any] | str


Source = Path | Pixels  # of an image: its file, or its pixels (H, W, 3)
Input = Source | Row
Vectorise = Callable[[Sequence[Any]], NDArray[Any]]  # from vectors or texts to (B, D)


class Block(NamedTuple):
    """Some inputs of a network, one after another."""

    inputs: NDArray[Any]  # images (B, S, S, 3) uint8, or features (B, D)
    rows: Indices  # (B,) which they are, counted from 0; those that cannot be read are missing
    seen: int  # how many there have been so far, with those that cannot be read
    sources: Sequence[Input] = ()  # of images, where they came from


def image_blocks(
    images: Iterable[Input],
    preprocessing: Preprocessing,
    *,
    batch_size: int,
    flip: bool = False,
    workers: int | None = None,
    report: Report = raise_problem,
) -> Iterator[Block]:
    """Read and scale images. While one block is in use, threads read the next; `images` is never asked for more.

    Args:
        images: files or pixels, of any number.
        preprocessing: how they are scaled.
        batch_size: so many images, the unreadable ones too, make a block: blocks do not depend on where reading starts,
            if that is after a whole number of them.
        flip: mirror all of them.
        workers: threads that read; 0 reads in this one, None is one per core. From a server, more read: most of that is
            waiting.
        report: told of each image that cannot be read. The default raises a `DataError`; one that returns, as a list's
            `append` does, leaves it out.
    """
    seen, workers = 0, cores() if workers is None else workers
    images = iter(images)
    first = list(islice(images, 1))
    if workers and any(map(is_remote, first)):
        workers = max(workers, AT_ONCE)
    results = in_threads(
        lambda image: (image, _read(image, preprocessing)), chain(first, images), threads=workers, ahead=batch_size
    )
    for read in iter(lambda: list(islice(results, batch_size)), []):
        indices = range(seen, seen + len(read))
        seen += len(read)
        for _, problem in read:
            if isinstance(problem, Problem):
                report(problem)
        good = [(row, *each) for row, each in zip(indices, read, strict=True) if not isinstance(each[1], Problem)]
        if good:
            rows, sources, pixels = zip(*good, strict=True)
            stacked = np.stack(pixels)
            inputs = np.ascontiguousarray(stacked[:, :, ::-1]) if flip else stacked
            yield Block(inputs, np.array(rows, np.int64), seen, sources)


def row_blocks(
    rows: Iterable[Input], vectorise: Vectorise, *, batch_size: int, report: Report = raise_problem
) -> Iterator[Block]:
    """Vectors or texts in blocks, as `image_blocks` has images; those that are not finite are reported."""
    seen, left = 0, iter(rows)
    for batch in iter(lambda: [row for row in islice(left, batch_size) if isinstance(row, Row)], []):
        inputs = vectorise([row.value for row in batch])
        indices = np.arange(seen, seen + len(batch))
        seen += len(batch)
        good: NDArray[np.bool_] = np.asarray(np.isfinite(inputs).all(1))
        for index in np.flatnonzero(~good).tolist():
            report(Problem("bad vector", batch[index].name or f"row {indices[index]}", NOT_FINITE))
        if good.any():
            yield Block(inputs[good], indices[good], seen, [row for row, fine in zip(batch, good, strict=True) if fine])


def images_of(table: LabelTable, rows: Indices) -> Iterator[Source]:
    """The images of rows of a table, one by one."""
    for row in rows.tolist():
        yield table.path(row) if table.pixels is None else table.pixels[row]


def pixels_of(table: LabelTable, row: int) -> Pixels:
    """The whole image of a row, (H, W, 3), as large as pages show it or larger."""
    return decode(table.path(row), at_least=SHOWN) if table.pixels is None else table.pixels[row]


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _read(image: Input, preprocessing: Preprocessing) -> Pixels | Problem:
    if isinstance(image, Row):
        raise TypeError("vectors and texts are no images")
    try:
        pixels = image if isinstance(image, np.ndarray) else decode(image, at_least=preprocessing.size)
    except DataError as error:
        return Problem("unreadable image", str(image), str(error).removeprefix(f"{image}: "))
    return scale(pixels, preprocessing)


class Scored(NamedTuple):
    """What an engine makes of a block."""

    scores: NDArray[np.float32]  # (B, L), or features (B, D)
    rows: Indices  # (B,), as those of the block
    seen: int  # as that of the block
    sources: Sequence[Input]  # as those of the block


class Computer(Protocol):
    """What computes scores or features: from images (B, S, S, 3), uint8 and not normalised, to (B, K)."""

    @property
    def batch_size(self) -> int: ...
    def __call__(self, inputs: NDArray[Any], /) -> NDArray[np.float32]: ...


@runtime_checkable
class RemoteEngine(Protocol):
    """What computes in other processes, perhaps on other machines, and has them read the images, too."""

    def stream(
        self, images: Iterable[Input], preprocessing: Preprocessing, *, flip: bool, report: Report
    ) -> Iterator[Scored]:
        """As `stream_images`."""


def stream_scores(engine: Computer, blocks: Iterable[Block]) -> Iterator[Scored]:
    """Score blocks one by one: the memory of two of them is enough for any number."""
    for block in blocks:
        yield Scored(engine(block.inputs), block.rows, block.seen, block.sources)


def stream_images(
    engine: Computer,
    images: Iterable[Input],
    preprocessing: Preprocessing,
    *,
    flip: bool = False,
    workers: int | None = None,
    report: Report = raise_problem,
) -> Iterator[Scored]:
    """Read images and score them, in their order; the arguments are those of `image_blocks`."""
    if isinstance(engine, RemoteEngine):
        return engine.stream(images, preprocessing, flip=flip, report=report)
    size = engine.batch_size
    blocks = image_blocks(images, preprocessing, batch_size=size, flip=flip, workers=workers, report=report)
    return stream_scores(engine, blocks)
