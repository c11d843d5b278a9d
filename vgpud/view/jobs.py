"""Jobs, queues and usage as plain dictionaries: the stable field names of `-o json`, as in slices.py."""

from __future__ import annotations

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view.slices import View
from vgpud.view.user_names import find_user_name

#: words of the final states
ENDED = ("completed", "failed", "cancelled", "timed_out")
#: exit codes for jobs without one above 0: as of a shell, timeout(1) and Ctrl-C
_CODES: dict[int, int] = {
    pb.JOB_STATE_COMPLETED: 0,
    pb.JOB_STATE_FAILED: 1,
    pb.JOB_STATE_TIMED_OUT: 124,
    pb.JOB_STATE_CANCELLED: 130,
}


def exit_code(job: pb.Job) -> int:
    """The exit code of a command that waited for this job: the job's own, or one that stands for its state."""
    return job.exit_code if job.exit_code > 0 else _CODES[job.state]


def _time(stamp: Timestamp) -> str | None:
    return stamp.ToJsonString() if stamp.seconds or stamp.nanos else None


def _ns(span: Duration) -> int:
    return span.seconds * 10**9 + span.nanos


def job_view(job: pb.Job, simulated_indices: frozenset[int]) -> View:
    """simulated_indices: of the simulated devices."""
    spec = job.spec
    share = spec.slice
    return {
        "node": job.node,
        "job_id": job.job_id,
        "name": spec.name,
        "uid": job.uid,
        "user": find_user_name(job.uid),
        "queue": spec.queue,
        "state": words.JOB_STATE.to_word(job.state),
        "reason": job.reason or None,
        "exit_code": job.exit_code if job.HasField("exit_code") else None,
        "gpus_milli": share.gpus_milli,
        "min_milli": share.min_milli if share.HasField("min_milli") else None,
        "max_milli": share.max_milli if share.HasField("max_milli") else None,
        "mem_min_bytes": share.mem_min_bytes if share.HasField("mem_min_bytes") else None,
        "mem_max_bytes": share.mem_max_bytes if share.HasField("mem_max_bytes") else None,
        "spread": share.spread or None,
        "class": words.SERVICE_CLASS.to_word(share.service_class) or "batch",
        "asked_device_uuids": list(share.device_uuids),
        "members": spec.members or 1,
        **_elastic(spec),
        "cpu_milli": spec.cpu_milli or None,
        "ram_bytes": spec.ram_bytes or None,
        "priority": spec.priority,
        "preemptible": not spec.not_preemptible,
        "time_limit_ns": _ns(spec.time_limit) if spec.HasField("time_limit") else None,
        "signal": spec.signal or None,
        "signal_lead_ns": _ns(spec.signal_lead) if spec.HasField("signal_lead") else None,
        "grace_ns": _ns(spec.grace) if spec.HasField("grace") else None,
        "begin_time": _time(spec.begin_time) if spec.HasField("begin_time") else None,
        "expected_duration_ns": _ns(spec.expected_duration) if spec.HasField("expected_duration") else None,
        "estimated_duration_ns": _ns(job.estimated_duration) if job.HasField("estimated_duration") else None,
        "skew": spec.skew or None,
        "retries": spec.retries,
        "after": list(spec.after),
        "after_any": spec.after_any,
        "after_fail": list(spec.after_fail),
        "after_end": list(spec.after_end),
        "array_id": job.array_id if job.HasField("array_id") else None,
        "array_index": job.array_index if job.HasField("array_index") else None,
        "array_limit": spec.array_limit or None,
        "submit_time": _time(job.submit_time),
        "estimated_start_time": _time(job.estimated_start_time),
        "start_time": _time(job.start_time),
        "end_time": _time(job.end_time),
        "position": job.position if job.HasField("position") else None,
        "attempt": job.attempt,
        "preemptions": job.preemptions,
        "slices": list(job.slices),
        "device_indices": list(job.device_indices),
        "simulated": not simulated_indices.isdisjoint(job.device_indices),
        "command": list(spec.command),
        "image": spec.image or None,
        "environment_name": spec.environment_name or None,
        "volumes": list(spec.volumes),
        "ports": list(spec.ports),
        "registry": spec.registry or None,
        "directory": spec.directory,
        "log": job.log,
        "gpu_seconds_granted": round(job.gpu_seconds_granted, 6),
        "gpu_seconds_used": round(job.gpu_seconds_used, 6),
        "cpu_seconds": round(job.cpu_seconds, 6),
        "ram_peak_bytes": job.ram_peak_bytes,
        "samples_per_second": round(job.samples_per_second, 3) or None,
        "utilisation": round(job.utilisation, 3) or None,
        "utilisation_measured": job.utilisation_measured,
        "terminal": spec.terminal,
        "session": spec.session or None,
        "session_port": job.session_port if job.HasField("session_port") else None,
        "named_ports": dict(job.named_ports) or None,
        "idle_after_ns": _ns(spec.idle_after) if spec.HasField("idle_after") else None,
        "use_time": _time(job.use_time) if job.HasField("use_time") else None,
        "notification": _notification(spec.notification) if spec.HasField("notification") else None,
        "prediction": _prediction(spec.prediction) if spec.HasField("prediction") else None,
    }


def _elastic(spec: pb.JobSpec) -> View:
    """The bounds of an elastic job; `gpus_milli` and `members` are its present size."""
    elastic = spec.elastic
    return {
        "gpus_milli_min": elastic.gpus_milli_min or None,
        "gpus_milli_max": elastic.gpus_milli_max or None,
        "workers_min": elastic.workers_min or None,
        "workers_max": elastic.workers_max or None,
        "heuristic": elastic.heuristic or None,
        "batch": elastic.batch or None,
        "batch_max": elastic.batch_max or None,
    }


def _notification(notification: pb.Notification) -> View:
    return {
        "events": list(map(words.NOTIFICATION_EVENT.to_word, notification.events)),
        "mail": notification.mail or None,
        "webhook": notification.webhook or None,
        "command": list(notification.command) or None,
    }


def _prediction(prediction: pb.Prediction) -> View:
    def range_view(interval: pb.Range) -> View:
        return {"value": interval.value, "low": interval.low, "high": interval.high}

    return {
        "model": prediction.model,
        "device": prediction.device or None,
        "out_of_range": prediction.out_of_range,
        "utilisation": range_view(prediction.utilisation),
        "sm_activity": range_view(prediction.sm_activity),
        "mem_bytes": range_view(prediction.mem_bytes),
    }


def queue_view(queue: pb.Queue) -> View:
    def amount(field: str) -> int | None:
        return getattr(queue, field) if queue.HasField(field) else None

    return {
        "name": queue.name,
        "parent": queue.parent or None,
        "guarantee_milli": queue.guarantee_milli,
        "limit_milli": amount("limit_milli"),
        "weight": queue.weight,
        "used_milli": queue.used_milli,
        "running": queue.running,
        "pending": queue.pending,
        "history_gpu_seconds": round(queue.history_gpu_seconds, 3),
        "policy": queue.policy,
        "placement": queue.placement,
        "spread": queue.spread,
        "strict": queue.strict,
        "backfill": queue.backfill,
        "min_run_ns": _ns(queue.min_run),
        "elastic_wait_ns": _ns(queue.elastic_wait) if queue.HasField("elastic_wait") else None,
        "elastic_idle_ns": _ns(queue.elastic_idle) if queue.HasField("elastic_idle") else None,
        "elastic_eager": queue.elastic_eager,
        "cpu_limit_milli": amount("cpu_limit_milli"),
        "ram_limit_bytes": amount("ram_limit_bytes"),
        "members": list(queue.members),
    }


def usage_view(usage: pb.Usage) -> View:
    """For a job all fields; for a sum its key, the GPU-seconds and the copies."""
    uid = usage.uid if usage.HasField("uid") else None
    row: View = {
        "queue": usage.queue or None,
        "uid": uid,
        "user": find_user_name(uid),
        "jobs": usage.jobs,
        "gpu_seconds_asked": round(usage.gpu_seconds_asked, 6),
        "gpu_seconds_granted": round(usage.gpu_seconds_granted, 6),
        "gpu_seconds_used": round(usage.gpu_seconds_used, 6),
        "copy_to_device_bytes": usage.copy_to_device_bytes,
        "copy_from_device_bytes": usage.copy_from_device_bytes,
    }
    if usage.slice:
        row |= {"node": usage.node, "slice": usage.slice}
    if usage.namespace:
        row |= {"namespace": usage.namespace, "pod": usage.pod or None}
    if usage.HasField("job_id"):
        row |= {
            "job_id": usage.job_id,
            "state": words.JOB_STATE.to_word(usage.state),
            "submit_time": _time(usage.submit_time),
            "start_time": _time(usage.start_time),
            "end_time": _time(usage.end_time),
            "gpus_milli": usage.gpus_milli,
            "members": usage.members,
            "run_duration_ns": _ns(usage.run_duration),
        }
    return row
