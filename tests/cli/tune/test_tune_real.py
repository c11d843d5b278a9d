"""`vgpu tune` with the real daemon on a simulated device: programs that report, that do not, that need too much."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from vgpud import paths
from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.demo.private_system import ROOT, OwnSystem
from vgpud.client import calls

BUILT = all((paths.sim_lib_dir() / name).exists() for name in ("vgpu-simd", "libcuda.so.1"))
pytestmark = [
    pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py"),
    pytest.mark.timeout(300),
]
GIB = 1 << 30
#: takes batch GiB; a step is 10 ms of the device for a batch of 1, and 2 ms more for each other sample
PROGRAM = """
import sys
from vgpud.client import report
from vgpud.simdevice.load import Program, Shape
batch, reports = int(sys.argv[1]), len(sys.argv) > 2
program = Program(Shape(kernels=4 + batch, kernel_us=2000, memory_bytes=batch << 30))
for _ in program.steps(lambda: True):
    if reports:
        report(batch)
"""


@pytest.fixture(scope="module")
def system() -> Iterator[OwnSystem]:
    folder = Path(tempfile.mkdtemp(prefix="vgt-", dir="/tmp"))
    try:
        with OwnSystem(folder, {"devices": "1", "memory_bytes": "16G"}, ["job_grace_s = 1"]) as made:
            (folder / "kernels.model").write_text("default  us=2000  wave_us=0\n")
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def tune(system: OwnSystem, vgpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VGPU_SIM_KERNELS", str(system.folder / "kernels.model"))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])))
    Path("train.py").write_text(PROGRAM)

    def call(*options: str, words: tuple[str, ...] = ()) -> Any:
        command = ("--run-time", "3s", *options, "--", sys.executable, "train.py", "{batch}", *words)
        return vgpu("tune", "-o", "json", *command, host=system.host)

    yield call
    with Client(Settings(host=system.host)) as client:
        assert not client.all(calls.jobs()), "no run is left"


def test_reports_are_the_rate_and_memory_rules_out(tune: Any, system: OwnSystem, vgpu: Any) -> None:
    done = tune("--gpus", "0.25,1", "--batch", "2,6", words=("report",))
    assert done.code == 0, done
    shown = done.json["tune"]
    rows = {(one["gpus_milli"], one["values"]["batch"]): one for one in shown["candidates"]}
    assert shown["unit"] == "samples" and shown["gpu_seconds_used"] > 0
    assert "out of memory" in rows[250, 6]["why_out"]  # 6 of 4 GiB
    for milli, batch in ((250, 2), (1000, 2), (1000, 6)):
        most = milli / 1000 * batch / (0.002 * (4 + batch))
        assert 0 < rows[milli, batch]["rate"] < 1.2 * most
    assert rows[1000, 2]["mem_peak_bytes"] >= 2 * GIB
    assert [one["choice"] for one in shown["candidates"]].count(True) == 1
    (best,) = [one for one in shown["candidates"] if one["choice"]]
    submitted = vgpu(
        "submit", "-o", "json", "--gpus", "auto", "--hold", "--", sys.executable, "train.py", "{batch}", "report",
        host=system.host,
    )  # fmt: skip
    job = submitted.json["job"]
    assert (job["gpus_milli"], job["command"][2]) == (best["gpus_milli"], str(best["values"]["batch"]))
    assert vgpu("job", "cancel", str(job["job_id"]), host=system.host).code == 0


def test_the_first_example_of_the_help_finds_a_fraction(tune: Any, system: OwnSystem, vgpu: Any) -> None:
    """The test load that each installation has."""
    shown = vgpu("tune", "--help").stdout
    example = next(line for line in shown.splitlines() if line.strip().startswith("vgpu tune "))
    assert example.split()[2:7] == ["--", "vgpu", "sim", "load", "trainer"]
    program = (sys.executable, "-m", "vgpud.cli.main", "sim", "load", "trainer")
    done = vgpu("tune", "-o", "json", "--run-time", "1s", "--gpus", "0.25,1", "--", *program, host=system.host)
    assert done.code == 0, done
    assert all(one["rate"] for one in done.json["tune"]["candidates"])


def test_without_reports_launches_are_counted(tune: Any) -> None:
    done = tune("--gpus", "0.5", "--batch", "1", "--at-once", "2")
    assert done.code == 0, done
    shown = done.json["tune"]
    assert shown["unit"] == "launches" and 0 < shown["candidates"][0]["rate"] < 1.2 * 250


def test_a_dry_run_of_a_program_without_end_finds_its_memory(tune: Any) -> None:
    done = tune("--predict-run", "--gpus", "0.1", "--batch", "2", words=("report",))
    assert done.code == 0, done
    (row,) = done.json["tune"]["candidates"]  # more than a tenth of the memory
    assert 2 * GIB < row["mem_bytes"] < 4 * GIB and row["mem_peak_bytes"] >= 2 * GIB and row["rate"] > 0
