"""C programs on a simulated device of their own."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud.simdevice.process import SimulatedDevice

ROOT = Path(__file__).resolve().parent.parent.parent
HERE = Path(__file__).resolve().parent
LIB = ROOT / "vgpud" / "lib" / "sim"
PROGRAM_SECONDS = 120

MakeDevice = Callable[..., SimulatedDevice]
MakeProgram = Callable[[str], Path]


@pytest.fixture(scope="session")
def program(tmp_path_factory: pytest.TempPathFactory) -> MakeProgram:
    """Compiles tests/sim/NAME.c against the simulated driver, once."""
    folder = tmp_path_factory.mktemp("programs")

    def make(name: str) -> Path:
        path = folder / name
        if not path.exists():
            flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-iquote", str(ROOT / "shim")]
            source = [str(HERE / f"{name}.c"), f"-L{LIB}", "-l:libcuda.so.1"]
            subprocess.run(["gcc", *flags, "-o", str(path), *source], check=True)
        return path

    return make


def build_sanitized(folder: Path, target: str, flags: list[str]) -> Path:
    """The simulated device's files in a folder, one of them (sim/NAME) under sanitizers. Skips where there are none."""
    sys.path.insert(0, str(ROOT / "shim"))
    try:
        import build_shim  # type: ignore[import-not-found, unused-ignore]
    finally:
        sys.path.pop(0)
    try:
        build_shim.build_target(target, folder, flags)
    except subprocess.CalledProcessError:
        pytest.skip("this compiler has no sanitizer libraries")
    for name in ("libcuda.so.1", "vgpu-simd", "kernels.model"):
        if target != f"sim/{name}":
            shutil.copy(LIB / name, folder / "sim" / name)
    return folder / "sim"


@pytest.fixture
def device(short_dir: Path) -> Iterator[MakeDevice]:
    """Starts simulated devices that are stopped at the end of the test."""
    started: list[SimulatedDevice] = []

    def make(lib_dir: Path | None = None, **config: object) -> SimulatedDevice:
        made = SimulatedDevice(
            short_dir / f"d{len(started)}", {k.replace("__", "."): v for k, v in config.items()}, lib_dir
        )
        started.append(made)
        made.start()
        return made

    yield make
    for made in started:
        made.stop()


class Running:
    """A program that communicates in JSON lines."""

    def __init__(self, command: list[str], env: dict[str, str]) -> None:
        self.process = subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE)

    def line(self) -> Any:
        assert self.process.stdout
        said = self.process.stdout.readline()
        assert said, f"the program ended with {self.process.wait()} and said nothing"
        return json.loads(said)

    def go(self) -> None:
        assert self.process.stdin
        self.process.stdin.write(b"\n")
        self.process.stdin.flush()

    def end(self) -> int:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        code = self.process.wait(PROGRAM_SECONDS)
        self.process.stdout.close()
        return code


@pytest.fixture
def start(program: MakeProgram) -> Iterator[Callable[..., Running]]:
    """Starts a C program on a device; killed at the end of the test when it still runs."""
    running: list[Running] = []

    def make(device: SimulatedDevice, name: str, *arguments: object, **environment: str) -> Running:
        env = {**device.environment(), **environment}
        running.append(Running([str(program(name)), *map(str, arguments)], env))
        return running[-1]

    yield make
    for one in running:
        one.process.kill()
        one.process.wait()
        for stream in (one.process.stdin, one.process.stdout):
            if stream:
                stream.close()


def run(program: Path, device: SimulatedDevice, **environment: str) -> str:
    """Runs a program to its end; what it said. Fails with what it complained about."""
    env = {**device.environment(), **environment}
    done = subprocess.run([str(program)], env=env, capture_output=True, text=True, timeout=PROGRAM_SECONDS)
    assert done.returncode == 0, done.stderr
    return done.stdout
