"""`make wheel`: the wheel that is published, for every distribution with glibc 2.17 or newer (manylinux2014).

`tools/build_wheel.py [--machine aarch64] [--out DIRECTORY]`: a source distribution of what git knows, a wheel of
nothing but that, and auditwheel's answer whether it is what its name says. Nothing is repaired: that renames and edits
libraries, which the loader must find under the driver's names, and there is nothing to add to them, since they need
the C library alone. Another machine's wheel takes a cross compiler (Debian's gcc-aarch64-linux-gnu).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MACHINES = ("x86_64", "aarch64")
#: PEP 599; auditwheel's name of the same is manylinux_2_17
PLATFORM = "manylinux2014"
GLIBC = "manylinux_2_17"


class WheelError(Exception):
    """No wheel was made: one line that says why, and what to do."""


def _build(cwd: Path, call: str, **env: str) -> str:
    """Runs a call of setuptools' build backend, which works on the current directory; returns the name of what it has
    made. Raises WheelError."""
    command = [sys.executable, "-c", f"from setuptools import build_meta; print(build_meta.{call})"]
    done = subprocess.run(command, cwd=cwd, env=os.environ | env, capture_output=True, text=True, check=False)
    if done.returncode:
        raise WheelError(f"the build failed:\n{done.stdout[-4000:]}\n{done.stderr[-4000:]}")
    return done.stdout.splitlines()[-1]


def known_files() -> list[str]:
    """The files of a clone: those of the last commit and new ones that git does not ignore."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True).stdout.splitlines()
    return [name for name in listed if (ROOT / name).is_file()]


def source_distribution(work: Path) -> Path:
    """vgpud-VERSION.tar.gz in `work`."""
    for name in known_files():
        (work / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(ROOT / name, work / "tree" / name)
    return work / _build(work / "tree", f"build_sdist({str(work)!r})")


def compiler(machine: str) -> str:
    """$CC, else gcc or the cross compiler. Raises WheelError."""
    command = os.environ.get("CC") or ("gcc" if machine == os.uname().machine else f"{machine}-linux-gnu-gcc")
    if shutil.which(command.split()[0]) is None:
        package = f"gcc-{machine.replace('_', '-')}-linux-gnu"
        raise WheelError(f"there is no {command} for {machine}: apt-get install {package}, or name one in CC")
    return command


def build(archive: Path, machine: str, output_folder: Path) -> Path:
    """The wheel of a source distribution. Objects are taken from the clone where they are of the same sources."""
    command = compiler(machine)
    with tempfile.TemporaryDirectory(prefix="vgpud-wheel-") as work:
        subprocess.run(["tar", "-xf", archive, "-C", work], check=True)
        (tree,) = Path(work).iterdir()
        options = {"--build-option": ["--plat-name", f"{PLATFORM}_{machine}"]}
        env = {"CC": command, "LDSHARED": f"{command} -shared", "VGPU_OBJECTS": str(ROOT / "build" / "objects")}
        output_folder.mkdir(parents=True, exist_ok=True)
        return output_folder / _build(tree, f"build_wheel({str(output_folder.resolve())!r}, {options!r})", **env)


def check(wheel: Path, machine: str) -> None:
    """Raises WheelError unless auditwheel finds that it runs on glibc 2.17 and needs no library beside it."""
    command = [sys.executable, "-m", "auditwheel", "show", "--json", str(wheel)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    try:
        found = json.loads(done.stdout)
    except json.JSONDecodeError as error:
        raise WheelError(f"auditwheel cannot read {wheel}: {done.stderr or done.stdout}") from error
    if found["overall_tag"] != f"{GLIBC}_{machine}" or found["external_libs"]:
        raise WheelError(f"{wheel.name} is no {PLATFORM} wheel, auditwheel says: {done.stdout}")


def main() -> int:
    """0: a wheel was made, whose name is printed."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--machine", choices=MACHINES, default=os.uname().machine)
    parser.add_argument("--out", type=Path, default=ROOT / "dist")
    args = parser.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="vgpud-sdist-") as work:
            wheel = build(source_distribution(Path(work)), args.machine, args.out)
        check(wheel, args.machine)
    except WheelError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{wheel} ({PLATFORM}: checked by auditwheel)")
    return 0


if __name__ == "__main__":
    sys.exit(main())
