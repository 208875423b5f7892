"""`onepair datasets`: which formats are read, and what each looks like."""


def datasets() -> None:
    """List the dataset formats: what must be at the path, and where to get it."""
    from rich.console import Console
    from rich.markup import escape

    from onepair.data.formats.read import FORMATS

    console = Console(highlight=False)
    for reader in FORMATS.values():
        console.print(f"[bold]{reader.name}[/bold]  {escape(reader.description)}")
        console.print(f"  layout    {escape(reader.layout)}", soft_wrap=True)
        console.print(f"  download  {escape(reader.origin)}\n", soft_wrap=True)
