"""Tests bring their own world: they pass beside what vgpud and containers leave on a machine, and beside a daemon."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
#: some of those that meet a leftover first: programs outside slices, default places, a daemon of their own
MEETING_IT = (
    "tests/shim/test_link.py::test_without_a_slice_nothing_happens",
    "tests/shim/test_link.py::test_without_a_daemon_the_mode_decides",
    "tests/cli/system/test_sim.py",
    "tests/cli/system/test_remote_use.py::test_commands_of_this_machine_and_of_another_see_the_same",
    "tests/cli/test_real_daemon.py::test_a_program_sees_its_slice",
    "tests/cli/test_real_daemon.py::test_doctor_top_and_version_agree_with_the_daemon",
)
#: in a mount namespace of its own: root's daemon and simulated device at their default places, a cache filled by a
#: slice's program, docker set up for a daemon that is gone, and the folders that a container leaves which had the
#: host's /run
PLANT = """
set -eu
mount --make-rprivate /
for place in /run /var/lib /var/cache; do mount -t tmpfs -o mode=755 none "$place"; done
mkdir -p /run/lock /run/vgpu /run/vgpu-sim
for place in etc usr/lib; do
  mkdir -p "/run/over/$place" "/run/work/$place"
  mount -t overlay -o "lowerdir=/$place,upperdir=/run/over/$place,workdir=/run/work/$place" none "/$place"
done
vgpu() { "$PYTHON" -m vgpud.cli.main "$@"; }
vgpu setup docker --socket /run/elsewhere/runtime.sock --runtime sh
vgpu sim start >/dev/null
"$PYTHON" -m vgpud.serve serve --device sim --metrics off >"$LOG" 2>&1 &
daemon=$!
trap 'kill $daemon; wait $daemon; vgpu sim stop >/dev/null' EXIT
until [ -S /run/vgpud/vgpud.sock ]; do kill -0 $daemon; sleep 0.1; done
vgpu run --gpus 0.5 -- true
test -d /var/cache/vgpud/fitted
"$PYTHON" -m pytest -q -p no:cacheprovider "$@"
"""


@pytest.mark.root
@pytest.mark.slow
def test_tests_pass_beside_a_daemon_and_leftovers(tmp_path: Path) -> None:
    if not shutil.which("unshare") or subprocess.run(["unshare", "-m", "true"], check=False).returncode:
        pytest.skip("no mount namespace can be made here")
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")}
    env |= {"PYTHON": sys.executable, "LOG": str(tmp_path / "daemon.log"), "PYTHONPATH": str(ROOT)}
    command = ["unshare", "-m", "bash", "-c", PLANT, "planted", *MEETING_IT]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("send", ["kill", "killpg"])
def test_no_test_ends_the_tests(send: str) -> None:
    """A helper that has found no process answers 0, which means the group of the tests, and of what runs them."""
    with pytest.raises(AssertionError):
        getattr(os, send)(0, 0)
