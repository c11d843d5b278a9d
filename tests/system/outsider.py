"""What another user can read of a system: `outsider.py UID`, with {"folders", "secrets"} as JSON on its standard input.

Prints {"opened", "found"}: how many files could be opened, and [place, secret's name] for each secret that was in one,
in a name, or in what /proc says of a process. Everything is imported before it turns into that user.
"""

from __future__ import annotations

import json
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

BYTES_MAX = 64 << 20
#: of each process: what it was started with, and what it has open
OF_A_PROCESS = ("environ", "cmdline")


def files_below(folder: str) -> Iterator[str]:
    """Regular files, in folders that can be listed; links are not followed."""
    for place, _folders, names in os.walk(folder):
        for name in names:
            path = f"{place}/{name}"
            if stat.S_ISREG(os.lstat(path).st_mode):
                yield path


def files_of_processes() -> Iterator[str]:
    """Of all processes but this one."""
    for pid in filter(str.isdigit, os.listdir("/proc")):
        if int(pid) == os.getpid():
            continue
        yield from (f"/proc/{pid}/{name}" for name in OF_A_PROCESS)
        try:
            yield from (f"/proc/{pid}/fd/{fd}" for fd in os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue


def content(path: str) -> bytes | None:
    """None when it cannot be opened, or has gone."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except OSError:
        return None
    with open(fd, "rb") as file:
        try:
            return file.read(BYTES_MAX) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
        except OSError:
            return b""


def main() -> None:
    asked = json.load(sys.stdin)
    uid = int(sys.argv[1])
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)
    opened, found = 0, []
    paths = [path for folder in asked["folders"] for path in files_below(folder)]
    for path in [*paths, *files_of_processes()]:
        raw = content(path)
        opened += raw is not None
        for name, secret in asked["secrets"].items():
            if secret.encode() in (raw or b"") or secret in path:
                found.append([path, name])
    print(json.dumps({"opened": opened, "found": found}))


def look(uid: int, folders: list[Path], secrets: dict[str, str]) -> tuple[int, list[list[str]]]:
    """The same from a test's side: how many files this user opened, and what was found."""
    asked = json.dumps({"folders": list(map(str, folders)), "secrets": secrets})
    command = [sys.executable, "-I", __file__, str(uid)]
    done = subprocess.run(command, input=asked, capture_output=True, text=True, timeout=60, check=True)
    answer = json.loads(done.stdout)
    return answer["opened"], answer["found"]


if __name__ == "__main__":
    main()
