"""`vgpu submit --cluster`: the options of a job as those of sbatch, and which of them make no sense there."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from vgpud.cli.common.cluster_option import with_run_dir
from vgpud.cli.jobs.after_options import dependencies
from vgpud.cli.jobs.ending_options import sbatch_signal
from vgpud.client.arrays import format_array

if TYPE_CHECKING:
    from vgpud.cluster.shell.sbatch import Submission

F = TypeVar("F", bound=Callable[..., Any])

_SIZE_STAYS = "a job keeps its size there, Slurm gives nothing back to a running one: write --gpus N, or --gang N"
_PREDICT = "`vgpu predict MODEL` says what the model needs: write that as --gpus and --mem"
_NOTIFY = "Slurm notifies by mail alone: write --notify-mail ADDRESS"
_NODE = "it is of one node's daemon: write the container's command, -- podman run IMAGE, with its own options"
#: keyword of an option -> what to write instead
INSTEAD = {
    **dict.fromkeys(("workers", "heuristic", "utility", "batch", "batch_max"), _SIZE_STAYS),
    **dict.fromkeys(("predict", "optimizer", "precision", "dims", "predictor"), _PREDICT),
    "predict_run": "`vgpu predict run -- COMMAND` says what it takes: write that as --gpus and --mem",
    **dict.fromkeys(("notify_webhook", "notify_command"), _NOTIFY),
    "min_milli": "Slurm counts what is guaranteed: write it as --gpus, and --max for what the job may borrow",
    "mem_min": "Slurm guarantees memory in proportion to --gpus: raise it, and write --mem for the limit",
    "mem_max": "write --mem, which is the limit there",
    "weight": "each node divides idle time by what is guaranteed: leave it out",
    "mem_swap": "Slurm knows no memory that jobs have in turn: leave it out",
    "copy_max_milli": "Slurm knows no links: leave it out",
    "idle_after_ns": "Slurm counts memory until its job ends: leave it out",
    "spread": "write --gang N for a part of a device on each of N nodes",
    "devices": "the queue chooses nodes, and Slurm chooses devices: leave it out, or name a model with --gpu-model",
    "priority": "the queue's policy orders the jobs: leave it out, or submit to another --queue",
    "begin": "the queue starts jobs when there is capacity: submit the job later, for example by cron",
    "retries": "write the retry into the command, which may call `scontrol requeue $SLURM_JOB_ID`",
    "grace": "Slurm has one for all jobs, KillWait of slurm.conf: leave it out",
    "image": "write the engine's command: -- podman run IMAGE, or -- srun --container-image=IMAGE with pyxis",
    **dict.fromkeys(("environment", "volumes", "ports", "registry_auth"), _NODE),
    "request_id": "Slurm has no such number: `squeue --me` shows whether the job is there",
    "pty": "Slurm gives a terminal by srun: srun --pty --partition=PARTITION --gres=shard:500 bash",
    "detach_keys": "Slurm gives a terminal by srun: leave it out",
}
#: options that make sense over a cluster alone
ONLY = ("run_dir", "partition", "gpu_model", "model", "dry_run")
_MAIL = {"start": "BEGIN", "end": "END", "failure": "FAIL"}
_NS = 1_000_000_000


def cluster_options(function: F) -> F:
    """--cluster and the options that make sense with it alone."""
    options = (
        with_run_dir("Submit to the queue over a Slurm cluster, by sbatch"),
        click.option("--partition", metavar="NAME", help="With --cluster: partition (default: the controller's)."),
        click.option("--gpu-model", metavar="NAME", help="With --cluster: on this model only, as slurm.conf calls it."),
        click.option(
            "--model",
            metavar="NAME",
            help="With --cluster: the model that the job trains, for the placement throughput.",
        ),
        click.option("--dry-run", is_flag=True, help="With --cluster: show the command line of sbatch, run nothing."),
    )
    for option in reversed(options):
        function = option(function)
    return function


def submission(
    option_values: Mapping[str, Any],
    command: Sequence[str],
    file_env: Sequence[tuple[str, str]],
    inherited_names: Sequence[str],
) -> Submission:
    """inherited_names: variables that --no-env passes on. Raises UsageError."""
    from vgpud.cluster.shell.sbatch import Submission
    from vgpud.core.units import format_gpus

    gpus = option_values["gpus"]
    if not command:
        raise click.UsageError("specify a command: for example vgpu submit --cluster --gpus 0.5 -- python train.py")
    if gpus is None:
        raise click.UsageError("specify a size: for example --gpus 0.5")
    if isinstance(gpus, tuple):
        raise click.UsageError(f"--gpus {format_gpus(gpus[0])}..{format_gpus(gpus[1])} with --cluster: {_SIZE_STAYS}")
    expected_s = -(-(option_values["expected"] or 0) // _NS)
    said = (
        ("model", option_values["model"] or ""),
        ("skew", "" if option_values["skew"] is None else f"{option_values['skew']:.6f}".rstrip("0").rstrip(".")),
        ("duration", f"{expected_s}s" if expected_s else ""),
    )
    variables = dict([*file_env, *option_values["env"]])
    return Submission(
        tuple(command),
        gpus,
        option_values["gpu_model"] or "",
        option_values["gang"] or 1,
        tuple(_options(option_values, [*inherited_names, *variables])),
        said,
        tuple(variables.items()),
    )


def _options(option_values: Mapping[str, Any], exported_names: Sequence[str]) -> list[tuple[str, str]]:
    """Of sbatch. --vgpu-max and the like are the plugin's of integrations/slurm. exported_names: with --no-env."""
    from vgpud.cluster.shell.sbatch import FLAG
    from vgpud.core.units import format_gpus
    from vgpud.slurm.comment import span_text

    words = (("afterok", "after"), ("afternotok", "after_fail"), ("afterany", "after_end"))
    after = dependencies(option_values)
    waits = [":".join(map(str, (word, *after[field]))) for word, field in words if after[field]]
    found = [
        ("account", option_values["queue"] or ""),
        ("job-name", option_values["name"] or ""),
        ("time", span_text(option_values["time_limit"]) if option_values["time_limit"] else ""),
        ("array", format_array(*option_values["array"]) if option_values["array"] else ""),
        ("dependency", ",".join(waits)),
        ("signal", sbatch_signal(option_values)),
        ("hold", FLAG if option_values["hold"] else ""),
        ("no-requeue", FLAG if option_values["no_preempt"] else ""),
        ("cpus-per-task", str(-(-option_values["cpus"] // 1000)) if option_values["cpus"] else ""),
        ("mem", f"{-(-option_values['ram'] // (1 << 20))}M" if option_values["ram"] else ""),
        ("vgpu-max", format_gpus(option_values["max_milli"]) if option_values["max_milli"] else ""),
        ("vgpu-mem", str(option_values["mem"]) if option_values["mem"] else ""),
        ("vgpu-class", option_values["service_class"] or ""),
        ("chdir", os.path.abspath(option_values["directory"]) if option_values["directory"] else ""),
        ("output", option_values["log"] or ""),
        ("export", (",".join(exported_names) or "NONE") if option_values["no_env"] else ""),
        ("wait", FLAG if option_values["wait"] else ""),
    ]
    return found + _mail(option_values)


def _mail(option_values: Mapping[str, Any]) -> list[tuple[str, str]]:
    address, events = option_values["notify_mail"], option_values["notify"]
    if not address:
        if events:
            raise click.UsageError(f"--notify with --cluster: {_NOTIFY}")
        return []
    return [("mail-user", address), ("mail-type", ",".join(_MAIL[event] for event in events or ("end",)))]
