"""Limits of cgroups on device memory, as the simulated driver plays them: a program that opens it past the hook meets
them."""

from __future__ import annotations

import ctypes
import os
import socket
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pynvml
import pytest

from tests.daemon.node import wait_until
from tests.own_cgroup import enter, own_cgroup
from tests.sim.conftest import HERE, MakeDevice, MakeProgram, run
from vgpud import paths
from vgpud.devices import memory_limits
from vgpud.devices.memory_limits import NO_LIMIT, LimitError
from vgpud.simdevice import state_page
from vgpud.simdevice.process import SimulatedDevice

MIB = 1 << 20
CONTEXT_MIB = 64
LIMITS_SET = 21  # SIM_REQUEST_LIMITS_SET of wire.h; those of limits and time slices follow
OUT_OF_MEMORY = "2"

Handle = Callable[..., object]


@pytest.fixture
def group() -> Iterator[Path]:
    with own_cgroup() as made:
        yield made


@pytest.fixture
def handle(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[SimulatedDevice, int], object]]:
    """NVML's handle of a device."""
    opened = 0

    def find(device: SimulatedDevice, index: int = 0) -> object:
        nonlocal opened
        monkeypatch.setenv("VGPU_SIM_DIR", str(device.directory))
        monkeypatch.setattr(pynvml, "_nvmlGetFunctionPointer_cache", {})  # of another library
        monkeypatch.setattr(pynvml, "nvmlLib", ctypes.CDLL(str(paths.sim_lib_dir() / "libnvidia-ml.so.1")))
        pynvml.nvmlInit()
        opened += 1
        return pynvml.nvmlDeviceGetHandleByIndex(index)

    yield find
    for _ in range(opened):
        pynvml.nvmlShutdown()


class Program:
    """tests/sim/limited.py in a cgroup."""

    def __init__(self, device: SimulatedDevice, group: Path) -> None:
        lib = paths.sim_lib_dir()
        command = [sys.executable, str(HERE / "limited.py"), str(lib / "libcuda.so.1"), str(lib / "libnvidia-ml.so.1")]
        env = device.environment(os.environ)
        self.process = subprocess.Popen(
            command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, preexec_fn=enter(group)
        )
        self.first_answer = self._read()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.communicate("end\n")

    def _read(self) -> list[str]:
        assert self.process.stdout
        return self.process.stdout.readline().split()

    def ask(self, line: str) -> list[str]:
        assert self.process.stdin
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self._read()


def make_limited(device: MakeDevice, **config: object) -> SimulatedDevice:
    return device(memory_bytes=4096 * MIB, context_bytes=CONTEXT_MIB * MIB, memory_limits=1, **config)


def test_a_program_in_the_group_cannot_exceed_it(device: MakeDevice, handle: Handle, group: Path) -> None:
    started = make_limited(device)
    memory_limits.set_limit(handle(started), group, 1024 * MIB)
    with Program(started, group) as program:
        assert program.first_answer == ["0"]
        assert program.ask("alloc 2048") == [OUT_OF_MEMORY]
        assert program.ask("alloc 512") == ["0"]
        assert program.ask("info") == ["0", str((512 - CONTEXT_MIB) * MIB), str(1024 * MIB)]
        used = (512 + CONTEXT_MIB) * MIB
        assert program.ask("nvml") == [str(1024 * MIB), str(used), str(1024 * MIB - used)]
        assert program.ask("alloc 512") == [OUT_OF_MEMORY], "the context counts"
        assert memory_limits.read_limit(handle(started), group) == (1024 * MIB, used)
    assert memory_limits.read_limit(handle(started), group) == (1024 * MIB, 0), "what has ended has nothing"


def test_a_group_is_one_and_others_are_not_in_it(device: MakeDevice, handle: Handle, group: Path) -> None:
    started = make_limited(device)
    memory_limits.set_limit(handle(started), group, 1024 * MIB)
    with Program(started, group) as first, own_cgroup(group) as below, Program(started, below) as second:
        assert first.ask("alloc 512") == ["0"]
        assert second.ask("alloc 512") == [OUT_OF_MEMORY], "together they would have more"
        memory_limits.set_limit(handle(started), below, 2048 * MIB)
        assert second.ask("alloc 1024") == ["0"], "the innermost limit is the one that counts"
        with own_cgroup() as other, Program(started, other) as stranger:
            assert stranger.ask("alloc 2048") == ["0"]
            assert stranger.ask("info")[2] == str(4096 * MIB)


def test_a_limit_changes_and_ends(device: MakeDevice, handle: Handle, group: Path) -> None:
    started = make_limited(device)
    memory_limits.set_limit(handle(started), group, 512 * MIB)
    with Program(started, group) as program:
        assert program.ask("alloc 1024") == [OUT_OF_MEMORY]
        memory_limits.set_limit(handle(started), group, 2048 * MIB)
        assert program.ask("alloc 1024") == ["0"]
        memory_limits.set_limit(handle(started), group, 256 * MIB)
        assert program.ask("info") == ["0", "0", str(256 * MIB)], "below what it has"
        assert program.ask("alloc 2") == [OUT_OF_MEMORY]
        memory_limits.set_limit(handle(started), group, NO_LIMIT)
        assert program.ask("alloc 2048") == ["0"]
        assert program.ask("info")[2] == str(4096 * MIB)


def test_a_limit_goes_with_its_group(device: MakeDevice, handle: Handle, group: Path) -> None:
    started = make_limited(device)
    memory_limits.set_limit(handle(started), group, 256 * MIB)
    group.rmdir()
    group.mkdir()
    with Program(started, group) as program:
        assert program.ask("alloc 1024") == ["0"]


def test_what_cannot_be_limited_says_why(device: MakeDevice, handle: Handle, group: Path) -> None:
    without = device(memory_bytes=4096 * MIB)
    with pytest.raises(LimitError, match="r615 and later have them"):
        memory_limits.probe([(handle(without), 4096 * MIB)], group)
    parts = make_limited(device, device__0__mig="3g.2gb")
    with pytest.raises(LimitError, match="the driver has no memory limits"):
        memory_limits.set_limit(handle(parts), group, 512 * MIB)
    started = make_limited(device)
    with pytest.raises(LimitError, match="does not find cgroup"):
        memory_limits.set_limit(handle(started), group / "none", 512 * MIB)
    with pytest.raises(LimitError, match=f"refuses it for cgroup {started.directory}"):
        memory_limits.set_limit(handle(started), started.directory, 512 * MIB)
    memory_limits.probe([(handle(started), 4096 * MIB)], group)
    with pytest.raises(LimitError, match="no memory limits"):
        memory_limits.read_limit(handle(started), group.parent)


def test_the_server_survives_wild_requests(device: MakeDevice, program: MakeProgram, tmp_path: Path) -> None:
    """About limits and time slices: with and without a descriptor, of cgroups and of what is none; and no descriptor is
    left."""
    started = device(devices=2, memory_limits=1)
    table = Path(f"/proc/{started.pid}/fd")
    before = len(list(table.iterdir()))
    with own_cgroup() as group, (tmp_path / "file").open("wb") as file:
        fds = [os.open(group, os.O_RDONLY), os.open(tmp_path, os.O_RDONLY), file.fileno()]
        for number in range(240):
            with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
                link.connect(str(started.directory / "sock"))
                kind, index = LIMITS_SET + number % 4, number % 3
                head = state_page.MAGIC, state_page.VERSION, kind, index, 0, 0, number % 9
                sizes = os.urandom(16) if number % 2 else bytes(16)
                request = struct.pack("=IIIIIIQ16s16x", *head, sizes)
                socket.send_fds(link, [request], fds[number % 3 : number % 3 + 1] if number % 5 else [])
                assert len(link.recv(64)) == 64
        for fd in fds[:2]:
            os.close(fd)
    assert run(program("copies"), started) == "ok\n"
    wait_until(lambda: len(list(table.iterdir())) <= before, "the end of all descriptors")
    assert started.finish() == (0, "")


def test_root_alone_sets_limits(device: MakeDevice, group: Path) -> None:
    started = make_limited(device)
    started.directory.parent.chmod(0o711)
    code = (
        "import ctypes, os, sys, pynvml\n"
        "from vgpud.devices import memory_limits\n"
        "pynvml.nvmlLib = ctypes.CDLL(sys.argv[1])\n"
        "os.setuid(65534)\n"
        "pynvml.nvmlInit()\n"
        "try: memory_limits.set_limit(pynvml.nvmlDeviceGetHandleByIndex(0), sys.argv[2], 1 << 30)\n"
        "except memory_limits.LimitError as error: print(error)\n"
    )
    command = [sys.executable, "-c", code, str(paths.sim_lib_dir() / "libnvidia-ml.so.1"), str(group)]
    env = started.environment(os.environ)
    done = subprocess.run(command, env=env, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "the driver lets root alone set them", done.stderr
