"""Reservations as the API has them, and back."""

from __future__ import annotations

from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.api.rpc import RefusedError, refuse
from vgpud.api.slice_messages import timestamp
from vgpud.core.jobs.model import SECOND_NS, Reservation
from vgpud.core.model import Reason
from vgpud.core.units import GPUS_MAX
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: 2100-01-01, in seconds since 1970
MOMENT_MAX_S = 4_102_444_800


def _refuse(message: str, field: str) -> RefusedError:
    return refuse(Reason.INVALID, message, f"reservation.{field}")


def _moment(at: Timestamp, field: str) -> int:
    if not 0 < at.seconds < MOMENT_MAX_S or not 0 <= at.nanos < SECOND_NS:
        raise _refuse(f"{field} at {at.seconds} s since 1970 is out of range: write a time before the year 2100", field)
    return at.seconds * SECOND_NS + at.nanos


def reservation_from(reservation: pb.Reservation, node: str) -> Reservation:
    """What only the core can know is checked there; begin 0 is now. Raises RefusedError."""
    if reservation.node not in ("", node):
        raise refuse(Reason.NOT_FOUND, f"this daemon is node {node!r}, not {reservation.node!r}", "reservation.node")
    if not reservation.HasField("end_time"):
        raise _refuse(f"reservation {reservation.name[:60]!r} has no end_time: give one", "end_time")
    if len(reservation.device_uuids) > GPUS_MAX:
        text = f"{len(reservation.device_uuids)} devices are named: at most {GPUS_MAX} are allowed"
        raise _refuse(text, "device_uuids")
    begin_ns = _moment(reservation.begin_time, "begin_time") if reservation.HasField("begin_time") else 0
    end_ns = _moment(reservation.end_time, "end_time")
    return Reservation(
        reservation.name, node, tuple(reservation.device_uuids), begin_ns, end_ns, reservation.queue, reservation.reason
    )


def reservation_view(one: Reservation) -> pb.Reservation:
    return pb.Reservation(
        name=one.name,
        node=one.node,
        device_uuids=one.device_uuids,
        begin_time=timestamp(one.begin_ns),
        end_time=timestamp(one.end_ns),
        queue=one.queue,
        reason=one.reason,
    )
