"""`onepair review`: confirm on a page in the browser what `onepair find` suggests."""

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from onepair.errors import require_extra
from onepair.words import command

if TYPE_CHECKING:
    from collections.abc import Callable

    from fastapi import FastAPI

    from onepair.data.label_table import LabelTable
    from onepair.review.pictures import Pictures


def review(
    run: Annotated[Path, typer.Argument(help="The folder of a run with suggestions, or one that holds such a run.")],
    port: Annotated[int, typer.Option(min=0, max=65535, help="Where to listen; 0 takes any port that is free.")] = 8765,
    host: Annotated[
        str,
        typer.Option(help="The address to listen on. Beyond this machine, the page asks for the token it prints."),
    ] = "127.0.0.1",
    name: Annotated[str | None, typer.Option(help="Who answers; by default the name you are logged in with.")] = None,
    follow_links: Annotated[
        bool, typer.Option("--follow-links", help="Show images that are links to outside of the dataset, too.")
    ] = False,
    browse: Annotated[bool, typer.Option("--open", help="Open the page in your browser, if there is one.")] = False,
) -> None:
    """Go through suggestions on a page in the browser: yes, no, next.

    Every answer is stored at once, in finding/review.sqlite in the run's folder; stop and go on whenever you like. Then
    onepair labels writes the completed labels.
    """
    require_extra("review")
    from onepair.review.answers import Store
    from onepair.review.app import create_app
    from onepair.review.queue import answers_file, open_run, read_queue
    from onepair.review.retraining import Retraining
    from onepair.review.session import Desk

    opened = open_run(run)
    desk = Desk(opened, read_queue(opened), Store(answers_file(opened)))
    retraining = Retraining(opened, desk.store)
    try:
        serve_pages(
            lambda pictures, who: create_app(desk, pictures, retraining, name=who),
            table=desk.table,
            words=f"{int(desk.goal.sum()):,} suggestions, {int((desk.goal & ~desk.open).sum()):,} of them answered",
            port=port,
            host=host,
            name=name,
            follow_links=follow_links,
            browse=browse,
        )
    finally:
        retraining.stop()
    desk.refresh()
    answered, total = int((desk.goal & ~desk.open).sum()), int(desk.goal.sum())
    typer.echo(
        f"\n{answered:,} of {total:,} answered; {command('labels', run, '--out', 'completed.csv')} writes the labels"
    )


def serve_pages(
    create: "Callable[[Pictures, str | None], FastAPI]",
    *,
    table: "LabelTable",
    words: str,
    port: int,
    host: str,
    name: str | None,
    follow_links: bool,
    browse: bool = False,
) -> None:
    """Serve an application, made from the pictures of a table and from who answers, until Ctrl-C."""
    from onepair.files import cache_folder
    from onepair.review.pictures import Pictures
    from onepair.review.server import listen, serve

    pictures = Pictures(table, cache=cache_folder() / "thumbnails", follow_links=follow_links)
    listener = listen(host, port)
    alone = listener.rules.token is None
    app = create(pictures, name or (login_name() if alone else None))
    typer.echo(words)
    typer.echo(f"Open {listener.url} in a browser. Ctrl-C ends; every answer is stored at once.")
    if browse and has_screen():
        import webbrowser

        webbrowser.open(listener.url)  # which waits: the socket listens already
    serve(app, listener)


def has_screen() -> bool:
    """Whether a browser would open in a window: in a terminal, or over a bare connection, it would be in the way."""
    windows = sys.platform in ("darwin", "win32") or any(map(os.environ.get, ("DISPLAY", "WAYLAND_DISPLAY")))
    return windows and sys.stdout.isatty()


def login_name() -> str:
    import getpass

    try:
        return getpass.getuser()
    except (KeyError, OSError):  # in a container, a user may have no name
        return "reviewer"
