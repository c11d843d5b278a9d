"""What is shipped: source distribution -> wheel -> fresh environment, and what the shared libraries show to the loader.

A library that is preloaded into every program of a container must need nothing but libc, export the driver's names and
nothing else, and run no code of its own at load time.
"""

from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.examples import is_nightly
from tests.published import build_packages
from vgpud.cli.demo.private_system import PartError, wait_for
from vgpud.libraries import elf

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "tools"), str(ROOT / "shim")]
import build_shim  # noqa: E402
import build_wheel as wheels  # noqa: E402

LIB = ROOT / "vgpud" / "lib"
#: CUDA's, of the simulated device: preloaded into every program there
CUDA_LIBRARIES = tuple(name for name in build_shim.targets() if name.startswith(f"{build_shim.SIMCUDA}/"))
LIBRARIES = ("libvgpu.so", "libvgpu-ml.so", "sim/libcuda.so.1", "sim/libnvidia-ml.so.1", *CUDA_LIBRARIES)
PRELOADED = ("libvgpu.so", "libvgpu-ml.so", *CUDA_LIBRARIES)
#: tests/shim/test_library.py says the same, and more, of libvgpu.so
OTHERS = LIBRARIES[1:4]
NEEDED_ALLOWED = {"libc.so.6", "libdl.so.2", "libpthread.so.0"}
#: also loaded on old systems: a wheel is for every distribution
SHARED = (*LIBRARIES, "../_shim.abi3.so")
#: of 2012 (CentOS 7): a preloaded library with a version that a container's glibc lacks kills every process in it
GLIBC_MAX = (2, 17)
DT_VERNEED, DT_VERNEEDNUM = 0x6FFFFFFE, 0x6FFFFFFF
#: what works on the repository, and what was measured with it
NOT_IN_SDIST = (".ci/", ".git", ".pre-commit", "benchmarks/results/")
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


def fresh_environment(venv: Path) -> Path:
    """A new environment in which pip finds the dependencies that are installed here, as from an index, but no vgpud.
    Returns its site-packages."""
    run(sys.executable, "-m", "venv", venv)
    folder = venv / "dependencies"
    folder.mkdir()
    for place in dict.fromkeys(path for path in sys.path if path.endswith("site-packages")):
        for entry in Path(place).iterdir():
            if "vgpud" not in entry.name and entry.suffix != ".pth" and not (folder / entry.name).exists():
                (folder / entry.name).symlink_to(entry)
    site = next((venv / "lib").glob("python*/site-packages"))
    (site / "dependencies.pth").write_text(f"{folder}\n")
    return site


@pytest.fixture(scope="session")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """As `make wheel` builds it: from the source distribution alone, so what MANIFEST.in forgets is missed here."""
    archive, built = build_packages(tmp_path_factory)
    with tarfile.open(archive) as tar:
        inside = {name.partition("/")[2] for name in tar.getnames()}
    assert not [name for name in inside if name.endswith((".so", ".so.1", ".pyc"))]
    missing = {name for name in wheels.known_files() if not name.startswith(NOT_IN_SDIST)} - inside
    assert not missing, f"MANIFEST.in forgets {sorted(missing)}"
    return built


@pytest.mark.slow
def test_one_wheel_serves_every_python(wheel: Path) -> None:
    assert re.fullmatch(rf"vgpud-[\d.]+-cp310-abi3-manylinux2014_{os.uname().machine}\.whl", wheel.name)


@pytest.mark.slow
def test_the_wheel_is_what_its_name_says(wheel: Path) -> None:
    """Auditwheel's answer: no symbol newer than glibc 2.17, no library that is not in every distribution."""
    wheels.check(wheel, os.uname().machine)


@pytest.mark.slow
def test_auditwheel_sees_a_newer_symbol(wheel: Path, tmp_path: Path) -> None:
    """The check can fail: with a library that asks for memfd_create of glibc 2.27 the wheel is no manylinux2014."""
    call = "int memfd_create(const char *, unsigned); int new(void) { return memfd_create(0, 0); }"
    (tmp_path / "new.c").write_text(call)
    run("gcc", "-shared", "-fPIC", "-o", tmp_path / "new.so", tmp_path / "new.c")
    spoiled = tmp_path / wheel.name
    with zipfile.ZipFile(wheel) as good, zipfile.ZipFile(spoiled, "w") as bad:
        for name in good.namelist():
            listed = b"vgpud/lib/new.so,,\n" if name.endswith(".dist-info/RECORD") else b""
            bad.writestr(name, good.read(name) + listed)
        bad.write(tmp_path / "new.so", "vgpud/lib/new.so")
    with pytest.raises(wheels.WheelError, match="is no manylinux2014 wheel"):
        wheels.check(spoiled, os.uname().machine)


@pytest.fixture
def other_machine() -> str:
    """One that a cross compiler is here for."""
    other = next(machine for machine in wheels.MACHINES if machine != os.uname().machine)
    try:
        wheels.compiler(other)
    except wheels.WheelError as error:
        pytest.skip(str(error))
    return other


def test_all_sources_are_for_the_other_machine_too(other_machine: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What test_a_wheel_for_the_other_machine() takes six times as long for. tests/shim/ builds its libvgpu.so."""
    monkeypatch.setenv("CC", wheels.compiler(other_machine))
    sources = {name for parts, _ in build_shim.targets().values() for name in parts} | {*build_shim.daemon_sources()}
    assembler = [name for name in sources if name.endswith(".S")]
    assert assembler and all(name.endswith(f"_{other_machine}.S") for name in assembler)
    flags = [*build_shim.CFLAGS, "-fsyntax-only"]
    run(*build_shim.compiler(), *flags, *(name for name in sorted(sources) if name.endswith(".c")), cwd=ROOT)


@pytest.mark.slow
def test_a_wheel_for_the_other_machine(other_machine: str, tmp_path: Path) -> None:
    """The same command with a cross compiler. What is in it is compared with that of this machine elsewhere."""
    if not is_nightly():
        pytest.skip("compiles everything again: make test-nightly")
    other = other_machine
    done = run(sys.executable, ROOT / "tools/build_wheel.py", "--machine", other, "--out", tmp_path)
    (made,) = tmp_path.glob("*.whl")
    assert done == f"{made} (manylinux2014: checked by auditwheel)\n" and made.name.endswith(f"_{other}.whl")
    with zipfile.ZipFile(made) as archive:
        programs = [n for n in archive.namelist() if archive.read(n)[:4] == b"\x7fELF"]
        machines = {archive.read(name)[18:20] for name in programs}
    assert machines == {struct.pack("<H", elf.MACHINES[other])}
    assert {Path(name).name for name in programs} == {Path(n).name for n in (*SHARED, *build_shim.PROGRAMS)}


@pytest.mark.slow
def test_wheel_contents(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
        modes = {
            n: archive.getinfo(f"vgpud/lib/{n}").external_attr >> 16
            for n in ("sim/vgpu-simd", "vgpu-runtime", "vgpu-job")
        }
    wanted = {f"vgpud/lib/{n}" for n in LIBRARIES} | {
        "vgpud/_shim.abi3.so",
        "vgpud/console/static/LICENSES.txt",
        "vgpud/console/static/htmx.min.js",
        "vgpud/console/templates/live/overview.html",
        "vgpud/lib/sim/kernels.model",
        "vgpud/predict/mlp-a100.json",
        "vgpud/py.typed",
        "vgpud/setup/vgpu-job.socket",
        "vgpud/setup/vgpu-job@.service",
        "vgpud/setup/vgpud-console.service",
        "vgpud/setup/vgpud.service",
        "vgpud/userfiles/gavel.csv",
        "vgpud/v1alpha1/vgpud_pb2.py",
    }
    assert wanted <= names
    assert all(mode & 0o111 for mode in modes.values()), f"some cannot be executed: {modes}"
    top = {n.split("/")[0] for n in names}
    assert top == {"vgpud", next(t for t in top if t.endswith(".dist-info"))}
    assert not [n for n in names if n.endswith((".c", ".h", ".o", ".pyc"))]


@pytest.mark.slow
def test_wheel_in_a_fresh_environment(wheel: Path, tmp_path: Path) -> None:
    venv = tmp_path / "venv"
    site = fresh_environment(venv)
    python = venv / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-index", "--disable-pip-version-check", wheel)
    values = "vgpud.__file__, s.lib.VG_ABI_VERSION, s.ffi.sizeof('struct vg_attach_reply')"
    program = f"import vgpud, vgpud._shim as s; print({values})"
    alone = {"PYTHONPATH": ""}  # else these sources would be imported
    where, version, size = run(python, "-c", program, cwd=tmp_path, env=alone).split()
    assert where.startswith(str(site))
    assert (int(version), int(size) > 0) == (4, True)
    assert wheel.name.split("-")[1] in run(venv / "bin" / "vgpud", "version", cwd=tmp_path, env=alone)
    assert "Exit codes" in run(venv / "bin" / "vgpu", "--help", cwd=tmp_path, env=alone)
    shown = run(venv / "bin" / "vgpu", "docs", "limits", cwd=tmp_path, env=alone)
    assert shown == (ROOT / "docs/limits.md").read_text()


# ---- README's way from the wheel to two programs ----

#: what a shell and its commands need; no compiler, no linker, no make
TOOLS = ("bash", "sh", "wc")


def quick_start() -> list[str]:
    """The commands of README from `pip install` of the wheel to two programs that share a simulated device."""
    text = (ROOT / "README.md").read_text()
    blocks = re.findall(r"```console\n(.*?)```", text, re.DOTALL)
    (block,) = (block for block in blocks if "pip install dist/vgpud-*.whl" in block and "vgpu sim start" in block)
    return [line.partition("  #")[0].rstrip() for line in block.splitlines() if line]


def tool(name: str) -> str:
    return str(shutil.which(name))


def own_places(folder: Path) -> tuple[list[str], dict[str, str]]:
    """A prefix of a command and variables that give it directories of its own, root's system directories and ports
    too: a daemon of this machine may have the usual ones."""
    env = {f"XDG_{name}_{end}": str(folder / name.lower()) for name, end in XDG}
    for path in env.values():
        Path(path).mkdir(mode=0o700)
    if os.geteuid() != 0:
        return [], env
    mounts = " && ".join(
        f"{tool('mount')} -t tmpfs -o mode=755 own {place}" for place in ("/run", "/var/lib", "/var/cache")
    )
    begin = f'{mounts} && {sys.executable} -c "{LOOPBACK_UP}" && exec "$@"'
    return [tool("unshare"), "-m", "-n", "--propagation", "private", tool("sh"), "-c", begin, "sh"], env


#: SIOCSIFFLAGS with IFF_UP, IFF_LOOPBACK and IFF_RUNNING; `ip` need not be installed
LOOPBACK_UP = "import fcntl, socket, struct; fcntl.ioctl(socket.socket(), 0x8914, struct.pack('16sh14x', b'lo', 0x49))"


XDG = (("RUNTIME", "DIR"), ("STATE", "HOME"), ("CONFIG", "HOME"), ("CACHE", "HOME"))


@pytest.mark.slow
def test_four_commands_from_the_wheel_to_two_programs(wheel: Path, short_dir: Path) -> None:
    """As README has them, one by one in one shell that finds no compiler: the shares are those that were asked for."""
    commands = quick_start()
    assert len(commands) == 4 and commands[0].startswith("pip install dist/vgpud-*.whl")
    fresh_environment(short_dir / "v")
    (short_dir / "dist").mkdir()
    shutil.copy(wheel, short_dir / "dist")
    (short_dir / "bin").mkdir()
    for name in TOOLS:
        (short_dir / "bin" / name).symlink_to(tool(name))
    prefix, env = own_places(short_dir)
    env |= {
        "PATH": f"{short_dir}/v/bin:{short_dir}/bin",
        "HOME": str(short_dir),
        "PIP_NO_INDEX": "1",
        "LANG": "C.UTF-8",
    }
    assert not [name for name in ("gcc", "cc", "clang", "ld", "make") if shutil.which(name, path=env["PATH"])]
    log = short_dir / "log"
    with log.open("wb") as out:
        command = [*prefix, tool("bash")]
        shell = subprocess.Popen(command, cwd=short_dir, env=env, stdin=subprocess.PIPE, stdout=out, stderr=out)
    assert shell.stdin

    def enter(command: str, sign: str) -> str:
        """Types a command, waits for the sign of its success, as a person does, and returns what is on the screen."""
        assert shell.stdin
        shell.stdin.write(f"{command}\n".encode())
        shell.stdin.flush()
        try:
            wait_for(f"{sign!r} after {command}", lambda: sign in log.read_text() or shell.poll() is not None, 120)
        except PartError as error:
            raise AssertionError(f"{error}: {log.read_text()}") from error
        assert sign in log.read_text(), log.read_text()
        return log.read_text()

    try:
        for command, sign in zip(
            commands, ("Successfully installed vgpud", "SIMULATED", "serving on", ""), strict=True
        ):
            enter(command, sign)
        enter('until [ "$(vgpu ps -o name | wc -l)" = 2 ]; do :; done; echo both run', "both run\n")
        shown = enter("vgpu slice ls -o json; echo all shown", "all shown\n").partition("both run\n")[2]
        assert sorted(re.findall(r'"gpus_milli": (\d+)', shown)) == ["250", "750"], shown
    finally:
        shell.stdin.write(b"vgpu sim stop --force; kill $(jobs -p); wait\n")
        shell.stdin.close()
        shell.wait()


@pytest.mark.slow
def test_shim_builds_without_python_headers(tmp_path: Path) -> None:
    """shim/pyabi/Python.h declares all that cffi's module uses, and the module loads into this interpreter."""
    path = "import sys; sys.path.insert(0, 'shim'); import build_shim as b; "
    run(sys.executable, "-c", f"{path} b.ffibuilder.emit_c_code('{tmp_path}/_shim.c')", cwd=ROOT)
    sources = run(sys.executable, "-c", f"{path} print(*b.daemon_sources())", cwd=ROOT).split()
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


def exported_names(name: str) -> set[str]:
    lines = run("nm", "-D", "--defined-only", "-P", LIB / name).splitlines()
    return {line.split()[0].split("@")[0] for line in lines}


@pytest.mark.parametrize("name", LIBRARIES[1:])
def test_needs_libc_only(name: str) -> None:
    needed = set(re.findall(r"\(NEEDED\).*\[(.*)\]", dynamic(name)))
    needed = {n for n in needed if not n.startswith("ld-linux")}  # the loader itself: it keeps the thread-local storage
    assert needed <= NEEDED_ALLOWED | ({"libm.so.6"} if name.startswith("sim/") else set())
    assert not re.search(r"\((RPATH|RUNPATH)\)", dynamic(name))


def version_needs(library: elf.Elf) -> dict[str, set[str]]:
    """Needed library -> the versions of its symbols that must be there (gABI: Elf64_Verneed, Elf64_Vernaux)."""
    needs: dict[str, set[str]] = {}
    at = library.offset(library.tag(DT_VERNEED))
    for _ in range(library.tag(DT_VERNEEDNUM)):
        _, count, file, first, following = struct.unpack_from("<HHIII", library.data, at)
        entry = at + first
        for _ in range(count):
            _, _, _, name, step = struct.unpack_from("<IHHII", library.data, entry)
            needs.setdefault(library.text(file), set()).add(library.text(name))
            entry += step
        at += following
    return needs


def symbols_of_version(path: Path, version: str) -> list[str]:
    return re.findall(rf"(\w+)@{re.escape(version)}$", run("nm", "-D", "-u", path), re.MULTILINE)


@pytest.mark.parametrize("name", SHARED)
def test_old_glibc_has_every_version_that_is_asked_for(name: str) -> None:
    """The same words as `objdump -T`, but read from the table that the loader checks before it starts a program."""
    path = LIB / name
    needs = version_needs(elf.Elf(path))
    assert needs["libc.so.6"] and set(elf.Elf(path).find_needed_libraries()) >= needs.keys()
    for library, versions in needs.items():
        for version in versions:
            number = re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version)
            found = symbols_of_version(path, version)
            assert number, f"{name} asks {library} for {version} ({found}), which no glibc of 2012 has"
            late = f"{found} of {name} came with {version}: add them to shim/base/glibc_floor.h, or call prim.c instead"
            assert tuple(map(int, number.groups())) <= GLIBC_MAX, late


@pytest.mark.parametrize("name", SHARED)
def test_old_glibc_finds_the_functions_that_moved(name: str) -> None:
    """Before 2.34 threads and the loader's functions lay in libraries of their own."""
    assert {"libpthread.so.0", "libdl.so.2"} <= set(elf.Elf(LIB / name).find_needed_libraries())


def test_other_names_of_newer_headers_are_repaired(tmp_path: Path) -> None:
    """glibc 2.38 gives strtoul and sscanf other names when it compiles for newer C."""
    calls = ["long __isoc23_strtol(const char *, char **, int)", "int __isoc23_sscanf(const char *, const char *, ...)"]
    calls += [
        f"unsigned long{more} __isoc23_strtou{end}(const char *, char **, int)"
        for more, end in ((" ", "l"), (" long", "ll"))
    ]
    names = [re.findall(r"__isoc23_\w+", call)[0] for call in calls]
    body = f"{';'.join(calls)}; void *uses[] = {{{', '.join(names)}}};"
    (tmp_path / "uses.c").write_text(body)
    floor: list[str | Path] = ["-include", ROOT / "shim/base/glibc_floor.h"]
    run("gcc", "-shared", "-fPIC", "-w", *floor, "-o", tmp_path / "uses.so", tmp_path / "uses.c")
    undefined = run("nm", "-D", "-u", tmp_path / "uses.so")
    assert re.findall(r"U (\w+)@GLIBC", undefined) == ["__isoc99_sscanf", "strtol", "strtoul", "strtoull"]


@pytest.mark.parametrize("name", OTHERS)
def test_exports_the_drivers_names_only(name: str) -> None:
    names = exported_names(name)
    prefix = "nvml" if "ml" in Path(name).name else "cu"
    strangers = {n for n in names if not re.match(rf"{prefix}[A-Z]", n)} - EXPORTED_EXTRA[name]
    unknown = {n for n in strangers if not n.startswith(SPARE_PREFIX)}
    assert not unknown, f"{name} shows {sorted(unknown)}"
    assert len(names) > 50


@pytest.mark.parametrize("name", LIBRARIES[1:])
def test_hardened_and_named_as_nvidias(name: str) -> None:
    table = dynamic(name)
    soname = "libnvidia-ml.so.1" if name == "libvgpu-ml.so" else Path(name).name
    assert f"[{soname}]" in table
    assert "NODELETE" in table
    assert "NOW" in table
    assert "GNU_RELRO" in run("readelf", "-l", "-W", LIB / name)
    assert "GNU_STACK" in run("readelf", "-l", "-W", LIB / name)
    assert not re.search(r"GNU_STACK.*RWE", run("readelf", "-l", "-W", LIB / name))


@pytest.mark.parametrize("name", LIBRARIES[1:])
def test_no_constructors(name: str) -> None:
    """The one entry that every gcc library has (frame_dummy) is 8 bytes; more would be code of ours at load time."""
    sizes = re.findall(r"\(INIT_ARRAYSZ\)\s+(\d+)", dynamic(name))
    assert sizes in ([], ["8"])


@pytest.mark.parametrize("bind_now", ["", "1"])
def test_preloading_them_all_changes_nothing(bind_now: str) -> None:
    def result(preload: str) -> tuple[int, str, str]:
        env = {"PATH": os.environ["PATH"], "LD_PRELOAD": preload}
        if bind_now:
            env["LD_BIND_NOW"] = "1"
        command = [sys.executable, "-c", "import ssl, sqlite3; print(6 * 7); raise SystemExit(3)"]
        done = subprocess.run(command, capture_output=True, text=True, env=env, check=False, stdin=subprocess.DEVNULL)
        return done.returncode, done.stdout, done.stderr

    assert result(":".join(str(LIB / n) for n in PRELOADED)) == result("")
