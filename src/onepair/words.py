"""Counts, lists and numbers as sentences have them."""

import math
import shlex
from collections.abc import Sequence

MOST_NAMED = 5  # in a sentence
NUMBERS = "docs/explanation/numbers.md"  # where it is explained what figures rest on
LONGEST_NAME = 28  # characters of a name in a chart or over a picture


def counted(number: int, noun: str) -> str:
    """A number and what it counts, in the singular or the plural.

    >>> counted(1, "image"), counted(1200, "image"), counted(0, "class"), counted(2, "training image")
    ('1 image', '1,200 images', '0 classes', '2 training images')
    """
    return f"{number:,} {noun if number == 1 else plural(noun)}"


def size(number: float) -> str:
    """The size of a number of which no more is known: one digit of it.

    >>> size(0.3), size(7), size(43), size(312), size(980), size(62_000)
    ('0', '7', '40', '300', '1,000', '60,000')
    """
    return f"{round(float(f'{max(number, 0):.0e}')):,}"


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


def short(name: str, *, limit: int = LONGEST_NAME) -> str:
    """A name on one line; of one that is too long, the beginning and the end.

    >>> short("has_bill_shape::hooked_seabird", limit=16)
    'has_bil…_seabird'
    """
    line = "".join(character if character.isprintable() else " " for character in name)
    half = limit // 2
    return line if len(line) <= limit else f"{line[: half - 1]}…{line[-half:]}"


def command(*words: object) -> str:
    """A command of ours, as it is typed.

    >>> command("review", "runs/my photos")
    "onepair review 'runs/my photos'"
    """
    return shlex.join(["onepair", *map(str, words)])


MINUS, NOTHING = "−", "–"


def points(value: float) -> str:
    """A share as points of a hundred.

    >>> points(0.8925)
    '89.2'
    """
    return NOTHING if math.isnan(value) else f"{100 * value:.1f}"


def roughly(value: float) -> str:
    """A share that is an estimate, as points of a hundred; only what is certain is none or all.

    >>> roughly(0.8925), roughly(0.9999), roughly(0.0)
    ('≈ 89', '≈ 99', '0.0')
    """
    if math.isnan(value) or value in (0, 1):
        return points(value)
    return f"≈ {min(max(round(100 * value), 1), 99)}"


def signed(value: float) -> str:
    """A difference of shares in points, always with its sign.

    >>> signed(0.0331), signed(-0.0004)
    ('+3.3', '0.0')
    """
    text = points(abs(value))
    return text if text in ("0.0", NOTHING) else f"{'+' if value > 0 else MINUS}{text}"


def percent(value: float) -> str:
    """A share in whole per cent.

    >>> percent(0.632), percent(-0.1), percent(math.nan)
    ('63 %', '−10 %', '–')
    """
    return NOTHING if math.isnan(value) else f"{round(100 * value)} %".replace("-", MINUS)


def duration(seconds: float) -> str:
    """A time in the unit that suits it.

    >>> duration(8.4), duration(75), duration(3 * 3600 + 720)
    ('8 s', '1.2 min', '3.2 h')
    """
    if seconds < 59.5:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.1f} min" if seconds < 3597 else f"{seconds / 3600:.1f} h"


def probability(share: float) -> str:
    """A probability in whole percent; only what is certain is 0 or 100.

    >>> probability(0.873), probability(0.9999), probability(0.0001)
    ('87 %', '99 %', '1 %')
    """
    return f"{min(max(round(100 * share), 1), 99) if 0 < share < 1 else round(100 * share)} %"


def number(value: int) -> str:
    """
    >>> number(12345)
    '12,345'
    """
    return f"{value:,}"
