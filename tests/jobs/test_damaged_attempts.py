"""Files of attempts that are not as they were written: the daemon starts, and the other attempts are known."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vgpud.host.boot import boot_id
from vgpud.jobs.messages import Result, WireError, parse_begun, parse_result
from vgpud.jobs.runner import Found, Jobs

SOUND = """exit_code 3
signal 0
why
stopped 0
cpu_ns 5
ram_peak_bytes 7
began_wall_ns 8
ended_wall_ns 9
members 3 -1
"""
BEGUN = f"pid 4194303\nstart 1\nboot {boot_id()}\nbegan_wall_ns 8\nnote n\n"
DAMAGED = {
    "empty": b"",
    "cut": SOUND[:30].encode(),
    "members": SOUND.replace("members 3 -1", "members 3 x").encode(),
    "many digits": SOUND.replace("cpu_ns 5", "cpu_ns " + "9" * 5000).encode(),
    "beyond the store": SOUND.replace("cpu_ns 5", f"cpu_ns {1 << 63}").encode(),
    "no exit code": SOUND.replace("exit_code 3", f"exit_code {1 << 40}").encode(),
    "a digit that is none": SOUND.replace("exit_code 3", "exit_code \u00b2").encode(),
    "random": bytes(range(256)) * 8,
    "zeros": b"\0" * 4096,
}


class SilentBackend:
    """Backend of a daemon that is notified of no end."""

    def job_ended(self, job_id: int, attempt: int, result: Result) -> None: ...
    def worker_ended(self, job_id: int, attempt: int, worker: int, result: Result) -> None: ...


def adopt_attempts(folder: Path, *attempt_ids: tuple[int, int]) -> dict[tuple[int, ...], object]:
    async def run() -> dict[tuple[int, ...], object]:
        jobs = Jobs(folder, SilentBackend())
        found = await jobs.adopt(attempt_ids)
        jobs.close()
        return dict(found)

    return asyncio.run(run())


@pytest.mark.parametrize("what", DAMAGED)
@pytest.mark.parametrize("name", ["result", "begun"])
def test_a_damaged_file_of_an_attempt_is_one_lost_attempt(tmp_path: Path, name: str, what: str) -> None:
    for number, files in ((1, {"begun": BEGUN, "result": SOUND}), (2, {"begun": BEGUN, "result": SOUND})):
        (tmp_path / f"{number}.1").mkdir()
        for file, text in files.items():
            (tmp_path / f"{number}.1" / file).write_text(text)
    (tmp_path / "1.1" / name).write_bytes(DAMAGED[what])
    found = adopt_attempts(tmp_path, (1, 1), (2, 1))
    other = found[2, 1]
    assert isinstance(other, Result) and (other.exit_code, other.member_codes) == (3, (3, -1))
    first = found[1, 1]
    lost = isinstance(first, Result) and first.is_lost
    assert name == "begun" or lost or first is Found.RUNS, "it is watched, and found to have ended"


@pytest.mark.parametrize("name", ["\u00b2.1", "1.\u00b2", "1.1.env", "\u00b2.1.0.env", "9" * 200 + ".1"])
def test_a_name_that_is_no_attempts_keeps_nothing_from_starting(tmp_path: Path, name: str) -> None:
    (tmp_path / name).touch()
    (tmp_path / ".boot").write_bytes(b"\xff\xfe not a boot")
    adopt_attempts(tmp_path)


@given(st.text(max_size=80), st.sampled_from(SOUND.split("\n")), st.sampled_from((SOUND, BEGUN)))
def test_whatever_is_in_a_file_is_read_or_refused(text: str, line: str, sound_text: str) -> None:
    key = line.partition(" ")[0]
    for damaged in (text, sound_text.replace(line, text), sound_text.replace(line, f"{key} {text}")):
        for parse in (parse_result, parse_begun):
            try:
                parse(damaged)
            except WireError:
                continue
