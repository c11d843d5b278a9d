"""The daemon's log and `vgpu events` are for readers: devices by number, users by name, no representation of Python."""

from __future__ import annotations

import os
import pwd
import re
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.command_line import call
from tests.daemon.forked import ForkedSystem
from vgpud import paths
from vgpud.core.user_text import name_users
from vgpud.host.users import LocalNames

BUILT = all((paths.sim_lib_dir() / name).exists() for name in ("vgpu-simd", "libcuda.so.1", "libnvidia-ml.so.1"))
#: what no line for readers has
UNREADABLE = {
    "a UUID": re.compile(r"\b(?:GPU|MIG)-[0-9a-f]{8}"),
    "a number of a user": re.compile(r"\buid[ =:]\d+"),
    "an object": re.compile(r"<[\w.]+(?: object| at 0x|:)|\b0x[0-9a-f]{8,}"),
    "an enumeration": re.compile(r"\b[A-Z]\w+\.[A-Z_]{2,}\b"),
    "a dataclass": re.compile(r"\b[A-Z]\w+\(\w+="),
    "a tuple or a set": re.compile(r"\(['\"\d][^()]*,\)|frozenset|\{['\"]|\[['\"]"),
    "an absent value": re.compile(r"\bNone\b"),
}
#: the one line of each start that says which UUID a number has
INVENTORY = re.compile(r"vgpud: device \d+: SIMULATED [^()]+\(GPU-[0-9a-f-]+\)$")


def complaints(lines: list[str]) -> list[str]:
    """What is unreadable in these lines, with the line."""
    return [f"{what}: {line}" for line in lines for what, pattern in UNREADABLE.items() if pattern.search(line)]


@pytest.fixture
def system() -> Iterator[ForkedSystem]:
    folder = Path(tempfile.mkdtemp(prefix="vgl-", dir="/tmp"))
    try:
        with ForkedSystem(folder, {"devices": "1", "memory_bytes": "64G"}) as made:
            yield made
    finally:
        shutil.rmtree(folder)


@pytest.mark.skipif(not BUILT, reason="the native part is not built: python shim/build_shim.py")
def test_the_life_of_a_slice_and_a_job_is_told_in_words(system: ForkedSystem) -> None:
    commands = [
        "slice create team --gpus 0.5 --mem 8G",
        "slice set team --gpus 0.25 --max 1",
        "queue set lab --guarantee 0.25",
        "gpu drain 0 --reason repair",
        "gpu undrain 0",
        "slice rm team",
    ]
    for command in commands:
        system.vgpu(*command.split())
    program = "import ctypes; cuda = ctypes.CDLL('libcuda.so.1'); assert not cuda.cuInit(0)"
    ran = system.run("short", ["--gpus", "0.5"], [sys.executable, "-c", program])
    assert ran.process.wait(60) == 0, ran.error_file.read_text()
    submitted = call(system, "submit", "--gpus", "0.5", "--wait", "--", "sh", "-c", "exit 3")
    assert submitted.returncode == 3, submitted
    refused = call(system, "slice", "create", "big", "--gpus", "2")
    assert refused.returncode and not complaints(refused.stderr.splitlines())
    events = call(system, "events").stdout.splitlines()
    kinds = {word for line in events for word in line.split()}
    assert {"slice.created", "slice.updated", "slice.deleted", "device.drained", "job.started", "job.failed"} <= kinds
    system.daemon.stop()
    log = (system.folder / "vgpud.log").read_text().splitlines()
    assert any("slice team: device 0 min 0.5 max 0.5" in line for line in log)
    assert len([line for line in log if INVENTORY.search(line)]) == 1
    assert not complaints([*events, *(line for line in log if not INVENTORY.search(line))])


def test_what_is_unreadable_is_found() -> None:
    lines = ["on GPU-0a1b2c3d-0000", "of uid 1000", "<Slice object at 0x7f>", "Reason.DENIED", "Spec(gpus=1)", "('a',)"]
    assert [text.partition(":")[0] for text in complaints([*lines, "why None"])] == list(UNREADABLE)
    assert not complaints(["slice a: device 0 min 0.5 max 1 memory 8GiB to 8GiB; weight 0 -> 5", "pid 7 (sh) attached"])


def test_users_have_names_in_the_log(tmp_path: Path) -> None:
    names = LocalNames(tmp_path / "passwd")
    assert names.find(1000) == "", "no file"
    (tmp_path / "passwd").write_text("root:x:0:0::/:/bin/sh\nann:x:1000:1000::/:\nsecond:x:1000:1::/:\nbroken:1\n")
    assert name_users("uid 1000 and uid 0, not uid 7", names.find) == "user ann and user root, not uid 7"
    assert name_users("user ann (uid 1000)", names.find) == "user ann (uid 1000)", "named already"
    (tmp_path / "passwd").write_text("eve:x:1000:1000::/:\n")
    assert names.find(1000) == "eve" and names.find(0) == ""


def test_names_are_those_of_this_machine() -> None:
    user = pwd.getpwuid(os.getuid())
    assert LocalNames().find(user.pw_uid) in (user.pw_name, "")
