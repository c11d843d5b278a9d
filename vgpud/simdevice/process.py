"""A simulated device of one's own: start and stop its server, the environment for programs on it, its busy log.

Used by tests, benchmarks and the demo. The simulated driver is chosen only by asking for it: nothing falls back to it.
"""

from __future__ import annotations

import os
import selectors
import subprocess
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import BinaryIO

from vgpud import paths
from vgpud.errors import ConfigError, DriverError, VgpudError
from vgpud.simdevice.busy_log import Span, read_busy_log
from vgpud.simdevice.link_log import LinkUse, read_link_log

READY_SECONDS = 20.0
STOP_SECONDS = 5.0
CONFIG_NAME = "sim.conf"
COMPLAINTS_NAME = "stderr"


def environment(directory: Path, base: Mapping[str, str] | None = None, lib_dir: Path | None = None) -> dict[str, str]:
    """The environment in which an unmodified program finds the simulated driver and the server in directory.

    base: what to start from (this process's environment); lib_dir: where libcuda.so.1 lies (the installed one).
    """
    env = dict(os.environ if base is None else base)
    found = str(lib_dir or paths.sim_lib_dir())
    env["LD_LIBRARY_PATH"] = f"{found}:{env['LD_LIBRARY_PATH']}" if env.get("LD_LIBRARY_PATH") else found
    env["VGPU_SIM_DIR"] = str(directory)
    return env


class SimulatedDevice:
    """The server of simulated devices in a directory; use it in a `with`. It ends when this process ends, however.

    config: keys of its configuration (devices, memory_bytes, slice_us, switch_us, launch_cost_ns,
    link_bytes_per_us, context_bytes, host_memory_bytes, managed_fault_ns, model, device.<i>.name, .mig and so on);
    lib_dir: a folder with another build of vgpu-simd and the libraries.
    Raises ConfigError when the server refuses the configuration, DriverError when it does not start.
    """

    def __init__(
        self, directory: Path, config: Mapping[str, object] | None = None, lib_dir: Path | None = None
    ) -> None:
        self.directory = directory
        self.lib_dir = lib_dir or paths.sim_lib_dir()
        self._config = dict(config or {})
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> SimulatedDevice:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @property
    def pid(self) -> int:
        """The server's process. Raises DriverError when it does not run."""
        if self._process is None:
            raise DriverError(f"{self.directory}: the simulated device is not running: start it first")
        return self._process.pid

    def start(self) -> None:
        """Starts the server and waits until it accepts programs."""
        server = self.lib_dir / "vgpu-simd"
        if not server.exists():
            raise DriverError(f"{server} is not built: run `make`, or python shim/build_shim.py")
        self.directory.mkdir(parents=True, exist_ok=True)
        config = self.directory / CONFIG_NAME
        config.write_text("".join(f"{key} = {value}\n" for key, value in self._config.items()))
        command = [str(server), "--dir", str(self.directory), "--config", str(config)]
        with (self.directory / COMPLAINTS_NAME).open("wb") as complaints:
            self._process = self._popen(command, complaints)
        try:
            self._wait_ready(self._process)
        except VgpudError:
            self.stop()
            raise

    @staticmethod
    def _popen(command: list[str], complaints: BinaryIO) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [*command, "--foreground", "--exit-on-stdin-eof"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=complaints,
            start_new_session=True,  # Ctrl-C is for the program; the device ends with its standard input
        )

    def _wait_ready(self, process: subprocess.Popen[bytes]) -> None:
        assert process.stdout
        with selectors.DefaultSelector() as selector:  # unlike select() it takes descriptors above 1023
            selector.register(process.stdout, selectors.EVENT_READ)
            readable = selector.select(READY_SECONDS)
        if not readable:
            raise DriverError(f"{self.directory}: vgpu-simd is not ready after {READY_SECONDS:.0f} s")
        if process.stdout.readline():
            return
        code = process.wait()
        raise (ConfigError if code == 2 else DriverError)(self.complaints().strip() or f"vgpu-simd ended with {code}")

    def stop(self) -> None:
        """Stops the server; programs on it get CUDA_ERROR_DEVICE_UNAVAILABLE from then on. Twice does no harm."""
        self.finish()

    def finish(self) -> tuple[int, str]:
        """Stops the server; its exit code and what it complained about. (0, "") when it did not run."""
        process, self._process = self._process, None
        if process is None:
            return 0, ""
        assert process.stdin
        assert process.stdout
        process.stdin.close()  # its lifeline
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()
        return process.returncode, self.complaints()

    def complaints(self) -> str:
        """What the server has written to its standard error."""
        return (self.directory / COMPLAINTS_NAME).read_text(errors="replace")

    def environment(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment for programs on this device."""
        return environment(self.directory, base, self.lib_dir)

    def busy_log(self, device: int = 0) -> list[Span]:
        """Which process had the SMs when (CLOCK_MONOTONIC), as far as written: at most some 10 ms behind, complete when
        idle."""
        return read_busy_log(self.directory / f"busy-{device}.log")

    def link_log(self, device: int = 0) -> list[LinkUse]:
        """Which process used how much of the device's links when, as far as written."""
        return read_link_log(self.directory / f"links-{device}.log")

    def cpu_seconds(self) -> float:
        """Processor time that the server has used so far. Raises DriverError when it does not run."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rsplit(")", 1)[1].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
