"""Weights that the programs of one user share: a safetensors file is on a device once, and all others read that copy.

    weights = load_weights("model.safetensors")
    model.load_state_dict(weights.tensors(), assign=True)

The first program to ask loads the file, and its slice is charged for it; others map the same memory, for reading only.
They meet at a socket in a directory of the user. When the first program ends, those that have the memory keep it, and
the next to ask loads the file again.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import math
import os
import socket
import stat
import struct
import tempfile
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from vgpud.client.device_memory import Driver, SharedMemory, import_memory, make_memory
from vgpud.client.failures import ClientError, make_error
from vgpud.errors import ExitCode

#: safetensors' name -> (bytes, PyTorch's name)
_TYPES = {
    "BOOL": (1, "bool"), "U8": (1, "uint8"), "I8": (1, "int8"), "F8_E4M3": (1, "float8_e4m3fn"),
    "F8_E5M2": (1, "float8_e5m2"), "I16": (2, "int16"), "U16": (2, "uint16"), "F16": (2, "float16"),
    "BF16": (2, "bfloat16"), "I32": (4, "int32"), "U32": (4, "uint32"), "F32": (4, "float32"),
    "I64": (8, "int64"), "U64": (8, "uint64"), "F64": (8, "float64"),
}  # fmt: skip
_HEADER_BYTES_MAX = 100_000_000
_COPY_BYTES = 64 << 20
_ANSWER_S = 10.0
#: after a connection that could not be taken, for want of descriptors
_AGAIN_S = 0.2
_SIZE = struct.Struct("=Q")
_CREDENTIALS = struct.Struct("=iII")  # pid, uid, gid of SO_PEERCRED


@dataclass(frozen=True)
class Weight:
    """A tensor of the file: where it lies in its data."""

    dtype: str
    shape: tuple[int, ...]
    begin_bytes: int
    size_bytes: int


@dataclass(frozen=True)
class _Bytes:
    """A part of the device memory, as PyTorch, CuPy and Numba take it over without a copy."""

    owner: SharedWeights  # the memory stays as long as a tensor has this
    address: int
    size_bytes: int

    @property
    def __cuda_array_interface__(self) -> Mapping[str, Any]:
        data = (self.address, False)  # PyTorch takes no array that says that it is read-only
        return {"shape": (self.size_bytes,), "typestr": "|u1", "data": data, "strides": None, "version": 3}


class SharedWeights:
    """The tensors of a file on a device. Writing to them is an error of the device."""

    def __init__(self, driver: Driver, memory: SharedMemory, entries: Mapping[str, Weight], server: _Server | None):
        self._driver, self._memory, self._server = driver, memory, server
        self.entries = entries

    @property
    def is_maker(self) -> bool:
        """This process has loaded the file: its slice is charged for it."""
        return self._server is not None

    def address(self, name: str) -> int:
        """Device address of a tensor. Raises KeyError for an unknown name."""
        return self._memory.address + self.entries[name].begin_bytes

    def tensor(self, name: str) -> Any:
        """A tensor as a torch.Tensor on the device, for reading."""
        import torch

        entry = self.entries[name]
        dtype = getattr(torch, _TYPES[entry.dtype][1])
        if entry.size_bytes == 0:
            return torch.empty(entry.shape, dtype=dtype, device=f"cuda:{self._driver.device}")
        part = _Bytes(self, self.address(name), entry.size_bytes)
        return torch.as_tensor(part, device=f"cuda:{self._driver.device}").view(dtype).reshape(entry.shape)

    def tensors(self) -> dict[str, Any]:
        """All of them, for load_state_dict(..., assign=True)."""
        return {name: self.tensor(name) for name in self.entries}

    def close(self) -> None:
        """Unmaps them: no tensor may be used any more. Not needed at the end of a program."""
        if self._server:
            self._server.close()
        self._memory.close()
        self._driver.close()


# ---- the file ----


def read_header(file: BinaryIO, name: str) -> tuple[int, dict[str, Weight]]:
    """(where the data begins, the tensors) of a safetensors file. Raises ClientError."""
    size = os.fstat(file.fileno()).st_size
    head = file.read(8)
    length = int.from_bytes(head, "little")
    if len(head) < 8 or length > min(_HEADER_BYTES_MAX, size - 8):
        raise _bad_file(name, f"its header of {length} bytes does not fit into {size} bytes")
    try:
        header = json.loads(file.read(length))
        header.pop("__metadata__", None)
        entries = {key: _entry(value) for key, value in header.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise _bad_file(name, f"its header cannot be read ({error})") from error
    data_bytes = size - 8 - length
    for key, entry in entries.items():
        if entry.begin_bytes + entry.size_bytes > data_bytes:
            raise _bad_file(name, f"tensor {key!r} ends beyond its {data_bytes} bytes of data")
    return 8 + length, entries


def _entry(value: Any) -> Weight:
    begin, end = value["data_offsets"]
    shape = tuple(value["shape"])
    width = _TYPES[value["dtype"]][0]
    if not all(isinstance(n, int) and n >= 0 for n in (*shape, begin, end)):
        raise ValueError(f"sizes {shape}, {begin} to {end}")
    if end - begin != width * math.prod(shape) or begin % width:
        raise ValueError(f"shape {list(shape)} of {value['dtype']} at {begin} to {end}")
    return Weight(value["dtype"], shape, begin, end - begin)


def _bad_file(name: str, why: str) -> ClientError:
    return make_error(f"{name} is no safetensors file: {why}: save it again", ExitCode.USAGE)


# ---- where programs of a user meet ----


def _folder() -> Path:
    """A directory that only this user can enter. Raises ClientError."""
    runtime = os.environ.get("XDG_RUNTIME_DIR")
    path = Path(runtime, "vgpu-weights") if runtime else Path(tempfile.gettempdir(), f"vgpu-weights-{os.getuid()}")
    with contextlib.suppress(FileExistsError):
        path.mkdir(mode=0o700)
    status = path.lstat()
    if not stat.S_ISDIR(status.st_mode) or status.st_uid != os.getuid() or status.st_mode & 0o077:
        raise make_error(f"{path} is not a directory of this user alone: remove it", ExitCode.DENIED)
    return path


def _key(file: BinaryIO, path: Path, device_uuid: bytes) -> str:
    """Another one when the file is replaced or written."""
    status = os.fstat(file.fileno())
    facts = (str(path.resolve()), status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, device_uuid.hex())
    return hashlib.sha256(repr(facts).encode()).hexdigest()[:24]


@contextlib.contextmanager
def _lock(path: Path) -> Iterator[None]:
    """One program at a time: while one loads the file, others wait for it."""
    with path.open("ab") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


class _Server:
    """Gives the memory to programs of the same user, from a thread."""

    def __init__(self, path: Path, memory: SharedMemory) -> None:
        self._memory, self._path = memory, path
        path.unlink(missing_ok=True)
        self._listener = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._listener.bind(str(path))
        self._inode = path.lstat().st_ino  # no other's as long as the listener is open
        self._listener.listen(64)
        self._end = threading.Event()
        threading.Thread(target=self._serve, name="vgpud weights", daemon=True).start()

    def _serve(self) -> None:
        while not self._end.is_set():
            try:
                peer, _ = self._listener.accept()
            except OSError:
                self._end.wait(_AGAIN_S)
                continue
            with peer, contextlib.suppress(OSError, ClientError):
                peer.settimeout(_ANSWER_S)
                self._answer(peer)

    def _answer(self, peer: socket.socket) -> None:
        raw = peer.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
        if _CREDENTIALS.unpack(raw)[1] != os.getuid():
            return
        fd = self._memory.export()
        try:
            socket.send_fds(peer, [_SIZE.pack(self._memory.size_bytes)], [fd])
        finally:
            os.close(fd)

    def close(self) -> None:
        self._end.set()
        with contextlib.suppress(FileNotFoundError):
            if self._path.lstat().st_ino == self._inode:  # not where another maker listens by now
                self._path.unlink()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()


def _receive(path: Path) -> tuple[int, int] | None:
    """(descriptor, size) of memory that another program has; None: none has it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock, contextlib.suppress(OSError):
        sock.settimeout(_ANSWER_S)
        sock.connect(str(path))
        data, fds, _, _ = socket.recv_fds(sock, _SIZE.size, 1)
        if len(data) == _SIZE.size and fds:
            return fds[0], _SIZE.unpack(data)[0]
    return None


# ---- loading ----


def load_weights(path: str | os.PathLike[str], device: int = 0) -> SharedWeights:
    """The tensors of a safetensors file on a device, loaded once for all programs of this user. Raises ClientError."""
    whole = Path(path)
    try:
        with whole.open("rb") as file:
            begin_bytes, entries = read_header(file, str(path))
            driver = Driver(device)
            meeting = _folder() / _key(file, whole, driver.uuid())
            with _lock(meeting.with_suffix(".lock")):
                memory, server = _share(driver, file, begin_bytes, meeting.with_suffix(".sock"))
    except OSError as error:
        raise make_error(f"{path} cannot be loaded: {error.strerror or error}", ExitCode.NOT_FOUND) from error
    return SharedWeights(driver, memory, entries, server)


def _share(driver: Driver, file: BinaryIO, begin_bytes: int, sock: Path) -> tuple[SharedMemory, _Server | None]:
    size_bytes = os.fstat(file.fileno()).st_size - begin_bytes
    if offer := _receive(sock):
        fd, offer_bytes = offer
        try:
            if offer_bytes >= size_bytes:
                return import_memory(driver, fd, offer_bytes), None
        finally:
            os.close(fd)
    memory = make_memory(driver, size_bytes)
    try:
        _fill(memory, file, begin_bytes, size_bytes)
        memory.seal()
        return memory, _Server(sock, memory)
    except BaseException:
        memory.close()
        raise


def _fill(memory: SharedMemory, file: BinaryIO, begin_bytes: int, size_bytes: int) -> None:
    buffer = bytearray(min(_COPY_BYTES, max(1, size_bytes)))
    file.seek(begin_bytes)
    offset = 0
    while offset < size_bytes:
        count = file.readinto(memoryview(buffer)[: size_bytes - offset])  # type: ignore[attr-defined]
        if not count:
            raise make_error("the file was cut while it was read: load it again", ExitCode.CONFLICT)
        memory.write(offset, memoryview(buffer)[:count])
        offset += count


__all__ = ["SharedWeights", "Weight", "load_weights"]
