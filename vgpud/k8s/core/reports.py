"""Events of Kubernetes (`kubectl describe`) about claims and their pods: what is said, and how often.

A note may quote what others have written (names, reasons of operators), so it is one printable line of bounded length.
kubelet asks for a claim that cannot be prepared every few seconds, so what was said of an object is not said again for
a while, and a node and each namespace on it say no more than their share: an event that is lost is in the driver's log.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vgpud.core.units import format_bytes, format_gpus
from vgpud.k8s.core.claim_objects import pod_refs
from vgpud.k8s.core.events import Command, Report
from vgpud.k8s.core.model import Asked, Granted, Ref

SECOND_NS = 1_000_000_000
#: how long the same is not said again of an object; of how many such sayings the driver knows
AGAIN_NS, KNOWN_MAX = 600 * SECOND_NS, 1000
#: events at once, and how long it takes until there may be one more
BURST, EVERY_NS = 50, 2 * SECOND_NS
#: the same of one namespace, half of the node's: one that makes claims in a loop leaves the others theirs
NAMESPACE_BURST, NAMESPACE_EVERY_NS = 25, 4 * SECOND_NS
#: of a claim's pods that an event is written for; of a note, in the API
PODS_MAX, NOTE_BYTES_MAX = 8, 1024


@dataclass(slots=True)
class Bucket:
    """How many events may still be said, of `burst`; one more each `every_ns`."""

    burst: int
    every_ns: int
    tokens: int = field(init=False)
    refill_ns: int = 0

    def __post_init__(self) -> None:
        self.tokens = self.burst

    def refill(self, now_ns: int) -> int:
        """Returns how many there are now."""
        more = (now_ns - self.refill_ns) // self.every_ns
        self.tokens = min(self.burst, self.tokens + more)
        self.refill_ns += more * self.every_ns
        return self.tokens


@dataclass(slots=True)
class ReportLog:
    """What was said, by object and sentence, and what may still be said, in all and by namespace."""

    until_ns: OrderedDict[tuple[str, str, str], int] = field(default_factory=OrderedDict)
    node: Bucket = field(default_factory=lambda: Bucket(BURST, EVERY_NS))
    namespaces: OrderedDict[str, Bucket] = field(default_factory=OrderedDict)

    def bucket_of(self, namespace: str) -> Bucket:
        """Of the KNOWN_MAX namespaces that had an event last."""
        bucket = self.namespaces.setdefault(namespace, Bucket(NAMESPACE_BURST, NAMESPACE_EVERY_NS))
        self.namespaces.move_to_end(namespace)
        while len(self.namespaces) > KNOWN_MAX:
            self.namespaces.popitem(last=False)
        return bucket


def report_claim(claim: Mapping[str, Any], reason: str, note: str, *, is_warning: bool = False) -> list[Report]:
    """One for the claim and for each of its pods."""
    metadata = claim.get("metadata") or {}
    ref = Ref(str(metadata.get("uid")), str(metadata.get("namespace")), str(metadata.get("name")))
    pods = pod_refs(claim)[:PODS_MAX]
    objects = [("ResourceClaim", ref), *(("Pod", pod) for pod in pods)]
    return [Report(kind, one, reason, printable_line(note), is_warning) for kind, one in objects]


def report_failure(ref: Ref, note: str) -> Report:
    """A claim that could not be prepared. kubelet itself says it of the pod."""
    return Report("ResourceClaim", ref, "PrepareFailed", printable_line(note), is_warning=True)


def describe_slice(requested_claim: Asked, granted: Iterable[Granted], slice_name: str) -> str:
    """What a claim has, in one line."""
    devices = {result.uuid: result.device for result in requested_claim.results}
    parts = [
        f"{devices.get(one.uuid, one.uuid)}: {_range(format_gpus(one.min_milli), format_gpus(one.max_milli))} of the SM"
        f" time, {_range(format_bytes(one.mem_min_bytes), format_bytes(one.mem_max_bytes))} of memory"
        for one in granted
    ]
    return f"slice {slice_name} has {'; '.join(parts)}"


def printable_line(text: str) -> str:
    """One printable line of at most NOTE_BYTES_MAX bytes."""
    shown = "".join(c if c.isprintable() else " " for c in text)
    return shown.encode()[:NOTE_BYTES_MAX].decode(errors="ignore")


def limit_reports(report_log: ReportLog, commands: Iterable[Command], now_ns: int) -> Iterator[Command]:
    """The commands without reports that were made a short while ago, or are too many."""
    for command in commands:
        if not isinstance(command, Report) or _may_say(report_log, command, now_ns):
            yield command


def _may_say(report_log: ReportLog, report: Report, now_ns: int) -> bool:
    key = (report.subject.uid, report.reason, report.note)
    buckets = report_log.node, report_log.bucket_of(report.subject.namespace)
    if min([bucket.refill(now_ns) for bucket in buckets]) < 1 or now_ns < report_log.until_ns.get(key, now_ns):
        return False
    for bucket in buckets:
        bucket.tokens -= 1
    report_log.until_ns[key] = now_ns + AGAIN_NS
    report_log.until_ns.move_to_end(key)
    while len(report_log.until_ns) > KNOWN_MAX:
        report_log.until_ns.popitem(last=False)
    return True


def _range(low: str, high: str) -> str:
    return low if low == high else f"{low} to {high}"
