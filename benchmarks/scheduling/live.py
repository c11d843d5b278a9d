"""The queue of a real daemon on simulated devices, killed and started again while 200 jobs of two users go through it.

All must end as they were written, none twice, no quota exceeded at any look; then how soon a job starts that fits,
and whether a preempted one finds its memory as it was. Needs root, for two users who need not exist.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
import uuid
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness
from benchmarks.scheduling.live_jobs import Submission, make_submissions
from benchmarks.table import YES, Figure, at_most, equal_to
from vgpud.cli.common.client import Client
from vgpud.cli.common.options import Settings
from vgpud.cli.demo.private_system import ROOT, OwnSystem, PartError, wait_for
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

JOBS = 200
KILLS, RESTARTS = 8, 3  # by SIGKILL, by SIGTERM
UIDS = (64_001, 64_002)
QUEUES = ("alpha", "beta")
LIMITS_MILLI = (2500, 2000)
DEVICES = 4
STARTS = 60
END_S = 300.0
ENDED = calls.ENDED
NONE = equal_to(0)
ALL = YES
_SERVICE = "/vgpud.v1alpha1.JobService/"


class User:
    """One of the two, with a process of its own that asks on the user's behalf."""

    def __init__(self, system: OwnSystem, index: int) -> None:
        self.uid = UIDS[index]
        self.work = system.folder / f"user{index}"
        self.work.mkdir()
        os.chown(self.work, self.uid, self.uid)
        command = [sys.executable, "-m", "benchmarks.scheduling.live_user", system.host, str(self.uid)]
        pipe = subprocess.PIPE
        self._process = subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, cwd=ROOT)

    def ask(self, method: str, request: Any, answer: Any) -> Any:
        """The answer, or the name of the status code."""
        assert self._process.stdin
        assert self._process.stdout
        line = json.dumps([_SERVICE + method, base64.b64encode(request.SerializeToString()).decode()])
        self._process.stdin.write(line + "\n")
        self._process.stdin.flush()
        code, text, body = json.loads(self._process.stdout.readline())
        if code == "OK":
            return answer.FromString(base64.b64decode(body))
        if code != "PERMISSION_DENIED":
            raise PartError(f"{method}: {code}: {text}")
        return code

    def submit(self, script: str, milli: int, **fields: Any) -> list[int]:
        """Ids of the jobs."""
        spec = pb.JobSpec(
            slice=pb.SliceSpec(gpus_milli=milli),
            command=["sh", "-c", script],
            directory=str(self.work),
            log=str(self.work / "%j.log"),
            umask=0o22,
            environment={"PATH": "/usr/bin:/bin"},
            **fields,
        )
        request = pb.SubmitJobRequest(request_id=str(uuid.uuid4()), spec=spec)
        answer = self.ask("SubmitJob", request, pb.SubmitJobResponse)
        if isinstance(answer, str):
            raise PartError(f"SubmitJob: {answer}")
        return list(answer.job_ids)

    def jobs(self) -> dict[int, pb.Job]:
        """All of this user's."""
        found: dict[int, pb.Job] = {}
        token = ""
        while True:
            answer = self.ask("ListJobs", pb.ListJobsRequest(include_ended=True, page_token=token), pb.ListJobsResponse)
            found |= {job.job_id: job for job in answer.jobs}
            token = answer.next_page_token
            if not token:
                return found

    def job(self, job_id: int) -> pb.Job:
        found: pb.Job = self.ask("GetJob", pb.GetJobRequest(job_id=job_id), pb.GetJobResponse).job
        return found

    def close(self) -> None:
        assert self._process.stdin
        self._process.stdin.close()
        self._process.wait()


def _queues(system: OwnSystem) -> Client:
    return Client(Settings(host=system.host))


@contextlib.contextmanager
def live_system() -> Iterator[tuple[OwnSystem, list[User]]]:
    """A daemon that every user may ask, a queue with a limit for each user."""
    with tempfile.TemporaryDirectory(prefix="vgpu-live-") as name:
        folder = Path(name)
        folder.chmod(0o755)
        device = {"devices": str(DEVICES), "memory_bytes": str(8 << 30)}
        with OwnSystem(folder, device, ['socket_mode = "0666"', "job_grace_s = 2", "job_priority_max = 10"]) as system:
            users = [User(system, index) for index in range(len(UIDS))]
            with _queues(system) as client:
                for queue, limit, user in zip(QUEUES, LIMITS_MILLI, users, strict=True):
                    given = pb.Queue(name=queue, limit_milli=limit, members=[f"uid:{user.uid}"])
                    client.send(calls.set_queue(given, []))
            yield system, users
            for user in users:
                user.close()


# ---- the mixture ----


def submit_all(users: Sequence[User], submissions: Sequence[Submission]) -> dict[int, Submission]:
    """Every job's request, by its number."""
    placed: list[list[int]] = []
    known: dict[int, Submission] = {}
    for submission in submissions:
        fields: dict[str, Any] = {
            "priority": submission.priority,
            "members": submission.members,
            "retries": submission.retries,
        }
        if submission.array:
            fields["array_indices"] = range(1, submission.array + 1)
        if submission.limit_s:
            fields["time_limit"] = {"nanos": int(submission.limit_s * 1e9)}
        if submission.after:
            fields |= {
                "after": [i for place in submission.after for i in placed[place]],
                "after_any": submission.after_any,
            }
        ids = users[submission.user].submit(submission.script, submission.milli, **fields)
        placed.append(ids)
        known |= dict.fromkeys(ids, submission)
    return known


class Submitter(threading.Thread):
    """Submits while the daemon is killed. The daemon itself is started by the main thread, whose end would end it."""

    def __init__(self, users: Sequence[User], submissions: Sequence[Submission]) -> None:
        super().__init__(daemon=True)
        self._users, self._wanted = users, submissions
        self.by_job: dict[int, Submission] = {}

    def run(self) -> None:
        self.by_job = submit_all(self._users, self._wanted)


class Sampler(threading.Thread):
    """Looks at all slices as often as it can: what each queue has, and the most it had."""

    def __init__(self, system: OwnSystem) -> None:
        super().__init__(daemon=True)
        self._system = system
        self.end_event = threading.Event()
        self.peaks_milli: Counter[str] = Counter()
        self.looks = 0

    def run(self) -> None:
        from vgpud.errors import CliError

        while not self.end_event.wait(0.01):
            with contextlib.suppress(CliError), self._system.client() as client:
                while not self.end_event.wait(0.01):
                    self._look(client.all(calls.slices()))

    def _look(self, slices: Sequence[pb.Slice]) -> None:
        now: Counter[str] = Counter()
        for made in slices:
            now[made.queue] += 0 if made.suspended else sum(device.min_milli for device in made.devices)
        self.looks += 1
        for queue, milli in now.items():
            self.peaks_milli[queue] = max(self.peaks_milli[queue], milli)


def disturb(system: OwnSystem, users: Sequence[User], submitter: Submitter) -> int:
    """Ends the daemon now and then, one way or the other, until all jobs have ended; how often it came back."""
    chance = random.Random(9)
    signals = [signal.SIGKILL] * KILLS + [signal.SIGTERM] * RESTARTS
    chance.shuffle(signals)
    deadline = time.monotonic() + END_S
    count = 0
    while time.monotonic() < deadline:
        time.sleep(chance.uniform(0.8, 2.0))
        if count < len(signals):
            assert system.daemon
            system.daemon.process.send_signal(signals[count])
            system.daemon.process.wait()
            system.start_daemon()
            count += 1
        elif not submitter.is_alive() and all_ended(users):
            break
    return count


def all_ended(users: Sequence[User]) -> bool:
    """Whether every job of theirs has."""
    return all(job.state in ENDED for user in users for job in user.jobs().values())


def marks(users: Sequence[User], by_job: dict[int, Submission]) -> tuple[list[str], list[str]]:
    """(members that began twice in one attempt, members that never began), each as its job and what it wrote."""
    twice: list[str] = []
    missing: list[str] = []
    for job_id, submission in by_job.items():
        path = users[submission.user].work / f"ran-{job_id}"
        lines = path.read_text().split("\n")[:-1] if path.exists() else []
        text = f"job {job_id}: {lines}, {submission.attempts} x {submission.members} wanted: {submission.script}"
        twice += [text] * (len(lines) - len(set(lines)))
        missing += [text] * max(0, submission.attempts * submission.members - len(set(lines)))
    return twice, missing


def wrong_ends(jobs: dict[int, pb.Job], by_job: dict[int, Submission]) -> list[str]:
    """Those that did not end as they were written."""
    found = []
    for job_id, submission in by_job.items():
        job = jobs.get(job_id)
        if job is None:
            found.append(f"job {job_id} is lost")
        elif (state := words.JOB_STATE.to_word(job.state)) != submission.state or submission.exit_code not in (
            None,
            job.exit_code,
        ):
            text = f"{state} with {job.exit_code}, not {submission.state} with {submission.exit_code}"
            found.append(f"job {job_id}: {text}: {job.reason} ({submission.script})")
    return found


def mixture(raw: dict[str, Any], system: OwnSystem, users: Sequence[User]) -> Iterator[Figure]:
    """200 jobs, the daemon killed while they come and run."""
    submitter, sampler = Submitter(users, make_submissions(JOBS)), Sampler(system)
    begun = time.monotonic()
    sampler.start()
    submitter.start()
    back = disturb(system, users, submitter)
    took_s = time.monotonic() - begun
    submitter.join(END_S)
    sampler.end_event.set()
    sampler.join()
    known = submitter.by_job
    jobs = {job_id: job for user in users for job_id, job in user.jobs().items()}
    wrong = wrong_ends(jobs, known)
    twice, missing = marks(users, known)
    over = [queue for queue, limit in zip(QUEUES, LIMITS_MILLI, strict=True) if sampler.peaks_milli[queue] > limit]
    raw["mixture"] = {
        "wrong": wrong,
        "twice": twice,
        "missing": missing,
        "most_milli": dict(sampler.peaks_milli),
        "looks": sampler.looks,
    }
    case = f"{len(known)} jobs, {back} ends of the daemon"
    with system.client() as client:
        left = len(client.all(calls.slices()))
    yield Figure("live", case, "jobs submitted", len(known), equal_to(JOBS))
    yield Figure("live", case, "seconds until all had ended", took_s)
    not_ended = sum(job.state not in ENDED for job in jobs.values())
    yield Figure("live", case, "jobs that did not end", not_ended, NONE)
    yield Figure("live", case, "jobs with another end than written", len(wrong), NONE)
    yield Figure("live", case, "members that ran twice", len(twice), NONE)
    yield Figure("live", case, "members that did not run", len(missing), NONE)
    yield Figure("live", case, f"queues above their limit in {sampler.looks} looks", len(over), NONE)
    yield Figure("live", case, "slices left over", left, NONE)


def denials(users: Sequence[User]) -> Iterator[Figure]:
    """What one user asks of the other's job."""
    (job_id,) = users[0].submit("sleep 0.5", 100)
    codes = [
        users[1].ask("GetJob", pb.GetJobRequest(job_id=job_id), pb.GetJobResponse),
        users[1].ask("CancelJob", pb.CancelJobRequest(job_id=job_id), pb.CancelJobResponse),
        users[1].ask("HoldJob", pb.HoldJobRequest(job_id=job_id), pb.HoldJobResponse),
        users[1].ask("ReleaseJob", pb.ReleaseJobRequest(job_id=job_id), pb.ReleaseJobResponse),
        users[1].ask("RequeueJob", pb.RequeueJobRequest(job_id=job_id), pb.RequeueJobResponse),
    ]
    shown = job_id in users[1].jobs()
    allowed = sum(code != "PERMISSION_DENIED" for code in codes) + shown
    yield Figure("live", "two users", "calls on the other's job that were not denied", allowed, NONE)
    wait_for("its end", lambda: users[0].job(job_id).state in ENDED, END_S)


# ---- how soon, and as it was ----


def starts(raw: dict[str, Any], user: User) -> Iterator[Figure]:
    """From the request to the program's first line, one job after another, with free capacity for each."""
    took_ms = []
    for _ in range(STARTS):
        began_ns = time.time_ns()
        (job_id,) = user.submit("date +%s%N > began-$VGPU_JOB_ID", 500)
        path = user.work / f"began-{job_id}"
        wait_for("the job", lambda path=path: path.exists() and path.read_text().endswith("\n"))  # type: ignore[misc]
        took_ms.append((int(path.read_text()) - began_ns) / 1e6)
        wait_for("its end", lambda job_id=job_id: user.job(job_id).state in ENDED)  # type: ignore[misc]
    raw["starts_ms"] = took_ms
    case = "a job that has room"
    yield Figure("live", case, "submit to start, median, ms", statistics.median(took_ms), at_most(100))
    yield Figure("live", case, "submit to start, p95, ms", statistics.quantiles(took_ms, n=20)[-1], at_most(100))


def buffers(raw: dict[str, Any], system: OwnSystem, user: User) -> Iterator[Figure]:
    """A job with memory on the device is preempted by a better one, and continues."""
    program = harness.build("scheduling/live_buffers.c", output="live_buffers")
    with _queues(system) as client:
        given = pb.Queue(name=QUEUES[0], policy="priority(preempt)", limit_milli=1000, min_run={"nanos": 1})
        client.send(calls.set_queue(given, []))
    here = user.work / "live_buffers"
    here.write_bytes(program.read_bytes())
    here.chmod(0o755)
    (low,) = user.submit("exec ./live_buffers check > said", 1000, priority=0)
    wait_for("its memory", lambda: (user.work / "said").exists() and "filled" in (user.work / "said").read_text())
    (high,) = user.submit("sleep 0.3", 1000, priority=5)
    wait_for("its turn", lambda: user.job(high).state in (pb.JOB_STATE_RUNNING, *ENDED), END_S)
    meanwhile = words.JOB_STATE.to_word(user.job(low).state)
    wait_for("its end", lambda: user.job(high).state in ENDED, END_S)
    wait_for("its return", lambda: user.job(low).state == pb.JOB_STATE_RUNNING, END_S)
    (user.work / "check").touch()
    wait_for("its end", lambda: user.job(low).state in ENDED, END_S)
    job, said = user.job(low), (user.work / "said").read_text().split()
    raw["preempted"] = {"meanwhile": meanwhile, "said": said, "preemptions": job.preemptions, "attempt": job.attempt}
    same = meanwhile == "suspended" and said == ["filled", "same"] and job.attempt == 1 and job.preemptions == 1
    yield Figure("live", "a job that made room", "its 32 MiB are bit for bit as before (1 = yes)", float(same), ALL)


def figures(raw: dict[str, Any]) -> Iterator[Figure]:
    """All rows of the live queue."""
    with live_system() as (system, users):
        yield from mixture(raw, system, users)
        yield from denials(users)
        yield from starts(raw, users[0])
        yield from buffers(raw, system, users[0])
