"""The page in the language of whoever reads it: gettext catalogues, and numbers and times as a language writes them."""

import json
import re
from contextvars import ContextVar
from datetime import UTC, datetime
from functools import cache
from pathlib import Path

from onepair import words

LANGUAGES = ("en", "de", "es")  # all of them with one singular and one plural
language: ContextVar[str] = ContextVar("language", default=LANGUAGES[0])

_WISH = re.compile(r"\s*([a-z]{2,3})(?:-[\w-]*)?\s*(?:;\s*q=(0(?:\.\d{1,3})?|1(?:\.0{1,3})?)\s*)?", re.ASCII | re.I)
_KEYWORD = re.compile(r'(msgid|msgid_plural|msgstr|msgstr\[[01]\]) (".*")')


def best_language(accepted: str) -> str:
    """The language of ours that a browser likes best, by its header Accept-Language.

    >>> best_language("fr, de-AT;q=0.8, en;q=0.5"), best_language("de;q=0, es;q=0.1"), best_language("")
    ('de', 'es', 'en')
    """
    wishes = (found for each in accepted[:1000].split(",") if (found := _WISH.fullmatch(each)))
    weights = [(float(found[2] or 1), found[1].lower()) for found in wishes]
    ours = [(weight, name) for weight, name in weights if weight and name in LANGUAGES]
    return max(ours, key=lambda each: each[0], default=(0, LANGUAGES[0]))[1]


@cache
def catalogue(name: str) -> dict[str, tuple[str, ...]]:
    """The sentences of a language by the English ones: one, or its singular and plural."""
    return read_catalogue((Path(__file__).parent / "languages" / f"{name}.po").read_text("utf-8"))


def read_catalogue(text: str) -> dict[str, tuple[str, ...]]:
    r"""Read the messages of a .po file.

    >>> read_catalogue('msgid "Yes"\nmsgstr ""\n"J"\n"a"\n\nmsgid "1 dog"\nmsgid_plural "dogs"\nmsgstr[0] "a"\nmsgstr[1] "b"')
    {'Yes': ('Ja',), '1 dog': ('a', 'b')}
    """  # noqa: E501 (a file in a line)
    found: dict[str, tuple[str, ...]] = {}
    for block in re.split(r"\n\s*\n", text):
        fields: dict[str, str] = {}
        keyword = ""
        for line in block.splitlines():
            if start := _KEYWORD.fullmatch(line.strip()):
                keyword, line = start[1], start[2]
            if line.startswith('"'):
                fields[keyword] = fields.get(keyword, "") + json.loads(line)
        if fields.get("msgid"):
            found[fields["msgid"]] = tuple(text for name, text in fields.items() if name.startswith("msgstr"))
    return found


def gettext(message: str) -> str:
    """Return a sentence in the language of this request."""
    return message if language.get() == LANGUAGES[0] else catalogue(language.get()).get(message, (message,))[0]


def ngettext(one: str, many: str, number: int) -> str:
    """Return a sentence in the singular or the plural."""
    both = (one, many) if language.get() == LANGUAGES[0] else catalogue(language.get()).get(one, (one, many))
    return both[number != 1]


# Numbers and times, as filters of templates


def _separated(text: str) -> str:
    """A number with the separators of the language: 1,234.5 or 1.234,5."""
    return text if language.get() == LANGUAGES[0] else text.translate(str.maketrans(",.", ".,"))


def number(value: int) -> str:
    return _separated(words.number(value))


def size(value: float) -> str:
    return _separated(words.size(value))


def points(value: float) -> str:
    return _separated(words.points(value))


def time_left(seconds: float) -> str:
    """
    >>> time_left(10), time_left(300), time_left(5400), time_left(3600 * 20)
    ('about 1 min left', 'about 5 min left', 'about 1.5 h left', 'about 20 h left')
    """
    if seconds < 3600:
        return gettext("about %(time)s min left") % {"time": max(1, round(seconds / 60))}
    return gettext("about %(time)s h left") % {"time": _separated(f"{round(seconds / 1800) / 2:g}")}


def ago(time: datetime, *, now: datetime | None = None) -> str:
    """
    >>> ago(datetime(2024, 1, 1, 12, 0, tzinfo=UTC), now=datetime(2024, 1, 1, 12, 5, tzinfo=UTC))
    '5 minutes ago'
    """
    seconds = ((now or datetime.now(UTC)) - time).total_seconds()
    if days := int(seconds // 86400):
        return ngettext("%(num)s day ago", "%(num)s days ago", days) % {"num": days}
    if hours := int(seconds // 3600):
        return ngettext("%(num)s hour ago", "%(num)s hours ago", hours) % {"num": hours}
    if minutes := int(seconds // 60):
        return ngettext("%(num)s minute ago", "%(num)s minutes ago", minutes) % {"num": minutes}
    return gettext("just now")
