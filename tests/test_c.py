"""The C unit tests of tests/c, compiled with their subjects under AddressSanitizer + UBSan, and under ThreadSanitizer
where threads meet. A program says what it runs and ends with 1 at the first thing that is not true.
"""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from shim import build_shim

ROOT = Path(__file__).resolve().parent.parent
ADDRESS = "address,undefined"
THREAD = "thread"


def folder(name: str) -> tuple[str, ...]:
    """The C files of a folder of shim/."""
    return tuple(sorted(str(p.relative_to(ROOT)) for p in (ROOT / "shim" / name).glob("*.c")))


ARBITER = (*folder("arbiter"), "shim/base/prim.c", "shim/base/run_time.c")
GATE = (*folder("gate"), "shim/base/lock.c", "shim/base/run_time.c", "shim/session/helper_wake.c")
#: program -> (sources under test, sanitizers)
PROGRAMS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "test_attach_server": ((*folder("attach_server"), *ARBITER), (ADDRESS, THREAD)),
    "test_attach_server_descriptors": ((*folder("attach_server"), *ARBITER), (ADDRESS, THREAD)),
    "test_arbiter_gang": (ARBITER, (ADDRESS, THREAD)),
    "test_arbiter_heartbeat": (ARBITER, (ADDRESS,)),
    "test_arbiter_links": (ARBITER, (ADDRESS,)),
    "test_arbiter_memory": (("shim/arbiter/memory.c", "shim/arbiter/reclaim.c"), (ADDRESS,)),
    "test_arbiter_overlap": (ARBITER, (ADDRESS,)),
    "test_arbiter_pages": (ARBITER, (ADDRESS,)),
    "test_arbiter_residence": (ARBITER, (ADDRESS,)),
    "test_arbiter_turns": (ARBITER, (ADDRESS,)),
    "test_arbiter_thread_priority": (("shim/arbiter/thread_priority.c", "shim/base/prim.c"), (ADDRESS,)),
    "test_arbiter_threads": (ARBITER, (ADDRESS, THREAD)),
    "test_arbiter_trace": (("shim/arbiter/trace.c",), (ADDRESS,)),
    "test_context": (("shim/context/context.c", "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_cost": (tuple(f"shim/simcuda/common/{n}.c" for n in ("cost", "devices", "numbers")), (ADDRESS,)),
    "test_gate": (GATE + ARBITER, (ADDRESS, THREAD)),
    "test_gate_bound": ((*GATE, "shim/base/prim.c"), (ADDRESS,)),
    "test_gate_estimate": (("shim/gate/estimate.c", "shim/base/prim.c"), (ADDRESS,)),
    "test_gate_gang": ((*GATE, "shim/base/prim.c"), (ADDRESS,)),
    "test_gate_wait": ((*GATE, "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_gate_gaps": ((*GATE, "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_gate_helper": ((*GATE, "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_run_time": (("shim/base/run_time.c",), (ADDRESS,)),
    "test_gate_lock": (("shim/base/lock.c", "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_gate_report": ((*GATE, "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_gate_residence": ((*GATE, "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_gate_row": ((*GATE, "shim/base/prim.c"), (ADDRESS,)),
    "test_gate_short": ((*GATE, "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_gate_sync": ((*GATE, "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_hook_capture": ((*GATE, "shim/hooks/capture.c", "shim/ledger/records.c", "shim/base/prim.c"), (ADDRESS,)),
    "test_hook_graph": (
        (*GATE, "shim/hooks/graph_memory.c", "shim/hooks/graph_wait.c", "shim/ledger/records.c", "shim/base/prim.c"),
        (ADDRESS,),
    ),
    "test_hook_launch": (("cuda_hook.c", *GATE, "shim/base/prim.c"), (ADDRESS,)),
    "test_image": (
        tuple(f"shim/simgpu/images/{n}.c" for n in ("image", "image_elf", "image_fatbin", "image_parse", "image_ptx")),
        (ADDRESS,),
    ),
    "test_job": (("shim/job/instructions.c", "shim/job/file.c"), (ADDRESS,)),
    "test_job_terminal": (("shim/job/terminal.c", "shim/job/ring.c", "shim/job/user.c", "shim/job/file.c"), (ADDRESS,)),
    "test_job_cgroup": (("shim/job/file.c",), (ADDRESS,)),
    "test_ledger": (
        (
            "shim/ledger/credit.c",
            "shim/ledger/reclaim_watch.c",
            "shim/ledger/stock.c",
            "shim/base/lock.c",
            "shim/session/helper_wake.c",
            *ARBITER,
        ),
        (ADDRESS, THREAD),
    ),
    "test_ledger_handles": (
        (
            *(f"shim/hooks/{n}.c" for n in ("physical", "multicast", "sparse", "vmm")),
            *(f"shim/{n}.c" for n in ("ledger/array_boxes", "ledger/records", "base/lock", "base/prim")),
        ),
        (ADDRESS, THREAD),
    ),
    "test_nccl_numbers": (
        ("shim/simcuda/nccl/numbers.c", "shim/simcuda/nccl/reduce.c", "shim/simcuda/nvrtc/kernels.c"),
        (ADDRESS,),
    ),
    "test_peek": (("shim/base/prim.c",), (ADDRESS,)),
    "test_rest": ((), (ADDRESS,)),
    "test_runtime": (
        tuple(f"shim/runtime/{n}.c" for n in ("args", "ask", "bundle", "conf", "file", "json", "report", "wire")),
        (ADDRESS,),
    ),
    "test_amount": (tuple(f"shim/simgpu/modules/{n}.c" for n in ("mangled", "amount")), (ADDRESS,)),
    "test_visible": (("shim/session/visible_devices.c",), (ADDRESS,)),
    "test_ml_slice": (
        tuple(
            f"shim/{n}.c" for n in ("nvml/slice", "attach/socket", "session/visible_devices", "base/log", "base/prim")
        ),
        (ADDRESS, THREAD),
    ),
    "test_ml_sessions": (("shim/nvml/hook_process.c", "shim/nvml/hook_sessions.c"), (ADDRESS,)),
    "test_table": (("shim/ledger/records.c", "shim/base/lock.c", "shim/base/prim.c"), (ADDRESS, THREAD)),
    "test_wire": (("shim/attach/socket.c", "shim/base/prim.c"), (ADDRESS,)),
}
#: those whose time is the test's own (tests/c/own_clock.h)
OWN_CLOCK = (
    *("test_gate_gang", "test_gate_gaps", "test_gate_row", "test_gate_sync"),
    *("test_hook_capture", "test_hook_graph", "test_hook_launch"),
)
WRAP_CLOCK = [f"-Wl,--wrap=vg_prim_{name}" for name in ("now_ns", "sleep_until_ns")]
CASES = [(name, sanitizer) for name, (_, sanitizers) in PROGRAMS.items() for sanitizer in sanitizers]
# -Wno-tsan: gcc does not model fences; those of the seqlocks stand beside atomic accesses, which it does model.
FLAGS = ["-g", "-O1", "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-pthread", "-fno-omit-frame-pointer"]
INCLUDES = ["-iquote", "shim", "-iquote", "tests/c"]


def fixed_layout() -> list[str]:
    """The prefix that turns the random layout off; nothing where that is not allowed, as in many containers."""
    prefix = ["setarch", "-R"]
    allowed = shutil.which("setarch") and subprocess.run([*prefix, "true"], capture_output=True, check=False)
    return prefix if allowed and allowed.returncode == 0 else []


@pytest.mark.parametrize(("name", "sanitizer"), CASES, ids=[f"{n}-{s.split(',')[0]}" for n, s in CASES])
def test_c(name: str, sanitizer: str, tmp_path: Path) -> None:
    sources, _ = PROGRAMS[name]
    program = tmp_path / name
    sanitize = [f"-fsanitize={sanitizer}", "-fno-sanitize-recover=all"] + (["-Wno-tsan"] if sanitizer == THREAD else [])
    flags = [*FLAGS, *sanitize, *INCLUDES]
    objects = build_shim.compile_objects([f"tests/c/{name}.c", *dict.fromkeys(sources)], flags)
    libraries = ["-ldl", "-lm", *(WRAP_CLOCK if name in OWN_CLOCK else ())]
    command = [*build_shim.compiler(), *flags, "-o", str(program), *objects, *libraries]
    subprocess.run(command, cwd=ROOT, check=True)
    # A program linked with TSan may meet an address space layout that it cannot use; setarch takes the dice away.
    done = subprocess.run(
        [*(fixed_layout() if sanitizer == THREAD else ()), str(program)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{done.stdout}\n{done.stderr[-8000:]}"


def test_every_program_runs() -> None:
    assert {p.stem for p in (ROOT / "tests" / "c").glob("test_*.c")} == set(PROGRAMS)
