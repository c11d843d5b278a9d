"""Shell of Prometheus: the metrics endpoint. Base units, bounded labels (no pids), names that stay.

Metrics are made from a snapshot that the daemon's loop puts here; a scrape never touches the loop.
"""

from __future__ import annotations

import hmac
import os
import pwd
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import accumulate
from pathlib import Path
from typing import Any

from prometheus_client import CollectorRegistry, make_wsgi_app
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from vgpud.core.observed import (
    JOB_WAIT_ENDS_S,
    REGIMES,
    SCHEDULING,
    DeviceSample,
    QueueSample,
    SliceSample,
    Snapshot,
    wait_ends_ns,
)
from vgpud.host.http_server import Answer, HttpServer, Request
from vgpud.host.listeners import METRICS

_NS_PER_S = 1e9
#: in place of a uid: everything is shown
ALL_USERS = -1
#: users with metrics of their own, those with the largest guarantees; the others are one row
USERS_MAX, OTHER_USERS = 200, "others"
#: of the file of tokens
_TOKENS_BYTES_MAX, _TOKEN_LEAST = 1 << 20, 16
#: upper ends of the RPC latency histogram, in seconds
RPC_BUCKETS_S = (0.001, 0.005, 0.025, 0.1, 0.5, 2.5)


@dataclass(slots=True)
class RpcTimes:
    """Latencies of one method and status code."""

    counts: list[int] = field(default_factory=lambda: [0] * (len(RPC_BUCKETS_S) + 1))
    total_s: float = 0.0


class Metrics(Collector):
    """What /metrics shows. The loop calls put() and observe(), the HTTP thread collect()."""

    def __init__(self) -> None:
        self._snapshot = Snapshot()
        self._rpc: dict[tuple[str, str], RpcTimes] = {}
        self.registry = CollectorRegistry()
        self.registry.register(self)

    def put(self, snapshot: Snapshot) -> None:
        self._snapshot = snapshot

    def observe(self, method: str, code: str, seconds: float) -> None:
        """Counts one finished RPC. Both labels are bounded: the service's methods and gRPC's codes."""
        times = self._rpc.setdefault((method, code), RpcTimes())
        times.counts[next((i for i, end in enumerate(RPC_BUCKETS_S) if seconds <= end), len(RPC_BUCKETS_S))] += 1
        times.total_s += seconds

    def serve(self, host: str, port: int, tokens: Mapping[str, int] | None = None) -> HttpServer:
        """Starts the endpoint in a thread and returns its server. tokens: see read_tokens(); None: it answers all.

        Raises OSError.
        """
        return HttpServer(host, port, METRICS, lambda request: self._answer(request, tokens))

    def _answer(self, request: Request, tokens: Mapping[str, int] | None) -> Answer:
        """Asks for a token where there are any, and shows what its user may see."""
        uid = ALL_USERS if tokens is None else _uid_of(request.headers.get("authorization", ""), tokens)
        if uid is None:
            text = b"a token of the file metrics_tokens is needed: Authorization: Bearer TOKEN\n"
            return Answer("401 Unauthorized", (("WWW-Authenticate", "Bearer"), ("Content-Type", "text/plain")), text)
        registry = CollectorRegistry()
        registry.register(self if uid == ALL_USERS else _OfUser(self._snapshot, uid))
        environ = {
            "REQUEST_METHOD": "GET",
            "PATH_INFO": request.path,
            "QUERY_STRING": request.query,
            "HTTP_ACCEPT": request.headers.get("accept", ""),
            "HTTP_ACCEPT_ENCODING": request.headers.get("accept-encoding", ""),
        }
        said: list[Any] = []
        body = b"".join(make_wsgi_app(registry)(environ, lambda *given: said.extend(given)))
        return Answer(str(said[0]), tuple(said[1]), body)

    def collect(self) -> Iterator[Metric]:
        yield from _metrics(self._snapshot)
        yield self._rpc_metric()

    def _rpc_metric(self) -> Metric:
        family = HistogramMetricFamily("vgpu_rpc_duration_seconds", "Time to answer an RPC.", labels=["method", "code"])
        for (method, code), times in list(self._rpc.items()):
            buckets, seen = [], 0
            for end, count in zip([*map(str, RPC_BUCKETS_S), "+Inf"], times.counts, strict=True):
                seen += count
                buckets.append((end, float(seen)))
            family.add_metric([method, code], buckets, times.total_s)
        return family


@dataclass(frozen=True)
class _OfUser(Collector):
    """What one user may see, as in the API: all devices and queues, and the slices that are theirs."""

    snapshot: Snapshot
    uid: int

    def collect(self) -> Iterator[Metric]:
        own = tuple(sample for sample in self.snapshot.slices if sample.owner_uid == self.uid)
        names = {sample.slice_name for sample in own}
        containers = tuple(row for row in self.snapshot.containers if row[0] in names)
        return _metrics(replace(self.snapshot, slices=own, slice_count=len(names), containers=containers))


def read_tokens(path: str) -> dict[str, int]:
    """Who may scrape, from lines `USER TOKEN`: token -> uid; the user * sees everything.

    Raises ValueError with one line that says what is wrong with the file.
    """
    with Path(path).open(encoding="utf-8") as file:
        mode = os.fstat(file.fileno()).st_mode
        text = file.read(_TOKENS_BYTES_MAX)
    if mode & 0o077:
        raise ValueError(f"{path} can be read by others: chmod 600 {path}")
    tokens: dict[str, int] = {}
    for number, line in enumerate(text.splitlines(), 1):
        words = line.split()
        if not words or line.startswith("#"):
            continue
        if len(words) != 2 or len(words[1]) < _TOKEN_LEAST:
            raise ValueError(f"{path}, line {number}: write USER TOKEN, a token of at least {_TOKEN_LEAST} characters")
        try:
            tokens[words[1]] = ALL_USERS if words[0] == "*" else pwd.getpwnam(words[0]).pw_uid
        except KeyError as error:
            raise ValueError(f"{path}, line {number}: there is no user {words[0]}") from error
    return tokens


def _uid_of(header: str, tokens: Mapping[str, int]) -> int | None:
    """The user whose token an Authorization header has; None: no one's. Takes as long for a wrong token as for a
    right one."""
    kind, _, given = header.partition(" ")
    found = [uid for token, uid in tokens.items() if hmac.compare_digest(token.encode(), given.strip().encode())]
    return found[0] if found and kind.lower() == "bearer" else None


def _metrics(now: Snapshot) -> Iterator[Metric]:
    build = InfoMetricFamily("vgpu_build", "The daemon.")
    build.add_metric([], {"version": now.version, "node": now.node})
    yield build
    yield GaugeMetricFamily("vgpu_slices", "Slices on this node.", value=now.slice_count)
    yield GaugeMetricFamily("vgpu_hook_clients", "Attached processes.", value=now.client_count)
    yield _container_metric(now.containers)
    yield from _device_metrics(now.devices)
    yield from _health_metrics(now.devices)
    yield _regime_metric(now.devices, now.slices)
    yield from _slice_metrics(now.slices)
    yield from _user_metrics(now.slices)
    yield from _queue_metrics(now.queues)


def _container_metric(containers: Iterable[tuple[str, int]]) -> Metric:
    """Slices are bounded in number, and so is this label; container ids are not."""
    family = GaugeMetricFamily("vgpu_containers", "Containers that use a slice.", labels=["slice"])
    for slice_name, count in containers:
        family.add_metric([slice_name], count)
    return family


def _queue_metrics(queues: Iterable[QueueSample]) -> Iterator[Metric]:
    """An admin makes queues, so that they are few."""
    jobs = GaugeMetricFamily("vgpu_jobs", "Jobs that have not ended.", labels=["queue", "state"])
    ended = CounterMetricFamily("vgpu_jobs_ended", "Jobs that have ended.", labels=["queue", "state"])
    used = GaugeMetricFamily(
        "vgpu_queue_used_gpus", "Guaranteed minima of the queue's jobs and other slices.", labels=["queue"]
    )
    guarantee = GaugeMetricFamily(
        "vgpu_queue_guarantee_gpus", "Guaranteed GPUs, reclaimed by preemption.", labels=["queue"]
    )
    limit = GaugeMetricFamily("vgpu_queue_limit_gpus", "Limit; absent: no limit.", labels=["queue"])
    waits = HistogramMetricFamily(
        "vgpu_job_wait_seconds", "Times of jobs from submission to the first start.", labels=["queue"]
    )
    ends = [*map(str, JOB_WAIT_ENDS_S), "+Inf"]
    for queue in queues:
        sums = map(float, accumulate(queue.waits.counts))
        waits.add_metric([queue.name], list(zip(ends, sums, strict=True)), queue.waits.total_ns / _NS_PER_S)
        for state, count in queue.jobs:
            jobs.add_metric([queue.name, state], count)
        for state, count in queue.ended_jobs:
            ended.add_metric([queue.name, state], count)
        used.add_metric([queue.name], queue.used_gpus)
        guarantee.add_metric([queue.name], queue.guarantee_gpus)
        if queue.limit_gpus is not None:
            limit.add_metric([queue.name], queue.limit_gpus)
    yield from (jobs, ended, used, guarantee, limit, waits)


def _device_metrics(devices: Iterable[DeviceSample]) -> Iterator[Metric]:
    labels = ["gpu_uuid", "gpu_index"]
    info = InfoMetricFamily("vgpu_gpu", "A device of this node.", labels=labels)
    total = GaugeMetricFamily("vgpu_gpu_memory_total_bytes", "Memory that slices can have.", labels=labels)
    used = GaugeMetricFamily("vgpu_gpu_memory_used_bytes", "Memory in use according to NVML.", labels=labels)
    busy = GaugeMetricFamily("vgpu_gpu_utilization_ratio", "Utilisation according to NVML, 0 to 1.", labels=labels)
    capacity = GaugeMetricFamily("vgpu_gpu_capacity_gpus", "Capacity that can be guaranteed: 1.", labels=labels)
    allocated = GaugeMetricFamily("vgpu_gpu_allocated_gpus", "Sum of the guaranteed minima.", labels=labels)
    late = CounterMetricFamily(
        "vgpu_arbiter_late", "Times that the device's arbiter thread ran more than 0.2 ms late.", labels=labels
    )
    late_max = GaugeMetricFamily("vgpu_arbiter_late_max_seconds", "The latest that it ran.", labels=labels)
    scheduling = GaugeMetricFamily(
        "vgpu_arbiter_scheduling",
        "How that thread is scheduled: 1 for the present way.",
        labels=[*labels, "scheduling"],
    )
    for device in devices:
        key = [device.uuid, str(device.index)]
        late.add_metric(key, device.arbiter.late)
        late_max.add_metric(key, device.arbiter.late_max_ns / _NS_PER_S)
        for way in SCHEDULING:
            scheduling.add_metric([*key, way], float(way == device.arbiter.scheduling))
        info.add_metric(key, {"name": device.name, "simulated": str(device.is_simulated).lower()})
        total.add_metric(key, device.memory_total_bytes)
        if device.memory_used_bytes is not None:
            used.add_metric(key, device.memory_used_bytes)
        if device.utilization_ratio is not None:
            busy.add_metric(key, device.utilization_ratio)
        capacity.add_metric(key, 1)
        allocated.add_metric(key, device.allocated_gpus)
    yield from (info, total, used, busy, capacity, allocated, late, late_max, scheduling)


def _health_metrics(devices: Iterable[DeviceSample]) -> Iterator[Metric]:
    """What NVML reports of the devices' condition; absent where it reports nothing."""
    labels = ["gpu_uuid", "gpu_index"]
    celsius = GaugeMetricFamily("vgpu_gpu_temperature_celsius", "Temperature.", labels=labels)
    watts = GaugeMetricFamily("vgpu_gpu_power_watts", "Power drawn.", labels=labels)
    limit = GaugeMetricFamily("vgpu_gpu_power_limit_watts", "Power limit in force.", labels=labels)
    xids = CounterMetricFamily("vgpu_gpu_xids", "Faults that the driver has reported.", labels=[*labels, "xid"])
    for device in devices:
        key, now = [device.uuid, str(device.index)], device.health
        pairs = ((celsius, now.temperature_celsius, 1), (watts, now.power_milliwatts, 1000))
        for family, value, unit in (*pairs, (limit, now.power_limit_milliwatts, 1000)):
            if value is not None:
                family.add_metric(key, value / unit)
        for xid, count in now.xids:  # the monitor bounds their number
            xids.add_metric([*key, str(xid)], count)
    yield from (celsius, watts, limit, xids)


def _user_metrics(slices: Iterable[SliceSample]) -> Iterator[Metric]:
    """By the owner of slices; beyond USERS_MAX owners, the smaller ones are one row."""
    texts = {
        "vgpu_user_slices": "Slices of the user.",
        "vgpu_user_allocated_gpus": "Sum of the guaranteed minima of the user's slices.",
        "vgpu_user_compute_share_gpus": "SM time that they used in the last second.",
        "vgpu_user_memory_used_bytes": "Memory that they use.",
    }
    names: dict[int, set[str]] = {}
    sums: dict[int, list[float]] = {}
    for sample in slices:
        names.setdefault(sample.owner_uid, set()).add(sample.slice_name)
        row = sums.setdefault(sample.owner_uid, [0.0, 0.0, 0.0])
        for index, value in enumerate((sample.min_gpus, sample.now.share_ratio, sample.now.mem_used_bytes)):
            row[index] += value
    rows: dict[str, list[float]] = {}
    for rank, uid in enumerate(sorted(sums, key=lambda uid: (-sums[uid][0], uid))):
        row = rows.setdefault(_user_name(uid) if rank < USERS_MAX else OTHER_USERS, [0.0] * 4)
        for index, value in enumerate((len(names[uid]), *sums[uid])):
            row[index] += value
    for index, (name, text) in enumerate(texts.items()):
        family = GaugeMetricFamily(name, text, labels=["user"])
        for user, row in rows.items():
            family.add_metric([user], row[index])
        yield family


def _user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except (KeyError, OverflowError):
        return str(uid)


#: the last three of slices of Kubernetes' claims alone: a label that has no value is left out, as Prometheus has it
_SLICE_LABELS = ("slice", "gpu_uuid", "gpu_index", "namespace", "pod", "container")
#: metric name, help text, field of SliceSample
_LIMIT_METRICS = (
    ("vgpu_slice_compute_min_gpus", "Guaranteed share of SM time.", "min_gpus"),
    ("vgpu_slice_compute_max_gpus", "Cap on SM time.", "max_gpus"),
    ("vgpu_slice_memory_limit_bytes", "Memory limit.", "memory_limit_bytes"),
    ("vgpu_slice_memory_resident", "1: its memory is on the device, 0: on the host.", "is_resident"),
)
#: metric name, whether it is a counter, help text, field of SliceStats, how many of its unit are one of the metric's
_SLICE_METRICS = (
    ("vgpu_slice_compute_entitlement_gpus", False, "Entitlement to SM time now.", "entitlement_milli", 1e3),
    ("vgpu_slice_compute_share_ratio", False, "Share of SM time in the last second, 0 to 1.", "share_ratio", 1),
    ("vgpu_slice_compute_share_10s_ratio", False, "Share of SM time in the last 10 seconds.", "share_10s_ratio", 1),
    ("vgpu_slice_compute_share_60s_ratio", False, "Share of SM time in the last minute.", "share_60s_ratio", 1),
    ("vgpu_slice_compute_lag_seconds", False, "Entitlement minus usage; negative: overdrawn.", "lag_ns", _NS_PER_S),
    ("vgpu_slice_compute_used_seconds", True, "SM time charged.", "charged_ns", _NS_PER_S),
    ("vgpu_slice_compute_borrowed_seconds", True, "SM time charged beyond the guarantee.", "borrowed_ns", _NS_PER_S),
    ("vgpu_slice_throttled_seconds", True, "Time that threads waited at the gate.", "throttled_ns", _NS_PER_S),
    ("vgpu_slice_launches", True, "Launches.", "launches", 1),
    ("vgpu_slice_leases", True, "Leases granted.", "grants", 1),
    ("vgpu_slice_early_releases", True, "Leases returned before their end.", "early_releases", 1),
    ("vgpu_slice_overruns", True, "Leases whose holder did not drain in time.", "overruns", 1),
    ("vgpu_slice_drains", True, "Times that the gate was closed during work.", "drains", 1),
    ("vgpu_slice_drain_seconds", True, "Time from closing the gate to the end of work.", "drain_total_ns", _NS_PER_S),
    ("vgpu_slice_drain_max_seconds", False, "The longest drain.", "drain_max_ns", _NS_PER_S),
    ("vgpu_slice_memory_used_bytes", False, "Memory in use by the slice.", "mem_used_bytes", 1),
    ("vgpu_slice_memory_unattributed_bytes", False, "Memory in use beyond the ledger.", "mem_unattributed_bytes", 1),
    ("vgpu_slice_memory_moves", True, "Moves of its memory to the host or back.", "moves", 1),
    ("vgpu_slice_memory_moved_bytes", True, "Memory moved to the host or back.", "moved_bytes", 1),
    ("vgpu_slice_alloc_denied", True, "Allocations refused.", "mem_denied", 1),
    ("vgpu_slice_pinned_bytes", False, "Host memory pinned by the slice.", "pinned_bytes", 1),
)


def _key(sample: SliceSample) -> list[str]:
    return [sample.slice_name, sample.uuid, str(sample.index), *sample.pod_labels]


def _slice_metrics(slices: tuple[SliceSample, ...]) -> Iterator[Metric]:
    for name, text, attribute in _LIMIT_METRICS:
        limit = GaugeMetricFamily(name, text, labels=_SLICE_LABELS)
        for sample in slices:
            limit.add_metric(_key(sample), getattr(sample, attribute))
        yield limit
    for name, counts, text, attribute, unit in _SLICE_METRICS:
        family = (CounterMetricFamily if counts else GaugeMetricFamily)(name, text, labels=_SLICE_LABELS)
        for sample in slices:
            family.add_metric(_key(sample), getattr(sample.now, attribute) / unit)
        yield family
    yield from _copy_metrics(slices)
    yield _wait_metric(slices)
    info = InfoMetricFamily("vgpu_slice", "User, queue and class of a slice.", labels=["slice"])
    for sample in {sample.slice_name: sample for sample in slices}.values():
        values = {"user": _user_name(sample.owner_uid), "queue": sample.queue, "class": sample.service_class}
        info.add_metric([sample.slice_name], values)
    yield info


def _copy_metrics(slices: Iterable[SliceSample]) -> Iterator[Metric]:
    labels = ("direction", *_SLICE_LABELS)  # in front of those that a slice may be without
    size = CounterMetricFamily("vgpu_slice_copy_bytes", "Copied between host and device.", labels=labels)
    text = "Time of the link for these bytes at its rate, which is computed."
    link = CounterMetricFamily("vgpu_slice_copy_link_seconds", text, labels=labels)
    for sample in slices:
        now = sample.now
        for direction, copy_bytes, link_ns in (
            ("to_device", now.copy_to_device_bytes, now.copy_to_device_ns),
            ("from_device", now.copy_from_device_bytes, now.copy_from_device_ns),
        ):
            size.add_metric([direction, *_key(sample)], copy_bytes)
            if link_ns is not None:
                link.add_metric([direction, *_key(sample)], link_ns / _NS_PER_S)
    yield from (size, link)


def _wait_metric(slices: Iterable[SliceSample]) -> Metric:
    family = HistogramMetricFamily("vgpu_slice_wait_seconds", "Waits at the closed gate.", labels=_SLICE_LABELS)
    ends = [*(str(end_ns / _NS_PER_S) for end_ns in wait_ends_ns()), "+Inf"]
    for sample in slices:
        sums = [float(total) for total in accumulate(sample.now.wait_counts)]
        family.add_metric(_key(sample), list(zip(ends, sums, strict=True)), sample.now.throttled_ns / _NS_PER_S)
    return family


def _regime_metric(devices: Iterable[DeviceSample], slices: Iterable[SliceSample]) -> Metric:
    """All regimes of every device, 1 for the present one: that of any slice on it."""
    labels = ["gpu_uuid", "gpu_index", "regime"]
    family = GaugeMetricFamily("vgpu_gpu_regime", "How the device is shared: 1 for the present regime.", labels=labels)
    current = {sample.uuid: sample.now.regime for sample in slices if sample.now.regime}
    for device in devices:
        for regime in REGIMES:
            now = current.get(device.uuid, REGIMES[0]) == regime
            family.add_metric([device.uuid, str(device.index), regime], float(now))
    return family
