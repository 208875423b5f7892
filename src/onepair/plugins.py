"""Registries that other packages add to: by a decorator, or by an entry point that is loaded when it is needed."""

import difflib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import entry_points
from typing import TypeVar

from onepair.errors import PluginError

Value = TypeVar("Value")


def load_entry_points(group: str) -> None:
    """Import everything that installed packages offer under an entry-point group.

    An entry point names a module, or an object in it. Importing the module runs its decorators, which register what it
    has to offer.

    Args:
        group: for example "onepair.methods".

    Raises:
        PluginError: if one cannot be imported.
    """
    for point in entry_points(group=group):
        try:
            point.load()
        except Exception as error:
            package = point.dist.name if point.dist else point.module
            raise PluginError(
                f"the package {package} offers {point.name!r} as one of {group}, which cannot be imported "
                f"({type(error).__name__}: {error}); repair or uninstall it"
            ) from error


class Registry(Mapping[str, Value]):
    """What is registered by name, read-only but for `add`.

    The entry points of the group are loaded once, when a name is asked for that is not there yet or all are listed.

    Args:
        group: the entry-point group, for example "onepair.metrics".
        kind: what one entry is called in messages, for example "metric".

    Examples:
        >>> units = Registry[float]("onepair.units", "unit")
        >>> units.add("metre", 1.0)
        >>> units["metre"], list(units)
        (1.0, ['metre'])
    """

    def __init__(self, group: str, kind: str) -> None:
        self.group, self.kind = group, kind
        self._entries: dict[str, Value] = {}
        self._loaded = False

    def add(self, name: str, value: Value) -> None:
        """Register a value.

        Raises:
            ValueError: if the name is taken.
        """
        if name in self._entries:
            raise ValueError(f"there already is a {self.kind} {name!r}")
        self._entries[name] = value

    def __getitem__(self, name: str) -> Value:
        if name not in self._entries:
            self._load()
        return self._entries[name]

    def __iter__(self) -> Iterator[str]:
        self._load()
        return iter(self._entries)

    def __len__(self) -> int:
        self._load()
        return len(self._entries)

    def _load(self) -> None:
        if not self._loaded:
            self._loaded = True  # before: a package that is being loaded may look up what is there
            try:
                load_entry_points(self.group)
            except PluginError:
                self._loaded = False
                raise


def nearest(name: str, known: Iterable[str]) -> str:
    """Say which of the known names may have been meant.

    >>> nearest("opml-sb", ["opml", "opml-sp"])
    "did you mean 'opml-sp'?"
    """
    known = list(known)
    close = difflib.get_close_matches(name, known, n=1)
    if close:
        return f"did you mean {close[0]!r}?"
    return f"choose from {', '.join(known)}" if known else "it has none"
