"""Shell of Prometheus: the metrics endpoint. Base units, bounded labels (no pids), names that stay.

Metrics are made from a snapshot that the daemon's loop puts here; a scrape never touches the loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

from prometheus_client import CollectorRegistry, start_http_server
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
    Metric,
)
from prometheus_client.registry import Collector

from vgpud.core.observed import DeviceSample, SliceSample, Snapshot

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

    def serve(self, host: str, port: int) -> Any:
        """Starts the endpoint in a thread and returns its server. Raises OSError."""
        server, _thread = start_http_server(port, host, self.registry)
        return server

    def collect(self) -> Iterator[Metric]:
        now = self._snapshot
        build = InfoMetricFamily("vgpu_build", "The daemon.")
        build.add_metric([], {"version": now.version, "node": now.node})
        yield build
        yield GaugeMetricFamily("vgpu_slices", "Slices on this node.", value=now.slice_count)
        yield GaugeMetricFamily("vgpu_hook_clients", "Attached processes.", value=now.client_count)
        yield _container_metric(now.containers)
        yield from _device_metrics(now.devices)
        yield from _slice_metrics(now.slices)
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


def _container_metric(containers: Iterable[tuple[str, int]]) -> Metric:
    """Slices are bounded, and so is this label; container ids come and go without end."""
    family = GaugeMetricFamily("vgpu_containers", "Containers that use a slice.", labels=["slice"])
    for slice_name, count in containers:
        family.add_metric([slice_name], count)
    return family


def _device_metrics(devices: Iterable[DeviceSample]) -> Iterator[Metric]:
    labels = ["gpu_uuid", "gpu_index"]
    info = InfoMetricFamily("vgpu_gpu", "A device of this node.", labels=labels)
    total = GaugeMetricFamily("vgpu_gpu_memory_total_bytes", "Memory that slices can have.", labels=labels)
    used = GaugeMetricFamily("vgpu_gpu_memory_used_bytes", "Memory in use according to NVML.", labels=labels)
    busy = GaugeMetricFamily("vgpu_gpu_utilization_ratio", "Utilisation according to NVML, 0 to 1.", labels=labels)
    capacity = GaugeMetricFamily("vgpu_gpu_capacity_gpus", "What can be guaranteed: 1 per device.", labels=labels)
    allocated = GaugeMetricFamily("vgpu_gpu_allocated_gpus", "Sum of the guaranteed minima.", labels=labels)
    for device in devices:
        key = [device.uuid, str(device.index)]
        info.add_metric(key, {"name": device.name, "simulated": str(device.simulated).lower()})
        total.add_metric(key, device.memory_total_bytes)
        if device.memory_used_bytes is not None:
            used.add_metric(key, device.memory_used_bytes)
        if device.utilization_ratio is not None:
            busy.add_metric(key, device.utilization_ratio)
        capacity.add_metric(key, 1)
        allocated.add_metric(key, device.allocated_gpus)
    yield from (info, total, used, busy, capacity, allocated)


#: metric name, whether it is a counter, help text, field of SliceSample
_SLICE_METRICS = (
    ("vgpu_slice_compute_min_gpus", False, "Guaranteed share of SM time.", "min_gpus"),
    ("vgpu_slice_compute_max_gpus", False, "Cap on SM time.", "max_gpus"),
    ("vgpu_slice_memory_limit_bytes", False, "Most memory the slice may have.", "memory_limit_bytes"),
    ("vgpu_slice_memory_used_bytes", False, "Memory in use by the slice.", "memory_used_bytes"),
    ("vgpu_slice_compute_share_ratio", False, "Share of SM time in the last second, 0 to 1.", "share_ratio"),
    ("vgpu_slice_compute_used_seconds", True, "SM time charged.", "charged_s"),
    ("vgpu_slice_throttled_seconds", True, "Time that threads waited at the gate.", "throttled_s"),
    ("vgpu_slice_alloc_denied", True, "Allocations refused.", "denied"),
    ("vgpu_slice_overruns", True, "Leases whose holder had not drained in time.", "overruns"),
)


def _slice_metrics(slices: tuple[SliceSample, ...]) -> Iterator[Metric]:
    labels = ["slice", "gpu_uuid", "gpu_index"]
    for name, counts, text, attribute in _SLICE_METRICS:
        family = (CounterMetricFamily if counts else GaugeMetricFamily)(name, text, labels=labels)
        for sample in slices:
            family.add_metric([sample.slice_name, sample.uuid, str(sample.index)], getattr(sample, attribute))
        yield family
