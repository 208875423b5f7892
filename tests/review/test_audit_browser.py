"""An audit in a real browser: by keyboard, on a phone, without scripts, and with three hundred classes."""

import shutil
from contextlib import ExitStack

import pytest

from onepair.runs.finished import FinishedRun
from tests.review.audits import audit_run, open_audit_app, shown_in
from tests.review.browsers import PHONE, press, served
from tests.review.test_browser import CONTRAST

MANY = tuple(f"{first}{second}{third}" for first in "bdfgklmnprst" for second in "aeiou" for third in "dgmns")


@pytest.fixture(scope="module")
def small(tmp_path_factory):
    return audit_run(tmp_path_factory.mktemp("audited") / "small")


@pytest.fixture
def audit(tmp_path):
    """A server in this process, with a session to look at from here."""
    with ExitStack() as stack:

        def start(run):
            app, session = open_audit_app(shutil.copytree(run, tmp_path / "run"))
            session.url = stack.enter_context(served(app))
            return session

        yield start


def complete(page):
    """Press the key twice where the model expects more: the first time only points at it."""
    expected = page.locator(".predicted input:not(:checked)").count()
    if expected and page.locator("[name=seen]").input_value() == "0":
        page.keyboard.press("Control+Enter")
        page.locator("#undecided").wait_for()
    press(page, "Control+Enter")


def ticked(page):
    return set(page.locator("[name=ticked]:checked").evaluate_all("boxes => boxes.map((box) => box.value)"))


def test_a_whole_audit_by_keyboard(audit, tab, small):
    session, page = audit(small), tab()
    page.goto(session.url)
    for place in range(1, 7):
        assert page.url.endswith(f"/image-{place}")
        for label in sorted(ticked(page) ^ shown_in(session, place)):
            page.keyboard.type(label[:3])
            assert page.locator(".toggle.chosen").inner_text().replace("✓", "").split()[0] == label
            page.keyboard.press("Enter")
            assert page.locator("#filter").input_value() == ""
        assert ticked(page) == shown_in(session, place)
        complete(page)
    assert page.get_by_role("heading").first.inner_text() == "All 6 images are complete"
    session.refresh()
    assert session.complete.all()
    assert len(FinishedRun(session.run.path).audit) == 6
    press(page, "Control+z")
    assert page.url.endswith("/image-6")
    assert ticked(page) == shown_in(session, 6)  # the ticks are still there
    assert len(FinishedRun(session.run.path).audit) == 5


def test_the_key_confirms_nothing_that_only_the_model_says(audit, tab, small):
    """Every image by Ctrl-Enter alone: what is expected is pointed at first, and never taken for there."""
    session, page = audit(small), tab()
    page.goto(session.url)
    pointed = 0
    for place in range(1, 7):
        known = {each.label for toggles in session.toggles(place) for each in toggles if each.known}
        expected = {each.label for toggles in session.toggles(place) for each in toggles if each.predicted}
        assert ticked(page) == known
        page.keyboard.press("Control+Enter")
        if expected:
            pointed += 1
            page.locator("#undecided").wait_for()
            assert page.evaluate("document.activeElement.value") in expected
            assert not session.complete[place - 1]
            page.keyboard.press("Control+Enter")
        page.wait_for_url(lambda url, place=place: not url.endswith(f"/image-{place}"))
        session.refresh()
        labels = session.answers[place - 1] == 1
        assert {name for name, shown in zip(session.table.classes, labels, strict=True) if shown} == known
    assert pointed


def test_arrows_space_and_escape(audit, tab, small):
    session, page = audit(small), tab()
    page.goto(session.url)
    before = ticked(page)
    page.keyboard.type("ci")
    assert page.locator(".toggles li:visible").count() == 1
    page.keyboard.press("Escape")
    assert page.locator(".toggles li:visible").count() == 4
    page.keyboard.type("zzz")
    assert page.locator("#found").is_visible()
    page.keyboard.press("Escape")
    page.keyboard.press("ArrowDown")
    first = page.evaluate("document.activeElement.value")
    assert first in session.table.classes
    page.keyboard.press("Space")
    assert ticked(page) == before ^ {first}
    page.keyboard.press("Enter")
    assert ticked(page) == before
    page.keyboard.press("ArrowRight")
    assert page.evaluate("document.activeElement.value") != first
    page.keyboard.press("ArrowLeft")
    assert page.evaluate("document.activeElement.value") == first
    press(page, "PageDown")
    press(page, "PageUp")
    assert page.url.endswith("/image-1")
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()


def test_three_hundred_classes_are_within_reach(audit, tab, tmp_path):
    session, page = audit(audit_run(tmp_path / "many", images=12, names=MANY)), tab()
    page.goto(session.url)
    assert page.locator("[name=ticked]").count() == 300
    assert page.evaluate("document.documentElement.scrollHeight") <= 801  # nothing but the labels scrolls
    panel = page.evaluate(
        "(() => { const t = document.querySelector('.toggles'); return t.scrollHeight / t.clientHeight })()"
    )
    assert panel <= 1.5
    box = page.locator("#complete").bounding_box()
    assert box["y"] + box["height"] <= 800
    name = page.locator(".others [name=ticked]").last.get_attribute("value")
    page.keyboard.type(name)
    page.keyboard.press("Enter")
    assert name in ticked(page)


@pytest.mark.parametrize("path", ["", "help", "done", "name"])
def test_a_narrow_screen_shows_everything(audit, tab, small, path):
    session, page = audit(small), tab(PHONE, has_touch=True, is_mobile=True)
    page.goto(session.url + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    if path:
        return
    button = page.locator("#complete").bounding_box()
    assert button["y"] + button["height"] <= PHONE["height"]
    page.locator(".toggle").first.tap()
    page.locator("#complete").tap()
    if page.locator("#undecided").is_visible():
        page.locator("#complete").tap()
    page.wait_for_url(lambda url: url.endswith("/image-2"))


def test_without_scripts_it_works_too(audit, tab, small):
    session, page = audit(small), tab(java_script_enabled=False)
    page.goto(session.url)
    page.locator(".toggle").last.click()
    page.locator("#complete").click()
    page.wait_for_url(lambda url: url.endswith("/image-2"))
    session.refresh()
    assert session.complete[0]
    page.locator("#undo").click()
    page.wait_for_url(lambda url: url.endswith("/image-1"))


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_of_level_aa(audit, tab, small, scheme):
    session, page = audit(small), tab(color_scheme=scheme)
    page.goto(session.url)
    complete(page)
    for path in ("image-1", "image-2", "done", "help"):
        page.goto(session.url + path)
        found = page.evaluate(CONTRAST)
        assert len(found) > 5
        assert [each for each in found if each[1] < 4.5] == []
