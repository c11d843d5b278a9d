"""A program is killed (SIGKILL) before and after each of its stores to memory that others read: its report page, its
gate's words and its ledger. The daemon, the device and the other tenants continue as if it had ended by itself."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.daemon.node import wait_until
from tests.examples import is_nightly
from tests.faults.programs import HERE, ROOT, TENANT, build
from vgpud.cli.demo.private_system import OwnSystem
from vgpud.client import calls
from vgpud.simdevice import state_page
from vgpud.simdevice.state_page import PageDevice

GIB = 1 << 30
SLICE_BYTES = 2 * GIB
#: a store of a path that is taken once is reached once; of a loop, not at its beginning
NTH = (1, 3)
#: unlocking is one store of many places: between the driver's call and the record of it, for example
LOCK_NTH = (7, 20, 33, 60, 90)
#: of all stores that the victim reaches, at least: the gate, the ledger and the report page have more
STORES_MIN = 50
pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("killed")]


@pytest.fixture(scope="module")
def programs_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the library with failpoints, and the victim."""
    folder = tmp_path_factory.mktemp("failpoints")
    sys.path.insert(0, str(ROOT / "shim"))
    try:
        import build_shim  # type: ignore[import-not-found, unused-ignore]
    finally:
        sys.path.pop(0)
    build_shim.build_target("libvgpu.so", folder, ["-include", str(HERE / "failpoints.h")])
    build(folder, TENANT, HERE / "victim.c")
    return folder


class Victims:
    """A slice for programs that are killed, beside a tenant that saturates the device."""

    def __init__(self, system: OwnSystem, programs_dir: Path) -> None:
        self.system, self._programs_dir = system, programs_dir
        self.neighbour = system.run(
            "neighbour", ["--gpus", "0.5", "--mem", "4G"], [str(programs_dir / "tenant"), "250"]
        )
        wait_until(lambda: self.completed() > 0, "the neighbour's first kernel")
        self.keeper = system.run(
            "victim", ["--gpus", "0.25", "--mem", f"{SLICE_BYTES}"], ["sh", "-c", "env; exec cat"], talk=True
        )
        wait_until(lambda: "VGPU_SOCKET=" in self.keeper.output_file.read_text(), "the slice's environment")
        lines = [line.partition("=") for line in self.keeper.output_file.read_text().splitlines() if "=" in line]
        self.env = {name: value for name, _, value in lines} | {"LD_PRELOAD": str(programs_dir / "libvgpu.so")}
        self.quiet_bytes = self.device().used_bytes

    def completed(self) -> int:
        self.neighbour.check()
        lines = list(self.neighbour.lines())
        self._completed = lines[-1]["completed"] if lines else getattr(self, "_completed", 0)
        return int(self._completed)

    def device(self) -> PageDevice:
        return state_page.read(self.system.sim_dir / state_page.PAGE_NAME).devices[0]

    def run(self, *arguments: str, **env: str) -> subprocess.CompletedProcess[str]:
        command = [str(self._programs_dir / "victim"), *arguments]
        return subprocess.run(command, env=self.env | env, capture_output=True, text=True, timeout=120, check=False)

    def stores(self) -> list[str]:
        """FILE:LINE of each store that the victim reaches."""
        log = self.system.folder / "stores"
        done = self.run("1", VGPU_FAILPOINT_LOG=str(log))
        assert done.returncode == 0, done.stderr
        return sorted(set(log.read_text().split()))

    def check_given_back(self, what: str) -> None:
        """Nothing of the dead is left, and nothing is charged for it any more."""
        wait_until(lambda: self.device().used_bytes == self.quiet_bytes, f"the device's memory ({what})")

        def is_free() -> bool:
            with self.system.client() as client:
                slice_ = client.send(calls.get_slice("victim"))
            return not slice_.processes and not slice_.devices[0].mem_used_bytes

        wait_until(is_free, f"the slice's memory and places ({what})")
        with self.system.client() as client:
            charged_ns = client.send(calls.get_slice("victim")).devices[0].charged_ns
        before = self.completed()
        wait_until(lambda: self.completed() >= before + 200, f"the neighbour's kernels ({what})")
        with self.system.client() as client:
            assert client.send(calls.get_slice("victim")).devices[0].charged_ns == charged_ns, what


@pytest.fixture
def victims(system: OwnSystem, programs_dir: Path) -> Victims:
    return Victims(system, programs_dir)


def cases(stores: list[str]) -> list[tuple[str, int, int]]:
    """(store, before or after, which time): nightly all, else each store once, before and after in turn."""
    locks = [(store, 0, nth) for store in stores if store.startswith("base/lock.h") for nth in LOCK_NTH]
    if is_nightly():
        return [(store, after, nth) for store in stores for after in (0, 1) for nth in NTH] + locks
    return [(store, number % 2, NTH[number // 2 % 2]) for number, store in enumerate(stores)] + locks


def test_a_program_that_is_killed_at_any_store_leaves_nothing(victims: Victims) -> None:
    stores = victims.stores()
    folders = {store.partition("/")[0] for store in stores}
    assert len(stores) >= STORES_MIN and {"attach", "gate", "hooks", "ledger"} <= folders, stores
    daemon = victims.system.daemon
    assert daemon
    killed = 0
    for store, after, nth in cases(stores):
        what = f"{store}, {'after' if after else 'before'} it, time {nth}"
        done = victims.run("1", VGPU_FAILPOINT=f"{store}:{after}:{nth}")
        assert done.returncode in (0, -signal.SIGKILL), f"{what}: {done.stderr}"
        killed += done.returncode != 0
        if done.returncode:
            victims.check_given_back(what)
        assert daemon.running, what
    assert killed >= len(stores) * 3 // 4, f"{killed} of {len(stores)} stores"
    done = victims.run("0", str(SLICE_BYTES - victims.device().context_bytes))
    assert done.stdout.split() == ["full", "0"], "all of the slice's memory, to the byte"
    assert not re.search("Traceback|panic", (victims.system.folder / "vgpud.log").read_text())


def test_the_shipped_library_has_no_failpoints() -> None:
    assert b"VGPU_FAILPOINT" not in (ROOT / "vgpud/lib/libvgpu.so").read_bytes()
