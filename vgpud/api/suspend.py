"""The RPCs that suspend a slice and have it go on. Part of server.py's SliceService."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from google.protobuf.duration_pb2 import Duration

from vgpud.api.rpc import RefusedError, refuse, unary
from vgpud.core.model import Denied, Reason, Slice
from vgpud.v1 import vgpud_pb2 as pb

#: what moving a device's memory may take when the caller does not say
DEADLINE_S = 30.0
_DEADLINE_MIN_S, _DEADLINE_MAX_S = 2.0, 600.0


def _deadline_s(given: Duration, was_given: bool) -> float:
    asked_s = given.seconds + given.nanos / 1e9 if was_given else DEADLINE_S
    if not _DEADLINE_MIN_S <= asked_s <= _DEADLINE_MAX_S:
        text = f"deadline {asked_s:g} s cannot be: write {_DEADLINE_MIN_S:g} to {_DEADLINE_MAX_S:g} seconds"
        raise refuse(Reason.INVALID, text, "deadline")
    return asked_s


class SuspendCalls:
    """Mixed into the service that has `backend`, `_named` and `_slice`."""

    backend: Any
    _named: Callable[[str, str], Slice]
    _slice: Callable[[Slice], pb.Slice]

    @unary
    async def SuspendSlice(self, request: pb.SuspendSliceRequest) -> pb.SuspendSliceResponse:
        made = self._named(request.node, request.name)
        deadline_s = _deadline_s(request.deadline, request.HasField("deadline"))
        changed = await self.backend.suspend(made.name, request.evict, deadline_s)
        return pb.SuspendSliceResponse(slice=await self._told(changed))

    @unary
    async def ResumeSlice(self, request: pb.ResumeSliceRequest) -> pb.ResumeSliceResponse:
        made = self._named(request.node, request.name)
        deadline_s = _deadline_s(request.deadline, request.HasField("deadline"))
        changed = await self.backend.resume(made.name, deadline_s)
        return pb.ResumeSliceResponse(slice=await self._told(changed))

    async def _told(self, changed: Slice | Denied) -> pb.Slice:
        """Answered when it is on the disk, like every change."""
        denied = changed if isinstance(changed, Denied) else await self.backend.saved()
        if denied or isinstance(changed, Denied):
            raise RefusedError(denied)
        return self._slice(changed)
