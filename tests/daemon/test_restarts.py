"""The shell of restarts: while a container is away its engine is asked, and the core learns when it thinks again."""

from __future__ import annotations

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from vgpud.containers import restarts
from vgpud.containers.disk_work import Work
from vgpud.containers.restarts import Restarts
from vgpud.core.model import Container
from vgpud.host import processes

ID = "c" * 64
OF_DOCKER = Container(ID, "a", True, 12, 34, "/docker/c", 56, started=True, engine_dir="/docker")


class Backend:
    """The core, as far as it answers here: the events that it got."""

    def __init__(self, container: Container | None) -> None:
        self.stored_container = container
        self.end_calls: list[tuple[str, bool]] = []
        self.forget: Callable[[str], None] = lambda _: None

    def container(self, container_id: str) -> Container | None:
        return self.stored_container

    def end_container(self, container_id: str, why: str, restarts: bool = False) -> None:
        self.end_calls.append((why, restarts))
        if not restarts:
            self.stored_container = None
            self.forget(container_id)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(restarts, "LOOK_S", 0.01)


def make_restarts(backend: Backend) -> Restarts:
    found = Restarts(backend, Work(), asyncio.get_running_loop().create_task)
    backend.forget = found.forget
    return found


async def until(ready: Callable[[], bool]) -> None:
    while not ready():
        await asyncio.sleep(0.01)


def test_docker_is_asked_until_it_changes_its_mind(monkeypatch: pytest.MonkeyPatch) -> None:
    answers = iter([True, True, False])
    monkeypatch.setattr(restarts, "will_restart", lambda folder: folder == "/docker" and next(answers))

    async def scenario() -> list[tuple[str, bool]]:
        backend = Backend(OF_DOCKER)
        found = make_restarts(backend)
        found.end(ID, "ended")
        found.end(ID, "stopped")  # the hook says so, too
        await asyncio.wait_for(until(lambda: backend.stored_container is None), 60)
        return backend.end_calls

    again = "its engine does not start it again"
    assert asyncio.run(scenario()) == [("ended", True), (again, True), (again, False)]


@pytest.mark.parametrize("container", [replace(OF_DOCKER, engine_dir=""), replace(OF_DOCKER, started=False), None])
def test_what_no_engine_starts_again_ends_at_once(container: Container | None) -> None:
    async def scenario() -> list[tuple[str, bool]]:
        backend = Backend(container)
        make_restarts(backend).end(ID, "ended")
        return backend.end_calls

    assert asyncio.run(scenario()) == [("ended", False)]


def test_a_container_that_is_created_again_is_not_looked_at_any_more(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []
    monkeypatch.setattr(restarts, "will_restart", lambda folder: asked.append(folder) or True)

    async def scenario() -> None:
        backend = Backend(OF_DOCKER)
        found = make_restarts(backend)
        found.end(ID, "ended")
        await asyncio.wait_for(until(lambda: len(backend.end_calls) > 2), 60)
        found.forget(ID)
        before = len(asked)
        await asyncio.sleep(0.1)
        assert len(asked) <= before + 1 and backend.stored_container is OF_DOCKER

    asyncio.run(scenario())


def test_podman_is_waited_for_while_its_monitor_lives(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> list[tuple[str, bool]]:
        backend = Backend(replace(OF_DOCKER, engine_dir=""))
        found = make_restarts(backend)
        with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as monitor:
            monkeypatch.setattr(restarts, "MONITOR", processes.program(monitor.pid))
            found.note_monitor(ID, monitor.pid)
            found.end(ID, "ended")
            await asyncio.wait_for(until(lambda: len(backend.end_calls) > 2), 60)
            assert all(waits for _, waits in backend.end_calls)
            monitor.kill()
            await asyncio.to_thread(monitor.wait)
            await asyncio.wait_for(until(lambda: backend.stored_container is None), 60)
        return backend.end_calls

    assert asyncio.run(scenario())[-1] == ("its engine does not start it again", False)


def test_the_nearest_ancestor_of_a_name_is_found() -> None:
    me = os.getpid()
    mine = processes.program(me)
    with subprocess.Popen(["sleep", "60"]) as child:
        try:
            assert processes.find_ancestor(child.pid, "sleep", 0) == child.pid
            assert processes.find_ancestor(child.pid, mine, 1) == me
            assert processes.find_ancestor(child.pid, mine, 0) == 0, "too far away"
            assert processes.find_ancestor(child.pid, "no-such-program", 20) == 0
        finally:
            child.kill()
