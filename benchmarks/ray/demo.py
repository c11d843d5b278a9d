"""`make demo-ray`: three actors of one Ray cluster share one simulated GPU, each held to its fraction.

Ray and the node's vgpud are real and on this machine until the end. Each actor keeps its part of the device busy;
shares are from the device's own log.
"""

from __future__ import annotations

import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from benchmarks.ray.workers import fenced_options, get, start, unfenced_options
from tests.ray.ray_cluster import RayCluster, missing, ray_cluster
from vgpud.cli.demo.demo_measure import Wanted
from vgpud.cli.demo.demo_view import share_bar
from vgpud.core.units import format_bytes
from vgpud.simdevice import busy_log

CANNOT = 3
TITLE = "Ray on this machine: actors share one SIMULATED GPU"
PHASE_S, SETTLE_S = 6.0, 2.0
#: actor -> (gpus, max); Ray counts the first
ACTORS = {"half": (0.5, 0.5), "quarter": (0.25, 0.25), "borrower": (0.25, 1.0)}


class Demo:
    """The run: phases one after the other, and one table at the end."""

    def __init__(self, nodes: RayCluster, console: Console) -> None:
        self.nodes, self.console = nodes, console
        self.result = Table(title=TITLE, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        for column in ("phase", "actor", "num_gpus", "max", "got", "", "memory"):
            self.result.add_column(column, no_wrap=True)

    def run(self) -> None:
        system = self.nodes.systems[0]
        plain = {name: start(self.nodes, 0, unfenced_options(gpus, system)) for name, (gpus, _) in ACTORS.items()}
        self._phase("num_gpus alone", plain, is_fenced=False)
        for actor in plain.values():
            self.nodes.ray.kill(actor)
        time.sleep(SETTLE_S)
        held = {name: start(self.nodes, 0, fenced_options(gpus, max=most)) for name, (gpus, most) in ACTORS.items()}
        self._phase("vgpud.ray.options()", held)
        self.nodes.ray.kill(held.pop("half"))
        self._phase("half has ended", held)
        self.console.print(self.result, highlight=False)

    def _phase(self, what: str, actors: Mapping[str, Any], *, is_fenced: bool = True) -> None:
        self.console.print(f"{what}: {PHASE_S:.0f} s", highlight=False)
        seen = dict(zip(actors, get(self.nodes, [actor.seen.remote() for actor in actors.values()]), strict=True))
        get(self.nodes, [actor.begin.remote() for actor in actors.values()])
        time.sleep(SETTLE_S)
        begin_ns = time.monotonic_ns()
        time.sleep(PHASE_S - SETTLE_S)
        end_ns = time.monotonic_ns()
        time.sleep(0.3)  # the log is written behind the device's time
        spans = busy_log.read_busy_log(self.nodes.systems[0].busy_log())
        for number, (name, one) in enumerate(seen.items()):
            gpus, most = ACTORS[name]
            share = busy_log.mean_share(spans, one["pid"], begin_ns, end_ns)
            top = most if is_fenced else 1.0
            bar = share_bar(share, Wanted(gpus, top, gpus, top))
            limits = f"{gpus:g}", f"{top:g}" if is_fenced else "-"
            row = (what if number == 0 else "", name, *limits, f"{share:.1%}", bar, format_bytes(one["bytes"]))
            self.result.add_row(*row, end_section=number == len(seen) - 1)


def main() -> int:
    """Exit code 0, and 3 where Ray is not installed."""
    if missing():
        print(f"the demo {missing()}")
        return CANNOT
    console = Console() if sys.stdout.isatty() else Console(width=110)
    console.print("starting Ray (a head and a node), vgpud and a simulated device: half a minute")
    with tempfile.TemporaryDirectory(prefix="vgr-", dir="/tmp") as folder:
        try:
            with ray_cluster(Path(folder), 1, {"devices": "1", "memory_bytes": "8G"}) as nodes:
                Demo(nodes, console).run()
        except KeyboardInterrupt:
            return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
