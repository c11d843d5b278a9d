"""`make demo-slurm`: jobs of a real Slurm share one simulated GPU; one is resized as it runs, one ends.

Slurm and vgpud are this machine's own and live until the end. Each job keeps its part of the device busy; shares are
from the device's own log.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks import harness
from benchmarks.slurm import KERNEL_US, NODE
from tests.slurm.cluster import Cluster, cluster, missing
from vgpud.cli.demo.private_system import wait_for
from vgpud.client import calls
from vgpud.core.units import format_bytes, format_gpus
from vgpud.simdevice.busy_log import SECOND_NS, mean_share, read_busy_log

PHASE_S, SETTLE_S = 5.0, 2.0
#: name -> what it asks Slurm for
JOBS = {
    "train": ("--gres=shard:300", "--vgpu-max=1"),
    "serve": ("--gres=shard:200", "--vgpu-class=latency"),
    "big": ("--gres=shard:500", "--vgpu-mem=20G"),
}


class Demo:
    """Phases one after the other, and one table at the end."""

    def __init__(self, site: Cluster, console: Console) -> None:
        self.site, self.console = site, console
        self.slices: dict[str, str] = {}  # job -> its slice
        self.result = Table(title="Slurm jobs share one SIMULATED GPU", title_justify="left", box=box.SIMPLE_HEAD)
        for column in ("phase", "job", "slice", "SM min..max", "memory", "got"):
            self.result.add_column(column, no_wrap=True)

    def run(self) -> None:
        for name, options in JOBS.items():
            self._start(name, options)
        self._phase("three jobs")
        made = self.slices["serve"]
        self._say(f"vgpu slice set {made} --max 0.3")
        self.site.systems[NODE].vgpu("slice", "set", made, "--max", "0.3")
        job = self.slices.pop("big").partition("-")[2].partition(".")[0]
        self._say(f"scancel {job}")
        self.site.call("scancel", job)
        wait_for("its end", lambda: len(self.site.names(NODE)) == len(self.slices), 60)
        self._phase("big ended, serve may use 0.3")
        self.console.print(self.result, highlight=False)

    def _say(self, command: str) -> None:
        self.console.print(f"$ {command}", highlight=False)

    def _start(self, name: str, options: tuple[str, ...]) -> None:
        program = [str(harness.build("tenants/load.c")), "--kernel-us", str(KERNEL_US), "--burst", "16"]
        known = set(self.site.names(NODE))
        self._say(f"srun {' '.join(options)} ./{name} &")
        output = f"--output={self.site.folder}/{name}.out"
        self.site.begin("srun", "-w", NODE, *options, output, *program, "--seconds", "600")
        wait_for(f"job {name}", lambda: len(set(self.site.names(NODE)) - known) == 1, 60)
        (self.slices[name],) = set(self.site.names(NODE)) - known

    def _phase(self, what: str) -> None:
        """Waits, and keeps the shares after SETTLE_S."""
        self.console.print(f"{what}: {PHASE_S:.0f} s", highlight=False)
        begin_ns = time.monotonic_ns() + int(SETTLE_S * SECOND_NS)
        end_ns = time.monotonic_ns() + int(PHASE_S * SECOND_NS)
        while time.monotonic_ns() < end_ns + SECOND_NS // 4:
            time.sleep(0.1)
        spans = read_busy_log(self.site.systems[NODE].busy_log())
        with self.site.systems[NODE].client() as client:
            for number, (name, made) in enumerate(self.slices.items()):
                (device,) = client.send(calls.get_slice(made)).devices
                share = sum(mean_share(spans, p.pid, begin_ns, end_ns) for p in client.all(calls.processes(made)))
                limits = f"{format_gpus(device.min_milli)}..{format_gpus(device.max_milli)}"
                phase = what if number == 0 else ""
                self.result.add_row(phase, name, made, limits, format_bytes(device.mem_max_bytes), f"{share:.1%}")
        self.result.add_section()


def main() -> int:
    """Exit code 0, and 3 where no Slurm can run."""
    reason = missing()
    if reason:
        print(f"the demo needs Slurm and root: {reason}")
        return 3
    console = Console() if sys.stdout.isatty() else Console(width=100)
    console.print("starting munged, slurmctld, two slurmd, and a vgpud with a simulated GPU for each")
    harness.BUILD.mkdir(parents=True, exist_ok=True)
    model = {"VGPU_SIM_KERNELS": str(harness.spin_model(Path(harness.BUILD), [KERNEL_US]))}
    try:
        with cluster(sim=harness.one_device(), env=model) as site:
            Demo(site, console).run()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
