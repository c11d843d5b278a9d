"""The container tests' and benchmarks' base image: Debian made by debootstrap, as a tar that `docker import` takes.

Made once per machine and kept in the user's cache directory, so that nothing is fetched when it is there. It holds
glibc and a shell, and no compiler: programs for it are compiled outside and mounted or copied in.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from pathlib import Path

#: raise it when the recipe changes, so that an older image in the cache is not used
RECIPE = 1
SUITE = "bookworm"
#: what no test needs, a third of the image
LEFT_OUT = (
    "./dev/*",
    "./proc/*",
    "./sys/*",
    "./usr/share/doc/*",
    "./usr/share/locale/*",
    "./usr/share/man/*",
    "./var/cache/apt/*",
    "./var/lib/apt/lists/*",
)
MAKE_TIMEOUT_S = 280


class ImageError(RuntimeError):
    """The base image cannot be made here; one line that says why."""


def cache_folder() -> Path:
    """$XDG_CACHE_HOME/vgpud-tests or ~/.cache/vgpud-tests, made when it is missing."""
    base = os.environ.get("XDG_CACHE_HOME", "")
    folder = (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "vgpud-tests"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def base_tar(suite: str = SUITE, mirror: str = "", include: Sequence[str] = ()) -> Path:
    """The root file system of a minimal Debian as a tar, from the cache or made now (half a minute, as root).

    mirror: where packages come from; "": usual_mirror(). include: packages to add.
    Raises ImageError.
    """
    path = cache_folder() / "-".join([suite, *include, platform.machine(), f"{RECIPE}.tar"])
    with _lock_file(path.with_suffix(".lock")):  # two test runs at once make it once
        if not path.exists():
            _make(path, suite, mirror or usual_mirror(), include)
    return path


def usual_mirror() -> str:
    """$DEBIAN_MIRROR, else where this machine's own packages come from; "" (not Debian): debootstrap's own choice.

    A machine that has a mirror of its own often reaches no other.
    """
    named = os.environ.get("DEBIAN_MIRROR", "")
    if named or shutil.which("apt-get") is None:
        return named
    wanted = ["Created-By: Packages", "Origin: Debian", "Label: Debian"]
    command = ["apt-get", "indextargets", "--format", "$(REPO_URI)", *wanted]
    done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    return next(iter(done.stdout.split()), "")


@contextlib.contextmanager
def _lock_file(path: Path) -> Iterator[None]:
    with path.open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def _make(path: Path, suite: str, mirror: str, include: Sequence[str]) -> None:
    if shutil.which("debootstrap") is None:
        raise ImageError("debootstrap is missing: apt-get install debootstrap")
    with tempfile.TemporaryDirectory(prefix="vgpu-base-") as name:
        root, part = Path(name) / "root", path.with_suffix(".part")
        added = [f"--include={','.join(include)}"] if include else []
        _call(["debootstrap", "--variant=minbase", *added, suite, str(root), *filter(None, [mirror])])
        excluded = [f"--exclude={pattern}" for pattern in LEFT_OUT]
        _call(["tar", "-C", str(root), "--one-file-system", *excluded, "-cf", str(part), "."])
        part.rename(path)


def _call(command: list[str]) -> None:
    try:
        done = subprocess.run(
            command,
            env={**os.environ, "LC_ALL": "C"},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=MAKE_TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise ImageError(f"{command[0]} took more than {MAKE_TIMEOUT_S} s: is the package mirror reachable?") from None
    if done.returncode:
        said = [line for line in done.stdout.splitlines() if line.strip()] or ["it said nothing"]
        raise ImageError(f"{command[0]} ended with {done.returncode}: {said[-1]}")
