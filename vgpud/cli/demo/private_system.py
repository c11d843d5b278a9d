"""A private system: a daemon (and optionally a simulated device) in a directory of its own, and tenants on it.

Used by `vgpu demo` and by the benchmarks. The site's daemon is not touched: sockets, state and logs are in the given
directory. Every process is started in its own session, so Ctrl-C reaches only the caller, which then stops all of them
in order; if the caller is killed, the kernel ends its children.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from vgpud.errors import VgpudError

if TYPE_CHECKING:
    from vgpud.cli.common.client import Client

#: directory that vgpud is imported from
ROOT = Path(__file__).resolve().parents[3]
READY_TIMEOUT_S = 20.0
STOP_TIMEOUT_S = 10.0
#: between two looks of wait_for
POLL_MIN_S, POLL_MAX_S = 0.02, 0.5
#: a unix socket's path has 107 bytes: the rest is for /run/slices/NAME/attach.sock with a name of 20 letters
FOLDER_BYTES_MAX = 62
_PR_SET_PDEATHSIG = 1
_libc = ctypes.CDLL(None)


class PartError(VgpudError):
    """A part of the private system did not start or ended early; the message ends with its log's last line."""


def last_line(path: Path) -> str:
    """The last non-empty line of a log, for an error message."""
    lines = [line.strip() for line in path.read_text(errors="replace").splitlines() if line.strip()]
    return lines[-1] if lines else "its log is empty"


def wait_for(what: str, ready: Callable[[], bool], timeout_s: float = READY_TIMEOUT_S) -> None:
    """Polls until ready() is true, for about half of the time: what is waited for needs processors too.

    Raises PartError after timeout_s.
    """
    end_s = time.monotonic() + timeout_s
    while True:
        begin_s = time.monotonic()
        if ready():
            return
        now_s = time.monotonic()
        if now_s > end_s:
            raise PartError(f"{what} was not ready after {timeout_s:.0f} s")
        time.sleep(min(max(POLL_MIN_S, now_s - begin_s), POLL_MAX_S))


class Part:
    """A process of the system, its output in a file. It reads nothing, or (talk) what is written to process.stdin."""

    def __init__(
        self, name: str, command: Sequence[str], env: Mapping[str, str], folder: Path, talk: bool = False
    ) -> None:
        self.name = name
        self.output_file = folder / f"{name}.out"
        self.error_file = folder / f"{name}.log"
        with self.output_file.open("wb") as out, self.error_file.open("ab") as err:
            self.process = subprocess.Popen(
                list(command),
                env=dict(env),
                cwd=folder,  # python -m imports from the working directory first, which may be anything
                stdin=subprocess.PIPE if talk else subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=True,
                preexec_fn=die_with_parent,  # one system call, no lock is taken
            )
        self._read_bytes = 0

    @property
    def running(self) -> bool:
        return self.process.poll() is None

    def check(self) -> None:
        """Raises PartError when the process has ended."""
        if not self.running:
            raise PartError(f"{self.name} ended with code {self.process.returncode}: {last_line(self.error_file)}")

    def lines(self) -> Iterator[dict[str, Any]]:
        """The JSON lines that it has printed since the last call; other lines are ignored."""
        with self.output_file.open("rb") as file:
            file.seek(self._read_bytes)
            whole, newline, _rest = file.read().rpartition(b"\n")
        self._read_bytes += len(whole) + len(newline)
        for line in whole.splitlines():
            if line.startswith(b"{"):
                yield json.loads(line)

    def stop(self, number: signal.Signals = signal.SIGTERM, timeout_s: float = STOP_TIMEOUT_S) -> int:
        """Sends SIGTERM, kills the process (and its session) if it does not end, and returns the exit code."""
        if self.running:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)
            try:
                self.process.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.kill()
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.process.pid, signal.SIGKILL)  # processes left behind in its session
        return self.process.wait()

    def kill(self) -> None:
        """SIGKILL to the process alone."""
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()


def die_with_parent() -> None:
    """The kernel sends this process SIGTERM when its parent ends."""
    _libc.prctl(_PR_SET_PDEATHSIG, signal.SIGTERM, 0, 0, 0)


class OwnSystem:
    """Use it in a `with`: starts in __enter__, stops everything in __exit__.

    sim_config: lines of the simulated device's configuration; None: the real driver is used. config: further keys of
    the daemon's configuration file, as TOML lines.
    """

    def __init__(self, folder: Path, sim_config: Mapping[str, str] | None, config: Sequence[str] = ()) -> None:
        self.folder = folder
        self.is_simulated = sim_config is not None
        self._sim_config = sim_config or {}
        self._config = config
        self.sim_dir = folder / "sim"
        self.host = f"unix://{folder / 'run' / 'vgpud.sock'}"
        self.env = {**os.environ, "PYTHONUNBUFFERED": "1", "VGPU_HOST": self.host}
        self.env.pop("LD_PRELOAD", None)
        self.env["PYTHONPATH"] = ":".join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        self.device: Part | None = None
        self.daemon: Part | None = None
        self.tenants: list[Part] = []

    def __enter__(self) -> OwnSystem:
        if len(os.fsencode(self.folder)) > FOLDER_BYTES_MAX:
            raise PartError(f"{self.folder} is too long a path for sockets: set TMPDIR to a shorter one")
        self.folder.mkdir(parents=True, exist_ok=True)
        try:
            if self.is_simulated:
                self._start_device()
            self._write_config()
            self.start_daemon()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    def _start_device(self) -> None:
        from vgpud import paths

        self.sim_dir.mkdir(mode=0o755, exist_ok=True)  # containers have it mounted, and run as any user
        config = self.folder / "sim.conf"
        config.write_text("".join(f"{key} = {value}\n" for key, value in self._sim_config.items()))
        server = paths.sim_lib_dir() / "vgpu-simd"
        if not server.exists():
            raise PartError(f"{server} is not built: run make, or python shim/build_shim.py")
        command = [str(server), "--dir", str(self.sim_dir), "--config", str(config), "--foreground"]
        self.env["VGPU_SIM_DIR"] = str(self.sim_dir)
        self.device = Part("device", command, self.env, self.folder)
        wait_for("the simulated device", lambda: self._alive(self.device) and (self.sim_dir / "sock").exists())

    @staticmethod
    def _alive(part: Part | None) -> bool:
        assert part
        part.check()
        return True

    def _write_config(self) -> None:
        lines = [
            f'runtime_dir = "{self.folder / "run"}"',
            f'state_dir = "{self.folder / "state"}"',
            'metrics = "off"',
        ]
        if self.is_simulated:
            lines += ['device = "sim"', f'sim_dir = "{self.sim_dir}"']
        (self.folder / "vgpud.toml").write_text("\n".join([*lines, *self._config]) + "\n")

    def start_daemon(self) -> None:
        """Starts the daemon, also after it was killed, and waits until it answers."""
        command = [sys.executable, "-m", "vgpud.serve", "serve", "--config", str(self.folder / "vgpud.toml")]
        self.daemon = Part("vgpud", command, self.env, self.folder)
        wait_for("the daemon", lambda: self._alive(self.daemon) and self._answers())

    def _answers(self) -> bool:
        from vgpud.client import calls
        from vgpud.errors import CliError

        try:
            with self.client() as client:
                client.send(calls.node())
        except CliError:
            return False
        return True

    def client(self) -> Client:
        """A connection to the daemon; use it in a `with`."""
        from vgpud.cli.common.client import Client
        from vgpud.cli.common.options import Settings

        return Client(Settings(host=self.host))

    def device_name(self) -> str:
        """The name of the first device, as the daemon shows it."""
        from vgpud.client import calls

        with self.client() as client:
            return client.all(calls.devices())[0].name

    def vgpu(self, *arguments: str) -> str:
        """What a `vgpu` command has printed at its end. Raises PartError with its message when it fails."""
        command = [sys.executable, "-m", "vgpud.cli.main", *arguments]
        done = subprocess.run(command, env=self.env, cwd=self.folder, capture_output=True, text=True, check=False)
        if done.returncode:
            raise PartError(f"vgpu {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def run(
        self,
        name: str,
        amounts: Sequence[str],
        command: Sequence[str],
        env: Mapping[str, str] | None = None,
        talk: bool = False,
    ) -> Part:
        """Starts `vgpu run` with a new slice of this name (or joins it, with amounts = ())."""
        which = ["--name", name, *amounts] if amounts else ["--slice", name]
        whole = [sys.executable, "-m", "vgpud.cli.main", "run", *which, "--", *command]
        tenant = Part(f"tenant-{name}-{len(self.tenants)}", whole, {**self.env, **(env or {})}, self.folder, talk)
        self.tenants.append(tenant)
        return tenant

    def busy_log(self, index: int = 0) -> Path:
        """The simulated device's own record of its use by process."""
        return self.sim_dir / f"busy-{index}.log"

    def stop(self) -> None:
        """Ends tenants, daemon and device, in this order."""
        for tenant in self.tenants:
            if tenant.running:
                with contextlib.suppress(ProcessLookupError):
                    tenant.process.send_signal(signal.SIGTERM)
        for part in [*self.tenants, self.daemon, self.device]:
            if part:
                part.stop()
