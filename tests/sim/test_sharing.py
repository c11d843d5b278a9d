"""Several processes on one simulated device: shares from its own busy log, memory across processes, sudden death."""

from __future__ import annotations

import contextlib
import errno
import itertools
import mmap
import os
import signal
import socket
import statistics
import struct
import time
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from vgpud.simdevice import control, state_page
from vgpud.simdevice.busy_log import Span, mean_share
from vgpud.simdevice.process import SimulatedDevice

from .conftest import MakeDevice, MakeProgram, Running, run

Start = Callable[..., Running]
GIB = 1 << 30
MIB = 1 << 20
NEEDS_ROOT = pytest.mark.skipif(os.geteuid() != 0, reason="root alone sets time slices")


def _saturate(
    start: Start, sim_device: SimulatedDevice, *arguments: tuple[object, ...]
) -> tuple[list[Running], int, int]:
    """Starts saturating programs together; the time in which all of them were at work."""
    running = [start(sim_device, "saturate", *each) for each in arguments]
    for one in running:
        one.line()
    for one in running:
        one.go()
    said = [one.line() for one in running]
    assert [one.end() for one in running] == [0] * len(running)
    return running, max(one["begin_ns"] for one in said) + 50_000_000, min(one["end_ns"] for one in said)


def _total(spans: list[Span], begin_ns: int, end_ns: int) -> float:
    return sum(mean_share(spans, pid, begin_ns, end_ns) for pid in {span.pid for span in spans})


@pytest.mark.alone
def test_two_processes_get_equal_shares(device: MakeDevice, start: Start) -> None:
    """Round robin in slices, kernels longer than a slice included; the switches cost 20 us in 1024."""
    made = device()
    running, begin_ns, end_ns = _saturate(start, made, (1000, 1.5), (250, 1.5))
    spans = made.busy_log()
    shares = [mean_share(spans, one.process.pid, begin_ns, end_ns) for one in running]
    assert abs(shares[0] - shares[1]) < 0.02
    assert 0.96 < sum(shares) <= 1


@pytest.mark.alone
def test_one_process_has_the_whole_device(device: MakeDevice, start: Start) -> None:
    made = device()
    running, begin_ns, end_ns = _saturate(start, made, (1000, 1.0))
    assert mean_share(made.busy_log(), running[0].process.pid, begin_ns, end_ns) > 0.99


@pytest.mark.alone
@pytest.mark.parametrize(
    ("slice_us", "length"), [(2000, 0), pytest.param(500, 3, marks=NEEDS_ROOT), pytest.param(4000, 1, marks=NEEDS_ROOT)]
)
def test_slices_take_turns(device: MakeDevice, start: Start, slice_us: int, length: int) -> None:
    """While both have work neither is served for longer than a slice, and spans never overlap. A short slice is half of
    the default one, a long one is four."""
    made = device(slice_us=slice_us, switch_us=100)
    if length:
        control.tell_time_slice(made.directory, 0, length)
    _, begin_ns, end_ns = _saturate(start, made, (10000, 1.0), (1000, 1.0))
    spans = sorted(
        (s for s in made.busy_log() if begin_ns < s.begin_ns < end_ns - 50_000_000), key=lambda s: s.begin_ns
    )
    served_ns = longest_ns = 0
    for before, after in itertools.pairwise(spans):
        assert after.begin_ns >= before.end_ns
        served_ns = served_ns + before.end_ns - before.begin_ns
        longest_ns = max(longest_ns, served_ns)
        assert served_ns <= 2_000_000
        if after.pid != before.pid:
            assert after.begin_ns - before.end_ns >= 100_000
            served_ns = 0
    assert longest_ns > 1_900_000, "a whole slice is used"
    assert _total(spans, spans[0].begin_ns, spans[-1].end_ns) > 0.9


@pytest.mark.alone
def test_a_program_that_waits_each_time_is_served_beside_one_that_never_does(device: MakeDevice, start: Start) -> None:
    made = device()
    running, begin_ns, end_ns = _saturate(start, made, (1000, 1.5), (100, 1.5, "sync"))
    spans = made.busy_log()
    assert mean_share(spans, running[1].process.pid, begin_ns, end_ns) > 0.02
    assert _total(spans, begin_ns, end_ns) > 0.9


@pytest.mark.alone
def test_events_wait_for_their_context_as_kernels_do(device: MakeDevice, start: Start) -> None:
    """Else the pair would measure how long the kernel waited for another context, half a slice in the median."""
    made = device()
    busy = start(made, "saturate", 1000, 30)
    busy.line()
    busy.go()
    timed = start(made, "timed", 100, 200)
    taken_us = timed.line()["taken_us"]
    assert timed.end() == 0
    assert 100 <= statistics.median(taken_us) < 150


@pytest.mark.alone
def test_a_stopped_process_stops_no_other(device: MakeDevice, start: Start) -> None:
    made = device()
    first, second = start(made, "saturate", 1000, 30), start(made, "saturate", 1000, 2)
    for one in (first, second):
        one.line()
        one.go()
    time.sleep(0.3)
    first.process.send_signal(signal.SIGSTOP)
    said = second.line()
    assert second.end() == 0
    assert _total(made.busy_log(), said["begin_ns"], said["end_ns"]) > 0.95
    first.process.send_signal(signal.SIGCONT)
    time.sleep(0.1)
    assert first.process.poll() is None


def test_memory_is_counted_over_processes(device: MakeDevice, start: Start) -> None:
    made = device(memory_bytes="1G", context_bytes="100M")
    first = start(made, "hold", 700 * MIB)
    assert first.line()["code"] == 0
    second = start(made, "hold", 124 * MIB + 1)
    assert second.line()["code"] == 2  # 124 MiB are left beside two contexts
    third_bytes = GIB - 700 * MIB - 3 * 100 * MIB
    third = start(made, "hold", third_bytes - third_bytes % (2 * MIB))
    assert third.line()["code"] == 0
    assert first.end() == 0  # a normal end gives all back as well
    fourth = start(made, "hold", 600 * MIB)
    assert fourth.line()["code"] == 0


@pytest.mark.alone
def test_kill_gives_everything_back(device: MakeDevice, start: Start) -> None:
    made = device(memory_bytes="1G", context_bytes="100M")
    holder = start(made, "hold", 800 * MIB, 10000)
    assert holder.line()["code"] == 0
    watcher = start(made, "watch", 924 * MIB)
    assert watcher.line()["free"] == 24 * MIB
    killed_ns = time.monotonic_ns()
    holder.process.kill()
    back = watcher.line()
    assert back["free"] == 924 * MIB
    assert back["time_ns"] - killed_ns < 2_000_000_000  # benchmarks/ measures how long it takes
    last_ns = max(span.end_ns for span in made.busy_log())
    assert last_ns < killed_ns + 500_000_000  # of the second of work that was queued most was dropped


def test_a_forked_child_does_not_hold_the_device(device: MakeDevice, start: Start) -> None:
    """The child keeps the socket open; the parent's end is seen all the same."""
    made = device(memory_bytes="1G", context_bytes="100M")
    holder = start(made, "hold", 800 * MIB, 10, "fork")
    assert holder.line()["code"] == 0
    watcher = start(made, "watch", 924 * MIB)
    watcher.line()
    holder.process.kill()
    assert watcher.line()["free"] == 924 * MIB


def test_waiters_are_let_go_when_the_server_ends(device: MakeDevice, start: Start) -> None:
    made = device()
    holder = start(made, "saturate", 40000, 60)
    holder.line()
    holder.go()
    time.sleep(0.5)  # a thousand launches of 40 ms: it waits
    os.kill(made.pid, signal.SIGKILL)
    assert holder.process.wait(60) == 1  # and says which call answered what


def _hello(sim_device: SimulatedDevice) -> tuple[socket.socket, list[int]]:
    link = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    link.connect(str(sim_device.directory / "sock"))
    link.send(struct.pack("=IIIIIIQ32s", state_page.MAGIC, state_page.VERSION, 1, 0, 0, 0, 0, b"garbage"))
    _, fds, _, _ = socket.recv_fds(link, 64, 4)
    return link, list(fds)


def test_a_process_that_writes_garbage_is_thrown_out(device: MakeDevice, program: MakeProgram) -> None:
    made = device()
    link, fds = _hello(made)
    with mmap.mmap(fds[0], 0) as ring:
        ring[4096 : 4096 + 64 * 100] = os.urandom(64 * 100)
        ring[0:8] = struct.pack("=Q", 100)
        with contextlib.suppress(BrokenPipeError):  # it may have been looked at already
            link.send(struct.pack("=IIIIIIQ32s", state_page.MAGIC, state_page.VERSION, 6, 0, 0, 0, 0, b""))
        link.settimeout(20)
        assert link.recv(64) == b""
    other, other_fds = _hello(made)
    other.send(b"not a request")
    other.settimeout(20)
    assert other.recv(64) == b""
    for fd in [*fds, *other_fds]:
        os.close(fd)
    link.close()
    other.close()
    assert run(program("copies"), made) == "ok\n"  # the server is unharmed


ALLOC, FREE, ARENA, SHARE_MAKE, SHARE_OPEN, SHARE_CLOSE = 2, 3, 7, 8, 9, 10
LOCK, SAVE, RESTORE = 15, 16, 17
#: struct sim_request and struct sim_reply of wire.h
REQUEST, REPLY = struct.Struct("=IIIIIIQQQQII"), struct.Struct("=IiQQIIQQQII")


def _ask(link: socket.socket, kind: int, size: int = 0, key: int = 0, who: int = 0, fds: Sequence[int] = ()) -> Any:
    """(magic, status, free bytes, bytes, device, 0, key, ...) of the answer."""
    socket.send_fds(
        link, [REQUEST.pack(state_page.MAGIC, state_page.VERSION, kind, 0, who, 0, size, key, 0, 0, 1, 1)], list(fds)
    )
    said, more, _, _ = socket.recv_fds(link, REPLY.size, 4)
    for fd in more:
        os.close(fd)
    return REPLY.unpack(said)


def test_descriptors_that_no_process_asked_for_do_not_pile_up(device: MakeDevice) -> None:
    made = device()
    link, fds = _hello(made)
    _ask(link, FREE, fds=fds[:2])
    before = len(os.listdir(f"/proc/{made.pid}/fd"))
    for _ in range(10):
        assert _ask(link, FREE, fds=fds[:2])[1] == 0
    assert len(os.listdir(f"/proc/{made.pid}/fd")) == before
    for fd in fds:
        os.close(fd)
    link.close()


def test_what_a_process_is_charged_while_it_is_moved_off_stays_its_own(device: MakeDevice) -> None:
    """A call of it was under way: it opens what another process has made, which then lets go."""
    made = device()
    (maker, fds), (other, more) = _hello(made), _hello(made)
    arena = os.memfd_create("arena")
    assert _ask(maker, ARENA, fds=[arena])[1] == _ask(maker, ALLOC, MIB)[1] == 0
    key = _ask(maker, SHARE_MAKE, MIB)[6]
    assert [_ask(maker, kind, who=os.getpid())[1] for kind in (LOCK, SAVE)] == [0, 0], "the one that came last"
    assert [_ask(link, kind, key=key)[1] for link, kind in ((other, SHARE_OPEN), (maker, SHARE_CLOSE))] == [0, 0]
    assert _ask(maker, RESTORE, who=os.getpid())[1] == 0
    assert _ask(other, SHARE_CLOSE, key=key)[1] == 1
    assert _ask(other, FREE, MIB)[1] == -errno.EINVAL, "it has nothing"
    for fd in (arena, *fds, *more):
        os.close(fd)
    maker.close()
    other.close()


def test_no_process_writes_completions_but_the_server(device: MakeDevice) -> None:
    link, fds = _hello(device())
    try:
        mmap.mmap(fds[1], 4096)
    except PermissionError:
        pass
    else:
        raise AssertionError("the completion area can be mapped for writing")
    finally:
        for fd in fds:
            os.close(fd)
        link.close()


@pytest.mark.alone
def test_the_server_sleeps_when_nothing_is_to_be_done(device: MakeDevice, start: Start) -> None:
    made = device()
    holder = start(made, "hold", MIB, 10)
    holder.line()
    time.sleep(0.3)
    before = made.cpu_seconds()
    time.sleep(1)
    assert made.cpu_seconds() - before <= 0.02


@pytest.mark.alone
def test_kernels_of_20_us_saturate_the_device_for_little_of_a_core(device: MakeDevice, start: Start) -> None:
    """The wide form of what benchmarks/ measures: this machine may be busy with other tests."""
    made = device()
    before = made.cpu_seconds()
    running, begin_ns, end_ns = _saturate(start, made, (20, 2.0))
    assert mean_share(made.busy_log(), running[0].process.pid, begin_ns, end_ns) > 0.7
    assert made.cpu_seconds() - before < 0.5


@pytest.mark.alone
def test_a_process_that_was_idle_for_long_is_served_at_once(
    device: MakeDevice, program: MakeProgram, start: Start
) -> None:
    """Its ring is not looked at meanwhile, while the server is awake for another one."""
    made = device()
    busy = start(made, "saturate", 1000, 30)
    busy.line()
    busy.go()
    assert run(program("dozes"), made) == "ok\n"
