"""Features: numbers of a model and a device that are known before anything runs. Pure.

Readers of graphs (ONNX, torch) and of tables make `Op`s; `features` is the one place that counts and estimates, so
prediction and training use the same numbers. Device time per step is a roofline (Williams et al., CACM'09): each
operation takes as long as its FLOPs or its bytes, whichever is longer, and never less than a kernel does.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from vgpud.predict import allocator
from vgpud.predict.ops import Hardware, Op, Step

#: more than any device does or holds
VALUE_MAX = 1e30
#: a kernel takes at least this long, and the host at least that long to launch it from eager Python
KERNEL_NS = 2_500
LAUNCH_NS = 9_000
#: of the host for each sample that a loader collates, and for each byte of it
SAMPLE_NS = 5_000
HOST_BYTES_PER_S = 4_000_000_000
#: edge of the part of a matrix that one thread block computes
TILE = 128

#: name -> what it is; all of one training step unless said otherwise. A model file names those that it uses.
FEATURES: dict[str, str] = {
    "batch": "samples in a step",
    "batch_mean": "mean samples in a step: the last step of an epoch is shorter",
    "training": "1 for training, 0 for inference",
    "optimizer_states": "numbers that the optimizer keeps for each parameter",
    "element_bytes": "bytes per element of the outputs of operations",
    "inputs": "elements of one sample",
    "outputs": "elements of the output for one sample",
    "layers": "operations with parameters",
    "convolutions": "operations that are convolutions",
    "attentions": "operations that are attention",
    "recurrents": "operations that are recurrent (RNN, LSTM, GRU)",
    "embeddings": "operations that look up a table",
    "norms": "operations that normalise (batch, layer, group)",
    "kernels": "kernels that are launched",
    "parameters": "parameters of the model",
    "parameter_tensors": "tensors that hold parameters",
    "activations": "elements that operations write for one sample, forward",
    "width_most": "elements that the widest operation writes for one sample",
    "width_least": "elements that the narrowest operation with parameters writes for one sample",
    "flops": "floating-point operations",
    "bytes": "bytes moved between the device's memory and its SMs",
    "intensity": "flops / bytes",
    "sm_count": "SMs of the device",
    "bandwidth": "bytes per second of the device's memory",
    "peak_flops": "floating-point operations per second of the device at this precision",
    "device_ns": "device time, by roofline",
    "host_ns": "host time: collating samples, launching kernels",
    "copy_bytes": "bytes of samples copied to the device",
    "fill": "part of the SMs that have work while the device is busy",
    "busy": "device_ns over the time of the whole step, 0 to 1",
    "state_bytes": "bytes of parameters, gradients and the optimizer's state",
    "activation_bytes": "bytes that the backward pass needs, for the whole batch",
    "largest_bytes": "bytes of the largest parameter tensor",
    "reserved_bytes": "bytes that PyTorch's caching allocator holds, by simulation",
}


@dataclass(frozen=True)
class Features:
    """Named numbers of FEATURES: finite, none negative. Raises ValueError."""

    values: Mapping[str, float]

    def __post_init__(self) -> None:
        for name, value in self.values.items():
            if name not in FEATURES:
                raise ValueError(f"there is no feature {name!r}")
            if not 0 <= value <= VALUE_MAX:  # what is not a number is neither
                raise ValueError(f"feature {name} is {value:g}: it must be from 0 to {VALUE_MAX:g}")

    def __getitem__(self, name: str) -> float:
        return self.values[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self.values)


#: kind of operation -> the feature that counts it
COUNTED = {
    "convolution": "convolutions",
    "attention": "attentions",
    "recurrent": "recurrents",
    "embedding": "embeddings",
    "norm": "norms",
}


def features(ops: Iterable[Op], step: Step, device: Hardware) -> Features:
    """All of FEATURES. Raises ValueError for an invalid number."""
    ops = tuple(ops)
    if step.batch < 1 or min(device.sm_count, device.bandwidth, device.peak_flops) < 1:
        raise ValueError("batch, SMs, bandwidth and peak FLOPs must be at least 1")
    found = dict.fromkeys(FEATURES, 0.0)
    for op in ops:
        if op.kind in COUNTED:
            found[COUNTED[op.kind]] += 1
    weighted = [op for op in ops if op.parameters]
    tensors = [size for op in ops for size in op.parameters]
    parameters = sum(tensors)
    found |= {
        "batch": step.batch,
        "batch_mean": step.samples / -(-step.samples // step.batch) if step.samples else step.batch,
        "training": int(step.training),
        "optimizer_states": step.states if step.training else 0,
        "element_bytes": step.element_bytes,
        "inputs": step.inputs,
        "outputs": step.outputs,
        "layers": len(weighted),
        "parameters": parameters,
        "parameter_tensors": len(tensors),
        "activations": sum(op.outputs for op in ops) / step.batch,
        "width_most": max((op.outputs for op in ops), default=0) / step.batch,
        "width_least": min((op.outputs for op in weighted), default=0) / step.batch,
        "sm_count": device.sm_count,
        "bandwidth": device.bandwidth,
        "peak_flops": device.peak_flops,
        "copy_bytes": step.batch * step.inputs * step.element_bytes,
        "state_bytes": parameters * step.parameter_bytes * ((2 + step.states) if step.training else 1),
        "activation_bytes": sum(op.outputs for op in ops) * step.element_bytes,
        "largest_bytes": max(tensors, default=0) * step.parameter_bytes,
        "reserved_bytes": allocator.reserved(ops, step),
    }
    found |= _work(ops, parameters, len(tensors), step, device)
    return Features(found)


def _work(ops: tuple[Op, ...], parameters: int, tensors: int, step: Step, device: Hardware) -> dict[str, float]:
    """What the step computes and moves, and how long that takes device and host."""
    flops = moved = device_ns = filled_ns = 0.0
    kernels = 0
    for op in ops:
        # backward, an operation with parameters has a gradient for its input and one for its parameters
        passes = 1 if not step.training else 3 if op.parameters else 2
        once = max(op.flops / device.peak_flops, op.bytes / device.bandwidth) * 1e9
        took = passes * max(once, op.kernels * KERNEL_NS)
        flops += passes * op.flops
        moved += passes * op.bytes
        kernels += passes * op.kernels
        device_ns += took
        filled_ns += took * min(1.0, op.outputs / (TILE * TILE) / device.sm_count)
    if step.training:
        # the optimizer reads and writes parameter and states, and reads the gradient
        swept = parameters * step.parameter_bytes * (3 + 2 * step.states)
        launched = 1 + step.states * 2
        moved += swept
        kernels += launched + tensors
        took = max(swept / device.bandwidth * 1e9, launched * KERNEL_NS)
        device_ns += took
        filled_ns += took * min(1.0, parameters / (TILE * TILE) / device.sm_count)
    copied = step.batch * step.inputs * step.element_bytes
    host_ns = kernels * LAUNCH_NS + step.batch * SAMPLE_NS + copied / HOST_BYTES_PER_S * 1e9
    return {
        "flops": flops,
        "bytes": moved,
        "intensity": flops / moved if moved else 0.0,
        "kernels": kernels,
        "device_ns": device_ns,
        "host_ns": host_ns,
        "fill": filled_ns / device_ns if device_ns else 0.0,
        "busy": device_ns / (device_ns + host_ns) if device_ns else 0.0,
    }
