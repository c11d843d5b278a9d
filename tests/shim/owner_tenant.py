"""Makes memory and sends its descriptor to a child, which becomes the user UID and imports it: `owner_tenant.py UID`.

The child says what its import returned, and what that of memory returned which it has made itself.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys

from ledger_tenant import DEVICE_LOCATION, MIB, AllocationProp, Cuda, Location, u64

DESCRIPTOR = 1


def export(cuda: Cuda) -> int:
    prop = AllocationProp(type=1, handle_types=DESCRIPTOR, location=Location(DEVICE_LOCATION, 0))
    assert cuda.make("cuMemCreate", ctypes.c_size_t(4 * MIB), ctypes.byref(prop), u64(0)) == 0
    fd = ctypes.c_int(-1)
    handle = u64(cuda.output.value)
    assert cuda.call("cuMemExportToShareableHandle", ctypes.byref(fd), handle, DESCRIPTOR, u64(0)) == 0
    return fd.value


def take(cuda: Cuda, fd: int) -> int:
    return cuda.make("cuMemImportFromShareableHandle", ctypes.c_void_p(fd), DESCRIPTOR)


def main() -> None:
    ready_read, ready_write = os.pipe()
    sent_read, sent_write = os.pipe()
    maker = os.fork()
    if maker == 0:
        cuda = Cuda()
        assert cuda.start() == 0
        fd = export(cuda)
        os.write(sent_write, b"%d " % fd)
        os.read(ready_read, 1)
        os._exit(0)
    fd = int(os.read(sent_read, 16))
    pidfd = os.pidfd_open(maker)
    received = ctypes.CDLL(None).syscall(438, pidfd, fd, 0)  # pidfd_getfd: the same open file
    assert received >= 0
    os.setuid(int(sys.argv[1]))
    cuda = Cuda()
    assert cuda.start() == 0
    answer = {"import": take(cuda, received), "again": take(cuda, export(cuda))}
    os.write(ready_write, b"x")
    os.waitpid(maker, 0)
    print(json.dumps(answer))


if __name__ == "__main__":
    main()
