"""A job as the keys of a job file: what `vgpu job clone` submits again, and `vgpu job template save` writes.

Left out: what held for the first submission alone (the jobs that it came after, its begin, its being held), and what a
job of one's own has besides options, such as its umask.
"""

from __future__ import annotations

import json
import shlex
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from vgpud.core.jobs import session
from vgpud.core.units import format_gpus
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

_UNITS = (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10))


def document_of(job: pb.Job, own_uid: int) -> dict[str, Any]:
    """The keys and values, without variables, and of another user's job without notifications, which are that user's.
    Raises CliError for a session, which is no job of `vgpu submit`."""
    spec = job.spec
    if spec.session:
        text = f"job {job.job_id} is a session: `vgpu session start` starts another one"
        raise CliError(text, ExitCode.CONFLICT)
    found = {
        "name": spec.name,
        "environment": spec.environment_name,
        "image": "" if spec.environment_name else spec.image,
        "command": list(spec.command),
        "directory": spec.directory,
        "log": "" if spec.log == f"{spec.directory.replace('%', '%%').rstrip('/')}/vgpu-%j.log" else spec.log,
        **_size(spec),
        **_time(spec),
        **(_notification(spec.notification) if job.uid == own_uid else {}),
        "queue": spec.queue,
        "priority": spec.priority,
        "retries": spec.retries,
        "no_preempt": spec.not_preemptible,
        "skew": round(spec.skew, 6),
        "array": str(job.array_index) if job.HasField("array_index") else "",
        "volume": list(spec.volumes),
        "port": list(spec.ports),
        "registry_auth": spec.registry,
    }
    return {key: value for key, value in found.items() if value not in ("", 0, 0.0, False, [])}


def _size(spec: pb.JobSpec) -> dict[str, Any]:
    from vgpud.v1alpha1.words import SERVICE_CLASS
    from vgpud.view.spans import format_span

    share, elastic = spec.slice, spec.elastic
    found: dict[str, Any] = {"gpus": format_gpus(share.gpus_milli)}
    if elastic.gpus_milli_max:
        found["gpus"] = f"{format_gpus(elastic.gpus_milli_min)}..{format_gpus(elastic.gpus_milli_max)}"
    else:
        for key in ("min", "max"):
            if share.HasField(f"{key}_milli"):
                found[key] = format_gpus(getattr(share, f"{key}_milli"))
    sizes = {k: getattr(share, f"{k}_bytes") for k in ("mem_min", "mem_max") if share.HasField(f"{k}_bytes")}
    if len(set(sizes.values())) == 1 and len(sizes) == 2:
        sizes = {"mem": sizes["mem_max"]}
    found |= {key: _format_size(size) for key, size in sizes.items() if size}
    found |= {"class": SERVICE_CLASS.to_word(share.service_class), "weight": share.weight, "spread": share.spread}
    found["mem_swap"] = share.mem_swap
    found["idle_after"] = format_span(share.idle_after_ns) if share.HasField("idle_after_ns") else ""
    found["copy_max"] = format_gpus(share.copy_max_milli) if share.copy_max_milli else ""
    found |= {"device": list(share.device_uuids), "cpus": format_gpus(spec.cpu_milli) if spec.cpu_milli else ""}
    found["ram"] = _format_size(spec.ram_bytes) if spec.ram_bytes else ""
    if elastic.workers_max:
        rule = elastic.heuristic
        is_utility = rule.startswith("utility(") and rule.endswith(")")
        found["workers"] = f"{elastic.workers_min}-{elastic.workers_max}"
        found["utility" if is_utility else "heuristic"] = rule[len("utility(") : -1] if is_utility else rule
        found |= {"batch": elastic.batch, "batch_max": elastic.batch_max}
    elif spec.members > 1:
        found["gang"] = spec.members
    return {key: value for key, value in found.items() if (key, value) != ("class", "batch")}


def _format_size(size: int) -> str:
    """Exactly, as options take it."""
    return next((f"{size // unit}{name}" for name, unit in _UNITS if size % unit == 0), str(size))


def _time(spec: pb.JobSpec) -> dict[str, str]:
    from vgpud.view.spans import format_span

    found = {}
    for key, field in (("time_limit", "time_limit"), ("expected", "expected_duration"), ("grace", "grace")):
        if spec.HasField(field):
            found[key] = format_span(getattr(spec, field).ToNanoseconds())
    if spec.signal:
        found["signal"] = f"{spec.signal}@{format_span(spec.signal_lead.ToNanoseconds())}"
    return found


def _notification(notification: pb.Notification) -> dict[str, str]:
    from vgpud.v1alpha1.words import NOTIFICATION_EVENT

    if not (notification.mail or notification.webhook or notification.command):
        return {}
    return {
        "notify": ",".join(map(NOTIFICATION_EVENT.to_word, notification.events)),
        "notify_mail": notification.mail,
        "notify_webhook": notification.webhook,
        "notify_command": shlex.join(notification.command),
    }


def variables_of(job: pb.Job) -> dict[str, str]:
    """The variables that it was submitted with, as far as they are kept; no session's."""
    return {name: text for name, text in sorted(job.spec.environment.items()) if name != session.TOKEN}


def write_toml(document: Mapping[str, Any], variables: Mapping[str, str]) -> str:
    """The job file of a document."""
    lines = [f"{key} = {_value(value)}" for key, value in document.items()]
    if variables:
        lines += ["", "[env]", *(f"{_value(name)} = {_value(text)}" for name, text in variables.items())]
    return "\n".join(lines) + "\n"


def _value(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, bool):
        return "true" if value else "false"
    # a basic string of TOML is one of JSON, but for DEL
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f") if isinstance(value, str) else str(value)
