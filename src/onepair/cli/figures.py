"""What several commands print of classes: a table with a line for each, and estimates with their intervals."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.table import Table

    from onepair.probability.evaluation import Estimated


def class_table(*titles: str) -> "Table":
    """A table of numbers by class, which folds what a narrow terminal has no room for."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD)
    table.add_column("class", overflow="fold")
    for title in titles:
        table.add_column(title, justify="right", overflow="fold")
    return table


def estimate_line(estimated: "Estimated") -> str:
    """Figures of all classes that known labels do not tell, with what they rest on."""
    from onepair.report.wording import points

    shown = (
        f"{words} {points(each.value)} ({points(each.low)} to {points(each.high)})"
        for words, each in zip(("mAP", "precision", "recall", "F1"), estimated[1:5], strict=True)
    )
    return f"estimated for all labels, {estimated.assumption}: {', '.join(shown)}"
