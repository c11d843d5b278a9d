"""What a scrape shows, from a snapshot: names, units, the histogram of waits, the regime; and that the docs list it."""

from __future__ import annotations

import http.client
import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families

from vgpud.core.jobs.counts import JobCounts
from vgpud.core.jobs.model import JobState
from vgpud.core.observed import (
    REGIMES,
    SCHEDULING,
    DeviceSample,
    JobWaits,
    QueueSample,
    Reading,
    SliceSample,
    SliceStats,
    Snapshot,
)
from vgpud.metrics import ALL_USERS, Metrics, read_tokens

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


def scrape_metrics(now: SliceStats = DID) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
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
    found = scrape_metrics()
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


def test_slices_of_claims_are_labelled_as_kube_state_metrics_labels_pods() -> None:
    claims = [
        ("k-1", ("team", "train-0", "main")),
        ("k-2", ("team", "train-1")),
        ("k-3", ("team",)),
        ("mine", ()),
    ]
    metrics = Metrics()
    slices = tuple(SliceSample(name, "GPU-0", 0, 0.1, 0.1, 1, DID, pod_labels=pod) for name, pod in claims)
    metrics.put(Snapshot(slices=slices))
    text = generate_latest(metrics.registry).decode()
    key = 'gpu_index="0",gpu_uuid="GPU-0"'
    for labels in (
        f'container="main",{key},namespace="team",pod="train-0",slice="k-1"',
        f'{key},namespace="team",pod="train-1",slice="k-2"',
        f'{key},namespace="team",slice="k-3"',
        f'{key},slice="mine"',
    ):
        assert f"vgpu_slice_compute_used_seconds_total{{{labels}}} 9.0" in text
        assert f"vgpu_slice_memory_limit_bytes{{{labels}}} 1.0" in text
        assert f"vgpu_slice_wait_seconds_count{{{labels}}} 10.0" in text


def test_copies_have_a_direction_and_the_links_time_for_them() -> None:
    """Where the rate of the link is known; whatever other labels a slice has."""
    known = replace(DID, copy_to_device_bytes=3000, copy_from_device_bytes=7)
    known = replace(known, copy_to_device_ns=60_000_000, copy_from_device_ns=0)
    unknown = replace(known, copy_to_device_ns=None, copy_from_device_ns=None)
    rows = [("k-1", ("team", "train-0", "main"), known), ("k-2", ("team",), known), ("mine", (), unknown)]
    samples = (SliceSample(name, "GPU-0", 0, 0.1, 0.1, 1, now, pod_labels=pod) for name, pod, now in rows)
    lines = text_of(Snapshot(slices=tuple(samples))).splitlines()
    device = 'gpu_index="0",gpu_uuid="GPU-0"'
    wanted = set()
    for before, after, is_known in (
        ('container="main",', ',namespace="team",pod="train-0",slice="k-1"', True),
        ("", ',namespace="team",slice="k-2"', True),
        ("", ',slice="mine"', False),
    ):
        for direction, size, link_s in (("to_device", "3000.0", "0.06"), ("from_device", "7.0", "0.0")):
            labels = f'{{{before}direction="{direction}",{device}{after}}}'
            wanted.add(f"vgpu_slice_copy_bytes_total{labels} {size}")
            if is_known:
                wanted.add(f"vgpu_slice_copy_link_seconds_total{labels} {link_s}")
    assert {line for line in lines if line.startswith("vgpu_slice_copy_")} == wanted


def test_waits_are_a_histogram_of_prometheus() -> None:
    found = scrape_metrics()
    buckets = {
        dict(labels)["le"]: value for (name, labels), value in found.items() if name == "vgpu_slice_wait_seconds_bucket"
    }
    assert len(buckets) == 16
    assert (buckets["1.6e-05"], buckets["3.2e-05"], buckets["6.4e-05"]) == (5, 5, 8)
    assert (buckets["0.262144"], buckets["+Inf"]) == (8, 10)
    assert found["vgpu_slice_wait_seconds_count", frozenset(KEY.items())] == 10
    assert found["vgpu_slice_wait_seconds_sum", frozenset(KEY.items())] == 1.5


def test_a_device_is_in_one_regime() -> None:
    found = scrape_metrics()

    def regimes(index: int) -> dict[str, float]:
        device = {"gpu_uuid": f"GPU-{index}", "gpu_index": str(index)}
        return {r: found["vgpu_gpu_regime", frozenset((device | {"regime": r}).items())] for r in REGIMES}

    assert regimes(0) == {r: float(r == "arbitrated") for r in REGIMES}
    assert regimes(1) == {r: float(r == "idle") for r in REGIMES}


def test_how_an_arbiters_thread_is_scheduled() -> None:
    found = scrape_metrics()
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


def text_of(snapshot: Snapshot) -> str:
    metrics = Metrics()
    metrics.put(snapshot)
    return generate_latest(metrics.registry).decode()


def test_what_nvml_reports_of_a_device_is_there_and_nothing_else() -> None:
    health = Reading(1, 0.5, 41, 312_500, 700_000, xids=((31, 2), (79, 1)))
    devices = (
        DeviceSample("GPU-0", 0, "H200", True, 1 << 36, None, None, 0.5, health=health),
        DeviceSample("GPU-1", 1, "H200", True, 1 << 36, None, None, 0.5),
    )
    text = text_of(Snapshot(devices=devices))
    for line in (
        'vgpu_gpu_temperature_celsius{gpu_index="0",gpu_uuid="GPU-0"} 41.0',
        'vgpu_gpu_power_watts{gpu_index="0",gpu_uuid="GPU-0"} 312.5',
        'vgpu_gpu_power_limit_watts{gpu_index="0",gpu_uuid="GPU-0"} 700.0',
        'vgpu_gpu_xids_total{gpu_index="0",gpu_uuid="GPU-0",xid="31"} 2.0',
        'vgpu_gpu_xids_total{gpu_index="0",gpu_uuid="GPU-0",xid="79"} 1.0',
    ):
        assert line in text
    assert not re.search(r"vgpu_gpu_(temperature|power|xids)[^{]*[{][^}]*GPU-1", text)


def test_waits_of_jobs_are_a_histogram() -> None:
    waits = JobWaits()
    for wait_s in (0.5, 1, 30, 7200, 10**6):
        waits = waits.plus(int(wait_s * 1e9))
    text = text_of(Snapshot(queues=(QueueSample("team", 0.0, 0.0, None, waits=waits),)))
    buckets = dict(re.findall(r'vgpu_job_wait_seconds_bucket[{]le="([^"]+)",queue="team"[}] (\S+)', text))
    ends = ("1", "10", "60", "3600", "14400", "259200", "+Inf")
    assert [float(buckets[end]) for end in ends] == [2, 2, 3, 3, 4, 4, 5]
    assert 'vgpu_job_wait_seconds_sum{queue="team"} 1.0072315e+06' in text


def test_a_wait_is_counted_once_at_the_first_start() -> None:
    counts = JobCounts()
    job: Any = SimpleNamespace(job_id=1, submitted_ns=5_000_000_000, first_started_ns=-1, state=JobState.PENDING)
    job.spec = SimpleNamespace(queue="team", uid=0, array=0, run=None)
    counts.see(job)
    assert counts.waits == {}
    job.state, job.first_started_ns = JobState.RUNNING, 25_000_000_000
    counts.see(job)
    job.state = JobState.PENDING  # preempted
    counts.see(job)
    job.state = JobState.COMPLETED
    counts.see(job)
    assert (sum(counts.waits["team"].counts), counts.waits["team"].total_ns) == (1, 20_000_000_000)
    started: Any = SimpleNamespace(**{**vars(job), "job_id": 2, "state": JobState.RUNNING})
    counts.see(started)  # found again after a restart: it was counted by the daemon that started it
    never: Any = SimpleNamespace(**{**vars(job), "job_id": 3, "state": JobState.PENDING, "first_started_ns": -1})
    counts.see(never)
    never.state = JobState.CANCELLED
    counts.see(never)
    assert sum(counts.waits["team"].counts) == 1


ANN, BOB = 70_001, 70_002  # no such users: their numbers are shown


def of_users() -> Snapshot:
    def one(name: str, uid: int, min_gpus: float) -> SliceSample:
        now = SliceStats(share_ratio=0.25, mem_used_bytes=1 << 30)
        return SliceSample(name, "GPU-0", 0, min_gpus, 1.0, 8 << 30, now, uid, "team", "batch")

    slices = (one("a", ANN, 0.25), one("b", ANN, 0.125), one("c", BOB, 0.5))
    return Snapshot(slices=slices, slice_count=3, containers=(("a", 1), ("c", 2)))


def test_users_are_summed_and_slices_say_whose_they_are() -> None:
    text = text_of(of_users())
    for line in (
        f'vgpu_user_slices{{user="{ANN}"}} 2.0',
        f'vgpu_user_allocated_gpus{{user="{ANN}"}} 0.375',
        f'vgpu_user_compute_share_gpus{{user="{BOB}"}} 0.25',
        f'vgpu_user_memory_used_bytes{{user="{ANN}"}} 2.147483648e+09',
        f'vgpu_slice_info{{class="batch",queue="team",slice="c",user="{BOB}"}} 1.0',
    ):
        assert line in text, line


def test_the_number_of_users_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("vgpud.metrics.USERS_MAX", 1)
    text = text_of(of_users())
    assert f'vgpu_user_slices{{user="{BOB}"}} 1.0' in text, "it has the largest guarantee"
    assert 'vgpu_user_slices{user="others"} 2.0' in text and str(ANN) not in re.sub("vgpu_slice_info.*", "", text)


# ---- who may scrape ----


@pytest.fixture
def scrape() -> Iterator[Callable[..., tuple[int, str]]]:
    """scrape(token): status and text of an endpoint that wants the tokens of ann and of all users."""
    metrics = Metrics()
    metrics.put(of_users())
    server = metrics.serve("127.0.0.1", 0, {"a-token-of-ann-0": ANN, "a-token-of-all-0": ALL_USERS})

    def get(header: str = "") -> tuple[int, str]:
        connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=30)
        connection.request("GET", "/metrics", headers={"Authorization": header} if header else {})
        answer = connection.getresponse()
        text = answer.read().decode()
        connection.close()
        return answer.status, text

    yield get
    server.close()


@pytest.mark.parametrize("header", ["", "Bearer wrong", "Bearer", "Basic a-token-of-all-0", "Bearer a-token-of-ann-0x"])
def test_without_a_token_nothing_is_shown(scrape: Callable[..., tuple[int, str]], header: str) -> None:
    code, text = scrape(header)
    assert code == 401 and "vgpu_" not in text and "metrics_tokens" in text


def test_a_user_sees_their_own_slices_and_the_user_star_everything(scrape: Callable[..., tuple[int, str]]) -> None:
    code, text = scrape("Bearer a-token-of-ann-0")
    assert code == 200
    assert set(re.findall(r'slice="(\w+)"', text)) == {"a", "b"}
    assert set(re.findall(r'user="(\w+)"', text)) == {str(ANN)}
    assert "vgpu_slices 2.0" in text and "vgpu_rpc" not in text
    code, text = scrape("Bearer a-token-of-all-0")
    assert code == 200 and set(re.findall(r'slice="(\w+)"', text)) == {"a", "b", "c"}


def test_a_file_of_tokens_is_checked(tmp_path: Path) -> None:
    path = tmp_path / "tokens"
    path.write_text("# who may scrape\n\n* 0123456789abcdef\nroot fedcba9876543210\n")
    path.chmod(0o600)
    assert read_tokens(str(path)) == {"0123456789abcdef": ALL_USERS, "fedcba9876543210": 0}
    path.chmod(0o644)
    with pytest.raises(ValueError, match="chmod 600"):
        read_tokens(str(path))
    path.chmod(0o600)
    for line, words in (("root short", "line 1"), ("root", "USER TOKEN"), ("no-such-user 0123456789abcdef", "no-such")):
        path.write_text(line)
        with pytest.raises(ValueError, match=words):
            read_tokens(str(path))


def test_the_docs_list_every_metric_and_no_other() -> None:
    listed = set(re.findall(r"^\| `(vgpu_\w+)`", (ROOT / "docs/metrics.md").read_text(), re.MULTILINE))
    metrics = Metrics()
    metrics.observe("GetNode", "OK", 0.1)
    shown = {
        f"{family.name}{'_total' if family.type == 'counter' else '_info' if family.type == 'info' else ''}"
        for family in metrics.collect()
    }
    assert listed == shown
