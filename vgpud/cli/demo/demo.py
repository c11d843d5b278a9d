"""`vgpu demo`: two unmodified training programs share one device, each held to its slice by real daemon and hook."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any

import click

from vgpud.cli.common.options import Settings, VgpuCommand, pass_settings
from vgpud.cli.common.quantities import Number
from vgpud.errors import ExitCode, VgpudError

if TYPE_CHECKING:
    from vgpud.cli.demo.demo_host import Mark
    from vgpud.cli.demo.demo_measure import BusyTail, Row, Trainer, Wanted
    from vgpud.cli.demo.demo_programs import Programs
    from vgpud.cli.demo.private_system import OwnSystem, Part

SETTLE_S = 2.0  # after every change, before measuring
START_TIMEOUT_S = 150.0
POLL_S = 0.25
SMALL, LARGE, ALONE = "small", "large", "alone"


@click.command("demo", cls=VgpuCommand, short_help="Two training programs share one device, each held to its slice.")
@click.option("--sim", is_flag=True, help="Use the simulated device even if there is a real one.")
@click.option("--seconds", type=Number(2, 60), default=12.0, show_default=True, help="Length of each phase.")
@click.option(
    "--out",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("demo-output"),
    show_default=True,
    help="Folder for the plot and the figures.",
)
@pass_settings
def demo(settings: Settings, sim: bool, seconds: float, folder: Path) -> int:
    """Train a small network alone, then twice at once in slices of 0.25 and 0.75 of one device, then let one borrow.

    It is trained with PyTorch's build for CUDA where that is installed, else with tinygrad. Without either, or without
    the sources, the programs are those of `vgpu sim load trainer`; without matplotlib the curves are printed. Starts
    its own daemon and leaves nothing running. Ends in under three minutes. A share more than 5 percentage points
    outside its limits is shown in red, as is a guarantee that loses more than 1 to a borrower. The exit code is then 1.
    CPU-DENIED is the processor time that the demo did not get because other programs of this machine had the processors
    (100% is one processor). A share that is off by no more than that is shown in yellow, and is no failure.
    """
    from vgpud.cli.common.output import print_lines
    from vgpud.cli.demo.demo_programs import choose

    reason = "" if sim else _no_device()
    if sim:
        print("SIMULATED device (--sim): kernels take time but compute nothing", flush=True)
    elif reason:
        print(f"no GPU here ({reason}): using the SIMULATED device, timing only", flush=True)
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise VgpudError(f"cannot create {folder}: {error.strerror}; choose another --out") from error
    simulated = bool(sim or reason)
    programs = choose(simulated)
    for remark in programs.remarks:
        print_lines([remark])
    with _stopped_by_sigterm(), tempfile.TemporaryDirectory(prefix="vgpu-demo-") as work:
        return _Demo(settings, Path(work), programs, is_simulated=simulated, seconds=seconds, output=folder).run()


def _no_device() -> str:
    """The reason why there is no real device, or "". Found in a separate process, which loads the driver."""
    code = (
        "import ctypes, sys\n"
        "try: driver = ctypes.CDLL('libcuda.so.1')\n"
        "except OSError: sys.exit('no libcuda.so.1')\n"
        "count, result = ctypes.c_int(), driver.cuInit(0)\n"
        "sys.exit(f'cuInit answers {result}') if result else None\n"
        "result = driver.cuDeviceGetCount(ctypes.byref(count))\n"
        "sys.exit(0 if result == 0 and count.value else 'the driver has no device')\n"
    )
    done = subprocess.run([sys.executable, "-I", "-c", code], capture_output=True, text=True, check=False)
    return done.stderr.strip() if done.returncode else ""


@contextlib.contextmanager
def _stopped_by_sigterm() -> Iterator[None]:
    """SIGTERM ends the demo as Ctrl-C does, so that nothing is left running."""

    def interrupt(_signal: int, _frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    old = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, old)


class _Demo:
    """The run: phases one after the other with a live view, and the report at the end."""

    def __init__(
        self, settings: Settings, work: Path, programs: Programs, *, is_simulated: bool, seconds: float, output: Path
    ) -> None:
        from rich.console import Console

        from vgpud.cli.demo.demo_host import HostWatch

        self.host = HostWatch()
        self.settings = settings
        self.work = work
        self.programs = programs
        self.is_simulated = is_simulated
        self.seconds = seconds
        self.output = output
        self.console = Console() if sys.stdout.isatty() else Console(width=100)
        self.trainers: dict[str, Trainer] = {}
        self.parts: dict[str, Part] = {}
        self.promises: dict[str, Wanted] = {}
        self.memory: dict[str, tuple[int, int]] = {}  # limit, peak
        self.used: dict[str, int] = {}
        self.rows: list[Row] = []
        self.phases: list[tuple[str, int, int, dict[str, Wanted]]] = []
        self.busy: BusyTail | None = None
        self.title = ""
        self.rate_alone = 0.0
        self.begin_ns = time.monotonic_ns()

    def run(self) -> int:
        """Runs everything. Returns the exit code."""
        from vgpud.cli.demo.private_system import OwnSystem

        sim_config = {"devices": "1"} if self.is_simulated else None
        with OwnSystem(self.work, sim_config) as system:
            self.system: OwnSystem = system
            name = system.device_name()
            self.title = f"{name}: {self.programs.words}" + (
                " - timing only, numbers are not computed" if self.is_simulated else ""
            )
            if self.is_simulated:
                from vgpud.cli.demo.demo_measure import BusyTail

                self.busy = BusyTail(system.busy_log())
            self._train()
        return int(ExitCode.OK if self._report() else ExitCode.OTHER)

    def _train(self) -> None:
        from vgpud.cli.demo.demo_measure import KEPT_TOLERANCE_PP, Wanted

        whole, quarter, rest = Wanted(1, 1, 0, 1), Wanted(0.25, 0.25, 0.25, 0.25), Wanted(0.75, 0.75, 0.75, 0.75)
        self._start(ALONE, ["--gpus", "1"], whole)
        self._wait_training(self.programs.setup, [ALONE])
        self._phase("alone", {ALONE: whole})
        self._stop(ALONE)
        self._start(SMALL, ["--gpus", "0.25", "--max", "0.25"], quarter)
        self._start(LARGE, ["--gpus", "0.75", "--max", "0.75"], rest)
        self._wait_training("two trainers start", [SMALL, LARGE])
        self._phase("0.25 and 0.75", {SMALL: quarter, LARGE: rest})
        self.system.vgpu("slice", "set", SMALL, "--max", "1")
        borrower = Wanted(0.25, 1, 0.25, 1)
        kept = Wanted(0.75, 0.75, 0.75, 0.75, KEPT_TOLERANCE_PP)
        self._phase("0.25 may borrow", {SMALL: borrower, LARGE: kept})
        self._stop(LARGE)
        alone = self.rows[0].share
        self._phase("the other has ended", {SMALL: Wanted(0.25, 1, max(0.25, alone - 0.05), 1)})
        self._stop(SMALL)

    # ---- tenants ----

    def _start(self, name: str, amounts: Sequence[str], promise: Wanted) -> None:
        from vgpud import paths
        from vgpud.cli.demo.demo_measure import Trainer

        cache = paths.make_private_dir(paths.cache_dir(), 0o755) / "tinygrad.db"
        self.trainers[name] = Trainer(name)
        self.promises[name] = promise
        env = {"CACHEDB": str(cache), **self.programs.env}
        self.parts[name] = self.system.run(name, amounts, self.programs.command, env)

    def _stop(self, name: str) -> None:
        self.parts.pop(name).stop()
        self.promises.pop(name)

    def _poll(self) -> None:
        """Reads the reports of trainers, device and daemon; raises if a trainer has ended."""
        for name, part in self.parts.items():
            self.trainers[name].take(list(part.lines()))
            part.check()
        own = [part.process.pid for part in (self.system.device, self.system.daemon, *self.parts.values()) if part]
        self.host.look({*own, *(self.trainers[name].pid for name in self.parts)} - {0})
        if self.busy:
            self.busy.poll()
        from vgpud.client import calls

        with self.system.client() as client:
            for item in client.all(calls.slices()):
                device = item.devices[0]
                self.memory[item.name] = (device.mem_max_bytes, device.mem_peak_bytes)
                self.used[item.name] = device.mem_used_bytes

    # ---- time passes ----

    def _wait_training(self, what: str, names: Sequence[str]) -> None:
        from vgpud.cli.demo.demo_host import count_denied_cpus

        begin = time.monotonic()
        first: Mark | None = None
        with self._live() as update:
            while not all(self.trainers[name].training for name in names):
                time.sleep(POLL_S)
                self._poll()
                first = first or self.host.mark()
                update(what, time.monotonic() - begin, 20.0)
                if time.monotonic() - begin > START_TIMEOUT_S:
                    text = f"the trainers were not ready after {START_TIMEOUT_S:.0f} s"
                    lost = count_denied_cpus(first, self.host.mark())
                    raise VgpudError(
                        f"{text}; other programs of this machine denied them {lost or 0:.0%} of a processor"
                    )

    def _phase(self, name: str, promises: dict[str, Wanted]) -> None:
        """Lets the trainers run, and measures after SETTLE_S."""
        from vgpud.cli.demo.demo_host import count_denied_cpus
        from vgpud.cli.demo.demo_measure import Row, share_of_phase

        self.promises.update(promises)
        begin_ns = time.monotonic_ns() + int(SETTLE_S * 1e9)
        end_ns = begin_ns + int(self.seconds * 1e9)
        first: Mark | None = None
        with self._live() as update:
            while time.monotonic_ns() < end_ns + int(POLL_S * 1e9):
                time.sleep(POLL_S)
                self._poll()
                if first is None or time.monotonic_ns() <= begin_ns:
                    first = self.host.mark()
                update(name, (time.monotonic_ns() - begin_ns) / 1e9 + SETTLE_S, self.seconds + SETTLE_S)
        lost = count_denied_cpus(first, self.host.mark())
        self.phases.append((name, begin_ns, end_ns, dict(promises)))
        spans = self.busy.spans if self.busy else None
        for tenant, promise in promises.items():
            trainer = self.trainers[tenant]
            rate = trainer.rate(begin_ns, end_ns)
            self.rate_alone = self.rate_alone or rate
            got = share_of_phase(trainer, spans, begin_ns, end_ns, self.rate_alone)
            self.rows.append(Row(name, tenant, promise, got, rate, self.rate_alone, *self.memory[tenant], lost))

    @contextlib.contextmanager
    def _live(self) -> Iterator[Any]:
        """Gives update(phase, done_s, total_s). Without a terminal: one line per phase."""
        from rich.live import Live

        from vgpud.cli.demo.demo_view import live_frame

        if not self.console.is_terminal:
            said: list[str] = []

            def line(phase: str, _done_s: float, total_s: float) -> None:
                if not said:
                    said.append(phase)
                    self.console.print(f"{phase}: about {total_s:.0f} s", highlight=False)

            yield line
            return
        with Live(console=self.console, auto_refresh=False, transient=True) as live:

            def update(phase: str, done_s: float, total_s: float) -> None:
                note = f"{phase} {done_s:4.0f} of {total_s:.0f} s"
                live.update(live_frame(self.title, note, self._now(), done_s, total_s, "Ctrl-C ends"), refresh=True)

            yield update

    def _now(self) -> dict[str, Any]:
        from vgpud.cli.demo.demo_view import Now

        now_ns = time.monotonic_ns() - int(POLL_S * 1e9)
        shown = {}
        for name, wanted in self.promises.items():
            trainer = self.trainers[name]
            rate = trainer.rate(now_ns - 2_000_000_000, now_ns)
            share = None
            if self.busy:
                share = self.busy.recent_share(trainer.pid, now_ns)
            elif self.rate_alone:
                share = rate / self.rate_alone
            shown[name] = Now(wanted, share, rate, self.used.get(name, 0), self.memory.get(name, (0, 0))[0])
        return shown

    # ---- the end ----

    def _report(self) -> bool:
        """Shows the results. Returns whether every share is within its limits, but for what the host took."""
        from vgpud.cli.common.output import print_grid, print_lines
        from vgpud.cli.demo.demo_view import DENIED_NOTE, final_grid

        self._plot()
        self._write_figures()
        print_lines([self.title])
        print_grid(self.settings, final_grid(self.rows))
        source = (
            "the simulated device's own busy log"
            if self.is_simulated
            else "completed work relative to the trainer alone"
        )
        print_lines([DENIED_NOTE, f"Shares are from {source}. Results: {', '.join(self._files())}"])
        off = [row for row in self.rows if row.is_off]
        for row in off:
            text = f"{row.off_pp():.1f} points outside (at most {row.target.tolerance_pp:g})"
            text = f"{row.phase}: {row.tenant} got {row.share:.1%}, {text}; "
            if row.is_hosts_doing:
                text += (
                    f"other programs of this machine denied the demo {row.denied_part:.0%} of a processor meanwhile:"
                )
                text += " no failure; run it again where less else runs"
            else:
                text += "see `vgpu docs limits`"
            self.console.print(text, style="yellow" if row.is_hosts_doing else "red", highlight=False, soft_wrap=True)
        return all(row.is_hosts_doing for row in off)

    def _files(self) -> list[str]:
        return [str(path) for path in (self.output / "shares.png", self.output / "demo.json") if path.exists()]

    def _plot(self) -> None:
        """The picture, or without matplotlib the curves as text."""
        from vgpud.cli.demo.demo_measure import series
        from vgpud.cli.demo.demo_programs import PLOT, is_installed
        from vgpud.cli.demo.demo_view import curves, plot

        spans = self.busy.spans if self.busy else None
        origin_ns, end_ns = self.phases[0][1], self.phases[-1][2]

        def seconds(time_ns: int) -> float:
            return (time_ns - origin_ns) / 1e9

        lines = {
            f"{name} ({self._limits(name)})": series(trainer, spans, origin_ns, end_ns, self.rate_alone)
            for name, trainer in self.trainers.items()
        }
        if not is_installed(PLOT):
            self.console.print(curves(lines, self.console.width), highlight=False, markup=False)
            return
        wanted = {
            (seconds(begin), seconds(end), promise.min_share)
            for _, begin, end, promises in self.phases[1:]
            for promise in promises.values()
        }
        phases = [(name, seconds(begin), seconds(end)) for name, begin, end, _ in self.phases]
        plot(self.output / "shares.png", self.title, lines, phases, sorted(wanted))

    def _limits(self, tenant: str) -> str:
        found = [row.target for row in self.rows if row.tenant == tenant]
        return ", then ".join(dict.fromkeys(f"{wanted.minimum:g}..{wanted.maximum:g}" for wanted in found))

    def _write_figures(self) -> None:
        figures = {
            "device": self.title.partition(":")[0],
            "simulated": self.is_simulated,
            "rows": [{**asdict(row), "off_pp": row.off_pp()} for row in self.rows],
        }
        (self.output / "demo.json").write_text(json.dumps(figures, indent=1) + "\n")
