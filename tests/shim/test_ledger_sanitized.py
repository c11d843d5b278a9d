"""The stress of the ledger with the hook under AddressSanitizer + UBSan, and under ThreadSanitizer."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from shim import build_shim
from tests.examples import is_nightly
from tests.shim import test_ledger_faults as faults
from vgpud.simdevice import process as sim_process

#: the simulated driver is not watched: how its locks order things is not seen
SUPPRESSED = "called_from_lib:libcuda.so.1\n"


@pytest.fixture
def device(tmp_path: Path) -> Iterator[sim_process.SimulatedDevice]:
    config = {"devices": 1, "memory_bytes": "64G", "context_bytes": faults.CONTEXT}
    with sim_process.SimulatedDevice(tmp_path / "sim", config) as made:
        yield made


@pytest.mark.parametrize(("sanitizers", "runtime"), [("address,undefined", "libasan.so"), ("thread", "libtsan.so")])
def test_stress(tmp_path: Path, device: sim_process.SimulatedDevice, sanitizers: str, runtime: str) -> None:
    library = subprocess.run(["gcc", f"-print-file-name={runtime}"], capture_output=True, text=True, check=True)
    if not Path(library.stdout.strip()).is_file() or not shutil.which("gcc"):
        pytest.skip("this compiler has no sanitizer libraries")
    flags = ["-O1", f"-fsanitize={sanitizers}", "-fno-omit-frame-pointer", "-Wno-tsan"]
    build_shim.build_target("libvgpu.so", tmp_path, flags)
    bench = faults.Bench(tmp_path, tmp_path / "libvgpu.so", device)
    bench.preloaded = f"{library.stdout.strip()} {bench.preloaded}"
    (tmp_path / "suppressed").write_text(SUPPRESSED)
    log = f"log_path={tmp_path / 'found'}"
    options = {
        "ASAN_OPTIONS": f"detect_leaks=0:{log}",  # the threads stand at a barrier when it ends
        "UBSAN_OPTIONS": log,
        "TSAN_OPTIONS": f"suppressions={tmp_path / 'suppressed'}:ignore_noninstrumented_modules=1:{log}",
    }
    with bench.tenant("sanitized", "4", "7", **options) as (_, process):
        out, errors = process.communicate(f"{800 if is_nightly() else 200}\n" * 4)
    assert errors == ""
    assert len(out.splitlines()) == 5
    assert "\n".join(path.read_text() for path in tmp_path.glob("found*")) == ""
