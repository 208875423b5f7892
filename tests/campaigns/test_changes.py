"""The changes that the campaign of mutants makes: each is another program, and in what is computed."""

import ast

import pytest

from tests.campaigns.changes import SOURCE, changed_tree, changes

FILE = SOURCE / "onepair" / "numerics.py"


def test_every_change_is_another_program():
    whole = ast.parse(FILE.read_text())
    found = list(changes(FILE))
    trees = {ast.dump(changed_tree(change)) for change in found}
    assert len(trees) == len(found) > 10
    assert ast.dump(whole) not in trees
    for change in found:
        compile(changed_tree(change), str(FILE), "exec")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        ("a < b", ["a <= b"]),
        ("a and not b", ["a or not b", "b"]),
        ("a + 1", ["a - 1", "2"]),
        ("x.sum(axis=0)", ["x.sum()", "x", "1"]),
        ("math.log(x)", []),
        ("def f(a: 'int' = 3) -> 'int':\n    '''A docstring.'''\n    raise ValueError('no')", ["4"]),
    ],
)
def test_what_is_changed(tmp_path, monkeypatch, code, expected):
    monkeypatch.setattr("tests.campaigns.changes.SOURCE", tmp_path)
    (tmp_path / "some.py").write_text(f"import math\n{code}\n")
    assert [change.said.partition(" → ")[2] for change in changes(tmp_path / "some.py")] == expected
