"""The attacker of every listener that other users reach, and neighbours who call each of them meanwhile."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.hostile import users
from benchmarks.hostile.attacker import Attacker
from benchmarks.hostile.phases import Harm, Judge, PhaseFigure
from benchmarks.hostile.service import make_slice
from tests.ports import find_free_ports
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError, wait_for

#: more than before: connections of neighbours, and what is prepared for programs
DESCRIPTORS_MORE_MAX = 48


def _restart_with(own: OwnSystem, metrics: str, remote: str) -> None:
    """The daemon with its ports open. Raises PartError."""
    own.vgpu("cert", "init", "--tls-dir", str(own.folder / "tls"))
    config = own.folder / "vgpud.toml"
    lines = [line for line in config.read_text().splitlines() if not line.startswith("metrics")]
    lines = [f'metrics = "{metrics}"', f'listen = "{remote}"', f'tls_dir = "{own.folder / "tls"}"', *lines]
    config.write_text("\n".join(lines) + "\n")
    assert own.daemon
    own.daemon.stop()
    own.start_daemon()


def _start_console(own: OwnSystem, address: str) -> Part:
    where = ["--host", own.host, "--runtime-dir", str(own.folder / "run"), "--listen", address]
    part = Part("console", [sys.executable, "-m", "vgpud.cli.main", "console", "serve", *where], own.env, own.folder)
    own.tenants.append(part)
    wait_for("the console", lambda: "the console is at" in part.error_file.read_text())
    return part


class Flood(Attacker):
    """The flooder, and what it has left behind in the processes that it attacked."""

    def watch(self, parts: Sequence[Part]) -> None:
        self._parts = parts
        self._before = [self._descriptors(part) for part in parts]

    @staticmethod
    def _descriptors(part: Part) -> int:
        """Of the process and its children."""
        pid = part.process.pid
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        return sum(len(os.listdir(f"/proc/{one}/fd")) for one in (pid, *children))

    def figures(self, judge: Judge) -> list[PhaseFigure]:
        def remainder(part: Part, what: str, honest: float, after: float, limit: float) -> PhaseFigure:
            return PhaseFigure(
                judge.case, judge.host, f"{part.name}: {what}", after, Harm(at_most=limit), honest=honest
            )

        found = super().figures(judge)
        for part, before in zip(self._parts, self._before, strict=True):
            part.check()
            with contextlib.suppress(PartError):  # then there are too many: the deadlines of all listeners are over
                wait_for("descriptors", lambda: self._descriptors(part) <= before + DESCRIPTORS_MORE_MAX, 15)  # noqa: B023
            now = self._descriptors(part)
            found.append(remainder(part, "descriptors afterwards", before, now, before + DESCRIPTORS_MORE_MAX))
            faults = len(re.findall("Traceback", part.error_file.read_text()))
            found.append(remainder(part, "tracebacks", 0, faults, 0))
        return found


@contextlib.contextmanager
def flood(own: OwnSystem) -> Iterator[Flood]:
    """A user with 2,000 connections beside another user's and root's calls. Raises PartError."""
    metrics, remote, pages = (f"127.0.0.1:{port}" for port in find_free_ports(3))
    _restart_with(own, metrics, remote)
    console = _start_console(own, pages)
    run, device = own.folder / "run", own.sim_dir / "sock"
    neighbour, root = str(users.NEIGHBOUR_UID), str(os.geteuid())
    attach = make_slice(own, "neighbour", users.NEIGHBOUR_UID)
    calls = {
        "another user's attach": (neighbour, "attach", attach),
        "another user's ListSlices": (neighbour, "list", own.host),
        "root's ListSlices": (root, "list", own.host),
        "another user's scrape": (neighbour, "metrics", metrics),
        "another user's log-in page": (neighbour, "page", pages),
        "root's log-in link": (root, "link", str(run / "console.sock")),
        "another user's TLS handshake": (neighbour, "tls", remote),
        "another user's simulated device": (neighbour, "device", str(own.sim_dir)),
    }
    probes = {name: users.start(own, "neighbour", *words) for name, words in calls.items()}
    targets = [f"tcp:{metrics}", f"unix:{run / 'vgpud.sock'}", f"tcp:{remote}", f"seqpacket:{attach}"]
    targets += [f"tcp:{pages}", f"seqpacket:{run / 'console.sock'}", f"seqpacket:{device}"]
    rates = {"made": "connections made", "refused": "connections refused"}
    rates |= {"flood_s": "processor seconds of the flood itself", "server_s": "processor seconds of its own server"}
    attack = Flood(users.start(own, "flooder", *targets), rates, {"held": "connections held at a time"}, probes)
    assert own.daemon and own.device
    attack.watch((own.daemon, own.device, console))
    yield attack
