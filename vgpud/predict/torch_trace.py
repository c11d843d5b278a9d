"""A Python entry point traced with fake tensors: shapes flow through the model, numbers do not, no device is touched.

Only ever imported in the child process that graph_reading starts: the function is the user's own code.
"""

from __future__ import annotations

import functools
import importlib
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch._subclasses.fake_tensor import DataDependentOutputException, FakeTensorMode
from torch.nn import functional
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from vgpud.predict import torch_ops
from vgpud.predict.graph import ITEM_BYTES, Graph, GraphError, Role, Tensor, label
from vgpud.predict.names import suggest


def trace(entry: str, batch: int, training: bool) -> Graph:
    """The forward pass of what `module:function` returns for a batch. Raises GraphError."""
    function = load_function(entry)
    made = Graph(batch)
    with FakeTensorMode(allow_non_fake_inputs=True) as fake:
        try:
            with _Numbers():
                answer = function(batch)
            model, args, kwargs = split_answer(entry, answer, batch)
            model.train(training)
            args, kwargs = pytree.tree_map_only(torch.Tensor, _make_fake_converter(fake), (args, kwargs))
            made.batch = _batch(
                entry, answer, [t.shape for t in pytree.tree_leaves((args, kwargs)) if _is_tensor(t)], batch
            )
            recorder = _Recorder(made, model, (args, kwargs))
            with recorder, _Wholes(recorder):
                model(*args, **kwargs)
        except GraphError:
            raise
        except (Exception, SystemExit) as error:
            raise GraphError(f"{entry}({batch}) cannot be traced: {describe_error(error)}") from error
    return made


def load_function(entry: str) -> Any:
    module_name, _, attribute = entry.partition(":")
    found: Any = None
    name = ""
    try:
        found = importlib.import_module(module_name)
        for name in attribute.split("."):
            found = getattr(found, name)
    except (Exception, SystemExit) as error:
        near = suggest(name, dir(found)) if isinstance(error, AttributeError) and found is not None else ""
        raise GraphError(f"entry point {entry} cannot be loaded: {describe_error(error)}{near}") from error
    if not callable(found):
        raise GraphError(f"entry point {entry} is not a function of the batch that returns (model, inputs)")
    return found


def describe_error(error: BaseException) -> str:
    """An error of the user's code as part of a line, with the remedy if it is known."""
    text = " ".join(str(error).split())[:240]
    if "cuda" in text.lower() or "NVIDIA" in text:
        return f"{text}; it is traced without a GPU: leave .cuda() and device= to the training program"
    return f"{type(error).__name__}: {text}"


def split_answer(entry: str, answer: object, batch: int) -> tuple[torch.nn.Module, Sequence[Any], Mapping[str, Any]]:
    """Model and inputs of an answer: (model, tensor | tuple | dict), or a model that has example_input_array."""
    if isinstance(answer, torch.nn.Module):
        inputs = getattr(answer, "example_input_array", None)
        if inputs is None:
            raise GraphError(f"{entry} returns a model without inputs: let it return (model, example inputs)")
        answer = (answer, inputs)
    if not isinstance(answer, tuple) or len(answer) != 2 or not isinstance(answer[0], torch.nn.Module):
        raise GraphError(
            f"{entry}({batch}) returns {label(type(answer).__name__)}: let it return (model, example inputs)"
        )
    model, inputs = answer
    if isinstance(inputs, Mapping):
        return model, (), inputs
    return model, tuple(inputs) if isinstance(inputs, tuple | list) else (inputs,), {}


def _is_tensor(leaf: object) -> bool:
    return isinstance(leaf, torch.Tensor) and leaf.dim() > 0


def _batch(entry: str, answer: object, shapes: Sequence[Sequence[int]], batch: int) -> int:
    """How many examples the inputs are of: a model's own of whatever they are, others of as many as were asked for.

    Several examples may lie in one dimension, and time may come before the batch.
    """
    if isinstance(answer, torch.nn.Module):
        return shapes[0][0] if shapes else batch
    if shapes and not any(shape[0] % batch == 0 or (len(shape) > 2 and shape[1] == batch) for shape in shapes):
        raise GraphError(f"{entry}({batch}) returns inputs of another batch size: create them for the batch it gets")
    return batch


def _make_fake_converter(fake: FakeTensorMode) -> Any:
    return lambda tensor: tensor if hasattr(tensor, "fake_mode") else fake.from_tensor(tensor)


class _Numbers(TorchDispatchMode):  # type: ignore[misc]  # torch is not typed here
    """While a model is made: a number that is taken out of a tensor is 0, as tensors have none (rates of dropping)."""

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except DataDependentOutputException:
            if func is not torch.ops.aten._local_scalar_dense.default:
                raise
            return 0.0 if args[0].is_floating_point() else 0


#: one kernel, or one library's call, on a device; on the CPU they fall apart into many operations
_WHOLES = {"lstm", "gru", "rnn_tanh", "rnn_relu", "scaled_dot_product_attention", "dropout", "dropout_"}
_REPLACED = ("scaled_dot_product_attention", "dropout")


class _Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Writes down each operation that the model asks for. Tensors are kept, so that no id is given twice."""

    def __init__(self, model_graph: Graph, model: torch.nn.Module, inputs: object) -> None:
        super().__init__()
        self.model_graph = model_graph
        self.names: dict[int, str] = {}
        self.kept_tensors: list[torch.Tensor] = []
        self.silent = False  # within an operation that is written down as a whole
        for name, tensor in model.named_parameters():
            self._name(tensor, name, Role.PARAMETER if tensor.requires_grad else Role.BUFFER)
        for name, tensor in model.named_buffers():
            self._name(tensor, name, Role.BUFFER)
        for index, leaf in enumerate(pytree.tree_leaves(inputs)):
            if isinstance(leaf, torch.Tensor):
                self._name(leaf, f"input.{index}", Role.INPUT)

    def _name(self, tensor: torch.Tensor, name: str, role: Role) -> str:
        dtype = str(tensor.dtype).removeprefix("torch.")
        dtype = dtype if dtype in ITEM_BYTES else dtype.lstrip("u") if dtype.lstrip("u") in ITEM_BYTES else "int64"
        self.model_graph.tensor(name, Tensor(tuple(int(size) for size in tensor.shape), dtype, role))
        self.names[id(tensor)] = name
        self.kept_tensors.append(tensor)
        return name

    def _find_name(self, tensor: torch.Tensor) -> str:
        """Its name; one that nothing made is a constant of the model's."""
        return self.names.get(id(tensor)) or self._name(tensor, f"constant.{len(self.kept_tensors)}", Role.BUFFER)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        answer = func(*args, **(kwargs or {}))
        if not self.silent:
            self.write(str(func), (args, kwargs), answer)
        return answer

    def write(self, target: str, arguments: object, answer: object) -> None:
        """An operation with what went in and what came out."""
        inputs = [self._find_name(t) for t in pytree.tree_leaves(arguments) if isinstance(t, torch.Tensor)]
        made = [t for t in pytree.tree_leaves(answer) if isinstance(t, torch.Tensor)]
        outputs = [self._name(tensor, f"value.{len(self.kept_tensors)}", Role.VALUE) for tensor in made]
        torch_ops.add(self.model_graph, target, inputs, outputs)


class _Wholes(TorchFunctionMode):  # type: ignore[misc]
    """Takes what is one kernel on a device for one operation.

    Functions of torch.nn.functional that call others (attention of several heads) are asked for as a whole, and the
    mode is off within them, so those that they call are replaced. A model that asks whether it is traced gets
    yes as its answer: then it does not look at values.
    """

    def __init__(self, recorder: _Recorder) -> None:
        super().__init__()
        self.recorder = recorder
        self.originals: list[tuple[Any, str, Any]] = []

    def __enter__(self) -> _Wholes:
        for name in _REPLACED:
            function = getattr(functional, name)
            self._replace(functional, name, functools.wraps(function)(functools.partial(self._call, function)))
        self._replace(torch.jit, "is_tracing", lambda: True)
        super().__enter__()
        return self

    def __exit__(self, *error: object) -> None:
        super().__exit__(*error)
        for module, name, original in self.originals:
            setattr(module, name, original)

    def _replace(self, module: Any, name: str, function: Any) -> None:
        self.originals.append((module, name, getattr(module, name)))
        setattr(module, name, function)

    def __torch_function__(
        self, func: Any, types: Any, args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        return self._call(func, *args, **(kwargs or {}))

    def _call(self, function: Any, /, *args: Any, **kwargs: Any) -> Any:
        name = getattr(function, "__name__", "")
        if name not in _WHOLES or self.recorder.silent:
            return function(*args, **kwargs)
        self.recorder.silent = True
        try:
            answer = function(*args, **kwargs)
        finally:
            self.recorder.silent = False
        if not name.startswith("dropout"):
            self.recorder.write(f"aten.{name}.default", (args, kwargs), answer)
        elif _drops(args, kwargs):
            data = [tensor for tensor in (*args, *kwargs.values()) if isinstance(tensor, torch.Tensor)]
            target = "dropout_" if answer is data[0] else "dropout"
            self.recorder.write(f"aten.{target}.default", data, answer)
        return answer


def _drops(args: Sequence[Any], kwargs: Mapping[str, Any]) -> bool:
    """Whether a call of dropout does anything: not while answering, nor with a rate of 0."""
    rate = kwargs.get("p", args[1] if len(args) > 1 else 0.5)
    training = kwargs.get("training", kwargs.get("train", args[2] if len(args) > 2 else True))
    return bool(training and rate)
