"""Jobs in containers (`--image`): the engine's command line of each member.

The engine's client runs as the daemon, so that users need not be of a group that is as good as root; what a container
may do is decided here and only here: it runs as the user, without capabilities or the daemon's credentials for
registries, and can gain no privilege. Of the environment it has what the user has named, of the node what the site
allows: container_client.py, which becomes the client, looks at volumes and credentials with the user's rights.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from vgpud.core.jobs.image_name import image_error
from vgpud.jobs.messages import Attempt, ContainerNeeds, Member, WireError
from vgpud.oci.request import TWINS, describes_job

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
#: lines of a file of variables are read up to so much by docker (bufio.Scanner)
_VARIABLE_BYTES_MAX = 60_000
#: limits that engines can set; --memory is what limits address space there
_ULIMITS = {"core", "cpu", "data", "fsize", "locks", "memlock", "msgqueue", "nice"}
_ULIMITS |= {"nofile", "nproc", "rss", "rtprio", "rttime", "sigpending", "stack"}
ENGINES = ("docker", "podman")
#: what the files of a member end with: its variables, what container_client.py does, its credentials, its refusal,
#: and what its volumes are bound to
VARIABLES, REQUEST, CREDENTIALS, REFUSAL, VOLUMES = ".env", ".request", ".credentials", ".refusal", ".volumes"
OF_MEMBERS = (VARIABLES, REQUEST, CREDENTIALS, REFUSAL, VOLUMES)
PID_FORMAT = "--format={{.State.Pid}}"
_CLIENT = Path(__file__).with_name("container_client.py")
#: keys that leave an engine's client, which then ends: long enough that no user types them
_NO_DETACH = ",".join(["ctrl-@", "ctrl-^"] * 8)
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True, slots=True)
class Engine:
    """The site's container engine. `program`: absolute, with its options."""

    program: tuple[str, ...]
    runtime: str = "vgpu"  # its name or path of vgpu-runtime
    network: str = ""  # "": the engine's default; none, ...
    environment: Mapping[str, str] = field(default_factory=dict)  # of its client


def find_engine(name: str, runtime: str, network: str) -> Engine | None:
    """The engine by its name or path, or the first that is installed; None when it is not."""
    found = (shutil.which(word, path=_PATH) for word in ((name,) if name else ENGINES))
    program = next((path for path in found if path), None)
    return Engine((program,), runtime, network) if program else None


def containers(attempt: Attempt, engine: Engine, directory: Path) -> tuple[Attempt, dict[Path, str]]:
    """The attempt that runs the engine's client for each member, and the files (of variables) that this needs.

    Raises WireError.
    """
    wrong = image_error(attempt.image)
    if wrong:
        raise WireError(wrong)
    if any(" " in word for word in engine.program):
        raise WireError(f"{' '.join(engine.program)!r} has a path with blanks: install the engine elsewhere")
    names = [f"vgpu-job-{attempt.name}-{number}" for number in range(len(attempt.members))]
    client = client_environment(engine, directory)
    files: dict[Path, str] = {}
    members = []
    for number, (member, name) in enumerate(zip(attempt.members, names, strict=True)):
        own = directory / f"{attempt.name}.{number}"
        variables, request = (Path(f"{own}{suffix}") for suffix in (VARIABLES, REQUEST))
        run = _words(attempt, engine, member, name, variables)
        look = (*engine.program, "inspect", PID_FORMAT, name)
        files |= {variables: _variables(member), request: _request(attempt, engine, run, look, own)}
        words = (sys.executable, "-I", "-S", str(_CLIENT), str(request))
        members.append(Member(words, client, member.log))
    made = replace(
        attempt,
        members=tuple(members),
        client=True,
        cleanup=(*engine.program, "rm", "-f", *names),
        first=(*engine.program, "inspect", PID_FORMAT, *names),
        limits=(),
        cpu_milli=0,
        ram_bytes=0,
        pids_max=0,
    )
    return made, files | {_home(directory) / "auth.json": "{}\n"}


def _home(directory: Path) -> Path:
    return directory / ".engine"


def client_environment(engine: Engine, directory: Path) -> dict[str, str]:
    """Of the engine's client: nothing of the user's, and a home without root's credentials."""
    home = _home(directory)
    made = {"PATH": _PATH, "HOME": str(home), "DOCKER_CONFIG": str(home), "REGISTRY_AUTH_FILE": str(home / "auth.json")}
    return made | dict(engine.environment)


def _request(attempt: Attempt, engine: Engine, run: Sequence[str], look: Sequence[str], own: Path) -> str:
    """What container_client.py does. `look`: prints the pid of the container; `own`: how the member's files begin."""
    needs = attempt.needs
    return json.dumps(
        {
            "user": [attempt.uid, attempt.gid, *attempt.groups],
            "engine": engine.program,
            "image": attempt.image,
            "run": run,
            "look": look,
            "mounts": [[one.host, one.container, one.is_read_only, one.roots] for one in needs.mounts],
            "auth_file": needs.auth_file,
            "is_of_site": needs.is_of_site,
            "credentials": f"{own}{CREDENTIALS}",
            "volumes": f"{own}{VOLUMES}",
            "refusal": f"{own}{REFUSAL}",
        }
    )


def _words(attempt: Attempt, engine: Engine, member: Member, name: str, variables: Path) -> list[str]:
    words = [*engine.program, "run", "--rm", "--name", name, "--label", f"dev.vgpu.job={attempt.name}"]
    words += ["--user", f"{attempt.uid}:{attempt.gid}", "--cap-drop=ALL", "--security-opt=no-new-privileges"]
    words += ["--stop-timeout=0"]  # when `rm` comes its grace is over
    words += ["--interactive", "--tty", f"--detach-keys={_NO_DETACH}"] if attempt.terminal else []
    words += ["--log-driver=none", "--env-file", str(variables)]  # its output is the job's log
    words += [f"--network={engine.network}"] if engine.network else []
    words += [f"--publish={port}" for port in _publications(attempt.needs)]
    if member.slice_name:
        words += [f"--runtime={engine.runtime}"]
        # what an image asks for by ENV is not this job's
        words += [f"--env={variable}=" for variable in TWINS if variable != "VGPU_SLICE"]
        words += [f"--env=VGPU_SLICE={member.slice_name}"]
    words += [f"--cpus={attempt.cpu_milli / 1000:.3f}"] if attempt.cpu_milli else []
    words += [f"--memory={attempt.ram_bytes}b"] if attempt.ram_bytes else []
    words += [f"--pids-limit={attempt.pids_max}"] if attempt.pids_max else []
    words += [f"--ulimit={limit}={soft}:{hard}" for limit, soft, hard in attempt.limits if limit in _ULIMITS]
    return [*words, "--", attempt.image, *member.argv]


def _publications(needs: ContainerNeeds) -> list[str]:
    """As engines have it: address, port of the node, port of the container."""
    address = f"[{needs.address}]" if ":" in needs.address else needs.address
    own = [f"127.0.0.1:{port}:{port}" for port in needs.session_ports]
    return own + [f"{address}:{host}:{container}" for host, container in needs.ports]


def _variables(member: Member) -> str:
    """A file for --env-file, by which they are not seen in a list of processes. Raises WireError."""
    lines = []
    for name, value in member.environment.items():
        shown = f"variable {name[:40]!r}"
        if not _NAME.fullmatch(name):
            raise WireError(f"{shown} cannot be given to a container: write letters, digits and _")
        if any(sign in value for sign in "\n\r\0") or len(value) > _VARIABLE_BYTES_MAX:
            raise WireError(f"{shown} cannot be given to a container: it has line breaks, or is too long")
        if describes_job(name) or (name != "VGPU" and not name.startswith("VGPU_")):
            lines.append(f"{name}={value}\n")
    return "".join(lines)
