"""Ctrl-C, as a sentence: what is kept, and how to go on."""

from collections.abc import Iterator
from contextlib import contextmanager

from onepair.errors import Stopped

NOTHING = "nothing was written; the same command begins anew"


@contextmanager
def on_interrupt(kept: str) -> Iterator[None]:
    """For work that does not look out for signals itself, as training does; also to be used as a decorator."""
    try:
        yield
    except KeyboardInterrupt:
        raise Stopped(f"stopped by Ctrl-C; {kept}", code=130) from None
