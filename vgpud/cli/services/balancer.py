"""The balancer of a service, as `vgpu service` finds it and talks to it."""

from __future__ import annotations

import http.client
import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from vgpud.cli.common.options import Settings
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.services.core.model import Service
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: of a balancer's answer: the record has a replica's whole environment
ANSWER_BYTES_MAX = 8 << 20
_STATUS_OF = {400: ExitCode.USAGE, 401: ExitCode.DENIED}


@dataclass(frozen=True)
class Balancer:
    """`job`: its job, as the daemon shows it to the service's owner."""

    settings: Settings
    job: pb.Job

    @property
    def name(self) -> str:
        return str(self.job.spec.name)

    def status(self) -> dict[str, Any]:
        """Raises CliError."""
        return self._ask("GET", "/status")

    def record(self) -> Service:
        """Raises CliError."""
        from vgpud.services.core.model import read_record

        return read_record(json.dumps(self._ask("GET", "/record")))

    def change(self, service: Service) -> None:
        """Raises CliError."""
        self._ask("PUT", "/record", service.to_json())

    def stop(self) -> None:
        """Raises CliError."""
        self._ask("POST", "/stop")

    def _ask(self, method: str, path: str, body: str = "") -> dict[str, Any]:
        from vgpud.cli.common.local_ports import find_server
        from vgpud.core.jobs.session import TOKEN

        token = self.job.spec.environment.get(TOKEN, "")
        if not self.job.HasField("session_port"):
            from vgpud.cli.jobs.wait import words

            text = f"the balancer of service {self.name}, job {self.job.job_id}, {words(self.job)}"
            raise CliError(text, ExitCode.UNREACHABLE)
        if not token:
            raise CliError(f"service {self.name} is uid {self.job.uid}'s: only they may change it", ExitCode.DENIED)
        connection = http.client.HTTPConnection("127.0.0.1", self.job.session_port, timeout=self.settings.timeout_s)
        try:
            connection.connect()
            uid = find_server(self.job.session_port, connection.sock.getsockname()[:2])
            if uid != self.job.uid:  # the token lets whoever has it run programs as the service's owner
                raise OSError("nothing of it listens at its port" + ("" if uid is None else f", uid {uid} does"))
            connection.request(method, path, body, {"Authorization": f"Bearer {token}"})
            answer = connection.getresponse()
            data = json.loads(answer.read(ANSWER_BYTES_MAX))
        except (TimeoutError, OSError, ValueError, http.client.HTTPException) as error:
            text = f"the balancer of service {self.name}, job {self.job.job_id}, does not answer ({error}):"
            raise CliError(
                f"{text} `vgpu service logs {self.name} --balancer` has its output", ExitCode.UNREACHABLE
            ) from error
        finally:
            connection.close()
        if answer.status != 200:
            raise CliError(str(data.get("error", "it refuses")), _STATUS_OF.get(answer.status, ExitCode.OTHER))
        return dict(data)


def find_jobs(settings: Settings, kind: str, name: str = "", *, own: bool = True) -> list[pb.Job]:
    """The jobs of services that have not ended: of this kind, a word of session.OF_SERVICES. `own` False: of all users
    that the caller may see."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    with Client(settings) as client:
        uid = client.own_uid if own else None
        jobs = client.all(calls.jobs(False, "", uid))
    return [job for job in jobs if job.spec.session == kind and name in ("", job.spec.name)]


def find_balancer(settings: Settings, name: str) -> Balancer | None:
    """That of the caller's service with this name; None: there is none."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls
    from vgpud.core.jobs.session import BALANCER

    found = find_jobs(settings, BALANCER, name)
    if not found:
        return None
    with Client(settings) as client:
        return Balancer(settings, client.send(calls.job(found[0].job_id)))


def need_balancer(settings: Settings, name: str) -> Balancer:
    """Raises CliError."""
    from vgpud.cli.common.target import check_local

    check_local(settings, "vgpu service", "log in there, or name the jobs of the service: `vgpu job ls`")
    found = find_balancer(settings, name)
    if found is None:
        raise CliError(f"no service {name} runs: `vgpu service ls` lists yours", ExitCode.NOT_FOUND)
    return found
