"""The comparison of preloaded libraries, with two small ones: one that passes calls on, one that ends its program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import rivals

ROOT = Path(__file__).resolve().parents[2]
#: answers dlsym("cuLaunchKernel") with a function of its own that waits SLOW_NS; ends the program where REFUSES is 50
PASSES_ON = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
typedef int (*launch)(void *, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void *, void **,
                      void **);
static launch next;
static int slow(void *f, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz, unsigned shared,
                void *stream, void **parameters, void **extra) {
  struct timespec begin, now;
  clock_gettime(CLOCK_MONOTONIC, &begin);
  do clock_gettime(CLOCK_MONOTONIC, &now);
  while ((now.tv_sec - begin.tv_sec) * 1000000000 + now.tv_nsec - begin.tv_nsec < atol(getenv("SLOW_NS")));
  return next(f, gx, gy, gz, bx, by, bz, shared, stream, parameters, extra);
}
__attribute__((constructor)) static void begin(void) {
  if (!getenv("REFUSES") || strcmp(getenv("REFUSES"), "50")) return;
  fprintf(stderr, "this library does not run here\n");
  _Exit(7);
}
void *dlsym(void *handle, const char *name) {
  void *(*real)(void *, const char *) = (void *(*)(void *, const char *))dlvsym(RTLD_NEXT, "dlsym", VERSION);
  void *found = real(handle, name);
  if (strcmp(name, "cuLaunchKernel")) return found;
  next = (launch)found;
  return (void *)slow;
}
"""
#: the command, with an eighth of the runs that its medians are taken of
FEW_RUNS = """
from benchmarks import rivals
rivals.RUNS = 5
raise SystemExit(rivals.main())
"""


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library; its dlsym() finds the C library's under whichever version this machine has."""
    folder = tmp_path_factory.mktemp("rival")
    source, made = folder / "passes.c", folder / "passes.so"
    source.write_text(PASSES_ON)
    version = {"x86_64": "GLIBC_2.2.5", "aarch64": "GLIBC_2.17"}[
        subprocess.check_output(["uname", "-m"], text=True).strip()
    ]
    command = ["gcc", "-shared", "-fPIC", f'-DVERSION="{version}"', "-o", str(made), str(source), "-ldl"]
    subprocess.run(command, check=True)
    return made


def parse_libraries(*words: str) -> list[rivals.Library]:
    found: list[rivals.Library] = rivals.parser().parse_args(words).libraries
    return found


def test_variables_belong_to_the_library_before_them(tmp_path: Path) -> None:
    for name in ("a.so", "b.so"):
        (tmp_path / name).touch()
    a, b = str(tmp_path / "a.so"), str(tmp_path / "b.so")
    words = ("--library", a, "--env", "X={percent}", "--library", b, "--env", "Y={folder}/r", "--library", a)
    first, second, again = parse_libraries(*words)
    assert [first.name, second.name, again.name] == ["a", "b", "a-2"]
    assert first.preload_variables(0.3, tmp_path) == {"LD_PRELOAD": a, "X": "30"}
    assert second.preload_variables(1, tmp_path) == {"LD_PRELOAD": b, "Y": f"{tmp_path}/r"}
    assert again.env == {}


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--library"),
        (("--library", "/nowhere/at/all.so"), "no such file"),
        (("--env", "A=1", "--library", sys.executable), "named before it"),
        (("--library", sys.executable, "--env", "A"), "NAME=VALUE"),
    ],
)
def test_what_is_wrong_is_said(words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse_libraries(*words)
    assert message in capsys.readouterr().err


@pytest.mark.slow
def test_a_slow_library_and_one_that_refuses(library: Path, tmp_path: Path) -> None:
    """The delay of the slow one is in its launches alone; the other has a reason in each of its rows."""
    words = ["--library", str(library), "--env", "SLOW_NS=3000", "--library", str(library), "--env", "SLOW_NS=0"]
    words += ["--env", "REFUSES={percent}", "--rows", "launch", "alloc", "--repeats", "1"]
    words += ["--results", str(tmp_path)]
    command = [sys.executable, "-c", FEW_RUNS, *words]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads((tmp_path / "rivals-sim.json").read_text())
    assert result["parameters"]["libraries"]["passes"] == {"path": str(library), "env": {"SLOW_NS": "3000"}}
    figures = result["figures"]
    assert len(figures) == 4
    for row, found in figures.items():
        assert set(found) == {"ours", "passes", "passes-2"}
        assert "this library does not run here" in found["passes-2"]
        slow = found["passes"] > 2000
        assert slow == row.startswith("launch"), (row, found)
        assert found["ours"] < 2000
