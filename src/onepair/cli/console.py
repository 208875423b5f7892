"""What several commands print: tables, and estimates with their intervals."""

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from onepair.probability.evaluation import Estimated


def make_table(*titles: str, title: str | None = None) -> "Table":
    """An empty table, which folds what a narrow terminal has no room for; columns whose title begins with > are right.

    >>> [column.justify for column in make_table("class", ">AP").columns]
    ['left', 'right']
    """
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, title=title, title_justify="left")
    for each in titles:
        table.add_column(each.removeprefix(">"), justify="right" if each.startswith(">") else "left", overflow="fold")
    return table


def estimate_line(estimated: "Estimated") -> str:
    """Figures of all classes that known labels do not tell, and what they rest on; of some only that they are vague."""
    from onepair.words import points

    figures = {"mAP": estimated.map, "precision": estimated.precision, "recall": estimated.recall, "F1": estimated.f1}
    told = (
        f"{name} {points(each.value)} ({points(each.low)} to {points(each.high)}){estimated.over * (name == 'mAP')}"
        for name, each in figures.items()
        if each.is_informative
    )
    vague = [name for name, each in figures.items() if not each.is_informative and not math.isnan(each.value)]
    known = f"estimated for all labels, {estimated.assumption}: {', '.join(told) or 'nothing'}"
    nothing = ["nothing is predicted, so that there is no precision"] if math.isnan(estimated.precision.value) else []
    return "; ".join([known, *nothing, *([vague_line(vague)] if vague else [])])


def vague_line(names: Sequence[str]) -> str:
    """That labels say next to nothing of some figures, and what would.

    >>> vague_line(["precision", "F1"])
    'precision and F1 cannot be told from these labels: onepair audit lets a person complete those of some images'
    """
    which = " and ".join(filter(None, [", ".join(names[:-1]), names[-1]]))
    return f"{which} cannot be told from these labels: onepair audit lets a person complete those of some images"
