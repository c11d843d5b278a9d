"""A driver that replaces another one: both run side by side, and kubelet's calls are answered all the while."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.daemon.node import wait_until
from tests.k8s.fake_api import FakeApi
from tests.k8s.parts import NODE, Kubelet
from tests.k8s.test_driver import FakeCluster, half
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.v1alpha1 import vgpud_pb2 as pb

UIDS = ("aaaaaaaa-0000-1111-2222-333333333333", "bbbbbbbb-0000-1111-2222-333333333333")


class Instance(FakeCluster):
    """One driver of a node that has two."""

    def __init__(self, directory: Path, system: OwnSystem, api: FakeApi, uid: str) -> None:
        super().__init__(directory, system, api)
        self.uid = uid
        self.kubelet = Kubelet(directory / "kubelet", uid[:8])
        self.log = directory / f"{uid[:8]}.log"
        self.health = directory / f"health-{uid[:8]}"
        self.health.mkdir()

    def begin(self) -> None:
        self.start("--pod-uid", self.uid, "--health-dir", str(self.health))

    @property
    def is_ready(self) -> bool:
        return (self.health / "ready").exists()


@pytest.fixture
def two(short_dir: Path, make_system: Callable[..., OwnSystem]) -> Iterator[list[Instance]]:
    """The first has been registered; the second is not started yet."""
    system = make_system(config=[f'cdi_dir = "{short_dir / "cdi"}"', "[devices]", 'kubernetes = ["all"]'])
    with FakeApi() as api:
        api.add_node(NODE)
        made = [Instance(short_dir, system, api, uid) for uid in UIDS]
        try:
            made[0].begin()
            made[0].kubelet.register()
            made[0].wait_for_slices(2)
            yield made
        finally:
            for one in made:
                one.close()


def is_drained(api: FakeApi) -> bool:
    return any(device.get("taints") for one in api.slices() for device in one["spec"].get("devices", []))


def test_the_next_one_answers_before_the_former_one_ends(two: list[Instance]) -> None:
    former, following = two
    assert wait_until(lambda: former.is_ready, "the former one's readiness")
    writes = len(former.api.writes)
    following.begin()
    wait_until(following.kubelet.registration.exists, "the next one's registration")
    assert not following.is_ready, "kubelet does not know it yet"
    following.kubelet.register()
    wait_until(lambda: following.is_ready, f"the next one's readiness; {following.log.read_text()}")
    for one in two:
        claim = half(one, one.uid[:8])
        (answer,) = one.kubelet.prepare(claim).values()
        assert not answer.error

    def list_writes() -> list[str]:
        return [write[0] for write in former.api.writes[writes:] if "/events/" not in write[1]]

    wait_until(lambda: len(list_writes()) >= 2, "the claims' status, which is written behind the answer")
    assert former.stop(signal.SIGTERM) == 0
    assert list_writes() == ["patch"] * 2, "one of them publishes"
    assert not former.kubelet.registration.exists() and following.kubelet.registration.exists()
    following.nodes.DrainDevice(pb.DrainDeviceRequest(device_uuid="0", reason="a fan"))
    wait_until(lambda: is_drained(following.api), "what the next one publishes")


def test_one_that_ends_answers_the_calls_under_way(two: list[Instance]) -> None:
    """kubelet would make them again a minute later."""
    former, _ = two
    claim = half(former)
    assert former.system.daemon and former.process
    former.system.daemon.kill()
    with ThreadPoolExecutor(1) as pool:
        call = pool.submit(former.kubelet.prepare, claim)
        time.sleep(1.0)  # so that it is under way
        former.process.send_signal(signal.SIGTERM)
        former.system.start_daemon()
        (answer,) = call.result().values()
    assert not answer.error
    assert former.stop(signal.SIGTERM) == 0


def test_sockets_of_one_that_was_killed_are_removed_by_the_next(two: list[Instance]) -> None:
    """kubelet would try to register it again and again."""
    former, following = two
    following.begin()
    wait_until(following.kubelet.registration.exists, "the next one's registration")
    former.stop(signal.SIGKILL)
    dead = (former.kubelet.registration, former.kubelet.endpoint)
    assert all(path.exists() for path in dead)
    wait_until(lambda: not any(path.exists() for path in dead), "the end of the dead sockets")
    assert following.kubelet.registration.exists() and following.kubelet.endpoint.exists()


def test_it_says_that_it_works_and_not_when_its_sockets_are_gone(two: list[Instance]) -> None:
    """By a file that a shell compares with the time since boot; the probe of the chart: test_chart.py."""
    former, _ = two
    beat = former.health / "beat"
    first = int(wait_until(lambda: beat.exists() and beat.read_text(), "its beat"))
    wait_until(lambda: int(beat.read_text()) > first, "another beat")
    former.kubelet.registration.unlink()
    time.sleep(1.5)  # one that was under way
    last = beat.read_text()
    time.sleep(2.5)
    assert beat.read_text() == last
