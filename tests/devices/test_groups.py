"""Which devices are linked, as NVML says it: for members that need several."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from itertools import combinations
from typing import Any

import pynvml
import pytest

from tests.builders import make_device
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.core.model import Device
from vgpud.devices.nvml import Devices

LINKED, APART = pynvml.NVML_P2P_STATUS_OK, pynvml.NVML_P2P_STATUS_NOT_SUPPORTED


def refuse(*_: Any) -> Any:
    raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)


def make_devices(count: int) -> tuple[Devices, list[Device]]:
    """Devices 10, 11, ... of a node."""
    shell = Devices.__new__(Devices)  # without a driver: handles are numbers here
    shell._handles = {f"GPU-{index}": index for index in range(count)}
    return shell, [make_device(10 + i, uuid=f"GPU-{i}") for i in range(count)]


def groups(count: int) -> tuple[int, ...]:
    shell, devices = make_devices(count)
    return shell.groups(devices)


def nvlink(count: int) -> list[int | None]:
    shell, devices = make_devices(count)
    return [device.nvlink_group for device in shell._with_nvlink(tuple(devices))]


@pytest.mark.parametrize(
    ("links", "numa_of", "group_numbers"),
    [
        ({(0, 1), (2, 3)}, (0, 0, 0, 0), (0, 0, 2, 2)),  # NVLink comes before NUMA
        ({(0, 3), (1, 2), (2, 3)}, (0, 0, 1, 1), (0, 0, 0, 0)),  # linked through others
        ({(1, 2)}, (0, 0, 0, 0), (0, 1, 1, 3)),
        (set(combinations(range(4), 2)), (0, 0, 1, 1), (0, 0, 0, 0)),  # a switch
        (set(), (0, 1, 0, 1), (0, 1, 0, 1)),
        (set(), (0, 1, 2, 3), ()),  # none has a neighbour: nothing to choose by
    ],
)
def test_nvlink_then_numa(
    links: set[tuple[int, int]],
    numa_of: tuple[int, ...],
    group_numbers: tuple[int, ...],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def status(a: int, b: int, index: int) -> int:
        assert index == pynvml.NVML_P2P_CAPS_INDEX_NVLINK
        return int(LINKED if (min(a, b), max(a, b)) in links else APART)

    def ancestor(a: int, b: int) -> int:
        return int(pynvml.NVML_TOPOLOGY_NODE if numa_of[a] == numa_of[b] else pynvml.NVML_TOPOLOGY_SYSTEM)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetP2PStatus", status)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTopologyCommonAncestor", ancestor)
    assert groups(4) == group_numbers
    # what claims are matched by is NVLink alone, named after a device that keeps its index
    assert nvlink(4) == ([10 + first for first in group_numbers] if links else [None] * 4)


def test_nothing_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetP2PStatus", refuse)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetTopologyCommonAncestor", refuse)
    assert groups(4) == () == groups(1)
    assert nvlink(2) == [None, None]


def test_the_group_is_shown_with_the_device(make_system: Callable[..., OwnSystem]) -> None:
    system = make_system({"devices": "3", "memory_bytes": "4G", "device.1.nvlink": "7", "device.2.nvlink": "7"})
    command = [sys.executable, "-m", "vgpud.cli.main", "gpu", "ls", "-o", "json"]
    done = subprocess.run(command, env=system.env, cwd=system.folder, capture_output=True, check=True)
    assert [one["nvlink_group"] for one in json.loads(done.stdout)["devices"]] == [0, 1, 1]
