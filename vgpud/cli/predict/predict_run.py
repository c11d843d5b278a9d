"""`vgpu predict run`: runs a program on a private simulated device and predicts its use of a real one."""

from __future__ import annotations

import json
import math
import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, pass_settings
from vgpud.cli.common.quantities import Whole
from vgpud.cli.slices.run import RunningCommand
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.predict.dry_device import DryDevice
    from vgpud.predict.dry_run import Counts, DryRun, Range, TorchPeak
    from vgpud.predict.interpreter import Torch
    from vgpud.view.fit import Grid

_STEPS_MAX = 1 << 30
_DEVICES_MAX = 16  # of a server of simulated devices
_NS = 1_000_000_000
#: what a program that was interrupted may take to end
_INTERRUPTED_S = 10.0
#: the file by which the simulated CUDA libraries report convolutions (shim/simcuda/common/work.c)
_CONVOLUTION = "simcuda_convolution"


@click.command(
    "run",
    cls=RunningCommand,
    short_help="Run a program without a GPU and predict its use of one.",
    context_settings={"allow_interspersed_args": False},
)
@click.option("--gpu", default="h200", metavar="NAME", help="Device: h200, h100, a100, a100-40g, l40s, rtx-4090, t4.")
@click.option(
    "--steps",
    type=Whole(1, _STEPS_MAX),
    metavar="N",
    help="Number of steps that COMMAND makes; then the time of one step is shown.",
)
@click.option(
    "--devices",
    type=Whole(1, _DEVICES_MAX),
    default=1,
    metavar="N",
    help="Number of devices, for a COMMAND that uses several such as torchrun (default: 1).",
)
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="-- COMMAND [ARG]...")
@pass_settings
def run(settings: Settings, gpu: str, steps: int | None, devices: int, command: tuple[str, ...]) -> int:
    """Run COMMAND, unchanged, on a private SIMULATED device of a model, and print its peak memory and its work.

    \b
    vgpu predict run --gpu a100 -- python train.py
    vgpu predict run --gpu rtx-4090 --steps 100 -o json -- python train.py
    vgpu predict run --devices 2 -- torchrun --nproc-per-node 2 train.py

    Kernels compute nothing, and the program hardly waits for them. Memory is allocated as on a real device, so its peak
    is exact, except for workspaces of cuDNN and the size of the context. COMMAND's standard output goes to standard
    error. The exit code is that of COMMAND. `vgpu docs pytorch` describes the figures and their limits.
    """
    if not command:
        raise click.UsageError("specify a command: for example vgpu predict run --gpu a100 -- python train.py")
    from vgpud.predict import dry_device

    device = dry_device.find_device(gpu)
    torch, results, exit_code = run_dry(command, device, steps or 0, os.environ, devices)
    if not results:
        refuse_unused(torch, exit_code)
    _show(settings, command, torch, results, exit_code, devices)
    return exit_code


def run_dry(
    command: Sequence[str],
    device: DryDevice,
    steps: int,
    old_environment: Mapping[str, str],
    device_count: int = 1,
    limit_s: float = math.inf,
) -> tuple[Torch | None, tuple[DryRun, ...], int]:
    """Runs the command, for at most limit_s; its PyTorch, what it has taken of each device that it has used, and its
    exit code."""
    from vgpud.cli.common import child_process
    from vgpud.libraries.environment import preload_simulated, remove_shim
    from vgpud.predict import dry_device, interpreter
    from vgpud.predict.dry_run import DryRun
    from vgpud.simdevice import state_page
    from vgpud.simdevice.process import SimulatedDevice

    torch = interpreter.find_torch(command, remove_shim(old_environment))
    context = dry_device.find_context_size(device)
    with tempfile.TemporaryDirectory(prefix="vgpu-predict-") as folder:
        work = Path(folder)
        with SimulatedDevice(work / "sim", dry_device.make_config(device, context, device_count)) as simulated:
            mask = child_process.block_signals()
            try:
                with _stdout_as_stderr():
                    environment = _environment(simulated.environment(preload_simulated(old_environment)), work)
                    pid = child_process.start_child(command, environment, mask)
                    exit_code = child_process.wait_child(pid, _limit(pid, limit_s))
            finally:
                signal.pthread_sigmask(signal.SIG_SETMASK, mask)
            page = state_page.read(simulated.directory / state_page.PAGE_NAME)
        convolves = (work / _CONVOLUTION).exists()
        peaks = list(_peaks(work))
        results = tuple(
            DryRun(
                device,
                context,
                _counts(shown),
                tuple(peak for uuid, peak in peaks if uuid == shown.uuid),
                steps,
                convolves,
                index,
            )
            for index, shown in enumerate(page.devices)
            if shown.most_bytes
        )
        return torch, results, exit_code


def _limit(pid: int, limit_s: float) -> Callable[[], None]:
    """Called again and again: ends the program when its time is over, by Ctrl-C's signal at first, at whose end PyTorch
    still tells its peak."""
    end_s = time.monotonic() + limit_s
    is_interrupted = False

    def look() -> None:
        nonlocal is_interrupted
        late_s = time.monotonic() - end_s
        if late_s >= 0 and not is_interrupted:
            is_interrupted = True
            os.kill(pid, signal.SIGINT)
        elif late_s >= _INTERRUPTED_S:
            os.kill(pid, signal.SIGKILL)

    return look


def _environment(base: Mapping[str, str], folder: Path) -> dict[str, str]:
    """That of the command: it sees the one device, and PyTorch's allocator tells its peak there when it ends."""
    from vgpud.predict import recorder

    made = {name: value for name, value in base.items() if name != "CUDA_VISIBLE_DEVICES"}
    ours = [str(Path(str(recorder.__file__)).parent)]
    made["PYTHONPATH"] = ":".join([*ours, *filter(None, [base.get("PYTHONPATH")])])
    made["VGPU_PREDICT_DIR"] = str(folder)
    return made


@contextmanager
def _stdout_as_stderr() -> Iterator[None]:
    """What is started meanwhile has standard error as its standard output."""
    kept = os.dup(1)
    try:
        os.dup2(2, 1)
        yield
    finally:
        os.dup2(kept, 1)
        os.close(kept)


def _counts(device: Any) -> Counts:
    from vgpud.predict.dry_run import Counts

    return Counts(
        most_bytes=device.most_bytes,
        most_launches=device.most_launches,
        launches=device.launches,
        kernels_ns=device.launch_ns,
        copies_ns=device.copy_ns,
        to_device_bytes=device.to_device_bytes,
        from_device_bytes=device.from_device_bytes,
        on_device_bytes=device.on_device_bytes,
        flops=device.flops,
    )


def _peaks(folder: Path) -> Iterator[tuple[str, TorchPeak]]:
    """What the command's processes have written about PyTorch on each device, by its UUID; one that was killed has not,
    or half of it."""
    from vgpud.predict.dry_run import TorchPeak

    for file in sorted(folder.glob("*.json")):
        try:
            sizes = ("allocated_bytes", "reserved_bytes", "workspace_bytes", "workspace_bytes_most")
            for found in json.loads(file.read_text()):
                yield str(found["device"]), TorchPeak(*(int(found[size]) for size in sizes))
        except (OSError, OverflowError, ValueError, KeyError, TypeError):
            continue


def refuse_unused(torch: Torch | None, exit_code: int) -> None:
    """Raises the reason why there is nothing to say."""
    ended = f"COMMAND ended with {exit_code} and" if exit_code else "COMMAND"
    if torch and not torch.cuda:
        text = f"{ended} used no device: this torch ({torch.version}) has no CUDA"
        remedy = "install PyPI's for Linux (`pip install --no-deps torch===2.13.0`), not one of the index for CPUs"
        raise CliError(f"{text}; {remedy}")
    raise CliError(f"{ended} used no device: its output says why, or it does not use CUDA", ExitCode.OTHER)


def _show(
    settings: Settings,
    command: Sequence[str],
    torch: Torch | None,
    results: Sequence[DryRun],
    exit_code: int,
    device_count: int,
) -> None:
    from vgpud.cli.common.output import emit, say

    result = _fullest(results)
    shown = view(command, torch, results, exit_code)
    emit(settings, shown, [result.slice_bytes()], lambda: grid(result) if device_count == 1 else device_grid(results))
    if settings.output != "table":
        return
    say(f"SIMULATED {result.device.title}: the context's part of the memory is {result.context.source}")
    if len(results) < device_count:
        say(f"COMMAND has used {len(results)} of {device_count} devices")
    if result.has_convolutions:
        say("it convolves: the memory is at least this, since cuDNN's workspaces are not known")
    elif len(results) > 1:
        say("the rest of the memory is exact, except for NCCL's buffers, which are not known")
    else:
        say("the rest of the memory is exact")
    if exit_code:
        say(f"COMMAND ended with {exit_code}: the figures are of what it did until then")
    else:
        say(_slice_words(result, len(results)))


def _fullest(results: Sequence[DryRun]) -> DryRun:
    """The device that decides how large a slice has to be."""
    return max(results, key=lambda result: result.slice_bytes())


def _slice_words(result: DryRun, device_count: int) -> str:
    from vgpud.core.units import format_gpus

    if result.slice_milli() > 1000:
        return "no slice of one such device is sure to hold it: its memory is too small"
    spread = f" --spread {device_count}" if device_count > 1 else ""
    gpus = f"--gpus {format_gpus(result.slice_milli() * device_count)}{spread}"
    if device_count > 1:
        return f"the smallest slices that hold it: {gpus}"
    mem = f"--mem {result.slice_bytes() >> 20}M"
    return f"the smallest slice that holds it: {gpus}, or less SM time with {mem}"


def _range(interval: Range | None, digits: int | None = None) -> dict[str, float] | None:
    if interval is None:
        return None
    return {name: round(getattr(interval, name), digits) for name in ("value", "low", "high")}


def view(command: Sequence[str], torch: Torch | None, results: Sequence[DryRun], exit_code: int) -> dict[str, Any]:
    """The fields of `-o json`, whose names are stable. null: not known. Beside `devices` they are of the device with
    the largest peak."""
    result = _fullest(results)
    context = result.context
    return {
        "command": list(command),
        "exit_code": exit_code,
        "simulated": True,
        "gpu": result.device.name,
        "device_memory_bytes": result.device.memory_bytes,
        "torch": {"version": torch.version, "cuda": torch.cuda or None} if torch else None,
        "context_bytes": {"value": context.value, "low": context.low, "high": context.high, "source": context.source},
        "steps": result.steps or None,
        **_device_view(result),
        "slice": {"mem_bytes": result.slice_bytes(), "gpus_milli": result.slice_milli()},
        "devices": [{"index": each.index, **_device_view(each)} for each in results],
    }


def _device_view(result: DryRun) -> dict[str, Any]:
    counts, peak = result.counts, result.torch
    return {
        "memory_bytes": _range(result.memory()),
        "memory_at_least": result.has_convolutions,
        "given_out_bytes": result.given_bytes,
        "reserved_bytes": peak.reserved_bytes if peak else None,
        "allocated_bytes": peak.allocated_bytes if peak else None,
        "workspace_bytes": peak.workspace_bytes if peak else None,
        "workspace_bytes_most": peak.workspace_bytes_most if peak else None,
        "peak_at_launch": counts.most_launches,
        "launches": counts.launches,
        "flops": int(counts.flops),
        "copied_bytes": {
            "to_device": counts.to_device_bytes,
            "from_device": counts.from_device_bytes,
            "on_device": counts.on_device_bytes,
        },
        "kernels_ns": counts.kernels_ns,
        "copies_ns": counts.copies_ns,
        "step_ns": _range(result.step_time()),
        "utilisation": _range(result.utilisation(), 4),
    }


def device_grid(results: Sequence[DryRun]) -> Grid:
    """The figures for people where there are several devices: a line for each."""
    from vgpud.core.units import format_bytes
    from vgpud.view.fit import Grid

    has_steps = results[0].steps > 0
    time_title = ">STEP" if has_steps else ">TIME"
    made = Grid(
        (
            "DEVICE",
            ">PEAK MEMORY",
            ">FROM",
            ">TO",
            ">RESERVED",
            ">FLOPS",
            ">KERNELS",
            ">COPIED",
            time_title,
            ">USED AT MOST",
        )
    )
    for result in results:
        counts, peak, memory = result.counts, result.torch, result.memory()
        sizes = [format_bytes(int(x)) for x in (memory.value, memory.low, memory.high)]
        reserved = format_bytes(peak.reserved_bytes) if peak else "-"
        copied = counts.to_device_bytes + counts.from_device_bytes + counts.on_device_bytes
        time = (result.step_time() or result.total_time()).value
        work = (_flops(counts.flops), str(counts.launches), format_bytes(copied), _seconds(time))
        made.rows.append((str(result.index), *sizes, reserved, *work, f"{result.utilisation().value:.0%}"))
    return made


def grid(result: DryRun) -> Grid:
    """The figures for people: what, its value, the interval, and where it is from."""
    from vgpud.core.units import format_bytes
    from vgpud.view.fit import Grid

    made = Grid(("WHAT", ">VALUE", ">FROM", ">TO", "HOW"))
    counts, peak, memory = result.counts, result.torch, result.memory()
    low, value, high = (format_bytes(int(x)) for x in (memory.low, memory.value, memory.high))
    made.rows.append(("peak memory, as nvidia-smi", value, low, high, "given out, and the context"))
    when = f"exact, first at launch {counts.most_launches} of {counts.launches}"
    made.rows.append(("given out by the driver", format_bytes(result.given_bytes), "-", "-", when))
    if peak:
        made.rows.append(("reserved by PyTorch", format_bytes(peak.reserved_bytes), "-", "-", "exact"))
        made.rows.append(("allocated by PyTorch", format_bytes(peak.allocated_bytes), "-", "-", "exact"))
    copied = (counts.to_device_bytes, counts.from_device_bytes, counts.on_device_bytes)
    for title, size in zip(("copied to the device", "copied from it", "copied on it"), copied, strict=True):
        made.rows.append((title, format_bytes(size), "-", "-", "exact"))
    made.rows.append(("kernels", str(counts.launches), "-", "-", "exact"))
    made.rows.append(("FLOPs", _flops(counts.flops), "-", "-", "of products, convolutions, attention and the like"))
    times = [("time of all", result.total_time())]
    step = result.step_time()
    times += [("time of a step", step)] if step else []
    for title, found in times:
        low, value, high = (_seconds(x) for x in (found.low, found.value, found.high))
        made.rows.append((title, value, low, high, "estimate, without the program's own"))
    busy = result.utilisation()
    value, high = (f"{x:.0%}" for x in (busy.value, busy.high))
    made.rows.append(("utilisation", value, "-", high, "at most: less by the program's own time"))
    return made


def _flops(count: float) -> str:
    for unit, factor in (("P", 1e15), ("T", 1e12), ("G", 1e9), ("M", 1e6)):
        if count >= factor:
            return f"{count / factor:.4g}{unit}"
    return str(int(count))


def _seconds(time_ns: float) -> str:
    for unit, factor in (("s", _NS), ("ms", 1_000_000)):
        if time_ns >= factor:
            return f"{time_ns / factor:.3g}{unit}"
    return f"{time_ns / 1000:.3g}us"
