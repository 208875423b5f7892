"""A browser, tabs that fail the test if it complains about a page, and a server that may not stumble."""

import logging
import shutil

import pytest

from tests.review.browsers import DESKTOP

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
QUIET = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--no-first-run",
    "--disable-component-update", "--disable-sync",
)  # fmt: skip


@pytest.fixture(scope="module")
def browser():
    playwright = pytest.importorskip("playwright.sync_api", reason="no browser tests: playwright is not installed")
    if CHROMIUM is None:
        pytest.skip("no browser: chromium is not installed (apt install chromium), so nothing was tested in one")
    with playwright.sync_playwright() as driver:
        chromium = driver.chromium.launch(executable_path=CHROMIUM, args=list(QUIET))
        yield chromium
        chromium.close()


@pytest.fixture
def tab(browser):
    """Opens tabs, and fails the test if the browser complains about a page, other than for being refused an answer."""
    contexts, complaints = [], []

    def open_tab(size=DESKTOP, *, beside=None, **options):
        context = beside.context if beside else browser.new_context(viewport=size, **options)
        contexts.append(context)
        page = context.new_page()
        page.set_default_timeout(10_000)
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
