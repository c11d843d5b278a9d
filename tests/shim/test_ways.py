"""Every way of reaching the driver leads to the hooks, and nothing else changes for the program."""

from __future__ import annotations

import os
import subprocess
from dataclasses import dataclass, field
from pathlib import Path

import cudaspec
import hookdef
import pytest

from tests.shim import tiny_driver
from tests.shim.conftest import EXTRA, MISSING, Run
from tests.shim.tiny_driver import TinyDriver

NOW = hex(os.RTLD_NOW)
DEEP = hex(os.RTLD_NOW | os.RTLD_DEEPBIND)


@dataclass(frozen=True)
class Way:
    """A snippet, linked or not with the driver, and its arguments; {driver} is the driver's absolute path."""

    snippet: str
    arguments: tuple[str, ...] = ()
    is_linked: bool = False
    environment: dict[str, str] = field(default_factory=dict)
    families: bool = False  # asks for names without a version


WAYS = {
    "linked": Way("linked", is_linked=True),
    "linked-bind-now": Way("linked", is_linked=True, environment={"LD_BIND_NOW": "1"}),
    "soname": Way("by_dlopen", ("libcuda.so.1", NOW)),
    "lazy": Way("by_dlopen", ("libcuda.so.1", hex(os.RTLD_LAZY | os.RTLD_GLOBAL))),
    "development-name": Way("by_dlopen", ("libcuda.so", NOW)),
    "absolute-path": Way("by_dlopen", ("{driver}", NOW)),
    "namespace": Way("by_dlmopen", ("libcuda.so.1",)),
    "namespace-path": Way("by_dlmopen", ("{driver}",)),
    "deepbind": Way("by_dlopen", ("libcuda.so.1", DEEP)),
    "default-scope": Way("by_default_scope", is_linked=True),
    "real-dlsym": Way("by_real_dlsym"),
    "lookup-v1-legacy": Way("by_proc_address", ("cuGetProcAddress", "11030", "0"), families=True),
    "lookup-v1-per-thread": Way("by_proc_address", ("cuGetProcAddress", "11030", "2"), families=True),
    "lookup-v1-newest": Way("by_proc_address", ("cuGetProcAddress", "13000", "1"), families=True),
    "lookup-v2-legacy": Way("by_proc_address", ("cuGetProcAddress_v2", "13000", "1"), families=True),
    "lookup-v2-per-thread": Way("by_proc_address", ("cuGetProcAddress_v2", "13000", "2"), families=True),
}


def program(way: Way, driver: TinyDriver, folder: Path, names: list[str]) -> Path:
    extra = ["-Wl,--no-as-needed", driver.path] if way.is_linked else []
    return tiny_driver.snippet(way.snippet, folder / way.snippet, names, *extra)


def outcome(result: subprocess.CompletedProcess[str]) -> tuple[int, list[str]]:
    """Exit code and lines, without the file that a function lies in."""
    lines = [line.split() for line in result.stdout.splitlines()]
    return result.returncode, [" ".join([*words[:-2], words[-1]]) for words in lines]


def files(result: subprocess.CompletedProcess[str]) -> dict[str, str]:
    """Name -> the file that its function lies in."""
    return {words[-3]: words[-2] for words in (line.split() for line in result.stdout.splitlines())}


@pytest.mark.parametrize("mode", ["checksums", "success"])
@pytest.mark.parametrize("name", WAYS)
def test_reaches_the_hook_and_changes_nothing(
    name: str, mode: str, same_driver: TinyDriver, shim: Path, rows: dict[str, hookdef.Row], run: Run, tmp_path: Path
) -> None:
    way = WAYS[name]
    names = same_driver.families if way.families else list(same_driver.names)
    command = [program(way, same_driver, tmp_path, names)]
    command += [word.format(driver=same_driver.path) for word in way.arguments]
    environment = way.environment | ({"TINY_SUCCESS": "1"} if mode == "success" else {})
    traces = [tmp_path / "unhooked.trace", tmp_path / "hooked.trace"]
    unhooked = run(command, same_driver, None, environment | {"TINY_TRACE": str(traces[0])})
    hooked = run(command, same_driver, shim, environment | {"TINY_TRACE": str(traces[1])})
    assert len(unhooked.stdout.splitlines()) == len(names), unhooked
    assert hooked.stderr == unhooked.stderr
    assert outcome(hooked) == outcome(unhooked)
    assert traces[1].read_text() == traces[0].read_text()  # the same calls of the driver, in the same order
    assert all(file.startswith("libcuda.so") for file in files(unhooked).values())
    if not way.families:
        assert set(files(hooked).values()) == {shim.name}
        return
    hooked_families = {
        hookdef.family(n) for n, row in rows.items() if row.behaviour != "pass" or row.away_behaviour == "waits"
    }
    reached = {n for n, file in files(hooked).items() if file == shim.name}
    assert reached <= hooked_families
    assert hooked_families - reached <= {"cuCtxSynchronize"}  # its _v2 row passes


@pytest.mark.parametrize("name", WAYS)
def test_a_driver_with_more_and_fewer_names_is_seen_as_it_is(
    name: str, same_driver: TinyDriver, other_driver: TinyDriver, other_shim: Path, run: Run, tmp_path: Path
) -> None:
    """20 more and 20 fewer: what is there is found, what is not is missing, by every way."""
    way = WAYS[name]
    names = sorted({*same_driver.names, *other_driver.names})
    if way.families:
        names = sorted({hookdef.family(n) for n in names})
    if way.snippet == "linked":
        names = list(other_driver.names)  # with others it does not start: next test
    command = [program(way, other_driver, tmp_path, names)]
    command += [word.format(driver=other_driver.path) for word in way.arguments]
    unhooked = run(command, other_driver, None, way.environment)
    hooked = run(command, other_driver, other_shim, way.environment)
    assert outcome(hooked) == outcome(unhooked)
    if "lookup-v2" in name:
        assert unhooked.returncode == 3  # cuGetProcAddress_v2 is one of the names that this driver lacks
        return
    found = files(hooked)
    if not way.families:
        assert all(found[n] == other_shim.name for n in EXTRA)
        assert {found.get(n, "-") for n in MISSING} == {"-"}


@pytest.mark.parametrize("environment", [{}, {"LD_BIND_NOW": "1"}], ids=["lazy", "bind-now"])
def test_a_program_linked_with_a_missing_name_fails_as_without_us(
    environment: dict[str, str],
    same_driver: TinyDriver,
    other_driver: TinyDriver,
    other_shim: Path,
    run: Run,
    tmp_path: Path,
) -> None:
    command = [program(WAYS["linked"], same_driver, tmp_path, list(same_driver.names))]
    unhooked = run(command, other_driver, None, environment)
    hooked = run(command, other_driver, other_shim, environment)
    assert unhooked.returncode == 127 and "undefined symbol" in unhooked.stderr
    assert (hooked.returncode, hooked.stderr) == (unhooked.returncode, unhooked.stderr)


def test_unfitted_a_newer_driver_still_works_by_name(
    shim: Path, same_driver: TinyDriver, other_driver: TinyDriver, run: Run, tmp_path: Path
) -> None:
    """The library as it is built, not fitted: cuGetProcAddress gives the names that only the driver has."""
    names = [hookdef.family(n) for n in EXTRA]
    command = [program(WAYS["lookup-v1-newest"], other_driver, tmp_path, names), *WAYS["lookup-v1-newest"].arguments]
    unhooked, hooked = run(command, other_driver), run(command, other_driver, shim)
    assert outcome(hooked) == outcome(unhooked)
    assert "-" not in files(hooked).values()


def test_constructor(same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path) -> None:
    names = list(same_driver.names)
    library = tiny_driver.snippet("in_constructor", tmp_path / "libconstructor.so", names, "-shared")
    main = tiny_driver.snippet("empty_main", tmp_path / "main", [], library, f"-Wl,-rpath,{tmp_path}")
    unhooked, hooked = run([main], same_driver), run([main], same_driver, shim)
    assert outcome(hooked) == outcome(unhooked)
    assert len(hooked.stdout.splitlines()) == len(names)
    assert set(files(hooked).values()) == {shim.name}


def test_linked_plugin_with_deepbind(same_driver: TinyDriver, shim: Path, run: Run, tmp_path: Path) -> None:
    names = list(same_driver.names)
    plugin = tiny_driver.snippet(
        "plugin", tmp_path / "plugin.so", names, "-shared", "-Wl,--no-as-needed", same_driver.path
    )
    host = tiny_driver.snippet("plugin_host", tmp_path / "host", [])
    unhooked, hooked = run([host, plugin], same_driver), run([host, plugin], same_driver, shim)
    assert outcome(hooked) == outcome(unhooked)
    assert set(files(hooked).values()) == {shim.name}


def test_shared_addresses_are_distinguished_by_name(
    surface: cudaspec.Surface, shim: Path, rows: dict[str, hookdef.Row], run: Run, tmp_path: Path
) -> None:
    """A driver may use one address for several names; the hook is then found by name and kind of default stream."""
    aliases = {
        "cuStreamSynchronize_ptsz": "cuStreamSynchronize",
        "cuLaunchKernel_ptsz": "cuLaunchKernel",
        "cuCtxGetFlags": "cuMemsetD8Async",  # one that passes and one that is gated
        "cuMemFreeAsync_ptsz": "cuMemFreeAsync",
    }
    driver = tiny_driver.build(surface, tmp_path / "driver", aliases=aliases)
    for way in ("lookup-v1-legacy", "lookup-v1-per-thread"):
        names = sorted({hookdef.family(n) for pair in aliases.items() for n in pair})
        command = [program(WAYS[way], driver, tmp_path, names), *WAYS[way].arguments]
        found = files(run(command, driver, shim))
        assert {n for n, file in found.items() if file == "libcuda.so.1"} == {"cuCtxGetFlags"}


def test_private_addresses_are_reported(surface: cudaspec.Surface, shim: Path, run: Run, tmp_path: Path) -> None:
    """Pointer identity would fail with such a driver: the log says so once; newer exported names say nothing."""
    for private, lines in ((("cuMemsetD8_v2", "cuLaunchGrid"), 1), ((), 0)):
        driver = tiny_driver.build(surface, tmp_path / f"driver{lines}", extra=EXTRA, private=private)
        way = WAYS["lookup-v2-legacy"]
        command = [program(way, driver, tmp_path, driver.families), *way.arguments]
        result = run(command, driver, shim, {"VGPU_LOG": "stderr"})
        assert result.returncode == 0
        assert result.stderr.count("returned a private address for cuLaunchGrid") == lines
        assert result.stderr.count("\n") == lines
