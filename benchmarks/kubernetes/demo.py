"""`make demo-k8s`: five pods of a fifth of one simulated GPU each, a sixth that waits, one that is resized as it runs.

All of Kubernetes is real and lives on this machine until the end: its programs are those of the folder that
KUBEBUILDER_ASSETS names. Each pod keeps its part of the device busy; shares are from the device's own log.
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Mapping, Sequence

import yaml
from rich import box
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from benchmarks import harness
from benchmarks.kubernetes.pods import COUNT, MILLI
from tests.k8s import control_plane as plane
from tests.k8s import node as nodes
from tests.k8s.node import RealNode, cluster
from tests.k8s.pods import LOAD, pod
from vgpud.cli.demo.demo_measure import BusyTail, Wanted
from vgpud.cli.demo.demo_view import share_bar
from vgpud.client import calls
from vgpud.core.units import MILLI_PER_DEVICE, format_bytes
from vgpud.simdevice.busy_log import SECOND_NS, mean_share
from vgpud.v1alpha1 import vgpud_pb2 as pb

TITLE = "Kubernetes on this machine: pods share one SIMULATED GPU"
CLAIM = ("claim", f"{MILLI / MILLI_PER_DEVICE:g}", "--mem", "2G", "--template", "--name", "fifth")
PHASE_S, SETTLE_S, POLL_S = 6.0, 2.0, 0.25
#: what the resized pod may have
RESIZED = "0.4"


class Demo:
    """The run: phases one after the other, each with a live table, and one table at the end."""

    def __init__(self, node: RealNode, console: Console) -> None:
        self.node, self.console = node, console
        self.busy = BusyTail(node.system.busy_log())
        self.result = Table(title=TITLE, title_justify="left", title_style="bold", box=box.SIMPLE_HEAD)
        for column in ("phase", "pod", "SM min..max", "got", "state"):
            self.result.add_column(column, no_wrap=True)

    def run(self) -> None:
        names = [f"pod-{number}" for number in range(1, COUNT + 2)]
        *five, sixth = names
        text = subprocess.run(
            [sys.executable, "-m", "vgpud.cli.main", *CLAIM], check=True, capture_output=True, text=True
        ).stdout
        self.console.print(f"$ vgpu {' '.join(CLAIM)} | kubectl apply -f -", highlight=False)
        self.node.api.create(yaml.safe_load(text))
        for name in five:
            self.node.run(pod(name, LOAD, template="fifth"))
        self.node.running(*five)
        self.node.run(pod(sixth, LOAD, template="fifth"))
        self._phase("five fifths; a sixth waits", names)
        self.node.delete(five[0])
        self.node.running(sixth)
        self._phase(f"{five[0]} ended: {sixth} starts", names[1:])
        self.node.delete(five[1])
        made = self._slices()[five[2]]
        self.console.print(f"$ vgpu slice set {made.name} --max {RESIZED}", highlight=False)
        self.node.system.vgpu("slice", "set", made.name, "--max", RESIZED)
        self._phase(f"{five[1]} ended; {five[2]} may borrow", names[2:])
        self.console.print(self.result, highlight=False)

    def _phase(self, what: str, names: Sequence[str]) -> None:
        """Shows what happens for a while, and keeps the shares after SETTLE_S."""
        if not self.console.is_terminal:
            self.console.print(f"{what}: {PHASE_S:.0f} s", highlight=False)
        begin_ns = time.monotonic_ns() + int(SETTLE_S * SECOND_NS)
        end_ns = begin_ns + int((PHASE_S - SETTLE_S) * SECOND_NS)
        with Live(console=self.console, auto_refresh=False, transient=True) as live:
            while time.monotonic_ns() < end_ns + int(2 * POLL_S * SECOND_NS):
                time.sleep(POLL_S)
                self.busy.poll()
                if self.console.is_terminal:
                    live.update(self._frame(what, names), refresh=True)
        slices, states = self._slices(), self._states(names)
        for number, name in enumerate(names):
            made = slices.get(name)
            share = sum(mean_share(self.busy.spans, pid, begin_ns, end_ns) for pid in self._pids(made)) if made else 0.0
            limits = f"{limits_of(made).minimum:g}..{limits_of(made).maximum:g}" if made else ""
            shown = f"{share:.1%}" if made else ""
            first, last = number == 0, number == len(names) - 1
            self.result.add_row(what if first else "", name, limits, shown, states[name], end_section=last)

    def _frame(self, what: str, names: Sequence[str]) -> RenderableType:
        table = Table(box=None, pad_edge=False)
        for column in ("pod", "share of the GPU in the last second", "", "memory", "state"):
            table.add_column(column, no_wrap=True)
        slices, states, now_ns = self._slices(), self._states(names), time.monotonic_ns() - int(POLL_S * SECOND_NS)
        for name in names:
            made = slices.get(name)
            if made is None:
                table.add_row(name, "", "", "", states[name])
                continue
            share = sum(self.busy.recent_share(pid, now_ns) for pid in self._pids(made))
            memory = format_bytes(made.devices[0].mem_max_bytes)
            table.add_row(name, share_bar(share, limits_of(made)), f"{share:6.1%}", memory, states[name])
        return Group(Text(TITLE, style="bold"), Text(what), table, Text("Ctrl-C ends", style="dim"))

    def _slices(self) -> Mapping[str, pb.Slice]:
        """Pod -> the slice of its claim, which Kubernetes has made from the template and named after the pod."""
        return {made.claim.name.rpartition("-gpu-")[0]: made for made in self.node.slices().values()}

    def _pids(self, tenant_slice: pb.Slice) -> list[int]:
        with self.node.system.client() as client:
            return [process.pid for process in client.all(calls.processes(tenant_slice.name))]

    def _states(self, names: Sequence[str]) -> Mapping[str, str]:
        """Pod -> its phase, with the scheduler's reason while it waits."""
        states = {}
        for one in self.node.api.client().list(plane.Pod, namespace="default"):
            conditions = one["status"].get("conditions", [])
            waits = [c["message"] for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"]
            reason = ": cannot allocate all claims" if waits and "cannot allocate all claims" in waits[0] else ""
            states[one["metadata"]["name"]] = one["status"]["phase"] + reason
        return {name: states.get(name, "") for name in names}


def limits_of(tenant_slice: pb.Slice) -> Wanted:
    """The limits of a slice on its only device, 0..1."""
    least, most = (
        milli / MILLI_PER_DEVICE for milli in (tenant_slice.devices[0].min_milli, tenant_slice.devices[0].max_milli)
    )
    return Wanted(least, most, least, most)


def main() -> int:
    """Exit code 0, and 3 where no node can run."""
    reason = nodes.missing()
    if reason:
        print(f"the demo needs Kubernetes' own programs, containerd and root: {reason}")
        return 3
    console = Console() if sys.stdout.isatty() else Console(width=100)
    console.print("starting etcd, kube-apiserver, kube-scheduler, kubelet, containerd, vgpud and vgpud-k8s")
    try:
        with cluster(harness.one_device()) as node:
            Demo(node, console).run()
    except KeyboardInterrupt:
        return 130
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
