"""Devices as their makers' data sheets have them, and finding one by the name that NVML or a user gives it.

Sources: NVIDIA's data sheets and architecture white papers (Kepler GK110/210, Pascal GP100, Volta GV100, Turing TU102,
Ampere GA100 and GA102, Ada AD102, Hopper GH100, Blackwell). Dense rates at boost clock; half precision is that of
tensor cores with 32-bit accumulation, fp32 that of plain SMs: PyTorch multiplies matrices there unless TF32 is on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from vgpud.errors import ExitCode
from vgpud.predict.graph import GraphError, label
from vgpud.predict.names import list_names, suggest
from vgpud.predict.ops import Hardware

GIGA, TERA = 10**9, 10**12
_MIB = 1 << 20
#: a context of a process with PyTorch's kernels: so much for each SM (stacks and printf buffers are per SM) ...
_CONTEXT_SM_BYTES = 4 << 20
#: ... and what cuBLAS and cuDNN load when they are used
_LIBRARIES_BYTES, _LIBRARIES_BYTES_MOST = 256 << 20, 1 << 30
#: where it was measured without cuDNN: at least, likely, at most, and how
_A100_CONTEXT = (1409 * _MIB, 1429 * _MIB, 1449 * _MIB)
_A100_SOURCE = "the median of measured less reserved in 40 trainings of GPUMemNet on an A100 of 40 GB"
_MEASURED_CONTEXTS = {
    "a100-40g": (_A100_CONTEXT, _A100_SOURCE),
    "a100": (_A100_CONTEXT, f"{_A100_SOURCE}, which has the same SMs"),
}
#: of these devices, what cuDNN's code takes besides in a process that convolves (small ones of GPUMemNet's table)
_CUDNN_BYTES = (240 * _MIB, 290 * _MIB, 440 * _MIB)
PRECISIONS = ("fp32", "fp16", "bf16")


@dataclass(frozen=True, slots=True)
class Gpu:
    """A model of device. `pattern` finds it in NVML's name."""

    name: str
    pattern: str
    sm_count: int
    memory_gb: int
    bandwidth_gb: int  # per second
    fp32_tera: float
    half_tera: float

    def at(self, precision: str) -> Hardware:
        """It as features go by it."""
        peak = self.fp32_tera if precision == "fp32" else self.half_tera
        return Hardware(self.name, self.sm_count, self.bandwidth_gb * GIGA, int(peak * TERA))

    def context_bytes(self, has_convolutions: bool = False) -> tuple[int, int, int]:
        """Of one process that trains: least, most likely, most. Measured where it could be, else from the SMs, and then
        cuDNN is in what libraries take."""
        if self.name in _MEASURED_CONTEXTS:
            (low, value, high), _source = _MEASURED_CONTEXTS[self.name]
            more = _CUDNN_BYTES if has_convolutions else (0, 0, 0)
            return low + more[0], value + more[1], high + more[2]
        own = self.sm_count * _CONTEXT_SM_BYTES
        return own * 3 // 4, own + _LIBRARIES_BYTES, own + _LIBRARIES_BYTES_MOST

    @property
    def context_source(self) -> str:
        """Where the context's size is from, as part of a sentence."""
        if self.name in _MEASURED_CONTEXTS:
            return _MEASURED_CONTEXTS[self.name][1]
        return "an estimate from the number of SMs: not measured on this model"


#: the first whose pattern is found is meant: the narrower ones come first
GPUS = (
    Gpu("b200", r"\bB200\b", 148, 180, 8000, 75, 2250),
    Gpu("gh200", r"\bGH200\b", 132, 96, 4000, 67, 989),
    Gpu("h200", r"\bH200\b(?! NVL)", 132, 141, 4800, 67, 989),
    Gpu("h200-nvl", r"\bH200 NVL", 132, 141, 4800, 60, 835),
    Gpu("h100-nvl", r"\bH100 NVL", 132, 94, 3938, 60, 835),
    Gpu("h100-pcie", r"\bH100 PCIe", 114, 80, 2039, 51, 756),
    Gpu("h100", r"\bH100\b", 132, 80, 3350, 67, 989),
    Gpu("h20", r"\bH20\b", 78, 96, 4000, 44, 148),
    Gpu("a100-40g", r"\bA100.*40GB", 108, 40, 1555, 19.5, 312),
    Gpu("a100", r"\bA100\b", 108, 80, 2039, 19.5, 312),
    Gpu("a800", r"\bA800\b", 108, 80, 2039, 19.5, 312),
    Gpu("a40", r"\bA40\b", 84, 48, 696, 37.4, 149.7),
    Gpu("a30", r"\bA30\b", 56, 24, 933, 10.3, 165),
    Gpu("a10g", r"\bA10G\b", 80, 24, 600, 31.5, 70),
    Gpu("a10", r"\bA10\b", 72, 24, 600, 31.2, 125),
    Gpu("a2", r"\bA2\b", 10, 16, 200, 4.5, 18),
    Gpu("l40s", r"\bL40S\b", 142, 48, 864, 91.6, 362),
    Gpu("l40", r"\bL40\b", 142, 48, 864, 90.5, 181),
    Gpu("l4", r"\bL4\b", 58, 24, 300, 30.3, 121),
    Gpu("v100-32g", r"\bV100.*32GB", 80, 32, 900, 15.7, 125),
    Gpu("v100", r"\bV100\b", 80, 16, 900, 15.7, 125),
    Gpu("t4", r"\bT4\b", 40, 16, 320, 8.1, 65),
    Gpu("p100", r"\bP100\b", 56, 16, 732, 10.6, 21.2),
    Gpu("p40", r"\bP40\b", 30, 24, 346, 12, 12),
    Gpu("p4", r"\bP4\b", 20, 8, 192, 5.5, 5.5),
    Gpu("k80", r"\bK80\b", 13, 12, 240, 4.1, 4.1),
    Gpu("rtx-pro-6000", r"RTX PRO 6000", 188, 96, 1792, 125, 500),
    Gpu("rtx-6000-ada", r"RTX 6000 Ada", 142, 48, 960, 91.1, 364),
    Gpu("rtx-5000-ada", r"RTX 5000 Ada", 100, 32, 576, 65.3, 261),
    Gpu("rtx-4000-ada", r"RTX 4000.* Ada", 48, 20, 360, 26.7, 107),
    Gpu("rtx-a6000", r"RTX A6000", 84, 48, 768, 38.7, 155),
    Gpu("rtx-a5000", r"RTX A5000", 64, 24, 768, 27.8, 111),
    Gpu("rtx-a4000", r"RTX A4000", 48, 16, 448, 19.2, 76.7),
    Gpu("rtx-5090", r"RTX 5090\b", 170, 32, 1792, 104.8, 209.5),
    Gpu("rtx-5080", r"RTX 5080\b", 84, 16, 960, 56.3, 112.6),
    Gpu("rtx-4090", r"RTX 4090\b", 128, 24, 1008, 82.6, 165.2),
    Gpu("rtx-4080", r"RTX 4080\b", 76, 16, 717, 48.7, 97.5),
    Gpu("rtx-4070-ti", r"RTX 4070 Ti", 60, 12, 504, 40.1, 80.2),
    Gpu("rtx-4070", r"RTX 4070\b", 46, 12, 504, 29.1, 58.3),
    Gpu("rtx-4060", r"RTX 4060\b", 24, 8, 272, 15.1, 30.2),
    Gpu("rtx-3090", r"RTX 3090\b", 82, 24, 936, 35.6, 71),
    Gpu("rtx-3080", r"RTX 3080\b", 68, 10, 760, 29.8, 59.5),
    Gpu("rtx-3070", r"RTX 3070\b", 46, 8, 448, 20.3, 40.6),
    Gpu("rtx-3060", r"RTX 3060\b", 28, 12, 360, 12.7, 25.5),
    Gpu("rtx-2080-ti", r"RTX 2080 Ti", 68, 11, 616, 13.4, 53.8),
    Gpu("rtx-2080", r"RTX 2080\b", 46, 8, 448, 10.1, 40.3),
    Gpu("titan-rtx", r"TITAN RTX", 72, 24, 672, 16.3, 130),
    Gpu("titan-v", r"TITAN V\b", 80, 12, 653, 14.9, 110),
    Gpu("gtx-1080-ti", r"GTX 1080 Ti", 28, 11, 484, 11.3, 11.3),
    Gpu("gtx-1080", r"GTX 1080\b", 20, 8, 320, 8.9, 8.9),
)
BY_NAME = {gpu.name: gpu for gpu in GPUS}


def find_gpu(name: str) -> Gpu:
    """As a user or NVML writes it: "h200", "H100-PCIe", "NVIDIA A100-SXM4-40GB". A name that is cut off ("a100-40") is
    refused: the rest of it may tell one device from another. Raises GraphError."""
    typed = "-".join(name.lower().split()).removeprefix("nvidia-")
    if typed in BY_NAME:
        return BY_NAME[typed]
    longer = [each for each in BY_NAME if typed and each.startswith(typed)]
    gpu = next((one for one in GPUS if re.search(one.pattern, name, re.IGNORECASE)), None)
    if gpu is None or longer:
        text = f"device {label(name)} is not in the table of devices"
        near = suggest(typed, longer) or suggest(typed, BY_NAME)
        raise GraphError(f"{text}{near or f': name one of {list_names(BY_NAME)} with --gpu'}", ExitCode.NOT_FOUND)
    return gpu
