"""A torch.export program (*.pt2) read as data: one JSON document of its zip archive, and nothing else of it.

torch.export.load may unpickle weights and constants, which runs code; the graph with all shapes is plain JSON
(models/model.json; the PT2 Archive Spec of PyTorch), so weights are never opened and torch is not needed.
"""

from __future__ import annotations

import json
import os
import zipfile
import zlib
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from vgpud.predict import graph_sizes, torch_ops
from vgpud.predict.graph import Graph, GraphError, Role, Tensor, label, refuse_unused

#: of the graph's document, unpacked; some thousand operations are a few MB
JSON_BYTES_MAX = 96 << 20
MEMBERS_MAX = 100_000
#: what the writer of torch < 2.8 called it
_OLD = "serialized_exported_program.json"
#: ScalarType of the serialized schema
_DTYPES = {
    1: "int8", 2: "int8", 3: "int16", 4: "int32", 5: "int64", 6: "float16", 7: "float32", 8: "float64", 9: "complex64",
    10: "complex64", 11: "complex128", 12: "bool", 13: "bfloat16", 28: "int16", 29: "float8", 30: "float8",
    31: "float8", 32: "float8", 33: "float8", 34: "int32", 35: "int64",
}  # fmt: skip


def read(path: Path, batch: int, dims: Mapping[str, int]) -> Graph:
    """The program's graph, with `batch` examples where its first dimension is free. Raises GraphError."""
    document = _document(path)
    try:
        module = document["graph_module"]
        return _Reader(path.name, module, batch, dims).read()
    except (KeyError, TypeError, AttributeError, IndexError, ValueError, OverflowError, RecursionError) as error:
        what = f"{type(error).__name__}: {label(str(error))}"
        raise GraphError(f"{path.name} is not a program of torch.export in a known format ({what})") from error


def _document(path: Path) -> Any:
    try:
        with zipfile.ZipFile(path) as archive:
            found = archive.infolist()
            if len(found) > MEMBERS_MAX:
                raise GraphError(f"{path.name} has {len(found)} members, over {MEMBERS_MAX}: is it the right file?")
            text = _member(path, archive, found)
    except (zipfile.BadZipFile, zlib.error, EOFError, RuntimeError) as error:
        raise GraphError(f"{path.name} is not a program of torch.export: {label(str(error))}") from error
    except OSError as error:
        raise GraphError(f"cannot read {path}: {error.strerror or error}") from error
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise GraphError(f"{path.name} has a graph that is not JSON: {label(str(error))}") from error


def _member(path: Path, archive: zipfile.ZipFile, members: list[zipfile.ZipInfo]) -> bytes:
    """The graph's document. Only so much is unpacked as is allowed, whatever the header says."""
    models = [m for m in members if m.filename.split("/")[-2:-1] == ["models"] and m.filename.endswith(".json")]
    models = models or [m for m in members if os.path.basename(m.filename) == _OLD]
    if not models:
        compiled = any("/aotinductor/" in m.filename for m in members)
        why = "it is compiled (AOTInductor) and has no graph" if compiled else "it has no models/model.json"
        raise GraphError(f"{path.name} is not a program of torch.export: {why}; write one with torch.export.save")
    if len(models) > 1:
        names = ", ".join(label(os.path.basename(m.filename)) for m in models[:4])
        raise GraphError(f"{path.name} has {len(models)} programs ({names}): save only the one that is trained")
    with archive.open(models[0]) as member:
        text = member.read(JSON_BYTES_MAX + 1)
    if len(text) > JSON_BYTES_MAX:
        raise GraphError(
            f"{path.name} has a graph of more than {JSON_BYTES_MAX >> 20} MiB: predict a part of the model"
        )
    return text


class _Reader:
    """One program: sizes first, then tensors, then operations."""

    def __init__(self, name: str, module: Mapping[str, Any], batch: int, dims: Mapping[str, int]) -> None:
        self.name = name
        self.graph = module["graph"]
        self.signature = module["signature"]
        self.batch = batch
        self.dims = dims
        self.sizes: dict[str, int] = dict(dims)
        self.metas: Mapping[str, Any] = self.graph["tensor_values"]

    def read(self) -> Graph:
        roles = dict(self._roles())
        inputs = [name for name, role in roles.items() if role is Role.INPUT and name in self.metas]
        if self.dims:
            refuse_unused(self.name, set(self.dims) - self._open())
        made = Graph(self._batch(inputs))
        for name, role in roles.items():
            if name in self.metas:
                made.tensor(name, self._tensor(name, role))
        for node in self.graph["nodes"]:
            self._node(made, node)
        return made

    def _roles(self) -> Iterator[tuple[str, Role]]:
        for spec in self.signature["input_specs"]:
            ((what, body),) = spec.items()
            arg = body.get("arg") or {}
            if what == "parameter":
                yield arg["name"], Role.PARAMETER
            elif what in ("buffer", "tensor_constant"):
                yield arg["name"], Role.BUFFER
            elif what == "user_input":
                for name in _tensor_names(arg):
                    yield name, Role.INPUT

    def _open(self) -> set[str]:
        """Every size that the program leaves open."""
        sizes = [size for meta in self.metas.values() for size in meta["sizes"] if "as_expr" in size]
        return {symbol for size in sizes for symbol in graph_sizes.symbols(size["as_expr"]["expr_str"])}

    def _batch(self, inputs: list[str]) -> int:
        """How many examples the shapes are of, after giving every free size its value."""
        first = [self.metas[name]["sizes"][0] for name in inputs if self.metas[name]["sizes"]]
        if not first:
            raise GraphError(f"{self.name} has no input with a batch dimension: export it with example inputs")
        free = next((size["as_expr"]["expr_str"] for size in first if "as_expr" in size), None)
        if free is not None:
            for symbol in graph_sizes.symbols(free):
                self.sizes.setdefault(symbol, self.batch)
        for name in inputs:
            for index, size in enumerate(self.metas[name]["sizes"]):
                self._settle(name, index, size)
        return max(1, self._size(first[0]))

    def _settle(self, name: str, index: int, size: Mapping[str, Any]) -> None:
        """Refuses a size that was not given, naming its dimension."""
        if "as_expr" not in size:
            return
        missing = sorted(graph_sizes.symbols(size["as_expr"]["expr_str"]) - set(self.sizes))
        if missing:
            where = f"dimension {index} of input {label(name)}"
            raise GraphError(f"{where} is dynamic: give it with --dim {missing[0]}=N")

    def _size(self, size: Mapping[str, Any]) -> int:
        if "as_int" in size:
            return _require_integer(size["as_int"])
        expression = size["as_expr"]["expr_str"]
        try:
            return graph_sizes.evaluate(expression, self.sizes)
        except KeyError as error:
            hint = (size["as_expr"].get("hint") or {}).get("as_int")
            if hint is None:
                raise GraphError(
                    f"a size depends on data ({label(expression)}): give --dim {error.args[0]}=N"
                ) from error
            return _require_integer(hint)

    def _tensor(self, name: str, role: Role) -> Tensor:
        meta = self.metas[name]
        dtype = _DTYPES.get(meta["dtype"])
        if dtype is None:
            raise GraphError(f"tensor {label(name)} is of a type ({label(meta['dtype'])}) that is not known")
        floating = dtype.startswith(("float", "bfloat"))
        if role is Role.PARAMETER and not (meta.get("requires_grad", True) and floating):
            role = Role.BUFFER  # frozen: no gradient, no state of the optimizer
        return Tensor(tuple(self._size(size) for size in meta["sizes"]), dtype, role)

    def _node(self, model_graph: Graph, node: Mapping[str, Any]) -> None:
        inputs = [name for given in node["inputs"] for name in _tensor_names(given["arg"])]
        outputs = [name for given in node["outputs"] for name in _tensor_names(given)]
        for name in outputs:
            model_graph.tensor(name, self._tensor(name, Role.VALUE))
        unknown = next((name for name in inputs if name not in model_graph.tensors), None)
        if unknown is not None:
            raise GraphError(f"{self.name} uses tensor {label(unknown)}, which no operation makes")
        torch_ops.add(model_graph, str(node["target"]), inputs, outputs)


def _require_integer(number: object) -> int:
    if type(number) is not int:
        raise GraphError(f"a size is {label(number)}, not a whole number")
    return number


def _tensor_names(arg: Mapping[str, Any]) -> Iterator[str]:
    """Of an argument, one of a union of types; subgraphs and scalars have none."""
    for kind, body in arg.items():
        if kind == "as_tensor":
            yield body["name"]
        elif kind == "as_tensors":
            yield from (one["name"] for one in body)
        elif kind == "as_nested_tensors":
            yield from (one["name"] for row in body for one in row)
        elif kind == "as_optional_tensor":
            yield from _tensor_names(body)
        elif kind == "as_optional_tensors":
            for one in body:
                yield from _tensor_names(one)
