"""The conformance suite: small driver programs that say the same on every device, hooked and unhooked.

Each family is one C file of rows; a row prints `name: fact=value ...`. expected/FAMILY.json holds for each row what it
says, and where that is from: `documented` (the driver's documentation, nothing has confirmed it yet), `confirmed` (a
real device said so; driver and device are named) or `without_device` (real drivers said so on a machine without a
device, which these rows do not need; the drivers are named).
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.qualify.checks import unhooked_env
from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem, PartError, wait_for
from vgpud.client import calls

HERE = Path(__file__).resolve().parent
EXPECTED = HERE / "expected"
FAMILIES = tuple(sorted(path.stem for path in HERE.glob("*.c")))
PROGRAM_SECONDS = 120
#: less than a device has: the rows over the limit meet the slice's own
SLICE_MEMORY = "6GiB"
#: the simulated devices: two, for rows about several
SIMULATED = {"devices": "2", "memory_limits": "1"}
#: says how much memory a program sees on its first device
TOTAL = """
import ctypes
driver, total = ctypes.CDLL("libcuda.so.1"), ctypes.c_size_t()
print([driver.cuInit(0), driver.cuDeviceTotalMem_v2(ctypes.byref(total), 0), total.value])
"""
#: what a row says that this machine or device has nothing for
SKIPPED = "skipped: "

Rows = dict[str, str]
Expected = dict[str, dict[str, str]]


@dataclass(frozen=True)
class Difference:
    """A row that did not say what it should. kind: hook (hooked against unhooked) or expected (against expected/)."""

    family: str
    row: str
    kind: str
    expected_text: str
    actual_text: str

    def __str__(self) -> str:
        wanted, got = (self.expected_text or "nothing").split(), (self.actual_text or "nothing").split()
        if len(wanted) == len(got):
            pairs = [(a, b) for a, b in zip(wanted, got, strict=True) if a != b]
            wanted, got = [a for a, _ in pairs], [b for _, b in pairs]
        who = ("unhooked", "hooked") if self.kind == "hook" else ("expected", "here")
        return f"{self.family}/{self.row}: {who[0]} {' '.join(wanted)}, {who[1]} {' '.join(got)}"


def build(family: str, folder: Path) -> Path:
    """Compiles a family. It is linked by soname: the loader takes whatever driver the program finds at run time."""
    path = folder / family
    flags = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-iquote", str(harness.ROOT / "shim")]
    library = [f"-L{paths.sim_lib_dir()}", "-l:libcuda.so.1", "-Wl,-z,lazy"]
    subprocess.run(["gcc", *flags, "-o", str(path), str(HERE / f"{family}.c"), *library], check=True)
    return path


def parse(text: str) -> Rows:
    """What a program printed, by row."""
    return {name: facts for name, colon, facts in (line.partition(": ") for line in text.splitlines()) if colon}


def run(own: OwnSystem, family: str, program: Path, devices: int) -> tuple[Rows, Rows]:
    """What the family says unhooked, and in a slice of all devices. Raises when a program as a whole fails."""
    env = unhooked_env(own)
    plain = subprocess.run([str(program)], env=env, capture_output=True, text=True, timeout=PROGRAM_SECONDS, check=True)
    part = own.run(f"conform-{family}", ["--gpus", str(devices), "--mem", SLICE_MEMORY], [str(program)])
    wait_for(f"{family} in a slice", lambda: not part.running, PROGRAM_SECONDS)
    if part.process.returncode:
        part.check()
    return parse(plain.stdout), parse(part.output_file.read_text())


def check_hooked(own: OwnSystem, devices: int) -> None:
    """Raises PartError where a program in a slice sees the whole device: it is not hooked, and its rows would agree."""
    words = [sys.executable, "-c", TOTAL]
    plain = subprocess.run(words, env=unhooked_env(own), capture_output=True, text=True, timeout=60, check=True).stdout
    part = own.run("conform-hooked", ["--gpus", str(devices), "--mem", SLICE_MEMORY], words)
    wait_for("a program in a slice", lambda: not part.running)
    if part.process.returncode:
        part.check()
    if part.output_file.read_text() == plain:
        raise PartError(
            f"a program in a slice of {SLICE_MEMORY} sees the whole device {plain.strip()}: it is not hooked"
        )


def expected_rows(family: str) -> Expected:
    """What the rows of a family should say."""
    path = EXPECTED / f"{family}.json"
    found: Expected = json.loads(path.read_text()) if path.exists() else {}
    return found


def compare(family: str, kind: str, reference: Rows, actual: Rows) -> list[Difference]:
    """The rows that differ, those that only one side has among them."""
    names = [*reference, *(name for name in actual if name not in reference)]
    pairs = ((name, reference.get(name, ""), actual.get(name, "")) for name in names)
    return [Difference(family, name, kind, one, other) for name, one, other in pairs if one != other]


def confirm(family: str, rows: Rows, driver: str, device: str) -> None:
    """Writes what a real device said as the expectation; rows that were skipped keep theirs."""
    source = {"status": "confirmed", "driver": driver, "device": device}
    found = {name: {"result": facts, **source} for name, facts in without_skipped(rows).items()}
    EXPECTED.mkdir(exist_ok=True)
    (EXPECTED / f"{family}.json").write_text(json.dumps({**expected_rows(family), **found}, indent=1) + "\n")


def without_skipped(rows: Rows) -> Rows:
    """The rows that this machine had something to say to."""
    return {name: facts for name, facts in rows.items() if not facts.startswith(SKIPPED)}


def conform(own: OwnSystem, folder: Path) -> tuple[dict[str, Any], list[Difference], dict[str, Rows]]:
    """Runs all families: figures, differences, and what the rows said unhooked."""
    differences: list[Difference] = []
    said: dict[str, Rows] = {}
    figures: dict[str, Any] = {"rows": 0, "skipped": 0, "documented": 0, "confirmed": 0, "without_device": 0}
    with own.client() as client:
        devices = len(client.all(calls.devices()))
    check_hooked(own, devices)
    for family in FAMILIES:
        plain, hooked = run(own, family, build(family, folder), devices)
        wanted = expected_rows(family)
        said[family] = plain
        differences += compare(family, "hook", plain, hooked)
        said_here = without_skipped(plain)
        skipped = plain.keys() - said_here
        should = {name: row["result"] for name, row in wanted.items() if name not in skipped}
        differences += compare(family, "expected", should, said_here)
        figures["rows"] += len(plain)
        figures["skipped"] += len(skipped)
        for row in wanted.values():
            figures[row["status"]] += 1
    figures["hooked_differs"] = sum(one.kind == "hook" for one in differences)
    figures["not_as_expected"] = sum(one.kind == "expected" for one in differences)
    return figures, differences, said
