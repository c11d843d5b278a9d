"""Run by PyTorch's interpreter on a simulated device: products with their times, torch.linalg, torch.fft, torch.sparse.

Prints a line of JSON: the device times of some products in microseconds, and what failed.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Callable
from typing import Any

import torch

failures: dict[str, str] = {}


def attempt(name: str, call: Callable[[], Any]) -> None:
    try:
        call()
        torch.cuda.synchronize()
    except Exception as error:
        failures[name] = f"{type(error).__name__}: {error}"


def measure_us(call: Callable[[], Any], call_before: Callable[[], Any]) -> float:
    """The shortest of some: a slice may wait for its turn. It is launched while the other call still runs: else the
    time of the launch would be measured, too."""
    times = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        call_before()
        begin.record()
        call()
        end.record()
        torch.cuda.synchronize()
        times.append(float(begin.elapsed_time(end)) * 1e3)
    return min(times)


def zeros(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.zeros(*shape, device="cuda", dtype=dtype)


def products() -> dict[str, float]:
    single, half = zeros(4096, 4096), zeros(4096, 4096, dtype=torch.bfloat16)
    short = zeros(512, 512).to(torch.float8_e4m3fn)
    scale = torch.ones((), device="cuda")
    layer = torch.nn.Linear(512, 512, device="cuda")
    attempt("addmm", lambda: torch.addmm(zeros(512), zeros(512, 512), zeros(512, 512)))
    attempt("bmm", lambda: torch.bmm(zeros(4, 64, 64), zeros(4, 64, 64)))
    attempt("scaled_mm", lambda: torch._scaled_mm(short, short.t(), scale, scale, out_dtype=torch.bfloat16))
    attempt("int_mm", lambda: torch._int_mm(zeros(64, 64, dtype=torch.int8), zeros(64, 64, dtype=torch.int8).t()))
    attempt("dot", lambda: torch.dot(zeros(100), zeros(100)).item())
    attempt("backward", lambda: layer(zeros(64, 512)).sum().backward())
    calls: dict[str, Callable[[], Any]] = {
        "float32": lambda: single @ single,
        "bfloat16": lambda: half @ half,
        "add": lambda: single + single,
        "sum": lambda: single.sum(1),
    }
    return {name: measure_us(call, calls["float32"]) for name, call in calls.items()}


def linear_algebra(dtype: torch.dtype, *shape: int) -> None:
    a, b = zeros(*shape, dtype=dtype), zeros(*shape, dtype=dtype)
    tau = a[..., 0, :].contiguous()
    linalg = torch.linalg
    plain = ("svd", "svdvals", "qr", "cholesky", "eigh", "eigvalsh", "eigvals", "lu", "lu_factor", "inv", "pinv")
    plain += ("det", "slogdet")
    for name in plain:
        attempt(f"{name} {dtype} {shape}", functools.partial(getattr(linalg, name), a))
    calls: dict[str, Callable[[], Any]] = {
        "solve": lambda: linalg.solve(a, b),
        "lstsq": lambda: linalg.lstsq(a, b),
        "lu_solve": lambda: linalg.lu_solve(*linalg.lu_factor(a), b),
        "ldl_solve": lambda: linalg.ldl_solve(*linalg.ldl_factor(a), b),
        "solve_triangular": lambda: linalg.solve_triangular(a, b, upper=True),
        "cholesky_solve": lambda: torch.cholesky_solve(b, a),
        "cholesky_inverse": lambda: torch.cholesky_inverse(a),
        "householder_product": lambda: linalg.householder_product(a, tau),
        "ormqr": lambda: torch.ormqr(a, tau, b),
        "matrix_rank": lambda: linalg.matrix_rank(a),
        "svd gesvda": lambda: linalg.svd(a, full_matrices=False, driver="gesvda"),
        "svd gesvd": lambda: linalg.svd(a, full_matrices=False, driver="gesvd"),
        "svd gesvdj": lambda: linalg.svd(a, full_matrices=False, driver="gesvdj"),
    }
    for name, call in calls.items():
        attempt(f"{name} {dtype} {shape}", call)


def transforms() -> None:
    fft = torch.fft
    real, complex64 = zeros(8, 60, 64), zeros(8, 60, 64, dtype=torch.complex64)
    calls: dict[str, Callable[[], Any]] = {
        "fft": lambda: fft.fft(real),
        "ifft": lambda: fft.ifft(complex64),
        "rfftn": lambda: fft.rfftn(real),
        "irfft": lambda: fft.irfft(complex64),
        "fft2": lambda: fft.fft2(zeros(8, 11, 13, dtype=torch.complex128)),
        "prime": lambda: fft.fft(zeros(1009)),
        "stft": lambda: torch.stft(zeros(2, 4000), 256, window=torch.ones(256, device="cuda"), return_complex=True),
    }
    for name, call in calls.items():
        attempt(f"fft {name}", call)


def sparse() -> None:
    indices, values = torch.tensor([[0, 1, 2, 3], [1, 2, 3, 0]]), torch.ones(4)
    coo = torch.sparse_coo_tensor(indices, values, (4, 4)).coalesce()
    csr, coo, dense = coo.to_sparse_csr().cuda(), coo.cuda(), zeros(4, 4)
    blocks = torch.ones(8, 8).to_sparse_bsr((2, 2)).cuda()
    calls: dict[str, Callable[[], Any]] = {
        "csr matrix": lambda: csr @ dense,
        "csr vector": lambda: csr @ dense[0],
        "coo matrix": lambda: torch.sparse.mm(coo, dense),
        "csr csr": lambda: csr @ csr,
        "csr sum": lambda: csr + csr,
        "sampled_addmm": lambda: torch.sparse.sampled_addmm(csr, dense, dense),
        "triangular_solve": lambda: torch.triangular_solve(dense, csr),
        "bsr matrix": lambda: blocks @ zeros(8, 8),
        "to_sparse": lambda: dense.to_sparse().cpu(),
        "to_sparse_csr": lambda: dense.to_sparse_csr().cpu(),
    }
    for name, call in calls.items():
        attempt(f"sparse {name}", call)


def main() -> None:
    times = products()
    for dtype in (torch.float32, torch.complex128):
        linear_algebra(dtype, 32, 32)
        linear_algebra(dtype, 3, 8, 8)
    linear_algebra(torch.float64, 600, 600)
    transforms()
    sparse()
    print(json.dumps({"times_us": times, "failures": failures}), flush=True)


if __name__ == "__main__":
    main()
