"""`vgpu whatif --from-slurm`: of sacct, which is a script here, or of a file."""

from __future__ import annotations

import re
import time
from pathlib import Path
from typing import Any

import pytest

from vgpud.cluster.shell import published
from vgpud.simulate import sacct

USAGE, UNREACHABLE = 2, 3
SEPARATOR = "|3f0c1d5e8a7b4296a1b2c3d4e5f60718|"
LINES = [
    f"{number}|ann|1000|team|gpu|COMPLETED|{at}|{at + wait}|{at + wait + ran}|{ran // 60:02}:{ran % 60:02}|UNLIMITED|1"
    f"|gres/gpu=1|gres/gpu=1|".replace("|", SEPARATOR)
    for number, at, wait, ran in (
        (1, 1_793_000_000, 0, 600),
        (2, 1_793_000_000, 600, 60),
        (3, 1_793_000_060, 600, 120),
    )
]
TEXT = "\n".join([SEPARATOR.join(sacct.COLUMNS), *LINES, ""])


@pytest.fixture
def month(tmp_path: Path) -> Path:
    path = tmp_path / "month.txt"
    path.write_text(TEXT)
    return path


def program(folder: Path, text: str) -> None:
    (folder / "sacct").write_text(f"#!/bin/sh\n{text}\n")
    (folder / "sacct").chmod(0o755)


def test_what_happened_and_what_would_have(vgpu: Any, month: Path) -> None:
    args = ("--cluster", "1x1", "--policy", "strict:fifo", "--compare", "srtf", "--estimates")
    result = vgpu("whatif", "--from-slurm", str(month), *args)
    assert result.code == 0, result
    _titles, was, fifo, srtf = result.stdout.splitlines()
    assert [one[:11].rstrip() for one in (was, fifo, srtf)] == ["as it was", "strict:fifo", "srtf"]
    data = vgpu("whatif", "--from-slurm", str(month), *args, "-o", "json").json
    assert (data["trace"], data["jobs"]) == ("month.txt", 3)
    assert [run["preemptions"] for run in data["runs"]] == [None, 0, 0] and " -" in was
    assert data["runs"][0]["fragmentation"] is None, "what is not known is not 0"
    by = {run["policy"]: run["jct_s"]["mean"] for run in data["runs"]}
    assert by["as it was"] == by["strict:fifo"] == pytest.approx((600 + 660 + 720) / 3)


def test_of_sacct_itself(vgpu: Any, tmp_path: Path, month: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, f'echo "$SLURM_TIME_FORMAT $*" > {tmp_path}/asked; cat {month}')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    args = ("--since", "2026-10-01", "--partition", "gpu", "--cluster", "2x4", "--policy", "2d-las")
    result = vgpu("whatif", "--from-slurm", *args)
    assert result.code == 0, result
    asked = (tmp_path / "asked").read_text()
    assert asked.startswith("%s ") and "--starttime=2026-10-01T00:00:00" in asked and "--partition=gpu" in asked
    assert f"--format={','.join(sacct.COLUMNS)}" in asked
    other = vgpu("whatif", "--from-slurm", *args)
    assert other.code == 0
    delimiters = [re.search(r"--delimiter=(\S+)", said) for said in (asked, (tmp_path / "asked").read_text())]
    assert all(found and len(found[1]) >= sacct.SECRET_LENGTH for found in delimiters)
    assert delimiters[0] and delimiters[1] and delimiters[0][1] != delimiters[1][1], "each time another one"
    assert {"--allusers", "--allocations", "--parsable2", "--noconvert"} <= set(asked.split())
    assert [line.split()[0] for line in result.stdout.splitlines()[1:]] == ["as", "2d-las"]
    nothing = vgpu("whatif", "--from-slurm", "--since", "2099-01-01", "--cluster", "2x4")
    assert nothing.code == USAGE and "take a longer time" in nothing.stderr


def test_a_month_is_asked_for_on_the_local_clock(
    vgpu: Any, tmp_path: Path, month: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    program(tmp_path, f'echo "$*" > {tmp_path}/asked; cat {month}')
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setenv("TZ", "XYZ-5")
    time.tzset()
    monkeypatch.setattr(published, "now_s", lambda: 1_793_000_000)
    assert vgpu("whatif", "--from-slurm", "--cluster", "1x1").code == 0
    monkeypatch.undo()
    time.tzset()
    assert "--starttime=2026-09-26T12:33:20" in (tmp_path / "asked").read_text()


def test_without_slurmdbd(vgpu: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program(tmp_path, "echo 'Slurm accounting storage is disabled' >&2; exit 1")
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    result = vgpu("whatif", "--from-slurm", "--cluster", "2x4")
    assert result.code == UNREACHABLE
    assert "Slurm accounting storage is disabled" in result.stderr and "vgpu cluster usage -o csv" in result.stderr
    (tmp_path / "sacct").unlink()
    monkeypatch.setenv("PATH", str(tmp_path))
    assert "sacct was not found" in vgpu("whatif", "--from-slurm", "--cluster", "2x4").stderr


def test_what_was_left_out_is_said(vgpu: Any, month: Path) -> None:
    month.write_text(TEXT + LINES[0].replace("gres/gpu=1", "cpu=1") + "\n" + LINES[0].replace("10:00", "00:00") + "\n")
    result = vgpu("whatif", "--from-slurm", str(month), "--cluster", "1x1")
    assert result.code == 0 and "3 jobs ran with GPUs; left out: 1 had no GPU, 1 never ran" in result.stderr


def test_comments_of_any_bytes(vgpu: Any, month: Path) -> None:
    month.write_bytes(TEXT.replace(f"{SEPARATOR}\n", f"{SEPARATOR}caf\xe9\nsecond line\n").encode("latin-1"))
    result = vgpu("whatif", "--from-slurm", str(month), "--cluster", "1x1")
    assert (
        result.code == 0
        and "3 lines with too few columns are taken for parts of comments or accounts with line breaks; a job"
        in result.stderr
    )


def test_a_site_that_trusts_its_users_says_so(vgpu: Any, month: Path) -> None:
    month.write_text(TEXT.replace(SEPARATOR, "|"))
    args = ("whatif", "--from-slurm", str(month), "--cluster", "1x1")
    refused = vgpu(*args)
    assert refused.code == USAGE and "add --trusted-separator" in refused.stderr
    assert vgpu(*args, "--trusted-separator").code == 0


def test_a_cluster_that_is_smaller_than_the_traces(vgpu: Any, month: Path) -> None:
    month.write_text(TEXT + LINES[0].replace("1|ann", "4|ann").replace("gres/gpu=1", "gres/gpu=2") + "\n")
    args = ("whatif", "--from-slurm", str(month), "--compare", "srtf", "--cluster")
    small = vgpu(*args, "1x2").stderr
    assert small.count("month.txt had up to 3 GPUs in use at once, and 1x2 has 2: jobs wait") == 1
    assert "at once" not in vgpu(*args, "1x3").stderr


def test_queues_of_a_controller(vgpu: Any, month: Path, tmp_path: Path) -> None:
    queues = tmp_path / "queues.json"
    queues.write_text('{"queues": [{"name": "default", "policy": "srtf"}]}')
    result = vgpu("whatif", "--from-slurm", str(month), "--cluster", "1x1", "--queues", str(queues))
    assert result.code == 0 and "left out" not in result.stderr, "the account is no queue: its jobs are in default"


@pytest.mark.parametrize(
    ("args", "words"),
    [
        (("--cluster", "1x1"), "specify one trace"),
        (("--from-slurm", "MONTH", "--trace", "x", "--cluster", "1x1"), "specify one trace"),
        (("--from-slurm", "MONTH"), "specify the cluster"),
        (("--trace", "x", "--cluster", "1x1", "--since", "1d"), "--since and --partition select jobs of --from-slurm"),
        (("--from-slurm", "nowhere.txt", "--cluster", "1x1"), "cannot read nowhere.txt"),
        (("--from-slurm", "--trusted-separator", "--cluster", "1x1"), "--trusted-separator is about a file of sacct"),
        (("--from-slurm", "MONTH", "--columns", "user=x", "--cluster", "1x1"), "add --trace FILE"),
        (("--trace", "x", "--columns", "usr=x", "--cluster", "1x1"), "--columns: no field 'usr': did you mean user?"),
    ],
)
def test_refused_in_one_line(vgpu: Any, month: Path, args: tuple[str, ...], words: str) -> None:
    result = vgpu("whatif", *(str(month) if word == "MONTH" else word for word in args))
    assert result.code == USAGE and words in result.stderr and result.stderr.count("\n") == 1
