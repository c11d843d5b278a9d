"""MIG instances of simulated GPUs: by NVML and by CUDA_VISIBLE_DEVICES."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.clients.conftest import PROGRAMS, client_environment, run_python
from vgpud.errors import ConfigError
from vgpud.simdevice.process import SimulatedDevice

pytest.importorskip("pynvml", reason="needs the package nvidia-ml-py")
VIEW = PROGRAMS / "mig_view.py"
GIB = 1 << 30
#: GPU 0 with two instances, GPU 1 without MIG mode
SIM = {"devices": "2", "memory_bytes": "8G", "context_bytes": "32M", "device.0.mig": "1g.2gb, 3g.4gb"}
NOT_SUPPORTED, NOT_FOUND, INVALID_ARGUMENT = "error 3", "error 6", "error 2"
#: UUIDs of simulated devices: "SIMULATED-GPU", the instance's number from 1 on, the GPU's index
FIRST, SECOND = (f"53494d55-4c41-5445-442d-47505500{number:02x}00" for number in (1, 2))
GPUS = tuple(f"53494d55-4c41-5445-442d-47505500{0:02x}{index:02x}" for index in (0, 1))
NO_DEVICE = 100


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    with SimulatedDevice(tmp_path_factory.mktemp("mig"), SIM) as device:
        yield device.directory


def view(folder: Path, *names: str, **env: str) -> dict[str, Any]:
    return json.loads(run_python(VIEW, client_environment(folder) | env, arguments=names))


def test_nvml_lists_the_instances_of_a_gpu(folder: Path) -> None:
    seen = view(folder, f"MIG-{FIRST}", f"MIG-{SECOND}", f"GPU-{FIRST}")
    assert [gpu["uuid"] for gpu in seen["gpus"]] == [f"GPU-{uuid}" for uuid in GPUS], "instances are not counted"
    divided, whole = seen["gpus"]
    assert (divided["mode"], divided["most"], divided["is_mig"]) == ([1, 1], 7, 0)
    assert divided["instances"] == [f"MIG-{FIRST}", f"MIG-{SECOND}", NOT_FOUND]
    assert (whole["mode"], whole["most"], whole["instances"]) == (NOT_SUPPORTED, 0, [NOT_SUPPORTED] * 3)
    small, large, wrong = seen["named"]
    assert wrong == NOT_FOUND, "an instance is no GPU"
    assert small["name"].endswith(" MIG 1g.2gb") and large["name"].endswith(" MIG 3g.4gb")
    for number, (one, gibibytes, slices) in enumerate(((small, 2, 1), (large, 4, 3))):
        assert (one["index"], one["minor"], one["gpu"]) == (number, 0, f"GPU-{GPUS[0]}")
        assert (one["gpu_instance"], one["compute_instance"], one["is_mig"]) == (number + 1, 0, 1)
        assert (one["memory"], one["slices"], one["by_uuid"]) == (gibibytes * GIB, slices, one["uuid"])
        assert one["by_bus_id"] == f"GPU-{GPUS[0]}"
        assert (one["mode"], one["most"], one["utilization"]) == (NOT_SUPPORTED, 0, NOT_SUPPORTED)
    assert 0 < small["sms"] < large["sms"] < 132
    assert divided["gpu"] == INVALID_ARGUMENT and divided["gpu_instance"] == NOT_SUPPORTED == divided["sms"]


@pytest.mark.parametrize(
    ("visible", "answer"),
    [
        (None, [GPUS[1]]),
        (f"MIG-{FIRST}", [FIRST]),
        (f"MIG-{SECOND},MIG-{FIRST}", [SECOND]),
        (f"MIG-{SECOND},1", [SECOND]),
        ("1,MIG-" + FIRST, [GPUS[1]]),
        ("0", [FIRST]),
        ("0,1", [FIRST]),
        ("2", NO_DEVICE),
        (f"GPU-{FIRST}", NO_DEVICE),
        (f"MIG-{GPUS[1]}", NO_DEVICE),
    ],
)
def test_a_process_sees_one_instance_and_then_nothing_else(folder: Path, visible: str | None, answer: Any) -> None:
    found = view(folder, **({"CUDA_VISIBLE_DEVICES": visible} if visible else {}))["cuda"]
    assert (found if isinstance(found, int) else [own for own, _, _ in found]) == answer


def test_the_first_version_of_the_uuid_is_that_of_the_gpu(folder: Path) -> None:
    (found,) = view(folder, CUDA_VISIBLE_DEVICES=f"MIG-{SECOND}")["cuda"]
    assert found == [SECOND, GPUS[0], 4 * GIB]


@pytest.mark.parametrize(
    ("profiles", "message"),
    [
        ("8g.1gb", "8g.1gb is no profile such as"),
        ("1g.1", "1g.1 is no profile such as"),
        ("half", "half is no profile such as"),
        ("4g.1gb, 4g.1gb", "4g.1gb does not fit beside the others"),
        ("1g.5gb, 1g.5gb", "1g.5gb does not fit beside the others"),
    ],
)
def test_instances_that_a_gpu_cannot_have_are_refused(tmp_path: Path, profiles: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        SimulatedDevice(tmp_path, SIM | {"device.0.mig": profiles}).start()


def test_no_more_devices_than_there_can_be(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is one device too many"):
        SimulatedDevice(tmp_path, SIM | {"devices": "15"}).start()
