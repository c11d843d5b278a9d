"""What the inventory makes of MIG instances: with answers that NVML may give, and on the simulated device."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml
import pytest

from tests.command_line import ask
from tests.core.test_machine import device
from vgpud.cli.demo.private_system import OwnSystem, PartError, wait_for
from vgpud.devices import mig, nvml
from vgpud.errors import DriverError

SIM = {"devices": "2", "memory_bytes": "8G", "context_bytes": "32M", "device.0.mig": "1g.2gb, 3g.4gb"}


def devices(system: OwnSystem) -> list[dict[str, Any]]:
    return list(ask(system, "gpu", "ls")["devices"])


# ---- answers of NVML ----


def test_what_comes_after_the_inventory_is_noticed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """An instance that is made, a GPU that is plugged in: once the list has them, and not what the site leaves out."""
    gpu = FakeGpu((1, 0, "H200 MIG 1g.18gb"), None)
    gpu.install(monkeypatch)
    uuids = {"gpu": "GPU-0", 0: "MIG-0", 1: "MIG-1"}
    monkeypatch.setattr(nvml, "GPUS_OF_KERNEL", tmp_path)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 1)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetHandleByIndex", lambda _: "gpu")
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda handle: uuids[handle])
    monkeypatch.setattr(pynvml, "nvmlInit", lambda: None)
    monkeypatch.setattr(pynvml, "nvmlSystemGetDriverVersion", lambda: "1")
    monkeypatch.setattr(nvml, "_usable_bytes", lambda handle: 1 << 34)
    monkeypatch.setattr(nvml.Devices, "_gpu", lambda self, index, handle: device(index))
    (tmp_path / "0000:01:00.0").mkdir()

    def open_devices(*excluded_uuids: str, wanted_uuids: Sequence[str] = ()) -> nvml.Devices:
        made = nvml.Devices("libc.so.6", "libc.so.6")
        made._handles["GPU-0"] = "gpu"
        made.inventory(wanted_uuids, excluded_uuids)
        return made

    all_of_them, some, chosen = open_devices(), open_devices("nothing"), open_devices(wanted_uuids=["MIG-0"])
    assert not all_of_them.newcomers()
    gpu.parts = (*gpu.parts[:1], (2, 0, "H200 MIG 2g.35gb"))
    (tmp_path / "0000:02:00.0").mkdir()
    for devices in (all_of_them, some):
        assert devices.newcomers() == {
            "MIG-1": "the MIG instance MIG-1 (2g.35gb) of GPU 0",
            "0000:02:00.0": "the GPU at 0000:02:00.0",
        }
    assert not chosen.newcomers() and not open_devices().newcomers()


class FakeGpu:
    """A GPU in MIG mode. parts: (GPU instance, compute instance, name) by number, None where none is."""

    def __init__(self, *parts: tuple[int, int, str] | None) -> None:
        self.parts = parts

    def install(self, patch: pytest.MonkeyPatch, has: Any = None) -> None:
        def part(number: int) -> int:
            if self.parts[number] is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_FOUND)
            return number

        def attributes(_: int) -> Any:
            if has is None:
                raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
            return has

        one: Callable[[int], Any] = lambda number: self.parts[number]  # noqa: E731
        patch.setattr(pynvml, "nvmlDeviceGetMigMode", lambda _: (1, 1))
        patch.setattr(pynvml, "nvmlDeviceGetMaxMigDeviceCount", lambda _: len(self.parts))
        patch.setattr(pynvml, "nvmlDeviceGetMigDeviceHandleByIndex", lambda _, number: part(number))
        patch.setattr(pynvml, "nvmlDeviceGetGpuInstanceId", lambda number: one(number)[0])
        patch.setattr(pynvml, "nvmlDeviceGetComputeInstanceId", lambda number: one(number)[1])
        patch.setattr(pynvml, "nvmlDeviceGetName", lambda number: one(number)[2])
        patch.setattr(pynvml, "nvmlDeviceGetUUID", lambda number: f"MIG-{number}")
        patch.setattr(pynvml, "nvmlDeviceGetAttributes", attributes)


def test_numbers_of_instances_that_were_ended_are_passed_over(monkeypatch: pytest.MonkeyPatch) -> None:
    FakeGpu((7, 0, "H200 MIG 1g.18gb"), None, (5, 0, "H200 MIG 3g.71gb")).install(monkeypatch)
    found = mig.instances(object())
    assert [(one.number, one.uuid, one.profile, one.sharers) for one in found] == [
        (0, "MIG-0", "1g.18gb", 1),
        (2, "MIG-2", "3g.71gb", 1),
    ]


def test_compute_instances_of_one_gpu_instance_have_its_memory_together(monkeypatch: pytest.MonkeyPatch) -> None:
    parts = (1, 0, "H200 MIG 1c.3g.71gb"), (1, 1, "H200 MIG 2c.3g.71gb"), (2, 0, "H200 MIG 1g.18gb")
    FakeGpu(*parts).install(monkeypatch)
    assert [(one.profile, one.sharers) for one in mig.instances(object())] == [
        ("1c.3g.71gb", 2),
        ("2c.3g.71gb", 2),
        ("1g.18gb", 1),
    ]


@pytest.mark.parametrize(
    ("has", "profile", "sms"),
    [
        (SimpleNamespace(gpuInstanceSliceCount=1, memorySizeMB=9856, multiprocessorCount=14), "1g.10gb", 14),
        (None, "MIG", 0),
    ],
)
def test_a_name_without_a_profile(monkeypatch: pytest.MonkeyPatch, has: Any, profile: str, sms: int) -> None:
    FakeGpu((1, 0, "A device")).install(monkeypatch, has)
    (found,) = mig.instances(object())
    assert (found.profile, found.sm_count) == (profile, sms)


@pytest.mark.parametrize(
    ("about", "answers"),
    [
        ((1, 0), [True, False, False]),
        ((1, mig.NO_INSTANCE), [True, True, False]),
        ((mig.NO_INSTANCE, mig.NO_INSTANCE), [True, True, True]),
        ((9, 0), [False, False, False]),
    ],
)
def test_which_instances_a_report_is_about(
    monkeypatch: pytest.MonkeyPatch, about: tuple[int, int], answers: list[bool]
) -> None:
    FakeGpu((1, 0, "MIG 1c"), (1, 1, "MIG 1c"), (2, 0, "MIG 1g")).install(monkeypatch)
    assert [one.is_affected(*about) for one in mig.instances(object())] == answers


def test_a_gpu_without_mig_mode_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(_: Any) -> Any:
        raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)

    monkeypatch.setattr(pynvml, "nvmlDeviceGetMigMode", refuse)
    assert mig.instances(object()) == []


@pytest.fixture
def mig_devices(monkeypatch: pytest.MonkeyPatch) -> nvml.Devices:
    """GPU 0 with the instances MIG-0 and MIG-1, as an NVML lists it that answers for the GPU when asked of one."""
    gpu = FakeGpu((1, 0, "H200 MIG 1g.18gb"), (2, 0, "H200 MIG 1g.18gb"))
    gpu.install(monkeypatch)
    made = nvml.Devices.__new__(nvml.Devices)
    made._handles = {"MIG-0": 0, "MIG-1": 1}
    made._gpus = dict.fromkeys(made._handles, gpu)
    made._instances = {"GPU-0": mig.instances(gpu)}
    made.sim_dir = "a"
    return made


def test_an_instance_is_not_held_by_the_mig_mode_of_its_gpu(
    mig_devices: nvml.Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pynvml, "nvmlDeviceGetComputeMode", lambda _: 0)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetMPSComputeRunningProcesses", lambda _: [])
    assert mig_devices.holder("MIG-0") is None
    mig_devices._handles["GPU-1"] = object()
    held = mig_devices.holder("GPU-1")
    assert held and held.what == "MIG mode"


def test_faults_are_of_the_instances_that_are_shared(
    mig_devices: nvml.Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Excluded ones, and another daemon's, are none of ours; one report is registered for once."""
    registered: list[Any] = []
    no_instance = mig.NO_INSTANCE
    reports = [SimpleNamespace(gpuInstanceId=no_instance, computeInstanceId=no_instance, eventData=79, device=0)]
    monkeypatch.setattr(pynvml, "nvmlEventSetCreate", object)
    monkeypatch.setattr(pynvml, "nvmlDeviceRegisterEvents", lambda handle, *_: registered.append(handle))
    monkeypatch.setattr(pynvml, "nvmlEventSetWait_v2", lambda *_: reports.pop() if reports else None)
    monkeypatch.setattr(pynvml, "nvmlDeviceGetUUID", lambda _: "GPU-0")
    mig_devices.watch_faults()
    assert registered == [mig_devices._gpus["MIG-0"]]
    del mig_devices._handles["MIG-1"]
    assert mig_devices.faults() == [("MIG-0", 79)]


def test_indices_of_gpus_stay_below_those_of_instances(
    mig_devices: nvml.Devices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """GPU 100 and instance 0 of GPU 0 would be one name."""
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 101)
    with pytest.raises(DriverError, match="NVML lists 101 GPUs: vgpud can name 100, the indices from 100 on are MIG"):
        mig_devices.inventory()
    monkeypatch.setattr(pynvml, "nvmlDeviceGetCount", lambda: 100)
    listed: list[int] = []
    monkeypatch.setattr(mig_devices, "_find_devices", lambda index: listed.append(index) or [])
    with pytest.raises(DriverError, match="the driver lists no device"):
        mig_devices.inventory()
    assert listed == list(range(100))


# ---- the daemon ----


def test_instances_are_devices_in_place_of_their_gpu(make_system: Callable[..., OwnSystem]) -> None:
    system = make_system(SIM)
    found = devices(system)
    assert [(one["index"], one["profile"], one["offered"]) for one in found] == [
        (1, None, True),
        (100, "1g.2gb", True),
        (101, "3g.4gb", True),
    ]
    assert [one["mem_total_bytes"] >> 30 for one in found] == [8, 2, 4]
    assert [one["utilization_ratio"] for one in found] == [0, None, None], "NVML does not say how busy an instance is"
    assert found[0]["parent_uuid"] is None and found[1]["parent_uuid"] == found[2]["parent_uuid"]
    assert all(one["uuid"].startswith("MIG-") for one in found[1:])
    wait_for("their GPU's temperature", lambda: all(one["temperature_celsius"] for one in devices(system)))
    assert 0 < found[1]["sm_count"] < found[2]["sm_count"] < found[0]["sm_count"]


def test_a_fault_drains_the_instance_or_all_of_its_gpu(make_system: Callable[..., OwnSystem]) -> None:
    system = make_system(SIM)
    system.vgpu("sim", "xid", "2", "79")  # the first instance is the simulator's third device
    wait_for("the drain", lambda: not devices(system)[1]["offered"])
    assert [one["offered"] for one in devices(system)] == [True, False, True]
    system.vgpu("sim", "xid", "0", "79")
    wait_for("the drain of the others", lambda: not devices(system)[2]["offered"])
    assert devices(system)[0]["offered"], "another GPU"


def test_a_gpus_name_excludes_its_instances_and_chooses_them(make_system: Callable[..., OwnSystem]) -> None:
    excluded = make_system(SIM, ["[devices]", 'exclude = ["0"]'])
    assert [one["index"] for one in devices(excluded)] == [1]
    one = make_system(SIM, ["[devices]", 'exclude = ["1", "101"]'])
    assert [one["index"] for one in devices(one)] == [100]


def test_the_queue_takes_gpus_alone(make_system: Callable[..., OwnSystem]) -> None:
    system = make_system(SIM)
    system.vgpu("submit", "--wait", "--gpus", "1", "--", "true")
    with pytest.raises(PartError, match=r"MIG-.* is no device for the queue: it places nothing on MIG instances"):
        system.vgpu("submit", "--gpus", "0.5", "--device", "100", "--", "true")
    alone = make_system(SIM | {"devices": "1"})
    with pytest.raises(PartError, match="no GPU for the queue: it places nothing on MIG instances"):
        alone.vgpu("submit", "--gpus", "0.5", "--", "true")


def test_mig_mode_lasts_while_there_are_instances(make_system: Callable[..., OwnSystem]) -> None:
    system = make_system(SIM)
    with pytest.raises(PartError, match="refuses mode shared"):
        system.vgpu("sim", "mode", "0", "shared")
    with pytest.raises(PartError, match="sees one of these and no other device"):
        system.vgpu("slice", "create", "two", "--gpus", "2", "--device", "100", "--device", "101")
