"""vgpu-runtime between a fake daemon and a fake low-level runtime, and vgpu-job: as shipped, and with sanitizers."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from shim import build_shim
from tests.examples import is_nightly
from tests.runtime.supervisors import WORLDS, World

ROOT = Path(__file__).resolve().parents[2]
BUILDS = ["shipped", "sanitized"]
SANITIZE = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-fno-omit-frame-pointer"]
FLAGS = ["-std=gnu11", "-iquote", "shim", "-Wall", "-Wextra", "-Werror"]
#: of the build with sanitizers: tests of what is said at the end of waiting take it
SHORT_WAIT = ["-DVR_RESTART_S=3"]
#: the fake low-level runtime's exit status
LOW_LEVEL_STATUS = 7
#: a request as docker writes it
CONFIG = b'{"process":{"env":["PATH=/bin","VGPU=0.5"]}}'
PLAIN_CONFIG = b'{"process":{"env":["PATH=/bin","NOT_VGPU=1"]}}'


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """At each change a case runs in one of the two builds, by turns; in a nightly run in both."""
    items_of: dict[str, dict[str, pytest.Item]] = {}  # case -> build -> item
    for item in items:
        if build := _build(item):
            items_of.setdefault(_case(item, build), {})[build] = item
    left_out = [
        of_build[BUILDS[1 - zlib.crc32(case.encode()) % len(BUILDS)]]
        for case, of_build in items_of.items()
        if len(of_build) == len(BUILDS)
    ]
    if not is_nightly() and left_out:
        config.hook.pytest_deselected(items=left_out)
        of_other_build = set(left_out)
        items[:] = [item for item in items if item not in of_other_build]


def _build(item: pytest.Item) -> str:
    """The build that a test of this folder is run with; "": it uses none, or is another folder's."""
    if not item.nodeid.startswith("tests/runtime/") or not hasattr(item, "callspec"):
        return ""
    values = item.callspec.params
    return next((str(values[name]) for name in ("front", "world") if values.get(name) in BUILDS), "")


def _case(item: pytest.Item, build: str) -> str:
    """A test with all of its values but the build."""
    return item.nodeid.replace(build, "", 1)


@dataclass(slots=True)
class Seen:
    """How the low-level runtime was run."""

    args: list[str] = field(default_factory=list)
    env: list[str] = field(default_factory=list)
    fds: dict[int, str] = field(default_factory=dict)
    facts: dict[str, str] = field(default_factory=dict)


@dataclass(slots=True)
class Front:
    """One installation of vgpu-runtime, with its configuration and low-level runtime."""

    folder: Path
    path: Path
    low_level: Path
    socket: Path
    bundle: Path

    def configure(self, *lines: str) -> None:
        """Writes vgpu-runtime.conf."""
        Path(f"{self.path}.conf").write_text("".join(f"{line}\n" for line in lines))

    def take_notes(self) -> Seen | None:
        """What the low-level runtime has noted; None: it did not run. Forgets it."""
        notes = Path(f"{self.low_level}.seen")
        if not notes.exists():
            return None
        seen = Seen()
        for line in notes.read_text().splitlines():
            key, _, value = line.partition(" ")
            if key == "arg":
                seen.args.append(value)
            elif key == "env":
                seen.env.append(value)
            elif key == "fd":
                number, _, target = value.partition("=")
                seen.fds[int(number)] = target
            elif key == "status":
                name, _, text = value.partition(":")
                seen.facts[name] = text.strip()
            else:
                seen.facts[key] = value
        notes.unlink()
        return seen

    def write(self, config: bytes = CONFIG) -> Path:
        """Writes the bundle's config.json."""
        path = self.bundle / "config.json"
        path.write_bytes(config)
        return path

    def call(self, *words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """Runs vgpu-runtime with these arguments."""
        command = [str(self.path), *(str(word) for word in words)]
        if "input" not in options:
            options.setdefault("stdin", subprocess.DEVNULL)
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60, **options)

    def create(self, *words: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        """`create` of the bundle."""
        return self.call(*words, "create", "--bundle", self.bundle, "c1", **options)

    def hook(self, op: str, state: str, **options: Any) -> subprocess.CompletedProcess[str]:
        return self.call("vgpu-hook", op, input=state, **options)


def compile_c(program: Path, sources: Sequence[str], flags: Sequence[str] = ()) -> Path:
    """Links a program; its objects are compiled once for all workers of a run, and for later runs."""
    options = [*FLAGS, *flags]
    objects = build_shim.compile_objects(sources, options)
    subprocess.run([*build_shim.compiler(), *options, "-o", str(program), *objects], cwd=ROOT, check=True)
    return program


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """The front in both builds, from the sources of now, and the fake low-level runtime."""
    folder = tmp_path_factory.mktemp("front")
    build_shim.build_target("vgpu-runtime", folder)
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "shim" / "runtime").glob("*.c"))
    return {
        "shipped": folder / "vgpu-runtime",
        "sanitized": compile_c(folder / "sanitized", sources, [*SANITIZE, *SHORT_WAIT]),
        "low_level": compile_c(folder / "low_level", ["tests/runtime/lowlevel.c"]),
    }


@pytest.fixture(params=BUILDS)
def front(request: pytest.FixtureRequest, programs: Mapping[str, Path]) -> Iterator[Front]:
    """A fresh installation; a folder with a short name, since the daemon's socket lies in it."""
    folder = Path(tempfile.mkdtemp(prefix="vgr-"))
    folder.chmod(0o755)
    made = Front(folder, folder / "vgpu-runtime", folder / "low", folder / "s", folder / "bundle")
    made.bundle.mkdir()
    shutil.copy2(programs[request.param], made.path)
    shutil.copy2(programs["low_level"], made.low_level)
    made.configure(f"socket = {made.socket}", f"runtime = {made.low_level}")
    yield made
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def builds(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, Path]:
    """vgpu-job as it is shipped, from the sources of now, and with sanitizers."""
    folder = tmp_path_factory.mktemp("job")
    folder.chmod(0o755)
    build_shim.build_target("vgpu-job", folder)
    sources = sorted(str(path.relative_to(ROOT)) for path in (ROOT / "shim" / "job").glob("*.c"))
    return {"shipped": folder / "vgpu-job", "sanitized": compile_c(folder / "sanitized", sources, SANITIZE)}


@pytest.fixture(params=BUILDS)
def world(request: pytest.FixtureRequest, builds: Mapping[str, Path]) -> Iterator[World]:
    made = World(builds[request.param])
    yield made
    made.close()


@pytest.fixture(params=list(WORLDS))
def any_world(request: pytest.FixtureRequest, builds: Mapping[str, Path]) -> Iterator[World]:
    """With version 2's cgroups, with version 1's alone, and without any: each kills in another way."""
    made = World(builds["sanitized"], request.param)
    yield made
    made.close()
