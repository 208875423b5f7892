"""Where the images are that another program names: it may have had them elsewhere, or on a server."""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from urllib.parse import parse_qs, unquote, urlsplit

from onepair.data.sources import exists

SAMPLE = 20  # names by which a folder is chosen
_UPLOADED = re.compile(r"[0-9a-f]{8}-(?=.)")  # what Label Studio puts before the name of a file


def locate(names: Sequence[str], folders: Sequence[Path]) -> tuple[Path, list[str]]:
    """The folder that images lie in, and their names there.

    Names that are found as they are stay as they are. Else each is looked for by its last parts: a name may begin with
    the folders of another machine, be a URL, or have got a prefix when it was uploaded. What is not found at all, or
    only where another image is, keeps its name.

    Args:
        names: of the images, as written.
        folders: where they may be, the likeliest first; at least one.
    """
    some = names[:SAMPLE]
    for folder in folders:
        if any(exists(folder / name) for name in some):
            return folder, list(names)
    for folder in folders:
        if any(_find(folder, name) for name in some):
            found = [_find(folder, name) or name for name in names]
            times = Counter(found)
            return folder, [new if times[new] == 1 else old for old, new in zip(names, found, strict=True)]
    return folders[0], list(names)


def _find(folder: Path, name: str) -> str | None:
    return next((form for form in _forms(name) if exists(folder / form)), None)


def _forms(name: str) -> Iterator[str]:
    """The names that an image may have here.

    >>> list(_forms("/data/upload/1/0a1b2c3d-my%20cat.jpg"))[-2:]
    ['0a1b2c3d-my cat.jpg', 'my cat.jpg']
    >>> next(_forms("/data/local-files/?d=photos/cat.jpg"))
    'photos/cat.jpg'
    """
    path = _path_in(name)
    parts = [part for part in path.replace("\\", "/").split("/") if part not in ("", ".", "..")]
    for first in range(len(parts)):
        yield "/".join(parts[first:])
    if parts and _UPLOADED.match(parts[-1]):
        yield _UPLOADED.sub("", parts[-1], count=1)


def _path_in(name: str) -> str:
    """A name without what makes it a URL."""
    if "://" not in name and not name.startswith("/data/"):
        return name
    try:
        url = urlsplit(name)
    except ValueError:
        return name
    local = parse_qs(url.query).get("d")
    return local[0] if local else unquote(url.path)
