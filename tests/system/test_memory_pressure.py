"""A neighbour's guaranteed memory is in use: the borrower that watches is asked, gives back, and runs on; one that does
not watch, or keeps what it has, gains nothing over before.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb

PROGRAM = Path(__file__).parent / "programs" / "memory.py"
MIB = 1 << 20
OUT_OF_MEMORY = 2
#: generous, for busy machines
PATIENCE_S = 120.0
SIM = {"devices": "1", "memory_bytes": "4G", "context_bytes": str(64 * MIB)}


class Program:
    """programs/memory.py in a slice."""

    def __init__(self, part: Part) -> None:
        self.part = part

    def send(self, *words: object) -> None:
        assert self.part.process.stdin
        self.part.process.stdin.write((" ".join(map(str, words)) + "\n").encode())
        self.part.process.stdin.flush()

    def answer(self) -> dict[str, Any]:
        got: list[dict[str, Any]] = []

        def ready() -> bool:
            self.part.check()
            got.extend(self.part.lines())
            return bool(got)

        wait_for(self.part.name, ready, PATIENCE_S)
        (line,) = got
        return line

    def ask(self, *words: object) -> dict[str, Any]:
        self.send(*words)
        return self.answer()


class World:
    def __init__(self, make_system: Callable[..., OwnSystem], grace_s: int) -> None:
        self.system = make_system(SIM, [f"memory_grace_s = {grace_s}"])

    def start(self, name: str, *amounts: str) -> Program:
        return Program(self.system.run(name, amounts, [sys.executable, str(PROGRAM)], talk=True))

    def borrower(self, blocks: int, mode: str = "") -> Program:
        """It is guaranteed 512 MiB, and takes blocks of 256 MiB."""
        program = self.start("lender", "--gpus", "0.5", "--mem-min", "512M", "--mem-max", "4G")
        if mode:
            program.ask("w", mode)
        assert [program.ask("a", 256 * MIB)["code"] for _ in range(blocks)] == [0] * blocks
        return program

    def owner(self) -> Program:
        return self.start("owner", "--gpus", "0.5", "--mem", "3G")

    def show(self, name: str) -> pb.SliceDevice:
        with self.system.client() as client:
            return client.send(calls.get_slice(name)).devices[0]

    def events(self, kind: str) -> list[str]:
        with self.system.client() as client:
            return [event.message for event in client.all(calls.events()) if event.kind == kind]

    def wait_for_event(self, kind: str) -> list[str]:
        wait_for(kind, lambda: bool(self.events(kind)), PATIENCE_S)
        return self.events(kind)


def test_a_borrower_that_watches_gives_back_and_runs_on(make_system: Callable[..., OwnSystem]) -> None:
    world = World(make_system, grace_s=60)
    borrower = world.borrower(14, "give")
    owner = world.owner()
    got = owner.ask("a", 2048 * MIB)
    assert got["code"] == 0
    (request,) = borrower.ask("r")["requests"]
    assert request["device"] == 0 and request["uuid"].startswith("GPU-")
    assert borrower.ask("i")["total"] == 4096 * MIB, "it sees its slice as ever"
    blocks = -(-request["bytes"] // (256 * MIB))
    assert world.show("lender").mem_used_bytes == (14 - blocks) * 256 * MIB + 64 * MIB, "not more than is needed"
    (returned,) = world.wait_for_event("memory.returned")
    assert returned.startswith("slice lender was asked for 1")
    assert " in " in returned and returned.endswith(" s")
    assert world.events("memory.kept") == world.events("memory.short") == []
    reclaim = world.show("lender").reclaim
    assert reclaim.remaining_bytes == 0 and not reclaim.late
    assert reclaim.returned_bytes >= reclaim.asked_bytes >= request["bytes"]
    assert "asked back" in world.system.vgpu("slice", "show", "lender")


def test_a_borrower_that_does_not_watch_is_not_waited_for(make_system: Callable[..., OwnSystem]) -> None:
    world = World(make_system, grace_s=3600)
    borrower = world.borrower(14)
    owner = world.owner()
    assert owner.ask("a", 2048 * MIB)["code"] == OUT_OF_MEMORY, "as from a device that is full"
    (short,) = world.wait_for_event("memory.short")
    assert short.startswith("slice owner misses ") and "lender (" in short
    assert world.events("memory.asked") == []
    assert not world.show("lender").HasField("reclaim")
    assert borrower.ask("f")["code"] == 0


def test_a_borrower_that_keeps_all_delays_once(make_system: Callable[..., OwnSystem]) -> None:
    """The neighbour is refused as without a watch, after the grace; and then at once."""
    world = World(make_system, grace_s=1)
    borrower = world.borrower(14, "keep")
    owner = world.owner()
    first = owner.ask("a", 2048 * MIB)
    assert first["code"] == OUT_OF_MEMORY and first["seconds"] >= 1
    (kept,) = world.wait_for_event("memory.kept")
    assert kept.endswith("its time is up, and it keeps the rest")
    second = owner.ask("a", 2048 * MIB)
    assert second["code"] == OUT_OF_MEMORY and second["seconds"] < first["seconds"]
    assert len(borrower.ask("r")["requests"]) == 1
    assert borrower.ask("f")["code"] == 0, "it lives"
    assert world.show("lender").reclaim.late


def test_a_maximum_below_what_is_used_is_asked_for(make_system: Callable[..., OwnSystem]) -> None:
    world = World(make_system, grace_s=60)
    borrower = world.borrower(8, "give")
    world.system.vgpu("slice", "set", "lender", "--mem-max", "1G")
    world.wait_for_event("memory.returned")
    seen = borrower.ask("i")
    assert seen["total"] == 1024 * MIB and seen["free"] >= 0
    assert world.show("lender").mem_used_bytes <= 1024 * MIB
    assert len(borrower.ask("r")["requests"]) == 1


@pytest.mark.parametrize("ends", ["borrower", "owner"])
def test_a_program_killed_while_it_is_waited_for_leaves_nothing_open(
    make_system: Callable[..., OwnSystem], ends: str
) -> None:
    world = World(make_system, grace_s=3600)
    borrower, owner = world.borrower(14, "keep"), world.owner()
    owner.send("a", 2048 * MIB)
    world.wait_for_event("memory.asked")
    if ends == "borrower":
        borrower.part.stop()
        assert owner.answer()["code"] == 0, "its memory is free"
    else:
        owner.part.stop()
        wait_for("the end", lambda: world.show("lender").reclaim.remaining_bytes == 0)
        assert borrower.ask("f")["code"] == 0


def test_a_daemon_that_is_killed_ends_the_wait(make_system: Callable[..., OwnSystem]) -> None:
    world = World(make_system, grace_s=3600)
    borrower, owner = world.borrower(14, "keep"), world.owner()
    owner.send("a", 2048 * MIB)
    world.wait_for_event("memory.asked")
    assert world.system.daemon
    world.system.daemon.kill()
    assert owner.answer()["code"] == OUT_OF_MEMORY
    world.system.start_daemon()
    assert borrower.ask("f")["code"] == 0


def lend_to(world: World, mode: str) -> tuple[Program, Program]:
    """A sleeper that is guaranteed 768 MiB, and a borrower that has some of them. Programs of the two."""
    sleeper = world.start("sleeper", "--gpus", "0.5", "--mem", "768M", "--idle-after", "1s")
    assert [sleeper.ask("a", 256 * MIB)["code"] for _ in range(2)] == [0, 0]
    world.wait_for_event("slice.asleep")
    return sleeper, world.borrower(14, mode)


def test_a_borrower_gives_back_what_a_sleeper_needs_to_wake(make_system: Callable[..., OwnSystem]) -> None:
    world = World(make_system, grace_s=60)
    sleeper, borrower = lend_to(world, "give")
    assert sleeper.ask("f")["code"] == 0, "its memory is there, and its call was answered"
    (request,) = borrower.ask("r")["requests"]
    assert request["bytes"] <= 2 * 256 * MIB, "not more than is needed"
    world.wait_for_event("memory.returned")
    assert world.events("slice.awake") and world.events("slice.stays") == []


@pytest.mark.parametrize("mode", ["", "keep"])
def test_what_a_sleeper_does_not_get_back_is_said(make_system: Callable[..., OwnSystem], mode: str) -> None:
    """It waits, and the borrower lives; no more is lent to it meanwhile."""
    world = World(make_system, grace_s=1)
    sleeper, borrower = lend_to(world, mode)
    sleeper.send("f")
    (said,) = world.wait_for_event("slice.stays")
    assert said.startswith("slice sleeper stays on the host: others use 320MiB of the memory beyond their minima")
    if mode == "keep":
        world.wait_for_event("memory.kept")  # said by another part of the daemon
    else:
        assert world.events("memory.kept") == []
    assert borrower.ask("a", 256 * MIB)["code"] == OUT_OF_MEMORY
    assert [borrower.ask("f")["code"] for _ in range(2)] == [0, 0]
    assert sleeper.answer()["code"] == 0
