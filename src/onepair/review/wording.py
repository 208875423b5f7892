"""Numbers and times as people say them."""

from datetime import UTC, datetime


def percent(share: float) -> str:
    """A probability in whole percent; only what is certain is 0 or 100.

    >>> percent(0.873), percent(0.9999), percent(0.0001)
    ('87 %', '99 %', '1 %')
    """
    return f"{min(max(round(100 * share), 1), 99) if 0 < share < 1 else round(100 * share)} %"


def number(value: int) -> str:
    """
    >>> number(12345)
    '12,345'
    """
    return f"{value:,}"


def time_left(seconds: float) -> str:
    """
    >>> time_left(10), time_left(300), time_left(5400), time_left(3600 * 20)
    ('about 1 min left', 'about 5 min left', 'about 1.5 h left', 'about 20 h left')
    """
    if seconds < 3600:
        return f"about {max(1, round(seconds / 60))} min left"
    return f"about {round(seconds / 1800) / 2:g} h left"


def ago(time: datetime, *, now: datetime | None = None) -> str:
    """
    >>> ago(datetime(2024, 1, 1, 12, 0, tzinfo=UTC), now=datetime(2024, 1, 1, 12, 5, tzinfo=UTC))
    '5 minutes ago'
    """
    seconds = ((now or datetime.now(UTC)) - time).total_seconds()
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        count = int(seconds // size)
        if count:
            return f"{count} {unit}{'s' if count > 1 else ''} ago"
    return "just now"
