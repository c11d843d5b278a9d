"""Containers end in many ways, and daemons are restarted: the slice is released, or it is there again."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from pathlib import Path

from benchmarks import engine
from tests.shares import check_shares_sum
from vgpud.cli.demo.private_system import OwnSystem, wait_for

from .helpers import (
    HALF,
    Engine,
    at,
    half_a_gpu_is_seen,
    own_name,
    slices,
    until,
    until_attached,
    until_free,
    view,
)


def busy(site: Engine, system: OwnSystem, programs: Path, *options: str) -> tuple[str, int]:
    """A container that keeps the device busy: (id, host pid)."""
    container = site.start_container(*(options or HALF), *at(programs), engine.BASE, "/programs/tenant")
    (pid,) = until_attached(system, own_name(container))
    return container, pid


def completed(site: Engine, container: str) -> int:
    """How many kernels a container's `tenant` has run."""
    lines = site.cli("logs", "--tail", "1", container).stdout.splitlines()
    return int(json.loads(lines[-1])["completed"]) if lines else 0


def until_it_computes(site: Engine, container: str) -> None:
    before = completed(site, container)
    wait_for(f"work of {container[:12]}", lambda: completed(site, container) > before, 60)


def stat(pid: int) -> list[str]:
    """The fields of /proc/PID/stat from the third on."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()


def state(pid: int) -> str:
    """One letter: Z for a process that has ended and that no process has waited for yet."""
    return stat(pid)[0]


def parent(pid: int) -> int:
    """The parent of a process; of a container's first process that is the engine's shim."""
    return int(stat(pid)[1])


def running(site: Engine, container: str) -> bool:
    return site.cli("inspect", "-f", "{{.State.Running}}", container).stdout.strip() == "true"


def test_kill_releases_the_slice(either: Engine, system: OwnSystem, programs: Path) -> None:
    container, _pid = busy(either, system, programs)
    either.cli("kill", container)
    until_free(system)


def test_restart_gives_the_slice_again(either: Engine, system: OwnSystem, programs: Path) -> None:
    container, pid = busy(either, system, programs, *HALF, "--name", "my.trainer")
    made = slices(system)[own_name(container)]
    either.cli("restart", "-t", "0", container)
    until("the new process", lambda: pid not in until_attached(system, own_name(container)))
    again = slices(system)[own_name(container)]
    assert again.spec == made.spec
    assert [(c.id, c.name) for c in again.containers] == [(container, "my.trainer")]
    until_it_computes(either, container)


def test_a_paused_container_keeps_its_slice_and_stops_no_other(
    docker: engine.Docker, system: OwnSystem, programs: Path
) -> None:
    paused, _ = busy(docker, system, programs, "-e", "VGPU=0.5", "-e", "VGPU_MEM=1g")
    other, _ = busy(docker, system, programs, "-e", "VGPU=0.25", "-e", "VGPU_MEM=1g")
    until_it_computes(docker, paused)
    docker.cli("pause", paused)
    for _ in range(3):
        until_it_computes(docker, other)
    assert set(slices(system)) == {own_name(paused), own_name(other)}
    docker.cli("unpause", paused)
    until_it_computes(docker, paused)


def test_out_of_memory_kill_releases_the_slice(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    limits = ("--memory=96m", "--memory-swap=96m")
    container = docker.start_container(
        *HALF, *limits, *at(programs), engine.BASE, "/programs/hold", "4096", str(1 << 30)
    )
    docker.cli("wait", container)
    assert docker.cli("inspect", "-f", "{{.State.OOMKilled}}", container).stdout.strip() == "true"
    until_free(system)


def test_several_processes_and_exec_are_one_slice(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    both = "/programs/tenant & /programs/tenant & wait"
    amounts = ("-e", "VGPU=0.5", "-e", "VGPU_MEM=2g")  # each has a context of its own
    container = docker.start_container(*amounts, *at(programs), engine.BASE, "sh", "-c", both)
    until_attached(system, own_name(container), 2)
    docker.cli("exec", "-d", container, "/programs/tenant")
    pids = until_attached(system, own_name(container), 3)
    assert list(slices(system)) == [own_name(container)]
    os.kill(pids[0], signal.SIGKILL)
    until("two processes", lambda: slices(system)[own_name(container)].processes == 2)
    docker.cli("kill", container)
    until_free(system)


def test_a_container_whose_programs_have_ended_keeps_its_slice(
    docker: engine.Docker, system: OwnSystem, programs: Path
) -> None:
    """Its next program is to find the same slice: it ends with the container, not with its last process."""
    container = docker.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    docker.cli("exec", container, "/programs/view")
    until("no process", lambda: slices(system)[own_name(container)].processes == 0)
    docker.cli("exec", container, "/programs/view")
    assert list(slices(system)) == [own_name(container)]


def test_containers_removed_without_notice(either: Engine, system: OwnSystem, programs: Path) -> None:
    """Neither shim nor runtime is there to say so: only the processes' end and the empty cgroup do."""
    _container, pid = busy(either, system, programs)
    shim = parent(pid)
    name = Path(f"/proc/{shim}/cmdline").read_text()
    assert "containerd-shim" in name or "conmon" in name, name
    os.kill(shim, signal.SIGKILL)
    os.kill(pid, signal.SIGKILL)
    until_free(system)


def test_a_process_that_outlives_init_keeps_the_slice(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    """With the host's pid namespace a container's programs continue when its first process has ended."""
    script = "/programs/tenant & exec sleep 600"
    container = docker.start_container(*HALF, "--pid=host", *at(programs), engine.BASE, "sh", "-c", script)
    (tenant,) = until_attached(system, own_name(container))
    init = docker.pid(container)
    shim = parent(init)
    os.kill(shim, signal.SIGSTOP)  # else the engine ends the others as soon as it sees that the first one has ended
    try:
        os.kill(init, signal.SIGKILL)
        until("the end of init", lambda: state(init) == "Z")
        check_shares_sum(system, [tenant], 1, lambda alone: alone > 0.2)
        assert until_attached(system, own_name(container)) == [tenant]
        os.kill(tenant, signal.SIGKILL)
        until_free(system)
    finally:
        os.kill(shim, signal.SIGCONT)


def test_dockerd_restarts_and_nothing_stops(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    container, pid = busy(docker, system, programs)
    until_it_computes(docker, container)
    docker.stop_daemon(signal.SIGKILL)
    assert until_attached(system, own_name(container)) == [pid]
    docker.start()
    assert running(docker, container) and docker.pid(container) == pid
    until_it_computes(docker, container)
    docker.cli("kill", container)
    until_free(system)


def test_kill_of_vgpud_under_load_stops_no_container(either: Engine, system: OwnSystem, programs: Path) -> None:
    amounts = [("-e", "VGPU=0.25", "-e", "VGPU_MEM=1g"), ("-e", "VGPU=0.75", "-e", "VGPU_MEM=1g")]
    pair = dict(busy(either, system, programs, *amount) for amount in amounts)
    before = slices(system)
    assert system.daemon
    system.daemon.kill()
    for container in pair:
        until_it_computes(either, container)
    system.start_daemon()
    for container, pid in pair.items():
        assert until_attached(system, own_name(container)) == [pid]
        until_it_computes(either, container)
    after = slices(system)
    assert {name: item.uid for name, item in after.items()} == {name: item.uid for name, item in before.items()}
    assert {c.id: c.pid for item in after.values() for c in item.containers} == {c: either.pid(c) for c in pair}
    either.remove(*pair)
    until_free(system)


def test_containers_that_end_while_vgpud_is_away_are_released(
    docker: engine.Docker, system: OwnSystem, programs: Path
) -> None:
    container, _ = busy(docker, system, programs)
    assert system.daemon
    system.daemon.kill()
    docker.remove(container)
    system.start_daemon()
    until_free(system)


def test_a_program_that_starts_while_vgpud_restarts_waits_for_it(
    docker: engine.Docker, system: OwnSystem, programs: Path
) -> None:
    container = docker.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    assert system.daemon
    system.daemon.kill()
    command = [engine.find("docker") or "docker", "exec", container, "/programs/view"]
    with subprocess.Popen(command, env=docker.env, stdout=subprocess.PIPE, text=True) as run:
        time.sleep(0.3)  # so that it asks a daemon that is away
        system.start_daemon()
        out, _ = run.communicate(timeout=60)
    half_a_gpu_is_seen(view(subprocess.CompletedProcess(command, run.returncode, out)))


def test_a_removed_slice_lets_no_program_start(docker: engine.Docker, system: OwnSystem, programs: Path) -> None:
    """Else the container would have the whole device."""
    container = docker.start_container(*HALF, *at(programs), engine.BASE, "sleep", "600")
    system.vgpu("slice", "rm", "--force", own_name(container))
    done = docker.cli("exec", container, "/programs/view", check=False)
    assert done.returncode == 1
    text = "the slice of this container was removed: start the container again"
    assert f"vgpu: CUDA cannot start: the daemon refused this process: {text}" in done.stderr, done.stderr
    docker.cli("restart", "-t", "0", container)
    half_a_gpu_is_seen(view(docker.cli("exec", container, "/programs/view")))
