"""A program in a slice whose kernel faults: the hook hands the error on, the ledger is exact, neighbours continue."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.command_line import ask
from tests.shim.fake_daemon import FakeDaemon, FakeDevice, wait_until
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem, wait_for
from vgpud.simdevice import process as sim_process
from vgpud.simdevice import state_page

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 64 << 20
ALL = [
    {"FAULT": "fault_700"},
    {"FAULT": "fault_710"},
    {"FAULT": "fault_719"},
    {"FAULT": "fault_719", "CREATED": "1"},
    {"VGPU_SIM_FAIL": "cuLaunchKernel:2=719"},
]


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with programs of tests/sim."""
    folder = tmp_path_factory.mktemp("programs")
    for name in ("sticky", "saturate"):
        flags = ["-O1", "-pthread", "-iquote", str(ROOT / "shim"), str(ROOT / "tests" / "sim" / f"{name}.c")]
        library = [f"-L{paths.sim_lib_dir()}", "-l:libcuda.so.1"]
        subprocess.run(["gcc", "-o", str(folder / name), *flags, *library], check=True)
    return folder


@pytest.fixture(scope="module")
def device(tmp_path_factory: pytest.TempPathFactory) -> Iterator[sim_process.SimulatedDevice]:
    config = {"memory_bytes": "8G", "context_bytes": CONTEXT}
    with sim_process.SimulatedDevice(tmp_path_factory.mktemp("d"), config) as started:
        yield started


@pytest.mark.parametrize("environment", ALL)
def test_the_ledger_is_exact_after_a_fault(
    shim: Path, programs: Path, device: sim_process.SimulatedDevice, short_dir: Path, environment: dict[str, str]
) -> None:
    uuid = bytes.fromhex(state_page.read(device.directory / state_page.PAGE_NAME).devices[0].uuid[4:].replace("-", ""))
    with FakeDaemon(short_dir / "sock", [FakeDevice(uuid, 4 << 30, CONTEXT)]) as fake:
        env = {**os.environ, **device.environment(), "LD_PRELOAD": str(shim), "VGPU_SOCKET": str(fake.path)}
        pipe = subprocess.PIPE
        command = [str(programs / "sticky"), "hold"]
        with subprocess.Popen(command, env=env | environment, stdin=pipe, stdout=pipe, stderr=pipe) as process:
            assert process.stdout and process.stderr
            assert process.stdout.readline() == b"ok\n", process.stderr.read().decode()

            def count_bytes() -> int:
                page = state_page.read(device.directory / state_page.PAGE_NAME)
                return page.devices[0].process_used_bytes[process.pid]

            assert count_bytes() >= 2 * CONTEXT + (32 << 20)
            assert wait_until(lambda: count_bytes() == fake.used_bytes(), 2), (count_bytes(), fake.used_bytes())


def test_the_fault_is_reported_and_the_slice_is_free_again(
    make_system: Callable[..., OwnSystem], programs: Path
) -> None:
    """Through the daemon: its event of the XID, the slice's memory, and a neighbour that runs all the time."""
    system = make_system({"memory_bytes": "8G", "context_bytes": str(CONTEXT)})
    system.vgpu("slice", "create", "faulty", "--gpus", "0.5", "--mem", "2G")
    neighbour = system.run(
        "beside", ("--gpus", "0.5", "--mem", "2G"), [str(programs / "saturate"), "100", "60"], talk=True
    )
    wait_for("the neighbour", lambda: any(neighbour.lines()))
    assert neighbour.process.stdin
    neighbour.process.stdin.write(b"\n")
    neighbour.process.stdin.flush()
    for _ in range(2):
        faulty = system.run("faulty", (), [str(programs / "sticky")], {"FAULT": "fault_700"})
        wait_for("the program", lambda one=faulty: not one.running)
        assert faulty.process.returncode == 0, faulty.error_file.read_text()
        wait_for(
            "its memory", lambda: ask(system, "slice", "show", "faulty")["slice"]["devices"][0]["mem_used_bytes"] == 0
        )
    neighbour.check()

    def messages() -> list[str]:
        return [event["message"] for event in ask(system, "events")["events"] if "XID" in event["message"]]

    wait_for("the event", lambda: messages() != [])
    assert messages()[0].startswith("XID 31 on device 0")
    system.vgpu("sim", "xid", "0", "79")
    wait_for("the event", lambda: any(message.startswith("XID 79 on device 0") for message in messages()))
    neighbour.check()
