"""The form that starts a service: all that `vgpu service start` can ask for, and the way back, which fills it in with a
service that there is. Fields have the names of the options. Pure, but for the user's home directory."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from google.protobuf import json_format

from vgpud.cli.common.times import Span
from vgpud.console.login.client import User
from vgpud.console.pages import submit_form
from vgpud.console.pages.submit_form import FieldError, read_field
from vgpud.console.web.site import Form
from vgpud.core.jobs.session import REPLICA
from vgpud.core.units import PORT_MAX, parse_whole
from vgpud.services.core import programs
from vgpud.services.core.model import REPLICAS_MAX, RecordError, Service, check
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.spans import format_span

_TOKEN_BYTES = 24
_NS = 1_000_000_000
#: field of the form -> field of the record
SPANS = {"scale_to_zero": "idle_s", "wake": "wake_s", "drain": "drain_s"}
HEALTH_SPANS = {"health_every": "every_s", "health_deadline": "deadline_s", "start_limit": "start_s"}
_HEALTH_TEXTS = {"health_http": "http_path", "health_cmd": "command"}
#: field of the record -> field of the form at which a refusal is shown
_FIELD_OF = {record: form for form, record in {**SPANS, **HEALTH_SPANS, **_HEALTH_TEXTS}.items()}
_FIELD_OF |= {"host": "listen", "port": "listen"}
_TIME: Any = Span(zero=True)
#: fields of a job's form that a service's has, too, with the same meaning
JOB_FIELDS = (
    *("command", "shell", "name", "directory", "environment_name", "image", "volumes", "registry", "environment"),
    *("gpus", "min", "max", "mem", "mem_min", "mem_max", "weight", "spread", "class", "cpus", "ram", "queue"),
    *("mem_swap", "idle_after", "copy_max"),
)


def service_of(form: Form, user: User, environments: Sequence[pb.Environment]) -> Service:
    """The record of a form, with a token of its own. Raises ValueError, one sentence; FieldError where it is one
    field's."""
    known = {name: form[name] for name in form if name in JOB_FIELDS or name.startswith(submit_form.DEVICE)}
    spec = submit_form.spec_of(known, user, environments)
    of_site = next((one for one in environments if one.name == spec.environment_name), None)
    program = tuple(spec.command) or tuple(of_site.defaults.command if of_site else ())
    name = spec.name or programs.name_of(program or (spec.environment_name or spec.image,))
    spec.name, spec.session, spec.not_preemptible = "", REPLICA, form.get("preemptible") != "yes"
    command = programs.complete_command(program)
    if command != program:
        del spec.command[:]
        spec.command.extend(command)
    host, port = _read_address(form.get("listen", "").strip())
    made = Service(name, json_format.MessageToDict(spec), secrets.token_hex(_TOKEN_BYTES), host=host, port=port)
    health = replace(made.health, **_read_health(form, programs.usual_health_path(program)))
    made = replace(made, health=health, **_read_fields(form))
    try:
        check(made)
    except RecordError as error:
        raise FieldError(_FIELD_OF.get(error.field, error.field), str(error)) from error
    return made


def _read_address(text: str) -> tuple[str, int]:
    """Raises FieldError."""
    host, _, port_text = text.rpartition(":")
    port = parse_whole(port_text, PORT_MAX) if text else 0
    if port is None:
        raise FieldError("listen", f"listen: {text[:60]!r} is no address: write PORT, or HOST:PORT")
    return host.removeprefix("[").removesuffix("]") or "127.0.0.1", port


def _read_span(form: Form, name: str) -> float | None:
    """In seconds; None where the field is empty. Raises FieldError."""
    text = form.get(name, "").strip()
    return read_field(name, text, lambda given: _TIME.convert(given, None, None)) / _NS if text else None


def _read_health(form: Form, usual_path: str) -> dict[str, Any]:
    """Fields of Health. Raises FieldError."""
    path, command = form.get("health_http", "").strip(), form.get("health_cmd", "").strip()
    texts = {"http_path": path, "command": command} if path or command else {"http_path": usual_path}
    spans = {field: _read_span(form, name) for name, field in HEALTH_SPANS.items()}
    return texts | {field: value for field, value in spans.items() if value is not None}


def _read_fields(form: Form) -> dict[str, Any]:
    """Fields of the record beside its template and its health. Raises FieldError."""
    text = form.get("replicas", "").strip() or "1"
    count = parse_whole(text, REPLICAS_MAX)
    if count is None:
        sentence = f"replicas: {text[:40]!r} is no number of replicas: write 0 to {REPLICAS_MAX}"
        raise FieldError("replicas", sentence)
    fields: dict[str, Any] = {"replicas": count, "is_public": form.get("public") == "yes"}
    fields["repeats"] = form.get("no_repeat") != "yes"
    if restart := form.get("restart", "").strip():
        fields["restart"] = restart
    spans = {field: _read_span(form, name) for name, field in SPANS.items()}
    return fields | {field: value for field, value in spans.items() if value is not None}


def form_of(service: Service, user: User) -> dict[str, str]:
    """The form that starts such a service once more, under another name and at an address of its own."""
    spec = json_format.ParseDict(service.template, pb.JobSpec())
    plain = programs.plain_command(spec.command)
    if plain != tuple(spec.command):
        del spec.command[:]
        spec.command.extend(plain)
    of_job = submit_form.form_of(pb.Job(spec=spec), user)
    usual = Service("usual", {}, "")
    found = {name: text for name, text in of_job.items() if name in JOB_FIELDS or name.startswith(submit_form.DEVICE)}
    found |= {"replicas": str(service.replicas), "restart": service.restart}
    for form_name, field in {**SPANS, **HEALTH_SPANS}.items():
        of = (service.health, usual.health) if form_name in HEALTH_SPANS else (service, usual)
        now, was = (getattr(one, field) for one in of)
        if now != was:
            found[form_name] = format_span(round(now * _NS))
    found |= {name: getattr(service.health, field) for name, field in _HEALTH_TEXTS.items()}
    checks = {"preemptible": not spec.not_preemptible, "public": service.is_public, "no_repeat": not service.repeats}
    found |= {name: "yes" for name, is_set in checks.items() if is_set}
    return {name: text for name, text in found.items() if text}
