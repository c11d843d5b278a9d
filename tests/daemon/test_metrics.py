"""What a scrape shows, from a snapshot: names, units, the histogram of waits, the regime; and that the docs list it."""

from __future__ import annotations

import re
from pathlib import Path

from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from vgpud.core.observed import REGIMES, SCHEDULING, DeviceSample, QueueSample, SliceSample, SliceStats, Snapshot
from vgpud.metrics import Metrics

ROOT = Path(__file__).resolve().parents[2]
KEY = {"slice": "train", "gpu_uuid": "GPU-0", "gpu_index": "0"}
DID = SliceStats(
    share_ratio=0.4,
    share_10s_ratio=0.41,
    share_60s_ratio=0.42,
    entitlement_milli=450,
    lag_ns=-2_000_000,
    charged_ns=9_000_000_000,
    borrowed_ns=3_000_000_000,
    throttled_ns=1_500_000_000,
    wait_counts=(5, 0, 3, *(0,) * 12, 2),
    drains=7,
    drain_total_ns=14_000_000,
    drain_max_ns=4_000_000,
    early_releases=6,
    regime="arbitrated",
)


def scraped(now: SliceStats = DID) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
    metrics = Metrics()
    devices = tuple(DeviceSample(f"GPU-{i}", i, "H200", True, 1 << 36, None, None, 0.5) for i in range(2))
    slices = (SliceSample("train", "GPU-0", 0, 0.25, 0.75, 8 << 30, now),)
    metrics.put(Snapshot(node="n", version="1", devices=devices, slices=slices, slice_count=1))
    text = generate_latest(metrics.registry).decode()
    return {
        (s.name, frozenset(s.labels.items())): s.value
        for family in text_string_to_metric_families(text)
        for s in family.samples
    }


def test_what_the_arbiter_tells_is_there_in_base_units() -> None:
    found = scraped()
    for name, value in {
        "compute_entitlement_gpus": 0.45,
        "compute_share_ratio": 0.4,
        "compute_share_10s_ratio": 0.41,
        "compute_share_60s_ratio": 0.42,
        "compute_lag_seconds": -0.002,
        "compute_used_seconds_total": 9.0,
        "compute_borrowed_seconds_total": 3.0,
        "throttled_seconds_total": 1.5,
        "drains_total": 7,
        "drain_seconds_total": 0.014,
        "drain_max_seconds": 0.004,
        "early_releases_total": 6,
        "memory_limit_bytes": 8 << 30,
    }.items():
        assert found[f"vgpu_slice_{name}", frozenset(KEY.items())] == value, name


def test_waits_are_a_histogram_of_prometheus() -> None:
    found = scraped()
    buckets = {
        dict(labels)["le"]: value for (name, labels), value in found.items() if name == "vgpu_slice_wait_seconds_bucket"
    }
    assert len(buckets) == 16
    assert (buckets["1.6e-05"], buckets["3.2e-05"], buckets["6.4e-05"]) == (5, 5, 8)
    assert (buckets["0.262144"], buckets["+Inf"]) == (8, 10)
    assert found["vgpu_slice_wait_seconds_count", frozenset(KEY.items())] == 10
    assert found["vgpu_slice_wait_seconds_sum", frozenset(KEY.items())] == 1.5


def test_a_device_is_in_one_regime() -> None:
    found = scraped()

    def regimes(index: int) -> dict[str, float]:
        device = {"gpu_uuid": f"GPU-{index}", "gpu_index": str(index)}
        return {r: found["vgpu_gpu_regime", frozenset((device | {"regime": r}).items())] for r in REGIMES}

    assert regimes(0) == {r: float(r == "arbitrated") for r in REGIMES}
    assert regimes(1) == {r: float(r == "idle") for r in REGIMES}


def test_how_an_arbiters_thread_is_scheduled() -> None:
    found = scraped()
    device = {"gpu_uuid": "GPU-0", "gpu_index": "0"}
    ways = {
        way: found["vgpu_arbiter_scheduling", frozenset((device | {"scheduling": way}).items())] for way in SCHEDULING
    }
    assert ways == {way: float(way == "normal") for way in SCHEDULING}
    assert found["vgpu_arbiter_late_total", frozenset(device.items())] == 0
    assert found["vgpu_arbiter_late_max_seconds", frozenset(device.items())] == 0


def test_queues_say_what_they_have_and_may_have() -> None:
    metrics = Metrics()
    team = QueueSample("team", 1.25, 0.5, 2.0, (("pending", 3), ("running", 2)), (("failed", 4),))
    metrics.put(Snapshot(queues=(team, QueueSample("default", 0.0, 0.0, None))))
    text = generate_latest(metrics.registry).decode()
    for line in (
        'vgpu_jobs{queue="team",state="pending"} 3.0',
        'vgpu_jobs_ended_total{queue="team",state="failed"} 4.0',
        'vgpu_queue_used_gpus{queue="team"} 1.25',
        'vgpu_queue_guarantee_gpus{queue="team"} 0.5',
        'vgpu_queue_limit_gpus{queue="team"} 2.0',
    ):
        assert line in text
    assert 'vgpu_queue_limit_gpus{queue="default"}' not in text


def test_the_docs_list_every_metric_and_no_other() -> None:
    listed = set(re.findall(r"^\| `(vgpu_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    metrics = Metrics()
    metrics.observe("GetNode", "OK", 0.1)
    shown = {
        f"{family.name}{'_total' if family.type == 'counter' else '_info' if family.type == 'info' else ''}"
        for family in metrics.collect()
    }
    assert listed == shown
