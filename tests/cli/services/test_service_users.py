"""Services of users who are not root, under root's daemon: their balancers have their rights and no others."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud.cli.demo.private_system import OwnSystem
from vgpud.errors import ExitCode

from .test_service_real import BUILT, PROGRAM, SMALL, ask, system, wait_until

__all__ = ["system"]  # a fixture
USER, STRANGER = 5, 2  # games and bin, of every Debian
#: where the user may not read what is installed
IMPORTS = (
    "import grpc_status.rpc_status, google.rpc.error_details_pb2, textwrap, vgpud.cli.common.client\n"
    "import vgpud.cli.jobs.wait\n"
    "import vgpud.cli.services.service, vgpud.cli.services.listing, vgpud.cli.jobs.submit, vgpud.view.job_tables\n"
    "import vgpud.services.shell.starting, vgpud.services.shell.control_client, vgpud.cli.jobs.job\n"
)
AS_USER = """
import os, sys
from vgpud.cli.main import main
uid = int(sys.argv.pop(1))
os.setgroups([]); os.setgid(uid); os.setuid(uid)
main()
"""


def others_may_run(path: Path) -> bool:
    """As they can where vgpud is installed for all."""
    return all(folder.stat().st_mode & 0o001 for folder in path.resolve().parents)


pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root to become another user"),
    pytest.mark.root,
    pytest.mark.timeout(300),
]
Call = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def as_user(system: OwnSystem, short_dir: Path) -> Iterator[Call]:
    """`vgpu ARGS` as a user, in a home directory of theirs. No job is left."""
    short_dir.chmod(0o755)
    (short_dir / "program.py").write_text(PROGRAM)

    def call(uid: int, *args: str) -> subprocess.CompletedProcess[str]:
        home = short_dir / f"home-{uid}"
        if not home.exists():
            home.mkdir()
            os.chown(home, uid, uid)
        environment = {**system.env, "HOME": str(home), "PYTHONPATH": os.pathsep.join(sys.path)}
        command = [sys.executable, "-c", IMPORTS + AS_USER, str(uid), "--host", system.host, *args]
        return subprocess.run(command, env=environment, cwd=home, capture_output=True, text=True, timeout=120)

    yield call
    for uid in (USER, 0):
        left = call(uid, "job", "ls", "-o", "name").stdout.split()
        if left:
            call(uid, "job", "cancel", *left)
            call(uid, "job", "wait", *left)


@pytest.mark.skipif(not others_may_run(Path(sys.executable)), reason="other users cannot run this Python")
def test_a_users_service(as_user: Call, short_dir: Path) -> None:
    program = ("--", sys.executable, str(short_dir / "program.py"), "one")
    result = as_user(USER, "service", "start", *SMALL, "--name", "web", "--replicas", "2", *program)
    assert result.returncode == 0, result

    def show() -> dict[str, Any]:
        found: dict[str, Any] = json.loads(as_user(USER, "service", "show", "web", "-o", "json").stdout)["service"]
        return found

    wait_until(lambda: show()["healthy"] == 2)
    address = json.loads(as_user(USER, "service", "url", "web", "-o", "json").stdout)
    host, _, port = address["url"].removeprefix("http://").rpartition(":")
    status, text = ask(host, int(port), address["token"])
    assert (status, text.split()[1:]) == (200, ["one", "True"])
    assert (short_dir / f"home-{USER}/.local/state/vgpud/services/web/service.json").stat().st_uid == USER
    assert "no service web runs" in as_user(STRANGER, "service", "show", "web").stderr
    assert "web" not in as_user(STRANGER, "service", "ls", "-o", "name").stdout
    assert as_user(0, "service", "ls", "-o", "name").stdout.split() == ["web"], "admins see that there is one"
    assert as_user(USER, "service", "restart", "web").returncode == 0
    wait_until(lambda: [one["generation"] for one in show()["replicas"]] == [2, 2] and show()["healthy"] == 2)
    assert as_user(USER, "service", "stop", "web").returncode == 0
    wait_until(lambda: not as_user(USER, "job", "ls", "-o", "name").stdout)


@pytest.mark.skipif(others_may_run(Path(sys.executable)), reason="other users can run this Python")
def test_a_user_who_cannot_run_vgpuds_python_is_told(as_user: Call) -> None:
    result = as_user(USER, "service", "start", *SMALL, "--name", "web", "--", "true")
    print(result)
    assert result.returncode == ExitCode.DENIED and "install vgpud where all users may read it" in result.stderr, result
