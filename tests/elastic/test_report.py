"""`vgpud.client.report`: cheap, silent, and never in the program's way."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.elastic.fake_coordinator import Coordinator

ROOT = Path(__file__).resolve().parents[2]
LOOP = "import time, vgpud.client as c\nfor i in range(30):\n    c.report(samples=64)\n    time.sleep(0.05)\n"


def run(program: str, env: dict[str, str]) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", program]
    env = {"PYTHONPATH": str(ROOT), **env}
    return subprocess.run(command, env=env, capture_output=True, text=True, check=True, timeout=60)


def test_what_is_reported_adds_up(tmp_path: Path) -> None:
    with Coordinator(tmp_path, []) as peers:
        run(LOOP, peers.environment())
        assert sum(r.samples for r in peers.reports) == 29 * 64, "all but the first, which took nobody knows how long"
        assert sum(r.steps for r in peers.reports) == 29
        assert sum(r.seconds for r in peers.reports) == pytest.approx(29 * 0.05, rel=0.5)
        assert len(peers.reports) <= 4 and {r.job_id for r in peers.reports} == {7}


def test_no_daemon_no_trouble(tmp_path: Path) -> None:
    env = {"VGPU_JOB_ID": "3", "VGPU_HOST": f"unix://{tmp_path}/nobody.sock"}
    done = run(LOOP.replace("30", "3"), env)
    assert not done.stdout and not done.stderr


@pytest.mark.parametrize("number", ["x", "1"])
def test_outside_a_job_nothing_happens(number: str) -> None:
    env = {"VGPU_JOB_ID": number} if number == "x" else {}
    program = "import sys, vgpud.client as c\nc.report(samples=3)\nc.report(samples=3)\nprint('grpc' in sys.modules)\n"
    assert run(program, env).stdout.split()[-1] in ("False", "True" if number == "x" else "False")


@pytest.mark.parametrize("nonsense", ["-1", "float('nan')", "'many'", "1 << 60", "None"])
def test_nonsense_is_named_once(nonsense: str) -> None:
    done = run(
        f"import vgpud.client as c\nc.report({nonsense})\nc.report({nonsense})\n",
        {"VGPU_JOB_ID": "3"} | {},
    )
    assert len(done.stderr.splitlines()) == 1 and "not counts" in done.stderr


def test_a_child_that_was_forked_off_is_silent(tmp_path: Path) -> None:
    program = (
        LOOP + "import os\npid = os.fork()\nif not pid:\n    c.report(samples=10**6)\n    raise SystemExit\nos.wait()\n"
    )
    with Coordinator(tmp_path, []) as peers:
        done = run(program, peers.environment())
        assert sum(r.samples for r in peers.reports) == 29 * 64
        assert not done.stderr, "grpc has nothing to say about forks"


def test_forks_of_an_elastic_worker_are_silent_too(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    program = (
        "import os, time, vgpud.elastic\nfrom vgpud.elastic.peers import Elastic\npeers = Elastic(os.environ, 1)\n"
        "time.sleep(1)\nif not os.fork():\n    os._exit(0)\nos.wait()\npeers.end(False)\n"
    )
    with Coordinator(tmp_path, []) as peers:
        done = run(program, peers.environment() | {"VGPU_WORKER": "0"})
        assert [request.worker for request in peers.requests] == [0], "there was a stream"
        assert not done.stderr


def test_the_import_is_small() -> None:
    program = "import sys, vgpud.client\nprint({'torch', 'grpc', 'numpy'} & set(sys.modules))\n"
    assert run(program, {}).stdout.strip() == "set()"


@pytest.mark.parametrize("has_daemon", [True, False])
def test_sums_are_also_written_to_the_file_that_a_tuning_names(tmp_path: Path, has_daemon: bool) -> None:
    path = tmp_path / "reports"
    with Coordinator(tmp_path, []) as peers:
        env = peers.environment() | {"VGPU_PROGRESS_FILE": str(path)}
        run(LOOP, env if has_daemon else env | {"VGPU_HOST": f"unix://{tmp_path}/nobody.sock"})
    lines = [line.split() for line in path.read_text().splitlines()]
    assert len({pid for pid, _, _ in lines}) == 1
    sums = [(int(samples), float(seconds)) for _, samples, seconds in lines]
    assert sums == sorted(sums) and sums[-1][0] == 29 * 64
    assert sums[-1][1] == pytest.approx(29 * 0.05, rel=0.5)


def test_a_file_that_cannot_be_written_is_no_trouble(tmp_path: Path) -> None:
    with Coordinator(tmp_path, []) as peers:
        done = run(LOOP, peers.environment() | {"VGPU_PROGRESS_FILE": str(tmp_path / "no/such")})
        assert sum(r.samples for r in peers.reports) == 29 * 64 and not done.stderr
