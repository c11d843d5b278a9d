"""Terminals of jobs through the API: a real daemon, real supervisors, and shells that are typed to."""

from __future__ import annotations

import asyncio
import os
import queue
import signal
import stat
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path
from typing import Any

import grpc
import pytest
from google.protobuf.duration_pb2 import Duration

from tests.daemon.jobs.queue_node import MISSING, QueueNode, queue_node
from tests.daemon.node import PATIENCE_S, wait_until
from vgpud.client import AsyncClient, Client, calls
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = pytest.mark.skipif(MISSING, reason="the native part is not built: python shim/build_shim.py")

PROMPT = "READY> "
SHELL = f"PS1='{PROMPT}' exec bash --norc --noprofile -i"


class Call:
    """One AttachJob, read by a thread."""

    def __init__(self, node: QueueNode, job_id: int, size: tuple[int, int] | None = (40, 100), **hello: Any) -> None:
        self._requests: queue.Queue[pb.AttachJobRequest | None] = queue.Queue()
        self.replay: bytes | None = None
        self.output = b""
        self.jobs: list[pb.Job] = []
        self.notices: list[str] = []
        self.error: grpc.RpcError | None = None
        first = pb.AttachJobRequest(job_id=job_id, **hello)
        if size:
            first.size.CopyFrom(pb.TerminalSize(rows=size[0], columns=size[1]))
        self._requests.put(first)
        self._call = node.jobs.AttachJob(iter(self._requests.get, None))
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        try:
            for answer in self._call:
                if answer.HasField("job"):
                    self.jobs.append(answer.job)
                elif answer.HasField("replay"):
                    self.replay = (self.replay or b"") + answer.replay
                elif answer.notice:
                    self.notices.append(answer.notice)
                else:
                    self.output += answer.output
        except grpc.RpcError as error:
            self.error = error

    @property
    def all_output(self) -> bytes:
        return (self.replay or b"") + self.output

    def type(self, text: str) -> None:
        self._requests.put(pb.AttachJobRequest(input=text.encode()))

    def send(self, **fields: Any) -> None:
        self._requests.put(pb.AttachJobRequest(**fields))

    def until(self, text: str) -> None:
        wait_until(
            lambda: text.encode() in self.all_output,
            f"{text!r}; there is {self.all_output!r}, {self.jobs}, {self.error}",
        )

    def run(self, line: str, answer: str) -> None:
        """Types a line at the prompt, and waits for what it prints."""
        self.until(PROMPT)  # what is typed before the terminal has been joined is dropped
        before = self.all_output.count(PROMPT.encode())
        self.type(f"{line}\n")
        self.until(answer)
        wait_until(
            lambda: self.all_output.count(PROMPT.encode()) > before, f"a prompt after {line!r}: {self.all_output!r}"
        )

    def leave(self) -> None:
        self._call.cancel()
        self.wait()

    def wait(self) -> None:
        self._thread.join(PATIENCE_S)
        assert not self._thread.is_alive()

    def refusal(self) -> tuple[grpc.StatusCode, str]:
        self.wait()
        assert self.error is not None
        return self.error.code(), str(self.error.details())  # type: ignore[attr-defined]


@pytest.fixture(scope="module")
def shared_queue(fake_driver: Path) -> Iterator[QueueNode]:
    from tests.daemon.node import own_node

    with own_node(fake_driver) as node, queue_node(node, job_grace_s="10") as made:
        yield made.start()


Submit = Callable[..., int]


@pytest.fixture
def submit(shared_queue: QueueNode) -> Iterator[Submit]:
    made: list[int] = []

    def one(script: str = SHELL, milli: int = 100, **fields: Any) -> int:
        made.extend(shared_queue.submit(script, milli, terminal=True, **fields))
        return made[-1]

    yield one
    for job_id in made:
        if shared_queue.get(job_id).state not in calls.ENDED:
            shared_queue.jobs.CancelJob(pb.CancelJobRequest(job_id=job_id))
            shared_queue.wait_for_end(job_id)


def test_a_shell(shared_queue: QueueNode, submit: Submit) -> None:
    job_id = submit()
    call = Call(shared_queue, job_id)
    call.until(PROMPT)
    call.run("stty size", "40 100")
    call.run("tty </dev/tty; test -t 2 && echo on-a-terminal", "on-a-terminal")
    call.send(size=pb.TerminalSize(rows=11, columns=33))
    call.run("stty size", "11 33")
    call.type("sh -c 'echo started-$((1 + 1)); sleep 1000'\n")
    call.until("started-2")
    call.type("\x03")  # Ctrl-C
    call.until("^C")
    call.type("\n")  # the kernel flushes output with the signal, perhaps the prompt as well
    wait_until(lambda: call.all_output.endswith(PROMPT.encode()), "the prompt again")
    call.run("echo after-$((6 * 7))", "after-42")
    call.type("exit 7\n")
    call.wait()
    assert call.error is None
    assert [(job.state, job.exit_code) for job in call.jobs[-1:]] == [(pb.JOB_STATE_FAILED, 7)]
    log = shared_queue.read_file(f"{job_id}.log")
    assert "after-42" in log and "11 33" in log


def test_leaving_and_joining_again(shared_queue: QueueNode, submit: Submit) -> None:
    job_id = submit()
    first = Call(shared_queue, job_id)
    first.run("echo one-$((1 + 1))", "one-2")
    first.type("echo soon-$((5 * 5)); sleep 0.3; echo two-$((1 + 2))\n")
    first.until("soon-25")
    first.leave()
    assert shared_queue.get(job_id).state == pb.JOB_STATE_RUNNING
    wait_until(lambda: "two-3" in shared_queue.read_file(f"{job_id}.log"), "output with nobody there")
    second = Call(shared_queue, job_id)
    wait_until(lambda: second.replay is not None, "the output of before")
    assert second.replay and b"one-2" in second.replay and b"two-3" in second.replay
    second.run("echo three-$((1 + 3))", "three-4")
    second.type("exit\n")
    second.wait()
    assert second.jobs[-1].state == pb.JOB_STATE_COMPLETED


def test_joined_again_the_window_is_drawn_again(shared_queue: QueueNode, submit: Submit) -> None:
    job_id = submit("trap 'echo drawn' WINCH; echo begun; while :; do sleep 0.05; done")
    first = Call(shared_queue, job_id, size=(50, 90))
    first.until("drawn")
    first.leave()
    second = Call(shared_queue, job_id, size=(50, 90))
    wait_until(lambda: b"drawn" in second.output, "a window that is drawn anew although its size is the same")


def test_the_next_viewer_takes_over(shared_queue: QueueNode, submit: Submit) -> None:
    job_id = submit()
    first = Call(shared_queue, job_id)
    first.until(PROMPT)
    second = Call(shared_queue, job_id)
    second.run("echo mine-$((2 * 2))", "mine-4")
    first.wait()
    assert first.error is None
    assert first.notices == [f"uid {os.getuid()} has joined the terminal of job {job_id} from elsewhere"]
    assert b"mine-4" not in first.all_output


def test_a_restart_of_the_daemon(shared_queue: QueueNode, submit: Submit) -> None:
    for number in (signal.SIGTERM, signal.SIGKILL):
        job_id = submit()
        first = Call(shared_queue, job_id)
        first.run("here=$$; echo before-$((3 * 3))", "before-9")
        shared_queue.restart(number)
        first.wait()
        assert first.error is not None
        second = Call(shared_queue, job_id)
        second.run("test $here = $$ && echo same-$((3 * 4))", "same-12")
        assert second.replay and b"before-9" in second.replay
        second.type("exit 3\n")
        second.wait()
        assert second.jobs[-1].exit_code == 3


def test_a_job_that_waits(shared_queue: QueueNode, submit: Submit) -> None:
    job_id = submit("echo said; exit 5", hold=True)
    call = Call(shared_queue, job_id, size=None)
    wait_until(lambda: call.jobs, "its state")
    assert call.jobs[0].state == pb.JOB_STATE_HELD
    call.type("dropped while it waits\n")
    shared_queue.jobs.ReleaseJob(pb.ReleaseJobRequest(job_id=job_id))
    call.wait()
    assert call.jobs[-1].exit_code == 5
    assert call.all_output == b"said\r\n", "what a short job prints is seen, and what was typed before is not"


def test_short_jobs_that_no_user_watches(shared_queue: QueueNode, submit: Submit) -> None:
    """Many side by side: each is over before its keeper has begun, and yet has its output in its log."""
    ids = [submit("echo said; exit 6", 50) for _ in range(30)]
    assert {shared_queue.wait_for_end(job_id).exit_code for job_id in ids} == {6}
    assert {shared_queue.read_file(f"{job_id}.log") for job_id in ids} == {"said\n"}
    job_id = ids[0]
    code, text = Call(shared_queue, job_id).refusal()
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert text == f"job {job_id} has ended (failed): `vgpu job logs {job_id}` shows its output"


def test_a_requeued_job_is_joined_again(shared_queue: QueueNode, submit: Submit) -> None:
    job_id = submit("echo attempt-$VGPU_JOB_ATTEMPT; exec sleep 1000")
    call = Call(shared_queue, job_id)
    call.until("attempt-1")
    shared_queue.jobs.RequeueJob(pb.RequeueJobRequest(job_id=job_id))
    call.until("attempt-2")
    assert {job.attempt for job in call.jobs} >= {1, 2}


def test_a_shell_that_ignores_sigterm_is_hung_up(shared_queue: QueueNode, submit: Submit) -> None:
    """An interactive bash does; its grace of 10 s need not run out."""
    job_id = submit("trap 'echo bye; exit 0' TERM; bash --norc --noprofile -ic 'sleep 1000'; exec bash --norc -i")
    call = Call(shared_queue, job_id)
    wait_until(lambda: call.replay is not None, "its terminal")
    shell = submit()
    at = Call(shared_queue, shell)
    at.until(PROMPT)
    for one in (job_id, shell):
        shared_queue.jobs.CancelJob(pb.CancelJobRequest(job_id=one))
        shared_queue.wait_for_end(one)
    at.wait()
    assert at.jobs[-1].state == pb.JOB_STATE_CANCELLED
    result = shared_queue.get(shell)
    assert result.exit_code == 129, "SIGHUP, not SIGKILL after the grace"


def test_a_preempted_job_continues(shared_queue: QueueNode, submit: Submit) -> None:
    """Said as its state; its GPU calls wait, and its terminal stays."""
    rules = pb.Queue(name="gives-way", policy="priority(preempt)", min_run=Duration(nanos=1))
    shared_queue.queues.SetQueue(pb.SetQueueRequest(queue=rules))
    job_id = submit(milli=1000, queue=rules.name)
    call = Call(shared_queue, job_id)
    call.run("here=$$", "here")
    others = [submit("sleep 1000", 1000, priority=5, queue=rules.name) for _ in range(2)]
    wait_until(lambda: call.jobs[-1].state == pb.JOB_STATE_SUSPENDED, "its suspension")
    call.run("echo meanwhile-$((2 * 8))", "meanwhile-16")
    for other in others:
        shared_queue.jobs.CancelJob(pb.CancelJobRequest(job_id=other))
    wait_until(lambda: call.jobs[-1].state == pb.JOB_STATE_RUNNING, "its continuation")
    call.run("test $here = $$ && echo same-$((2 * 9))", "same-18")


def test_a_time_limit(shared_queue: QueueNode, submit: Submit) -> None:
    job_id = submit(time_limit=Duration(seconds=1))
    call = Call(shared_queue, job_id)
    call.wait()
    assert call.jobs[-1].state == pb.JOB_STATE_TIMED_OUT and "time limit" in call.jobs[-1].reason


def test_much_output_with_no_viewer_there(shared_queue: QueueNode, submit: Submit) -> None:
    job_id = submit("head -c 50000000 /dev/zero | tr '\\0' 'x' | fold -w 99; echo; echo end-of-it; exec sleep 1000")
    wait_until(lambda: "end-of-it" in shared_queue.read_file(f"{job_id}.log")[-40:], "all of the output")
    call = Call(shared_queue, job_id)
    call.until("end-of-it")
    assert call.replay is not None and 60_000 < len(call.replay) <= 65_536 and call.replay.startswith(b"x" * 99)
    size = (shared_queue.work / f"{job_id}.log").stat().st_size
    assert size > 50_000_000


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({"array_indices": [1, 2]}, "for an array"),
        ({"members": 2}, "for a gang of 2"),
        ({"elastic": pb.ElasticSpec(workers_min=1, workers_max=2)}, "for elastic workers"),
    ],
)
def test_refused(shared_queue: QueueNode, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(grpc.RpcError, match=text):
        shared_queue.submit("true", terminal=True, **fields)


def test_refused_calls(shared_queue: QueueNode, submit: Submit) -> None:
    plain = shared_queue.submit("sleep 1000")[0]
    code, text = Call(shared_queue, plain).refusal()
    assert code is grpc.StatusCode.FAILED_PRECONDITION
    assert text == f"job {plain} was submitted without --pty: `vgpu job logs -f {plain}` follows its output"
    shared_queue.jobs.CancelJob(pb.CancelJobRequest(job_id=plain))
    assert Call(shared_queue, 10**6).refusal()[0] is grpc.StatusCode.NOT_FOUND
    job_id = submit()
    for size in ((0, 1), (1, 0), (65536, 1), (1, 2**32 - 1)):
        assert Call(shared_queue, job_id, size=size).refusal()[0] is grpc.StatusCode.INVALID_ARGUMENT
    call = Call(shared_queue, job_id)
    call.until(PROMPT)
    call.send(input=b"x" * 4097)
    assert call.refusal() == (grpc.StatusCode.INVALID_ARGUMENT, "input of 4097 bytes: send at most 4096 in a message")


def test_the_python_client(shared_queue: QueueNode, submit: Submit) -> None:
    """Both clients: what is typed, what comes back, and the end."""
    host = f"unix://{shared_queue.node.runtime / 'vgpud.sock'}"
    lines = [b"echo sum-$((20 + 3))\n", b"exit\n"]
    with Client(host) as client:
        typed: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        seen = b""
        for output in client.attach_job(submit(), iter(typed.get, None), rows=12, columns=34):
            seen += output
            if seen.count(PROMPT.encode()) == 1 and lines:
                for line in lines:
                    typed.put(line)
                lines = []
    assert b"sum-23" in seen

    async def other(job_id: int) -> bytes:
        async def type_lines() -> AsyncIterator[bytes]:
            await there_is.wait()
            yield b"echo sum-$((30 + 4)); exit\n"

        there_is, seen = asyncio.Event(), b""
        async with AsyncClient(host) as client:
            async for output in client.attach_job(job_id, type_lines()):
                seen += output
                if PROMPT.encode() in seen:
                    there_is.set()
        return seen

    assert b"sum-34" in asyncio.run(asyncio.wait_for(other(submit()), PATIENCE_S))


def test_no_other_user_reaches_the_socket(shared_queue: QueueNode, submit: Submit) -> None:
    job_id = submit()
    Call(shared_queue, job_id).until(PROMPT)
    attempt = shared_queue.node.state / "jobs" / f"{job_id}.1"
    assert (attempt / "terminal").is_socket()
    assert stat.S_IMODE(attempt.stat().st_mode) == 0o700
    assert stat.S_IMODE((shared_queue.node.state / "jobs").stat().st_mode) == 0o700
