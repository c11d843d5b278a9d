"""The ledger against a driver that keeps exact account (DESIGN D7): exact, all families, failures, many processes."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.shim.fake_daemon import GRANULE, MIB, FakeDaemon, FakeDevice, driver_uuid, wait_until
from vgpud.simdevice import process as sim_process
from vgpud.simdevice import state_page

TENANT = Path(__file__).with_name("ledger_tenant.py")
ASK_UUID = """
import ctypes, os, sys
driver = ctypes.CDLL(os.environ["VGPU_DRIVER"])
uuid = (ctypes.c_ubyte * 16)()
assert driver.cuInit(0) == 0 and driver.cuDeviceGetUuid_v2(uuid, 0) == 0
sys.stdout.buffer.write(bytes(uuid))
"""
LIMIT = 1024 * MIB
CONTEXT = 300 * MIB


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[FakeDaemon]:
    with FakeDaemon(tmp_path / "attach.sock", [FakeDevice(driver_uuid(0), LIMIT, CONTEXT)]) as fake:
        yield fake


class Tenant:
    """A program that holds memory and follows orders."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def answer(self) -> Any:
        assert self.process.stdout
        return json.loads(self.process.stdout.readline())

    def order(self, words: str) -> Any:
        assert self.process.stdin
        self.process.stdin.write(words + "\n")
        self.process.stdin.flush()
        return self.answer()

    def end(self) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.communicate()


Start = Callable[..., Tenant]


@pytest.fixture
def start(shim: Path, ledger_driver: Path, daemon: FakeDaemon) -> Iterator[Start]:
    """Starts a scenario of ledger_tenant.py as a tenant of the daemon."""
    tenants: list[Tenant] = []

    def do(*words: str, **environment: str) -> Tenant:
        settings = {"LD_PRELOAD": str(shim), "VGPU_DRIVER": str(ledger_driver), "VGPU_SOCKET": str(daemon.path)}
        process = subprocess.Popen(
            [sys.executable, str(TENANT), *words],
            env={**os.environ, **settings, **environment},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        tenants.append(Tenant(process))
        return tenants[-1]

    yield do
    for tenant in tenants:
        tenant.end()


def test_exactly_the_limit_can_be_allocated(start: Start) -> None:
    answer = start("exact").answer()
    assert answer["start"] == 0
    assert (answer["total"], answer["total_mem"]) == (LIMIT, LIMIT)
    assert answer["free"] == LIMIT - CONTEXT == answer["after"]
    assert (answer["all"], answer["full"], answer["freed"]) == (0, 0, 0)
    assert (answer["more"], answer["small_more"]) == (2, 2)
    assert (answer["untouched"], answer["small_untouched"]) == (0xDEADBEEF, 0xDEADBEEF)
    assert answer["taken"] == LIMIT


def test_the_ledger_follows_the_device_through_every_family(start: Start) -> None:
    for name, code, charged, used in start("follows").answer()["steps"]:
        assert code == 0, name
        assert charged == used, name


def test_what_fits_into_taken_memory_is_given_at_the_limit(start: Start) -> None:
    answer = start("edges").answer()
    assert (answer["full"], answer["packed"], answer["in pool"], answer["captured"]) == (0, 0, 0, 0)
    assert (answer["unpacked"], answer["beyond pool"]) == (2, 2)
    assert (answer["untouched"], answer["pool untouched"]) == (0xDEADBEEF, 0xDEADBEEF)
    assert (answer["exact"], answer["limit"], answer["still exact"]) == (0, 0, 0)


def test_graphs_are_charged_when_the_device_takes_their_memory(start: Start) -> None:
    steps = {name: rest for name, *rest in start("graphs").answer()["steps"]}
    assert [name for name, (_, over, _) in steps.items() if over != 0] == []
    refused = ("upload one too many", "launch one too many")
    assert {name: code for name, (code, _, _) in steps.items()} == {name: 2 * (name in refused) for name in steps}
    held = {name: held for name, (_, _, held) in steps.items()}
    assert held["instantiate"] == 0
    assert held["launch"] == held["launch again"] == held["upload another"] == held["destroy"] == 10 * MIB
    assert (held["trim"], held["launch another"], held["trim again"]) == (0, 2 * MIB, 0)
    assert held["launch the large one"] == LIMIT - CONTEXT


def test_a_driver_call_that_fails_leaves_nothing_charged(start: Start) -> None:
    answer = start("fails").answer()
    for name, (code, consumed, exact, again) in answer["results"].items():
        assert consumed, f"{name} was never called"
        assert code == 999, name
        assert exact, name
        assert again == 0, name
    assert answer["charged"] == answer["used"] == CONTEXT


def test_contexts_cost_each_and_return_what_they_held(start: Start) -> None:
    answer = start("contexts").answer()
    assert answer["refused"] == 999
    for name, (charged, used) in answer["used"].items():
        assert charged == used, name
    assert answer["used"]["second holds"][0] == 2 * CONTEXT + 102 * MIB
    assert answer["used"]["reset"][0] == CONTEXT
    assert answer["at_end"] == 0


def test_a_context_that_does_not_fit_is_refused(start: Start, daemon: FakeDaemon) -> None:
    tenant = start("hold", "0")
    assert tenant.answer()["code"] == 0
    assert tenant.order(f"a {LIMIT - CONTEXT - 10 * MIB}")["code"] == 0
    assert start("forks", "subprocess").answer()["parent"] == 2
    assert daemon.used_bytes() == LIMIT - 10 * MIB


def test_threads_at_the_limit_never_pass_it(start: Start) -> None:
    answer = start("threads", "6", "400").answer()
    assert answer["worst"] <= LIMIT
    assert set(answer["codes"]) <= {0, 2}
    assert answer["free"] == [LIMIT - CONTEXT, 0]
    assert answer["again"] == 0


def test_processes_of_a_slice_share_the_limit_exactly(start: Start, daemon: FakeDaemon) -> None:
    first, second = start("hold", "0"), start("hold", "0")
    assert first.answer()["code"] == second.answer()["code"] == 0
    left = LIMIT - 2 * CONTEXT
    assert first.order(f"a {left}")["code"] == 0
    assert second.order(f"a {GRANULE}")["code"] == 2
    assert first.order("f")["code"] == 0  # its credit is slack now, and comes back when the other asks
    assert second.order(f"a {left}")["code"] == 0
    assert first.order(f"a {GRANULE}")["code"] == 2
    assert wait_until(lambda: second.order("i")["info"] == [0, LIMIT])
    assert wait_until(lambda: first.order("i")["info"] == [0, LIMIT])
    assert daemon.used_bytes() == LIMIT


def test_memory_of_a_killed_process_is_there_for_the_next(start: Start, daemon: FakeDaemon) -> None:
    first = start("hold", str(LIMIT - CONTEXT))
    assert first.answer()["code"] == 0
    os.kill(first.process.pid, signal.SIGKILL)
    first.process.wait()
    daemon.dead(daemon.processes[0])
    second = start("hold", str(LIMIT - CONTEXT))
    assert second.answer()["code"] == 0


def test_a_limit_that_is_changed_counts_at_once(start: Start, daemon: FakeDaemon) -> None:
    tenant = start("hold", str(LIMIT - CONTEXT))
    assert tenant.answer()["code"] == 0
    assert tenant.order(f"a {GRANULE}")["code"] == 2
    daemon.resize(0, LIMIT + 10 * MIB)
    assert wait_until(lambda: tenant.order("i")["info"] == [10 * MIB, LIMIT + 10 * MIB])
    assert tenant.order(f"a {10 * MIB}")["code"] == 0
    daemon.resize(0, LIMIT // 2)
    assert wait_until(lambda: tenant.order("i")["info"] == [0, LIMIT // 2])
    assert tenant.order("a 4096")["code"] == 2
    assert tenant.order("f")["code"] == 0


def test_memory_stays_exact_without_the_daemon_and_after_it(start: Start, daemon: FakeDaemon) -> None:
    tenant = start("hold", str(200 * MIB))
    assert tenant.answer()["code"] == 0
    daemon.stop()
    assert wait_until(lambda: tenant.order(f"a {10 * MIB}")["code"] == 0)  # what it may count on: here all of the slice
    assert tenant.order(f"a {LIMIT}")["code"] == 2
    daemon.start()
    assert wait_until(lambda: len(daemon.processes) > 1)
    again = daemon.processes[-1]
    assert again.held[driver_uuid(0)] >= CONTEXT + 210 * MIB
    assert wait_until(lambda: int(again.report(0).used_bytes) == CONTEXT + 210 * MIB)
    assert wait_until(lambda: tenant.order(f"a {LIMIT - CONTEXT - 210 * MIB}")["code"] == 0)
    assert tenant.order(f"a {GRANULE}")["code"] == 2


def test_a_daemon_that_stands_still_is_waited_for_and_then_coasted_over(start: Start, daemon: FakeDaemon) -> None:
    tenant = start("hold", str(100 * MIB))
    assert tenant.answer()["code"] == 0
    daemon.freeze()
    answer = tenant.order(f"a {500 * MIB}")
    assert answer["code"] == 0
    assert answer["seconds"] > 0.5  # the arbiter could have resumed: the daemon's answer is better than a guess
    assert tenant.order(f"a {LIMIT}")["code"] == 2
    assert tenant.order("i")["info"] == [LIMIT - CONTEXT - 600 * MIB, LIMIT]


def test_many_processes_allocate_at_once(start: Start, daemon: FakeDaemon) -> None:
    tenants = [start("hold", "0", LEDGER_CONTEXT_MIB="300") for _ in range(3)]
    assert [t.answer()["code"] for t in tenants] == [0, 0, 0]
    left = LIMIT - 3 * CONTEXT
    got = [0, 0, 0]

    def fill(index: int) -> None:
        while tenants[index].order(f"a {3 * MIB}")["code"] == 0:
            got[index] += 4 * MIB

    workers = [threading.Thread(target=fill, args=(i,)) for i in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert sum(got) <= left
    assert left - sum(got) < 4 * MIB
    assert daemon.used_bytes() == 3 * CONTEXT + sum(got)


def _on_the_simulated_device(
    shim: Path, directory: Path, *command: str, **variables: str
) -> list[tuple[str, int, int, int]]:
    """What a tenant there says of each step: its name, the code, what is charged, what is used."""
    with sim_process.SimulatedDevice(directory / "sim", {"devices": 1}) as device:
        environment = {**device.environment(), "VGPU_DRIVER": str(device.lib_dir / "libcuda.so.1")}
        environment["SIM_PAGE"] = str(device.directory / state_page.PAGE_NAME)
        asked = subprocess.run([sys.executable, "-c", ASK_UUID], env=environment, capture_output=True, check=True)
        devices = [FakeDevice(asked.stdout, 4 * LIMIT, 512 * MIB)]
        with FakeDaemon(directory / "attach.sock", devices) as fake:
            environment |= {"LD_PRELOAD": str(shim), "VGPU_SOCKET": str(fake.path), **variables}
            done = subprocess.run(
                [sys.executable, *command], env=environment, capture_output=True, text=True, check=True
            )
    steps: list[tuple[str, int, int, int]] = json.loads(done.stdout)["steps"]
    return steps


def test_the_ledger_follows_the_simulated_device(shim: Path, tmp_path: Path) -> None:
    """The same steps on the simulated driver; what it does not do (801) leaves nothing charged either."""
    steps = _on_the_simulated_device(shim, tmp_path, str(TENANT), "follows")
    assert len(steps) > 60
    for name, code, charged, used in steps:
        assert code in (0, 801), name
        assert charged == used, name


def test_green_contexts_hold_the_primary_one_and_own_no_memory(shim: Path, tmp_path: Path) -> None:
    for name, code, charged, used in _on_the_simulated_device(shim, tmp_path, str(TENANT.with_name("green_tenant.py"))):
        assert code == 0, name
        assert charged == used, name


@pytest.mark.parametrize(
    "way",
    [
        "many_pools",
        "graph_after_its_context",
        "primary_by_threads",
        "managed_pools",
        "ended_pool",
        "trim_beside_a_capture",
        "own_import",
        "arguments_first",
        "attach_context",
        "limits",
    ],
)
def test_the_ledger_does_not_lose_count(shim: Path, tmp_path: Path, way: str) -> None:
    tenant = str(TENANT.with_name("escape_tenant.py"))
    for name, code, charged, used in _on_the_simulated_device(shim, tmp_path, tenant, way):
        assert code == 0, name
        assert charged == used, name


def _charged_as_used_though(shim: Path, tmp_path: Path, family: str, fail: str) -> None:
    """One family of escape_tenant.py on a device whose driver fails as `fail` says."""
    tenant = str(TENANT.with_name("escape_tenant.py"))
    for name, code, charged, used in _on_the_simulated_device(shim, tmp_path, tenant, family, VGPU_SIM_FAIL=fail):
        assert code == 0, name
        assert charged == used, name


@pytest.mark.parametrize("call", [1, 2])
def test_limits_are_charged_though_the_driver_fails_to_say_how_many_threads_there_are(
    shim: Path, tmp_path: Path, call: int
) -> None:
    _charged_as_used_though(shim, tmp_path, "limits", f"cuDeviceGetAttribute:{call}=999")


def test_a_limit_that_cannot_be_asked_for_is_refused_in_the_drivers_words(shim: Path, tmp_path: Path) -> None:
    _charged_as_used_though(shim, tmp_path, "limit_unknown", "cuCtxGetLimit:1=999")


def test_a_green_context_that_cannot_be_looked_up_leaves_nothing(shim: Path, tmp_path: Path) -> None:
    fail = "cuCtxFromGreenCtx:1=999,cuCtxFromGreenCtx:2=999"
    _charged_as_used_though(shim, tmp_path, "green_unknown", fail)
