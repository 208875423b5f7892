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


def anchors(text):
    """The headings of a page, as a link names them."""
    headings = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    return {re.sub(r"[^\w\s-]", "", heading).strip().lower().replace(" ", "-") for heading in headings}


GENERATED = runpy.run_path(str(ROOT / "docs" / "pages.py"))["generated_pages"]()  # which the site has beside its files


def leads_nowhere(page, target):
    path, _, anchor = target.partition("#")
    to = (page.parent / path).resolve() if path else page
    docs = ROOT / "docs"
    made = GENERATED.get(to.relative_to(docs).as_posix()) if docs in to.parents else None
    if made is None and (not to.exists() or (docs in page.parents and docs not in to.parents)):
        return True  # what is on the site has to stay within it
    return bool(anchor) and anchor not in anchors(made or to.read_text("utf-8"))


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


def test_generated_pages_lead_somewhere():
    wrong = [
        f"{name}: {target}"
        for name, text in GENERATED.items()
        for target in LINK.findall(text)
        if not target.startswith("http") and leads_nowhere(ROOT / "docs" / name, target)
    ]
    assert not wrong


def test_every_command_has_a_page_in_one_group():
    commands = {name.rpartition("/")[2] for name in GENERATED if name.startswith("reference/commands/")} - {"index.md"}
    listed = re.findall(r"\]\(([\w-]+\.md)\)", GENERATED["reference/commands/index.md"])
    assert sorted(listed) == sorted(commands)
    assert {"start.md", "find.md", "answers-export.md"} <= commands
    assert "--min-probability" in GENERATED["reference/commands/find.md"]
    assert "`linear.penalty`" in GENERATED["reference/settings.md"]
    assert all(f"| `{name}` |" in GENERATED["reference/methods.md"] for name in METHODS)


def test_formulas_become_mathml_outside_code():
    convert = runpy.run_path(str(ROOT / "docs" / "pages.py"))["on_page_markdown"]
    text = convert("so $x^2$ and `$y$`\n\n```sh\necho $a $b\n```\n\n$$\\sum x$$\n")
    assert text.count("<math") == 2
    assert "`$y$`" in text
    assert "echo $a $b" in text


# Style: what CONTRIBUTING.md asks of documents, as far as a program can tell.

PROSE = ["README.md", "CONTRIBUTING.md", *PAGES]
LONGEST, MOST_NUMBERS, MOST_WORDS = 25, 2, 20_000
NO_QUANTITY = re.compile(r"(?<![\w.])-?[01](?![\w.]\w)|\b(19|20)\d\d\b|\bResNet-50\b")  # label values, years, names
REFUSED = {
    "history": r"\b(earlier (form|version)|first attempt|since then|no longer|formerly)\b",
    "a bare as": r", as (of|in) \w",
    "per image": r"\b(labels?|positives?|answers?|seconds|times) an (image|row)\b",
    "words of ours": r"\b(held weights|seconds that passed|wishes)\b",
}


def sentences(text):
    """The sentences of a page, without code, tables, headings and the targets of links."""
    text = re.sub(r"^ *```.*?^ *```|<!--.*?-->|\$\$.*?\$\$", "\n\n", text, flags=re.DOTALL | re.MULTILINE)
    text = re.sub(r"^ *(\||#|!!!|:::|<).*$", "\n", text, flags=re.MULTILINE)
    text = re.sub(r"`[^`]+`|\$[^$\n]+\$", "code", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    text = re.sub(r"^\s*([-*]|\d+\.) ", "\n\n", text, flags=re.MULTILINE)
    for paragraph in re.split(r"\n\s*\n", text):
        yield from re.split(r"(?<=[.!?:;])\s+", " ".join(paragraph.replace("*", "").split()))


@pytest.mark.parametrize("name", PROSE)
def test_sentences_are_short_and_say_one_thing(name):
    wrong = []
    for sentence in sentences((ROOT / name).read_text("utf-8")):
        words = [word for word in sentence.split() if re.search(r"\w", word)]
        numbers = re.findall(r"(?<![\w.-])\d[\d,.]*", NO_QUANTITY.sub("", sentence))
        refused = [why for why, pattern in REFUSED.items() if re.search(pattern, sentence, re.IGNORECASE)]
        if (
            len(words) > LONGEST
            or len(numbers) > MOST_NUMBERS
            or refused
            or re.match(r"(What|Which|That which)\b[^?]*$", sentence)
        ):
            wrong.append((len(words), numbers, refused, sentence))
    assert not wrong


def test_how_to_pages_have_a_goal_what_you_see_and_what_is_next():
    for page in sorted(ROOT.glob("docs/how-to/*.md")):
        text = page.read_text("utf-8")
        assert text.split("\n", 2)[2].startswith("Goal: "), page
        assert re.search(r"^(You|\d\. .*You) see", text, re.MULTILINE), page
        assert text.rstrip().rpartition("\n")[2].startswith("Next: "), page
        assert text.count("!!! ") <= 1, page


def test_documents_stay_short():
    assert len((ROOT / "README.md").read_text("utf-8").splitlines()) <= 120
    assert sum(len((ROOT / name).read_text("utf-8").split()) for name in PROSE) <= MOST_WORDS


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
