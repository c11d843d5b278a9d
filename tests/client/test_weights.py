"""Which files weights are read from, and where programs meet; tests/system/test_shared_weights.py shares them."""

from __future__ import annotations

import errno
import io
import json
import os
import socket
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.examples import examples
from vgpud.client import ClientError, weights

VALUE = st.none() | st.integers() | st.text(max_size=4)
GOOD = {"a": {"dtype": "BF16", "shape": [2, 3], "data_offsets": [0, 12]}}


def make_file(path: Path, header: Any, data_bytes: int = 12) -> Path:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + bytes(data_bytes))
    return path


def read(path: Path) -> tuple[int, dict[str, weights.Weight]]:
    with path.open("rb") as file:
        return weights.read_header(file, path.name)


def test_a_header_is_read(tmp_path: Path) -> None:
    begin, entries = read(make_file(tmp_path / "m", {"__metadata__": {"format": "pt"}, **GOOD}))
    assert begin == (tmp_path / "m").stat().st_size - 12
    assert entries == {"a": weights.Weight("BF16", (2, 3), 0, 12)}


@pytest.mark.parametrize(
    "header",
    [
        b"{",
        b"[" * 100_000,
        [],
        {"a": 1},
        {"a": {"dtype": "BF16", "shape": [2, 3]}},
        {"a": {"dtype": "COMPLEX", "shape": [2, 3], "data_offsets": [0, 12]}},
        {"a": {"dtype": "BF16", "shape": [2, 4], "data_offsets": [0, 12]}},
        {"a": {"dtype": "BF16", "shape": [-2, -3], "data_offsets": [0, 12]}},
        {"a": {"dtype": "BF16", "shape": [1], "data_offsets": [1, 3]}},
        {"a": {"dtype": "U8", "shape": [13], "data_offsets": [0, 13]}},
        {"a": {"dtype": "U8", "shape": [True], "data_offsets": ["0", 1]}},
    ],
)
def test_a_header_that_cannot_be_true_is_refused(tmp_path: Path, header: Any) -> None:
    with pytest.raises(ClientError, match=r"m is no safetensors file: .*: save it again"):
        read(make_file(tmp_path / "m", header))


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, (1 << 62).to_bytes(8, "little") + b"{}"])
def test_a_file_without_a_header_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "m").write_bytes(content)
    with pytest.raises(ClientError, match="does not fit into"):
        read(tmp_path / "m")


@settings(max_examples=examples(200), deadline=None)
@given(
    st.recursive(
        st.none() | st.integers() | st.text(max_size=4), lambda s: st.lists(s) | st.dictionaries(st.text(max_size=3), s)
    )
)
def test_any_header_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, header: Any) -> None:
    path = make_file(tmp_path_factory.mktemp("any") / "m", header)
    try:
        _, entries = read(path)
    except ClientError:
        return
    assert all(entry.begin_bytes + entry.size_bytes <= 12 for entry in entries.values())


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(ClientError, match="cannot be loaded: No such file or directory"):
        weights.load_weights(tmp_path / "none")


def test_a_directory_of_others_is_not_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    assert weights._folder().stat().st_mode & 0o777 == 0o700
    (tmp_path / "vgpu-weights").chmod(0o755)
    with pytest.raises(ClientError, match="is not a directory of this user alone: remove it"):
        weights._folder()
    (tmp_path / "vgpu-weights").rmdir()
    (tmp_path / "vgpu-weights").symlink_to("/tmp")
    with pytest.raises(ClientError, match="is not a directory of this user alone"):
        weights._folder()


class Memory:
    """Device memory, played by a file."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes, self.content = size_bytes, bytearray(size_bytes)
        self.exports = 0

    def write(self, offset_bytes: int, data: memoryview) -> None:
        self.content[offset_bytes : offset_bytes + len(data)] = data

    def export(self) -> int:
        self.exports += 1
        return os.memfd_create("memory")


def test_a_file_is_copied_in_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(weights, "_COPY_BYTES", 7)
    data = bytes(range(100))
    memory: Any = Memory(90)
    weights._fill(memory, io.BytesIO(data), 10, 90)
    assert memory.content == data[10:]
    with pytest.raises(ClientError, match="the file was cut while it was read"):
        weights._fill(memory, io.BytesIO(data), 20, 90)


def test_memory_is_given_as_long_as_its_maker_serves(tmp_path: Path) -> None:
    memory: Any = Memory(5)
    path = tmp_path / "s"
    assert weights._receive(path) is None
    server = weights._Server(path, memory)
    for _ in range(2):
        offer = weights._receive(path)
        assert offer
        os.close(offer[0])
        assert offer[1] == 5
    server.close()
    assert weights._receive(path) is None
    assert memory.exports == 2


class _Listener(socket.socket):
    """One whose first connection finds no free descriptor."""

    failures = 0

    def accept(self) -> tuple[socket.socket, Any]:
        if not self.failures:
            self.failures += 1
            raise OSError(errno.EMFILE, "too many open files")
        return super().accept()


def test_memory_is_given_after_a_connection_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(socket, "socket", _Listener)
    memory: Any = Memory(5)
    server = weights._Server(tmp_path / "s", memory)
    monkeypatch.undo()
    offer = weights._receive(tmp_path / "s")
    assert offer
    os.close(offer[0])
    server.close()


def test_a_maker_leaves_the_path_to_the_one_that_has_it_by_now(tmp_path: Path) -> None:
    memory: Any = Memory(5)
    first, second = (weights._Server(tmp_path / "s", memory) for _ in range(2))
    first.close()
    offer = weights._receive(tmp_path / "s")
    assert offer
    os.close(offer[0])
    second.close()
    assert not (tmp_path / "s").exists()
