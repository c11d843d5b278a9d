"""Copies between host and device under the hook: counted by direction, and held to the slice's part of the link."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask, call
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.simdevice.link_log import FROM_DEVICE, TO_DEVICE, LinkUse, link_share, read_link_log

ROOT = Path(__file__).resolve().parents[2]
LIB = ROOT / "vgpud" / "lib" / "sim"
MIB = 1 << 20
#: slow, so that a host that moves the bytes is faster than the link
SLOW = {"memory_bytes": str(4096 * MIB), "context_bytes": str(64 * MIB), "link_bytes_per_us": "200"}
COPY = 8 * MIB
SECOND_NS = 1_000_000_000
OUT_OF_MEMORY = 2


@pytest.fixture(scope="module")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("copies")
    for name in ("link_copies", "link_families", "link_random", "pinner"):
        flags = ["-O1", "-Wall", "-Wextra", "-Werror", "-iquote", str(ROOT / "shim"), f"-L{LIB}"]
        source = str(ROOT / "tests" / "sim" / f"{name}.c")
        subprocess.run(["gcc", *flags, "-o", str(folder / name), source, "-l:libcuda.so.1"], check=True)
    return folder


def start(system: OwnSystem, slice_name: str, *command: object, amounts: Sequence[str] = ()) -> tuple[Part, list[Any]]:
    """A program that has said its first line, and all that it says; `amounts`: of a slice that is made for it."""
    part = system.run(slice_name, amounts, [str(word) for word in command], talk=True)
    said: list[Any] = []
    wait_for("the program", lambda: said.extend(part.lines()) or len(said) >= 1)
    return part, said


def go(part: Part) -> None:
    assert part.process.stdin
    part.process.stdin.write(b"\n")
    part.process.stdin.flush()


def copies(system: OwnSystem, slice_name: str, programs: Path) -> tuple[Part, int]:
    """A program that copies large blocks to the device for longer than the test lasts, and its pid."""
    part, said = start(system, slice_name, programs / "link_copies", "to", "pinned", COPY, 10_000, 1)
    go(part)
    return part, said[0]["ready"]


def show_device(system: OwnSystem, name: str) -> dict[str, Any]:
    found: dict[str, Any] = ask(system, "slice", "show", name)["slice"]["devices"][0]
    return found


def test_every_family_is_counted_by_direction(make_system: Callable[..., OwnSystem], programs: Path) -> None:
    system = make_system({"memory_bytes": str(4096 * MIB), "context_bytes": str(64 * MIB)})
    system.vgpu("slice", "create", "a", "--gpus", "0.5", "--mem", "1G")
    part, said = start(system, "a", programs / "link_families")
    counted = show_device(system, "a")
    ways = {"to": counted["copy_to_device_bytes"], "from": counted["copy_from_device_bytes"]}
    assert ways | {"pinned": counted["pinned_bytes"]} == said[0]
    assert counted["copy_to_device_bytes_per_s"] == counted["copy_from_device_bytes_per_s"] == 0, "nothing is paced"
    shown = system.vgpu("slice", "show", "a")
    assert "copied" in shown
    go(part)
    part.check()


def sum_copies(system: OwnSystem) -> tuple[int, int]:
    """(to devices, from devices), of all users."""
    rows = ask(system, "usage", "--by", "user")["usage"]
    to_bytes, from_bytes = ([row[f"copy_{way}_device_bytes"] for row in rows] for way in ("to", "from"))
    return sum(to_bytes), sum(from_bytes)


def test_usage_has_each_copy_once(make_system: Callable[..., OwnSystem], programs: Path) -> None:
    """Of a program that outlives the daemon, of those that have ended, and of a slice that goes with its program."""
    system = make_system({"memory_bytes": str(4096 * MIB), "context_bytes": str(64 * MIB)})
    system.vgpu("slice", "create", "a", "--gpus", "0.5", "--mem", "1G")
    part, said = start(system, "a", programs / "link_families")
    device, (node_device,) = show_device(system, "a"), ask(system, "gpu", "ls")["devices"]
    for way in ("to", "from"):
        link_ns = device[f"copy_{way}_device_bytes"] * SECOND_NS // node_device["link_bytes_per_s"]
        assert device[f"copy_{way}_device_ns"] == link_ns > 0
    once = (said[0]["to"], said[0]["from"])
    assert sum_copies(system) == once
    assert system.daemon
    system.daemon.stop()
    system.start_daemon()
    wait_for("the program", lambda: ask(system, "slice", "show", "a")["slice"]["processes"] == 1)
    assert sum_copies(system) == once
    go(part)
    part.process.wait()
    for name, amounts in (("a", ()), ("b", ("--gpus", "0.3", "--mem", "1G"))):
        part, _ = start(system, name, programs / "link_families", amounts=amounts)
        go(part)
        part.process.wait()
    system.vgpu("slice", "rm", "a")
    wait_for("the end of b", lambda: not ask(system, "slice", "ls")["slices"])
    assert sum_copies(system) == (3 * once[0], 3 * once[1])
    rows = ask(system, "usage", "--by", "job")["usage"]
    counted = {row["slice"]: (row["copy_to_device_bytes"], row["copy_from_device_bytes"]) for row in rows}
    assert counted == {"a": (2 * once[0], 2 * once[1]), "b": once}


def test_programs_of_a_slice_pin_no_more_than_the_site_allows(
    make_system: Callable[..., OwnSystem], programs: Path
) -> None:
    """Together, by each way to pin; what is freed may be pinned again, and other slices are not concerned."""
    sim = {"memory_bytes": str(4096 * MIB), "context_bytes": str(64 * MIB)}
    system = make_system(sim, [f"pinned_bytes_max = {10 * MIB}"])
    for name in ("a", "b"):
        system.vgpu("slice", "create", name, "--gpus", "0.5", "--mem", "1G")
    first, said = start(system, "a", programs / "pinner", 3, 3, 3, 2, 1)
    assert said == [{"answers": [0, 0, 0, OUT_OF_MEMORY, 0]}]
    wait_for("the daemon", lambda: show_device(system, "a")["pinned_bytes"] == 10 * MIB)
    assert show_device(system, "a")["pinned_denied"] == 1
    assert "10MiB pinned, 1 times refused" in system.vgpu("slice", "show", "a")
    assert system.daemon
    system.daemon.kill()
    system.start_daemon()  # another one, which the program tells
    wait_for("the program", lambda: show_device(system, "a")["pinned_bytes"] == 10 * MIB)
    second, refused = start(system, "a", programs / "pinner", 1)
    other, granted = start(system, "b", programs / "pinner", 10)
    assert (refused, granted) == ([{"answers": [OUT_OF_MEMORY]}], [{"answers": [0]}])
    go(first)
    wait_for("the program", lambda: said.extend(first.lines()) or len(said) == 2)
    assert said[1] == {"answers": [0]}, "3 MiB were freed, 1 MiB is pinned"
    for part in (first, second, other):
        part.stop()


def shares(system: OwnSystem, *pids: int) -> list[float]:
    """Of the link to the device, in the seconds in which all of them copied."""
    time.sleep(1)
    begin_ns = time.monotonic_ns()
    time.sleep(3)
    end_ns = time.monotonic_ns()
    log = read_link_log(system.sim_dir / "links-0.log")
    return [link_share(log, pid, TO_DEVICE, begin_ns, end_ns - SECOND_NS // 10) for pid in pids]


@pytest.mark.alone
def test_a_minimum_and_a_maximum_of_the_link_hold(make_system: Callable[..., OwnSystem], programs: Path) -> None:
    """Beside a slice that is held to .3 of the link another one has the rest; alone it does not get more."""
    system = make_system(SLOW)
    system.vgpu("slice", "create", "a", "--gpus", "0.5", "--mem", "1G", "--copy-max", "0.3")
    system.vgpu("slice", "create", "b", "--gpus", "0.5", "--mem", "1G")
    held, held_pid = copies(system, "a", programs)
    free, free_pid = copies(system, "b", programs)
    low, high = shares(system, held_pid, free_pid)
    assert low == pytest.approx(0.3, abs=0.02)
    assert high == pytest.approx(0.7, abs=0.02)
    os.kill(free_pid, signal.SIGKILL)
    free.process.wait()
    (alone,) = shares(system, held_pid)
    assert alone == pytest.approx(0.3, abs=0.02)
    assert show_device(system, "a")["copy_to_device_bytes_per_s"] == pytest.approx(0.3 * 200e6, rel=0.05)
    os.kill(held_pid, signal.SIGKILL)
    held.process.wait()


@pytest.mark.alone
def test_what_others_leave_idle_is_borrowed(make_system: Callable[..., OwnSystem], programs: Path) -> None:
    system = make_system(SLOW)
    system.vgpu("slice", "create", "a", "--gpus", "0.5", "--mem", "1G")
    system.vgpu("slice", "create", "b", "--gpus", "0.5", "--mem", "1G", "--copy-min", "0.6")
    part, pid = copies(system, "a", programs)
    (alone,) = shares(system, pid)
    assert alone > 0.93
    os.kill(pid, signal.SIGKILL)
    part.process.wait()


@pytest.mark.parametrize("seed", range(2))
def test_copies_that_are_cut_are_exact(make_system: Callable[..., OwnSystem], programs: Path, seed: int) -> None:
    system = make_system({**SLOW, "link_bytes_per_us": "2000"})
    system.vgpu("slice", "create", "a", "--gpus", "0.5", "--mem", "1G", "--copy-max", "0.5")
    system.run("a", (), [str(programs / "link_random"), str(seed), "25"]).check()
    log: list[LinkUse] = []
    wait_for("the log", lambda: log.extend(read_link_log(system.sim_dir / "links-0.log")) or bool(log))
    assert max(use.bytes for use in log if use.direction in (TO_DEVICE, FROM_DEVICE)) <= 16 * MIB, "in pieces"


def test_parts_of_a_link_that_cannot_be(make_system: Callable[..., OwnSystem]) -> None:
    system = make_system({"memory_bytes": str(4096 * MIB)})
    system.vgpu("slice", "create", "a", "--gpus", "0.2", "--mem", "1G", "--copy-min", "0.7")
    for words, says in (
        (("--copy-min", "0.4"), "copy-min 0.4 is more than other slices leave of a link: device 0 has 0.3 left"),
        (("--copy-min", "0.3", "--copy-max", "0.2"), "copy-min 0.3 is above copy-max 0.2"),
        (("--copy-max", "1.5"), "'1.5' is no part of a link"),
    ):
        refused = call(system, "slice", "create", "b", "--gpus", "0.2", "--mem", "1G", *words)
        assert refused.returncode != 0 and says in refused.stderr, refused.stderr
    system.vgpu("slice", "set", "a", "--copy-min", "0.6")
    system.vgpu("slice", "create", "b", "--gpus", "0.2", "--mem", "1G", "--copy-min", "0.4")
    assert ask(system, "slice", "show", "b")["slice"]["copy_min_milli"] == 400
