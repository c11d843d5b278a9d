"""Unmodified client programs in a slice, under the hook: they run as without it.

`test_runs_in_slice` runs them as a user does (`vgpu run`). `test_same_calls` puts a recorder of driver calls between
the program and the library: names, codes and output bytes have to be the same whether that is the driver or the hook.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.clients import tracer
from tests.clients.conftest import NEEDS, PROGRAMS, SIM, client_environment, run_python, skip_without
from vgpud.cli.demo.private_system import OwnSystem

RUN = (sys.executable, "-m", "vgpud.cli.main", "run")
#: puts the recorder in front of the hook that `vgpu run` would have preloaded
IN_FRONT = """
case "$LD_PRELOAD" in */libvgpu.so:*) ;; *) echo "no hook: LD_PRELOAD=$LD_PRELOAD" >&2; exit 9 ;; esac
TRACE_LIBRARY="${LD_PRELOAD%%:*}" LD_PRELOAD= LD_LIBRARY_PATH="$TRACER" exec "$@"
"""


@pytest.mark.parametrize("program", NEEDS)
def test_runs_in_slice(program: str, system: OwnSystem, kernel_cache: Path) -> None:
    skip_without(program)
    env = client_environment(system.sim_dir, cache=kernel_cache) | {"VGPU_HOST": system.host}
    out = run_python(PROGRAMS / f"{program}.py", env, *RUN, "--gpus", "0.5", "--")
    assert out.splitlines()[-1] == "ok"


@pytest.fixture(scope="session")
def tracer_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tracer.build(tmp_path_factory.mktemp("tracer"))


@pytest.mark.slow
@pytest.mark.parametrize("program", NEEDS)
def test_same_calls(
    program: str,
    system: OwnSystem,
    kernel_cache: Path,
    tracer_dir: Path,
    tmp_path: Path,
    record_property: Callable[[str, object], None],
) -> None:
    skip_without(program)
    driver, path = SIM / "libcuda.so.1", PROGRAMS / f"{program}.py"
    env = client_environment(system.sim_dir, tracer_dir, kernel_cache) | {"CUDA_VISIBLE_DEVICES": "0"}
    env |= {"TRACE_DRIVER": str(driver), "TRACE_LIBRARY": str(driver), "PYTHONHASHSEED": "0"}
    if program == "tinygrad_train":  # fills its cache of compiled kernels: both runs then find everything there
        run_python(path, env)
    without, under = tmp_path / "without", tmp_path / "under"
    run_python(path, env | {"TRACE_FILE": str(without)})
    env |= {"VGPU_HOST": system.host, "TRACER": str(tracer_dir), "TRACE_FILE": str(under)}
    run_python(path, env, *RUN, "--gpus", "0.5", "--", "sh", "-c", IN_FRONT, "sh")
    expected, got = tracer.calls(without), tracer.calls(under)
    record_property("calls", len(expected))
    work = [name for name, _code, _sum in expected if not name.startswith("cuGetProcAddress")]
    assert len(work) > 40 and any(name.startswith("cuLaunchKernel") for name in work)
    difference = difflib.unified_diff([str(c) for c in expected], [str(c) for c in got], lineterm="", n=1)
    assert got == expected, "\n".join(difference)
