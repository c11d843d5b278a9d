"""Jobs and queues of the cluster as the controller published them: `vgpu cluster ls|explain|quota`, and the commands of
one node with --cluster."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from vgpud.cli.cluster.places import status
from vgpud.cli.common.columns import with_columns
from vgpud.cli.common.options import Settings
from vgpud.errors import CliError, ExitCode

if TYPE_CHECKING:
    from vgpud.view.fit import Grid


def ls(
    settings: Settings,
    run_dir: Path | None,
    queue: str = "",
    uid: int | None = None,
    states: Collection[str] = (),
    last: int | None = None,
    columns: Sequence[str] = (),
) -> None:
    """Lists the jobs that the filters leave; `last`: only so many, from the end."""
    from vgpud.cli.common.output import emit, say
    from vgpud.view.user_names import add_user_name

    found = status(run_dir)
    jobs = [add_user_name(one) for one in found["jobs"] if _is_asked_for(one, queue, uid, states)]
    found["jobs"] = jobs = jobs if last is None else jobs[len(jobs) - min(last, len(jobs)) :]
    emit(settings, found, [job["slurm_id"] for job in jobs], lambda: with_columns(_grid(jobs), columns))
    if settings.output == "table":
        for line in _remarks(found):
            say(line)


def _is_asked_for(job: dict[str, Any], queue: str, uid: int | None, states: Collection[str]) -> bool:
    state = "running" if job["state"] == "stopping" else job["state"]
    return queue in ("", job["queue"]) and uid in (None, job["uid"]) and (not states or state in states)


def explain(settings: Settings, run_dir: Path | None, key: str) -> None:
    """Says why a job of Slurm's number waits, or where it runs."""
    from vgpud.cli.common.output import dump, print_lines
    from vgpud.view.text import plain
    from vgpud.view.user_names import add_user_name

    known = status(run_dir)
    found = next((one for one in [*known["jobs"], *known["refused"]] if one["slurm_id"] == key), None)
    if found is None:
        text = f"the queue has no job {key} of partition {known['partition']}"
        if more := known["jobs_left_out"] + known.get("refused_left_out", 0):
            first = f"the first {len(known['jobs'])} jobs"
            text = (
                f"job {key} is not one of {first} of partition {known['partition']}, behind which there are {more} more"
            )
        raise CliError(f"{text}: squeue shows those of other partitions, sacct ended ones", ExitCode.NOT_FOUND)
    if settings.output == "table":
        print_lines(map(plain, _sentences(found)))
    elif settings.output == "name":
        print(key)
    else:
        dump(settings, add_user_name(found))


def quota(settings: Settings, run_dir: Path | None, name: str | None = None) -> None:
    """Shows the queues, or one of them."""
    from vgpud.cli.common.output import emit, say
    from vgpud.core.slices.queue_quota import name_queues

    known = status(run_dir)
    queues = [one for one in known["queues"] if name in (None, one["name"])]
    if not queues:
        names = [one["name"] for one in known["queues"]]
        raise CliError(f"no queue {name!r}: {name_queues(names)}", ExitCode.NOT_FOUND)
    data: dict[str, Any] = {"queues": queues} if name is None else {"queue": queues[0]}
    emit(settings, data, [one["name"] for one in queues], lambda: _queues_grid(queues))
    if known.get("queues_fault") and settings.output == "table":
        say(known["queues_fault"])


def how_to_set_queues(run_dir: Path | None) -> str:
    """What to do instead of setting a queue by a command: one sentence."""
    file = status(run_dir).get("queues_file")
    if file:
        return f"the cluster's queues are in {file}: change that file, the controller rereads it"
    return (
        "the controller was started without a file of queues: write `vgpu cluster queues -o json` to a file, change it"
        " and start `vgpu cluster run` with --queues FILE"
    )


def _grid(jobs: Sequence[dict[str, Any]]) -> Grid:
    from vgpud.view.fit import Grid

    titles = ("JOB", "QUEUE", ">UID", ">GPUS", ">NODES", "STATE", "WHERE-OR-WHY")
    return Grid(titles, [_row(job) for job in jobs], first_to_go=("UID", "NODES"), own_line_columns=("WHERE-OR-WHY",))


def _row(job: dict[str, Any]) -> Sequence[str]:
    where = ",".join(job["nodes"]) if job["state"] == "running" else job["why"]
    size = f"{job['gpus_milli'] / 1000:g}", str(job["members"])
    return (job["slurm_id"], job["queue"], str(job["uid"]), *size, job["state"], where)


def _queues_grid(queues: Sequence[dict[str, Any]]) -> Grid:
    from vgpud.view.fit import Grid

    titles = ("QUEUE", "PARENT", ">GUARANTEE", ">LIMIT", ">USED", ">RUNNING", ">WAITING", "POLICY", "PLACEMENT")
    amounts = ("guarantee_milli", "limit_milli", "used_milli")

    def row(one: dict[str, Any]) -> list[str]:
        gpus = ["-" if one[name] is None else f"{one[name] / 1000:g}" for name in amounts]
        counts = [str(one["running"]), str(one["waiting"])]
        return [one["name"], one["parent"], *gpus, *counts, one["policy"], one["placement"]]

    return Grid(titles, [row(one) for one in queues], first_to_go=("PARENT", "PLACEMENT", "POLICY"))


def _remarks(cluster_status: dict[str, Any]) -> list[str]:
    found = [f"{job['slurm_id']} is not queued: {job['why']}" for job in cluster_status["refused"]]
    if cluster_status.get("refused_left_out"):
        found.append(f"{cluster_status['refused_left_out']} more jobs are not queued")
    found += list(cluster_status["unusable_nodes"].values())
    if cluster_status.get("queues_fault"):
        found.append(cluster_status["queues_fault"])
    if cluster_status["jobs_left_out"]:
        found.append(f"{cluster_status['jobs_left_out']} more jobs wait behind these")
    if cluster_status["foreign_jobs"]:
        found.append(f"{cluster_status['foreign_jobs']} jobs run that Slurm started by itself: squeue shows them")
    if not cluster_status["fresh"]:
        found.append("no controller has looked for a minute: Slurm's own order holds (start `vgpu cluster run`)")
    return found


def _sentences(job: dict[str, Any]) -> list[str]:
    if "state" not in job:
        return [f"job {job['slurm_id']} is not queued: {job['why']}"]
    head = f"job {job['slurm_id']} ({job['job_id']} in the queue) is {job['state']} in queue {job['queue']}"
    lines = [f"{head}, {job['gpus_milli'] / 1000:g} GPU on each of {job['members']} nodes"]
    if job["nodes"]:
        lines.append(f"on {', '.join(job['nodes'])}")
    if job["position"]:
        lines.append(f"position {job['position']}")
    if job["why"]:
        lines.append(job["why"])
    return lines
