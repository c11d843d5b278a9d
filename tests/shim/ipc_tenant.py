"""A tenant that opens memory of another process, for test_ipc.py: orders on stdin, an answer as JSON for each."""

from __future__ import annotations

import ctypes
import json
import os
import sys

from ledger_tenant import MIB, Cuda, u64

LAZY_PEER_ACCESS = 1


class Handle(ctypes.Structure):
    _fields_ = [("reserved", ctypes.c_ubyte * 64)]


def main() -> None:
    """`a MIB` allocates, `g` says the last one's handle, `o HANDLE` opens, `c` closes the last one, `i` says what is
    used of the slice."""
    cuda = Cuda()
    assert cuda.start() == 0
    held: list[int] = []
    print(json.dumps(os.getpid()), flush=True)
    for line in sys.stdin:
        word, *rest = line.split()
        answer: object = None
        handle = Handle.from_buffer_copy(bytes.fromhex(rest[0])) if word == "o" else Handle()
        if word == "a":
            answer = cuda.alloc(int(rest[0]) * MIB)
        elif word == "g":
            assert cuda.call("cuIpcGetMemHandle", ctypes.byref(handle), u64(held[-1])) == 0
            answer = bytes(handle).hex()
        elif word == "o":
            answer = cuda.make("cuIpcOpenMemHandle_v2", handle, LAZY_PEER_ACCESS)
        elif word == "c":
            answer = cuda.call("cuIpcCloseMemHandle", u64(held.pop()))
        elif word == "i":
            answer = cuda.charged_bytes()
        if word in "ao" and answer == 0:
            held.append(cuda.output.value)
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
