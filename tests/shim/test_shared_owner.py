"""Memory crosses between the slices of one user by a descriptor, and not to another user's program."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shim.fake_daemon import MIB, FakeDaemon, FakeDevice
from tests.shim.test_memory import ASK_UUID
from vgpud.simdevice import process as sim_process

TENANT = Path(__file__).with_name("owner_tenant.py")
OTHER_UID = 64203
NOT_PERMITTED = 800


@pytest.fixture
def environment(shim: Path, short_dir: Path) -> object:
    with sim_process.SimulatedDevice(short_dir / "sim", {"devices": 1}) as device:
        env = {**os.environ, **device.environment(), "VGPU_DRIVER": str(device.lib_dir / "libcuda.so.1")}
        asked = subprocess.run([sys.executable, "-c", ASK_UUID], env=env, capture_output=True, check=True)
        with FakeDaemon(short_dir / "attach.sock", [FakeDevice(asked.stdout, 1024 * MIB, 64 * MIB)]) as fake:
            for path in (short_dir, *short_dir.rglob("*")):
                path.chmod(0o777)
            yield env | {"LD_PRELOAD": str(shim), "VGPU_SOCKET": str(fake.path)}


def ask(environment: dict[str, str], uid: int) -> dict[str, int]:
    command = [sys.executable, str(TENANT), str(uid)]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60, check=False)
    assert done.returncode == 0, done.stderr
    answer: dict[str, int] = json.loads(done.stdout)
    return answer


def test_programs_of_one_user_share(environment: dict[str, str]) -> None:
    assert ask(environment, os.getuid()) == {"import": 0, "again": 0}


@pytest.mark.root
def test_another_users_program_is_refused(environment: dict[str, str]) -> None:
    """Also of what root has made; and what it has made itself, it may import."""
    assert ask(environment, OTHER_UID) == {"import": NOT_PERMITTED, "again": 0}
