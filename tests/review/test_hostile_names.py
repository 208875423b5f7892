"""Scripts for names, in a real browser that does not keep the pages' own policy: escaping alone has to hold."""

import csv

import pytest

from onepair.report import write_report
from onepair.review.answers import Answer
from tests.report.summaries import found, summary
from tests.review.audits import audit_run, open_audit_app
from tests.review.browsers import press, served
from tests.review.runs import open_app, write_images, write_run, write_suggestions
from tests.review.test_audit_browser import complete

CLASSES = (
    "<script>window.hacked = 1</script>",
    '"><img src=x onerror="window.hacked = 1">',
    "' autofocus onfocus='window.hacked = 1",
    "</title><svg onload=window.hacked=1>{{ 7 * 7 }}$\\frac",
)
FILE = '"><img src=x onerror=window.hacked=1>.png'
PERSON = "<img src=x onerror=window.hacked=1>"
ADDED = "<svg onload=window.hacked=1> & co"


@pytest.fixture
def open_pages(tab):
    """A tab that counts what it looked at; nothing on any page may have run, nor be there to run."""
    page = tab(bypass_csp=True)
    page.on("dialog", lambda dialog: pytest.fail(f"a page opened a dialog: {dialog.message}"))

    def look(address=None):
        if address is not None:
            page.goto(address)
        assert page.evaluate("window.hacked") is None, page.url
        assert page.locator("[onerror], [onload], [onfocus], img[src=x], a[href^='javascript:']").count() == 0, page.url
        assert page.locator("script").count() == page.locator("script[src^='/static/']").count(), page.url
        return page

    return look


@pytest.fixture
def review(tmp_path):
    """A review of images, classes and a reviewer with such names."""
    table = write_images(tmp_path / "images")
    (tmp_path / "images" / "00.png").rename(tmp_path / "images" / FILE)
    rows = list(csv.reader(table.read_text().splitlines()))
    rows[0][2:], rows[1][0] = CLASSES, FILE
    with table.open("w", newline="") as text:
        csv.writer(text).writerows(rows)
    run = write_run(tmp_path / "run", table)
    wrong = [(row[0], label, 0.9, "wrong") for row in rows[1:7] for label, value in zip(CLASSES, row[2:], strict=True)]
    write_suggestions(run, wrong)
    app, session = open_app(run, name=PERSON)
    with served(app) as url:
        session.url = url.rstrip("/")
        yield session


def test_every_page_of_a_review(review, open_pages):
    page = open_pages(f"{review.url}/")
    assert PERSON in page.locator("footer").inner_text()
    assert CLASSES[0] in page.locator("h1").inner_text()
    for opener in ("#add", "#classes"):  # of dialogs, which are put in place by the script
        page.locator(opener).click()
        page.get_by_role("searchbox").wait_for()
        open_pages()
        page.locator("#close").click()
        page.locator("dialog").wait_for(state="hidden")
    press(page, "y")
    open_pages()
    press(page, "u")
    open_pages()
    for number in range(1, 7):
        open_pages(f"{review.url}/suggestion/{number}")
    for address in ("/classes", "/suggestion/1/labels", "/training", "/done", "/help", "/name"):
        open_pages(f"{review.url}{address}")
    open_pages(f"{review.url}/classes")
    page.get_by_role("link", name="Many at once").first.click()
    page.locator(".thumbnails").wait_for()
    open_pages()
    page.keyboard.press("Enter")
    open_pages()


def test_what_people_add_and_where_they_disagree(review, open_pages, tab):
    page = open_pages(f"{review.url}/classes")
    page.locator("#new-class").fill(ADDED)
    page.locator("#add-class").click()
    page.locator(f"[data-name='{ADDED}']").wait_for()
    assert review.store.classes() == [ADDED]
    open_pages()
    page.locator("#new-class").fill(ADDED.upper())  # taken, in another spelling
    page.locator("#add-class").click()
    page.get_by_role("heading", name="There is a class").wait_for()
    open_pages()
    open_pages(f"{review.url}/name")
    page.locator("#name").fill(f"Bob {PERSON}")
    page.get_by_role("button", name="Go on").click()
    page.wait_for_url("**/suggestion/*")
    cell = review.suggestion(1)
    open_pages(f"{review.url}/suggestion/1")
    review.record([Answer(cell.file, cell.label, "yes", 0)], who=PERSON)
    tab.refusals = True
    page.get_by_role("button", name="No N", exact=True).click()
    page.locator(".notice").wait_for()
    assert PERSON in page.locator(".notice").inner_text()
    open_pages()


def test_an_answer_that_is_refused_is_shown_as_text(review, open_pages, tab):
    tab.refusals = True
    page = open_pages(f"{review.url}/suggestion/1")
    page.route("**/answer", lambda route: route.fulfill(status=503, body=CLASSES[1], content_type="text/plain"))
    page.get_by_role("button", name="Yes Y", exact=True).click()
    page.locator(".notice").wait_for()
    assert CLASSES[1] in page.locator(".notice").inner_text()
    open_pages()


def test_every_page_of_an_audit(open_pages, tmp_path):
    app, session = open_audit_app(audit_run(tmp_path / "audit", names=CLASSES), name=PERSON)
    with served(app) as url:
        page = open_pages(url)
        assert CLASSES[0] in page.locator("#toggles").inner_text()
        page.locator(".toggles .toggle").first.click()
        complete(page)
        open_pages()
        for address in ("/image-1", "/done", "/help", "/name"):
            open_pages(f"{url[:-1]}{address}")
    assert session.complete.sum() == 1


def test_a_report(open_pages, tmp_path):
    names = CLASSES[:3]
    runs = [
        summary("bce", 0.7, title=CLASSES[0], labels=PERSON, classes=names),
        summary("opml", 0.8, title=CLASSES[3], labels=ADDED, classes=names, found=found(names=names)),
    ]
    write_report(tmp_path / "report.html", runs, title=CLASSES[3], introduction=CLASSES[1])
    page = open_pages((tmp_path / "report.html").as_uri())
    assert CLASSES[1] in page.locator("header").inner_text()
    assert CLASSES[0] in page.locator("main").inner_text()
