"""Words of the API's enums, for people and JSON: JOB_STATE_TIMED_OUT is "timed_out", UNSPECIFIED is "".

Made from vgpud.proto by tools/api.py: change that one, and run `make gen`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Generic, TypeVar

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

N = TypeVar("N", bound=int)


class Words(Generic[N]):
    """Of one enum, in the order of its numbers."""

    def __init__(self, *words: str) -> None:
        self.words = words  # without "", which is 0
        self._by_number = ("", *words)
        self._numbers: dict[str, int] = {word: number for number, word in enumerate(self._by_number)}

    def to_word(self, number: int) -> str:
        """Of a value that a later version has: its number."""
        return self._by_number[number] if 0 <= number < len(self._by_number) else str(number)

    def to_number(self, word: str) -> N:
        """Raises ValueError, one sentence, for another word."""
        if word not in self._numbers:
            raise ValueError(f"{word!r} is not known: choose from {', '.join(self.words)}")
        return self._numbers[word]  # type: ignore[return-value]


TENANT_MODE: Words[pb.TenantMode] = Words("coast", "open", "closed")
SCHEDULING: Words[pb.Scheduling] = Words("fifo", "nice", "normal")
GATE: Words[pb.Gate] = Words("closed", "count", "solo")
REGIME: Words[pb.Regime] = Words("idle", "solo", "open", "throttled", "arbitrated")
SERVICE_CLASS: Words[pb.ServiceClass] = Words("batch", "latency")
RESIDENCY: Words[pb.Residency] = Words("leaving", "away", "coming")
SUSPENSION: Words[pb.Suspension] = Words("paused", "evicting", "evicted", "restoring")
TRACE_EVENT_KIND: Words[pb.TraceEventKind] = Words(
    "open", "close", "drained", "overlap", "waits", "outstanding", "launches", "charged", "regime", "late"
)
NOTIFICATION_EVENT: Words[pb.NotificationEvent] = Words("start", "end", "failure")
JOB_STATE: Words[pb.JobState] = Words(
    "pending", "held", "running", "suspended", "completed", "failed", "cancelled", "timed_out"
)
FACT_KIND: Words[pb.FactKind] = Words(
    "queue", "help", "anomaly", "device", "neighbour", "size", "resize", "prediction", "estimate", "rotation"
)
USAGE_BY: Words[pb.UsageBy] = Words("job", "user", "queue", "namespace", "pod")
HISTORY_KIND: Words[pb.HistoryKind] = Words("device", "slice", "job", "queue", "user", "node")

#: by the enum's name
ENUMS: dict[str, Words[int]] = {
    "TenantMode": TENANT_MODE,
    "Scheduling": SCHEDULING,
    "Gate": GATE,
    "Regime": REGIME,
    "ServiceClass": SERVICE_CLASS,
    "Residency": RESIDENCY,
    "Suspension": SUSPENSION,
    "TraceEventKind": TRACE_EVENT_KIND,
    "NotificationEvent": NOTIFICATION_EVENT,
    "JobState": JOB_STATE,
    "FactKind": FACT_KIND,
    "UsageBy": USAGE_BY,
    "HistoryKind": HISTORY_KIND,
}
