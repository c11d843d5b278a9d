"""Whether `module:function` can be there, before PyTorch is imported, which takes seconds. Nothing of it is run."""

from __future__ import annotations

import ast
import importlib.util
from pathlib import Path

from vgpud.predict.graph import GraphError, label
from vgpud.predict.names import list_files, suggest

#: what can bind a name that is not written as one
_UNSEEN_BINDERS = {"__getattr__", "globals", "vars", "setattr", "exec", "eval"}
_SOURCE_BYTES_MAX = 1 << 20


def check_entry_point(entry: str) -> None:
    """Refuses a module that does not exist, and a function that its source never names. Raises GraphError."""
    module, _, attribute = entry.partition(":")
    package, _, inner_module = module.partition(".")
    try:
        spec = importlib.util.find_spec(package)
    except ValueError:  # a module that was loaded without one
        return
    if spec is None:
        modules = [name.removesuffix(".py") for name in list_files(Path()) if name.endswith(".py")]
        near = suggest(package, modules, suffix=entry[len(package) :])
        raise GraphError(f"{label(entry)}: there is no module {label(package)}{near}")
    if inner_module or spec.submodule_search_locations is not None or not (spec.origin or "").endswith(".py"):
        return  # only its import can tell
    name = attribute.partition(".")[0]
    functions = _list_functions(Path(spec.origin or ""), name)
    if functions is not None:
        near = suggest(name, functions, prefix=f"{module}:")
        raise GraphError(f"{label(entry)}: module {label(module)} has no {label(name)}{near}")


def _list_functions(source: Path, name: str) -> list[str] | None:
    """The functions of a source that never binds `name`, for a suggestion; None: it does or may, or cannot be read."""
    try:
        if source.stat().st_size > _SOURCE_BYTES_MAX:
            return None
        tree = ast.parse(source.read_bytes())
    except (OSError, ValueError, SyntaxError, RecursionError, MemoryError):
        return None  # its import says what is wrong
    nodes = list(ast.walk(tree))
    names = {bound for node in nodes for bound in _list_bound_names(node)}
    if names & {name, "*", *_UNSEEN_BINDERS} or any(_is_module_object(node) for node in nodes):
        return None
    return [node.name for node in tree.body if isinstance(node, ast.FunctionDef)]


def _list_bound_names(node: ast.AST) -> tuple[str, ...]:
    """Also names that are only used: more is never wrong here."""
    if isinstance(node, ast.Name):
        return (node.id,)
    if isinstance(node, ast.alias):
        return (node.asname or node.name.partition(".")[0],)
    name = getattr(node, "name", None) or getattr(node, "rest", None)  # definitions; patterns of `match`
    return (name,) if isinstance(name, str) else ()


def _is_module_object(node: ast.AST) -> bool:
    """`sys.modules[...]`, `module.__dict__`: a module reached as an object."""
    return isinstance(node, ast.Attribute) and node.attr in {"modules", "__dict__", "__setattr__"}
