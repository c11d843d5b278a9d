"""Sizes that depend on others, in the sympy notation of exported graphs, evaluated without sympy or eval."""

from __future__ import annotations

import ast
import math
from collections.abc import Callable, Mapping, Sequence

from vgpud.predict.graph import ELEMENTS_MAX, GraphError, label

_TEXT_MAX = 2000
_POWER_MAX = 16
#: operations within operations: whatever depth the process around us allows itself
_DEPTH_MAX = 200


def _floor_divided(values: Sequence[int]) -> int:
    return values[0] // values[1]


def _raise_to_power(values: Sequence[int]) -> int:
    base, power = values
    if not 0 <= power <= _POWER_MAX:
        raise GraphError(f"a size is raised to the power of {power}")
    return int(base**power)


_FUNCTIONS: dict[str, Callable[[Sequence[int]], int]] = {
    "Add": sum,
    "Mul": math.prod,
    "Pow": _raise_to_power,
    "PowByNatural": _raise_to_power,
    "FloorDiv": _floor_divided,
    "CleanDiv": _floor_divided,
    "IntTrueDiv": _floor_divided,
    "Mod": lambda values: values[0] % values[1],
    "PythonMod": lambda values: values[0] % values[1],
    "Max": max,
    "Min": min,
    "Integer": sum,
    "CeilToInt": sum,
    "FloorToInt": sum,
    "TruncToInt": sum,
}
_OPERATORS: dict[type[ast.operator], str] = {
    ast.Add: "Add",
    ast.Mult: "Mul",
    ast.FloorDiv: "FloorDiv",
    ast.Pow: "Pow",
    ast.Mod: "Mod",
}


def parse(expression: str) -> ast.expr:
    """The expression's tree. Raises GraphError."""
    if len(expression) > _TEXT_MAX:
        raise GraphError(f"a size is an expression of {len(expression)} characters, at most {_TEXT_MAX} are allowed")
    try:
        return ast.parse(expression, mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise GraphError(f"a size is written as {label(expression)}, which is not an expression") from error


def symbols(expression: str) -> set[str]:
    """The names in an expression that have no value of their own."""
    tree = parse(expression)
    functions = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    keywords = {id(word.value) for node in ast.walk(tree) if isinstance(node, ast.Call) for word in node.keywords}
    found = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and id(n) not in functions | keywords}
    return found | {_symbol(node) for node in ast.walk(tree) if _is_symbol(node)}


def evaluate(expression: str, values: Mapping[str, int]) -> int:
    """Its value. Raises GraphError for what is no little arithmetic; KeyError names a symbol without a value."""
    try:
        return _value(parse(expression), values)
    except (ZeroDivisionError, TypeError, IndexError, ValueError, RecursionError) as error:
        raise GraphError(f"a size is written as {label(expression)}, which has no value") from error


def _value(node: ast.expr, values: Mapping[str, int], depth: int = 0) -> int:
    if depth > _DEPTH_MAX:
        raise GraphError(f"a size is written with operations nested more than {_DEPTH_MAX} deep")
    below = depth + 1
    if isinstance(node, ast.Constant) and type(node.value) is int:
        found = node.value
    elif isinstance(node, ast.Name):
        found = values[node.id]
    elif _is_symbol(node):
        found = values[_symbol(node)]
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        found = -_value(node.operand, values, below)
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub):
        found = _value(node.left, values, below) - _value(node.right, values, below)
    elif isinstance(node, ast.BinOp) and type(node.op) in _OPERATORS:
        pair = [_value(node.left, values, below), _value(node.right, values, below)]
        found = _FUNCTIONS[_OPERATORS[type(node.op)]](pair)
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in _FUNCTIONS:
        found = _FUNCTIONS[node.func.id]([_value(child, values, below) for child in node.args])
    else:
        raise GraphError(f"a size is written with {label(ast.unparse(node))}, which is not supported")
    if abs(found) > ELEMENTS_MAX:
        raise GraphError(f"a size is {label(found)}, which is impossible")
    return found


def _is_symbol(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Name)
        and node.func.id == "Symbol"
        and bool(node.args)
        and isinstance(node.args[0], ast.Constant)
        and isinstance(node.args[0].value, str)
    )


def _symbol(node: ast.AST) -> str:
    assert isinstance(node, ast.Call) and isinstance(node.args[0], ast.Constant)
    return str(node.args[0].value)
