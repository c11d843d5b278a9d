"""Slurm's programs: what they show, and what scontrol is told. Nothing of Slurm's libraries is linked."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace

from vgpud.cluster.core.model import Cancel, Hold, Order, Phase, Register, Release, Requeue, Seen, SlurmJob, Tell
from vgpud.cluster.shell import text
from vgpud.errors import ExitCode, VgpudError

#: slurmctld answers busy callers late
TIMEOUT_S = 60.0
#: jobs whose devices are asked for in one look, and arrays whose limits are
ASKED_MAX, ARRAYS_ASKED_MAX = 500, 50
#: how long: a look must end long before others take the controller for gone (published.FRESH_S)
ASKING_S = 10.0
#: how often the limit of an array is asked for: its user may change it (scontrol update ArrayTaskThrottle=N)
ARRAY_EVERY_S = 60.0
#: of AdminComment
TELL_CHARS_MAX = 250


class SlurmError(VgpudError):
    """Slurm does not answer, or refuses: one line."""

    exit_code = ExitCode.UNREACHABLE


class Slurm:
    """One partition. Needs the rights of SlurmUser, an operator or root."""

    def __init__(self, partition: str) -> None:
        self._partition = partition
        #: devices of running jobs, by key and number of restarts
        self._devices: dict[tuple[str, int], tuple[tuple[str, int, int], ...]] = {}
        #: of each array by its number: how many elements run at once, and when that was last asked
        self._arrays: dict[int, tuple[int, float]] = {}

    def look(self) -> Seen:
        """Jobs before nodes: what is released meanwhile is counted for others until the next look. Raises SlurmError:
        what is not seen is not gone."""
        of = ["--noheader", f"--partition={self._partition}"]
        shown = run(["squeue", *of, "--array", "--states=all", "-O", text.columns(text.JOB_COLUMNS)])
        there = run(["sinfo", *of, "--Node", "-O", text.columns(text.NODE_COLUMNS)])
        try:
            jobs = self._with_limits(self._with_devices(list(text.jobs(shown))))
            found = Seen(tuple(jobs), tuple(text.nodes(there)))
        except text.SlurmTextError as error:
            raise SlurmError(str(error)) from error
        if not found.nodes:
            raise SlurmError(f"partition {self._partition} has no nodes: is it in slurm.conf? (sinfo)")
        return found

    def _with_devices(self, jobs: list[SlurmJob]) -> list[SlurmJob]:
        """Asked once for each start: squeue does not show devices, and nodes show only sums, or less."""
        known, asked, until_s = self._devices, 0, time.monotonic() + ASKING_S
        self._devices = {}
        for number, job in enumerate(jobs):
            if job.phase is not Phase.RUNS or not job.node_names:
                continue
            start = job.key, job.restarts
            if start not in known:
                if asked >= ASKED_MAX or time.monotonic() >= until_s:
                    continue
                asked += 1
                with contextlib.suppress(SlurmError):  # it may have ended meanwhile
                    said = run(["scontrol", "--oneliner", "--details", "show", "job", job.key], timeout_s=ASKING_S)
                    known[start] = text.devices(said, job.node_names)
            if start in known:
                self._devices[start] = known[start]
                jobs[number] = replace(job, devices=known[start])
        return jobs

    def _with_limits(self, jobs: list[SlurmJob]) -> list[SlurmJob]:
        """Of elements of arrays: `squeue --array` does not show how many run at once, nor does plain squeue for certain
        (elements that wait one by one make it forget). What was said last holds while the array is there."""
        there = {job.number[0] for job in jobs if "_" in job.key}
        waiting = {job.number[0] for job in jobs if "_" in job.key and job.phase is Phase.WAITS}
        self._arrays = {array: known for array, known in self._arrays.items() if array in there}
        now_s = time.monotonic()
        due = [one for one in waiting if one not in self._arrays or now_s - self._arrays[one][1] >= ARRAY_EVERY_S]
        for array in sorted(due, key=lambda one: self._arrays.get(one, (0, 0.0))[1])[:ARRAYS_ASKED_MAX]:
            if time.monotonic() >= now_s + ASKING_S:
                break
            try:
                said = text.array_limit(run(["scontrol", "--oneliner", "show", "job", str(array)], timeout_s=ASKING_S))
            except SlurmError:  # it has ended meanwhile, or Slurm is busy: it is asked again with the next look
                continue
            before = self._arrays.get(array, (0, 0.0))[0]
            self._arrays[array] = before if said is None else said, now_s
        limits = {array: limit for array, (limit, _) in self._arrays.items() if limit}
        return [replace(job, array_limit=limits[job.number[0]]) if job.number[0] in limits else job for job in jobs]

    def tell(self, order: Order) -> None:
        """Raises SlurmError: it was refused, or Slurm does not answer."""
        try:
            for command in commands(order):
                run(command)
        except SlurmError as error:
            # slurmctld says that of nodes whose state it has forgotten, and asks them all the same
            if not (isinstance(order, Register) and "Invalid node state" in str(error)):
                raise


def commands(order: Order) -> list[list[str]]:
    """An order as command lines. What a former one has done already is no error for Slurm, or does no harm."""
    match order:
        case Release(key, nodes):
            return [
                # a job that was requeued would not start for two minutes
                ["scontrol", "update", f"JobId={key}", f"ReqNodeList={','.join(nodes)}", "StartTime=now"],
                ["scontrol", "release", key],
            ]
        case Hold(key):
            return [["scontrol", "hold", key], ["scontrol", "update", f"JobId={key}", "ReqNodeList="]]
        case Requeue(key):
            # not requeuehold, which looks like a hold by the job's user
            return [["scontrol", "requeue", key], ["scontrol", "hold", key]]
        case Cancel(key):
            return [["scancel", key]]
        case Register(nodes):
            # not RESUME, which asks only drained nodes to register
            return [["scontrol", "update", f"NodeName={','.join(nodes)}", "State=UNDRAIN"]]
        case Tell(key, sentence):
            return [["scontrol", "update", f"JobId={key}", f"AdminComment={text.MARK} {sentence[:TELL_CHARS_MAX]}"]]


def run(command: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> str:
    """Output of a program that reads no terminal. Its texts are bytes of any kind: each is one character here. `env`:
    variables beside those of this process. Raises SlurmError."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            encoding="latin-1",
            env={**os.environ, **(env or {})},
        )
    except FileNotFoundError as error:
        raise SlurmError(f"{command[0]} was not found: install Slurm's client programs (slurm-client)") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{command[0]} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise SlurmError(f"{command[0]}: {error}") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).split())[:300]
        raise SlurmError(f"{' '.join(command[:3])}: exit code {done.returncode}: {said or 'nothing was said'}")
    return done.stdout
