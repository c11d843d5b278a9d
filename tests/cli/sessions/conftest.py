"""A daemon with a simulated device, a console, and a session that answers: the same for the tests of a file."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.cli.own_system import own_system
from tests.cli.sessions.world import (
    PROGRAM,
    Console,
    wait_until,
)
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb


@pytest.fixture(scope="module")
def system() -> Iterator[OwnSystem]:
    with own_system() as made:
        yield made


@pytest.fixture(scope="module")
def console(system: OwnSystem) -> Iterator[Console]:
    runtime = Path(tempfile.mkdtemp(prefix="vgc-", dir="/tmp"))
    runtime.chmod(0o755)
    made = Console(system.host, runtime)
    yield made
    made.stop()
    shutil.rmtree(runtime)


@pytest.fixture(scope="module")
def session(system: OwnSystem, console: Console) -> Iterator[str]:
    """The path of a session that answers, the same for most tests."""
    spec = pb.JobSpec(session="web", slice=pb.SliceSpec(gpus_milli=250), directory=str(system.folder), name="shared")
    spec.command.extend([sys.executable, str(PROGRAM)])
    spec.environment["VGPU_SIM_DIR"] = str(system.sim_dir)
    with system.client() as client:
        (job_id,) = client.send(calls.submit(spec, ""))
    owner = console.log_in()
    wait_until(lambda: owner.get(f"/session/{job_id}/")[0] == 200)
    yield f"/session/{job_id}/"
    with system.client() as client:  # jobs outlive their daemon
        client.send(calls.cancel(job_id))
        wait_until(lambda: client.send(calls.job(job_id)).state in calls.ENDED)


@pytest.fixture
def real(system: OwnSystem, short_dir: Path, monkeypatch: pytest.MonkeyPatch, vgpu: Any) -> Iterator[Any]:
    """`vgpu ARGS` in this process; no job is left after the test but the session of all."""
    monkeypatch.chdir(short_dir)
    for name, value in system.env.items():
        if name.startswith("VGPU_"):
            monkeypatch.setenv(name, value)

    def call(*args: str) -> Any:
        return vgpu(*args, host=system.host)

    yield call
    rows = call("job", "ls", "-o", "json").json["jobs"]
    left = [str(row["job_id"]) for row in rows if row["name"] != "shared"]
    if left:
        call("job", "cancel", *left)
        call("job", "wait", *left)
