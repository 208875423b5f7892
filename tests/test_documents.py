"""The Python in the documents runs, block after block, as a reader would type it."""

import re
import runpy
import shlex
from pathlib import Path

import pytest
import torch
import typer

from onepair.cli.main import app
from onepair.methods import METHODS

ROOT = Path(__file__).parent.parent
CODE = re.compile(r"^```python\n(.*?)^```", re.DOTALL | re.MULTILINE)
SHELL = re.compile(r"^```sh\n(.*?)^```", re.DOTALL | re.MULTILINE)
LINK = re.compile(r"\]\(([^)\s]+)\)")


def run_blocks(name):
    blocks = CODE.findall((ROOT / name).read_text("utf-8"))
    assert blocks, f"{name} shows no Python"
    namespace = {}
    for block in blocks:
        exec(compile(block, name, "exec"), namespace)  # noqa: S102 (our own documents)
    return namespace


def test_readme():
    names = run_blocks("README.md")
    assert names["single"].shape == (80, 20)
    assert names["table"].labels.shape == (4000, 10)
    assert len(names["table"].rows("train")) == 3000
    assert names["mean_average_precision"](names["scores"], names["labels"]) == (1.0, 2)


PAGES = sorted(str(page.relative_to(ROOT)) for page in ROOT.glob("docs/**/*.md"))


@pytest.mark.parametrize("name", [page for page in PAGES if CODE.search((ROOT / page).read_text("utf-8"))])
def test_python_of_the_site(name):
    before = set(METHODS)
    assert run_blocks(name)
    for added in set(METHODS) - before:  # a page may register its own
        METHODS._entries.pop(added)


PYTHON = re.compile(r"^[\s\"]*(?:from|import) (onepair\.[\w.]+)", re.MULTILINE)
SHALLOW = ("onepair.losses", "onepair.methods", "onepair.metrics", "onepair.hf", "onepair.lightning", "onepair.errors")


@pytest.mark.parametrize(
    "name", ["README.md", *PAGES, *(str(each.relative_to(ROOT)) for each in ROOT.glob("examples/*"))]
)
def test_documents_import_from_the_top(name):
    """But for losses, methods and metrics, whatever a reader needs is a name of `onepair` itself."""
    if (ROOT / name).is_file():
        deep = [each for each in PYTHON.findall((ROOT / name).read_text("utf-8")) if not each.startswith(SHALLOW)]
        assert not deep


COMMANDS = [
    (page, line)
    for page in ["README.md", *PAGES]
    for block in SHELL.findall((ROOT / page).read_text("utf-8").replace("\\\n", " "))
    for line in block.splitlines()
    if line.strip()
]


@pytest.mark.parametrize(("page", "line"), COMMANDS)
def test_commands_of_the_documents_exist(page, line):
    """Every option and every configuration that a command names is there; what it does is tested elsewhere."""
    program, *words = shlex.split(line)
    if program == "make":
        assert f"{words[0]}:" in (ROOT / "Makefile").read_text()
        return
    if program == "torchrun":
        words = words[words.index("onepair") + 1 :]
    else:
        assert program == "onepair", line
    command = typer.main.get_command(app)
    if words[0] == "--import":
        assert "--import" in {option for each in command.params for option in each.opts}
        words = words[2:]
    context = command.make_context("onepair", words[:1], resilient_parsing=True)
    chosen = command.get_command(context, words[0])
    assert chosen is not None, line
    chosen.make_context(words[0], words[1:])  # refuses an option that there is not


def anchors(page):
    """The headings of a page, as a link names them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text("utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


def leads_nowhere(page, target):
    path, _, anchor = target.partition("#")
    to = (page.parent / path).resolve() if path else page
    on_site = ROOT / "docs" in page.parents  # of which every link has to stay within it
    if not to.exists() or (on_site and ROOT / "docs" not in to.parents):
        return True
    return bool(anchor) and anchor not in anchors(to)


def test_links_and_pictures_of_the_documents_are_there():
    missing = [
        f"{page}: {target}"
        for page in [
            "README.md",
            "CONTRIBUTING.md",
            "CHANGELOG.md",
            "benchmarks/README.md",
            "results/README.md",
            *PAGES,
        ]
        for target in LINK.findall((ROOT / page).read_text("utf-8"))
        if not target.startswith("http") and leads_nowhere(ROOT / page, target)
    ]
    assert not missing


def test_the_page_of_all_settings_is_that_of_the_configuration():
    page = runpy.run_path(str(ROOT / "docs" / "settings_page.py"))["page"]
    assert (ROOT / "docs" / "settings.md").read_text("utf-8") == page(), "run docs/settings_page.py, as make docs does"


def test_simplest_loss_keeps_the_contract():
    hinge_loss = run_blocks("docs/how-to/new-loss.md")["hinge_loss"]
    logits = torch.tensor([[0.5, -2.0, 0.0]], requires_grad=True)
    value = hinge_loss(logits, torch.tensor([[1, 0, -1]]))
    assert value.item() == pytest.approx((0.5 + 0 + 1) / 3)
    with pytest.raises(ValueError, match="labels: row 0"):
        hinge_loss(logits, torch.tensor([[1, 0, 7]]))


NAMED = re.compile(r"\]\((src/onepair/\S+?\.py)\) `(\w+)`")


def test_contributing_names_what_its_modules_define():
    named = NAMED.findall((ROOT / "CONTRIBUTING.md").read_text("utf-8"))
    assert len(named) == 16
    for path, name in named:
        assert re.search(rf"^(def|class) {name}\b", (ROOT / path).read_text("utf-8"), re.MULTILINE), (path, name)
