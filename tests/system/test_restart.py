"""The daemon may die: tenants continue by the timetable, come back to the next daemon and are held to their slices."""

from __future__ import annotations

from collections.abc import Callable

from tests.shares import check_shares_sum
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls

from .conftest import wait_for_work

MEMORY = ("--mem", "1G")


def test_tenants_survive_a_killed_daemon_and_return(system: OwnSystem, tenant: Callable[..., Part]) -> None:
    system.vgpu("slice", "create", "quarter", "--gpus", "0.25", *MEMORY)
    system.vgpu("slice", "create", "rest", "--gpus", "0.75", *MEMORY)
    parts = [tenant("quarter"), tenant("rest")]
    pids = [wait_for_work(part)["pid"] for part in parts]
    assert system.daemon
    system.daemon.kill()
    check_shares_sum(system, pids, 2, lambda small, big: small > 0.08 and big > 0.35 and 1.5 * small < big < 6 * small)
    system.start_daemon()
    with system.client() as client:
        wait_for("the tenants' return", lambda: {p.pid for p in client.all(calls.processes())} == set(pids))
        assert all(p.resumed for p in client.all(calls.processes()))
    check_shares_sum(system, pids, 2, lambda small, big: small + big > 0.7 and 2 * small < big < 4.5 * small)
    for part in parts:
        part.check()


def test_a_stopped_daemon_is_coasted_over_and_believed_again(system: OwnSystem, tenant: Callable[..., Part]) -> None:
    part = tenant("alone", "--gpus", "0.5", "--max", "1", *MEMORY)
    pid = wait_for_work(part)["pid"]
    assert system.daemon
    system.daemon.stop()  # an orderly end
    check_shares_sum(system, [pid], 1, lambda alone: alone > 0.6)  # alone with max 1: coasting is free
    system.start_daemon()
    with system.client() as client:
        wait_for("the tenant's return", lambda: [p.pid for p in client.all(calls.processes())] == [pid])
    check_shares_sum(system, [pid], 1, lambda alone: alone > 0.6)
