"""Reservations over the API: as they are made and shown, and what is refused before the core sees it."""

from __future__ import annotations

from typing import Any

import pytest
from google.protobuf.timestamp_pb2 import Timestamp

from tests.api.job_world import ALICE, ROOT, World
from vgpud.core.jobs.model import SECOND_NS, Reservation
from vgpud.v1alpha1 import vgpud_pb2 as pb


@pytest.fixture
def world() -> World:
    return World()


def create(world: World, **fields: Any) -> Any:
    given = {"name": "course", "device_uuids": ["0"], "end_time": Timestamp(seconds=200), **fields}
    request = pb.CreateReservationRequest(reservation=pb.Reservation(**given))
    return world.call(world.queues.CreateReservation, request, ROOT)


def test_a_reservation_is_the_cores_and_back(world: World) -> None:
    create(world, name="b", begin_time=Timestamp(seconds=100, nanos=5), queue="team", reason="why")
    create(world, name="a")
    node = world.backend.node
    assert world.backend.reserved == [
        Reservation("b", node, ("0",), 100 * SECOND_NS + 5, 200 * SECOND_NS, "team", "why"),
        Reservation("a", node, ("0",), 0, 200 * SECOND_NS),
    ]
    listed = world.call(world.queues.ListReservations, pb.ListReservationsRequest(), ALICE).reservations
    assert [(one.name, one.queue, one.end_time.seconds) for one in listed] == [("a", "", 200), ("b", "team", 200)]
    world.call(world.queues.DeleteReservation, pb.DeleteReservationRequest(name="a"), ROOT)
    assert [one.name for one in world.backend.reserved] == ["b"]


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"end_time": None}, "reservation 'course' has no end_time: give one"),
        (
            {"end_time": Timestamp(seconds=-1)},
            "end_time at -1 s since 1970 is out of range: write a time before the year 2100",
        ),
        ({"begin_time": Timestamp(seconds=1 << 40)}, "begin_time at 1099511627776 s since 1970 is out of range"),
        ({"node": "elsewhere"}, "not 'elsewhere'"),
        ({"device_uuids": ["0"] * 2000}, "2000 devices are named: at most"),
    ],
)
def test_reservations_that_are_invalid(world: World, fields: dict[str, Any], says: str) -> None:
    given = {"name": "course", "device_uuids": ["0"], "end_time": Timestamp(seconds=200), **fields}
    request = pb.CreateReservationRequest(reservation=pb.Reservation(**given))
    assert says in world.refusal(world.queues.CreateReservation, request, ROOT)[1]
    assert world.backend.reserved == []
