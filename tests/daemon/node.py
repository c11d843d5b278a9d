"""Starts real daemons on a fake driver (fake_driver.c), each in directories of its own with short names."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.daemon.forked import ForkedDaemon, can_fork
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs

HERE = Path(__file__).parent
#: how long a test waits for what should come at once; generous, for busy machines
PATIENCE_S = 30.0
#: what the interpreter runs
PROGRAM = ["-m", "vgpud.serve"]


def wait_until(condition: Callable[[], Any], what: str = "condition") -> Any:
    """Returns the condition's first true value; fails after PATIENCE_S."""
    deadline_s = time.monotonic() + PATIENCE_S
    while True:
        begin_s = time.monotonic()
        value = condition()
        if value:
            return value
        now_s = time.monotonic()
        assert now_s < deadline_s, f"{what} did not come within {PATIENCE_S} s"
        time.sleep(min(max(0.005, now_s - begin_s), 0.1))  # slow looks leave processors to what is waited for


def settled_descriptors(table: Path) -> int:
    """How many descriptors a daemon has (its /proc/PID/fd), once their number stays: it prepares pages for programs."""
    counts = [len(list(table.iterdir()))]

    def stays() -> bool:
        time.sleep(0.3)
        counts.append(len(list(table.iterdir())))
        return counts[-1] == counts[-2]

    wait_until(stays, "a constant number of descriptors")
    return counts[-1]


@pytest.fixture(scope="session")
def fake_driver(tmp_path_factory: pytest.TempPathFactory) -> Path:
    library = tmp_path_factory.mktemp("driver") / "fake_driver.so"
    source = HERE / "fake_driver.c"
    subprocess.run(["gcc", "-shared", "-fPIC", "-Wall", "-Wextra", "-Werror", "-o", library, source], check=True)
    return library


class Node:
    """A daemon's directories and configuration; start() and kill() as often as a test likes."""

    def __init__(self, directory: Path, library: Path) -> None:
        self.directory = directory
        self.runtime, self.state = directory / "run", directory / "state"
        self.config = directory / "c.toml"
        self.library = library
        self.env: dict[str, str] = {}
        # a device has one daemon: nodes of tests that run side by side have different ones
        self.own_device = {"FAKE_NODE": str(zlib.crc32(str(directory).encode()))}
        self.log = directory / "log"
        self.process: subprocess.Popen[bytes] | ForkedDaemon | None = None
        self.settings: dict[str, str] = {}
        self.program = PROGRAM
        self._channel: grpc.Channel | None = None

    def write_config(self) -> None:
        base = {"driver": f'"{self.library}"', "nvml": f'"{self.library}"', "metrics": '"off"', "node": '"n1"'}
        tables = {k: v for k, v in self.settings.items() if k.startswith("[")}
        keys = base | {k: v for k, v in self.settings.items() if k not in tables}
        lines = [f"{k} = {v}" for k, v in keys.items()] + [f"{k}\n{v}" for k, v in tables.items()]
        self.config.write_text("\n".join(lines) + "\n")

    def command(self, *extra: str) -> list[str]:
        self.write_config()
        where = ["--config", self.config, "--runtime-dir", self.runtime, "--state-dir", self.state]
        return [sys.executable, *self.program, "serve", *map(str, where), *extra]

    def run(self, *extra: str) -> subprocess.CompletedProcess[str]:
        """Starts a daemon that is expected to refuse."""
        env = os.environ | self.own_device | self.env
        return subprocess.run(self.command(*extra), env=env, capture_output=True, text=True, timeout=60, check=False)

    def start(self, *extra: str, preexec: Callable[[], None] | None = None) -> Node:
        env = os.environ | self.own_device | self.env
        command = self.command(*extra)
        with self.log.open("ab") as log:
            if self.program is PROGRAM and preexec is None and can_fork(self.env):
                self.process = ForkedDaemon(command[1 + len(PROGRAM) :], env, log, log)
            else:
                self.process = subprocess.Popen(command, env=env, stdout=log, stderr=log, preexec_fn=preexec)
        wait_until(self._answers, f"the daemon's socket; its log: {self.log.read_text()}")
        return self

    def _answers(self) -> bool:
        assert self.process
        assert self.process.poll() is None, self.log.read_text()
        return (self.runtime / "vgpud.sock").exists() and self._ready()

    def _ready(self) -> bool:
        self.channel()
        try:
            self.nodes.GetNode(pb.GetNodeRequest(), timeout=1)
        except grpc.RpcError:
            self.hang_up()
            return False
        return True

    def channel(self) -> grpc.Channel:
        if self._channel is None:
            self._channel = grpc.insecure_channel(f"unix:{self.runtime / 'vgpud.sock'}")
        return self._channel

    def hang_up(self) -> None:
        if self._channel:
            self._channel.close()
        self._channel = None

    @property
    def nodes(self) -> stubs.NodeServiceStub:
        return stubs.NodeServiceStub(self.channel())

    @property
    def slices(self) -> stubs.SliceServiceStub:
        return stubs.SliceServiceStub(self.channel())

    @property
    def events(self) -> stubs.EventServiceStub:
        return stubs.EventServiceStub(self.channel())

    def create(self, name: str = "a", milli: int = 500, **fields: Any) -> pb.Slice:
        spec = pb.SliceSpec(gpus_milli=milli, **fields.pop("spec", {}))
        fields = fields if "owner_uid" in fields else fields | {"every_user": True}
        return self.slices.CreateSlice(pb.CreateSliceRequest(name=name, spec=spec, **fields)).slice

    def get(self, name: str = "a") -> pb.Slice:
        return self.slices.GetSlice(pb.GetSliceRequest(name=name)).slice

    def names(self) -> list[str]:
        return [s.name for s in self.slices.ListSlices(pb.ListSlicesRequest()).slices]

    def processes(self) -> list[pb.Process]:
        return list(self.slices.ListProcesses(pb.ListProcessesRequest()).processes)

    def event_kinds_and_slices(self) -> list[tuple[str, str]]:
        return [(e.kind, e.slice) for e in self.events.ListEvents(pb.ListEventsRequest()).events]

    def event_kinds(self) -> list[str]:
        return [kind for kind, _slice in self.event_kinds_and_slices()]

    def messages(self, kind: str) -> list[str]:
        return [e.message for e in self.events.ListEvents(pb.ListEventsRequest()).events if e.kind == kind]

    def socket(self, name: str = "a") -> str:
        return str(self.runtime / "slices" / name / "attach.sock")

    def stop(self, number: int = signal.SIGTERM) -> int:
        """Ends the daemon with a signal and returns its exit code."""
        self.hang_up()
        assert self.process
        self.process.send_signal(number)
        code = self.process.wait(PATIENCE_S)
        self.process = None
        return code


@contextmanager
def own_node(library: Path) -> Iterator[Node]:
    directory = Path(tempfile.mkdtemp(prefix="vgd-", dir="/tmp"))
    made = Node(directory, library)
    try:
        yield made
    finally:
        if made.process:
            made.stop(signal.SIGKILL)
        made.hang_up()
        shutil.rmtree(directory)


@pytest.fixture
def node(fake_driver: Path) -> Iterator[Node]:
    """A node of the test's own, not started yet."""
    with own_node(fake_driver) as made:
        yield made


@pytest.fixture(scope="module")
def shared(fake_driver: Path) -> Iterator[Node]:
    """A running daemon for tests that leave it as it was. It must end well, and its log hold no traceback."""
    with own_node(fake_driver) as made:
        yield made.start()
        assert made.stop() == 0
        assert "Traceback" not in made.log.read_text()


@pytest.fixture
def empty_node(shared: Node) -> Node:
    """The running daemon of the module, without slices: for tests that neither stop nor configure it."""
    for name in shared.names():
        shared.slices.DeleteSlice(pb.DeleteSliceRequest(name=name, force=True))
    return shared
