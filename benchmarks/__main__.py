"""Runs all benchmarks, or those named: `python -m benchmarks [NAME...]` (make bench)."""

from __future__ import annotations

import subprocess
import sys

NAMES = (
    "preload_startup",
    "launch_overhead",
    "launch_simulated",
    "alloc_overhead",
    "markers",
    "collectives",
    "memory_exact",
    "ledger",
    "start_together",
    "attach_crowd",
    "daemon_control",
    "daemon_restart",
    "daemon_stopped",
    "rotation",
    "history",
    "services",
    "tune",
    "container_lifecycle",
    "container_latency",
    "clients",
    "kubernetes.prepare",
    "kubernetes.memory",
    "kubernetes.restarts",
    "kubernetes.publish",
    "slurm",
    "ray",
    "shares",
    "dependent_streams",
    "random_programs",
    "pytorch.launch",
    "pytorch.mlp_memory",
    "pytorch.convolutions",
)


#: exit code of a benchmark that this machine cannot run; it has said why
CANNOT = 3


def main() -> int:
    """Each benchmark in a process of its own. Exit code 1 when one of them missed a goal or failed."""
    if {"-h", "--help"} & set(sys.argv[1:]):
        print(f"{__doc__}\n\n{', '.join(NAMES)}")
        return 0
    wanted = sys.argv[1:] or list(NAMES)
    unknown = [name for name in wanted if name not in NAMES]
    if unknown:
        print(f"no benchmark {unknown[0]!r}: choose from {', '.join(NAMES)}", file=sys.stderr)
        return 2
    codes = {}
    for name in wanted:
        print(f"== {name}", flush=True)
        codes[name] = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"], check=False).returncode
    missed = [name for name, code in codes.items() if code not in (0, CANNOT)]
    left_out = [name for name, code in codes.items() if code == CANNOT]
    print(f"goals missed or failed: {', '.join(missed)}" if missed else "all goals met")
    if left_out:
        print(f"not measured on this machine: {', '.join(left_out)}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
