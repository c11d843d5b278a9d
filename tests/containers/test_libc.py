"""Containers with another C library than ours: an older glibc is served, programs of musl are not harmed."""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
from pathlib import Path

import pytest

from benchmarks import engine
from benchmarks.base_image import ImageError, base_tar

from .conftest import unavailable
from .helpers import GIB, HALF, at
from .test_bypass import LIBRARIES, ROOT, TOO_MUCH, compile_way, is_held, read_answer

OLD = "vgpu-test/old"  # glibc 2.31
MUSL_LOADER = Path("/lib/ld-musl-x86_64.so.1")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(platform.machine() != "x86_64", reason="its programs are made for x86_64 only"),
]


@pytest.fixture(scope="module")
def old_image(plain_docker: engine.Docker) -> str:
    """Debian 11: two glibcs before the one in which threads and the loader's functions moved into libc.so."""
    try:
        return plain_docker.import_base(base_tar("bullseye"), OLD)
    except ImageError as error:
        unavailable(str(error))


@pytest.fixture(scope="module")
def old_programs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """way.c without a symbol of a newer glibc, and libvgpu.so as a plain compiler would make it."""
    folder = tmp_path_factory.mktemp("old")
    header = Path(__file__).with_name("programs") / "old_start.h"
    compile_way(folder, "-nostartfiles", "-iquote", ROOT / "shim", "-include", header)
    (folder / "plain.c").write_text("#include <dlfcn.h>\nvoid *vg_test(void) { return dlsym(RTLD_NEXT, __func__); }\n")
    flags = ["-D_GNU_SOURCE", "-shared", "-fPIC", "-Wl,-z,now"]
    subprocess.run(["gcc", *flags, "-o", folder / "plain.so", folder / "plain.c", "-ldl"], check=True)
    return folder


@pytest.mark.parametrize("way", [("open", "libcuda.so.1"), ("deepbind", "libcuda.so.1"), ("namespace", "libcuda.so.1")])
def test_an_old_glibc_is_held(docker: engine.Docker, old_image: str, old_programs: Path, way: tuple[str, str]) -> None:
    is_held(read_answer(docker.run(*HALF, *at(old_programs), old_image, "/programs/way", *way, TOO_MUCH)))


def test_two_copies_on_an_old_glibc(docker: engine.Docker, old_image: str, old_programs: Path) -> None:
    """A failed look-up in a second namespace would end the process there: none is made."""
    options = ("-e", "VGPU=1", "-e", "VGPU_MEM=1792m", *at(old_programs), old_image)
    both = read_answer(docker.run(*options, "/programs/way", "both", "libcuda.so.1", str(GIB)))
    assert [found["alloc"] for found in both] == [0, 2, 0]


def test_every_program_of_an_old_image_runs(docker: engine.Docker, old_image: str) -> None:
    script = "ls / | wc -l; perl -e 'print 6*7'; su root -c 'echo; cat /etc/debian_version'"
    plain = docker.run(old_image, "sh", "-c", script, runtime="runc")
    for environment in ((), ("-e", "LD_BIND_NOW=1")):
        hooked = docker.run(*HALF, *environment, old_image, "sh", "-c", script)
        lines, expected = hooked.stdout.splitlines(), plain.stdout.splitlines()
        assert (hooked.returncode, lines[1:], hooked.stderr) == (0, expected[1:], ""), plain.stderr


def test_a_plainly_built_library_would_have_ended_them(
    docker: engine.Docker, old_image: str, old_programs: Path
) -> None:
    """That the two tests before could have failed: this is what the floor of 2.17 is for."""
    words = (*at(old_programs), "-e", "LD_PRELOAD=/programs/plain.so", old_image, "true")
    done = docker.run(*words, runtime="runc")
    if done.returncode == 0:
        pytest.skip("this machine's own glibc is older than the one in which the functions moved")
    assert done.returncode == 1 and "version `GLIBC_2.34' not found" in done.stderr


# ---- musl ----


@pytest.fixture(scope="module")
def musl_image(plain_docker: engine.Docker, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A glibc image that holds a program of musl and its loader, as tools that are shipped in one file often do."""
    if shutil.which("musl-gcc") is None or not MUSL_LOADER.exists():
        pytest.skip("no musl-gcc here: install musl-tools")
    program = tmp_path_factory.mktemp("musl") / "by_musl"
    source = Path(__file__).with_name("programs") / "by_musl.c"
    subprocess.run(["musl-gcc", "-O1", "-Wall", "-Wextra", "-Werror", "-o", program, source], check=True)
    lines = f"FROM {engine.BASE}\nCOPY loader {MUSL_LOADER}\nCOPY by_musl /by_musl\n"
    return plain_docker.build("vgpu-test/musl", lines, {"loader": MUSL_LOADER.resolve(), "by_musl": program})


@pytest.mark.parametrize("file", ["libcuda.so.1", f"{LIBRARIES}/libcuda.so.1", "/usr/lib/vgpu/real/libcuda.so.1"])
def test_a_musl_program_gets_an_error_and_no_device(docker: engine.Docker, musl_image: str, file: str) -> None:
    """musl reads no /etc/ld.so.preload; a library of glibc's, the driver's or ours, does not load there."""
    done = docker.run(*HALF, musl_image, "/by_musl", file)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout.startswith("Error "), done.stdout


def test_a_musl_program_without_a_driver_runs_as_ever(docker: engine.Docker, musl_image: str) -> None:
    plain = docker.run(musl_image, "/by_musl", "libnothing.so", runtime="runc")
    hooked = docker.run(*HALF, musl_image, "/by_musl", "libnothing.so")
    assert plain.returncode == 0 and os.linesep in plain.stdout
    assert (hooked.returncode, hooked.stdout, hooked.stderr) == (0, plain.stdout, plain.stderr)
