"""Restart policies beside a job that waits for the devices: the container has its slice again, the job waits on."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from benchmarks import engine
from vgpud.cli.demo.private_system import OwnSystem

from .helpers import Engine, events, own_name, slices, until, until_free, vgpu

#: both devices
ALL = ("-e", "VGPU=2", "-e", "VGPU_MEM=2g")
pytestmark = pytest.mark.slow


@pytest.fixture
def job_id(system: OwnSystem) -> Iterator[Callable[[], str]]:
    """job_id(): the number of a job that is submitted then, which needs a device. Ended after the test."""
    made: list[str] = []

    def submit() -> str:
        made.append(vgpu(system, "submit", "--gpus", "1", "--log", "/dev/null", "--", "sleep", "600").split()[0])
        return made[-1]

    yield submit
    for one in made:
        system.vgpu("job", "cancel", one)
    until("the jobs' end", lambda: not any(name.startswith("j-") for name in slices(system)))


def state(system: OwnSystem, job: str) -> str:
    return str(json.loads(vgpu(system, "job", "show", job, "-o", "json"))["job"]["state"])


def containers_pid(system: OwnSystem, container: str) -> int:
    """The host's pid of its first process, 0 while it is away."""
    found = slices(system).get(own_name(container))
    return found.containers[0].pid if found and found.containers else 0


def until_again(site: Engine, system: OwnSystem, container: str, old_pid: int) -> int:
    def has_restarted() -> bool:
        shown = site.cli("inspect", "-f", "{{.State.Pid}}", container).stdout.strip()
        return shown not in ("", "0", str(old_pid)) and int(shown) == containers_pid(system, container)

    until(f"the restart of {container[:12]}", has_restarted)
    return containers_pid(system, container)


@pytest.mark.parametrize("policy", ["always", "unless-stopped", "on-failure:3"])
def test_its_place_is_kept(either: Engine, system: OwnSystem, job_id: Callable[[], str], policy: str) -> None:
    container = either.start_container(*ALL, f"--restart={policy}", engine.BASE, "sleep", "600")
    uid = slices(system)[own_name(container)].uid
    job = job_id()
    pid = containers_pid(system, container)
    for _ in range(2):
        os.kill(pid, signal.SIGKILL)
        pid = until_again(either, system, container, pid)
    assert slices(system)[own_name(container)].uid == uid and state(system, job) == "pending"
    either.cli("stop", "-t", "0", container)
    until("the job", lambda: state(system, job) == "running")


def test_one_that_is_not_started_again_gives_its_place_up(either: Engine, system: OwnSystem) -> None:
    """It succeeds; or it has no policy, and is in no hurry to be removed."""
    for policy in ("on-failure:3", "no"):
        container = either.start_container(*ALL, f"--restart={policy}", engine.BASE, "sleep", "1")
        until_free(system)
        assert containers_pid(system, container) == 0


def test_a_removed_one_gives_its_place_up(docker: engine.Docker, system: OwnSystem) -> None:
    """While docker waits before it starts it again."""
    container = docker.start_container(*ALL, "--restart=always", engine.BASE, "false")
    until("it to be away", lambda: any(container[:12] in text for text in events(system, "container.away")))
    docker.remove(container)
    until_free(system)


def test_dockerd_and_vgpud_are_away_at_the_same_time(
    docker: engine.Docker, system: OwnSystem, job_id: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """dockerd starts its containers when vgpud is not there yet: they wait for it, and the job does not get between."""
    container = docker.start_container(*ALL, "--restart=always", engine.BASE, "sleep", "600")
    job = job_id()
    pid = containers_pid(system, container)
    assert system.daemon
    system.daemon.kill()
    docker.stop_daemon(signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    answers, waited = docker._answers, []

    def vgpud_comes() -> bool:
        """Once a vgpu-runtime has waited for longer than it does for a vgpud that was never there."""
        if not waited and asking(container):
            time.sleep(2)
            waited.append(asking(container))
            system.start_daemon()
        return bool(waited)

    def answers_then() -> bool:
        """Not asked before: a dockerd answers when it has started its containers, or given them up."""
        until("vgpu-runtime", vgpud_comes)
        return answers()

    monkeypatch.setattr(docker, "_answers", answers_then)
    docker.start()
    assert waited == [True]
    until_again(docker, system, container, pid)
    assert state(system, job) == "pending"


def asking(container: str) -> bool:
    """Whether a vgpu-runtime is creating this container."""
    for process in Path("/proc").glob("[0-9]*"):
        try:
            words = (process / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue
        if words[0].endswith(b"vgpu-runtime") and container.encode() in words:
            return True
    return False
