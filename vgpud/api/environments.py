"""The site's environments in the API: which a caller sees, what a job gets of one, and what it may name of the node."""

from __future__ import annotations

from dataclasses import replace
from typing import Protocol

from vgpud.api.rpc import RefusedError, refuse
from vgpud.core.jobs.container_parts import NO_PARTS, Allowance, PartError, leave_out, parse_parts
from vgpud.core.jobs.environments import Catalog, Environment
from vgpud.core.jobs.facts import Launch
from vgpud.core.jobs.session import SHELL
from vgpud.core.model import Asker, Denied, Reason
from vgpud.v1alpha1 import vgpud_pb2 as pb


class EnvironmentList(Protocol):
    """What the daemon has of the site's file."""

    @property
    def catalog(self) -> Catalog: ...
    @property
    def problem(self) -> str:
        """Why `catalog` is not what the file has now, "" when it is."""
        ...

    @property
    def allowance(self) -> Allowance:
        """What jobs may name of the node."""
        ...


def list_environments(site: EnvironmentList, node: str, asker: Asker) -> pb.ListEnvironmentsResponse:
    """Those that this user may use. What is wrong with the file names its contents, so it is for admins."""
    visible = [one for one in site.catalog.environments.values() if one.audience.has(asker)]
    problem = f"{site.problem}; the last valid list is in force" if site.problem else ""
    if problem and not asker.admin:
        problem = "the site's file of environments is damaged, and an earlier list is in force: tell an admin"
    elif site.catalog.unknown and asker.admin and not problem:
        problem = f"the list names members that do not exist: {', '.join(site.catalog.unknown)}"
    return pb.ListEnvironmentsResponse(environments=[_view(one, node) for one in visible], problem=problem)


def _view(one: Environment, node: str) -> pb.Environment:
    defaults = fill_spec(pb.JobSpec(environment_name=one.name), one)
    defaults.volumes.extend(map(str, one.parts.volumes))
    defaults.ports.extend(map(str, one.parts.ports))
    defaults.registry = one.parts.registry
    return pb.Environment(
        node=node, name=one.name, description=one.description, defaults=defaults, members=one.audience.words
    )


def find_environment(spec: pb.JobSpec, catalog: Catalog, asker: Asker) -> Environment | None:
    """The environment that the job names. Raises RefusedError where the caller has none of that name."""
    name = spec.environment_name
    if not name:
        return None
    found = catalog.environments.get(name)
    if found is None or not found.audience.has(asker):
        names = [one.name for one in catalog.environments.values() if one.audience.has(asker)]
        have = f"there are {', '.join(names)}" if names else "this site has none for you"
        raise refuse(Reason.NOT_FOUND, f"no environment {name[:80]!r}: {have} (`vgpu env ls`)", "environment_name")
    if spec.image not in ("", found.image):
        text = f"environment {name} runs {found.image or 'no image'}, and the job asks for {spec.image[:80]!r}"
        raise refuse(Reason.INVALID, f"{text}: leave the image or the environment out", "image")
    return found


def fill_spec(spec: pb.JobSpec, environment: Environment) -> pb.JobSpec:
    """A copy with the environment's values where the job has none of its own."""
    full = pb.JobSpec()
    full.CopyFrom(spec)
    full.image = environment.image
    if not full.command:
        full.command.extend(environment.command)
    for name, value in environment.variables:
        if name not in full.environment:
            full.environment[name] = value
    share = full.slice
    if not share.gpus_milli and not full.elastic.gpus_milli_max:
        share.gpus_milli = environment.gpus_milli
    if environment.mem_bytes and not share.HasField("mem_min_bytes") and not share.HasField("mem_max_bytes"):
        share.mem_min_bytes = share.mem_max_bytes = environment.mem_bytes
    full.cpu_milli = full.cpu_milli or environment.cpu_milli
    full.ram_bytes = full.ram_bytes or environment.ram_bytes
    full.queue = full.queue or environment.queue
    if environment.time_limit_s and not full.HasField("time_limit"):
        full.time_limit.FromSeconds(environment.time_limit_s)
    return full


def name_environment(refusal: Denied, environment: Environment | None) -> Denied:
    """A refusal of what the environment may have asked for says so."""
    if environment is None:
        return refusal
    return replace(refusal, message=f"{refusal.message} (with the defaults of environment {environment.name})")


def add_parts(
    launch: Launch,
    spec: pb.JobSpec,
    environment: Environment | None,
    site: EnvironmentList,
    who: Asker,
) -> Launch:
    """The launch with what the job's container is given. `spec`: with the environment's values. Raises RefusedError."""
    if launch.image and environment is None and not (site.allowance.any_image or who.admin):
        text = "this site runs images of its environments only: `vgpu env ls` lists them"
        raise refuse(Reason.DENIED, f"image {launch.image}: {text}", "image")
    of_site = environment.parts if environment else NO_PARTS
    try:
        parts = leave_out(parse_parts(spec.volumes, spec.ports, spec.registry), of_site)
        if parts != NO_PARTS and not launch.image:
            raise PartError("volumes, ports and registry are for a container: name an image, or leave them out")
        site.allowance.check(parts)
    except PartError as error:
        raise refuse(Reason.INVALID, str(error), "volumes") from error
    has_port = not site.allowance.publishes_none or site.allowance.shares_network
    if launch.image and launch.session not in ("", SHELL) and not has_port:
        text = f"session in image {launch.image}: containers of jobs have the network {site.allowance.network!r} here"
        raise refuse(Reason.INVALID, f"{text} (network in vgpud.toml), so no port: leave the image out", "session")
    ports = (*of_site.ports, *parts.ports)
    if ports and (spec.members > 1 or spec.array_indices or spec.elastic.workers_max):
        text = f"port {ports[0]} for several programs: only one can have it, submit each by itself"
        raise refuse(Reason.INVALID, text, "ports")
    if parts.registry:
        _check_registry(parts.registry, site.catalog, who)
    return replace(launch, environment_name=spec.environment_name, parts=parts, site_parts=of_site)


def _check_registry(name: str, catalog: Catalog, who: Asker) -> None:
    """Raises RefusedError. A file is read when the job starts, as its user."""
    if name.startswith("/"):
        return
    found = catalog.registries.get(name)
    if found is None or not found.audience.has(who):
        names = [one.name for one in catalog.registries.values() if one.audience.has(who)]
        have = f"there are {', '.join(names)}" if names else "this site has none for you"
        raise RefusedError(Denied(Reason.NOT_FOUND, f"no registry {name!r}: {have}; a file is /path/to/it", "registry"))
