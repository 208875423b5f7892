"""The order of the rooms: a module imports only from its own room and from those before it."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
SOURCE = ROOT / "src" / "onepair"
ALWAYS = {"__init__", "__main__"}  # the package's own names, and its command


def stated_order() -> list[set[str]]:
    """The order as CONTRIBUTING.md states it; rooms that stand side by side are joined by commas."""
    text = (ROOT / "CONTRIBUTING.md").read_text("utf-8")
    stated = re.search(r"A module may import only from .*?`([^`]*→[^`]*)`", text, re.DOTALL)
    assert stated, "CONTRIBUTING.md states no order of rooms"
    return [set(re.findall(r"\w+", step)) for step in stated[1].split("→")]


ORDER = stated_order()
PLACE = {room: place for place, rooms in enumerate(ORDER) for room in rooms}
# Side by side at the beginning, where modules may import each other, and nowhere else.
ROOT_MODULES = ORDER[0]


def room_of(file: Path) -> str:
    return file.relative_to(SOURCE).parts[0].removesuffix(".py")


def imports(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """The modules of ours that a module imports, wherever it does so, but not those for its types alone."""
    for_types = {
        id(child)
        for node in ast.walk(tree)
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING")
        for child in ast.walk(node)
    }
    for node in ast.walk(tree):
        if id(node) in for_types:
            continue
        if isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative import"
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        yield from ((node.lineno, name) for name in names if name.partition(".")[0] == "onepair")


def allowed(importer: str, imported: str) -> bool:
    if importer == imported or importer in ALWAYS or imported in ("__version__",):
        return True
    if importer in ROOT_MODULES and imported in ROOT_MODULES:
        return True
    return imported in PLACE and PLACE[imported] < PLACE[importer]


def test_every_module_and_folder_is_a_room():
    rooms = {room_of(file) for file in SOURCE.rglob("*.py")} - ALWAYS
    assert rooms == set(PLACE)


@pytest.mark.parametrize("file", sorted(SOURCE.rglob("*.py")), ids=lambda file: str(file.relative_to(SOURCE)))
def test_a_module_imports_only_from_rooms_before_its_own(file):
    wrong = [
        f"{file.relative_to(ROOT)}:{line} imports {name}"
        for line, name in imports(ast.parse(file.read_text("utf-8")))
        if not allowed(room_of(file), name.split(".")[1])
    ]
    assert not wrong


def test_the_rule_refuses_what_it_should():
    tree = ast.parse("def f():\n    from onepair.cli import main\nif TYPE_CHECKING:\n    import onepair.training.run\n")
    assert list(imports(tree)) == [(2, "onepair.cli.main")]
    assert allowed("training", "runs")
    assert not allowed("runs", "training")
    assert not allowed("review", "experiments")
    assert allowed("linear", "probability")
    assert not allowed("probability", "linear")


def test_no_two_modules_have_one_name():
    files = [file for file in SOURCE.rglob("*.py") if room_of(file) != "cli" and file.stem not in ALWAYS]
    assert not [name for name, count in Counter(file.name for file in files).items() if count > 1]
