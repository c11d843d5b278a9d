"""The history over the API of a real daemon: who sees what, and what is refused."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.api.test_permissions import OTHER, OWNER, AllRoles
from tests.daemon.node import own_node, wait_until
from vgpud.core.history.points import Measured, Subject, sample
from vgpud.core.history.unsaved import Unsaved
from vgpud.core.model import ANYONE
from vgpud.store.history import HistoryFile
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="becomes other users: only root can")

GIB = 1 << 30
PATH = "/vgpud.v1alpha1.HistoryService/GetHistory"
KINDS = {"slice": pb.HISTORY_KIND_SLICE, "job": pb.HISTORY_KIND_JOB, "user": pb.HISTORY_KIND_USER}
KINDS |= {"device": pb.HISTORY_KIND_DEVICE, "queue": pb.HISTORY_KIND_QUEUE}


def record_past(state: Path) -> None:
    """Half an hour until now, of what has ended since then."""
    unsaved, now_s = Unsaved(), time.time_ns() // 10**9
    past = (("slice", "gone", OWNER), ("slice", "open", ANYONE), ("job", "7", OWNER), ("user", str(OWNER), OWNER))
    for at_s in range(now_s - 1800, now_s, 10):
        samples = [Measured(Subject(*one[:2]), one[1], one[2], sample(250, 200, 500, 30, GIB, 2 * GIB)) for one in past]
        unsaved.add(at_s, samples)
    file = HistoryFile(state)
    file.save(unsaved.take())
    file.close()


@pytest.fixture(scope="module")
def roles(fake_driver: Path) -> Iterator[AllRoles]:
    with own_node(fake_driver) as node:
        node.directory.chmod(0o755)
        node.state.mkdir(mode=0o700)
        record_past(node.state)
        node.settings = {"socket_mode": '"0666"'}
        node.start()
        found = AllRoles(node)
        team = pb.Queue(name="team", members=[f"uid:{OTHER}"])
        found.call("root", "SetQueue", pb.SetQueueRequest(queue=team))
        yield found
        found.close()
        assert node.stop() == 0
        assert "Traceback" not in node.log.read_text()


def ask(roles: AllRoles, role: str, kind: str, name: str) -> str:
    return roles.ask(role, PATH, pb.GetHistoryRequest(kind=KINDS[kind], name=name))[0]


@pytest.mark.parametrize(("kind", "name"), [("slice", "gone"), ("job", "7"), ("slice", "j-7"), ("user", str(OWNER))])
def test_what_has_ended_is_shown_to_its_owner_and_admins(roles: AllRoles, kind: str, name: str) -> None:
    assert [ask(roles, role, kind, name) for role in ("root", "owner", "other")] == ["OK", "OK", "NOT_FOUND"]


def test_a_slice_that_is_open_to_every_user_is_shown_to_all(roles: AllRoles) -> None:
    assert [ask(roles, role, "slice", "open") for role in ("owner", "other")] == ["OK", "OK"]


def test_devices_are_shown_to_all_and_queues_to_those_who_may_use_them(roles: AllRoles) -> None:
    wait_until(lambda: ask(roles, "owner", "device", "0") == "OK", "the first sample")
    assert ask(roles, "owner", "queue", "default") == "OK"
    wait_until(lambda: ask(roles, "root", "queue", "team") == "OK", "a sample of the queue")
    assert [ask(roles, role, "queue", "team") for role in ("other", "owner")] == ["OK", "NOT_FOUND"]


def test_points_have_what_was_recorded(roles: AllRoles) -> None:
    request = pb.GetHistoryRequest(kind=pb.HISTORY_KIND_SLICE, name="gone")
    request.step.FromSeconds(300)
    found: pb.History = roles.call("owner", "GetHistory", request).history
    assert (found.name, found.node, found.step.seconds) == ("gone", "n1", 300)
    assert len(found.points) in (6, 7)
    assert {point.begin_time.seconds % 300 for point in found.points} == {0}
    point = found.points[2]
    assert (point.used_milli, point.used_peak_milli, point.min_milli, point.max_milli) == (250, 250, 200, 500)
    assert (point.waiting_milli, point.mem_used_bytes, point.mem_max_bytes) == (30, GIB, 2 * GIB)


def test_a_range_without_a_record_is_empty(roles: AllRoles) -> None:
    request = pb.GetHistoryRequest(kind=pb.HISTORY_KIND_SLICE, name="gone")
    request.since_time.FromSeconds(1_000_000)
    request.until_time.FromSeconds(2_000_000)
    assert not roles.call("root", "GetHistory", request).history.points


@pytest.mark.parametrize(
    ("fields", "code", "text"),
    [
        ({"kind": 0}, "INVALID_ARGUMENT", "choose one of device, slice"),
        ({"kind": 99}, "INVALID_ARGUMENT", "'99'"),
        ({"node": "n2"}, "NOT_FOUND", "n2"),
        ({"name": "none"}, "NOT_FOUND", "'none'"),
        ({"since_time": {"seconds": 10}, "until_time": {"seconds": 10}}, "INVALID_ARGUMENT", "swap them"),
        ({"since_time": {"seconds": -10}}, "INVALID_ARGUMENT", "since 1970"),
        ({"until_time": {"seconds": 1 << 50}}, "INVALID_ARGUMENT", "since 1970"),
        ({"step": {"seconds": -5}}, "INVALID_ARGUMENT", "negative"),
    ],
)
def test_refusals_say_what_is_wrong(roles: AllRoles, fields: dict[str, object], code: str, text: str) -> None:
    request = pb.GetHistoryRequest(**{"kind": pb.HISTORY_KIND_SLICE, "name": "gone"} | fields)
    found, message, _ = roles.ask("root", PATH, request)
    assert found == code
    assert text in message
    assert "\n" not in message


def test_a_node_without_history_says_how_to_have_one(fake_driver: Path) -> None:
    with own_node(fake_driver) as node:
        node.settings = {"history": "false"}
        node.start()
        roles = AllRoles(node)
        code, message, _ = roles.ask("root", PATH, pb.GetHistoryRequest(kind=pb.HISTORY_KIND_DEVICE, name="0"))
        assert (code, "history = true" in message) == ("FAILED_PRECONDITION", True)
        roles.close()
        assert node.stop() == 0
        assert not list(node.state.glob("history*"))
