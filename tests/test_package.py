"""What is shipped: source distribution -> wheel -> fresh environment, and what the shared libraries show to the loader.

A library that is preloaded into every program of a container must need nothing but libc, export the driver's names and
nothing else, and run no code of its own at load time.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
LIB = ROOT / "vgpud" / "lib"
LIBRARIES = ("libvgpu.so", "libvgpu-ml.so", "sim/libcuda.so.1", "sim/libnvidia-ml.so.1")
PRELOADED = ("libvgpu.so", "libvgpu-ml.so")
#: tests/shim/test_library.py says the same, and more, of libvgpu.so
OTHERS = LIBRARIES[1:]
NEEDED_ALLOWED = {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
#: besides the driver's own names
EXPORTED_EXTRA = {
    "libvgpu-ml.so": {"vg_shim_marker"},
    "sim/libcuda.so.1": set(),
    "sim/libnvidia-ml.so.1": set(),
}
#: entries without a name yet: fitting gives them the names that only the driver at hand has
SPARE_PREFIX = "vg_spare_"


def run(*command: str | Path, env: dict[str, str] | None = None, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(c) for c in command],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**os.environ, **(env or {})},
        stdin=subprocess.DEVNULL,
    )
    assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout}\n{done.stderr}"
    return done.stdout


# ---- the wheel ----


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built from the source distribution alone, so what MANIFEST.in forgets is missed here."""
    work = tmp_path_factory.mktemp("package")
    listed = run("git", "ls-files", "--cached", "--others", "--exclude-standard", cwd=ROOT).splitlines()
    for name in listed:
        if (ROOT / name).is_file():
            (work / "tree" / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(ROOT / name, work / "tree" / name)
    sdist = f"from setuptools import build_meta; build_meta.build_sdist({str(work)!r})"
    run(sys.executable, "-c", sdist, cwd=work / "tree")
    (archive,) = work.glob("*.tar.gz")
    with tarfile.open(archive) as tar:
        assert not [n for n in tar.getnames() if n.endswith((".so", ".so.1", ".pyc"))]
    run(sys.executable, "-m", "pip", "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", work / "out", archive)
    (built,) = (work / "out").glob("*.whl")
    return built


@pytest.mark.slow
def test_one_wheel_serves_every_python(wheel: Path) -> None:
    assert re.fullmatch(r"vgpud-[\d.]+-cp310-abi3-linux_\w+\.whl", wheel.name)


@pytest.mark.slow
def test_wheel_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        mode = archive.getinfo("vgpud/lib/sim/vgpu-simd").external_attr >> 16
    wanted = {f"vgpud/lib/{n}" for n in LIBRARIES} | {
        "vgpud/_shim.abi3.so",
        "vgpud/lib/sim/kernels.model",
        "vgpud/py.typed",
        "vgpud/v1/vgpud_pb2.py",
    }
    assert wanted <= names
    assert mode & 0o111, "vgpu-simd cannot be executed"
    top = {n.split("/")[0] for n in names}
    assert top == {"vgpud", next(t for t in top if t.endswith(".dist-info"))}
    assert not [n for n in names if n.endswith((".c", ".h", ".o", ".pyc"))]


@pytest.mark.slow
def test_wheel_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    run(sys.executable, "-m", "venv", venv)
    python = venv / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--disable-pip-version-check", wheel)
    # The dependencies come from this environment: a plain line of a .pth file adds the folder and nothing of its own.
    site = next((venv / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    values = "vgpud.__file__, s.lib.VG_ABI_VERSION, s.ffi.sizeof('struct vg_attach_reply')"
    program = f"import vgpud, vgpud._shim as s; print({values})"
    where, version, size = run(python, "-c", program, cwd=tmp_path).split()
    assert where.startswith(str(site))
    assert (int(version), int(size) > 0) == (1, True)
    assert wheel.name.split("-")[1] in run(venv / "bin" / "vgpud", "version", cwd=tmp_path)
    assert "Exit codes" in run(venv / "bin" / "vgpu", "--help", cwd=tmp_path)


@pytest.mark.slow
def test_shim_builds_without_python_headers(tmp_path: Path) -> None:
    """shim/pyabi/Python.h declares all that cffi's module uses, and the module loads into this interpreter."""
    path = "import sys; sys.path.insert(0, 'shim'); import build_shim as b; "
    run(sys.executable, "-c", f"{path} b.ffibuilder.emit_c_code('{tmp_path}/_shim.c')", cwd=ROOT)
    sources = run(sys.executable, "-c", f"{path} print(*b.ARBITER_SOURCES)", cwd=ROOT).split()
    headers = ["-Ishim", "-Ishim/pyabi", "-DPy_LIMITED_API"]
    flags = ["-shared", "-fPIC", "-std=gnu11", "-Wall", "-Wextra", "-pthread", "-fvisibility=hidden"]
    run("gcc", *flags, *headers, "-o", tmp_path / "_shim.abi3.so", tmp_path / "_shim.c", *sources, cwd=ROOT)
    program = (
        "import importlib.util, sys\n"
        f"spec = importlib.util.spec_from_file_location('vgpud._shim', '{tmp_path}/_shim.abi3.so')\n"
        "m = importlib.util.module_from_spec(spec)\n"
        "p = m.ffi.new('struct vg_arbiter_params *', {'quantum_ns': 5000000, 'memory_total_bytes': 1 << 30})\n"
        "a = m.lib.vg_arbiter_new(p)\n"
        "s = m.ffi.new('struct vg_slice_stats *')\n"
        "print(m.lib.vg_arbiter_slice_stats(a, 7, s))\n"
        "m.lib.vg_arbiter_free(a)\n"
    )
    assert int(run(sys.executable, "-c", program)) < 0, "a slice that nobody made has no counters"


# ---- what the loader sees ----


def dynamic(name: str) -> str:
    return run("readelf", "-d", "-W", LIB / name)


def exported(name: str) -> set[str]:
    lines = run("nm", "-D", "--defined-only", "-P", LIB / name).splitlines()
    return {line.split()[0].split("@")[0] for line in lines}


@pytest.mark.parametrize("name", OTHERS)
def test_needs_libc_only(name: str) -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic(name)))
    needed = {n for n in needed if not n.startswith("ld-linux")}  # the loader itself: it keeps the thread-local storage
    assert needed <= NEEDED_ALLOWED | ({"libm.so.6"} if name.startswith("sim/") else set())
    assert not re.search(r"\((RPATH|RUNPATH)\)", dynamic(name))


@pytest.mark.parametrize("name", OTHERS)
def test_exports_the_drivers_names_only(name: str) -> None:
    names = exported(name)
    prefix = "nvml" if "ml" in Path(name).name else "cu"
    strangers = {n for n in names if not re.match(rf"{prefix}[A-Z]", n)} - EXPORTED_EXTRA[name]
    unknown = {n for n in strangers if not n.startswith(SPARE_PREFIX)}
    assert not unknown, f"{name} shows {sorted(unknown)}"
    assert len(names) > 50


@pytest.mark.parametrize("name", OTHERS)
def test_hardened_and_named_as_the_driver(name: str) -> None:
    table = dynamic(name)
    soname = "libnvidia-ml.so.1" if "ml" in Path(name).name else "libcuda.so.1"
    assert f"[{soname}]" in table
    assert "NODELETE" in table
    assert "NOW" in table
    assert "GNU_RELRO" in run("readelf", "-l", "-W", LIB / name)
    assert "GNU_STACK" in run("readelf", "-l", "-W", LIB / name)
    assert not re.search(r"GNU_STACK.*RWE", run("readelf", "-l", "-W", LIB / name))


@pytest.mark.parametrize("name", OTHERS)
def test_no_constructors(name: str) -> None:
    """The one entry that every gcc library has (frame_dummy) is 8 bytes; more would be code of ours at load time."""
    sizes = re.findall(r"\(INIT_ARRAYSZ\)\s+(\d+)", dynamic(name))
    assert sizes in ([], ["8"])


@pytest.mark.parametrize("bind_now", ["", "1"])
def test_preloading_both_changes_nothing(bind_now: str) -> None:
    def result(preload: str) -> tuple[int, str, str]:
        env = {"PATH": os.environ["PATH"], "LD_PRELOAD": preload}
        if bind_now:
            env["LD_BIND_NOW"] = "1"
        command = [sys.executable, "-c", "import ssl, sqlite3; print(6 * 7); raise SystemExit(3)"]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    assert result(":".join(str(LIB / n) for n in PRELOADED)) == result("")
