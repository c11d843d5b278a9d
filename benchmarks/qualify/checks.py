"""The checks of `make qualify`, one function each: figures and the problems found."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from benchmarks import harness
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls

FRACTION = 0.3
SHARE_TOLERANCE_PP = 5.0
TRAINERS = ("torch", "cupy", "tinygrad")
TRAIN_STEPS = 30
MEASURE_S = 6.0
MISSING = 3  # exit code of a program for which something is not there
COLLECT_S = 15.0  # of its step's budget: the last model that is begun may take the rest
CHECKPOINT_MIB, CHECKPOINT_MIB_SIMULATED = 8192, 512


@dataclass
class Found:
    """What one check found. problems: what is not as assumed, in words; skip_reason: why it could not be run."""

    figures: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    skip_reason: str = ""


def driver_path(is_simulated: bool) -> Path:
    """The driver under test. Raises VgpudError when there is none."""
    if is_simulated:
        return paths.sim_lib_dir() / "libcuda.so.1"
    from vgpud.libraries import driver

    found = driver.find_driver()
    if found is None:
        raise FileNotFoundError("no libcuda.so.1")
    return found


def unhooked_env(own: OwnSystem) -> dict[str, str]:
    """The environment of a program that runs on the device without us."""
    env = dict(own.env)
    if own.is_simulated:
        env["LD_LIBRARY_PATH"] = f"{paths.sim_lib_dir()}:{env.get('LD_LIBRARY_PATH', '')}".rstrip(":")
    return env


def run_json(command: Sequence[str], env: dict[str, str], timeout_s: float = 120) -> Any:
    """Runs a program and reads its last line as JSON. Raises RuntimeError with its last words when it fails."""
    done = subprocess.run(list(command), env=env, capture_output=True, text=True, timeout=timeout_s, check=False)
    if done.returncode:
        words = (done.stderr.strip() or done.stdout.strip() or "nothing said").splitlines()[-1]
        raise RuntimeError(f"{Path(command[0]).name} ended with code {done.returncode}: {words}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def constants(own: OwnSystem) -> Found:
    """Measures what the simulated device is built on, without the hook."""
    program = harness.build("qualify/constants.c")
    return Found(run_json([str(program)], unhooked_env(own)))


def identity(own: OwnSystem) -> Found:
    """Pointer identity of cuGetProcAddress and the driver's exports, without the hook."""
    path = driver_path(own.is_simulated)
    env = {**unhooked_env(own), "PYTHONPATH": str(harness.ROOT)}
    found = Found(run_json([sys.executable, "-m", "benchmarks.qualify.identity", str(path)], env))
    if found.figures["different"]:
        names = ", ".join(found.figures["different"][:8])
        found.problems.append(f"cuGetProcAddress gives pointers that are not exported, for {names}")
    return found


def completed_per_s(lines: Sequence[dict[str, Any]]) -> float:
    """Kernels per second of load.c, from its second report to its last."""
    points = [(line["time_ns"], line["completed"]) for line in lines if line["event"] == "progress"][1:]
    if len(points) < 2:
        raise RuntimeError("the program reported less than three times")
    return float((points[-1][1] - points[0][1]) * 1e9 / (points[-1][0] - points[0][0]))


def gate_c(own: OwnSystem) -> Found:
    """A saturating C program in a slice of 0.3 against the same program unhooked."""
    program = str(harness.build("tenants/load.c"))
    command = [program, "--seconds", str(round(MEASURE_S)), "--kernel-us", "200"]
    done = subprocess.run(command, env=unhooked_env(own), capture_output=True, text=True, timeout=60, check=True)
    alone = completed_per_s([json.loads(line) for line in done.stdout.splitlines()])
    part = own.run("qualify-c", ["--gpus", str(FRACTION), "--max", str(FRACTION)], command)
    wait_for("the C program", lambda: not part.running, MEASURE_S + 60)
    if part.process.returncode:
        part.check()
    held = completed_per_s(list(part.lines()))
    found = Found({"alone_kernels_per_s": alone, "held_kernels_per_s": held, "share": held / alone, "wanted": FRACTION})
    if abs(held / alone - FRACTION) * 100 > SHARE_TOLERANCE_PP:
        found.problems.append(f"a slice of {FRACTION} got {held / alone:.3f} of the device")
    return found


def checkpoint(own: OwnSystem) -> Found:
    """How fast the driver moves a process without a slice off the device and back."""
    mib = CHECKPOINT_MIB_SIMULATED if own.is_simulated else CHECKPOINT_MIB
    command = [str(harness.build("qualify/checkpoint.c")), str(mib)]
    done = subprocess.run(command, env=unhooked_env(own), capture_output=True, text=True, timeout=60, check=False)
    if done.returncode == MISSING:
        return Found(skip_reason=done.stdout.strip().splitlines()[-1])
    if done.returncode:
        return Found(problems=[f"code {done.returncode}: {done.stderr.strip().splitlines()[-1]}"])
    found = Found(json.loads(done.stdout.splitlines()[-1]))
    if not found.figures["intact"]:
        found.problems.append("the memory of the process is not what it was")
    if found.figures["freed_bytes"] < found.figures["bytes"]:
        found.problems.append(f"only {found.figures['freed_bytes']} bytes left the device")
    return found


def trainer(own: OwnSystem, framework: str, python: str) -> Found:
    """The CIFAR trainer of a framework: same losses hooked and unhooked, then its speed in a slice of 0.3."""
    module = [python, "-m", f"benchmarks.cifar.train_{framework}"]
    cache = paths.make_private_dir(paths.cache_dir(), 0o755) / "tinygrad.db"
    model = harness.ROOT / "benchmarks" / "cifar" / "kernels.model"
    extra = {"PYTHONPATH": str(harness.ROOT), "CACHEDB": str(cache)}
    if own.is_simulated:
        extra |= {"VGPU_SIM_KERNELS": str(model), "NOOPT": "1", "PARALLEL": "0"}
    fixed = [*module, "--steps", str(TRAIN_STEPS), "--report-every", "5"]
    plain = subprocess.run(
        fixed, env={**unhooked_env(own), **extra}, capture_output=True, text=True, timeout=180, check=False
    )
    if plain.returncode == MISSING:
        return Found(skip_reason=plain.stdout.strip())
    if plain.returncode:
        return Found(problems=[f"unhooked: code {plain.returncode}: {plain.stderr.strip().splitlines()[-1]}"])
    before = [json.loads(line) for line in plain.stdout.splitlines() if line.startswith("{")]
    part = own.run(f"qualify-{framework}", ["--gpus", "1"], fixed, extra)
    wait_for(f"the {framework} trainer", lambda: not part.running, 180)
    if part.process.returncode:
        part.check()
    after = list(part.lines())
    found = Found(compare(before, after))
    found.problems += [f"hooked and unhooked differ: {what}" for what in found.figures.pop("differences")]
    timed = [*module, "--seconds", str(MEASURE_S), "--report-every", "5"]
    held = own.run(f"qualify-{framework}-held", ["--gpus", str(FRACTION), "--max", str(FRACTION)], timed, extra)
    found.figures["launches_at_the_gate"] = launches_until_end(own, held, f"qualify-{framework}-held")
    if not found.figures["launches_at_the_gate"]:
        found.problems.append("the program never attached, or its launches do not pass the gate")
    rate = next((line["samples_per_second"] for line in held.lines() if line["event"] == "end"), 0.0)
    alone = after[-1]["samples_per_second"]
    found.figures |= {"samples_per_s_unhooked": before[-1]["samples_per_second"], "samples_per_s_hooked": alone}
    found.figures |= {"samples_per_s_held": rate, "held_of_alone": rate / alone if alone else 0.0}
    return found


def collect(own: OwnSystem, python: str) -> Found:
    """Models measured for the predictor, as many as the time allows; `benchmarks.predict.collect` measures the rest."""
    if own.is_simulated:
        return Found(skip_reason="the simulated device runs no PyTorch")
    command = [python, "-m", "benchmarks.predict.collect", "--batches", "1", "--total", str(COLLECT_S), "--json"]
    env = {**unhooked_env(own), "PYTHONPATH": str(harness.ROOT)}
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=COLLECT_S + 60, check=False)
    said = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or ["nothing said"]
    if done.returncode == MISSING:
        return Found(skip_reason=said[-1])
    if done.returncode:
        return Found(problems=[f"code {done.returncode}: {said[-1]}"])
    return Found(json.loads(said[-1]))


def launches_until_end(own: OwnSystem, part: Part, slice_name: str) -> int:
    """Waits for a program in a slice; how many launches the daemon saw at its gate (0: it bypassed us)."""
    seen = 0

    def has_ended() -> bool:
        nonlocal seen
        for process in client.all(calls.processes()):
            if process.slice == slice_name:
                seen = max(seen, sum(device.launches for device in process.devices))
        time.sleep(0.2)
        return not part.running

    with own.client() as client:
        wait_for(part.name, has_ended, 180)
    return seen


def compare(base: Sequence[dict[str, Any]], after: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Losses and checksum of two runs of a trainer. `differences` lists what is not equal, in words."""
    differences = []
    losses = [[line["loss"] for line in run if "loss" in line] for run in (base, after)]
    if losses[0] != losses[1]:
        worst = max((abs(a - b) for a, b in zip(*losses, strict=False)), default=float("nan"))
        differences.append(f"losses, by up to {worst:g}")
    sums = [run[-1].get("checksum") for run in (base, after)]
    if sums[0] != sums[1]:
        differences.append(f"sum of the weights: {sums[0]} and {sums[1]}")
    if base[-1]["step"] != after[-1]["step"]:
        differences.append(f"steps: {base[-1]['step']} and {after[-1]['step']}")
    compared = len(losses[0]) if losses[0] else "nothing: numbers are not computed"
    return {"losses_compared": compared, "last_loss": losses[0][-1] if losses[0] else None, "differences": differences}


def has_device() -> str:
    """Why there is no real device, "" when there is one."""
    code = (
        "import ctypes, sys\n"
        "try: driver = ctypes.CDLL('libcuda.so.1')\n"
        "except OSError: sys.exit('no libcuda.so.1')\n"
        "result = driver.cuInit(0)\n"
        "sys.exit(f'cuInit answers {result}' if result else 0)\n"
    )
    done = subprocess.run(
        [sys.executable, "-I", "-c", code], capture_output=True, text=True, env=dict(os.environ), check=False
    )
    return done.stderr.strip() if done.returncode else ""
