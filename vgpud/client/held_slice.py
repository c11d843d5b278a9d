"""Keeps an ephemeral slice alive while a command runs: a connection to its attach socket that says HOLD.

Without it the slice would end between two programs of one command (`sh -c "prepare; train"`). The connection ends with
this process, however that dies; the slice then ends with its last program. After a restart of the daemon it is
established again. The messages are those of shim/abi/vg_abi.h, packed by hand: the command line loads no native code.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading

from vgpud.client.failures import make_error
from vgpud.errors import CliError, ExitCode

ABI_VERSION = 4
#: of the messages here, VG_ABI_VERSION_OLDEST: a daemon that was not restarted since an upgrade takes them
_HOLD_VERSION = 3
_MAGIC = 0x55504756
_HOLD = 3  # VG_ATTACH_HOLD
_OK = 0  # VG_ATTACH_OK
_FULL, _NO_SLICE = 4, 5  # VG_ATTACH_FULL, VG_ATTACH_NO_SLICE
_NAME_BYTES = 64
_TEXT_BYTES = 256
_DEVICES = 16
#: struct vg_attach_request: magic, abi_version, bytes, resume, library_copy, device_count, program, devices[]
_REQUEST = struct.Struct(f"=6I{_NAME_BYTES}s{_DEVICES * 24}x")
#: struct vg_attach_reply up to its devices[]: magic, abi_version, bytes, status, mode, device_count, process_id,
#: slice, node, text
_REPLY = struct.Struct(f"=6IQ{_NAME_BYTES}s{_NAME_BYTES}s{_TEXT_BYTES}s")
_REPLY_BYTES_MAX = 4096
_ANSWER_S = 5.0
_AGAIN_S = 0.5
#: what it is for: the daemon gives `vgpu run` a cgroup for its program, and leaves other programs where they are
RUN = "vgpu run"
_CLIENT = "vgpud.client"


def request(program: str = _CLIENT) -> bytes:
    """The message that asks to hold the slice."""
    return _REQUEST.pack(_MAGIC, _HOLD_VERSION, _REQUEST.size, _HOLD, 0, 0, program.encode())


def connect(path: str, program: str = _CLIENT) -> socket.socket:
    """A connection that holds the slice for a program of this name. Raises OSError, or CliError with the daemon's
    reason."""
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        sock.settimeout(_ANSWER_S)
        sock.connect(path)
        sock.send(request(program))
        reply = sock.recv(_REPLY_BYTES_MAX)
        if len(reply) < _REPLY.size:
            raise ConnectionResetError(f"the daemon's answer has {len(reply)} bytes")
        fields = _REPLY.unpack_from(reply)
        if fields[3] != _OK:
            reason = fields[9].split(b"\0", 1)[0].decode("utf-8", "replace")
            codes = {_FULL: ExitCode.NO_CAPACITY, _NO_SLICE: ExitCode.NOT_FOUND}
            raise CliError(reason, codes.get(fields[3], ExitCode.DENIED))
        sock.settimeout(None)
    except BaseException:
        sock.close()
        raise
    return sock


def check_own_slice(is_remote: bool, has_token: bool) -> None:
    """Raises ClientError where this process could not hold the slice that the daemon would make for it."""
    if is_remote:
        text = "a slice for a while needs a daemon of this machine: create_slice() makes one that stays"
        raise make_error(text, ExitCode.USAGE)
    if has_token:
        text = "a slice for a while is for this program's user: use a client without a token, or create_slice()"
        raise make_error(text, ExitCode.USAGE)


class Holder:
    """The connection and the thread that re-establishes it; use it in a `with`.

    Raises CliError if the slice cannot be held at first; later losses are repaired.
    """

    def __init__(self, path: str, program: str = _CLIENT) -> None:
        self._path = path
        self._program = program
        self._end = threading.Event()
        try:
            self._sock = connect(path, program)
        except OSError as error:
            reason = error.strerror or str(error)
            raise CliError(f"cannot use the slice's socket {path}: {reason}: see `vgpu doctor`") from error
        self._keeper = threading.Thread(target=self._keep, daemon=True)
        self._keeper.start()

    def __enter__(self) -> Holder:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Holds the slice no longer."""
        self._end.set()
        with contextlib.suppress(OSError):  # not connected: the daemon has gone
            self._sock.shutdown(socket.SHUT_RDWR)
        self._keeper.join()

    def _keep(self) -> None:
        """Waits for the connection's end and connects again, until the slice is gone or close() was called."""
        while not self._end.is_set():
            with contextlib.suppress(OSError):  # as if the connection had ended
                self._sock.recv(_REPLY_BYTES_MAX)  # nothing is ever sent: returns at the connection's end
            self._sock.close()
            if not self._reconnect():
                return
        self._sock.close()

    def _reconnect(self) -> bool:
        """Retries until connected. False: close() was called, or the slice is gone."""
        while not self._end.wait(_AGAIN_S):
            try:
                self._sock = connect(self._path, self._program)
                return True
            except OSError:
                continue  # the daemon is not back yet
            except CliError:
                return False  # programs in the slice get the reason themselves
        return False


def hold_slice(path: str) -> Holder:
    """A holder for programs of vgpud.client. Raises ClientError."""
    try:
        return Holder(path)
    except CliError as error:
        raise make_error(str(error), ExitCode(error.exit_code)) from error
