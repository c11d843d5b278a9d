"""Bad input where vgpud is on many nodes, by Slurm or by Ray: of each case what users read, and what tests it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

#: case -> (page, what it says, tests)
CASES = {
    "shard above a device": (
        "slurm.md",
        "`--gres=shard:1500`, two GPUs a node | Slurm keeps it pending; `job_submit.lua` refuses it",
        ("slurm/test_cluster.py::test_what_can_never_start", "slurm/test_request.py::test_refused"),
    ),
    "max without SPANK": (
        "slurm.md",
        "`--vgpu-max` without the plugin | srun: unrecognized option",
        ("slurm/test_scripts_cluster.py::test_a_maximum_needs_the_plugin",),
    ),
    "memory above the device": (
        "slurm.md",
        "`--vgpu-mem` above the device | the step fails, with the device's size",
        ("slurm/test_cluster.py::test_bad_options", "slurm/test_steps.py::test_refused"),
    ),
    "job of another user in the slice's name": (
        "slurm.md",
        "a user names another user's slice (`VGPU_SOCKET`) | the program is refused",
        (
            "slurm/test_cluster.py::test_the_slice_of_another_user",
            "slurm/test_steps.py::test_a_step_does_not_join_another_users_job_of_the_same_id",
            "slurm/test_steps.py::test_names_of_jobs_are_kept_for_slurm",
        ),
    ),
    "Prolog while vgpud is away": (
        "slurm.md",
        "Prolog leaves the same sentence for TaskProlog, which ends the tasks",
        ("slurm/test_scripts.py::test_vgpud_is_away", "slurm/test_scripts_cluster.py::test_vgpud_is_away"),
    ),
    "slurmctld restart": (
        "slurm.md",
        "slurmctld or slurmd is restarted, or away | running steps and their slices are not affected",
        (
            "slurm/test_cluster.py::test_slurms_daemons_may_restart",
            "cluster/test_real_slurm.py::test_slurmctld_is_restarted",
        ),
    ),
    "slurmctld killed, a start forgotten": (
        "cluster.md",
        "At that point slurmctld ends the program, and the job starts again",
        (
            "cluster/test_real_slurm.py::test_slurmctld_has_forgotten_a_start",
            "cluster/test_forgotten.py::test_a_start_that_was_forgotten_waits_for_its_node",
            "cluster/test_forgotten.py::test_a_start_that_no_controller_saw_waits_for_its_node",
        ),
    ),
    "slurmctld killed, an end forgotten": (
        "cluster.md",
        "the controller makes nodes with jobs register after 25 s and again after 50 s",
        ("cluster/test_forgotten.py::test_an_end_that_was_forgotten_is_found",),
    ),
    "slurmctld killed, a submission forgotten": (
        "cluster.md",
        "The controller queues a new job with a known number as new, or places it again",
        ("cluster/test_controller.py::test_a_number_that_slurm_gives_away_again",),
    ),
    "slurmctld killed, a node drained": (
        "cluster.md",
        'drains the node ("Duplicate jobid"). The controller resumes the node at the next look',
        ("cluster/test_forgotten.py::test_a_node_that_slurm_drained_for_a_second_start_is_resumed",),
    ),
    "node down with jobs on it": (
        "slurm.md",
        "a node goes down with jobs | Slurm requeues them, and their slices end there",
        (
            "slurm/test_cluster.py::test_a_node_that_goes_down_with_jobs_on_it",
            "slurm/test_steps.py::test_a_step_that_ended_while_vgpud_was_away",
        ),
    ),
    "node down with jobs of the queue on it": (
        "cluster.md",
        "a node goes down with jobs on it | Slurm requeues them, the queue places them elsewhere",
        ("cluster/test_controller.py::test_a_node_goes_down_with_jobs_on_it",),
    ),
    "node back with another device count": (
        "slurm.md",
        "A step on a device that vgpud does not have is refused: Slurm gives 2 GPUs, vgpud has 1 here",
        ("slurm/test_cluster.py::test_a_node_back_with_another_number_of_devices",),
    ),
    "node back with another device count, in the queue": (
        "cluster.md",
        "a node comes back with another number of GPUs | jobs that run there according to Slurm stay",
        ("cluster/test_controller.py::test_a_node_comes_back_with_another_count_of_devices",),
    ),
    "Slurm without shard": (
        "slurm.md",
        "Slurm without shards | `--gres=gpu:N` gets slices of whole devices",
        ("slurm/test_steps.py::test_without_shards_a_step_has_whole_devices",),
    ),
    "Slurm without shard, in the queue": (
        "cluster.md",
        "If no node has shards, the queue gives out whole GPUs",
        (
            "cluster/test_controller.py::test_a_slurm_without_shards_gives_out_whole_gpus",
            "cluster/test_controller.py::test_a_node_without_shards_beside_others_is_not_used",
        ),
    ),
    "controller killed between decision and scontrol": (
        "cluster.md",
        "the controller is killed between a decision and its order | the next one finds the decision in its database",
        (
            "cluster/test_controller.py::test_a_controller_is_killed_between_decision_and_order",
            "cluster/test_controller.py::test_a_controller_is_killed_while_a_job_is_requeued",
        ),
    ),
    "two controllers": (
        "cluster.md",
        "a second controller | it is refused, and the message names the pid of the first",
        ("cluster/test_service.py::test_a_second_controller_is_refused",),
    ),
    "steps that overlap": (
        "slurm.md",
        "`srun --overlap` beside a running step | the step joins the largest slice of the running steps",
        (
            "slurm/test_cluster.py::test_steps_that_overlap_share_a_slice",
            "slurm/test_scripts_cluster.py::test_all_steps_of_a_job_have_its_slice",
        ),
    ),
    "a step without a GPU in a job with one": (
        "slurm.md",
        "`srun --gres=none` | no slice, and no variables",
        ("slurm/test_cluster.py::test_steps_within_salloc",),
    ),
    "Ray actor beyond what is left": (
        "ray.md",
        "another user's slice has the GPU | error 800 at `cuInit`",
        ("ray/test_cluster.py::test_beyond_what_is_left",),
    ),
    "Ray worker killed": (
        "ray.md",
        "worker or raylet killed | its slices end; nothing stays reserved",
        ("ray/test_cluster.py::test_a_killed_worker_leaves_nothing",),
    ),
    "raylet killed": (
        "ray.md",
        "worker or raylet killed | its slices end; nothing stays reserved",
        ("ray/test_cluster.py::test_a_killed_raylet_leaves_nothing",),
    ),
    "fraction above 1 that is not whole": (
        "ray.md",
        "`options(1.5)` | `SizeError`: Ray gives out parts of one GPU or whole ones",
        ("ray/test_size.py::test_what_cannot_be_is_refused_in_one_line",),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_it_is_documented(case: str) -> None:
    page, words, _ = CASES[case]
    assert words in " ".join((ROOT / "docs" / page).read_text().split())


@pytest.mark.parametrize("case", CASES)
def test_it_is_tested(case: str) -> None:
    for test in CASES[case][2]:
        path, _, name = test.partition("::")
        assert re.search(rf"^def {name}\(", (ROOT / "tests" / path).read_text(), re.MULTILINE), test
