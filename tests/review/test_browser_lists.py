"""Lists, files, swipes, languages and other runs, in a real browser."""

import csv
import re
import shutil
from contextlib import ExitStack

import pytest

from onepair.review.answers import Answer
from tests.review.browsers import PHONE, served
from tests.review.runs import open_app, small_run
from tests.review.test_browser import CONTRAST, answers, number


@pytest.fixture
def review(tmp_path):
    """A server in this process, with a session to look at from here."""
    with ExitStack() as stack:
        app, session = open_app(small_run(tmp_path, most=8))
        session.url = stack.enter_context(served(app))
        yield session


def test_photos_are_found_by_class_and_by_name(review, tab):
    page = tab()
    page.goto(f"{review.url}photos")
    bars = int(review.shows("bar").sum())
    page.locator("#by-label").select_option("bar")  # searches at once
    page.wait_for_url(re.compile("label=bar"))
    assert page.get_by_role("heading", level=1).inner_text() == f"{bars} photos"
    assert page.locator("#by-label").input_value() == "bar"
    page.locator("#words").fill("0")
    page.keyboard.press("Enter")
    page.wait_for_url(re.compile("text=0"))
    name = next(
        each
        for each in page.locator(".wall a").evaluate_all("links => links.map((link) => link.ariaLabel)")
        if not review.find(each, "square").number and not review.find(each, "square").shown
    )
    page.get_by_role("link", name=name).click()
    page.get_by_role("heading", level=1, name=name).wait_for()
    page.get_by_text("Add a label").click()
    page.get_by_role("searchbox").fill("squ")
    assert page.locator(".list li:visible").count() == 1
    page.locator("#yes-square").click()
    page.get_by_text("You said yes to square", exact=True).wait_for()
    review.refresh()
    assert review.find(name, "square").answer == "yes"
    page.go_back()
    page.locator("#by-label").wait_for()
    page.get_by_role("link", name="Show all").click()
    page.get_by_role("heading", name=f"{len(review.rows)} photos").wait_for()


def test_labels_are_downloaded_from_any_page(review, tab):
    page = tab()
    cell = review.suggestion(1)
    page.goto(review.url)
    page.keyboard.press("y")
    page.wait_for_url(re.compile("/suggestion/2"))
    page.locator("#download").click()
    with page.expect_download() as coming:
        page.get_by_role("link", name="Table, .csv").click()
    assert coming.value.suggested_filename == "labels.csv"
    with coming.value.path().open(newline="") as text:
        rows = {row["file"]: row for row in csv.DictReader(text)}
    assert rows[cell.file][cell.label] == "1"
    with page.expect_download() as coming:
        page.get_by_role("link", name="Your own table").click()
    assert coming.value.suggested_filename == "labels.csv"
    page.keyboard.press("Escape")
    assert number(page) == 2  # the page is where it was


def swipe(page, shift, *, to="pointerup"):
    """Move a finger over the photo."""
    box = page.locator(".photo").bounding_box()
    x, y = box["x"] + box["width"] / 2, box["y"] + box["height"] / 2
    places = [("pointerdown", x), ("pointermove", x + shift / 2), ("pointermove", x + shift), (to, x + shift)]
    for kind, left in places:
        facts = {"pointerType": "touch", "clientX": left, "clientY": y, "bubbles": True, "isPrimary": True}
        page.locator(".photo").dispatch_event(kind, facts)


def test_a_photo_is_swiped_to_yes_and_no(review, tab):
    page = tab(PHONE, has_touch=True, is_mobile=True)
    page.goto(review.url)
    swipe(page, 30)  # a trembling finger
    swipe(page, 200, to="pointercancel")
    assert number(page) == 1
    swipe(page, 200)
    page.wait_for_url(re.compile("/suggestion/2"))
    swipe(page, -200)
    page.wait_for_url(re.compile("/suggestion/3"))
    assert answers(review)[:3] == ["yes", "no", None]
    page.locator("#undo").tap()
    page.wait_for_url(re.compile("/suggestion/2"))


def test_a_browser_gets_its_language_also_where_scripts_write(review, tab):
    page = tab(locale="de-DE")
    kind = max(review.kinds(), key=lambda each: each.open)
    page.goto(f"{review.url}grid?label={kind.label}")
    assert page.locator("html").get_attribute("lang") == "de"
    total = page.locator("[name=marked]").count()
    assert page.locator("#count").inner_text() == f"Alle {total} zeigen {kind.label}"
    page.locator(".thumbnails label:not(.unsure)").first.click()
    assert page.locator("#count").inner_text() == f"{total - 1} zeigen {kind.label}, 1 nicht"


def test_another_run_is_shown_in_place_of_this_one(review, tab):
    other = review.run.path.with_name("run-2")
    shutil.copytree(review.run.path, other)
    (other / "finding" / "review.sqlite").unlink()
    for file in other.glob("finding/review.sqlite-*"):
        file.unlink()
    cell = review.suggestion(1)
    review.record([Answer(cell.file, cell.label, "yes", 0)], who="Ann")
    page = tab()
    page.goto(review.url)
    assert "1 of 8 answered" in page.locator("header").inner_text()
    for name, done in (("run-2", 0), ("run", 1)):
        page.locator("#runs").click()
        page.locator(f"dialog button[value={name}]").click()
        page.locator("#runs", has_text=re.compile(rf"Run {name}$")).wait_for()
        assert f"{done} of 8 answered" in page.locator("header").inner_text()


@pytest.mark.parametrize("locale", ["en", "de", "es"])
def test_a_narrow_screen_shows_everything(review, tab, locale):
    page = tab(PHONE, has_touch=True, is_mobile=True, locale=locale)
    page.goto(review.url)
    page.locator("#yes").tap()
    page.wait_for_url(re.compile("/suggestion/2"))
    for path in ("photos", "photo/1", "download", "runs", "suggestion/8?order=wrong", "classes", "training"):
        page.goto(review.url + path)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"], path


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_of_level_aa(review, tab, scheme):
    page = tab(color_scheme=scheme)
    for path in ("photos", "photo/1", "download", "runs"):
        page.goto(review.url + path)
        found = page.evaluate(CONTRAST)
        assert len(found) > 5
        assert [each for each in found if each[1] < 4.5] == []
