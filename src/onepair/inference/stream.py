"""The one scorer: blocks of images or features in, their scores out, whatever computes them."""

from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

from onepair.data.streaming import Block, Input
from onepair.inference.engine import Engine, Float32
from onepair.labels import Indices


class Scored(NamedTuple):
    """What an engine makes of a block."""

    scores: Float32  # (B, L)
    rows: Indices  # (B,), as those of the block
    seen: int  # as that of the block
    sources: Sequence[Input]  # as those of the block


def stream_scores(engine: Engine, blocks: Iterable[Block]) -> Iterator[Scored]:
    """Score blocks one by one: the memory of two of them is enough for any number."""
    for block in blocks:
        yield Scored(engine(block.inputs), block.rows, block.seen, block.sources)
