"""Jobs of the API as the core's values, and back. Invalid ones are refused here, by their field.

What only the queue's machine can know (whether the job could ever fit the cluster) is refused there.
"""

from __future__ import annotations

import hashlib
import itertools
import math
import resource
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from google.protobuf.duration_pb2 import Duration
from google.protobuf.timestamp_pb2 import Timestamp

from vgpud.api import session_messages
from vgpud.api.elastic_messages import elastic_from, elastic_view, prediction_from, prediction_view, utilisation_milli
from vgpud.api.notification_messages import events_from, notice_from, notification_view
from vgpud.api.rpc import RefusedError, refuse
from vgpud.api.slice_messages import spec_from, spec_view, timestamp
from vgpud.core.jobs import session, similarity
from vgpud.core.jobs.facts import Fact, Facts, Launch, Submission, UsageRow
from vgpud.core.jobs.image_name import image_error
from vgpud.core.jobs.model import NEVER_NS, SECOND_NS, Ask, Elastic, Job, JobSpec
from vgpud.core.jobs.program_name import program_name
from vgpud.core.jobs.signals import SIGNALS
from vgpud.core.model import Denied, Reason, SiteLimits
from vgpud.core.queue.check import AFTER_MAX, ARRAY_JOBS_MAX, MEMBERS_MAX, PRIORITY_MAX, RETRIES_MAX
from vgpud.core.slices.admission import parts_of
from vgpud.core.slices.machine import REQUEST_ID_BYTES_MAX
from vgpud.core.units import INT64_MAX, MILLI_PER_DEVICE
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words

CPU_MILLI_MAX = 1_000_000
RAM_BYTES_MAX = 1 << 50
NS_PER_MS = 1_000_000
NAME_BYTES_MAX = 100
#: of a job that names none: what a job writes, its log as well, is for its user alone
PRIVATE_UMASK = 0o077
PATH_BYTES_MAX = 4_000  # below PATH_MAX with what %j and %a become
#: environment and command together: what fits a message and execve(2)
WORDS_BYTES_MAX = 192 * 1024
TIME_MAX_NS = 10 * 366 * 86_400 * SECOND_NS
#: 2100-01-01, in seconds since 1970
BEGIN_MAX_S = 4_102_444_800
PPM = 1_000_000
#: name as in `ulimit`'s manual, below RLIMIT_ -> the number of setrlimit(2)
LIMITS: Mapping[str, int] = {
    name.removeprefix("RLIMIT_").lower(): number
    for name, number in vars(resource).items()
    if name.startswith("RLIMIT_") and name != "RLIMIT_OFILE"
}


def _invalid(message: str, field: str) -> RefusedError:
    return refuse(Reason.INVALID, message, field)


def _number(value: int, low: int, high: int, field: str, what: str = "") -> int:
    if not low <= value <= high:
        raise _invalid(f"{what or field} {value} is out of range: write {low} to {high}", field)
    return value


def _text(value: str, limit_bytes: int, field: str) -> str:
    """One line without control characters."""
    if len(value.encode()) > limit_bytes:
        raise _invalid(f"{field} has {len(value.encode())} bytes: at most {limit_bytes} are allowed", field)
    if not value.isprintable():
        raise _invalid(f"{field} {value!r} has characters that cannot be printed: leave them out", field)
    return value


def duration_ns(span: Duration, field: str) -> int:
    """A time as ns; more than zero and at most ten years. Raises RefusedError."""
    total_ns = span.seconds * SECOND_NS + span.nanos
    if total_ns <= 0:
        raise _invalid(f"{field} {total_ns / SECOND_NS:g} s is not a time: write more than 0, or leave it out", field)
    if total_ns > TIME_MAX_NS:
        raise _invalid(f"{field} {total_ns // SECOND_NS} s is more than ten years: write less, or leave it out", field)
    return total_ns


def duration(span_ns: int) -> Duration:
    return Duration(seconds=span_ns // SECOND_NS, nanos=span_ns % SECOND_NS)


# ---- a job as it is submitted ----


def submission_from(request: pb.SubmitJobRequest, launch: Launch, queue: str, *, colocates: bool = False) -> Submission:
    """A checked request; `launch` and `queue` are what launch_from() and the backend made of it. Raises RefusedError.

    `colocates`: the queue places jobs by what they use of devices.
    """
    asked = request.spec
    indices = _indices(asked)
    elastic = elastic_from(asked)
    spec = JobSpec(
        ask=_ask(asked, elastic),
        members=_number(_members(asked, elastic), 1, MEMBERS_MAX, "members", "a gang of"),
        name=_text(asked.name, NAME_BYTES_MAX, "name") or _default_name(launch),
        queue=queue,
        uid=launch.uid,
        priority=_number(asked.priority, -PRIORITY_MAX, PRIORITY_MAX, "priority"),
        time_limit_ns=duration_ns(asked.time_limit, "time_limit") if asked.HasField("time_limit") else NEVER_NS,
        begin_ns=_begin(asked),
        duration_ns=_parse_duration_ns(asked),
        signal_lead_ns=_signal_lead_ns(asked),
        retries=_number(asked.retries, 0, RETRIES_MAX, "retries"),
        **_parse_dependencies(asked),
        index=indices[0] if indices else 0,
        array_limit=_array_limit(asked),
        skew_ppm=_skew(asked.skew),
        preemptible=not asked.not_preemptible,
        elastic=elastic,
        notify=events_from(asked),
        run=launch,
    )
    spec = classify_spec(spec, launch, colocates=colocates)
    fingerprint = hashlib.sha256(asked.SerializeToString(deterministic=True)).hexdigest()
    request_id = _text(request.request_id, REQUEST_ID_BYTES_MAX, "request_id")
    return Submission(spec, len(indices) or 1, asked.hold, request_id, fingerprint, indices)


def _members(job_spec: pb.JobSpec, elastic: Elastic | None) -> int:
    """At first; an elastic job begins with the least."""
    return elastic.least_members if elastic and elastic.least_members else job_spec.members or 1


def classify_spec(spec: JobSpec, launch: Launch, *, colocates: bool) -> JobSpec:
    """With similarity classes. The predicted utilisation is set only where placement goes by it: jobs with equal asks
    are one shape."""
    classes = similarity.classes(spec.name, launch.image, launch.command, launch.uid, spec)
    ask = spec.ask
    if colocates:
        used_milli = utilisation_milli(launch.prediction)
        ask = replace(ask, utilisation_milli=used_milli, kind=similarity.sharing(classes))
    return replace(spec, kinds=classes, ask=ask)


def _ask(job_spec: pb.JobSpec, elastic: Elastic | None) -> Ask:
    spec = spec_from(job_spec.slice)
    if elastic and elastic.least_milli:
        spec = replace(spec, gpus_milli=elastic.least_milli)
    needs_none = job_spec.session == session.BALANCER  # which passes requests on
    if needs_none and job_spec.slice != pb.SliceSpec():
        raise _invalid("a balancer needs no device: leave its slice out", "slice")
    if not needs_none:
        parts = parts_of(spec, SiteLimits())
        if isinstance(parts, Denied):
            raise RefusedError(parts)
    return Ask(
        spec=spec,
        cpu_milli=_number(job_spec.cpu_milli, 0, CPU_MILLI_MAX, "cpu_milli"),
        ram_bytes=_number(job_spec.ram_bytes, 0, RAM_BYTES_MAX, "ram_bytes"),
    )


def _default_name(launch: Launch) -> str:
    """The script's, the program's or the image's, as far as it can be printed."""
    word = program_name(launch.command) if launch.command else launch.image.rpartition("/")[2]
    return "".join(c if c.isprintable() else "?" for c in word)[: NAME_BYTES_MAX // 4] or "job"


def _indices(job_spec: pb.JobSpec) -> tuple[int, ...]:
    """The array's indices in their order; () of a single job."""
    given = job_spec.array_indices
    if len(given) > ARRAY_JOBS_MAX:
        raise _invalid(f"array has {len(given)} jobs: at most {ARRAY_JOBS_MAX} are allowed", "array_indices")
    found = tuple(sorted(set(given)))
    if len(found) < len(given):
        ordered = sorted(given)
        twice = next(index for index, after in itertools.pairwise(ordered) if index == after)
        raise _invalid(f"array has index {twice} twice: name each once", "array_indices")
    return found


def _array_limit(job_spec: pb.JobSpec) -> int:
    if job_spec.array_limit and not job_spec.array_indices:
        raise _invalid(f"array_limit {job_spec.array_limit} without an array: name its indices", "array_limit")
    return _number(job_spec.array_limit, 0, ARRAY_JOBS_MAX, "array_limit")


def _parse_duration_ns(job_spec: pb.JobSpec) -> int:
    return duration_ns(job_spec.expected_duration, "expected_duration") if job_spec.HasField("expected_duration") else 0


def _signal_lead_ns(job_spec: pb.JobSpec) -> int:
    if job_spec.signal and job_spec.signal not in SIGNALS:
        raise _invalid(f"signal {job_spec.signal[:20]!r} cannot be sent: choose from {', '.join(SIGNALS)}", "signal")
    if bool(job_spec.signal) != job_spec.HasField("signal_lead"):
        raise _invalid("a signal needs the time before the limit, and such a time a signal: give both", "signal")
    if not job_spec.signal:
        return 0
    lead_ns = duration_ns(job_spec.signal_lead, "signal_lead")
    if not job_spec.HasField("time_limit"):
        raise _invalid("a signal is sent before the time limit: give the job a time limit", "signal")
    if lead_ns >= duration_ns(job_spec.time_limit, "time_limit"):
        text = f"a signal {lead_ns / SECOND_NS:g} s before the time limit, which is no longer than that"
        raise _invalid(f"{text}: write a shorter time, or a longer limit", "signal_lead")
    return lead_ns


def _grace_ms(job_spec: pb.JobSpec) -> int:
    return duration_ns(job_spec.grace, "grace") // NS_PER_MS if job_spec.HasField("grace") else -1


def _begin(job_spec: pb.JobSpec) -> int:
    if not job_spec.HasField("begin_time"):
        return 0
    begin = job_spec.begin_time
    if not 0 <= begin.seconds < BEGIN_MAX_S or not 0 <= begin.nanos < SECOND_NS:
        text = f"begin_time at {begin.seconds} s since 1970 is out of range: write a time before the year 2100"
        raise _invalid(text, "begin_time")
    return begin.seconds * SECOND_NS + begin.nanos


def _parse_dependencies(job_spec: pb.JobSpec) -> dict[str, Any]:
    """The core's fields. A job is waited for in one way only."""
    lists = {name: getattr(job_spec, name) for name in ("after", "after_fail", "after_end")}
    count = sum(map(len, lists.values()))
    if count > AFTER_MAX:
        raise _invalid(f"after names {count} jobs: at most {AFTER_MAX} are allowed", "after")
    fields: dict[str, set[int]] = {}
    for name, ids in lists.items():
        fields[name] = set(ids)
        wrong = [job_id for job_id in ids if job_id <= 0]
        if wrong:
            raise _invalid(f"{name} {wrong[0]} is not a job: `vgpu job ls` lists them", name)
    after = set().union(*fields.values())
    if len(after) < sum(map(len, fields.values())):
        twice = min(one for one in after if sum(one in ids for ids in fields.values()) > 1)
        raise _invalid(f"job {twice} is to be waited for in several ways: name it once", "after")
    found: dict[str, Any] = {name: tuple(sorted(ids)) for name, ids in {**fields, "after": after}.items()}
    return {**found, "after_any": job_spec.after_any}


def _completing(spec: JobSpec) -> list[int]:
    """Of the jobs that it comes after, those that have no field of their own."""
    others = {*spec.after_fail, *spec.after_end}
    return [job_id for job_id in spec.after if job_id not in others]


def _skew(skew: float) -> int:
    if not (math.isfinite(skew) and 0 <= skew <= 1):
        raise _invalid(f"skew {skew:g} is out of range: write 0 (not known) to 1", "skew")
    return round(skew * PPM) if skew else -1


# ---- what is started ----


def launch_from(
    job_spec: pb.JobSpec, uid: int, gid: int, gids: Sequence[int], own: Mapping[str, tuple[int, int]]
) -> Launch:
    """The program. `own`: the caller's resource limits, which are the upper bound. Raises RefusedError."""
    if not job_spec.command and not job_spec.image:
        raise _invalid("nothing to run: give a command, or an image", "command")
    _check_words(job_spec)
    directory = job_spec.directory
    if not directory.startswith("/"):
        raise _invalid(f"directory {directory!r} is not absolute: write it from / on", "directory")
    return Launch(
        uid=uid,
        gid=gid,
        gids=tuple(gids),
        command=tuple(job_spec.command),
        image=_image(job_spec.image),
        directory=_path(directory, "directory"),
        environment=tuple(sorted({**job_spec.environment, **session_messages.session_variables(job_spec)}.items())),
        umask=_number(job_spec.umask, 0, 0o777, "umask") if job_spec.HasField("umask") else PRIVATE_UMASK,
        limits=_limits(job_spec.limits, own),
        log=_log(job_spec.log or "vgpu-%j.log", directory),
        batch=job_spec.elastic.batch,
        batch_max=job_spec.elastic.batch_max,
        prediction=prediction_from(job_spec),
        notice=notice_from(job_spec),
        terminal=terminal_from(job_spec),
        signal=job_spec.signal,
        grace_ms=_grace_ms(job_spec),
        session=check_session(job_spec),
        session_ports=session_messages.session_ports_from(job_spec),
        idle_after_ns=session_messages.idle_after_from(job_spec),
    )


def check_session(job_spec: pb.JobSpec) -> str:
    """What the session serves; "": it is none. Raises RefusedError."""
    found = session_messages.session_from(job_spec)
    if found:
        _check_single(job_spec, "a session", "session")
    return found


def terminal_from(job_spec: pb.JobSpec) -> bool:
    """Whether it has one. A terminal is one program's. Raises RefusedError."""
    if not job_spec.terminal:
        return False
    _check_single(job_spec, "a terminal (--pty)", "terminal")
    return True


def _check_single(job_spec: pb.JobSpec, thing: str, field: str) -> None:
    """Raises RefusedError for a thing that only one program can have."""
    for several, what in (
        (len(job_spec.array_indices) > 0, "an array"),
        (job_spec.members > 1, f"a gang of {job_spec.members}"),
        (job_spec.elastic.workers_max > 0, "elastic workers"),
    ):
        if several:
            raise _invalid(f"{thing} for {what}: it is for one program, submit each by itself", field)


def _check_words(job_spec: pb.JobSpec) -> None:
    """What execve(2) would not take."""
    total = sum(len(word.encode()) + 1 for word in job_spec.command)
    for name, value in job_spec.environment.items():
        if not name or "=" in name or "\0" in name:
            raise _invalid(f"environment has a variable called {name!r}: no name is empty or has a =", "environment")
        if "\0" in value:
            raise _invalid(f"environment variable {name} has a zero byte: leave it out", "environment")
        total += len(name.encode()) + len(value.encode()) + 2
    if any("\0" in word for word in job_spec.command):
        raise _invalid("command has a word with a zero byte: leave it out", "command")
    if job_spec.command and not job_spec.command[0]:
        raise _invalid("command begins with an empty word: name the program", "command")
    if total > WORDS_BYTES_MAX:
        text = f"command and environment have {total} bytes: at most {WORDS_BYTES_MAX} are allowed, leave variables out"
        raise _invalid(text, "environment")


def _path(path: str, field: str) -> str:
    if "\0" in path or len(path.encode()) > PATH_BYTES_MAX:
        raise _invalid(f"{field} is not a path: at most {PATH_BYTES_MAX} bytes, none of them zero", field)
    return path


def _image(image: str) -> str:
    why = image_error(image) if image else ""
    if why:
        raise _invalid(why, "image")
    return image


def _log(pattern: str, directory: str) -> str:
    rest = pattern.replace("%%", "").replace("%j", "").replace("%a", "")
    if "%" in rest:
        text = f"log {pattern!r} has a % that means nothing: %j is the job's id, %a its index, %% a percent sign"
        raise _invalid(text, "log")
    if pattern.endswith("/") or pattern in (".", ".."):
        raise _invalid(f"log {pattern!r} is a folder: name a file", "log")
    path = pattern if pattern.startswith("/") else f"{directory.replace('%', '%%').rstrip('/')}/{pattern}"
    return _path(path, "log")


def _limits(
    requested_limits: Sequence[pb.ResourceLimit], own: Mapping[str, tuple[int, int]]
) -> tuple[tuple[str, int, int], ...]:
    """All of the caller's limits, replaced by requested ones, which are bounded by the caller's hard limits."""
    wanted: dict[str, tuple[int, int]] = {}
    for limit in requested_limits:
        if limit.name not in LIMITS:
            raise _invalid(f"no limit is called {limit.name!r}: there are {', '.join(sorted(LIMITS))}", "limits")
        soft, hard = (getattr(limit, end) if limit.HasField(end) else None for end in ("soft", "hard"))
        if (soft or 0) < 0 or (hard or 0) < 0 or (hard is not None and (soft is None or soft > hard)):
            shown = ":".join("unlimited" if bound is None else str(bound) for bound in (soft, hard))
            text = f"limit {limit.name} of {shown} is invalid: write 0 or more, the soft one not above the hard one"
            raise _invalid(f"{text}; unset is unlimited", "limits")
        wanted[limit.name] = (-1 if soft is None else soft, -1 if hard is None else hard)
    held = []
    for name, (soft, hard) in sorted({**own, **wanted}.items()):
        top = own[name][1] if name in own else hard
        held.append((name, min(soft, top, key=_limit_sort_key), min(hard, top, key=_limit_sort_key)))
    return tuple(held)


def cap_limits(
    limits: Mapping[str, tuple[int, int]], upper_limits: Mapping[str, tuple[int, int]]
) -> dict[str, tuple[int, int]]:
    """The limits by name, soft and hard, each no higher than in `upper_limits`."""
    pairs = {name: (both, upper_limits.get(name, both)) for name, both in limits.items()}
    return {
        name: (min(a[0], b[0], key=_limit_sort_key), min(a[1], b[1], key=_limit_sort_key))
        for name, (a, b) in pairs.items()
    }


def _limit_sort_key(limit: int) -> float:
    return math.inf if limit < 0 else limit


# ---- views ----


def job_view(job: Job, facts: Facts, node: str, *, has_details: bool, own: bool) -> pb.Job:
    """A job as a user sees it; `has_details`: with environment, limits and the like, which lists leave out. `own`: for
    its owner: admins see the job, and not its owner's passwords."""
    spec = job.spec
    launch = spec.run
    assert isinstance(launch, Launch)
    return pb.Job(
        node=node,
        job_id=job.job_id,
        spec=_spec_view(spec, launch, has_details=has_details, own=own),
        uid=spec.uid,
        state=words.JOB_STATE.to_number(job.state.value),
        reason=job.reason,
        submit_time=timestamp(job.submitted_ns),
        start_time=_timestamp_or_none(job.began_ns),
        end_time=_timestamp_or_none(job.ended_ns),
        estimated_start_time=_timestamp_or_none(
            facts.estimated_start_ns if facts.estimated_start_ns < NEVER_NS else -1
        ),
        exit_code=job.exit_code if job.exit_code >= 0 else None,
        attempt=job.attempt,
        preemptions=job.preemptions,
        array_id=spec.array or None,
        array_index=spec.index if spec.array else None,
        slices=facts.slices,
        device_indices=facts.device_indices,
        log=launch.log_path(job.job_id, spec.index),
        gpu_seconds_granted=gpu_seconds(facts.granted),
        gpu_seconds_used=facts.used_ns / SECOND_NS,
        position=facts.position or None,
        cpu_seconds=facts.cpu_ns / SECOND_NS,
        ram_peak_bytes=facts.ram_peak_bytes,
        workers=spec.members,
        gpus_milli=spec.ask.spec.gpus_milli,
        samples_per_second=facts.samples_per_second or None,
        estimated_duration=duration(facts.estimated_ns) if facts.estimated_ns else None,
        utilisation=_utilisation(spec, launch, facts),
        utilisation_measured=facts.measured_milli >= 0,
        session_port=facts.session_port or None,
        named_ports=dict(facts.named_ports),
        use_time=_timestamp_or_none(facts.session_used_ns),
    )


def _utilisation(spec: JobSpec, launch: Launch, facts: Facts) -> float | None:
    """Of each of its devices: what was measured, else what it is placed by or was predicted; None: none of these."""
    known = (facts.measured_milli, spec.ask.utilisation_milli, utilisation_milli(launch.prediction))
    return next((milli / MILLI_PER_DEVICE for milli in known if milli > 0), None)


def _timestamp_or_none(wall_ns: int) -> Timestamp | None:
    return timestamp(wall_ns) if wall_ns >= 0 else None


def _bound_or_none(bound: int) -> int | None:
    """Of a resource; None is unlimited."""
    return bound if bound >= 0 else None


def gpu_seconds(service: int) -> float:
    """Of milli-GPU x ns."""
    return service / (1000 * SECOND_NS)


def _spec_view(spec: JobSpec, launch: Launch, *, has_details: bool, own: bool) -> pb.JobSpec:
    limits = launch.limits if has_details else ()
    return pb.JobSpec(
        slice=spec_view(spec.ask.spec),
        members=spec.members,
        name=spec.name,
        queue=spec.queue,
        priority=spec.priority,
        time_limit=duration(spec.time_limit_ns) if spec.time_limit_ns < NEVER_NS else None,
        begin_time=timestamp(spec.begin_ns) if spec.begin_ns else None,
        expected_duration=duration(spec.duration_ns) if spec.duration_ns else None,
        retries=spec.retries,
        after=_completing(spec),
        after_any=spec.after_any,
        after_fail=spec.after_fail,
        after_end=spec.after_end,
        signal=launch.signal,
        signal_lead=duration(spec.signal_lead_ns) if spec.signal_lead_ns else None,
        grace=duration(launch.grace_ms * NS_PER_MS) if launch.grace_ms >= 0 else None,
        array_limit=spec.array_limit,
        cpu_milli=spec.ask.cpu_milli,
        ram_bytes=spec.ask.ram_bytes,
        command=launch.command,
        image=launch.image,
        directory=launch.directory,
        environment=dict(launch.environment) if has_details and own else None,
        umask=launch.umask,
        limits=[
            pb.ResourceLimit(name=name, soft=_bound_or_none(soft), hard=_bound_or_none(hard))
            for name, soft, hard in limits
        ],
        log=launch.log,
        skew=max(0, spec.skew_ppm) / PPM,
        not_preemptible=not spec.preemptible,
        elastic=elastic_view(spec.elastic, launch),
        prediction=prediction_view(launch.prediction) if has_details else None,
        notification=notification_view(spec, launch.notice, own=own) if has_details else None,
        terminal=launch.terminal,
        session=launch.session,
        environment_name=launch.environment_name,
        volumes=map(str, launch.parts.volumes),
        ports=map(str, launch.parts.ports),
        registry=launch.parts.registry,
        session_ports=launch.session_ports,
        idle_after=duration(launch.idle_after_ns) if launch.idle_after_ns else None,
    )


def fact_view(fact: Fact) -> pb.Fact:
    kind = words.FACT_KIND.to_number(fact.kind)
    return pb.Fact(decision_time=_timestamp_or_none(fact.at_ns), kind=kind, text=fact.text)


def usage_view(row: UsageRow, node: str) -> pb.Usage:
    return pb.Usage(
        node=node,
        queue=row.queue,
        uid=row.uid if row.uid >= 0 else None,
        job_id=row.job_id or None,
        slice=row.slice,
        gpu_seconds_asked=gpu_seconds(row.requested_service),
        gpu_seconds_granted=gpu_seconds(row.granted),
        gpu_seconds_used=gpu_seconds(row.used),
        jobs=row.jobs,
        submit_time=_timestamp_or_none(row.submitted_ns),
        start_time=_timestamp_or_none(row.started_ns),
        end_time=_timestamp_or_none(row.ended_ns),
        gpus_milli=row.gpus_milli,
        members=row.members,
        run_duration=duration(row.ran_ns) if row.job_id else None,
        state=words.JOB_STATE.to_number(row.state),
        namespace=row.namespace,
        pod=row.pod,
        copy_to_device_bytes=min(INT64_MAX, row.copy_to_device_bytes),
        copy_from_device_bytes=min(INT64_MAX, row.copy_from_device_bytes),
    )
