"""What may be changed in a file of code, one place at a time, by its syntax."""

import ast
import copy
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

SOURCE = Path(__file__).parents[2] / "src"

SWAPPED: dict[type[ast.AST], type[ast.AST]] = {
    **{ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq},
    **{ast.In: ast.NotIn, ast.NotIn: ast.In, ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.And: ast.Or, ast.Or: ast.And},
    **{ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div},
    **{ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd, ast.BitXor: ast.BitAnd},
    **{ast.Break: ast.Continue, ast.Continue: ast.Break},
}


class Change(NamedTuple):
    """One place of a file, and what stands there instead."""

    file: Path
    place: int  # of the node, in the order of a walk over the file
    variant: int
    function: int | None  # the line at which the function begins that it is in
    said: str


def changes(file: Path) -> Iterator[Change]:
    """All changes of a file: operators, conditions, constants, options and calls that are left out."""
    tree = ast.parse(file.read_text("utf-8"))
    functions, left_out = _functions(tree), _left_out(tree)
    imported = _imported(tree)
    for place, node in enumerate(ast.walk(tree)):
        if id(node) in left_out:
            continue
        for variant, other in enumerate(variants(node, imported)):
            line = getattr(node, "lineno", 0)
            said = f"{file.relative_to(SOURCE)}:{line}: {_shown(node)} → {_shown(other)}"
            yield Change(file, place, variant, functions.get(id(node)), said)


def variants(node: ast.AST, imported: set[str]) -> list[ast.AST]:
    """What may stand in place of a node."""
    match node:
        case (
            ast.Compare(ops=[operator, *_])
            | ast.BinOp(op=operator)
            | ast.AugAssign(op=operator)
            | ast.BoolOp(op=operator)
        ):
            swapped = SWAPPED.get(type(operator))
            if swapped is None:
                return []
            other = copy.deepcopy(node)
            if isinstance(other, ast.Compare):
                other.ops[0] = swapped()
            else:
                other.op = swapped()
            return [other]
        case ast.Break() | ast.Continue():
            return [SWAPPED[type(node)]()]
        case ast.UnaryOp():
            return [node.operand]
        case ast.If() | ast.While() | ast.IfExp():
            other = copy.deepcopy(node)
            other.test = ast.UnaryOp(ast.Not(), other.test)
            return [other]
        case ast.Constant(value=bool(value)):
            return [ast.Constant(not value)]
        case ast.Constant(value=int(value) | float(value)):
            return [ast.Constant(value + 1)]
        case ast.Constant(value=str(value)):
            return [ast.Constant(f"XX{value}XX")]
        case ast.Call():
            without: list[ast.AST] = []
            for number in range(len(node.keywords)):
                other = copy.deepcopy(node)
                del other.keywords[number]
                without.append(other)
            if isinstance(node.func, ast.Attribute) and not _is_imported(node.func.value, imported):
                without.append(node.func.value)  # as x for x.abs()
            return without
    return []


def _imported(tree: ast.Module) -> set[str]:
    """The names of modules, and of what comes from them."""
    imports = [node for node in ast.walk(tree) if isinstance(node, ast.Import | ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def _is_imported(node: ast.AST, imported: set[str]) -> bool:
    while isinstance(node, ast.Attribute):
        node = node.value
    return isinstance(node, ast.Name) and node.id in imported


def _left_out(tree: ast.Module) -> set[int]:
    """The nodes that say nothing of what is computed: types, documentation, and the words of sentences."""
    roots: list[ast.AST | None] = []
    for node in ast.walk(tree):
        match node:
            case ast.FunctionDef():
                roots.append(node.returns)
            case ast.arg() | ast.AnnAssign():
                roots.append(node.annotation)
            case ast.Expr(value=ast.Constant()) | ast.JoinedStr() | ast.Raise():
                roots.append(node)
            case ast.Assign(targets=[ast.Name(id=name)]) if name.startswith("__"):
                roots.append(node)
            case ast.Subscript(value=ast.Name(id="Literal" | "Annotated" | "Callable" | "NDArray")):
                roots.append(node)
            case ast.Call(func=ast.Name(id="cast" | "TypeVar" | "NewType")):
                roots.append(node)
    return {id(child) for root in roots if root is not None for child in ast.walk(root)}


def _functions(tree: ast.Module) -> dict[int, int]:
    """By node: the first line of the innermost function whose body it is in."""
    found: dict[int, int] = {}
    for node in ast.walk(tree):  # outer ones first
        if isinstance(node, ast.FunctionDef):
            first = min([node.lineno, *(decorator.lineno for decorator in node.decorator_list)])
            found |= {id(child): first for statement in node.body for child in ast.walk(statement)}
    return found


def _shown(node: ast.AST) -> str:
    if isinstance(node, ast.If | ast.While):
        return f"{type(node).__name__.lower()} {ast.unparse(node.test)}"
    return ast.unparse(ast.fix_missing_locations(copy.deepcopy(node)))


def changed_tree(change: Change) -> ast.Module:
    tree = ast.parse(change.file.read_text("utf-8"))
    target = next(node for place, node in enumerate(ast.walk(tree)) if place == change.place)
    other = variants(target, _imported(tree))[change.variant]

    class Exchange(ast.NodeTransformer):
        def visit(self, node: ast.AST) -> Any:
            return ast.copy_location(other, node) if node is target else self.generic_visit(node)

    return ast.fix_missing_locations(Exchange().visit(tree))
