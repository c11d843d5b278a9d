"""The service of the history: who may see it, and its course as messages."""

from __future__ import annotations

import time
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.api.backend import Backend, Course, TimeSpan
from vgpud.api.caller import Caller, caller
from vgpud.api.rpc import refuse, unary
from vgpud.api.turns import breathe, charge_thread
from vgpud.core.history.levels import is_recordable
from vgpud.core.history.points import QUEUE, Point
from vgpud.core.model import Denied, Reason
from vgpud.core.slices.queue_quota import choose
from vgpud.errors import StoreError
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import vgpud_pb2_grpc as stubs
from vgpud.v1alpha1 import words

#: the default range, in seconds
RANGE_S = 3600
#: points that are converted in one piece
_PIECE_POINTS = 50


class HistoryService(stubs.HistoryServiceServicer):
    """Owners see what is theirs, every user the devices, and the queues that the user may use."""

    def __init__(self, backend: Backend) -> None:
        self._backend = backend
        self.observe = backend.observe  # as unary() calls it

    @unary
    async def GetHistory(self, request: pb.GetHistoryRequest) -> pb.GetHistoryResponse:
        node = self._backend.node.name
        if request.node not in ("", node):
            raise refuse(Reason.NOT_FOUND, f"this daemon is node {node!r}, not {request.node!r}", "node")
        if not self._backend.history.is_on:
            text = "this node keeps no history: set history = true in its configuration"
            raise refuse(Reason.PRECONDITION, text, "name")
        kind = words.HISTORY_KIND.to_word(request.kind)
        if kind not in words.HISTORY_KIND.words:
            known = ", ".join(words.HISTORY_KIND.words)
            raise refuse(Reason.INVALID, f"there is no history of kind {kind!r}: choose one of {known}", "kind")
        span, who = _span_of(request), caller()
        course = None
        if kind != QUEUE or self._may_use_queue(request.name, who):
            try:
                course = await self._backend.history.read(kind, request.name, None if who.admin else who.uid, span)
            except StoreError as error:
                raise refuse(Reason.UNAVAILABLE, str(error)) from error
        if course is None:
            text = f"there is no history of {kind} {request.name[:60]!r} that uid {who.uid} may see"
            raise refuse(Reason.NOT_FOUND, f"{text}: it begins in the first half minute", "name")
        charge_thread(course.spent_ns)
        return await _view_of(course, node)

    def _may_use_queue(self, name: str, who: Caller) -> bool:
        return who.admin or not isinstance(choose(self._backend.machine.state.quotas, name, who.asker), Denied)


def _span_of(request: pb.GetHistoryRequest) -> TimeSpan:
    """The range of a request. Raises RefusedError."""
    until_s = _seconds(request.until_time) if request.HasField("until_time") else time.time_ns() / 1e9
    since_s = _seconds(request.since_time) if request.HasField("since_time") else until_s - RANGE_S
    step_s = _seconds(request.step)
    if until_s <= since_s:
        raise refuse(Reason.INVALID, "until_time is not after since_time: swap them", "until_time")
    if not is_recordable(int(since_s)) or not is_recordable(int(until_s)):
        raise refuse(Reason.INVALID, "the range is out of bounds: write times since 1970", "since_time")
    if step_s < 0:
        raise refuse(Reason.INVALID, f"step {step_s:g} s is negative: leave it out, or write 10 s or more", "step")
    return TimeSpan(since_s, until_s, min(step_s, until_s - since_s))


def _seconds(value: Timestamp | Duration) -> float:
    return value.seconds + value.nanos / 1e9


async def _view_of(course: Course, node: str) -> pb.GetHistoryResponse:
    history = pb.History(name=course.name or node, node=node, step=Duration(seconds=course.step_s))
    for count, (begin_s, point) in enumerate(course.points):
        history.points.append(point_view(begin_s, point))
        if count % _PIECE_POINTS == 0:
            await breathe()
    return pb.GetHistoryResponse(history=history)


def point_view(begin_s: int, point: Point) -> pb.HistoryPoint:
    """A point as the API has it: all fields of Point but the number of samples, under the same names."""
    values: dict[str, Any] = {name: round(value) for name, value in point._asdict().items() if name != "samples"}
    return pb.HistoryPoint(begin_time=Timestamp(seconds=begin_s), **values)
