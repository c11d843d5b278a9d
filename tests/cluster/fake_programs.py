"""Slurm's programs over a FakeSlurm in a file: `fake_programs.py FILE PROGRAM ARGUMENTS...`.

They print columns as Slurm's do, and take the arguments that the controller and release_if_stale.sh give them.
"""

from __future__ import annotations

import os
import pickle
import re
import sys
from pathlib import Path

from vgpud.cluster.core.model import Register

ROOT = Path(__file__).resolve().parents[2]
PROGRAMS = ("squeue", "sinfo", "scontrol", "scancel", "sacct", "sbatch")


def install(folder: Path, slurm: object) -> Path:
    """Executables in a folder for PATH; returns the file with the state."""
    state = folder / "state.pickle"
    save(state, slurm)
    for name in PROGRAMS:
        program = folder / name
        command = f'PYTHONPATH={ROOT} exec {sys.executable} -S -m tests.cluster.fake_programs {state} {name} "$@"'
        program.write_text(f"#!/bin/sh\n{command}\n")
        program.chmod(0o755)
    return state


def save(state: Path, slurm: object) -> None:
    state.write_bytes(pickle.dumps(slurm))


def load(state: Path):  # type: ignore[no-untyped-def]
    return pickle.loads(state.read_bytes())  # noqa: S301  our own file


def _row(widths: dict[str, int], values: dict[str, object]) -> str:
    return "".join(f"{values[name]!s:<{width}}"[:width] for name, width in widths.items())


def _reason(one) -> str:  # type: ignore[no-untyped-def]
    """Priority 0 from the script in slurmctld looks like a user's hold in older releases."""
    return "JobHeldUser" if one.held else "None"


def _admin_comment(one) -> str:  # type: ignore[no-untyped-def]
    return "(null)" if one.user_held else "vgpu: queued"


def _squeue(slurm, arguments):  # type: ignore[no-untyped-def]
    from vgpud.cluster.shell.text import JOB_COLUMNS, TEXT_COLUMNS

    if arguments[-1].startswith("Name:"):
        (job,) = [job for job in slurm.jobs.values() if f"--jobs={job.key}" in arguments]
        return _row(TEXT_COLUMNS, dict.fromkeys(TEXT_COLUMNS, "(null)") | {"Name": job.name})
    if "--states=PENDING" in arguments:
        pending = [one for one in slurm.snapshot().jobs if one.state == "PENDING"]
        return "\n".join(f"{one.key:<40}{_reason(one):<40}{_admin_comment(one):<40}" for one in pending)
    assert f"{JOB_COLUMNS['Comment']}" in arguments[-1] and "--partition=gpu" in arguments
    lines = []
    for job, one in zip(slurm.jobs.values(), slurm.snapshot().jobs, strict=True):
        values = {
            "JobArrayID": one.key,
            "State": one.state,
            "Reason": _reason(one),
            "PriorityLong": job.priority,
            "UserID": one.uid,
            "Account": one.account or "(null)",
            "tres-per-node": one.request.gres,
            "NumNodes": one.request.nodes,
            "NumCPUs": one.request.cpus,
            "TimeLimit": "UNLIMITED",
            "NodeList": ",".join(one.node_names),
            "Dependency": one.dependency or "(null)",
            "Requeue": int(one.requeues),
            "BatchFlag": 1,
            "RestartCnt": one.restarts,
            "StartTime": one.start or "N/A",
            "exit_code": one.exit_code << 8,
            "admin_comment": _admin_comment(one),
            "Comment": one.request.comment or "(null)",
        }
        lines.append(_row(JOB_COLUMNS, values))
    return "\n".join(lines)


def _sinfo(slurm, arguments):  # type: ignore[no-untyped-def]
    from vgpud.cluster.shell.text import NODE_COLUMNS

    lines = []
    for node in slurm.snapshot().nodes:
        model = f"{node.gpu_model}:" if node.gpu_model else ""
        whole = [i for i, milli in enumerate(node.used_milli) if milli == 1000]
        parts = ",".join(f"{0 if milli == 1000 else milli}/1000" for milli in node.used_milli)
        indices = ",".join(map(str, whole)) or "N/A"
        used = f"gpu:{model or '(null):'}{len(whole)}(IDX:{indices}),shard:{model or '(null):'}0({parts})"
        values = {
            "NodeList": node.name,
            "StateLong": node.state,
            "Gres": f"gpu:{model}{node.gpus},shard:{node.shards}",
            "GresUsed": "gpu:0,shard:(null):1(IDX:0)" if slurm.old else used,
            "CPUs": node.cpus,
            "Comment": f"vgpu memory={node.memory_bytes}" if node.memory_bytes else "(null)",
            "FreeMem": 1000 if node.is_registered else "N/A",
            "Reason": node.reason or "none",
        }
        lines.append(_row(NODE_COLUMNS, values))
    return "\n".join(lines)


def _show_array(slurm, number: str) -> str:  # type: ignore[no-untyped-def]
    """Elements that wait undivided are one line, which alone has the limit."""
    limit = slurm.limits.get(int(number), 0)
    elements = [job for job in slurm.jobs.values() if job.key.startswith(f"{number}_") and job.state == "PENDING"]
    waiting = [job.key.partition("_")[2] for job in elements]
    if not waiting:
        return f"JobId=99 ArrayJobId={number} ArrayTaskId=0 JobName=x"
    said = f"%{limit} ArrayTaskThrottle={limit}" if limit else ""
    return f"JobId={number} ArrayJobId={number} ArrayTaskId={','.join(waiting)}{said} JobName=x ArrayTaskThrottle=9"


def _sacct(slurm, arguments):  # type: ignore[no-untyped-def]
    """As without slurmdbd, unless there is a file with what it prints."""
    assert {"--allusers", "--allocations", "--parsable2"} <= set(arguments) and "SLURM_TIME_FORMAT" in os.environ
    if slurm.accounting is None:
        sys.exit("Slurm accounting storage is disabled")
    return slurm.accounting


def _sbatch(slurm, arguments):  # type: ignore[no-untyped-def]
    """Takes what the tests submit; its script is on stdin."""
    given = dict(word.removeprefix("--").partition("=")[::2] for word in arguments)
    if given["partition"] != "gpu":
        sys.exit("sbatch: error: invalid partition specified")
    key = slurm.submit(given["gres"], account=given.get("account", ""), comment=given.get("comment", ""))
    slurm.scripts[key] = sys.stdin.read()
    return key


def _scontrol(slurm, arguments):  # type: ignore[no-untyped-def]
    verb, *rest = arguments
    if verb == "--oneliner" and "--details" not in rest:
        return _show_array(slurm, rest[-1])
    if verb == "--oneliner":
        has = slurm.jobs[rest[-1]].has.items()
        gres = {name: ",".join(f"{held.get(i, 0)}/1000" for i in range(max(held) + 1)) for name, held in has}
        groups = "".join(f"  Nodes={name} CPU_IDs=0 Mem=0 GRES=shard:1({text})" for name, text in gres.items())
        job = slurm.jobs[rest[-1]]
        head = f"JobId=9 JobName={job.name} UserId=ann(1000) GroupId=ann(1000) MCS_label=N/A Priority=1 Nice=0"
        head += " Account=(null) QOS=(null) JobState=RUNNING"
        return f"{head} JOB_GRES=x{groups} MinCPUsNode=1 Comment={job.comment} WorkDir=/"
    if verb == "update" and rest[0].startswith("NodeName="):
        assert rest[1:] == ["State=UNDRAIN"]
        slurm.tell(Register(tuple(rest[0].partition("=")[2].split(",")), ""))
        slurm.schedule()
        return ""
    if verb == "update":
        key = rest[0].removeprefix("JobId=")
        for name, _, value in (word.partition("=") for word in rest[1:]):
            if name == "ReqNodeList":
                slurm.jobs[key].bound_to = tuple(filter(None, value.split(",")))
            elif name == "AdminComment":
                slurm.jobs[key].told = value
            elif name != "StartTime":
                sys.exit(f"scontrol: error: {name}: Invalid job field")
        return ""
    job = slurm.jobs[rest[0]]
    if job.state != "PENDING" and verb in ("hold", "release"):
        sys.exit("Job is no longer pending execution")
    if verb == "requeue" and job.state == "RUNNING":
        slurm.requeue(job.key)
        return ""
    if verb == "hold":
        job.priority = 0
    elif verb == "release":
        job.priority, job.user_hold = 100, False
    slurm.schedule()
    return ""


def call(state: Path, program: str, arguments: list[str]) -> str:
    """What the program prints. Raises SystemExit with what it says where it fails."""
    if (state.parent / "slurmctld-is-away").exists():
        sys.exit("slurm_load_jobs error: Unable to contact slurm controller (connect failure)")
    slurm = load(state)
    if program == "scancel":
        slurm.end(re.sub(r"\D.*", "", arguments[0]), "CANCELLED")
        text = ""
    else:
        programs = {"squeue": _squeue, "sinfo": _sinfo, "scontrol": _scontrol, "sacct": _sacct, "sbatch": _sbatch}
        text = str(programs[program](slurm, arguments))
    save(state, slurm)
    return text


def main() -> None:
    sys.path[:0] = [str(ROOT)]
    if text := call(Path(sys.argv[1]), sys.argv[2], sys.argv[3:]):
        print(text)


if __name__ == "__main__":
    main()
