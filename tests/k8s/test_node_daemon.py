"""What the driver makes of the node's vgpud: its devices, and its events after it was started again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import grpc
import pytest

from vgpud.k8s.core.events import PodUnknown
from vgpud.k8s.core.model import Gpu
from vgpud.k8s.core.published import Policy, specs
from vgpud.k8s.shell import node_daemon
from vgpud.k8s.shell.node_daemon import POD_UNKNOWN, NodeDaemon, node_seen
from vgpud.v1alpha1 import vgpud_pb2 as pb


def read_gpu(**fields: Any) -> Gpu:
    device = pb.Device(uuid="GPU-0", name="H200", mem_total_bytes=8 << 30, granule_bytes=2 << 20, kubernetes=True)
    device.MergeFrom(pb.Device(**fields))
    return node_seen(pb.WatchSlicesResponse(devices=[device]), "580.95.05").gpus[0]


def taints(gpu: Gpu, **policy: bool) -> list[tuple[str, str]]:
    found = specs([gpu], "n1", Policy(**policy))[-1]["devices"][0].get("taints", [])
    return [(one["key"], one["effect"]) for one in found]


def test_a_gpu_that_is_lost_is_faulty() -> None:
    """Its pods can be evicted; others that hold a GPU only keep new ones away."""
    lost = read_gpu(taken_by="lost: NVML says that the GPU is lost")
    assert (lost.fault, lost.taken_by) == ("lost: NVML says that the GPU is lost", "")
    assert taints(lost) == [("vgpu.dev/faulty", "NoSchedule")]
    assert taints(lost, evict_on_fault=True) == [("vgpu.dev/faulty", "NoExecute")]
    held = read_gpu(taken_by="MPS (pid 7)")
    assert (held.fault, held.taken_by) == ("", "MPS (pid 7)")
    assert taints(held, evict_on_fault=True) == [("vgpu.dev/taken", "NoSchedule")]


def test_a_drain_by_a_fault_is_that_fault_also_when_the_gpu_is_lost_then() -> None:
    both = read_gpu(taken_by="lost: gone", drained="Xid 79", drained_by_fault=True)
    assert (both.fault, both.drained, both.taken_by) == ("Xid 79", "Xid 79", "")


def test_what_the_kernel_knows_of_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_daemon, "_PCI", tmp_path / "bus")
    real = tmp_path / "pci0000:40" / "0000:41:00.0"
    real.mkdir(parents=True)
    (tmp_path / "bus").mkdir()
    (tmp_path / "bus" / "0000:41:00.0").symlink_to(real)
    (real / "numa_node").write_text("1\n")
    gpu = read_gpu(pci_bus_id="00000000:41:00.0", context_bytes=5)
    assert (gpu.pci_root, gpu.numa_node, gpu.driver_version, gpu.context_bytes) == ("pci0000:40", 1, "580.95.05", 5)
    (real / "numa_node").write_text("-1\n")
    assert read_gpu(pci_bus_id="00000000:41:00.0").numa_node is None
    assert (read_gpu(pci_bus_id="00000000:42:00.0").numa_node, read_gpu().pci_root) == (None, "")


def test_an_nvlink_group_may_be_zero_or_not_there() -> None:
    assert (read_gpu(nvlink_group=0).nvlink_group, read_gpu().nvlink_group) == (0, None)


def test_events_are_read_from_the_first_one_when_vgpud_was_started_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its numbers begin again, so what came after the last one of its predecessor would be passed over."""
    monkeypatch.setattr(node_daemon, "AGAIN_S", 0.0)
    asked: list[int] = []

    async def watch_events(request: pb.WatchEventsRequest) -> AsyncIterator[pb.WatchEventsResponse]:
        asked.append(request.after_sequence)
        sequence = 50 if len(asked) == 1 else 3
        if len(asked) <= 2:
            event = pb.Event(sequence=sequence, kind=POD_UNKNOWN, slice=f"k-{sequence}")
            yield pb.WatchEventsResponse(event=event)
        else:
            await asyncio.Event().wait()

    async def story() -> list[PodUnknown]:
        found: list[PodUnknown] = []
        async with grpc.aio.insecure_channel("unix:/nowhere") as channel:
            daemon = NodeDaemon(channel, 10.0)
            monkeypatch.setattr(daemon._events, "WatchEvents", watch_events)
            task = asyncio.create_task(daemon.watch_pods(found.append))
            while len(asked) < 3:
                await asyncio.sleep(0.001)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        return found

    found = asyncio.run(story())
    assert asked == [0, 0, 0] and [one.slice_name for one in found] == ["k-50", "k-3"]
