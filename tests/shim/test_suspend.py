"""Slices paused and evicted while their programs run: nothing is lost, others get the memory, no partial states."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from tests.command_line import ask, call
from vgpud.cli.demo.private_system import Part, wait_for
from vgpud.devices import checkpoint_runner
from vgpud.devices.checkpoint_runner import AWAY, RUNS, UNKNOWN, Helpers

from .test_checkpoint import HELD, Bench, bench, go, programs  # noqa: F401  (fixtures)


def show_slice(bench: Bench, name: str) -> dict[str, Any]:  # noqa: F811
    found: dict[str, Any] = ask(bench.system, "slice", "show", name)["slice"]
    return found


def start_program(bench: Bench, name: str, *command: str) -> tuple[Part, list[Any]]:  # noqa: F811
    """A program that has said its first line, and all that it says."""
    part = bench.start(name, *command)
    said: list[Any] = []
    wait_for("the program", lambda: said.extend(part.lines()) or len(said) >= 1)
    return part, said


def used_bytes(bench: Bench) -> int:  # noqa: F811
    return sum(bench.page().process_used_bytes.values())


def test_a_paused_program_launches_nothing_and_continues(bench: Bench) -> None:  # noqa: F811
    part, _ = start_program(bench, "a", "saturate", "1000", "60")
    go(part)
    wait_for("its work", bench.runs_on)
    bench.system.vgpu("slice", "pause", "a")
    assert show_slice(bench, "a")["suspended"] == "paused"
    wait_for("its rest", lambda: not bench.runs_on())
    assert call(bench.system, "slice", "create", "c", "--gpus", "0.5", "--mem", "256M").returncode == 0
    refused = call(bench.system, "slice", "resume", "a")
    assert refused.returncode == 6 and "needs 0.5 of device 0" in refused.stderr
    bench.system.vgpu("slice", "rm", "c")
    bench.system.vgpu("slice", "resume", "a")
    wait_for("its work again", bench.runs_on)
    part.check()


def test_evicted_memory_is_others_meanwhile_and_bit_for_bit_the_same_afterwards(bench: Bench) -> None:  # noqa: F811
    part, said = start_program(bench, "a", "checkpoint_target")
    assert used_bytes(bench) == HELD
    bench.system.vgpu("slice", "evict", "a")
    assert used_bytes(bench) == 0 and show_slice(bench, "a")["suspended"] == "evicted"
    assert show_slice(bench, "a")["away_time"] and show_slice(bench, "a")["devices"][0]["mem_used_bytes"] == HELD
    bench.system.vgpu("slice", "set", "b", "--mem", "3584M")
    go(part)  # it asks for its contents, and waits
    refused = call(bench.system, "slice", "resume", "a")
    assert refused.returncode == 6 and "left now" in refused.stderr
    bench.system.vgpu("slice", "set", "b", "--mem", "1G")
    assert len(said) == 1
    bench.system.vgpu("slice", "resume", "a")
    wait_for("its contents", lambda: said.extend(part.lines()) or len(said) == 2)
    assert said == [{"same": 1}] * 2
    assert show_slice(bench, "a")["suspended"] is None and used_bytes(bench) == HELD


@pytest.mark.parametrize("kind", ["managed", "ipc"])
def test_what_the_driver_cannot_move_continues_as_before(bench: Bench, kind: str) -> None:  # noqa: F811
    part, said = start_program(bench, "a", "checkpoint_target", kind)
    refused = call(bench.system, "slice", "evict", "a")
    assert refused.returncode == 8 and "as before" in refused.stderr and "not supported" in refused.stderr
    assert show_slice(bench, "a")["suspended"] is None
    go(part)
    wait_for("the program again", lambda: said.extend(part.lines()) or len(said) == 2)


def test_work_that_never_ends_is_not_waited_for_beyond_the_deadline(bench: Bench) -> None:  # noqa: F811
    part, said = start_program(bench, "a", "checkpoint_target", "waits")
    refused = call(bench.system, "slice", "evict", "a", "--deadline", "2")
    assert refused.returncode == 8 and "not ready in time" in refused.stderr
    go(part)
    wait_for("the program again", lambda: said.extend(part.lines()) or len(said) == 2)


def test_an_evicted_slice_outlives_the_daemon(bench: Bench) -> None:  # noqa: F811
    part, said = start_program(bench, "a", "checkpoint_target")
    bench.system.vgpu("slice", "evict", "a")
    assert bench.system.daemon
    bench.system.daemon.stop(signal.SIGKILL)
    bench.system.start_daemon()
    wait_for("the program's return", lambda: show_slice(bench, "a")["processes"] == 1)
    assert show_slice(bench, "a")["suspended"] == "evicted" and used_bytes(bench) == 0
    go(part)
    bench.system.vgpu("slice", "resume", "a")
    wait_for("its contents", lambda: said.extend(part.lines()) or len(said) == 2)
    assert said[1] == {"same": 1}


def test_an_evicted_program_that_is_killed_leaves_nothing_to_restore(bench: Bench) -> None:  # noqa: F811
    start_program(bench, "a", "checkpoint_target")
    (pid,) = bench.page().process_used_bytes
    bench.system.vgpu("slice", "evict", "a")
    os.kill(pid, signal.SIGKILL)
    wait_for("its end", lambda: show_slice(bench, "a")["processes"] == 0)
    bench.system.vgpu("slice", "resume", "a")
    _, said = start_program(bench, "a", "checkpoint_target")
    assert said == [{"same": 1}]


# ---- the helper ----


def put_helper(folder: Path, monkeypatch: pytest.MonkeyPatch, body: str) -> None:
    helper = folder / "helper.py"
    begin = "import json, os, sys, time\naction = (sys.stdin.readline().split() or sys.exit(0))[0]"
    helper.write_text(f"{begin}\n{body}\n")
    monkeypatch.setattr(checkpoint_runner, "HELPER", helper)


def run_move(
    folder: Path, monkeypatch: pytest.MonkeyPatch, body: str, deadline_s: float = 20.0
) -> checkpoint_runner.Moved:
    put_helper(folder, monkeypatch, body)
    return asyncio.run(checkpoint_runner.move("evict", 1, "libcuda.so.1", "", deadline_s))


def say(state: str, reason: str = "", has_begun: bool = True) -> str:
    return f'print(json.dumps({{"state": {state!r}, "refused": {reason!r}, "begun": {has_begun}}}))'


def test_a_helper_that_hangs_is_killed_and_what_it_left_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = f"time.sleep(1000 * (action == 'evict'))\n{say(AWAY)}"
    assert run_move(tmp_path, monkeypatch, body, 1.5) == checkpoint_runner.Moved(
        AWAY, "the driver took longer than 1.5 s"
    )


def test_a_helper_that_dies_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    result = run_move(tmp_path, monkeypatch, "raise SystemError('boom')")
    assert result.state == UNKNOWN and "boom" in result.refusal


def test_what_the_helper_says_is_passed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert run_move(tmp_path, monkeypatch, say(RUNS, "no")) == checkpoint_runner.Moved(RUNS, "no")


def run_helpers(test: Callable[[Helpers], Awaitable[None]]) -> None:
    """With helpers that are ended afterwards."""

    async def run() -> None:
        helpers = Helpers("libcuda.so.1", "")
        try:
            await test(helpers)
        finally:
            await helpers.stop()

    asyncio.run(run())


def pid_of(answer: checkpoint_runner.Moved) -> int:
    """Of the helper that has said it."""
    return int(answer.refusal)


SAY_PID = 'print(json.dumps({"state": "running", "refused": str(os.getpid()), "begun": True}))'


async def move_with(helpers: Helpers, deadline_s: float = 20.0) -> checkpoint_runner.Moved:
    return await checkpoint_runner.move("evict", 1, "libcuda.so.1", "", deadline_s, helpers)


async def find_waiting(helpers: Helpers) -> int:
    assert helpers._waiting
    return (await helpers._waiting).pid


def test_a_helper_waits_for_the_next_move(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_helper(tmp_path, monkeypatch, SAY_PID)

    async def test(helpers: Helpers) -> None:
        helpers.keep("GPU-0")
        for _ in range(3):
            waiting = await find_waiting(helpers)
            assert pid_of(await move_with(helpers)) == waiting
        last = await find_waiting(helpers)
        await helpers.stop()
        assert not Path(f"/proc/{last}").exists()

    run_helpers(test)


def test_none_waits_for_long_where_no_move_is_expected(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_helper(tmp_path, monkeypatch, SAY_PID)
    monkeypatch.setattr(checkpoint_runner, "IDLE_S", 0.2)

    async def test(helpers: Helpers) -> None:
        helpers.keep("GPU-0")
        kept = await find_waiting(helpers)
        await asyncio.sleep(0.5)
        assert await find_waiting(helpers) == kept, "moves are expected"
        helpers.release("GPU-0")
        while helpers._waiting:
            await asyncio.sleep(0.05)
        assert pid_of(await move_with(helpers)) != kept, "a fresh one is as good"
        while helpers._waiting:
            await asyncio.sleep(0.05)

    run_helpers(test)


def test_a_helper_that_died_while_it_waited_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    put_helper(tmp_path, monkeypatch, SAY_PID)

    async def test(helpers: Helpers) -> None:
        helpers.keep("GPU-0")
        assert helpers._waiting
        made = await helpers._waiting
        os.kill(made.pid, signal.SIGKILL)
        await made.wait()
        assert pid_of(await move_with(helpers)) != made.pid

    run_helpers(test)


def test_a_helper_that_could_not_begin_is_replaced_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A device may have been lost and have come back since it loaded the driver. One that has begun is not."""
    used = f"open({str(tmp_path / 'used')!r}, 'a').write(action + ' ')"

    async def test(helpers: Helpers) -> None:
        helpers.keep("GPU-0")
        moved = await move_with(helpers)
        assert (moved.state, moved.refusal) == ("unknown", "no device")

    for begun, uses in ((False, 2), (True, 1)):
        put_helper(tmp_path, monkeypatch, f"{used}\n{say(UNKNOWN, 'no device', begun)}")
        run_helpers(test)
        assert (tmp_path / "used").read_text().split() == ["evict"] * uses
        (tmp_path / "used").unlink()


def test_a_helper_that_waited_and_hangs_is_killed_at_the_deadline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_helper(tmp_path, monkeypatch, f"time.sleep(1000 * (action == 'evict'))\n{say(AWAY)}")

    async def test(helpers: Helpers) -> None:
        helpers.keep("GPU-0")
        waiting = await find_waiting(helpers)
        assert await move_with(helpers, 1.5) == checkpoint_runner.Moved(AWAY, "the driver took longer than 1.5 s")
        while Path(f"/proc/{waiting}").exists():
            await asyncio.sleep(0.05)

    run_helpers(test)


@pytest.mark.parametrize(("parent_pid", "line"), [(os.getpid(), b""), (1, b"evict 1 1000\n")], ids=["input", "parent"])
def test_the_helper_ends_with_the_daemon(parent_pid: int, line: bytes) -> None:
    """It reads the end of its input, or finds that its daemon has ended before, and moves nothing."""
    command = [sys.executable, "-I", "-S", checkpoint_runner.HELPER, "libc.so.6", str(parent_pid)]
    made = subprocess.run(command, input=line, capture_output=True, check=True)
    assert made.stdout == b""


def test_a_driver_without_the_calls(tmp_path: Path) -> None:
    result = asyncio.run(checkpoint_runner.move("evict", 1, "libc.so.6", "", 20.0))
    assert "570" in result.refusal
    result = asyncio.run(checkpoint_runner.move("evict", 1, str(tmp_path / "none.so"), "", 20.0))
    assert "cannot load" in result.refusal
