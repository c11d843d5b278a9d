"""The server under AddressSanitizer and UndefinedBehaviorSanitizer: the same programs, and faults on purpose."""

from __future__ import annotations

import contextlib
import os
import socket
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from vgpud.simdevice import state_page

from .conftest import MakeDevice, MakeProgram, Running, build_sanitized, run

FLAGS = ["-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]


@pytest.fixture(scope="session")
def sanitized_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the usual client library and a server that is watched."""
    return build_sanitized(tmp_path_factory.mktemp("sanitized"), "sim/vgpu-simd", FLAGS)


@pytest.mark.parametrize(
    "name", ["memory", "order", "copies", "arrays", "states", "green", "external", "first", "batches", "settings"]
)
def test_programs(device: MakeDevice, program: MakeProgram, sanitized_dir: Path, name: str) -> None:
    made = device(sanitized_dir, devices=2, memory_bytes="1G", context_bytes="64M")
    assert run(program(name), made) == "ok\n"
    assert made.finish() == (0, "")


def test_kernels_that_fault(device: MakeDevice, program: MakeProgram, sanitized_dir: Path) -> None:
    made = device(sanitized_dir)
    assert run(program("sticky"), made, FAULT="fault_700") == "ok\n"
    assert made.finish() == (0, "")


def test_processes_that_are_moved_off(
    device: MakeDevice, start: Callable[..., Running], program: MakeProgram, sanitized_dir: Path
) -> None:
    made = device(sanitized_dir)
    target = start(made, "checkpoint_target", "self")
    assert target.line() == {"same": 1}
    for words in (["lock", "save", "restore", "unlock"], ["lock", "save"]):
        command = [str(program("checkpoint")), str(target.process.pid), *words]
        subprocess.run(command, env=made.environment(), stdout=subprocess.DEVNULL, check=True)
    target.process.kill()
    target.process.wait()
    assert made.finish() == (0, "")


def test_death_and_garbage(
    device: MakeDevice, start: Callable[..., Running], program: MakeProgram, sanitized_dir: Path
) -> None:
    made = device(sanitized_dir, devices=2)
    running = [start(made, "saturate", us, 5) for us in (20, 1000, 40000)]
    running += [start(made, "meet", 1000, 100, *how) for how in ((), ("processes",))]
    for one in running:
        one.line()
        one.go()
    for seed in range(20):
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as link:
            link.connect(str(made.directory / "sock"))
            link.send(struct.pack("=IIIIIIQ32s", state_page.MAGIC, state_page.VERSION, 1, 0, 0, 0, 0, b"garbage"))
            _, fds, _, _ = socket.recv_fds(link, 64, 4)
            link.send(struct.pack("=IIIIIIQ32s", state_page.MAGIC, state_page.VERSION, 4, seed % 3, 0, 0, 0, b""))
            # plausible commands with invalid operands: operation below 10, a few streams
            wild = bytearray(os.urandom(64 * 200))
            for at in range(0, len(wild), 64):
                wild[at + 24 : at + 28] = struct.pack("=I", wild[at + 24] % 4)
                wild[at + 36 : at + 38] = struct.pack("=H", wild[at + 36] % 10)
            os.pwrite(fds[0], wild, 4096)
            os.pwrite(fds[0], struct.pack("=Q", 200), 0)
            with contextlib.suppress(BrokenPipeError):  # it may have been looked at already
                link.send(struct.pack("=IIIIIIQ32s", state_page.MAGIC, state_page.VERSION, 6, 0, 0, 0, 0, b""))
            for fd in fds:
                os.close(fd)
    for one in running:
        one.process.kill()
    assert run(program("copies"), made) == "ok\n"
    code, said = made.finish()
    assert code == 0
    assert all("is disconnected" in line for line in said.splitlines())
