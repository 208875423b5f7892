"""A run and its pages, a browser whose complaints fail a test, and a server that may not stumble."""

import logging

import pytest
from starlette.testclient import TestClient

from tests.review.browsers import DESKTOP, find_chromium
from tests.review.runs import open_app, small_run
from tests.review.sites import Site

QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture
def run(tmp_path):
    """A finished run with suggestions."""
    return small_run(tmp_path)


@pytest.fixture
def site(run):
    """The pages of a review of the run."""
    app, session = open_app(run)
    return Site(TestClient(app), session)


@pytest.fixture(scope="module")
def browser():
    from playwright.sync_api import sync_playwright  # half a second, which most tests do not need

    executable = find_chromium()
    with sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=executable, args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture
def tab(browser):
    """Opens tabs, and fails the test if the browser complains about a page, other than for being refused an answer.

    A test names it after its server, so that tabs are closed before the server is.
    """
    contexts, complaints = [], []

    def open_tab(size=DESKTOP, *, beside=None, **options):
        context = beside.context if beside else browser.new_context(viewport=size, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(300_000)
        page.on("pageerror", lambda error: complaints.append(str(error)))
        page.on("console", lambda message: message.type == "error" and complaints.append(message.text))
        return page

    open_tab.refusals = False  # whether some are part of the test
    yield open_tab
    for context in contexts:
        context.close()
    refused = "Failed to load resource"
    assert [each for each in complaints if not (open_tab.refusals and each.startswith(refused))] == []


@pytest.fixture
def no_stumbling(caplog):
    """Whatever is sent to it, a server in this process answers without an error of its own."""
    yield
    assert [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR] == []
