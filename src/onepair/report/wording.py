"""Numbers as a reader wants them."""

import math

MINUS, NOTHING = "−", "–"


def points(value: float) -> str:
    """A share as points of a hundred.

    >>> points(0.8925)
    '89.2'
    """
    return NOTHING if math.isnan(value) else f"{100 * value:.1f}"


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
