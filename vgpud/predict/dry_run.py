"""What a program took of the device in a dry run, and what that means for a real one: for `vgpu predict run`. Pure.

Memory is exact, but for what the process has before its tensors (dry_device.py) and, where it convolves, for cuDNN's
workspaces, of which vgpud takes none. Time is an estimate: of each kernel by a model (docs/pytorch.md), of the host by
what launches cost there.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from vgpud.predict.dry_device import ContextSize, DryDevice

#: a launch on the host: of the driver alone, and by a framework in Python (x.add_(1) of PyTorch takes 5 us)
_HOST_LAUNCH_NS, _HOST_LAUNCH_NS_MOST = 2_500, 10_000
#: the kernels' real time over that of the model: products are within 30 %, norms and reductions within a factor of 2
_KERNELS_LOW, _KERNELS_HIGH = 0.7, 1.5
#: beside PyTorch's allocator the driver gives out variables of its code, which are in the context's size as well
_CODE_BYTES_MAX = 64 << 20
#: the allocator's cache is up to so many times that of the dry run (every second of GPUMemNet's published models)
_CACHE_HIGH = 2
#: CNNs took up to so many times the memory without cuDNN's workspaces (sixteen of GPUMemNet's on an A100)
_WORKSPACES_HIGH = 1.65
_MIB = 1 << 20
MILLI = 1000


@dataclass(frozen=True, slots=True)
class Counts:
    """What the simulated device has counted. most_bytes: of its memory in use at once, contexts included; flops: of the
    kernels whose number of operations is known."""

    most_bytes: int
    most_launches: int  # before that
    launches: int
    kernels_ns: int
    copies_ns: int
    to_device_bytes: int
    from_device_bytes: int
    on_device_bytes: int
    flops: float


@dataclass(frozen=True, slots=True)
class TorchPeak:
    """The most that PyTorch's allocator held in one process, as it says itself; and beside that the most that one of
    its convolutions works in: likely, and at most."""

    allocated_bytes: int
    reserved_bytes: int
    workspace_bytes: int = 0
    workspace_bytes_most: int = 0


@dataclass(frozen=True, slots=True)
class Range:
    """An estimate and the interval that should hold the real value."""

    low: float
    value: float
    high: float


@dataclass(frozen=True, slots=True)
class DryRun:
    """What a finished run took of one device. steps: how many of them it was, 0: not known; has_convolutions: of cuDNN;
    index: of the device."""

    device: DryDevice
    context: ContextSize
    counts: Counts
    peaks: Sequence[TorchPeak]
    steps: int
    has_convolutions: bool = False
    index: int = 0

    @property
    def torch(self) -> TorchPeak | None:
        """The largest process of PyTorch; None: none has told."""
        return max(self.peaks, key=lambda peak: peak.reserved_bytes, default=None)

    @property
    def given_bytes(self) -> int:
        """What the driver has given out beside the context, at most at once."""
        return max(0, self.counts.most_bytes - self.context.value)

    @property
    def tensor_bytes(self) -> int:
        """What the peak is beside the context: PyTorch's, where it has it all, else all that the driver has given."""
        reserved_bytes = sum(peak.reserved_bytes for peak in self.peaks)
        return reserved_bytes if 0 <= self.given_bytes - reserved_bytes <= _CODE_BYTES_MAX else self.given_bytes

    @property
    def cache_bytes(self) -> int:
        """What PyTorch's allocators held beyond their tensors. How much that is follows from the order of all sizes: it
        grows with the lengths of inputs that a longer run meets, and differs from version to version of PyTorch and of
        what it calls. No program does with less than its tensors."""
        return sum(peak.reserved_bytes - peak.allocated_bytes for peak in self.peaks)

    def memory(self) -> Range:
        """What nvidia-smi would show at the peak: at least, the tensors without the allocator's cache and workspaces of
        convolutions; likely, with that cache and the copies that tensor cores take; at most, with a larger cache and
        what the algorithms take that may be faster."""
        context, tensors = self.context, self.tensor_bytes
        low = context.low + max(0, tensors - self.cache_bytes)
        value, high = context.value + tensors, context.high + tensors
        larger = high + self.cache_bytes * (_CACHE_HIGH - 1)
        if self.has_convolutions:  # where a workspace does not fit, cuDNN takes an algorithm that needs less
            value += sum(peak.workspace_bytes for peak in self.peaks)
            most = high + sum(peak.workspace_bytes_most for peak in self.peaks)
            larger = max(larger, int(high * _WORKSPACES_HIGH), most)
        return Range(low, value, max(high, min(larger, self.device.memory_bytes)))

    def total_time(self) -> Range:
        """Nanoseconds of the whole run, without what the program itself computes on the processor."""
        counts = self.counts
        return Range(
            max(counts.kernels_ns * _KERNELS_LOW, counts.launches * _HOST_LAUNCH_NS),
            max(counts.kernels_ns + counts.copies_ns, counts.launches * _HOST_LAUNCH_NS),
            max(counts.kernels_ns * _KERNELS_HIGH, counts.launches * _HOST_LAUNCH_NS_MOST) + counts.copies_ns,
        )

    def step_time(self) -> Range | None:
        """Nanoseconds of a step, copies of the model and first steps included; None: it is not known how many."""
        if not self.steps:
            return None
        total = self.total_time()
        return Range(total.low / self.steps, total.value / self.steps, total.high / self.steps)

    def utilisation(self) -> Range:
        """Part of the time in which kernels run, 0..1."""
        kernels_ns, total = self.counts.kernels_ns, self.total_time()
        if not kernels_ns:
            return Range(0, 0, 0)
        low = kernels_ns * _KERNELS_LOW / max(kernels_ns * _KERNELS_LOW, total.high)
        return Range(low, min(1, kernels_ns / total.value), 1 if kernels_ns >= total.low else kernels_ns / total.low)

    def slice_bytes(self) -> int:
        """The smallest --mem that holds the peak wherever in its interval it is, in whole MiB."""
        return math.ceil(self.memory().high / _MIB) * _MIB

    def slice_milli(self) -> int:
        """The smallest --gpus, in thousandths, whose part of the memory is as large; more than 1000: none is."""
        return max(1, math.ceil(self.slice_bytes() * MILLI / self.device.memory_bytes))
