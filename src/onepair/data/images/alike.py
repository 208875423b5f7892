"""Photos that look nearly the same, as those of a burst: by where they get brighter, and by their features."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from PIL import Image

from onepair.data.images.blocks import cores
from onepair.data.images.decode import Pixels, decode
from onepair.data.images.image_files import DigestMemory, digests_of
from onepair.errors import DataError
from onepair.remote import in_threads

BITS = 128  # of a look
SAME, SIMILAR = 10, 24  # bits that differ at most where two images are alike, and where they are if features agree
AGREE = 0.7  # cosine of features, less their mean over all images
BURST = 10  # images that may be alike in any collection; of a large one, up to a tenth: more are a kind of picture
_FLAT = 4.0  # standard deviation of the grey of an image without a pattern
_ROWS = 512  # that are compared with all at once

Look = bytes  # empty: of an image without any pattern


def look_of(pixels: Pixels) -> Look:
    """Return a hash of what an image (H, W, 3) looks like: where it gets brighter, to the right and downwards."""
    grey = np.asarray(Image.fromarray(pixels).convert("L").resize((9, 9), Image.Resampling.BOX), np.int16)
    if grey.std() < _FLAT:
        return b""
    brighter = np.concatenate([(np.diff(grey, axis=1) > 0)[:8].ravel(), (np.diff(grey, axis=0) > 0)[:, :8].ravel()])
    return np.packbits(brighter).tobytes()


def looks_of(
    images: Sequence[Path], *, memory: Path, progress: Callable[[Iterable[int]], Iterable[int]] = iter
) -> list[Look]:
    """Return what files look like; those that cannot be read like nothing.

    Args:
        images: files on this machine.
        memory: the file that keeps what was seen before, by what the images hold.
        progress: wraps the places of those that are looked at.
    """
    digests = [digest if isinstance(digest, bytes) else b"" for digest in digests_of(images, memory=memory)]
    with closing(DigestMemory(memory)) as known:
        found = known.looks(digests)
        missing = [place for place, digest in enumerate(digests) if digest and digest not in found]
        looks = in_threads(lambda place: _look(images[place]), missing, threads=cores())
        seen = {digests[place]: look for place, look in zip(progress(missing), looks, strict=True)}
        known.keep_looks(seen)
    return [{**found, **seen}.get(digest, b"") for digest in digests]


def _look(image: Path) -> Look:
    try:
        return look_of(decode(image, at_least=16))  # at a small scale where the format allows
    except (DataError, OSError):  # which is said where it is learned from
        return b""


def near_duplicates(looks: Mapping[int, Look], features: NDArray[np.floating] | None = None) -> list[list[int]]:
    """Return rows whose images look nearly the same, together, each group sorted.

    Args:
        looks: what each row looks like.
        features: (N, D) of all rows, which tell of images that are less alike.

    Examples:
        >>> one, other = b"0123456789abcdef", b"0123456789abcdeg"
        >>> near_duplicates({0: one, 1: bytes(16), 2: other, 3: b""})
        [[0, 2]]
    """
    rows = np.array([row for row, look in looks.items() if look], np.intp)
    bits = np.unpackbits(np.frombuffer(b"".join(look for look in looks.values() if look), np.uint8)).reshape(-1, BITS)
    if len(rows) < 2:
        return []
    signs = 2 * bits.astype(np.float32) - 1  # whose products count the bits that are the same, less those that differ
    some = rows[:: 1 + len(rows) // _ROWS]
    mean = None if features is None else np.nanmean(features[some], 0, dtype=np.float32)
    group = np.arange(len(rows))
    for start in range(0, len(rows), _ROWS):
        differ = (BITS - signs[start : start + _ROWS] @ signs.T) / 2
        close = differ <= (SAME if features is None else SIMILAR)
        for i in np.flatnonzero(close.sum(1) > 1).tolist():
            others = np.flatnonzero(close[i])
            if features is not None and mean is not None:
                agree = _cosines(features[rows[[start + i, *others]]] - mean) >= AGREE
                others = others[agree | (differ[i, others] <= SAME)]
            together = np.unique(group[others])
            if len(together) > 1:
                group[np.isin(group, together)] = together[0]
    members: dict[int, list[int]] = defaultdict(list)
    for row, name in zip(rows.tolist(), group.tolist(), strict=True):
        members[name].append(row)
    most = max(BURST, len(looks) // 10)
    return sorted(sorted(each) for each in members.values() if 1 < len(each) <= most)


def _cosines(vectors: NDArray[np.floating]) -> NDArray[np.floating]:
    """Of the first vector with each of the others."""
    lengths = np.linalg.norm(vectors, axis=1)
    cosines: NDArray[np.floating] = vectors[1:] @ vectors[0] / np.maximum(lengths[1:] * lengths[0], 1e-9)
    return cosines
