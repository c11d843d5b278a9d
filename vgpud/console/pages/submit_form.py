"""A job's form and the message that it makes: all that the command line's `vgpu submit` can ask for, and the way back,
which fills the form in with a job that there is. Fields have the names of the options."""

from __future__ import annotations

import os
import pwd
import shlex
import time
from collections.abc import Callable, Sequence
from typing import Any

import click

from vgpud.cli.common.quantities import Bytes, Gpus, LinkPart, Number, Whole
from vgpud.cli.common.slice_options import build_spec
from vgpud.cli.common.times import Begin, Span
from vgpud.cli.jobs import elastic_options
from vgpud.cli.jobs.after_options import dependencies
from vgpud.cli.jobs.ending_options import SignalAhead, fill_ending
from vgpud.cli.jobs.notify_options import EVENTS, Events
from vgpud.cli.jobs.quantities import Array, Cpus, JobIds
from vgpud.cli.jobs.submit import MEMBERS_MAX, PRIORITY_MAX, RETRIES_MAX
from vgpud.client.arrays import set_array
from vgpud.console.live.data import span
from vgpud.console.login.client import User
from vgpud.console.web.site import Form
from vgpud.core.jobs.container_parts import PartError, parse_port, parse_registry, parse_volume
from vgpud.core.model import CLASSES, WEIGHT_MAX
from vgpud.core.units import GPUS_MAX, UnitError, format_gpus
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1.words import NOTIFICATION_EVENT, SERVICE_CLASS
from vgpud.view.spans import format_span

_UMASK = 0o022
_SHELL = ("/bin/sh", "-c")
_PATH = "/usr/local/bin:/usr/bin:/bin"
#: what the page of a terminal is
_TERM = "xterm-256color"
#: a check box of one device: this and its UUID
DEVICE = "device:"
#: fields of the form whose text an option of the command line reads
_TYPES: dict[str, Any] = {
    "gpus": elastic_options.GpuBounds(),
    "min": Gpus(zero=True),
    "max": Gpus(),
    "mem": Bytes(),
    "mem_min": Bytes(),
    "mem_max": Bytes(),
    "weight": Whole(0, WEIGHT_MAX),
    "spread": Whole(1, GPUS_MAX),
    "idle_after": Span(zero=True),
    "copy_max": LinkPart(),
    "gang": Whole(1, MEMBERS_MAX),
    "cpus": Cpus(),
    "ram": Bytes(),
    "workers": elastic_options.Workers(),
    "batch": Whole(1, elastic_options.BATCH_MAX),
    "batch_max": Whole(1, elastic_options.BATCH_MAX),
    "skew": Number(0, 1),
    "priority": Whole(-PRIORITY_MAX, PRIORITY_MAX),
    "retries": Whole(0, RETRIES_MAX),
    "time_limit": Span(),
    "expected": Span(),
    "begin": Begin(),
    "signal": SignalAhead(),
    "grace": Span(),
    "array": Array(),
    "after": JobIds(),
    "after_fail": JobIds(),
    "after_any": JobIds(),
    "notify": Events(),
}
#: what a job has that asks for nothing else
_USUAL, _USUAL_LOG = (pb.SERVICE_CLASS_UNSPECIFIED, pb.SERVICE_CLASS_BATCH), "vgpu-%j.log"
_TEXTS = ("name", "queue", "image", "log", "heuristic", "utility", "environment_name")


class FieldError(ValueError):
    """One sentence: what is wrong with a field of the form."""

    def __init__(self, field: str, sentence: str) -> None:
        super().__init__(sentence)
        self.field = field


def spec_of(form: Form, user: User, environments: Sequence[pb.Environment] = ()) -> pb.JobSpec:
    """The job of a form. `environments`: those of the site. Raises ValueError, one sentence that names the field."""
    command = form.get("command", "").strip()
    values = {name: _read(form, name) for name in _TYPES} | {name: form.get(name, "").strip() for name in _TEXTS}
    environment = next((one for one in environments if one.name == values["environment_name"]), None)
    if not (command or values["image"] or values["environment_name"]):
        raise FieldError("command", "a job needs a command, an image, or an environment of the site")
    if values["gpus"] is None and not values["environment_name"]:
        raise FieldError("gpus", "gpus: write a size: 0.5 is half a device, 0.25..1 is resized while it runs")
    try:
        spec = _make_sized_spec(values, form)
        fill_ending(spec, values)
        for field, job_ids in dependencies({**values, "after_ok": None}).items():
            getattr(spec, field).extend(job_ids)
    except click.UsageError as error:
        raise ValueError(error.message) from error
    spec.name, spec.queue, spec.image, spec.log = (values[name] for name in ("name", "queue", "image", "log"))
    spec.environment_name = values["environment_name"]
    spec.priority, spec.retries = values["priority"] or 0, values["retries"] or 0
    spec.cpu_milli, spec.ram_bytes, spec.skew = values["cpus"] or 0, values["ram"] or 0, values["skew"] or 0.0
    spec.hold, spec.terminal = form.get("hold") == "yes", form.get("pty") == "yes"
    spec.not_preemptible = form.get("no_preempt") == "yes"
    if values["array"]:
        set_array(spec, *values["array"])
    if values["begin"]:
        spec.begin_time.FromNanoseconds(values["begin"])
    for name, duration in (("time_limit", spec.time_limit), ("expected", spec.expected_duration)):
        if values[name]:
            duration.CopyFrom(span(values[name]))
    _notification(spec, form, values["notify"])
    spec.command.extend([*_SHELL, command] if form.get("shell") == "yes" and command else _words(command))
    _give_parts(spec, form)
    _place(spec, form, user, environment)
    return spec


def _make_sized_spec(values: dict[str, Any], form: Form) -> pb.JobSpec:
    """A message with the job's size. Raises UsageError."""
    elastic_options.check({**values, "min_milli": values["min"], "max_milli": values["max"]})
    share = {
        "gpus": elastic_options.least_gpus(values) if values["gpus"] is not None else None,
        "min_milli": values["min"],
        "max_milli": values["max"],
        **{name: values[name] for name in ("mem", "mem_min", "mem_max", "weight", "spread")},
        "mem_swap": form.get("mem_swap") == "yes" or None,
        "idle_after_ns": values["idle_after"],
        "copy_max_milli": values["copy_max"],
        "service_class": form["class"] if form.get("class") in CLASSES else None,
    }
    spec = pb.JobSpec(slice=build_spec(share), members=values["gang"] or 1, umask=_UMASK)
    spec.slice.device_uuids.extend(name.removeprefix(DEVICE) for name in form if name.startswith(DEVICE))
    elastic_options.fill(spec, values)
    return spec


def _give_parts(spec: pb.JobSpec, form: Form) -> None:
    """What its container is given of the node. Raises ValueError."""
    volumes = [line.strip() for line in form.get("volumes", "").splitlines() if line.strip()]
    spec.volumes.extend(str(_part("volumes", text, parse_volume)) for text in volumes)
    ports = form.get("ports", "").replace(",", " ").split()
    spec.ports.extend(str(_part("ports", text, parse_port)) for text in ports)
    if registry := form.get("registry", "").strip():
        spec.registry = str(_part("registry", registry, parse_registry))


def _part(field: str, text: str, parse: Callable[[str], object]) -> object:
    """Raises FieldError."""
    try:
        return parse(text)
    except PartError as error:
        raise FieldError(field, str(error)) from error


def _place(spec: pb.JobSpec, form: Form, user: User, environment: pb.Environment | None) -> None:
    """Directory and environment. Raises ValueError."""
    home = pwd.getpwuid(user.uid)
    spec.directory = os.path.join(home.pw_dir, form.get("directory", "").strip())
    if not spec.image and not (environment and environment.defaults.image):
        of_site = environment.defaults.environment if environment else {}
        for name, value in own_variables(home, spec).items():
            if name not in of_site:
                spec.environment[name] = value
    for line in form.get("environment", "").splitlines():
        name, equals, value = line.strip().partition("=")
        if name and not equals:
            raise FieldError("environment", f"environment {line!r} is not a variable: write NAME=VALUE, one in a line")
        if name:
            spec.environment[name] = value


def own_variables(home: pwd.struct_passwd, spec: pb.JobSpec) -> dict[str, str]:
    own = {"HOME": home.pw_dir, "USER": home.pw_name, "LOGNAME": home.pw_name, "SHELL": home.pw_shell, "PATH": _PATH}
    return own | ({"TERM": _TERM} if spec.terminal else {})


def _notification(spec: pb.JobSpec, form: Form, notify_events: tuple[str, ...] | None) -> None:
    """The command's program is not looked for: the console may see more of this machine than the user does."""
    mail, webhook, command = (form.get(f"notify_{way}", "").strip() for way in ("mail", "webhook", "command"))
    words = _words(command)
    if words and not words[0].startswith("/"):
        raise FieldError("notify_command", f"notify_command: write the whole path of {words[0]!r}")
    events = dict.fromkeys(
        [*(notify_events or ()), *(event for event in EVENTS if form.get(f"notify_{event}") == "yes")]
    )
    if events and not (mail or webhook or words):
        raise ValueError("notify: write where the news goes: an address, a URL or a command")
    if mail or webhook or words:
        spec.notification.events.extend(map(NOTIFICATION_EVENT.to_number, events))
        spec.notification.mail, spec.notification.webhook = mail, webhook
        spec.notification.command.extend(words)


def _read(form: Form, name: str) -> Any:
    """The field's value, None where it is empty. Raises ValueError."""
    text = form.get(name, "").strip()
    return read_field(name, text, lambda given: _TYPES[name].convert(given, None, None)) if text else None


def read_field(name: str, text: str, parse: Callable[[str], Any]) -> Any:
    """What parse() makes of the text. Raises FieldError, one sentence that begins with the field's name."""
    try:
        return parse(text)
    except click.UsageError as error:
        raise FieldError(name, f"{name}: {error.message}") from error
    except (UnitError, ValueError) as error:
        raise FieldError(name, f"{name}: {error}") from error


def _words(command: str) -> list[str]:
    try:
        return shlex.split(command)
    except ValueError as error:
        raise FieldError("command", f"command: {error}: close the quote, or choose the shell") from error


# ---- the way back ----


def form_of(job: pb.Job, user: User) -> dict[str, str]:
    """The form that asks for such a job once more: of an array's job, for one of them. A begin that is over, the
    jobs that it came after and what only the command line has (limits, umask, a prediction) are left out."""
    spec, share = job.spec, job.spec.slice
    elastic = spec.elastic
    command = list(spec.command)
    is_shell = len(command) == 3 and tuple(command[:2]) == _SHELL
    bounds = (elastic.gpus_milli_min, elastic.gpus_milli_max)
    found = {
        "command": command[2] if is_shell else shlex.join(command),
        "shell": "yes" if is_shell else "",
        "name": spec.name,
        "queue": spec.queue,
        "environment_name": spec.environment_name,
        "image": "" if spec.environment_name else spec.image,  # the environment's, unless the site allows any
        "volumes": "\n".join(spec.volumes),
        "ports": " ".join(spec.ports),
        "registry": spec.registry,
        "log": "" if spec.log == os.path.join(spec.directory, _USUAL_LOG) else spec.log,
        "directory": spec.directory,
        "gpus": "..".join(map(format_gpus, bounds)) if any(bounds) else format_gpus(share.gpus_milli),
        "gang": str(spec.members) if spec.members > 1 and not elastic.workers_max else "",
        "cpus": format_gpus(spec.cpu_milli) if spec.cpu_milli else "",
        "ram": str(spec.ram_bytes or ""),
        "spread": str(share.spread or ""),
        "weight": str(share.weight or ""),
        "mem_swap": "yes" if share.mem_swap else "",
        "idle_after": format_span(share.idle_after_ns) if share.HasField("idle_after_ns") else "",
        "copy_max": format_gpus(share.copy_max_milli) if share.copy_max_milli else "",
        "class": "" if share.service_class in _USUAL else SERVICE_CLASS.to_word(share.service_class),
        "skew": f"{spec.skew:g}" if spec.skew else "",
        "priority": str(spec.priority or ""),
        "retries": str(spec.retries or ""),
        "pty": "yes" if spec.terminal else "",
        "no_preempt": "yes" if spec.not_preemptible else "",
        "environment": "\n".join(f"{name}={value}" for name, value in sorted(_others(spec, user).items())),
        **{f"{DEVICE}{uuid}": "yes" for uuid in share.device_uuids},
        **_elastic_fields(elastic),
        **_notify_fields(spec.notification),
        **_times(spec),
    }
    if not any(bounds):
        shares = {name: f"{name}_milli" for name in ("min", "max") if share.HasField(f"{name}_milli")}
        found |= {name: format_gpus(getattr(share, field)) for name, field in shares.items()}
    amounts = {name: f"{name}_bytes" for name in ("mem_min", "mem_max") if share.HasField(f"{name}_bytes")}
    memory = {name: str(getattr(share, field)) for name, field in amounts.items()}
    same = len(memory) == 2 and memory["mem_min"] == memory["mem_max"]
    found |= {"mem": memory["mem_min"]} if same else memory
    return {name: text for name, text in found.items() if text}


def _others(spec: pb.JobSpec, user: User) -> dict[str, str]:
    """Variables besides those that every job of this form has."""
    own = {} if spec.image else own_variables(pwd.getpwuid(user.uid), spec)
    return {name: value for name, value in spec.environment.items() if own.get(name) != value and "\n" not in value}


def _elastic_fields(elastic: pb.ElasticSpec) -> dict[str, str]:
    if not elastic.workers_max:
        return {}
    is_utility = elastic.heuristic.startswith("utility(")
    return {
        "workers": f"{elastic.workers_min}-{elastic.workers_max}",
        "utility": elastic.heuristic.removeprefix("utility(").removesuffix(")") if is_utility else "",
        "heuristic": "" if is_utility else elastic.heuristic,
        "batch": str(elastic.batch or ""),
        "batch_max": str(elastic.batch_max or ""),
    }


def _notify_fields(news: pb.Notification) -> dict[str, str]:
    events = {f"notify_{NOTIFICATION_EVENT.to_word(event)}": "yes" for event in news.events}
    ways = {"notify_mail": news.mail, "notify_webhook": news.webhook, "notify_command": shlex.join(news.command)}
    return {**events, **ways}


def _times(spec: pb.JobSpec) -> dict[str, str]:
    fields = (("time_limit", spec.time_limit), ("expected", spec.expected_duration), ("grace", spec.grace))
    found = {name: format_span(field.ToNanoseconds()) for name, field in fields if field.ToNanoseconds()}
    if spec.signal:
        found["signal"] = f"{spec.signal}@{format_span(spec.signal_lead.ToNanoseconds())}"
    if spec.begin_time.ToNanoseconds() > time.time_ns():
        found["begin"] = spec.begin_time.ToJsonString()
    return found
