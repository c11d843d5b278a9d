"""Sessions in the messages of jobs: what is checked of a request, and the variables that a session gets."""

from __future__ import annotations

import re
import secrets

from vgpud.api.rpc import refuse
from vgpud.core.jobs import session
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS
from vgpud.core.model import Reason
from vgpud.v1alpha1 import vgpud_pb2 as pb

SESSION_TOKEN_BYTES = 32
#: further ports of one session
PORTS_MAX = 8
_PORT_NAME = re.compile("[a-z][a-z0-9]{0,15}")
#: shorter than a minute it would end between two looks of its user
IDLE_MIN_NS = 60 * SECOND_NS


def session_variables(job_spec: pb.JobSpec) -> dict[str, str]:
    """A session's token: kept as long as the rest of its environment, and shown to its owner only."""
    return {session.TOKEN: secrets.token_hex(SESSION_TOKEN_BYTES)} if job_spec.session else {}


def session_from(job_spec: pb.JobSpec) -> str:
    """What serves its page. One program serves it, at a port of this machine. Raises RefusedError."""
    if not job_spec.session:
        for field in ("idle_after", "session_ports"):
            if job_spec.session_ports if field == "session_ports" else job_spec.HasField(field):
                raise _invalid(f"{field} of a job that is no session: name what serves its page in `session`", field)
        return ""
    if job_spec.session in session.OF_SERVICES and (job_spec.session_ports or job_spec.HasField("idle_after")):
        raise _invalid("a job of a service has one port and is not ended when it is idle: leave that out", "session")
    if job_spec.session == session.BALANCER and not session.is_balancer(job_spec.command):
        raise _invalid("a balancer runs vgpud's own program: start it by `vgpu service start`", "command")
    if job_spec.session not in session.PROGRAMS:
        text = f"session {job_spec.session[:40]!r} is unknown: write one of {', '.join(session.PROGRAMS)}"
        raise _invalid(text, "session")
    if job_spec.image and job_spec.session == session.BALANCER:
        raise _invalid("a balancer with an image: it runs on the node itself, leave the image out", "session")
    return job_spec.session


def session_ports_from(job_spec: pb.JobSpec) -> tuple[str, ...]:
    """Names of its further ports. Raises RefusedError."""
    names = tuple(job_spec.session_ports)
    if len(names) > PORTS_MAX:
        raise _invalid(f"{len(names)} further ports: a session has at most {PORTS_MAX}", "session_ports")
    for name in names:
        if not _PORT_NAME.fullmatch(name):
            text = f"{name[:40]!r} is no name of a port: write up to 16 small letters and digits, a letter first"
            raise _invalid(text, "session_ports")
    if len(set(names)) < len(names):
        raise _invalid("two ports have the same name: name each once", "session_ports")
    return names


def idle_after_from(job_spec: pb.JobSpec) -> int:
    """ns; 0 = never. Raises RefusedError."""
    if not job_spec.HasField("idle_after"):
        return 0
    span_ns = job_spec.idle_after.ToNanoseconds()
    if not IDLE_MIN_NS <= span_ns < NEVER_NS:
        raise _invalid("idle_after is less than a minute: write 1m or more, or leave it out", "idle_after")
    return span_ns


def _invalid(message: str, field: str) -> Exception:
    return refuse(Reason.INVALID, message, field)
