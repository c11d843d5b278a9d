"""What Kubernetes' scheduler sees of this node's devices, as the driver beside the daemon has said last.

In memory only: a driver says it again within seconds after the daemon was started.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from vgpud.api.slice_messages import timestamp
from vgpud.core.model import PUBLISHED_MAX, Denied, Reason
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: a driver reports every 15 s: after three that did not come, what it said may be out of date
SILENT_S = 45.0
NEVER = "no driver has said so since vgpud was started: vgpud-k8s does not run on this node, or is an older one"
SILENT = "the driver does not report any more: this is what it had published before"
HIDDEN = "the driver has a problem, which admins are shown"


class PublicationKeeper:
    """`now_s`: a clock that is never set. How long a report may be is bounded by the API's messages."""

    def __init__(self, node_name: str, now_s: Callable[[], float] = time.monotonic) -> None:
        self._node_name, self._now_s = node_name, now_s
        self._last: pb.Publication | None = None
        self._last_s = 0.0

    def put(self, publication: pb.Publication) -> Denied | None:
        """Keeps it in place of what was said before, or says why not."""
        count = len(publication.devices)
        if count > PUBLISHED_MAX:
            text = f"{count} published devices are more than a node has: at most {PUBLISHED_MAX}"
            return Denied(Reason.INVALID, text, "publication.devices")
        self._last, self._last_s = pb.Publication(), self._now_s()
        self._last.CopyFrom(publication)
        self._last.node = self._node_name
        self._last.report_time.CopyFrom(timestamp(time.time_ns()))
        return None

    def view(self, *, with_reasons: bool) -> pb.Publication:
        """What was said last, and what is wrong with it. with_reasons: also the driver's own words, which may name the
        API server."""
        if self._last is None:
            return pb.Publication(node=self._node_name, problem=NEVER)
        shown = pb.Publication()
        shown.CopyFrom(self._last)
        if shown.problem and not with_reasons:
            shown.problem = HIDDEN
        if self._now_s() - self._last_s > SILENT_S:
            shown.problem = f"{SILENT} ({shown.problem})" if shown.problem else SILENT
        return shown
