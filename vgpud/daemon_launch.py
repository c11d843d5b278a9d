"""What an attempt of a job runs with: the submitter's program, identity and environment, and the slices it was given.

Part of the composition root, without a state of its own. A job in an image is a container of the submitter's engine,
which gets its slice as any other does (VGPU_SLICE): what the user may not mount or do, his engine refuses.
"""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path

from vgpud.cli import environment
from vgpud.core.queue.model import Job
from vgpud.jobfacts import Launch
from vgpud.jobs_wire import Attempt, Member
from vgpud.v1 import vgpud_pb2 as pb

#: what the daemon says in every environment; taken out of the submitter's
_OURS = ("VGPU_DRIVER", "VGPU_NVML", "VGPU_SOCKET", "VGPU_SIM_DIR", "VGPU_MODE")
ENGINES = ("podman", "docker")


class LaunchError(Exception):
    """It cannot be started here; one line for people."""


def attempt_of(job: Job, slices: Sequence[tuple[str, str]], node: pb.Node, simulated: bool, grace_s: int) -> Attempt:
    """`slices`: (name, attach socket) of each member's, none for a job without GPUs. Raises LaunchError, VgpudError."""
    launch = job.spec.run
    if not isinstance(launch, Launch):
        raise LaunchError("it was submitted without a command: submit it again")
    members = tuple(
        _member(job, launch, number, slices[number] if slices else None, node, simulated)
        for number in range(job.spec.members)
    )
    return Attempt(
        job_id=job.job_id,
        number=job.attempt,
        uid=launch.uid,
        gid=launch.gid,
        groups=launch.gids,
        directory=launch.directory,
        umask=launch.umask,
        members=members,
        limits=launch.limits,
        cpu_milli=job.spec.ask.cpu_milli,
        ram_bytes=job.spec.ask.ram_bytes,
        grace_ms=grace_s * 1000,
    )


def _member(
    job: Job, launch: Launch, number: int, given: tuple[str, str] | None, node: pb.Node, simulated: bool
) -> Member:
    log = launch.log_path(job.job_id, job.spec.index)
    own = {"VGPU_JOB_ID": str(job.job_id), "VGPU_JOB_ATTEMPT": str(job.attempt)}
    if job.spec.array:
        own |= {"VGPU_ARRAY_ID": str(job.spec.array), "VGPU_ARRAY_INDEX": str(job.spec.index)}
    if job.spec.members > 1:
        own |= {"VGPU_MEMBER": str(number), "VGPU_MEMBERS": str(job.spec.members)}
        log = f"{log}.{number}" if number and log else log
    submitted = {name: value for name, value in launch.environment if name not in _OURS}
    if launch.image:
        argv = _container(job, launch, given, own, number)
        return Member(argv, environment.unhooked(submitted), log)
    if given is None:
        return Member(launch.command, environment.unhooked(submitted) | own, log)
    _, socket = given
    variables = environment.for_slice(submitted, node, pb.Slice(attach_socket=socket), simulated)
    return Member(launch.command, variables | own, log)


def _container(
    job: Job, launch: Launch, given: tuple[str, str] | None, own: Mapping[str, str], number: int
) -> tuple[str, ...]:
    """The command line of the submitter's engine. It mounts nothing and asks for no privilege."""
    path = dict(launch.environment).get("PATH", "")
    engine = next((found for name in ENGINES if (found := shutil.which(name, path=path))), None)
    if engine is None:
        raise LaunchError(
            f"neither {' nor '.join(ENGINES)} is in the submitter's PATH: install one, or leave --image out"
        )
    name = f"vgpu-{job.job_id}-{job.attempt}" + (f"-{number}" if job.spec.members > 1 else "")
    options = ["run", "--rm", "--name", name, "--stop-timeout", "10"]
    if Path(engine).name == "docker" or given:
        options += ["--runtime", "vgpu"] if given else []
    if given:
        options += ["--env", f"VGPU_SLICE={given[0]}"]
    for variable, value in own.items():
        options += ["--env", f"{variable.replace('VGPU_', 'JOB_', 1)}={value}"]
    if job.spec.ask.cpu_milli:
        options += ["--cpus", f"{job.spec.ask.cpu_milli / 1000:g}"]
    if job.spec.ask.ram_bytes:
        options += ["--memory", str(job.spec.ask.ram_bytes)]
    return (engine, *options, launch.image, *launch.command)
