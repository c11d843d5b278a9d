"""A program and a job run through an upgrade of the daemon from the release before, and through the way back.

As docs/upgrade.md has it. The older release is built from its sources, so this is tried at night only; what becomes of
the database is tried at each change (tests/store/test_upgrade.py).
"""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from tests.daemon.node import wait_until
from tests.examples import QUICK
from tests.older import Sources, older_sources
from tests.rules.tree import ROOT
from vgpud.errors import ExitCode
from vgpud.simdevice.process import SimulatedDevice
from vgpud.store.database import FILE_NAME

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def older(tmp_path_factory: pytest.TempPathFactory) -> Sources:
    if settings().max_examples <= QUICK:
        pytest.skip("builds the release before: make test-nightly")
    found = older_sources(tmp_path_factory.mktemp("older"))
    found = older_sources(tmp_path_factory.mktemp("older"))
    found.run(found.directory / "shim/build_shim.py")
    return found


class Host:
    """A machine with a simulated device, on which daemons of several releases have the same directories."""

    def __init__(self, folder: Path) -> None:
        self.runtime, self.state, self.sim, self.log = (folder / name for name in ("r", "s", "d", "log"))
        self._daemon: subprocess.Popen[bytes] | None = None

    @property
    def daemon_words(self) -> list[object]:
        places = ["--sim-dir", self.sim, "--runtime-dir", self.runtime, "--state-dir", self.state, "--metrics", "off"]
        return ["-m", "vgpud.serve", "serve", "--device", "sim", *places]

    @property
    def vgpu_words(self) -> list[object]:
        return ["-m", "vgpud.cli.main", "--host", f"unix://{self.runtime}/vgpud.sock"]

    def serve(self, release: Sources) -> None:
        self._daemon = release.start(*self.daemon_words, output=self.log)
        wait_until(lambda: self._answers(release), f"the daemon's answer; {self.log.read_text()}")

    def _answers(self, release: Sources) -> bool:
        assert self._daemon and self._daemon.poll() is None, self.log.read_text()
        return release.start(*self.vgpu_words, "status", output=self.log).wait() == 0

    def stop(self) -> None:
        if self._daemon:
            self._daemon.send_signal(signal.SIGTERM)
            assert self._daemon.wait() == 0
        self._daemon = None

    def vgpu(self, release: Sources, *words: object) -> str:
        return release.run(*self.vgpu_words, *words)

    def list_rows(self, release: Sources, *words: object) -> Any:
        (rows,) = (v for v in json.loads(self.vgpu(release, *words, "-o", "json")).values() if isinstance(v, list))
        return rows


@pytest.fixture
def host(short_dir: Path, older: Sources) -> Iterator[Host]:
    with SimulatedDevice(short_dir / "d", lib_dir=older.directory / "vgpud/lib/sim"):
        made = Host(short_dir)
        yield made
        made.stop()


def test_a_program_and_a_job_run_through_it(host: Host, older: Sources, short_dir: Path) -> None:
    newer = Sources(ROOT)
    host.serve(older)
    load = ["--", sys.executable, "-m", "vgpud.cli.main", "sim", "load", "trainer"]
    printed = short_dir / "printed"
    program = older.start(*host.vgpu_words, "run", "--name", "kept", "--gpus", "0.5", *load, output=printed)
    try:
        host.vgpu(older, "submit", "--gpus", "0.25", "--log", short_dir / "job.log", "--", "sleep", "600")

        def is_running(release: Sources) -> bool:
            """The program is attached and continues, and the job runs."""
            before = len(printed.read_text().splitlines())
            wait_until(lambda: len(printed.read_text().splitlines()) > before, "a further second of the program")
            states = [job["state"] for job in host.list_rows(release, "job", "ls")]
            return bool(host.list_rows(release, "ps")) and states == ["running"]

        wait_until(lambda: is_running(older), "program and job")
        host.stop()

        host.serve(newer)
        wait_until(lambda: is_running(newer), "program and job after the upgrade")
        host.vgpu(newer, "slice", "create", "later", "--gpus", "0.1")
        host.stop()

        copies = sorted(host.state.glob(f"{FILE_NAME}.backup-*"))
        if copies:  # the release before has an older database
            assert "newer vgpud" in older.run(*host.daemon_words, code=ExitCode.OTHER)
            newer.run("-m", "vgpud.cli.main", "restore", "--state-dir", host.state, copies[-1])
        host.serve(older)
        wait_until(lambda: is_running(older), "program and job after the way back")
        names = {one["name"] for one in host.list_rows(older, "slice", "ls")}
        assert "kept" in names and ("later" in names) == (not copies)
        host.vgpu(older, "job", "cancel", "1")
    finally:
        program.kill()
        program.wait()
