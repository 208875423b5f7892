"""How quick the review page is with 100,000 suggestions over 10,000 images: seconds, on loopback, against the aims.

    python benchmarks/review.py

Needs no data; where chromium is installed, a browser is timed too.
"""

import csv
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from html import unescape
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from urllib.parse import quote, urlencode, urlsplit

import numpy as np
from PIL import Image

from onepair.runs.config import build_config, to_toml
from onepair.runs.folder import Results, RunFolder
from onepair.runs.task import prepare_task

IMAGES, CLASSES, SUGGESTIONS = 10_000, 80, 100_000
DIFFERENT = 50  # images; the others are links to them
SIZE = (500, 375)
ANSWERS = 40
HIDDEN = r'type="hidden" name="(\w+)" value="([^"]*)"'


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        run = write_run(folder)
        begun = time.perf_counter()
        with serving(run, cache=folder / "cache") as (url, _):
            show("from the command to its address", time.perf_counter() - begun, None)
            browser = Browser(url)
            show("first page and its image", timed(lambda: browser.visit("/")), 1.0)
            show_many("next page and its image", [timed(browser.answer) for _ in range(ANSWERS)], 0.1)
            grids = [f"/grid?label=class{number:02}" for number in range(ANSWERS // 4)]
            show_many("grid of 24, thumbnails to be made", browser.times(grids), None)
            show_many("grid of 24, thumbnails kept", browser.times(grids), None)
            show_many("list of classes", browser.times(["/classes"] * ANSWERS), None)
            in_chromium(url)


def write_run(folder: Path) -> Path:
    """A dataset of photos' size, and suggestions for it."""
    random = np.random.default_rng(0)
    (folder / "images").mkdir()
    for number in range(IMAGES):
        file = folder / "images" / f"{number:05}.jpg"
        if number < DIFFERENT:
            blocks = random.integers(0, 256, (12, 16, 3), np.uint8)
            Image.fromarray(blocks).resize(SIZE, Image.Resampling.BICUBIC).save(file, quality=90)
        else:
            os.link(folder / "images" / f"{number % DIFFERENT:05}.jpg", file)
    classes = [f"class{number:02}" for number in range(CLASSES)]
    observed = random.integers(0, CLASSES, IMAGES)
    with (folder / "images" / "labels.csv").open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(["file", "split", *classes])
        for number, column in enumerate(observed):
            split = "validation" if number == 0 else "train"
            writer.writerow([f"{number:05}.jpg", split, *("1" if each == column else "" for each in range(CLASSES))])
    run = folder / "run"
    (run / "finding").mkdir(parents=True)
    config = build_config({"data": {"source": str(folder / "images" / "labels.csv")}})
    (run / "config.toml").write_text(to_toml(config))
    finished = RunFolder(run)
    finished.write_environment(data=prepare_task(config.data).table.fingerprint(), weights="", processes=1)
    finished.write_results(Results(method=config.method.name, best_epoch=1, selected_on="nothing", validation_map=0.5))
    cells = random.permutation((IMAGES - 1) * CLASSES) + CLASSES
    unknown = cells[observed[cells // CLASSES] != cells % CLASSES][:SUGGESTIONS]
    with (run / "finding" / "suggestions.csv").open("w", newline="") as text:
        writer = csv.writer(text)
        writer.writerow(["file", "label", "probability", "rank", "kind"])
        for rank, cell in enumerate(unknown.tolist()):
            probability = round(1 - rank / SUGGESTIONS, 6)
            writer.writerow([f"{cell // CLASSES:05}.jpg", classes[cell % CLASSES], probability, rank + 1, "missing"])
    np.save(run / "finding" / "maps.npy", random.integers(0, 256, (SUGGESTIONS, 7, 7), np.uint8))
    return run


@contextmanager
def serving(run: Path, *, cache: Path) -> Iterator[tuple[str, int]]:
    """The page's address, and the number of the process that serves it."""
    command = [sys.executable, "-c", "from onepair.cli.main import main; main()", "review", str(run), "--port", "0"]
    variables = {**os.environ, "XDG_CACHE_HOME": str(cache), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=variables)  # noqa: S603 (our own)
    assert process.stdout is not None
    try:
        text = ""
        while not (found := re.search(r"Open (http://\S+)/ ", text)):
            line = process.stdout.readline()
            assert line, text
            text += line
        yield found[1], process.pid
    finally:
        process.kill()
        process.wait()
        process.stdout.close()


class Browser:
    """Loads a page with its images over one connection, and answers questions."""

    def __init__(self, url: str, *, who: str = "") -> None:
        self.cookie = {"Cookie": f"onepair_name={quote(who)}"} if who else {}
        self.host = urlsplit(url).netloc
        self.connection = HTTPConnection(self.host)
        self.text = ""

    def visit(self, address: str) -> None:
        self.follow(self.send("GET", address))
        for image in re.findall(r'src="(/(?:image|thumbnail)/[^"]+)"', self.text):
            self.send("GET", image).read()

    def times(self, addresses: list[str]) -> list[float]:
        return [timed(partial(self.visit, address)) for address in addresses]

    def answer(self) -> None:
        """Say yes to the question of the page, and load the next page."""
        fields = [*self.fields('class="answers"'), ("answer", "yes")]
        self.visit(self.redirected(self.send("POST", "/answer", urlencode(fields))))

    def fields(self, mark: str) -> list[tuple[str, str]]:
        """What the form with a mark would send, but for what people choose."""
        form = self.text.split(mark)[1].split("</form>")[0]
        return [(name, unescape(value)) for name, value in re.findall(HIDDEN, form)]

    def send(self, method: str, address: str, body: str | None = None) -> HTTPResponse:
        kind = {"Content-Type": "application/x-www-form-urlencoded", "Origin": f"http://{self.host}"} if body else {}
        self.connection.request(method, address, body, {**kind, **self.cookie})
        return self.connection.getresponse()

    def follow(self, response: HTTPResponse) -> None:
        while response.status == 303:
            response = self.send("GET", self.redirected(response))
        assert response.status == 200, response.status
        self.text = response.read().decode()

    def redirected(self, response: HTTPResponse) -> str:
        response.read()
        assert response.status == 303, response.status
        return response.headers["Location"] or ""


def in_chromium(url: str) -> None:
    """From the key that answers to the next photo on the screen, in a real browser."""
    chromium = shutil.which("chromium")
    if chromium is None:
        print("no chromium here, so nothing was measured in a browser")
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as driver:
        window = driver.chromium.launch(executable_path=chromium, args=["--headless", "--no-sandbox", "--disable-gpu"])
        window.new_page().goto(url)  # the browser's own start is not counted
        page = window.new_page(viewport={"width": 1440, "height": 900})  # with an empty cache
        begun = time.perf_counter()
        page.goto(url)
        page.locator(".photo").evaluate("photo => photo.decode()")
        show("in chromium: first page and its image", time.perf_counter() - begun, 1.0)
        times = []
        for _ in range(ANSWERS):
            page.wait_for_timeout(200)  # somebody looks at the photo, and the next one is fetched
            times.append(page.evaluate(NEXT) / 1000)
        show_many("in chromium: from the key to the next photo", times, 0.1)
        window.close()


NEXT = """
async () => {
  const before = document.querySelector(".photo"), begun = performance.now();
  document.body.dispatchEvent(new KeyboardEvent("keydown", { key: "y", bubbles: true }));
  while (document.querySelector(".photo") === before) await new Promise((done) => setTimeout(done));
  await document.querySelector(".photo").decode();
  await new Promise((done) => requestAnimationFrame(done));
  return performance.now() - begun;
}
"""


def timed(call: Callable[[], None]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def show_many(what: str, times: list[float], aim: float | None) -> None:
    show(what, statistics.median(times), aim)
    print(f"{'the slowest of ' + str(len(times)):>46}  {1000 * max(times):7.0f} ms")


def show(what: str, seconds: float, aim: float | None) -> None:
    print(f"{what:<46}  {1000 * seconds:7.0f} ms{f'   aim {1000 * aim:.0f} ms' if aim else ''}", flush=True)


if __name__ == "__main__":
    main()
