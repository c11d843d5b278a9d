"""Checks of replicas: over HTTP, by a command, by the port; what hangs is ended with all that it has started."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests.services.programs import ANSWER, HANG, NO_HTTP, RESET, serve_balanced
from vgpud.services.core.model import Health, JobPhase, Replica
from vgpud.services.shell import checks
from vgpud.services.shell.upstream import Upstreams


def check(health: Health, replica: Replica | None = None) -> str:
    one = replica or Replica(1, 1, JobPhase.RUNNING, attempt=1, port=1)
    one.token = "key"  # noqa: S105  a test's
    return asyncio.run(checks.check(one, health, Upstreams(), "/"))


@pytest.mark.parametrize(
    ("behaviour", "why"),
    [(ANSWER, ""), (RESET, "closed"), (HANG, "within 0.2 s"), (NO_HTTP, "does not speak HTTP")],
)
def test_over_http(behaviour: str, why: str) -> None:
    async def test() -> None:
        async with serve_balanced(behaviour) as service:
            said = await checks.check(
                service.replicas.by_id[1], Health(http_path="/health", deadline_s=0.2), service.replicas.upstreams, "/"
            )
            assert why in said and bool(said) == bool(why)
            method, target, headers, _ = service.programs[1].requests[0]
            assert (method, target, headers[b"authorization"]) == (b"GET", b"/health", b"Bearer of-1")

    asyncio.run(test())


@pytest.mark.parametrize(
    "health", [Health(http_path="/health", deadline_s=0.3), Health(command="sleep 9", deadline_s=0.3)]
)
def test_a_check_that_is_late_counts_only_where_no_request_is_answered(health: Health) -> None:
    async def test() -> None:
        async with serve_balanced(HANG) as service:
            one = service.replicas.by_id[1]
            assert "0.3 s" in await checks.check(one, health, service.replicas.upstreams, "/")
            checking = asyncio.create_task(checks.check(one, health, service.replicas.upstreams, "/"))
            await asyncio.sleep(0.1)
            one.answers += 1
            assert await checking == ""

    asyncio.run(test())


def test_by_the_port() -> None:
    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            one = service.replicas.by_id[1]
            assert await checks.check(one, Health(), service.replicas.upstreams, "/") == ""
            one.port = 1
            assert await checks.check(one, Health(), service.replicas.upstreams, "/") == "nothing listens at port 1"

    asyncio.run(test())


def test_a_program_of_another_user_at_the_port_is_no_replica(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.geteuid", lambda: 12345)

    async def test() -> None:
        async with serve_balanced(ANSWER) as service:
            said = await checks.check(service.replicas.by_id[1], Health(), service.replicas.upstreams, "/")
            assert said.startswith("nothing of it listens at port") and "uid" in said
            service.service = type(service.service)("chat", {}, "secret", wake_s=0.1)
            assert (await service.ask())[0] in (502, 503) and service.programs[1].requests == []

    asyncio.run(test())


def test_by_a_command_that_is_told_where_the_replica_listens() -> None:
    assert check(Health(command='test "$VGPU_SERVICE_PORT $VGPU_SERVICE_TOKEN" = "1 key"')) == ""
    assert check(Health(command="echo it is tired; exit 3")) == "the command has ended with 3: it is tired"
    assert check(Health(command="nosuchprogram")).startswith("the command has ended with 127")
    assert check(Health(command="yes x | head -c 1000000; exit 1")).startswith("the command has ended with 1: x x")


def test_a_command_that_hangs_is_killed_with_what_it_has_started(tmp_path: Path) -> None:
    script = f"sleep 1000 & echo $! >{tmp_path}/pid; trap '' TERM; sleep 1000"
    begun_s = time.monotonic()
    assert check(Health(command=script, deadline_s=0.5)) == ("the command has not ended within 0.5 s, and was killed")
    assert time.monotonic() - begun_s < 100, "it does not wait for the sleep"
    pid = int((tmp_path / "pid").read_text())
    while psutil.pid_exists(pid) and psutil.Process(pid).status() != psutil.STATUS_ZOMBIE:
        time.sleep(0.01)


def test_a_command_that_leaves_a_process_behind_is_not_waited_for() -> None:
    begun_s = time.monotonic()
    assert check(Health(command="sleep 1000 & exit 0", deadline_s=30.0)) == ""
    assert time.monotonic() - begun_s < 100


def test_a_machine_without_processes_left_is_a_failed_check(monkeypatch: pytest.MonkeyPatch) -> None:
    async def refuse(*_: Any, **__: Any) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    monkeypatch.setattr(asyncio, "create_subprocess_exec", refuse)
    assert check(Health(command="true")) == "the check cannot be made: Resource temporarily unavailable"
