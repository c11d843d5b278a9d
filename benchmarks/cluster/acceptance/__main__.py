"""Mixed jobs of two users on a real Slurm of two nodes under 2D-LAS by `vgpu cluster`, while daemons are killed.

Fractions, whole GPUs, gangs over both nodes, arrays and dependencies come over some minutes; each job keeps a
checkpoint and a record of its runs. Meanwhile the controller, slurmd, vgpud and slurmctld are killed (SIGKILL,
slurmctld every other time SIGTERM) and started again. Asked is: all jobs end, none is lost, none does its work twice or
runs twice at a time, no queue is ever above its limit; and the average completion time is as the simulator had forecast
it, without kills, from what a start costs in a short run before. The same jobs then run in Slurm's own order (backfill,
no limits of queues, no kills). Needs root and Debian's slurmctld, slurmd, slurm-client, munge and libslurm-dev.
"""

from __future__ import annotations

import argparse
import collections
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks import harness, results
from benchmarks.cluster.acceptance import faults, forecast, records, workload
from benchmarks.cluster.acceptance.play import Played, play
from benchmarks.cluster.acceptance.site import PROCESS_NAMES, SLURMCTLD, Folder, Site, missing, site
from benchmarks.cluster.acceptance.workload import Submission
from benchmarks.table import equal_to, judge, near
from vgpud.core.units import finite
from vgpud.simulate import replay
from vgpud.simulate.engine import Costs
from vgpud.store import cluster as store

NAME = "cluster_slurm"
OURS, SLURM = RUNS = ("ours", "slurm")
POLL_S = 0.5
#: the run before, which shows what a start costs
CALIBRATION_JOBS, CALIBRATION_LOAD, CALIBRATION_LONGEST_S = 80, 2.0, 12.0
CALIBRATION_SEED = 1000
#: by then a new controller has made its nodes register twice, which delays what starts there then (docs/cluster.md)
SETTLED_S = 55.0
FORECAST_PERCENT = 10.0
DEVICE = "4 SIMULATED devices on two nodes of a real Slurm, all on one machine"


def main() -> int:
    """Measures, prints and writes the result. Exit code 1 when a goal is missed, 3 where no Slurm can run."""
    args = _arguments()
    reason = missing()
    if reason:
        print(f"cannot measure here: {reason}")
        return 3
    jobs = workload.generate(args.jobs, args.seed)
    raw: dict[str, Any] = {}
    figures: dict[str, Any] = {"jobs": args.jobs, "submissions": len(jobs), "span_s": workload.span_s(jobs)}
    _say(f"{args.jobs} jobs in {len(jobs)} submissions over {workload.span_s(jobs):.0f} s")
    good = True
    if OURS in args.runs:
        with site(args.poll) as made:
            version = made.cluster.call("srun", "--version").stdout.strip()
            good &= _or_logs(made, ours(made, jobs, args, figures, raw), OURS)
    if SLURM in args.runs:
        with site(args.poll, decides=False) as made:
            version = made.cluster.call("srun", "--version").stdout.strip()
            good &= _or_logs(made, slurms(made, jobs, figures, raw), SLURM)
    _compare(figures)
    path = results.write(
        NAME,
        is_simulated=True,
        device=DEVICE,
        parameters={
            "jobs": args.jobs,
            "seed": args.seed,
            "runs": list(args.runs),
            "kills": args.kills,
            "gentle": args.gentle,
            "slurmctld_every_s": args.slurmctld_every,
            "poll_s": args.poll,
            "policy": workload.POLICY,
            "load": workload.LOAD,
            "limits_milli": {queue.name: queue.limit_milli for queue in workload.QUEUES},
            "slurm": version,
        },
        goals={"wrong": [], "not_completed": [], "replay": "same commands", "forecast_error_percent": FORECAST_PERCENT},
        figures=finite(figures),
        raw=finite(raw),
        folder=args.results,
    )
    print(path)
    return 0 if good else 1


def _arguments() -> argparse.Namespace:
    made = harness.parser(__doc__)
    made.add_argument("--jobs", type=int, default=500, help="how many (default: %(default)s)")
    made.add_argument("--seed", type=int, default=1, help="of jobs and kills (default: %(default)s)")
    made.add_argument("--poll", type=float, default=POLL_S, help="of `vgpu cluster run` (default: %(default)s)")
    made.add_argument("--no-kills", dest="kills", action="store_false", help="leave all daemons alone")
    made.add_argument(
        "--gentle", action="store_true", help="only SIGTERM to slurmctld: by SIGKILL it forgets its last 5 s"
    )
    made.add_argument(
        "--slurmctld-every",
        type=float,
        default=faults.EVERY_S[SLURMCTLD],
        metavar="SECONDS",
        help="about how often slurmctld is killed (default: %(default)s)",
    )
    made.add_argument("--runs", default=",".join(RUNS), help="which runs, in this order (default: %(default)s)")
    args = made.parse_args()
    if args.real:
        made.error("two nodes on one machine need two devices each: run it on simulated ones")
    args.runs = [name for name in RUNS if name in args.runs.split(",")]
    if not args.runs:
        made.error(f"--runs: choose from {', '.join(RUNS)}")
    if args.results == results.RESULTS and (args.jobs < made.get_default("jobs") or args.runs != list(RUNS)):
        args.results = harness.BUILD  # a part of it is no result
    return args


def _or_logs(site: Site, good: bool, run: str) -> bool:
    """Of a run that missed a goal, the logs are what says why."""
    if not good:
        path = harness.BUILD / f"{NAME}-logs" / run
        site.keep_logs(path)
        _say(f"logs: {path}")
    return good


def _say(text: str) -> None:
    print(text, flush=True)


# ---- the queue's own run ----


def ours(
    site: Site, jobs: Sequence[Submission], args: argparse.Namespace, figures: dict[str, Any], raw: dict[str, Any]
) -> bool:
    """What a start costs, the forecast, then the run. Returns whether all goals were met."""
    costs = calibrate(site, raw)
    said = forecast.forecast(jobs, costs)
    _say(f"forecast: mean completion {said.mean_jct_s:.2f} s, {said.preemptions} preemptions")
    before = len(site.recordings())
    span_s = workload.span_s(jobs)
    plan = faults.plan(span_s, args.seed, args.gentle, args.slurmctld_every) if args.kills else []
    played = play(site, Folder.make(site.folder / "run-jobs"), jobs, plan)
    found = records.check(jobs, played.records, workload.QUEUES, site.device_bytes())
    site.stop()
    differences = replay_steps(site)
    texts = [path.read_text() for path in site.recordings()[before - 1 :]]
    took = forecast.latencies(texts, played.records)
    states = collections.Counter(str(row[-2]) for row in store.usage(site.state_dir, 0))
    mean_s = records.mean_jct_s(jobs, found.ended_ns, played.begin_ns)
    error = 100 * (mean_s / said.mean_jct_s - 1)
    figures["ours"] = {
        **_run(played, found, mean_s),
        "kills": dict(collections.Counter(fault.kind for fault in played.faults)),
        "of_these_by_sigterm": sum(fault.gentle for fault in played.faults),
        "preemptions": len(took.stops),
        "most_milli": found.most_milli,
        "states_in_the_queue": dict(states),
        "latencies": took.as_json(),
        "replay_differences": differences,
        "forecast_mean_jct_s": said.mean_jct_s,
        "forecast_preemptions": said.preemptions,
        "forecast_makespan_s": said.makespan_s,
        "forecast_error_percent": error,
    }
    raw["ours"] = {
        "jct_s": records.jct_s(jobs, found.ended_ns, played.begin_ns),
        "forecast_jct_s": said.jct_s,
        "faults": [[fault.at_s, fault.kind, fault.node, fault.away_s, fault.gentle] for fault in played.faults],
        "forgotten": played.forgotten_jobs,
        "said": played.log_text[:4000],
    }
    good = _judge(played, found)
    good &= judge("steps that replay otherwise", len(differences), equal_to(0))
    return judge("mean completion, % above the forecast", error, near(0, FORECAST_PERCENT)) and good


def calibrate(site: Site, raw: dict[str, Any]) -> Costs:
    """Means of a short run at a high load: what a start and a preemption cost."""
    time.sleep(SETTLED_S)
    jobs = workload.generate(CALIBRATION_JOBS, CALIBRATION_SEED, CALIBRATION_LOAD, CALIBRATION_LONGEST_S, prefix="c")
    played = play(site, Folder.make(site.folder / "calibration"), jobs)
    found = records.check(jobs, played.records, workload.QUEUES, site.device_bytes())
    if found.wrong or played.failed:
        raise RuntimeError(f"the short run before went wrong: {found.wrong} {played.failed} {played.log_text[:1000]}")
    took = forecast.latencies([path.read_text() for path in site.recordings()], played.records)
    costs = took.costs()
    raw["calibration"] = took.as_json()
    _say(f"a start costs {costs.start_ns / 1e9:.2f} s, a preemption {costs.suspend_ns / 1e9:.2f} s besides")
    return costs


def replay_steps(site: Site) -> list[str]:
    """Steps of all controllers that the machine decides otherwise, given the same events."""
    found = []
    for path in site.recordings():
        text = path.read_text()
        whole = Path(f"{path}.whole")
        whole.write_text(text[: text.rfind("\n") + 1])  # a controller that was killed may have been writing
        if whole.stat().st_size:
            found += [f"{path.name}: {line}" for line in replay.same_commands(replay.read(whole))]
    return found


# ---- Slurm's own order ----


def slurms(site: Site, jobs: Sequence[Submission], figures: dict[str, Any], raw: dict[str, Any]) -> bool:
    """The same jobs at the same times, without a controller and without kills."""
    played = play(site, Folder.make(site.folder / "run-jobs"), jobs)
    found = records.check(jobs, played.records, (), site.device_bytes())
    mean_s = records.mean_jct_s(jobs, found.ended_ns, played.begin_ns)
    figures["slurm"] = {**_run(played, found, mean_s), "most_milli": found.most_milli}
    raw["slurm"] = {"jct_s": records.jct_s(jobs, found.ended_ns, played.begin_ns), "said": played.log_text[:4000]}
    return _judge(played, found)


# ---- both ----


def _run(outcome: Played, findings: records.Findings, mean_s: float) -> dict[str, Any]:
    times = sorted(findings.ended_ns.values())
    return {
        "mean_jct_s": mean_s,
        "makespan_s": (times[-1] - outcome.begin_ns) / 1e9 if times else None,
        "seconds": outcome.seconds,
        "ended": len(findings.ended_ns),
        "starts": findings.starts,
        "killed_runs": findings.killed_runs,
        "found_their_work_done": findings.redone_runs,
        "forgotten_by_slurmctld": len(outcome.forgotten_jobs),
        "nodes_drained": outcome.drained,
        "sbatch_without_answer": outcome.refused_calls,
        "latest_submission_s": outcome.late_s,
        "wrong": findings.wrong,
        "not_completed": outcome.failed,
    }


def _judge(outcome: Played, findings: records.Findings) -> bool:
    good = judge("jobs that did not end", len(findings.lost_jobs), equal_to(0))
    good &= judge("jobs that worked or ran twice", len(findings.repeated_jobs), equal_to(0))
    good &= judge("times above a queue's limit", len(findings.over_quota), equal_to(0))
    good &= judge("times above a device", len(findings.over_device), equal_to(0))
    good &= judge("starts before a dependency's end", len(findings.too_early), equal_to(0))
    good &= judge("other memory than the job's part", len(findings.memory), equal_to(0))
    good &= judge("jobs that Slurm did not complete", len(outcome.failed), equal_to(0))
    for line in [*findings.wrong, *outcome.failed]:
        _say(f"    {line}")
    return good


def _compare(figures: dict[str, Any]) -> None:
    """Prints a row for docs/benchmarks.md."""
    for name in RUNS:
        if name in figures:
            run = figures[name]
            _say(f"{name}: mean completion {run['mean_jct_s']:.2f} s, all ended after {run['makespan_s'] or 0:.0f} s")
    if all(name in figures for name in RUNS):
        own, other = (figures[name]["mean_jct_s"] for name in RUNS)
        figures["less_than_slurm_percent"] = 100 * (1 - own / other)
    if OURS in figures:
        run = figures[OURS]
        kills = ", ".join(f"{run['kills'].get(kind, 0)} of {kind}" for kind in PROCESS_NAMES)
        less = figures.get("less_than_slurm_percent")
        than = f"; {less:.0f} % less than in Slurm's own order" if less is not None else ""
        _say(
            f"| {figures['jobs']} mixed jobs under 2D-LAS on a real Slurm, kills: {kills} | {run['ended']} ended,"
            f" {len(run['wrong'])} violations; mean completion {run['mean_jct_s']:.1f} s, forecast"
            f" {run['forecast_mean_jct_s']:.1f} s ({run['forecast_error_percent']:+.1f} %){than} |"
            f" all once; within {FORECAST_PERCENT:g} % |"
        )


if __name__ == "__main__":
    raise SystemExit(main())
