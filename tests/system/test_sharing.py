"""Two tenants through daemon, arbiter and shim on one simulated device. Shares come from the device's own log; limits
are wide, since test machines are busy: the exact figures are in benchmarks/. Alone are the tests of what no slice may
exceed or lose at any time; the others ask for shares that show themselves once.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable

import pytest

from tests.shares import check_shares_sum, shares
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls

from .conftest import SECOND_NS, wait_for_work, waited_ns

Tenant = Callable[..., Part]
MEMORY = ("--mem", "1G")


def test_two_saturating_tenants_share_as_their_slices_say(system: OwnSystem, tenant: Tenant) -> None:
    pair = [tenant("quarter", "--gpus", "0.25", *MEMORY), tenant("rest", "--gpus", "0.75", *MEMORY)]
    pids = [wait_for_work(part)["pid"] for part in pair]
    check_shares_sum(system, pids, 2, lambda small, big: small + big > 0.7 and 2 * small < big < 4.5 * small)


@pytest.mark.alone
def test_a_cap_holds_alone_and_a_live_change_moves_it(system: OwnSystem, tenant: Tenant) -> None:
    pid = wait_for_work(tenant("capped", "--gpus", "0.3", *MEMORY))["pid"]
    check_shares_sum(system, [pid], 2, lambda capped: capped > 0.2, first_max=0.36)
    system.vgpu("slice", "set", "capped", "--min", "0.6", "--max", "0.6")
    check_shares_sum(system, [pid], 2, lambda capped: capped > 0.45, first_max=0.68)


def test_idle_time_is_borrowed_and_given_back(system: OwnSystem, tenant: Tenant) -> None:
    borrower = wait_for_work(tenant("borrower", "--gpus", "0.25", "--max", "1.0", *MEMORY))["pid"]
    check_shares_sum(system, [borrower], 1, lambda alone: alone > 0.8)
    owner = wait_for_work(tenant("owner", "--gpus", "0.75", *MEMORY))["pid"]
    check_shares_sum(system, [borrower, owner], 2, lambda borrowed, owned: owned > 0.55 and borrowed < 0.45)


@pytest.mark.alone
def test_a_stopped_holder_does_not_stop_the_other(system: OwnSystem, tenant: Tenant) -> None:
    """By what the other loses at its gate: on a machine that starves it, it gets less of the device than it may."""
    stopped, other = (
        tenant("stopped", "--gpus", "0.5", *MEMORY),
        tenant("other", "--gpus", "0.5", "--max", "1", *MEMORY),
    )
    stopped_pid, other_pid = wait_for_work(stopped)["pid"], wait_for_work(other)["pid"]
    os.kill(stopped_pid, signal.SIGSTOP)
    try:
        time.sleep(0.5)  # the lease that it may have used
        before_ns = waited_ns(system, "other")
        assert shares(system, [other_pid], 3)[0] > 0.1
        assert waited_ns(system, "other") - before_ns < 0.25 * 3 * SECOND_NS
    finally:
        os.kill(stopped_pid, signal.SIGCONT)
    before = wait_for_work(stopped)["completed"]
    wait_for("the stopped tenant", lambda: wait_for_work(stopped)["completed"] > before)


def test_a_killed_tenant_leaves_everything_to_the_others(system: OwnSystem, tenant: Tenant) -> None:
    killed, other = tenant("killed", "--gpus", "0.5", *MEMORY), tenant("other", "--gpus", "0.5", "--max", "1", *MEMORY)
    killed_pid, other_pid = wait_for_work(killed)["pid"], wait_for_work(other)["pid"]
    os.kill(killed_pid, signal.SIGKILL)
    assert killed.process.wait(20) == 128 + signal.SIGKILL
    check_shares_sum(system, [other_pid], 1, lambda alone: alone > 0.75)
    with system.client() as client:
        wait_for("the slice's end", lambda: [s.name for s in client.all(calls.slices())] == ["other"])


def test_two_processes_of_a_slice_count_as_one_tenant(system: OwnSystem, tenant: Tenant) -> None:
    system.vgpu("slice", "create", "pair", "--gpus", "0.5", "--mem", "2G")
    parts = [tenant("pair"), tenant("pair"), tenant("single", "--gpus", "0.5", *MEMORY)]
    pids = [wait_for_work(part)["pid"] for part in parts]
    check_shares_sum(system, pids, 2, lambda one, two, single: 0.5 * single < one + two < 1.7 * single)


def test_streams_that_wait_for_each_other_end_hooked_as_unhooked(
    system: OwnSystem, tenant: Tenant, programs: dict[str, str]
) -> None:
    unhooked = [sys.executable, "-m", "vgpud.cli.main", "sim", "run", "--dir", str(system.sim_dir), "--"]
    subprocess.run([*unhooked, programs["wait_value"]], env=system.env, check=True, timeout=120)
    alone = system.run("alone", ("--gpus", "0.5", *MEMORY), [programs["wait_value"]])
    assert alone.process.wait(120) == 0
    wait_for_work(tenant("neighbour", "--gpus", "0.5", *MEMORY))
    beside = system.run("beside", ("--gpus", "0.5", *MEMORY), [programs["wait_value"]])
    assert beside.process.wait(120) == 0
