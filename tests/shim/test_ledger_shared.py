"""Memory that several processes hold: the ledger charges only the one that made it, as the simulated device counts."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.shim.fake_daemon import MIB, FakeDaemon, FakeDevice
from vgpud.simdevice import process as sim_process
from vgpud.simdevice import state_page

from .test_memory import ASK_UUID

ROOT = Path(__file__).resolve().parents[2]
CONTEXT = 64 * MIB


@pytest.fixture(scope="module")
def program(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("shared") / "shared_ledger"
    flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-iquote", str(ROOT / "shim")]
    source = [str(ROOT / "tests/sim/shared_ledger.c"), f"-L{ROOT}/vgpud/lib/sim", "-l:libcuda.so.1"]
    subprocess.run(["gcc", *flags, "-o", str(made), *source], check=True)
    return made


def test_only_the_maker_is_charged(shim: Path, short_dir: Path, program: Path) -> None:
    """What the opener alone holds is the one difference: the device counts it to the opener, and so does the daemon,
    which sees it as memory that the ledger does not know."""
    with sim_process.SimulatedDevice(short_dir / "sim", {"devices": 1, "context_bytes": str(CONTEXT)}) as device:
        environment = {**device.environment(), "VGPU_DRIVER": str(device.lib_dir / "libcuda.so.1")}
        asked = subprocess.run([sys.executable, "-c", ASK_UUID], env=environment, capture_output=True, check=True)
        with FakeDaemon(short_dir / "attach.sock", [FakeDevice(asked.stdout, 1024 * MIB, CONTEXT)]) as fake:
            environment |= {"LD_PRELOAD": str(shim), "VGPU_SOCKET": str(fake.path)}
            command = [str(program)]
            pipe = subprocess.PIPE
            with subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, text=True) as process:
                assert process.stdin
                assert process.stdout
                steps = []
                for line in process.stdout:
                    said = json.loads(line)
                    opener, maker = (int(one.report(0).used_bytes) for one in fake.processes)  # as they attached
                    counted = state_page.read(device.directory / state_page.PAGE_NAME).devices[0].process_used_bytes
                    assert (maker, opener + said["left"]) == (counted[said["maker"]], counted[said["opener"]]), said
                    steps.append(maker - CONTEXT)
                    process.stdin.write("\n")
                    process.stdin.flush()
    assert process.returncode == 0
    assert steps == [size * MIB for size in (0, 40, 40, 40, 40, 0, 40, 40, 0, 0, 0, 36, 20, 20, 0)]
