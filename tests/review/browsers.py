"""Screens of two sizes, where chromium is, a server in this process, and a key that leads to another page."""

import os
import shutil
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from onepair.review.server import listen, make_server

DESKTOP, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}


def find_chromium() -> str:
    """Its path. Without it a test is left out, and says so, but where changes are judged (CI) it fails."""
    found = shutil.which("chromium") or shutil.which("chromium-browser")
    if found is None:
        give_up = pytest.fail if os.environ.get("CI") else pytest.skip
        give_up("chromium is not installed (apt install chromium), so nothing was tested in a browser")
    return found


@contextmanager
def served(app, *, token: str | None = None) -> Iterator[str]:
    """The address of an application, for as long as the block lasts; with a token, as if it listened to others."""
    listener = listen("127.0.0.1", 0)
    server = make_server(app, replace(listener.rules, token=token))
    thread = threading.Thread(target=server.run, args=([listener.socket],))
    thread.start()
    try:
        yield listener.url
    finally:
        server.should_exit = True
        thread.join()
        listener.socket.close()


def press(page, key):
    """Press a key that leads to another page, and wait for it."""
    before = page.url
    page.keyboard.press(key)
    page.wait_for_url(lambda url: url != before)
