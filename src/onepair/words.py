"""Numbers with their nouns, lists of names, and commands, as sentences have them."""

import shlex
from collections.abc import Sequence

MOST_NAMED = 5  # in a sentence


def counted(number: int, noun: str) -> str:
    """A number and what it counts, in the singular or the plural.

    >>> counted(1, "image"), counted(1200, "image"), counted(0, "class"), counted(2, "training image")
    ('1 image', '1,200 images', '0 classes', '2 training images')
    """
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def plural(noun: str) -> str:
    """
    >>> plural("class"), plural("batch"), plural("label")
    ('classes', 'batches', 'labels')
    """
    return f"{noun}{'es' if noun.endswith(('s', 'ch')) else 's'}"


def listed(names: Sequence[str]) -> str:
    """Some names, and how many more there are.

    >>> listed(["cat", "dog"]), listed(["a", "b", "c", "d", "e", "f", "g"])
    ('cat, dog', 'a, b, c, d, e and 2 more')
    """
    more = f" and {len(names) - MOST_NAMED:,} more" if len(names) > MOST_NAMED else ""
    return f"{', '.join(names[:MOST_NAMED])}{more}"


def itemised(title: str, things: Sequence[object], *, rest: str) -> str:
    """A title, the first few things under it, and where all of them are.

    >>> print(itemised("letters:", "abcdefg", rest="the alphabet has all of them"))
    letters:
      a
      b
      c
      d
      e
      … and 2 more; the alphabet has all of them
    """
    more = [f"… and {len(things) - MOST_NAMED:,} more; {rest}"] if len(things) > MOST_NAMED else []
    return "\n  ".join([title, *map(str, things[:MOST_NAMED]), *more])


def command(*words: object) -> str:
    """A command of ours, as it is typed.

    >>> command("review", "runs/my photos")
    "onepair review 'runs/my photos'"
    """
    return shlex.join(["onepair", *map(str, words)])
