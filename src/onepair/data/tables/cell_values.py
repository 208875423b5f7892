"""What the cells of a table say, in all the ways that people and programs write them."""

import ast
import csv
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from decimal import Decimal
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from onepair.data.label_table import SPLITS
from onepair.labels import NEGATIVE, POSITIVE, UNKNOWN, Indices, Labels

BAD = 2  # a cell that says nothing about a label
BLANK = frozenset({"", "nan", "na", "n/a", "null", "none", "<na>", "#n/a", "?", "-", "–", "—"})  # in lower case
SEPARATORS = ";|,\n\r"  # of the names in a list, the first that there is

_LABEL_OF = {
    **dict.fromkeys(("1", "1.0", "1,0", "true", "t", "yes", "y", "x", "✓", "✔", "+"), POSITIVE),
    **dict.fromkeys(("0", "0.0", "0,0", "false", "f", "no", "n", "✗", "✘"), NEGATIVE),
    **dict.fromkeys(("wahr", "vrai", "vero", "verdadero"), POSITIVE),  # a spreadsheet's true in other languages
    **dict.fromkeys(("falsch", "faux", "falso"), NEGATIVE),
    **dict.fromkeys(("ja", "oui", "si", "sí", "sì"), POSITIVE),
    **dict.fromkeys(("nein", "non"), NEGATIVE),
    **dict.fromkeys((*BLANK, "-1", "-1.0", "-1,0"), UNKNOWN),
}
_SPLIT_OF = {
    **{split: split for split in SPLITS},
    **dict.fromkeys(("val", "valid", "dev"), "validation"),
    "training": "train",
    **dict.fromkeys(("testing", "holdout"), "test"),
}
_NAMES_KEYS = ("categories", "category", "labels", "label", "classes")
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
_NOT_PLAIN = re.compile(r"""["\[{(|,\n\r]""")  # what cells of names separated by ; do not hold
_GLUE = re.compile(rf"[ \t]*(?:\r\n|[{SEPARATORS}])[ \t]*")
_BRACKETS = {"[": "]", "{": "}", "(": ")"}
_FORMULA = re.compile(r"'*[=+\-@\t\r]")


def label_of(cell: Any) -> int:
    """The label that a cell stands for, or `BAD`.

    >>> [label_of(cell) for cell in ("1", " yes", "FALSE", 0.0, None, "NaN", -1, "maybe", 2)]
    [1, 1, 0, 0, -1, -1, -1, 2, 2]
    """
    if isinstance(cell, str):
        return _LABEL_OF.get(cell.strip().lower(), BAD)
    if is_blank(cell):
        return UNKNOWN
    return int(cell) if isinstance(cell, int | float | Decimal) and cell in (POSITIVE, NEGATIVE, UNKNOWN) else BAD


def is_blank(cell: Any) -> bool:
    """Whether a cell holds nothing: nothing at all, NaN, or a word that says so.

    >>> [is_blank(cell) for cell in ("", " NA", None, float("nan"), "0", [])]
    [True, True, True, True, False, False]
    """
    if isinstance(cell, str):
        return cell.strip().lower() in BLANK
    return cell is None or (isinstance(cell, float) and cell != cell)


def split_of(cell: str) -> str | None:
    """The split that a cell names, or None.

    >>> [split_of(cell) for cell in ("train", " Val", "eval")]
    ['train', 'validation', None]
    """
    return _SPLIT_OF.get(cell.strip().lower())


# Lists of names


def names_in(cell: Any) -> list[str] | None:
    """The names that a cell lists, without the spaces around them, or None if it is no list of names.

    Names are separated by `;`, else by `|`, else by `,`, else by the ends of lines; one in double quotes may hold any
    of these. Lists may also be written as JSON, also as the one value of an object, as Python or as numpy, and without
    quotes.

    >>> names_in("dog; cat"), names_in('"cat, black";dog'), names_in("['dog', 'cat']"), names_in("[dog, cat]")
    (['dog', 'cat'], ['cat, black', 'dog'], ['dog', 'cat'], ['dog', 'cat'])
    >>> names_in("('dog', 'cat')"), names_in("{'dog'}"), names_in("dog (brown)"), names_in("[dog")
    (['dog', 'cat'], ['dog'], ['dog (brown)'], ['[dog'])
    """
    if isinstance(cell, str):
        cell = cell.strip()
        if cell.startswith("[") and cell.endswith("]"):
            return _bracketed(cell)
        if cell.startswith("{") and cell.endswith("}"):
            return _in_object(cell) or _quoted(cell)
        if cell.startswith(("('", '("')) and cell.endswith(")"):
            return _quoted(cell)
        return [] if is_blank(cell) else _separated(cell)
    if is_blank(cell):
        return []
    if isinstance(cell, int) and not isinstance(cell, bool):
        return [str(cell)]
    if isinstance(cell, list):
        return _texts([name for name in cell if name is not None])  # a null of Parquet
    return _in_mapping(cell) if isinstance(cell, dict) else None


def may_be_one_name(cell: Any) -> bool:
    """Whether a cell need not be a list: nothing but commas separates what may be names in it.

    >>> [may_be_one_name(cell) for cell in ("cat, black", None, "dog;cat", "['dog', 'cat']", ["dog", "cat"])]
    [True, True, False, False, False]
    """
    if isinstance(cell, str):
        return not (set(";|\n\r") & set(cell.strip()) or cell.strip()[:1] in ("[", "{", "("))
    return not isinstance(cell, list) or len(cell) < 2


def is_vector(names: Sequence[str]) -> bool:
    """Whether what should be names of classes are the zeros and ones of a vector, as in `[0, 1, 0]` or `0 1 0`."""
    cells = names[0].split() if len(names) == 1 else names
    return len(cells) > 2 and set(cells) <= {"0", "1", "0.0", "1.0"}


def write_names(names: Sequence[str]) -> str:
    """Return a cell that lists names, such that `names_in` gives them back.

    >>> write_names(["dog", "cat"]), write_names(["a;b"])
    ('dog;cat', '["a;b"]')
    """
    plain = ";".join(names)
    return plain if names_in(plain) == list(names) else json.dumps(list(names), ensure_ascii=False)


def own_glue(cell: str) -> str | None:
    """What a plain cell has between its names, if it has several.

    >>> own_glue("dog; cat"), own_glue("dog"), own_glue("['dog']")
    ('; ', None, None)
    """
    if cell.strip()[:1] in _BRACKETS:
        return None
    separator = next((each for each in SEPARATORS if each in re.sub('"[^"]*"', "", cell)), None)
    found = [each for each in _GLUE.findall(cell) if separator is not None and separator in each]
    return Counter(found).most_common(1)[0][0] if found else None


def relist(cell: Any, kept: list[str], added: list[str], glue: str) -> Any:
    """A list with fewer or more names, written as it was.

    >>> relist("dog; Cat ", ["dog", "Cat"], ["sofa"], "|"), relist("dog", ["dog"], ["sofa"], "|")
    ('dog; Cat; sofa', 'dog|sofa')
    >>> relist("['dog', 'cat']", ["cat"], ["sofa"], ";"), relist('["dog"]', ["dog"], ["it's"], ";")
    ("['cat', 'sofa']", '["dog", "it\\'s"]')
    """
    names = [*kept, *added]
    if isinstance(cell, list):
        return names
    if not isinstance(cell, str) or is_blank(cell):
        return _checked_list(glue.join(names), names)
    start = cell.strip()[:1]
    if start in _BRACKETS and cell.strip().endswith(_BRACKETS[start]):
        between = ", " if ", " in cell or "," not in cell else ","
        quoted = [json.dumps(name, ensure_ascii=False) for name in names]
        if "'" in cell and '"' not in cell:
            quoted = list(map(repr, names))
        elif not set("'\"") & set(cell) and len(cell.strip()) > 2:
            quoted = names
        return _checked_list(f"{start}{between.join(quoted)}{_BRACKETS[start]}", names)
    own = own_glue(cell) or glue
    if '"' in cell or kept != names_in(cell):
        quote = '"' in cell
        kept_text = own.join(f'"{name}"' if quote and set(SEPARATORS) & set(name) else name for name in kept)
    else:
        kept_text = cell.rstrip()
    return _checked_list(own.join([*([kept_text] if kept else []), *added]), names)


def _checked_list(cell: str, names: list[str]) -> str:
    """A cell if it says these names, else one that does."""
    return cell if names_in(cell) == names else write_names(names)


def _separated(cell: str) -> list[str] | None:
    outside = _QUOTED.sub("", cell) if '"' in cell else cell
    separator = next((each for each in SEPARATORS if each in outside), ";")
    if '"' not in cell:
        return stripped(cell.split(separator))
    try:
        (names,) = csv.reader([cell], delimiter=separator, skipinitialspace=True)
    except (csv.Error, ValueError):  # a name that goes over several lines
        return stripped(cell.split(separator))
    return stripped(names)


def _bracketed(cell: str) -> list[str] | None:
    try:
        return _texts(json.loads(cell))
    except (ValueError, RecursionError):
        pass
    inside = cell[1:-1]
    return _quoted(cell) if set(inside) & set("\"'") else None if set(inside) & set("[]{}") else _separated(inside)


def _quoted(cell: str) -> list[str] | None:
    """Texts in quotes, in brackets of any kind."""
    texts, frame = _QUOTED.findall(cell), _QUOTED.sub("Q", cell)[1:-1]
    if set(frame) - set("Q, \n\r\t") or "QQ" in frame:  # adjacent texts would be one to Python
        return None
    try:
        return _texts([ast.literal_eval(text) if "\\" in text else text[1:-1] for text in texts])
    except (SyntaxError, ValueError):
        return None


def _in_object(cell: str) -> list[str] | None:
    """As `{"choices": ["dog", "cat"]}`, which is Label Studio's."""
    try:
        return _in_mapping(json.loads(cell))
    except (ValueError, RecursionError):
        return None


def _in_mapping(found: dict[str, Any]) -> list[str] | None:
    """The one list, or of several things the one that is called so, as Hugging Face has them beside boxes."""
    names = [value for key, value in found.items() if len(found) == 1 or key in _NAMES_KEYS]
    return _texts(names[0]) if len(names) == 1 else None


def _texts(names: Any) -> list[str] | None:
    if not isinstance(names, list):
        return None
    names = [str(name) if isinstance(name, int) and not isinstance(name, bool) else name for name in names]
    return stripped(names) if all(isinstance(name, str) and name.strip() for name in names) else None


def stripped(names: Iterable[str]) -> list[str]:
    """Names without the spaces around them, and without the blank ones."""
    return [name for name in map(str.strip, names) if name]


class Column(Sequence[Any]):
    """The cells of a column; each way to write a cell is interpreted once."""

    def __init__(self, cells: Sequence[Any]) -> None:
        self.cells = cells

    def __len__(self) -> int:
        return len(self.cells)

    def __getitem__(self, row: Any) -> Any:
        return self.cells[row]

    @cached_property
    def _spellings(self) -> tuple[Sequence[Any], Indices]:
        """The cells that differ, and which of them each row has."""
        try:
            index = {cell: i for i, cell in enumerate(dict.fromkeys(self.cells))}
        except TypeError:  # lists, mappings
            return self.cells, np.arange(len(self.cells))
        return list(index), np.fromiter(map(index.__getitem__, self.cells), np.intp, len(self.cells))

    @cached_property
    def labels(self) -> Labels:
        """The label of each cell, or `BAD`."""
        spellings, which = self._spellings
        return np.array(list(map(label_of, spellings)), np.int8)[which]

    @cached_property
    def is_blank(self) -> NDArray[np.bool_]:
        """Which cells are blank."""
        spellings, which = self._spellings
        return np.array(list(map(is_blank, spellings)), bool)[which]

    @cached_property
    def lists(self) -> list[list[str] | None]:
        """The names in each cell.

        A name may hold a comma where other cells of the column separate names by `;` or `|`: so where one of those
        gives the whole of a cell as a name, the cell is that name.
        """
        spellings, which = self._spellings
        if all(isinstance(cell, str) for cell in spellings) and not _NOT_PLAIN.search("\0".join(spellings)):
            # What `names_in` would give, in a fraction of the time, which counts with a million rows.
            names: list[list[str] | None] = [[] if is_blank(cell) else stripped(cell.split(";")) for cell in spellings]
            return [names[i] for i in which.tolist()]
        names = list(map(names_in, spellings))
        with_comma = {name for listed in names for name in listed or () if "," in name}
        for i, cell in enumerate(spellings if with_comma else ()):
            if isinstance(cell, str) and cell in with_comma:
                names[i] = [cell]
        return [names[i] for i in which.tolist()]

    @cached_property
    def glue(self) -> str:
        """What most cells have between two names; "" if none has two."""
        found = Counter(own for cell in self.cells if isinstance(cell, str) and (own := own_glue(cell)) is not None)
        return found.most_common(1)[0][0] if found else ""

    @property
    def texts(self) -> list[str]:
        """The text of each cell; of a blank one, nothing."""
        return ["" if blank else str(cell) for cell, blank in zip(self.cells, self.is_blank.tolist(), strict=True)]

    @property
    def mostly_other(self) -> bool:
        """Whether most of the cells that hold anything hold no labels."""
        bad = self.labels == BAD
        return bool(bad.any()) and int(bad.sum()) > int((~bad & ~self.is_blank).sum())

    @property
    def holds_labels(self) -> bool:
        """Whether all cells are labels, and some are known."""
        return bool((self.labels != BAD).all() and (self.labels != UNKNOWN).any())


# Formulas


def guard(text: str) -> str:
    """A text as written to CSV: an apostrophe before what a spreadsheet would take for a formula.

    >>> guard("=1+1"), guard("'=1"), guard("it's")
    ("'=1+1", "''=1", "it's")
    """
    return f"'{text}" if _FORMULA.match(text) else text


def unguard(text: str) -> str:
    """The text that `guard` was given.

    >>> unguard("'=1+1"), unguard("''=1"), unguard("it's")
    ('=1+1', "'=1", "it's")
    """
    return text[1:] if text.startswith("'") and _FORMULA.match(text) else text
