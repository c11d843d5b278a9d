"""The tables of the queue: jobs, queues, usage, and everything about one job."""

from __future__ import annotations

import datetime
from collections.abc import Sequence

from vgpud.core.jobs.session import BALANCER, OF_SERVICES
from vgpud.core.units import format_bytes, format_gpus
from vgpud.view.fit import Cell, Grid
from vgpud.view.jobs import ENDED
from vgpud.view.slice_tables import device_label, parse_time
from vgpud.view.slices import View
from vgpud.view.spans import format_span
from vgpud.view.text import duration, gpu_time, natural_key, plain
from vgpud.view.user_names import named_users, user_name

_STYLES = {"running": "green", "suspended": "yellow", "failed": "red", "timed_out": "red", "held": "cyan"}
_LABEL_CELLS = 13
#: indent of what does not fit in a line
FURTHER = " " * (_LABEL_CELLS + 3)
_NS = 1_000_000_000

#: kind of a fact -> its label; a kind from a later daemon is shown as it is
LABELS = {
    "queue": "why",
    "help": "would help",
    "anomaly": "WRONG",
    "device": "device",
    "neighbour": "beside it",
    "size": "size",
    "resize": "resized",
    "prediction": "predicted",
    "estimate": "estimate",
    "rotation": "rotation",
}


def gpus_label(job: View) -> str:
    """The job's size, one word: 0.5, or 4x0.5 for a gang; and the bounds of an elastic job: 0.5[0.25..1]."""
    each = format_gpus(job["gpus_milli"])
    text = each if job["members"] == 1 and not job.get("workers_max") else f"{job['members']}x{each}"
    bounds = bounds_label(job)
    return f"{text}[{bounds}]" if bounds else text


def bounds_label(job: View) -> str:
    """Bounds of an elastic job: 0.25..1 GPUs, or 1-8 workers."""
    if job.get("workers_max"):
        return f"{job['workers_min']}-{job['workers_max']}"
    if job.get("gpus_milli_max"):
        return f"{format_gpus(job['gpus_milli_min'])}..{format_gpus(job['gpus_milli_max'])}"
    return ""


def name_label(job: View) -> str:
    name: str = job["name"]
    return name if job["array_index"] is None else f"{name}[{job['array_index']}]"


def devices_label(job: View) -> str:
    """One word, so that columns can be split at blanks."""
    return ",".join(device_label(index, job["simulated"]) for index in job["device_indices"])


_ENDS = {state: f"has {state}" for state in ("completed", "failed")}
_ENDS |= {"cancelled": "was cancelled", "timed_out": "has timed out"}


def state_words(state: str, reason: str | None) -> str:
    """The job's state and reason: is pending: queue a has ...; has failed: it ended with ..."""
    words = _ENDS.get(state, f"is {state}")
    return f"{words}: {reason.removeprefix(f'it {words}: ')}" if reason else words


def state_cell(job: View) -> Cell:
    """One word."""
    return Cell(job["state"], _STYLES.get(job["state"], ""))


def span_between(first: str | None, last: datetime.datetime) -> str:
    return "-" if first is None else duration((last - parse_time(first)).total_seconds())


def time_label(job: View, now: datetime.datetime) -> str:
    """The time that it has waited, or since it began (this attempt, or the last one)."""
    if job["start_time"] is None or job["state"] in ("pending", "held"):
        return span_between(job["submit_time"], parse_time(job["end_time"]) if job["end_time"] else now)
    return span_between(job["start_time"], parse_time(job["end_time"]) if job["end_time"] else now)


def where_or_why(job: View, now: datetime.datetime) -> str:
    """Running: its devices. Waiting: the reason, and the expected start. Ended: the reason."""
    if job["state"] == "running":
        begins = "without a device" if job["session"] == BALANCER else "starts"
        return f"device {devices_label(job)}" if job["device_indices"] else job["reason"] or begins
    text = named_users(job["reason"] or "-")
    if job["state"] == "pending" and job["estimated_start_time"]:
        left_s = (parse_time(job["estimated_start_time"]) - now).total_seconds()
        text += f" (starts in about {duration(left_s)})" if left_s > 0 else " (starts soon)"
    return text


def jobs_grid(jobs: Sequence[View], now: datetime.datetime) -> Grid:
    titles = (">JOB", "NAME", "USER", "QUEUE", "STATE", ">GPUS", ">TIME", "WHERE-OR-WHY")
    first_to_go = ("QUEUE", "GPUS", "NAME", "TIME")
    grid = Grid(titles, first_to_go=first_to_go, own_line_columns=("WHERE-OR-WHY",), names=("NAME", "USER", "QUEUE"))
    for job in jobs:
        grid.rows.append(
            (
                str(job["job_id"]),
                name_label(job),
                user_name(job["uid"]),
                job["queue"],
                state_cell(job),
                gpus_label(job),
                time_label(job, now),
                where_or_why(job, now),
            )
        )
    return grid


# ---- one job ----


def job_pairs(job: View, now: datetime.datetime) -> list[tuple[str, str]]:
    """Everything about one job: labels and texts."""
    return [*_state(job, now), *_describe_request(job), *_program(job), *_used(job)]


def job_lines(job: View, now: datetime.datetime) -> list[str]:
    """The same as lines."""
    first = f"job {job['job_id']} ({plain(name_label(job))}) of {user_name(job['uid'])} in queue {plain(job['queue'])}"
    return [first, *(f"  {label:<{_LABEL_CELLS}} {plain(text)}" for label, text in job_pairs(job, now))]


def _state(job: View, now: datetime.datetime) -> list[tuple[str, str]]:
    text = job["state"].replace("_", " ")
    if job["exit_code"] is not None and job["state"] in ENDED:
        text += f", exit code {job['exit_code']}"
    if job["position"]:
        text += f", place {job['position']} in its queue"
    rows = [("state", text)]
    if job["reason"]:
        rows.append(("why", named_users(job["reason"])))
    for label, key in (
        ("submitted", "submit_time"),
        ("begin", "begin_time"),
        ("starts about", "estimated_start_time"),
        ("started", "start_time"),
    ):
        if job[key]:
            rows.append((label, _moment(job[key], now)))
    if job["end_time"]:
        took = span_between(job["start_time"], parse_time(job["end_time"]))
        rows.append(("ended", _moment(job["end_time"], now) + (f", after {took}" if job["start_time"] else "")))
    runs = [f"attempt {job['attempt']} of {job['retries'] + 1}"] if job["retries"] and job["attempt"] else []
    runs += [f"preempted {job['preemptions']} times"] if job["preemptions"] else []
    if runs:
        rows.append(("runs", ", ".join(runs)))
    if job["slices"]:
        rows.append(("slices", f"{', '.join(job['slices'])} on device {devices_label(job)}"))
    return rows


def _moment(stamp: str, now: datetime.datetime) -> str:
    at = parse_time(stamp)
    away_s = (now - at).total_seconds()
    away = f"{duration(away_s)} ago" if away_s >= 0 else f"in {duration(-away_s)}"
    return f"{at.astimezone().strftime('%Y-%m-%d %H:%M:%S')}, {away}"


def _describe_request(job: View) -> list[tuple[str, str]]:
    text = f"{format_gpus(job['gpus_milli'])} GPUs"
    if job["workers_max"]:
        text += f" for each of {bounds_label(job)} workers, {job['members']} now"
    elif job["gpus_milli_max"]:
        text = f"{bounds_label(job)} GPUs, {format_gpus(job['gpus_milli'])} now"
    elif job["members"] > 1:
        text += f" for each of {job['members']} members"
    for word, key in (("min", "min_milli"), ("max", "max_milli")):
        text += f", {word} {format_gpus(job[key])}" if job[key] is not None else ""
    for word, key in (("memory min", "mem_min_bytes"), ("memory max", "mem_max_bytes"), ("RAM", "ram_bytes")):
        text += f", {word} {format_bytes(job[key])}" if job[key] is not None else ""
    text += f", {format_gpus(job['cpu_milli'])} processors" if job["cpu_milli"] else ""
    text += f", spread over {job['spread']}" if job["spread"] else ""
    text += f", on {', '.join(job['asked_device_uuids'])}" if job["asked_device_uuids"] else ""
    text += f", class {job['class']}" if job["class"] != "batch" else ""
    rows = [("asks for", text), ("priority", str(job["priority"]) + ("" if job["preemptible"] else ", not preempted"))]
    if job["time_limit_ns"]:
        signal = f", {job['signal']} {format_span(job['signal_lead_ns'])} before" if job["signal"] else ""
        rows.append(("time limit", format_span(job["time_limit_ns"]) + signal))
    if job["grace_ns"]:
        rows.append(("grace", format_span(job["grace_ns"])))
    if job["expected_duration_ns"]:
        rows.append(("expected", format_span(job["expected_duration_ns"])))
    elif job["estimated_duration_ns"]:
        rows.append(("takes about", f"{duration(job['estimated_duration_ns'] / _NS)}, as similar jobs did"))
    waits = (
        ("after", "have ended" if job["after_any"] else "have completed"),
        ("after_fail", "have failed"),
        ("after_end", "have ended"),
    )
    rows += [("after", f"{', '.join(map(str, job[key]))} {verb}") for key, verb in waits if job[key]]
    if job["array_id"]:
        most = f", of which {job['array_limit']} run at once" if job["array_limit"] else ""
        rows.append(("array", f"index {job['array_index']} of the array of job {job['array_id']}{most}"))
    return rows


def _program(job: View) -> list[tuple[str, str]]:
    import shlex

    parts = (("environment", "environment_name"), ("image", "image"), ("registry", "registry"))
    rows = [(label, job[key]) for label, key in parts if job[key]]
    rows += [(key, ", ".join(job[key])) for key in ("volumes", "ports") if job[key]]
    if job["command"]:
        rows.append(("command", shlex.join(job["command"])))
    if job["terminal"] and job["state"] not in ENDED:
        rows.append(("terminal", f"`vgpu job attach {job['job_id']}` joins it"))
    if job["session"] in OF_SERVICES:
        rows.append(("service", f"a {job['session']} of {job['name']}: `vgpu service show {job['name']}`"))
    elif job["session"] and job["state"] not in ENDED:
        rows.append(("session", f"`vgpu session url {job['job_id']}` prints its address"))
    return [*rows, ("directory", job["directory"]), ("log", job["log"])]


def _used(job: View) -> list[tuple[str, str]]:
    rows = _behaves(job)
    if not job["gpu_seconds_granted"]:
        return rows
    rows += [("GPU-seconds", f"{job['gpu_seconds_granted']:.1f} granted, {job['gpu_seconds_used']:.1f} used")]
    if job["cpu_seconds"]:
        rows.append(("processors", f"{job['cpu_seconds']:.1f} s, {format_bytes(job['ram_peak_bytes'])} of RAM at peak"))
    return rows


def _behaves(job: View) -> list[tuple[str, str]]:
    rows = [("throughput", f"{job['samples_per_second']:,.1f} samples/s")] if job["samples_per_second"] else []
    predicted = job["prediction"]
    if job["utilisation"]:
        text = f"{job['utilisation']:.0%} of a device, {'measured' if job['utilisation_measured'] else 'predicted'}"
        if predicted and job["utilisation_measured"] and not predicted["out_of_range"]:
            text += f"; {predicted['utilisation']['value']:.0%} was predicted"
        rows.append(("utilisation", text))
    if predicted:
        what = "out of the predictor's range" if predicted["out_of_range"] else predicted["device"] or ""
        rows.append(("model", predicted["model"] + (f", {what}" if what else "")))
    return rows


# ---- queues and usage ----


def queues_grid(queues: Sequence[View]) -> Grid:
    titles = ("QUEUE", "PARENT", ">GUARANTEE", ">LIMIT", ">WEIGHT", ">USED", ">RUNNING", ">PENDING", ">GPU-TIME")
    least = ("RULES", "PLACEMENT", "GPU-TIME", "WEIGHT", "MEMBERS", "PARENT", "POLICY", "RUNNING", "PENDING")
    grid = Grid(
        (*titles, "POLICY", "PLACEMENT", "RULES", "MEMBERS"), first_to_go=least, names=("QUEUE", "PARENT", "MEMBERS")
    )
    for queue in sorted(queues, key=lambda queue: natural_key(queue["name"])):
        grid.rows.append(
            (
                queue["name"],
                queue["parent"] or "-",
                format_gpus(queue["guarantee_milli"]),
                "-" if queue["limit_milli"] is None else format_gpus(queue["limit_milli"]),
                str(queue["weight"]),
                format_gpus(queue["used_milli"]),
                str(queue["running"]),
                str(queue["pending"]),
                gpu_time(queue["history_gpu_seconds"]),
                queue["policy"],
                queue["placement"],
                _rules(queue),
                ",".join(map(member_label, queue["members"])) or "all users",
            )
        )
    return grid


def member_label(member: str) -> str:
    """A member of a queue as `vgpu queue set --member` takes it: ann, @team, or a number without a name."""
    import grp

    kind, _, number = member.partition(":")
    if kind == "uid":
        return user_name(int(number))
    try:
        return f"@{grp.getgrgid(int(number)).gr_name}"
    except KeyError:
        return member


def _rules(queue: View) -> str:
    """Other rules, as one word."""
    words = ["strict"] if queue["strict"] else []
    words += ["no-backfill"] if queue["strict"] and not queue["backfill"] else []
    words += ["spread"] if queue["spread"] else []
    words.append(f"min-run={format_span(queue['min_run_ns'])}")
    for word, usual_ns in (("wait", 30 * _NS), ("idle", 60 * _NS)):  # common values are not shown for each queue
        span_ns = queue[f"elastic_{word}_ns"]
        if span_ns not in (None, usual_ns):
            words.append(f"elastic-{word}={format_span(span_ns)}")
    words += ["elastic-eager"] if queue["elastic_eager"] else []
    if queue["cpu_limit_milli"] is not None:
        words.append(f"cpus={format_gpus(queue['cpu_limit_milli'])}")
    if queue["ram_limit_bytes"] is not None:
        words.append(f"ram={format_bytes(queue['ram_limit_bytes'])}")
    return ",".join(words)


def usage_grid(rows: Sequence[View], by: str) -> Grid:
    amounts, copies = (">ASKED", ">GRANTED", ">USED", ">TO-GPU", ">FROM-GPU"), ("FROM-GPU", "TO-GPU")
    if by == "job":
        titles = (">JOB", "USER", "QUEUE", "STATE", ">GPUS", *amounts)
        first_to_go = ("GPUS", *copies, "QUEUE", "STATE", "ASKED")
        grid = Grid(titles, first_to_go=first_to_go, names=("JOB", "USER", "QUEUE"))
    elif by in ("namespace", "pod"):
        titles = (*(("NAMESPACE", "POD") if by == "pod" else ("NAMESPACE",)), *amounts)
        grid = Grid(titles, first_to_go=copies)
    else:
        grid = Grid(("USER" if by == "user" else "QUEUE", ">JOBS", *amounts), first_to_go=copies)
    for row in rows:
        shown = [gpu_time(row[f"gpu_seconds_{what}"]) for what in ("asked", "granted", "used")]
        shown += [format_bytes(row[f"copy_{way}_device_bytes"]) for way in ("to", "from")]
        user = "-" if row["uid"] is None else user_name(row["uid"])
        if by in ("namespace", "pod"):
            grid.rows.append((row["namespace"], *([row["pod"] or "-"] if by == "pod" else []), *shown))
        elif by != "job":
            grid.rows.append((user if by == "user" else row["queue"] or "-", str(row["jobs"]), *shown))
        elif "job_id" in row:
            gpus = gpus_label(row)
            grid.rows.append((str(row["job_id"]), user, row["queue"] or "-", row["state"], gpus, *shown))
        else:
            grid.rows.append((row.get("slice") or "-", user, row["queue"] or "-", "slice", "-", *shown))
    return grid
