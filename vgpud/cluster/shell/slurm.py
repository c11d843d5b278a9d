"""Slurm's programs: what they show, and orders to scontrol. Nothing of Slurm's libraries is linked."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial

from vgpud.cluster.core.model import (
    Cancel,
    Hold,
    Order,
    Phase,
    Register,
    Release,
    Requeue,
    SetComment,
    SlurmJob,
    SlurmSnapshot,
)
from vgpud.cluster.core.registrations import DUPLICATE
from vgpud.cluster.shell import text
from vgpud.cluster.shell.arrays import Limits
from vgpud.errors import ExitCode, VgpudError

#: slurmctld answers busy callers late
TIMEOUT_S = 60.0
#: jobs whose devices are asked for in one look
ASKED_MAX = 500
#: how long: a look must end long before others take the controller for gone (published.FRESH_S)
ASKING_S = 10.0
#: nodes in one command line: Linux takes arguments of up to 128 KiB
NAMES_MAX = 500
#: of AdminComment
TELL_CHARS_MAX = 250


class SlurmError(VgpudError):
    """Slurm does not answer, or refuses: one line."""

    exit_code = ExitCode.UNREACHABLE


class Slurm:
    """One partition. Needs the rights of SlurmUser, an operator or root."""

    def __init__(self, partition: str) -> None:
        self._partition = partition
        #: devices of running jobs, by what distinguishes one start of a job from another
        self._devices: dict[tuple[object, ...], tuple[tuple[str, int, int], ...]] = {}
        self._limits = Limits()

    def look(self) -> SlurmSnapshot:
        """Jobs before nodes: what is released meanwhile is counted for others until the next look. Raises SlurmError:
        what is not seen is not gone."""
        of = ["--noheader", f"--partition={self._partition}"]
        shown = run(["squeue", *of, "--array", "--states=all", "-O", text.columns(text.JOB_COLUMNS)])
        there = self._shown_nodes()
        try:
            jobs = self._with_limits(self._with_devices(list(text.jobs(shown))))
            found = SlurmSnapshot(tuple(jobs), tuple(text.nodes(there)))
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
            # one that slurmctld has forgotten and started again is another with the same number of restarts
            start = job.key, job.uid, job.restarts, job.start, job.node_names
            if start not in known:
                if asked >= ASKED_MAX or time.monotonic() >= until_s:
                    continue
                asked += 1
                with contextlib.suppress(SlurmError):  # it may have ended meanwhile
                    found = _devices(job)
                    known |= {start: found} if found is not None else {}
            if start in known:
                self._devices[start] = known[start]
                jobs[number] = replace(job, devices=known[start])
        return jobs

    def _with_limits(self, jobs: list[SlurmJob]) -> list[SlurmJob]:
        now_s = time.monotonic()
        for array in self._limits.due(jobs, now_s):
            if time.monotonic() >= now_s + ASKING_S:
                break
            with contextlib.suppress(SlurmError):  # it has ended meanwhile, or Slurm is busy
                self._limits.ask(array, now_s, partial(_array_limit, array))
        return [self._limits.of(job, now_s) for job in jobs]

    def _shown_nodes(self) -> str:
        of = ["--noheader", f"--partition={self._partition}", "--Node"]
        return run(["sinfo", *of, "-O", text.columns(text.NODE_COLUMNS)])

    def tell(self, order: Order) -> None:
        """Raises SlurmError: it was refused, or Slurm does not answer."""
        for command in commands(self._as_drained_now(order) if isinstance(order, Register) else order):
            try:
                run(command)
            except SlurmError as error:
                # slurmctld says that of nodes whose state it has forgotten, and asks them all the same
                if not (isinstance(order, Register) and "Invalid node state" in str(error)):
                    raise

    def _as_drained_now(self, order: Register) -> Register:
        """Without nodes that an administrator has drained since the look: it would undrain them."""
        try:
            shown = text.nodes(self._shown_nodes())
            drained = {node.name for node in shown if node.drained and node.reason != DUPLICATE}
        except text.SlurmTextError as error:
            raise SlurmError(str(error)) from error
        return replace(order, nodes=tuple(name for name in order.nodes if name not in drained))


def _devices(job: SlurmJob) -> tuple[tuple[str, int, int], ...] | None:
    """None: that is to be asked again."""
    said, texts = run(["scontrol", "--oneliner", "--details", "show", "job", job.key], timeout_s=ASKING_S), ""
    if text.is_ambiguous(said):
        columns = text.columns(text.TEXT_COLUMNS)
        texts = run(["squeue", "--noheader", "--states=all", f"--jobs={job.key}", "-O", columns], timeout_s=ASKING_S)
    return text.devices(said, job.node_names, texts)


def _array_limit(array: int) -> int | None:
    return text.array_limit(run(["scontrol", "--oneliner", "show", "job", str(array)], timeout_s=ASKING_S))


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
            blocks = (nodes[at : at + NAMES_MAX] for at in range(0, len(nodes), NAMES_MAX))
            return [["scontrol", "update", f"NodeName={','.join(names)}", "State=UNDRAIN"] for names in blocks]
        case SetComment(key, sentence):
            return [["scontrol", "update", f"JobId={key}", f"AdminComment={text.MARK} {sentence[:TELL_CHARS_MAX]}"]]


def run(command: Sequence[str], env: Mapping[str, str] | None = None, timeout_s: float = TIMEOUT_S) -> str:
    """Output of a program that reads no terminal. Its texts are bytes of any kind: each is one character here, also
    those of line breaks, or columns would be shorter. `env`: variables beside those of this process. Raises
    SlurmError."""
    try:
        done = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, **(env or {})},
        )
    except FileNotFoundError as error:
        raise SlurmError(f"{command[0]} was not found: install Slurm's client programs (slurm-client)") from error
    except subprocess.TimeoutExpired as error:
        raise SlurmError(f"{command[0]} did not answer within {timeout_s:g} s") from error
    except OSError as error:
        raise SlurmError(f"{command[0]}: {error}") from error
    if done.returncode:
        said = " ".join((done.stderr or done.stdout).decode("latin-1").split())[:300]
        raise SlurmError(f"{' '.join(command[:3])}: exit code {done.returncode}: {said or 'no output'}")
    return done.stdout.decode("latin-1")
