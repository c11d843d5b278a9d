"""One process on the simulated device: memory, order and time, copies, states; devices it sees; the library itself."""

from __future__ import annotations

import ctypes
import json
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from vgpud.errors import ConfigError, DriverError
from vgpud.simdevice.coverage import coverage

from .conftest import LIB, ROOT, MakeDevice, MakeProgram, run

RUNTIMES = [Path("/usr/local/cuda-13.0/lib64"), Path(sysconfig.get_paths()["purelib"]) / "nvidia" / "cu13" / "lib"]
TOOLKITS = [Path("/usr/local/cuda-13.0/include")]


def test_memory_is_exact(device: MakeDevice, program: MakeProgram) -> None:
    made = device(memory_bytes="1G", context_bytes="64M")
    assert run(program("memory"), made) == "ok\n"


def test_host_memory_behind_device_memory_is_bounded(device: MakeDevice, program: MakeProgram) -> None:
    made = device(memory_bytes="3G", host_memory_bytes="64M")
    assert run(program("backing"), made) == "ok\n"


def test_two_devices(device: MakeDevice, program: MakeProgram) -> None:
    assert run(program("two_devices"), device(devices=2)) == "ok\n"


def test_first_interface(device: MakeDevice, program: MakeProgram) -> None:
    assert run(program("first"), device(devices=2, memory_bytes="1G", context_bytes="64M")) == "ok\n"


@pytest.mark.parametrize(
    "name", ["order", "copies", "states", "graphs", "captures", "green", "external", "batches", "settings"]
)
def test_program(device: MakeDevice, program: MakeProgram, name: str) -> None:
    assert run(program(name), device()) == "ok\n"


def test_error_texts_are_those_of_the_cuda_runtime() -> None:
    """It has the same texts for the codes that both know, and needs neither device nor driver to say them."""
    runtime = next((p for folder in RUNTIMES for p in sorted(folder.glob("libcudart.so.13*"))), None)
    if runtime is None:
        pytest.skip("no CUDA 13 runtime here: its texts are what the driver's are compared with")
    driver, cudart = ctypes.CDLL(str(LIB / "libcuda.so.1")), ctypes.CDLL(str(runtime))
    cudart.cudaGetErrorString.restype = ctypes.c_char_p
    said, wanted = {}, {}
    for code in range(1000):
        text = ctypes.c_char_p()
        runtime_text = cudart.cudaGetErrorString(code)
        if driver.cuGetErrorString(code, ctypes.byref(text)) == 0 and runtime_text != b"unrecognized error code":
            said[code], wanted[code] = text.value, runtime_text
    assert len(said) > 95
    assert said == wanted


UUIDS = [f"GPU-{i:08x}-1111-2222-3333-44444444444{i}" for i in range(1, 6)]


@pytest.mark.parametrize(
    ("visible", "indices"),
    [
        (None, [0, 1, 2, 3, 4]),
        ("1,3,4", [1, 3, 4]),
        ("4, 0", [4, 0]),
        (f"{UUIDS[2]},{UUIDS[0]}", [2, 0]),
        ("GPU-00000004,GPU-00000002-1111", [3, 1]),
        ("GPU-0000000", []),  # names five
        ("0,9,1", [0]),
        ("0,-1,1", [0]),
        ("1,1", []),
        (f"1,{UUIDS[1]}", []),
        ("+1,-0", [1, 0]),
        (" 1 ,\t2 ", [1, 2]),
        ("1gpu,2", [1, 2]),
        ("+,1", []),
        (f" {UUIDS[2]} ,0", [2, 0]),
        (UUIDS[2].lower(), []),
        ("2,nonsense,3", [2]),
        ("", []),
    ],
)
def test_visible_devices(device: MakeDevice, program: MakeProgram, visible: str | None, indices: list[int]) -> None:
    config: dict[str, object] = {"devices": 5}
    for index, uuid in enumerate(UUIDS):
        config[f"device__{index}__uuid"] = uuid
        config[f"device__{index}__name"] = f"SIMULATED card {index}"
        config[f"device__{index}__memory_bytes"] = (index + 1) << 30
        config[f"device__{index}__sm_count"] = 10 + index
    environment = {} if visible is None else {"CUDA_VISIBLE_DEVICES": visible}
    said = json.loads(run(program("devices"), device(**config), **environment))
    assert said["init"] == (0 if indices else 100)
    assert [one["name"] for one in said["devices"]] == [f"SIMULATED card {index}" for index in indices]
    assert [one["uuid"] for one in said["devices"]] == [UUIDS[i].removeprefix("GPU-").replace("-", "") for i in indices]
    assert [one["bytes"] for one in said["devices"]] == [(index + 1) << 30 for index in indices]
    assert [one["sms"] for one in said["devices"]] == [10 + index for index in indices]


def test_every_name_says_simulated(device: MakeDevice, program: MakeProgram) -> None:
    said = json.loads(run(program("devices"), device(devices=2, device__1__name="NVIDIA H200")))
    assert [one["name"] for one in said["devices"]] == ["SIMULATED H200", "SIMULATED NVIDIA H200"]


def test_without_a_server_there_is_no_device(device: MakeDevice, program: MakeProgram) -> None:
    made = device()
    made.stop()
    assert json.loads(run(program("devices"), made)) == {"init": 100, "devices": []}


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ({"devices": 0}, '"0" is no value for devices'),
        ({"devices": 17}, '"17" is no value for devices'),
        ({"slice_us": "fast"}, '"fast" is no value for slice_us'),
        ({"device__3__uuid": "GPU-12"}, '"GPU-12" is no value for device.3.uuid'),
        ({"device__99__sm_count": 1}, 'unknown key "device.99.sm_count"'),
        ({"host_memory_bytes": "much"}, '"much" is no value for host_memory_bytes'),
        ({"memory": 1}, 'unknown key "memory"'),
    ],
)
def test_bad_configuration(device: MakeDevice, line: dict[str, object], complaint: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(complaint)):
        device(**line)


def test_one_server_per_directory(device: MakeDevice) -> None:
    made = device()
    with pytest.raises(DriverError, match="another vgpu-simd runs there"):
        type(made)(made.directory).start()


def _dynamic() -> str:
    return subprocess.run(
        ["readelf", "-dW", str(LIB / "libcuda.so.1")], capture_output=True, text=True, check=True
    ).stdout


def test_library_is_bound_to_itself() -> None:
    """Or its own calls would pass through a preloaded hook and be counted twice."""
    assert "(SYMBOLIC)" in _dynamic() or re.search(r"FLAGS\).*SYMBOLIC", _dynamic())


def test_library_starts_nothing_by_itself() -> None:
    """One entry of .init_array is the compiler's own (frame_dummy); a constructor of ours would be a second."""
    found = re.search(r"INIT_ARRAYSZ\)\s+(\d+)", _dynamic())
    assert found and int(found[1]) == 8
    needed = re.findall(r"NEEDED.*\[(.*)\]", _dynamic())
    assert all(re.fullmatch(r"(libc|libm|libdl|libpthread|ld-linux.*)\.so\.\d+", name) for name in needed), needed


def test_coverage_tells_stubs_from_what_is_written() -> None:
    known = coverage()
    assert len(known) > 600
    assert known["cuMemAlloc_v2"]
    assert known["cuLaunchKernel"]
    assert not known["cuGLCtxCreate"]


#: other interfaces; what a device of this kind or a driver of this version does not have
MISSING_PATTERN = re.compile(
    r"cu(GL|VDPAU|EGL|Graphics|EventCreateFromEGL|GetExportTable|DeviceGetNvSci|Device(Unr|R)egisterAsyncNotification"
    r"|MemBatchDecompress|TensorMapEncodeIm2colWide|ProfilerInitialize)"
)


def test_everything_but_other_interfaces_is_written() -> None:
    assert [name for name, written in coverage().items() if not written and not MISSING_PATTERN.match(name)] == []


def test_generated_names_are_current(tmp_path: Path) -> None:
    include = next((p for p in TOOLKITS if (p / "cudaTypedefs.h").exists()), None)
    if include is None:
        pytest.skip("no CUDA 13.0 toolkit here: its cudaTypedefs.h is what the table is made of")
    committed = ROOT / "shim" / "gen" / "simgpu" / "simgpu_names.c"
    made = tmp_path / "names.c"
    script = ROOT / "shim" / "codegen" / "generate_names.py"
    subprocess.run([sys.executable, str(script), str(include), str(made)], check=True)
    assert made.read_text() == committed.read_text()
