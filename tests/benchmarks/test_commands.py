"""Every benchmark is a command with --help; qualify refuses without a device; the pure parts of both."""

import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import __main__ as all_benchmarks
from benchmarks.daemon_restart import longest_gap_ms
from benchmarks.qualify import checks, identity
from vgpud.simdevice.busy_log import Span

ROOT = Path(__file__).resolve().parents[2]
MS = 1_000_000
#: runs a module as `python -m` does, and says with which setting grpc was imported
WITNESS = """
import os, runpy, sys
class Witness:
    def find_spec(self, name, path=None, target=None):
        if name == "grpc":
            print("fork support of grpc:", os.environ.get("GRPC_ENABLE_FORK_SUPPORT"), file=sys.stderr)
sys.meta_path.insert(0, Witness())
del sys.argv[0]
runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
"""


def command(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )


@pytest.mark.parametrize("name", [*all_benchmarks.NAMES, "cluster.acceptance", "containers", "qualify", "rivals"])
def test_help_which_turns_off_the_fork_handlers_of_grpc(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a part that it starts, such as vgpud, ends now and then before its exec (SIGABRT, grpc issue 43055)."""
    monkeypatch.delenv("GRPC_ENABLE_FORK_SUPPORT", raising=False)
    done = subprocess.run(
        [sys.executable, "-c", WITNESS, f"benchmarks.{name}", "--help"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert f"python -m benchmarks.{name}" in done.stdout
    assert done.stderr in ("", "fork support of grpc: 0\n")


def test_an_unknown_benchmark_is_named() -> None:
    done = command("benchmarks", "shares", "speed")
    assert done.returncode == 2
    assert "'speed'" in done.stderr and "shares" in done.stderr


@pytest.mark.parametrize(
    ("codes", "code", "message"),
    [
        ((0, 3), 0, "all goals met\nnot measured on this machine: shares\n"),
        ((1, 0), 1, "goals missed or failed: clients\n"),
    ],
)
def test_what_could_not_be_measured_is_named(
    codes: tuple[int, ...], code: int, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ends = iter(codes)
    done = lambda command, check: subprocess.CompletedProcess(command, next(ends))  # noqa: E731
    monkeypatch.setattr(all_benchmarks.subprocess, "run", done)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "clients", "shares"])
    assert all_benchmarks.main() == code
    assert capsys.readouterr().out.endswith(message)


def test_qualify_without_a_device_says_so_in_one_line_and_exits_3(tmp_path: Path) -> None:
    if not checks.has_device():
        pytest.skip("there is a real device here")
    done = command("benchmarks.qualify", "--results", str(tmp_path))
    assert done.returncode == 3
    assert done.stdout.count("\n") == 1 and "no real device" in done.stdout
    assert list(tmp_path.iterdir()) == []


def line(step: int, **fields: float) -> dict[str, float]:
    return {"step": step, **fields}


def test_equal_runs_have_no_differences() -> None:
    run = [line(5, loss=1.5), line(10, loss=1.25), line(10, checksum=3.0)]
    found = checks.compare(run, run)
    assert found == {"losses_compared": 2, "last_loss": 1.25, "differences": []}


def test_a_different_loss_checksum_or_step_is_found() -> None:
    before = [line(5, loss=1.5), line(5, checksum=3.0)]
    assert checks.compare(before, [line(5, loss=1.625), line(5, checksum=3.0)])["differences"] == [
        "losses, by up to 0.125"
    ]
    assert "sum of the weights" in checks.compare(before, [line(5, loss=1.5), line(5, checksum=3.5)])["differences"][0]
    assert "steps" in checks.compare(before, [line(5, loss=1.5), line(4, checksum=3.0)])["differences"][0]


def test_completed_work_leaves_the_first_report_out() -> None:
    lines = [
        {"event": "progress", "time_ns": t * 10**9, "completed": c} for t, c in ((0, 0), (1, 500), (2, 1500), (3, 2500))
    ]
    assert checks.completed_per_s(lines) == pytest.approx(1000)
    with pytest.raises(RuntimeError, match="less than three"):
        checks.completed_per_s(lines[:2])


@pytest.mark.parametrize(
    ("symbol", "base"),
    [
        ("cuMemAlloc_v2", "cuMemAlloc"),
        ("cuStreamSynchronize_ptsz", "cuStreamSynchronize"),
        ("cuMemcpyHtoD_v2_ptds", "cuMemcpyHtoD"),
        ("cuInit", "cuInit"),
    ],
)
def test_the_name_behind_a_symbol(symbol: str, base: str) -> None:
    assert identity.SUFFIX.sub("", symbol) == base


def test_the_longest_gap_counts_the_ends_too() -> None:
    spans = [Span(100 * MS, 200 * MS, 1), Span(210 * MS, 300 * MS, 1), Span(250 * MS, 400 * MS, 2)]
    assert longest_gap_ms(spans, 1, 0, 300 * MS) == pytest.approx(100)
    assert longest_gap_ms(spans, 1, 100 * MS, 300 * MS) == pytest.approx(10)
    assert longest_gap_ms(spans, 1, 100 * MS, 500 * MS) == pytest.approx(200)
    assert longest_gap_ms(spans, 3, 0, 500 * MS) == pytest.approx(500)
