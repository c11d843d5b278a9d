"""The simulated driver itself under AddressSanitizer, UndefinedBehaviorSanitizer and ThreadSanitizer."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from .conftest import HERE, ROOT, MakeDevice, build_sanitized

#: program, its arguments, and its environment
RUNS: list[tuple[list[str], dict[str, str]]] = [
    (["sticky"], {"FAULT": "fault_700"}),
    (["sticky"], {"VGPU_SIM_FAIL": "cuLaunchKernel:2=719"}),
    (["strict", "clean"], {"VGPU_SIM_STRICT": "fail"}),
    (["strict", "leak"], {"VGPU_SIM_STRICT": "1"}),
    (["strict", "launch"], {"VGPU_SIM_STRICT": "1"}),
    (["checkpoint_target", "self"], {}),
    *(([name], {}) for name in ("arrays", "batches", "captures", "shared")),
]
FOUND = ("WARNING: ThreadSanitizer", "ERROR: AddressSanitizer", "runtime error:")

Build = Callable[[str], Path]


@pytest.fixture(scope="module", params=["address,undefined", "thread"])
def build_program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Build:
    """The driver under one of them; makes programs that go with it."""
    flags = ["-O1", "-g", f"-fsanitize={request.param}", "-fno-omit-frame-pointer"]
    folder = build_sanitized(tmp_path_factory.mktemp("driver"), "sim/libcuda.so.1", flags)

    def make(name: str) -> Path:
        path = folder / name
        if not path.exists():
            source = [str(HERE / f"{name}.c"), f"-L{folder}", "-l:libcuda.so.1"]
            command = ["gcc", *flags, "-pthread", "-iquote", str(ROOT / "shim"), "-o", str(path), *source]
            subprocess.run(command, check=True)
        return path

    return make


@pytest.mark.parametrize(("words", "environment"), RUNS, ids=lambda one: " ".join(one))
def test_program(device: MakeDevice, build_program: Build, words: list[str], environment: dict[str, str]) -> None:
    program = build_program(words[0])
    made = device(program.parent, memory_bytes="1G", context_bytes="64M")
    env = {**made.environment(), "ASAN_OPTIONS": "detect_leaks=0", **environment}
    done = subprocess.run(
        [program, *words[1:]], env=env, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120
    )
    assert not any(word in done.stderr for word in FOUND), done.stderr
    assert done.returncode == 0, done.stderr
