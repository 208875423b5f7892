"""The one scorer: blocks of images or features in, their scores out, whatever computes them and wherever."""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from onepair.data.preprocessing import Preprocessing
from onepair.data.problems import Report, refuse
from onepair.data.streaming import Block, Input, image_blocks
from onepair.labels import Indices


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
class Elsewhere(Protocol):
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
    report: Report = refuse,
) -> Iterator[Scored]:
    """Read images and score them, in their order; the arguments are those of `image_blocks`."""
    if isinstance(engine, Elsewhere):
        return engine.stream(images, preprocessing, flip=flip, report=report)
    size = engine.batch_size
    blocks = image_blocks(images, preprocessing, batch_size=size, flip=flip, workers=workers, report=report)
    return stream_scores(engine, blocks)
