"""`onepair methods`: what can be trained."""

from typing import Annotated

import typer


def methods(
    name: Annotated[str | None, typer.Argument(help="Show one method's paper, equation and options.")] = None,
) -> None:
    """List the methods, or show one of them."""
    from rich import box
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Table

    from onepair.methods import METHODS, find_method

    console = Console(highlight=False)
    if name is None:
        table = Table(box=box.SIMPLE_HEAD)
        for title in ("method", "in the papers", "what it does"):
            table.add_column(title)
        for info in METHODS.values():
            table.add_row(info.name, info.title, escape(info.description))
        console.print(table)
        return
    info = find_method(name)
    console.print(f"[bold]{info.name}[/bold]  {info.title}, {escape(info.paper)}")
    console.print(escape(info.description))
    console.print(escape(info.equation))
    for option in info.options:
        default = escape(str(info.defaults.get(option, "the number of epochs of the run")))
        console.print(f"  --set method.options.{option}=…  [dim]default {default}[/dim]")
