"""The page in a real browser: by keyboard, by mouse, on a phone, in two tabs, and with the server killed under it."""

import os
import re
import signal
from contextlib import ExitStack

import pytest
from playwright.sync_api import expect

from onepair.review.answers import Answer
from tests.review.browsers import PHONE, find_chromium, press, served
from tests.review.processes import serving
from tests.review.runs import open_app, open_session, small_run, truth_of


@pytest.fixture
def review(tmp_path):
    """A server in this process, with a session to look at from here."""
    with ExitStack() as stack:

        def start(**options):
            app, session = open_app(small_run(tmp_path, **options))
            session.url = stack.enter_context(served(app))
            return session

        yield start


def number(page):
    return int(re.search(r"/suggestion/(\d+)", page.url)[1])


def answers(session):
    session.refresh()
    return [session.suggestion(n).answer for n in range(1, len(session) + 1)]


def test_a_whole_review_by_keyboard(review, tab):
    session, page = review(most=8), tab()
    page.goto(session.url)
    expected = []
    for place in range(8):
        assert number(page) == place + 1
        truth = truth_of(session, session.suggestion(place + 1))
        expected.append("skip" if place == 3 else truth)
        press(page, {"yes": "y", "no": "n", "skip": "s"}[expected[-1]])
    assert answers(session) == expected
    assert page.get_by_role("heading").inner_text() == "All suggestions are answered"
    press(page, "u")  # the last one is open again
    assert number(page) == 8
    assert answers(session) == [*expected[:-1], None]
    press(page, "y")
    page.go_back()
    page.wait_for_url(re.compile("/suggestion/8"))
    assert "You said yes" in page.locator(".answered").inner_text()


def press_at_once(page, keys):
    """Press keys before the page can change."""
    event = "new KeyboardEvent('keydown', {key, bubbles: true})"
    page.evaluate(f"keys => [...keys].map((key) => document.body.dispatchEvent({event}))", keys)


def test_keys_that_come_faster_than_pages_are_all_answers(review, tab):
    session, page = review(most=12), tab()
    page.goto(session.url)
    press_at_once(page, "ynynynynyn")
    page.wait_for_url(re.compile("/suggestion/11"))
    assert answers(session) == ["yes", "no"] * 5 + [None] * 2


def test_ten_quick_keys_with_undo_are_ten_answers(review, tab):
    session, page = review(most=12), tab()
    page.goto(session.url)
    press_at_once(page, "yynuysuny")  # the undone ones are answered again
    page.wait_for_url(re.compile("/suggestion/6"))
    assert answers(session) == ["yes", "yes", "yes", "no", "yes"] + [None] * 7
    assert len(session.store.entries()) == 9


def test_keys_that_wait_are_forgotten_where_somebody_contradicts(review, tab):
    tab.refusals = True
    session, page = review(most=6), tab()
    page.goto(session.url)
    cell = session.suggestion(1)
    session.store.record([Answer(cell.file, cell.label, "no", 0)], who="Ben")
    press_at_once(page, "yyy")
    expect(page.get_by_role("alert")).to_contain_text("Ben said no")
    assert answers(session) == ["no"] + [None] * 5


def test_a_whole_review_by_mouse(review, tab):
    session, page = review(most=6), tab()
    page.goto(session.url)
    page.get_by_role("link", name="By image").click()
    page.wait_for_url(re.compile("order=image"))
    order = (session.suggestions.ordered("image") + 1).tolist()
    for place in order:
        page.wait_for_url(re.compile(f"/suggestion/{place}\\b"))
        truth = truth_of(session, session.suggestion(place))
        page.get_by_role("button", name=f"{truth.capitalize()} {truth[0].upper()}", exact=True).click()
    page.wait_for_url(re.compile("/done"))
    assert answers(session) == [truth_of(session, session.suggestion(n)) for n in range(1, 7)]
    page.get_by_role("button", name="Undo").click()
    page.wait_for_url(re.compile(f"/suggestion/{order[-1]}\\b"))


def test_steps_classes_and_added_labels_by_keyboard(review, tab):
    session, page = review(most=12), tab()
    page.goto(session.url)
    press(page, "ArrowRight")
    press(page, "ArrowRight")
    press(page, "ArrowLeft")
    assert number(page) == 2
    assert answers(session) == [None] * 12
    page.keyboard.press("c")
    page.get_by_role("searchbox").wait_for()
    page.keyboard.type("squ")
    assert page.locator("dialog li:visible").count() == 1
    press(page, "Enter")
    assert session.suggestion(number(page)).label == "square"
    assert not page.locator("dialog").is_visible()
    shown = session.suggestion(number(page))
    new = next(cell for cell in session.cells(shown.row) if not cell.number and not cell.shown)
    page.keyboard.press("a")
    page.get_by_role("searchbox").wait_for()
    page.keyboard.press("Escape")
    page.locator("#add").press("Enter")
    page.get_by_role("searchbox").wait_for()
    page.keyboard.type(new.label)
    page.keyboard.press("Enter")
    page.get_by_text("added").wait_for()
    session.refresh()
    assert session.find(new.file, new.label).answer == "yes"
    assert number(page) == shown.number
    assert page.evaluate("document.activeElement.id") == "add"  # the focus is where it was
    page.keyboard.press("?")
    page.get_by_role("heading", name="Keys").wait_for()
    page.keyboard.press("y")  # under an open dialog, keys do nothing
    page.keyboard.press("Escape")
    assert session.suggestion(shown.number).answer is None
    page.keyboard.press("?")
    page.get_by_label("Use these keys").uncheck()
    page.keyboard.press("Escape")
    page.keyboard.press("y")
    page.reload()
    assert number(page) == shown.number
    assert page.get_by_role("button", name="Yes Y", exact=True).get_attribute("aria-pressed") == "false"


def test_heat_maps_by_key_and_under_the_pointer(review, tab):
    session, page = review(), tab()
    page.goto(session.url)
    shading = expect(page.locator(".map"))
    shading.to_have_css("opacity", "0")
    page.hover("h1")
    shading.to_have_css("opacity", "1")
    page.hover("header")
    shading.to_have_css("opacity", "0")
    page.keyboard.press("h")
    shading.to_have_css("opacity", "1")
    press(page, "y")  # it stays on from image to image
    shading.to_have_css("opacity", "1")
    assert page.locator(".photo").bounding_box() == page.locator(".map").bounding_box()
    several = next(n for n in range(1, 41) if sum(bool(c.number) for c in session.cells(session.suggestion(n).row)) > 1)
    page.goto(f"{session.url}suggestion/{several}")
    image = page.locator(".map image")
    own = image.get_attribute("href")
    page.hover(".labels li[data-map]")
    assert image.get_attribute("href") != own
    page.hover("header")
    assert image.get_attribute("href") == own


def test_the_grid_by_mouse_and_by_keyboard(review, tab):
    session, page = review(), tab()
    waiting = [cell.file for cell in session.waiting("cross", 1, True, most=24)]
    page.goto(session.url + "?label=cross")
    press(page, "g")
    page.locator(".thumbnails label:not(.unsure)").nth(1).click()
    page.locator(".thumbnails label:not(.unsure)").nth(2).click()
    page.locator(".thumbnails label:not(.unsure)").nth(2).click()  # a second click takes it back
    button = page.locator("#confirm")
    assert f"{len(waiting) - 1} show cross, 1 do not" in button.inner_text()
    button.click()
    page.get_by_role("heading", name="No cross that is probably missing is left").wait_for()
    session.refresh()
    assert [session.find(file, "cross").answer for file in waiting] == ["yes", "no"] + ["yes"] * (len(waiting) - 2)
    page.keyboard.press("u")
    page.locator(".thumbnails").wait_for()
    session.refresh()
    assert {session.find(file, "cross").answer for file in waiting} == {None}
    assert page.locator("[name=marked]:checked").get_attribute("value") == waiting[1]  # the marks are still there
    for key in ("ArrowRight", "ArrowRight", "ArrowRight", "Space", "ArrowLeft", "Space", "ArrowLeft", "s"):
        page.keyboard.press(key)
    assert f"{len(waiting) - 2} show cross, 1 do not, 1 not sure" in page.locator("#confirm").inner_text()
    page.keyboard.press("s")
    page.keyboard.press("Enter")
    page.get_by_role("heading", name="No cross that is probably missing is left").wait_for()
    session.refresh()
    assert [session.find(file, "cross").answer for file in waiting[:4]] == ["yes", "yes", "no", "yes"]
    press(page, "Enter")  # on to the labels that are probably wrong
    assert page.url.endswith("/grid?label=cross&suggested=0&likely=1")


def test_reloading_and_a_second_tab_show_what_is_stored(review, tab):
    session, first = review(), tab()
    first.goto(session.url)
    second = tab(beside=first)
    second.goto(session.url)
    press(first, "y")
    second.reload()
    assert "You said yes" in second.locator(".answered").inner_text()
    second.goto(session.url)
    assert number(second) == 2


def test_two_people_do_not_overwrite_each_other(review, tab):
    tab.refusals = True
    session, ann, ben = review(), tab(), tab()
    for page in (ann, ben):
        page.goto(session.url)
    ben.get_by_role("link", name="Answering as").click()
    ben.get_by_role("textbox", name="Your name").fill("Ben")
    ben.keyboard.press("Enter")
    ben.get_by_text("Answering as Ben").wait_for()
    assert number(ben) == 2  # what Ann looks at is not given to Ben
    ben.goto(f"{session.url}suggestion/1")
    press(ann, "y")
    ben.keyboard.press("n")
    assert "Ann said yes just now, after you opened this page" in ben.get_by_role("alert").inner_text()
    assert answers(session)[0] == "yes"
    press(ben, "n")  # having seen it, Ben may overrule it
    session.refresh()
    assert (session.suggestion(1).answer, session.suggestion(1).entry.who) == ("no", "Ben")
    press(ben, "u")
    assert answers(session)[0] == "yes"


def test_nothing_is_lost_when_the_server_is_killed(tab, tmp_path):
    tab.refusals = True
    run = small_run(tmp_path)
    page = tab()
    with serving(run, "--name", "Ann") as server:
        page.goto(server.url)
        for key in "yyn":
            press(page, key)
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        page.keyboard.press("y")
        assert "was not stored" in page.get_by_role("alert").inner_text()
        port = server.url.rpartition(":")[2]
    session = open_session(run)
    assert answers(session)[:4] == ["yes", "yes", "no", None]
    with serving(run, "--name", "Ann", "--port", port) as server:
        press(page, "n")  # the page goes on where it was
        assert number(page) == 5
        assert "4 of 40 answered" in page.locator("header").inner_text()
        press(page, "u")
        press(page, "u")  # undoes what was answered before the restart
        assert number(page) == 3
    assert answers(session)[:4] == ["yes", "yes", None, None]


@pytest.mark.parametrize("path", ["", "grid?label=cross", "classes", "help", "done", "training"])
def test_a_narrow_screen_shows_everything(review, tab, path):
    session, page = review(), tab(PHONE, has_touch=True, is_mobile=True)
    page.goto(session.url + path)
    assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
    if path:
        return
    for name in ("Yes", "No", "Not sure"):  # in reach of a thumb, without scrolling
        box = page.get_by_role("button", name=name).first.bounding_box()
        assert box["y"] + box["height"] <= PHONE["height"]
        assert box["height"] >= 44
    photo = page.locator(".photo").bounding_box()
    assert photo["width"] > 300
    page.get_by_role("button", name="Yes").first.tap()
    page.wait_for_url(re.compile("/suggestion/2"))
    page.get_by_role("link", name="Add a label").tap()
    page.get_by_role("button", name="Close").tap()
    assert not page.locator("dialog").is_visible()


def test_without_scripts_it_works_too(review, tab):
    session, page = review(), tab(java_script_enabled=False)
    page.goto(session.url)
    page.locator("#no").click()
    page.wait_for_url(re.compile("/suggestion/2"))
    assert answers(session)[0] == "no"
    page.locator("#undo").click()
    page.wait_for_url(re.compile("/suggestion/1"))
    page.goto(f"{session.url}grid?label=cross")
    page.locator("#confirm").click()
    page.get_by_role("heading", name="No cross that is probably missing is left").wait_for()


CONTRAST = """
() => {
  const luminance = (colour) => {
    const parts = colour.match(/[\\d.]+/g).slice(0, 3).map((part) => part / 255);
    const linear = parts.map((part) => (part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4));
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2];
  };
  const ground = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return /rgba\\(.*, 0\\)/.test(colour) ? ground(element.parentElement) : colour;
  };
  const texts = [...document.querySelectorAll("body *")].filter(
    (element) =>
      element.checkVisibility({ opacityProperty: true }) &&
      [...element.childNodes].some((node) => node.nodeType === 3 && node.data.trim())
  );
  return texts.map((element) => {
    const [high, low] = [getComputedStyle(element).color, ground(element)].map(luminance).sort((a, b) => b - a);
    return [element.outerHTML.slice(0, 80), (high + 0.05) / (low + 0.05)];
  });
}
"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_all_text_has_the_contrast_of_level_aa(review, tab, scheme):
    session, page = review(), tab(color_scheme=scheme)
    page.goto(session.url)
    press(page, "y")
    looked_at = 0
    for path in ("suggestion/1", "suggestion/40", "grid?label=cross", "done", "classes", "help", "name", "training"):
        page.goto(session.url + path)
        found = page.evaluate(CONTRAST)
        looked_at += len(found)
        assert [each for each in found if each[1] < 4.5] == []
    assert looked_at > 100


def test_what_has_the_focus_is_outlined_and_keeps_it(review, tab):
    session, page = review(), tab()
    page.goto(session.url)
    visited = set()
    for _ in range(45):
        page.keyboard.press("Tab")
        name, style, width = page.evaluate(
            "(() => { const e = document.activeElement, s = getComputedStyle(e);"
            "return [e.id || e.textContent, s.outlineStyle, parseFloat(s.outlineWidth)]; })()"
        )
        if name and name != page.locator("body").inner_text():
            visited.add(name)
        if page.evaluate("document.activeElement !== document.body"):
            assert (style, width) == ("solid", 3)
    assert {"yes", "no", "skip", "add", "grid", "classes", "help", "who", "where"} <= visited
    page.locator("#yes").focus()
    press(page, "Enter")
    assert page.evaluate("document.activeElement.id") == "yes"
    assert page.locator("#status").inner_text().startswith("You said yes to")


def test_the_photo_can_be_looked_at_closely(review, tab):
    session, page = review(), tab()
    page.goto(session.url)
    scale = (
        "document.querySelector('.photo').getBoundingClientRect().width / document.querySelector('.photo').offsetWidth"
    )
    assert page.evaluate(scale) == 1
    page.keyboard.press("+")
    assert page.evaluate(scale) == 2.5
    assert page.locator("#zoom").get_attribute("aria-pressed") == "true"
    before = page.locator(".photo").bounding_box()
    page.keyboard.press("ArrowRight")  # moves the photo, not on to another
    assert number(page) == 1
    assert page.locator(".photo").bounding_box()["x"] < before["x"]
    page.keyboard.press("+")
    assert page.evaluate(scale) == 1
    page.locator(".photo").click()
    assert page.evaluate(scale) == 2.5
    press(page, "y")
    assert page.evaluate(scale) == 1


def test_an_image_is_complete_by_one_key(review, tab):
    session, page = review(), tab()
    page.goto(session.url)
    row = session.suggestion(1).row
    press(page, "f")
    session.refresh()
    assert {cell.answer for cell in session.cells(row)} <= {"yes", "no"}
    press(page, "u")
    assert number(page) == 1


def test_the_next_image_is_there_before_it_is_asked_for(review, tab):
    session, page = review(), tab()
    asked = []
    page.on("request", lambda request: asked.append(request.url))
    page.goto(session.url)
    coming = f"/image/{session.suggestion(2).row}?"
    page.wait_for_load_state("networkidle")
    assert any(coming in url for url in asked)
    asked.clear()
    press(page, "y")
    page.wait_for_load_state("networkidle")
    assert page.locator(".photo").evaluate("photo => photo.complete && photo.naturalWidth") > 0
    assert not any(coming in url for url in asked)


def test_a_disagreement_in_the_grid_is_told(review, tab):
    tab.refusals = True
    session, page = review(), tab()
    page.goto(f"{session.url}grid?label=bar")
    cell = session.waiting("bar", 1, True, most=1)[0]
    session.store.record([Answer(cell.file, cell.label, "no", 0)], who="Ben")
    page.keyboard.press("Enter")
    assert "Somebody else had answered 1 of the images" in page.get_by_role("alert").inner_text()


@pytest.mark.parametrize(("ci", "outcome"), [("", pytest.skip.Exception), ("true", pytest.fail.Exception)])
def test_without_chromium_the_tests_are_left_out_but_never_in_ci(monkeypatch, ci, outcome):
    monkeypatch.setenv("PATH", "")
    monkeypatch.setenv("CI", ci)
    with pytest.raises(outcome, match="chromium is not installed"):
        find_chromium()
