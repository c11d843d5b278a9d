"""How a service is shown: what its balancer says of it, in the command line and in the console."""

from __future__ import annotations

from typing import Any

from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.view.slices import View


def url_of(status: View) -> str:
    """The address by a balancer's status; "": it has none yet."""
    host = f"[{status['host']}]" if ":" in status["host"] else status["host"]
    return f"http://{host}:{status['port']}" if status["port"] else ""


def service_row(job: pb.Job, status: View, own_uid: int) -> dict[str, Any]:
    """`job`: the balancer's; `status`: what it says, {}: nothing to this user."""
    replicas = status.get("replicas", [])
    return {
        "name": job.spec.name,
        "uid": job.uid,
        "balancer_job_id": job.job_id,
        "url": (url_of(status) or None) if status else None,
        "replicas": status.get("wanted"),
        "healthy": sum(one["state"] == "healthy" for one in replicas) if status else None,
        "asleep": status.get("asleep"),
        "state": _describe(job, status, own_uid),
    }


def health_text(row: View) -> str:
    """How many of the replicas that are wanted are healthy."""
    verb = "replica is" if row["replicas"] == 1 else "replicas are"
    return f"{row['healthy']} of {row['replicas']} {verb} healthy"


def _describe(job: pb.Job, status: View, own_uid: int) -> str:
    """What there is to know beside the numbers, in words."""
    if not status:
        return "its balancer does not answer" if job.uid == own_uid else "another user's: only they see its state"
    if status["trouble"]:
        return str(status["trouble"])
    if status["asleep"]:
        return "asleep: the next request wakes it"
    if status["retry_s"]:
        return f"{status['last_end']}; the next one starts in {status['retry_s']:.0f} s"
    if any(one["generation"] != status["generation"] for one in status["replicas"]):
        return f"its replicas are being replaced (generation {status['generation']})"
    if status["finished"]:
        return str(status["last_end"])
    return next((one["reason"] for one in status["replicas"] if one["state"] == "pending" and one["reason"]), "")
