"""One copy of a file's weights for all slices of a user: charged once, read by all, written by none, kept when the
program that loaded it ends.
"""

from __future__ import annotations

import json
import struct
import sys
from collections.abc import Callable
from pathlib import Path

from tests.system.test_memory_pressure import MIB, PATIENCE_S, Program
from vgpud.cli.demo.private_system import OwnSystem, wait_for
from vgpud.client import calls

PROGRAM = Path(__file__).parent / "programs" / "weights.py"
INVALID_VALUE = 1
CONTEXT = 64 * MIB
SIM = {"devices": "1", "memory_bytes": "2G", "context_bytes": str(CONTEXT)}
#: two tensors, the second one of 160 MiB
SMALL, LARGE_BYTES = struct.pack("<4f", 1, 2, 3, 4), 160 * MIB


def write_file(path: Path) -> None:
    header = {
        "__metadata__": {"format": "pt"},
        "small": {"dtype": "F32", "shape": [2, 2], "data_offsets": [0, 16]},
        "large": {"dtype": "U8", "shape": [LARGE_BYTES], "data_offsets": [16, 16 + LARGE_BYTES]},
    }
    text = json.dumps(header).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text + SMALL)
        file.truncate(8 + len(text) + len(SMALL) + LARGE_BYTES)  # zeros


class World:
    def __init__(self, system: OwnSystem, file: Path) -> None:
        self.system, self.file = system, file
        write_file(file)

    def start(self, name: str, mem: str = "512M") -> Program:
        command = [sys.executable, str(PROGRAM), str(self.file)]
        env = {"XDG_RUNTIME_DIR": str(self.system.folder)}
        return Program(self.system.run(name, ("--gpus", "0.3", "--mem", mem), command, env=env, talk=True))

    def used_bytes(self, name: str) -> int:
        with self.system.client() as client:
            return client.send(calls.get_slice(name)).devices[0].mem_used_bytes


def test_a_file_is_on_the_device_once(make_system: Callable[..., OwnSystem], tmp_path: Path) -> None:
    world = World(make_system(SIM), tmp_path / "model.safetensors")
    maker = world.start("maker")
    assert maker.answer() == {"maker": True, "names": ["large", "small"]}
    reader = world.start("reader", mem="128M")  # which it would not fit into
    assert not reader.answer()["maker"]
    assert world.used_bytes("maker") == CONTEXT + 162 * MIB, "160 MiB and 16 bytes, in granules"
    assert world.used_bytes("reader") == CONTEXT
    for program in (maker, reader):
        assert program.ask("r", "small") == {"code": 0, "hex": SMALL.hex()}
        assert program.ask("w", "small")["code"] == INVALID_VALUE, "neither can write"
    maker.part.stop()
    assert reader.ask("r", "small") == {"code": 0, "hex": SMALL.hex()}, "it stays"
    # beyond the credit that it held unused
    wait_for("the charge", lambda: world.used_bytes("reader") > CONTEXT + 150 * MIB, PATIENCE_S)
    another = world.start("another")
    assert another.answer()["maker"], "the next program loads it again, and pays"
    third = world.start("third", mem="128M")
    assert not third.answer()["maker"]
    assert another.ask("q") == {}
    assert third.ask("r", "small")["hex"] == SMALL.hex()


def test_a_changed_file_is_another_one(make_system: Callable[..., OwnSystem], tmp_path: Path) -> None:
    world = World(make_system(SIM), tmp_path / "model.safetensors")
    first = world.start("first")
    assert first.answer()["maker"]
    write_file(world.file)
    second = world.start("second")
    assert second.answer()["maker"]
    assert first.ask("r", "small")["hex"] == SMALL.hex()
