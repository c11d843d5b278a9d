"""What an attempt of a job runs with: the submitter's program, identity and environment, and the slices it was given.

Part of the composition root, without a state of its own.
"""

from __future__ import annotations

import importlib.util
import signal
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

from vgpud import paths
from vgpud.config import Config, JobsConfig
from vgpud.core.jobs import session
from vgpud.core.jobs.container_parts import Volume
from vgpud.core.jobs.environments import Catalog
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.model import Job
from vgpud.core.model import Asker
from vgpud.jobs.messages import NO_NEEDS, Attempt, ContainerNeeds, Member, Mount
from vgpud.jobs.session_ports import Ports
from vgpud.libraries import environment
from vgpud.oci.request import OF_JOBS
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: what the daemon says in environments; taken out of the submitter's, which may be another job
_OURS = {"VGPU_DRIVER", "VGPU_NVML", "VGPU_SOCKET", "VGPU_SIM_DIR", "VGPU_MODE"} | OF_JOBS

#: the program of a balancer, and what would load another one into it
_BALANCER, _LOADER = Path(paths.__file__).with_name("services") / "__main__.py", ("LD_", "PYTHON", "GCONV_", "GLIBC_")
#: of a job at a terminal that was submitted without the variable: what all emulations understand
TERM = "xterm"


class LaunchError(Exception):
    """It cannot be started here; one line for people."""


def find_needs(launch: Launch, catalog: Catalog, jobs: JobsConfig, own_ports: Ports | None = None) -> ContainerNeeds:
    """What its container is given of the node, as the site allows it now. `own_ports`: of a session. Raises
    LaunchError."""
    own, of_site, allowance = launch.parts, launch.site_parts, jobs.allowance
    registry = own.registry or of_site.registry
    is_of_site = bool(registry) and not registry.startswith("/")
    auth_file = registry
    if is_of_site:
        known = catalog.registries.get(registry)
        if known is None:
            raise LaunchError(f"the site's list has no registry {registry!r} any more: submit the job again")
        if own.registry and not known.audience.has(Asker(launch.uid, (launch.gid, *launch.gids), launch.uid == 0)):
            text = f"registry {registry!r} is not for this user any more: submit the job with credentials of your own"
            raise LaunchError(text)
        auth_file = known.auth_file
    given: list[tuple[Volume, tuple[str, ...]]] = [(volume, (volume.host,)) for volume in of_site.volumes]
    given += [(volume, allowance.roots_for(volume)) for volume in own.volumes]
    mounts = tuple(Mount(volume.host, volume.container, volume.read_only, roots) for volume, roots in given)
    ports = tuple((port.host, port.container) for port in (*of_site.ports, *own.ports))
    published = tuple(own_ports) if own_ports and launch.image and not jobs.allowance.shares_network else ()
    return ContainerNeeds(mounts, ports, jobs.port_address, auth_file, is_of_site, published)


def find_grace_ms(job: Job, config: Config) -> int:
    """From SIGTERM to SIGKILL: the job's own time, within the site's maximum, or the site's."""
    launch = job.spec.run
    if not isinstance(launch, Launch) or launch.grace_ms < 0:
        return config.job_grace_s * 1000
    return min(launch.grace_ms, config.job_grace_max_s * 1000)


def attempt_of(
    job: Job,
    slices: Sequence[tuple[str, str]],
    node: pb.Node,
    is_simulated: bool,
    grace_ms: int,
    worker: int = -1,
    ports: Ports | None = None,
    needs: ContainerNeeds = NO_NEEDS,
) -> Attempt:
    """`slices`: (name, attach socket) of each member's, none for a job without GPUs; `worker`: of an elastic job, the
    one that it is of; `ports`: where a session is to listen; `needs`: of its containers. Raises LaunchError,
    VgpudError.
    """
    launch = job.spec.run
    if not isinstance(launch, Launch):
        raise LaunchError("it was submitted without a command: submit it again")
    numbers = range(job.spec.members) if worker < 0 else (worker,)
    extra = _session_variables(job, launch, ports, is_published=bool(needs.session_ports)) if ports else {}
    members = tuple(
        _member(job, launch, number, slices[at] if slices else None, node, is_simulated, extra, elastic=worker >= 0)
        for at, number in enumerate(numbers)
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
        image=launch.image,
        needs=needs,
        cpu_milli=job.spec.ask.cpu_milli,
        ram_bytes=job.spec.ask.ram_bytes,
        grace_ms=grace_ms,
        signal=signal.Signals[f"SIG{launch.signal}"] if launch.signal else 0,
        terminal=launch.terminal,
        worker=worker,
    )


def _session_variables(job: Job, launch: Launch, ports: Ports, *, is_published: bool) -> dict[str, str]:
    """`is_published`: the program has a network of its own, which the engine leads its ports to."""
    token = dict(launch.environment)[session.TOKEN]
    host = session.ALL_ADDRESSES if is_published else session.LOOPBACK
    if launch.session == session.REPLICA:
        return {session.SERVICE_PORT: str(ports.own), session.SERVICE_TOKEN: token, session.SERVICE_HOST: host}
    found = {session.PORT: str(ports.own), session.BASE: session.base_path(job.job_id), session.TOKEN: token}
    found[session.HOST] = host
    for name, port in ports.by_name:
        found |= {session.variable(session.PORT, name): str(port)}
        found |= {session.variable(session.BASE, name): session.base_path(job.job_id, name)}
    return found


def _member(
    job: Job,
    launch: Launch,
    number: int,
    slice_address: tuple[str, str] | None,
    node: pb.Node,
    is_simulated: bool,
    extra: Mapping[str, str],
    *,
    elastic: bool,
) -> Member:
    log = launch.log_path(job.job_id, job.spec.index)
    own = {"VGPU_JOB_ID": str(job.job_id), "VGPU_JOB_ATTEMPT": str(job.attempt), **extra}
    if not launch.image:  # for vgpud.client
        own["VGPU_HOST"] = f"unix://{paths.grpc_socket(Path(node.runtime_dir))}"
    if job.spec.array:
        own |= {"VGPU_ARRAY_ID": str(job.spec.array), "VGPU_ARRAY_INDEX": str(job.spec.index)}
    if elastic:
        own |= {"VGPU_WORKER": str(number)}
        log = f"{log}.{number}" if number and log else log
    elif job.spec.members > 1:
        own |= {"VGPU_MEMBER": str(number), "VGPU_MEMBERS": str(job.spec.members)}
        log = f"{log}.{number}" if number and log else log
    if launch.terminal and not launch.image and "TERM" not in dict(launch.environment):
        own["TERM"] = TERM
    submitted = {
        name: value for name, value in launch.environment if name not in _OURS and not name.startswith(session.PREFIX)
    }
    if launch.session == session.BALANCER:  # no other program runs without a slice, whatever its submitter says
        if importlib.util.find_spec("h11") is None:
            raise LaunchError("services need the package h11 beside vgpud: pip install 'vgpud[service]'")
        kept = {name: value for name, value in submitted.items() if not name.startswith(_LOADER)}
        return Member((sys.executable, "-I", str(_BALANCER), launch.command[-1]), kept | own, log)
    if launch.image:
        return Member(launch.command, submitted | own, log, slice_address[0] if slice_address else "")
    if slice_address is None:
        return Member(launch.command, environment.remove_shim(submitted) | own, log)
    # no path of the submitter is searched: the daemon would open it
    libraries = submitted.pop("LD_LIBRARY_PATH", "")
    variables = environment.for_slice(submitted, node, pb.Slice(attach_socket=slice_address[1]), is_simulated)
    if libraries:
        ours = variables.get("LD_LIBRARY_PATH")
        variables["LD_LIBRARY_PATH"] = f"{ours}:{libraries}" if ours else libraries
    return Member(launch.command, variables | own, log)
