"""Joins the terminal of a job: waits for its start, passes keys and output on, and leaves it running on request.

One call of the API lasts as long as the daemon; it is made again when that is restarted, and the job does not notice.
"""

from __future__ import annotations

import os
import queue
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.common.output import say
from vgpud.cli.jobs import detach_keys
from vgpud.cli.jobs.wait import AWAY_S, Progress, show_log, words
from vgpud.cli.jobs.window import Window
from vgpud.client import calls
from vgpud.errors import CliError, ExitCode
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.jobs import exit_code
from vgpud.view.user_names import named_users

_INTERRUPTED = 128 + signal.SIGINT


@dataclass(frozen=True)
class Options:
    """`is_new`: it was submitted for this: Ctrl-C cancels it while it waits, and it may have ended already."""

    keys: bytes  # that leave the terminal
    as_admin: bool = False
    quiet: bool = False
    is_new: bool = False


class _Session:
    """One job and the user's window, over all calls."""

    def __init__(self, settings: Settings, job_id: int, window: Window, progress: Progress, options: Options) -> None:
        self.settings = settings
        self.job_id = job_id
        self.window = window
        self.leaves = detach_keys.words(options.keys)
        self._progress = progress
        self._options = options
        self._keys = detach_keys.Finder(options.keys)
        self._requests: queue.SimpleQueue[pb.AttachJobRequest | None] = queue.SimpleQueue()
        self._is_connected = False
        self.has_joined = False
        self._is_away = False

    # ---- one call ----

    def requests(self) -> Iterator[pb.AttachJobRequest]:
        """Of a new call."""
        self._requests = queue.SimpleQueue()
        self._requests.put(
            self._add_window_size(pb.AttachJobRequest(job_id=self.job_id, as_admin=self._options.as_admin))
        )
        return iter(self._requests.get, None)

    def _add_window_size(self, request: pb.AttachJobRequest) -> pb.AttachJobRequest:
        size = self.window.size()
        if size:
            request.size.CopyFrom(pb.TerminalSize(rows=size[0], columns=size[1]))
        return request

    def close(self) -> None:
        """The thread that sends requests ends."""
        self._is_connected = False
        self._requests.put(None)

    def take(self, answer: pb.AttachJobResponse) -> pb.Job | None:
        """Shows it; the job if it has ended."""
        if answer.HasField("replay"):
            self._handle_join()
            self.window.show_again(answer.replay)
        elif answer.HasField("job"):
            job = answer.job
            if job.state in calls.ENDED:
                return job
            if self.window.is_given and (job.state != pb.JOB_STATE_RUNNING or job.reason):
                self.window.say(f"job {job.job_id} {words(job)} ({self.leaves} leaves this terminal)")
            elif not self.window.is_given:
                self._progress.show(job, 0)
        elif answer.notice:
            self.window.say(named_users(answer.notice))
        else:
            self.window.show(answer.output)
        return None

    def report_outage(self, why: str) -> None:
        """The daemon does not answer."""
        if not self._is_away:
            text = f"{why}; job {self.job_id} continues"
            self.window.say(f"{text}, keys are dropped until the daemon answers ({self.leaves} leaves)")
        self._is_away = True

    def _handle_join(self) -> None:
        self._progress.stop()
        if not self.has_joined and not self._options.quiet:
            again = f"`vgpu job attach {self.job_id}` joins it again"
            self.window.say(f"job {self.job_id} is running; {self.leaves} leaves its terminal, {again}")
        self.window.give()
        self._is_connected = True  # before this is said: what is typed then must arrive
        self._requests.put(self._add_window_size(pb.AttachJobRequest()))  # it may have changed while the job waited
        if self._is_away:
            self._is_away = False
            self.window.say(f"the daemon answers again: this is the terminal of job {self.job_id}")
        if not self.has_joined:
            self.has_joined = True
            threading.Thread(target=self._type, daemon=True).start()

    # ---- keys and signals ----

    def _type(self) -> None:
        for typed in self.window.read_keys():
            passed, leaves = self._keys.feed(typed)
            if passed and self._is_connected:
                self._requests.put(pb.AttachJobRequest(input=passed))
            if leaves:
                self.leave(0, f"left: job {self.job_id} continues, `vgpu job attach {self.job_id}` joins it again")
        self.leave(128 + signal.SIGHUP)

    def leave(self, code: int, text: str = "") -> None:
        """Ends this command at once and from any thread: grpc's own would wait for its calls."""
        try:
            self.window.restore()
            self._progress.stop()
            if text and not self._options.quiet:
                sys.stderr.write("\r\n")
                say(text)
                sys.stderr.flush()
        finally:  # also if the window has gone
            os._exit(code)

    def handle_resize(self, *_: object) -> None:
        if self._is_connected:
            self._requests.put(self._add_window_size(pb.AttachJobRequest()))

    def handle_continue(self, *_: object) -> None:
        """After a stop from outside, in which a shell has changed the terminal."""
        if self.window.is_given:
            self.window.give()
        self.handle_resize()

    def handle_interrupt(self, *_: object) -> None:
        """Ctrl-C, which is the job's own while it runs."""
        if self._options.is_new and not self.has_joined:
            threading.Thread(target=self._cancel, daemon=True).start()  # grpc is in the middle of a call here
        else:
            self.leave(_INTERRUPTED, f"job {self.job_id} continues: `vgpu job cancel {self.job_id}` would end it")

    def _cancel(self) -> None:
        try:
            with Client(self.settings) as client:
                client.send(calls.cancel(self.job_id))
        except CliError as error:
            self.leave(_INTERRUPTED, f"job {self.job_id} may still wait: {error.message}")
        self.leave(_INTERRUPTED, f"job {self.job_id} is cancelled")

    def leave_on_signal(self, number: int, _: FrameType | None = None) -> None:
        self.leave(128 + number, f"job {self.job_id} continues")


def attach(settings: Settings, job_id: int, options: Options) -> int:
    """Until the job has ended, with its exit code; or until another viewer has joined it."""
    with Window() as window, Progress(settings, 1, options.quiet) as progress:
        session = _Session(settings, job_id, window, progress, options)
        with _signals(session):
            job = _until_end(session, options.is_new)
    if job is None:
        return ExitCode.OK
    if job.attempt and not session.has_joined:
        _show_missed(settings, job_id)
    if not options.quiet and job.state != pb.JOB_STATE_COMPLETED:
        say(f"job {job.job_id} ({job.spec.name}) {words(job)}")
    return exit_code(job)


def _show_missed(settings: Settings, job_id: int) -> None:
    """The output of a job that ended before its terminal could be joined."""
    try:
        show_log(settings, job_id, follow=False, lines=None, member=0)
    except CliError as error:
        say(error.message)


def _until_end(session: _Session, is_new: bool) -> pb.Job | None:
    """The job when it has ended; None: another viewer has joined it. Raises CliError."""
    is_known = is_new
    while True:
        try:
            with Client(session.settings) as client:
                if is_known and (job := client.send(calls.job(session.job_id))).state in calls.ENDED:
                    return job
                for answer in client.watch(calls.attach_job(session.requests())):
                    is_known = True
                    ended = session.take(answer)
                    if ended is not None:
                        return ended
                return None
        except CliError as error:
            if is_known and error.exit_code == ExitCode.CONFLICT:  # it has ended in between
                with Client(session.settings) as client:
                    if (job := client.send(calls.job(session.job_id))).state in calls.ENDED:
                        return job
            if not is_known or error.exit_code != ExitCode.UNREACHABLE:
                raise
            session.report_outage(error.message)
        except OSError:  # no process reads what the job prints: `vgpu job attach 7 | head`
            session.leave_on_signal(signal.SIGPIPE)
        finally:
            session.close()
        time.sleep(AWAY_S)


@contextmanager
def _signals(session: _Session) -> Iterator[None]:
    handlers: dict[signal.Signals, Callable[[int, FrameType | None], None]] = {
        signal.SIGWINCH: session.handle_resize,
        signal.SIGCONT: session.handle_continue,
        signal.SIGINT: session.handle_interrupt,
        signal.SIGTERM: session.leave_on_signal,
        signal.SIGHUP: session.leave_on_signal,
    }
    before = {number: signal.signal(number, handler) for number, handler in handlers.items()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
