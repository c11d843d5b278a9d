"""Slices of jobs under a real Slurm with the SPANK plugin: two nodes with two simulated devices each."""

from __future__ import annotations

import json
import os
import pwd
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.daemon.node import wait_until
from tests.slurm import cluster as slurm
from tests.slurm.cluster import HAS_LUA, NODES, Cluster
from vgpud.client import calls
from vgpud.v1alpha1 import vgpud_pb2 as pb

pytestmark = [pytest.mark.root, pytest.mark.slow]
GIB = 1 << 30
HALF = "--gres=shard:500"
#: users that each Debian has and that may not write where others' programs are
ANN, BOB = "games", "man"


def read_view(text: str) -> dict[str, Any]:
    """The JSON line of `view`."""
    line = next(line for line in text.splitlines() if line.startswith("{"))
    found: dict[str, Any] = json.loads(line)
    return found


def slice_of(site: Cluster, node: str, name: str) -> pb.Slice:
    with site.systems[node].client() as client:
        return client.send(calls.get_slice(name))


def running(site: Cluster, *command: str, user: str = "", node: str = "n1") -> tuple[subprocess.Popen[str], str]:
    """A step that has begun, and the name of its slice."""
    before = set(site.names(node))
    made = site.begin("srun", "-w", node, *command, user=user)

    def new() -> str:
        assert made.poll() is None, (made.stdout.read() if made.stdout else "") + site.logs()
        return next(iter(set(site.names(node)) - before), "")

    return made, str(wait_until(new, "the step's slice"))


def end(site: Cluster, step: subprocess.Popen[str], name: str) -> None:
    job = name.partition("-")[2].partition(".")[0]
    site.call("scancel", job)
    step.communicate(timeout=60)


def test_a_step_sees_its_part_and_nothing_else(site: Cluster, programs: Path) -> None:
    done = site.call("srun", "-w", "n1", HALF, "--vgpu-mem=1G", str(programs / "view"), str(GIB), user=ANN)
    found = read_view(done.stdout)
    assert (found["count"], found["cuda_bytes"], found["nvml_bytes"]) == (1, GIB, [GIB])
    assert found["alloc"] == 2, "the context has taken some of it"
    wait_until(lambda: site.names("n1") == [], "the slice's end")


def test_the_numbers_of_a_slice(site: Cluster, programs: Path) -> None:
    options = (HALF, "--vgpu-max=.8", "--vgpu-class=latency")
    step, name = running(site, *options, str(programs / "tenant"), user=ANN)
    made = slice_of(site, "n1", name)
    (device,) = made.devices
    assert (device.min_milli, device.max_milli) == (500, 800)
    assert made.owner_uid == pwd.getpwnam(ANN).pw_uid and made.spec.service_class == pb.SERVICE_CLASS_LATENCY
    with site.systems["n1"].client() as client:
        (process,) = wait_until(lambda: client.all(calls.processes(name)), "the program")
    assert process.uid == made.owner_uid
    end(site, step, name)
    wait_until(lambda: site.names("n1") == [], "the slice's end")


def test_each_job_has_the_device_that_slurm_gave_it(site: Cluster, programs: Path) -> None:
    """On a device of its own a program counts from 0, whatever its number on the node."""
    first, one = running(site, "--gres=shard:600", str(programs / "tenant"))
    second, two = running(site, "--gres=shard:600", str(programs / "tenant"))
    indices = {slice_of(site, "n1", name).devices[0].device_index for name in (one, two)}
    assert indices == {0, 1}
    with site.systems["n1"].client() as client:
        wait_until(lambda: {p.slice for p in client.all(calls.processes())} == {one, two}, "both programs")
    end(site, first, one)
    end(site, second, two)


@pytest.mark.skipif(not HAS_LUA, reason="this Slurm has no job_submit/lua")
def test_a_whole_device_is_none_with_shards_in_use(site: Cluster, programs: Path) -> None:
    """Slurm 22.05 gives it away when one of two jobs with shards there has ended: job_submit.lua asks for shards."""
    first, one = running(site, "--gres=shard:250", str(programs / "tenant"))
    second, two = running(site, "--gres=shard:250", str(programs / "tenant"))
    end(site, first, one)
    words = ("--gres=gpu:1", "--output=/dev/null", f"--wrap=exec {programs}/tenant")
    whole = site.call("sbatch", "--parsable", "-w", "n1", *words).stdout.strip()
    other = f"slurm-{whole}.batch"
    wait_until(lambda: other in site.names("n1"), "the slice of the whole device")
    made = [slice_of(site, "n1", name).devices[0] for name in (two, other)]
    assert {device.device_index for device in made} == {0, 1} and made[1].min_milli == 1000
    site.call("scancel", whole)
    end(site, second, two)


def test_a_job_on_two_nodes_and_whole_devices(site: Cluster, programs: Path) -> None:
    done = site.call("srun", "-N2", "--ntasks-per-node=2", "--gres=gpu:2", str(programs / "view"))
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [one["count"] for one in found] == [2] * 4
    wait_until(lambda: not any(site.names(name) for name in NODES), "the end of both slices")


def test_steps_of_a_batch_script_share_its_slice(site: Cluster, programs: Path) -> None:
    script, output = site.folder / "job.sh", site.folder / "job.out"
    script.write_text(f"#!/bin/sh\n{programs}/view\nsrun --gres=shard:700 {programs}/view\necho over\n")
    site.call("sbatch", "-w", "n1", "--gres=shard:700", "--vgpu-mem=1G", f"--output={output}", str(script))
    wait_until(lambda: output.exists() and "over\n" in output.read_text(), "the end of the script")
    found = [json.loads(line) for line in output.read_text().splitlines() if line.startswith("{")]
    assert len(found) == 2, output.read_text() + site.logs()
    assert {one["cuda_bytes"] for one in found} == {GIB}
    with site.systems["n1"].client() as client:
        made = [event.slice for event in client.all(calls.events()) if event.kind == "slice.created"]
    assert made[-1].endswith(".batch")


def test_a_step_without_a_gpu_is_left_alone(site: Cluster) -> None:
    """Also when its environment claims one."""
    lies = "--export=ALL,SLURM_STEP_GPUS=0,SLURM_JOB_GPUS=0,SLURM_SHARDS_ON_NODE=900"
    done = site.call("srun", "-w", "n1", lies, "env")
    assert "VGPU_SOCKET" not in done.stdout and "SHARDS_ON_NODE" not in done.stdout


def test_a_batch_script_without_a_gpu_is_left_alone(site: Cluster) -> None:
    """Also when its environment claims one."""
    script, output = site.folder / "lies.sh", site.folder / "lies.out"
    script.write_text("#!/bin/sh\nenv\necho over\n")
    lies = "--export=ALL,SLURM_STEP_GPUS=0,SLURM_JOB_GPUS=0,SLURM_SHARDS_ON_NODE=900"
    site.call("sbatch", "-w", "n1", lies, f"--output={output}", str(script))
    wait_until(lambda: output.exists() and "over\n" in output.read_text(), "the end of the script")
    assert "VGPU_SOCKET" not in output.read_text()


def test_a_step_without_a_gpu_in_a_job_with_options(site: Cluster) -> None:
    """srun in a script has the options that the script was submitted with."""
    script, output = site.folder / "mixed.sh", site.folder / "mixed.out"
    script.write_text("#!/bin/sh\nsrun --gres=none echo without\necho over\n")
    site.call("sbatch", "-w", "n1", HALF, "--vgpu-max=.8", f"--output={output}", str(script))
    wait_until(lambda: output.exists() and "over\n" in output.read_text(), "the end of the script")
    assert "without\n" in output.read_text(), output.read_text()


def test_steps_within_salloc(site: Cluster, programs: Path) -> None:
    """The shell has all that the job has, and its steps share that: one without a GPU has no more and ends nothing."""
    view = str(programs / "view")
    said = f"{view}\nsrun --gres=none {view}\nsrun {HALF} {view}\necho over\n"
    done = site.call("salloc", "-w", "n1", HALF, "--vgpu-mem=1G", user=ANN, stdin=said)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert done.stdout.endswith("over\n"), done.stdout + done.stderr
    assert [(one["count"], one["cuda_bytes"]) for one in found] == [(1, GIB)] * 3
    job = re.search(r"job allocation (\d+)", done.stderr)
    with site.systems["n1"].client() as client:
        made = [event.slice for event in client.all(calls.events()) if event.kind == "slice.created"]
    assert job and [name for name in made if name.startswith(f"slurm-{job[1]}.")] == [f"slurm-{job[1]}.interactive"]


def test_steps_that_overlap_share_a_slice(site: Cluster, programs: Path) -> None:
    """Slurm gives each of them all that the job has; together they get it once."""
    job, tenant = site.allocate(HALF), str(programs / "tenant")
    first, name = running(site, f"--jobid={job}", HALF, tenant)
    second = site.begin("srun", f"--jobid={job}", "--overlap", HALF, tenant)
    with site.systems["n1"].client() as client:
        wait_until(lambda: len(client.all(calls.processes(name))) == 2, "both programs in one slice")
        assert sum(device.reserved_milli for device in client.all(calls.devices())) == 500
        none = site.call("srun", f"--jobid={job}", "--overlap", "--gres=none", "env")
        assert "VGPU_SOCKET" not in none.stdout and site.names("n1") == [name]
        site.call("scancel", f"{job}.0")
        first.communicate(timeout=60)
        wait_until(lambda: len(client.all(calls.processes(name))) == 1, "the end of the first")
        assert sum(device.reserved_milli for device in client.all(calls.devices())) == 500, "the other one keeps it"
    third = site.call("srun", f"--jobid={job}", "--overlap", HALF, str(programs / "view"))
    assert read_view(third.stdout)["cuda_bytes"] == 2 * GIB
    assert site.names("n1") == [name]
    end(site, second, name)
    wait_until(lambda: site.names("n1") == [], "the slice's end")


def test_steps_beside_each_other_have_their_own(site: Cluster, programs: Path) -> None:
    job, tenant = site.allocate(HALF, "-n2"), str(programs / "tenant")
    steps = [running(site, f"--jobid={job}", "-n1", "--exact", f"--gres=shard:{n}", tenant) for n in (200, 300)]
    found = [slice_of(site, "n1", name).devices[0].min_milli for _, name in steps]
    assert found == [200, 300] and [name for _, name in steps] == [f"slurm-{job}.0", f"slurm-{job}.1"]
    for step, name in steps:
        end(site, step, name)
    wait_until(lambda: site.names("n1") == [], "the end of both slices")


def test_the_used_time_is_in_the_jobs_comment(site: Cluster, programs: Path) -> None:
    tenant = ["timeout", "1", str(programs / "tenant")]
    done = site.call("srun", "-v", "-w", "n1", "-n", "2", HALF, *tenant, check=False)
    job = re.search(r"jobid (\d+)", done.stderr)
    assert job, done.stderr
    shown = site.call("scontrol", "show", "job", job[1]).stdout
    used = re.search(rf"AdminComment=vgpu n1 slurm-{job[1]}.0 (\d+\.\d+) GPU-s", shown)
    assert used and float(used[1]) > 0, shown + site.logs()
    usage = [sys.executable, "-m", "vgpud.cli.main", "usage", "--by", "job", "-o", "json"]
    rows = json.loads(subprocess.run(usage, env=site.systems["n1"].env, capture_output=True, check=True).stdout)[
        "usage"
    ]
    (row,) = (row for row in rows if row.get("slice") == f"slurm-{job[1]}.0")
    assert row["gpu_seconds_used"] > 0


def test_installation(tmp_path: Path) -> None:
    if not slurm.HEADER.exists():
        pytest.skip(f"{slurm.HEADER} is missing (Debian: libslurm-dev)")
    out = tmp_path / "vgpu_spank.so"
    command = ["make", "-s", "-C", str(slurm.SOURCES), f"OUT={out}", f"DESTDIR={tmp_path}", "install"]
    subprocess.run(command, check=True)
    there = {path.name for path in (tmp_path / "usr/lib/vgpu/slurm").iterdir()}
    assert there == {"vgpu_spank.so", "prolog.sh", "task_prolog.sh", "epilog.sh", "comment.sh", "publish_memory.sh"}


# ---- what is refused ----


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ((HALF, "--vgpu-mem=900G"), "memory 900GiB"),
        ((HALF, "--vgpu-max=.4"), "--vgpu-max=.4 is below"),
        ((HALF, "--vgpu-max=9"), "max 9 is more than the 1 device(s)"),
        (("--vgpu-max=.4",), "--vgpu-max=.4 without a GPU: ask Slurm for a part of one"),
        ((HALF, "--vgpu-class=fast"), "--vgpu-class=fast is not a class"),
        ((HALF, "--vgpu-mem=1;2"), "--vgpu-mem=1;2 is not valid"),
    ],
)
def test_bad_options(site: Cluster, options: tuple[str, ...], message: str) -> None:
    done = site.call("srun", "-w", "n1", *options, "true", check=False)
    assert done.returncode != 0 and message in done.stderr, done.stderr + site.logs()
    assert site.states() == dict.fromkeys(NODES, "idle") or wait_until(lambda: site.states()["n1"] == "idle")
    assert site.names("n1") == []


@pytest.mark.skipif(not HAS_LUA, reason="this Slurm has no job_submit/lua")
@pytest.mark.parametrize(
    ("gres", "message"),
    [
        ("shard:1500", "vgpu: shard:1500 is more than one GPU (1000 shards): a job on several GPUs needs Slurm 23.11"),
        ("shard:tesla:1001", "ask for --gres=gpu:2"),
        ("gpu:2,shard:500", "Invalid generic resource (gres) specification"),
    ],
)
def test_what_can_never_start(site: Cluster, gres: str, message: str) -> None:
    done = site.call("srun", f"--gres={gres}", "true", check=False, timeout_s=20)
    assert done.returncode != 0 and message in done.stderr, done.stderr


def test_vgpud_is_away(site: Cluster) -> None:
    """The job fails with the reason, and the node is not drained."""
    site.systems["n1"].daemon.stop()  # type: ignore[union-attr]
    done = site.call("srun", "-w", "n1", HALF, "true", check=False)
    assert done.returncode != 0 and "vgpud is not running" in done.stderr, done.stderr
    wait_until(lambda: site.states()["n1"] == "idle", "an idle node")


def test_the_slice_of_another_user(site: Cluster, programs: Path) -> None:
    """A program that names another job's slice in its environment is refused."""
    step, name = running(site, "--gres=shard:300", str(programs / "tenant"), user=ANN)
    socket = slice_of(site, "n1", name).attach_socket
    spied = ["env", f"VGPU_SOCKET={socket}", str(programs / "view")]
    done = site.call("srun", "-w", "n1", "--gres=shard:300", *spied, user=BOB, check=False)
    assert done.returncode != 0 and "{" not in done.stdout
    with site.systems["n1"].client() as client:
        assert any(event.kind == "attach.refused" for event in client.all(calls.events()))
    end(site, step, name)


# ---- what may end meanwhile ----


@pytest.mark.parametrize("daemon", ["slurmctld", "slurmd-n1"])
def test_slurms_daemons_may_restart(site: Cluster, programs: Path, daemon: str) -> None:
    step, name = running(site, HALF, str(programs / "tenant"))
    uid = slice_of(site, "n1", name).uid
    site.parts[daemon].stop(signal.SIGTERM if daemon == "slurmctld" else signal.SIGKILL)
    if daemon == "slurmctld":
        site.start_controller()
    else:
        site.start_node("n1")
    wait_until(lambda: site.states().get("n1") in ("mix", "alloc"), "the node with its job")
    assert slice_of(site, "n1", name).uid == uid
    end(site, step, name)
    wait_until(lambda: site.names("n1") == [], "the slice's end")


def test_a_node_that_goes_down_with_jobs_on_it(site: Cluster, programs: Path) -> None:
    """Their slices end there, and Slurm requeues them."""
    script = site.folder / "requeued.sh"
    script.write_text(f"#!/bin/sh\nexec {programs}/tenant\n")
    options = ("--parsable", "--requeue", "-w", "n1", HALF, "--output=/dev/null")
    job = site.call("sbatch", *options, str(script)).stdout.strip()
    wait_until(lambda: site.names("n1") == [f"slurm-{job}.batch"], "the job's slice")
    try:
        site.call("scontrol", "update", "NodeName=n1", "State=DOWN", "Reason=test")
        wait_until(lambda: site.names("n1") == [], "the slice's end")
        wait_until(lambda: site.call("squeue", "-h", "-j", job, "-o", "%T").stdout.strip() == "PENDING", "its requeue")
        site.call("scancel", job)
    finally:
        site.call("scontrol", "update", "NodeName=n1", "State=RESUME", check=False)  # it may be back by itself


def test_a_slurmstepd_that_is_killed(site: Cluster, programs: Path) -> None:
    step, _name = running(site, HALF, str(programs / "tenant"))
    for stepd in site.stepds():
        os.kill(stepd, signal.SIGKILL)
    wait_until(lambda: site.names("n1") == [], "the slice's end")
    step.kill()
    step.communicate()


def test_a_node_back_with_another_number_of_devices(site: Cluster) -> None:
    """Slurm may give away a device that vgpud does not have: the step is refused, no other device is taken."""
    system = site.systems["n2"]
    conf = (system.folder / "sim.conf").read_text()
    assert system.daemon and system.device
    system.daemon.stop()
    system.device.stop()
    system._sim_config = {"devices": "1", "memory_bytes": "4G"}
    system._start_device()
    system.start_daemon()
    try:
        done = site.call("srun", "-w", "n2", "--gres=gpu:2", "true", check=False)
        assert done.returncode != 0 and "Slurm gives 2 GPUs, vgpud has 1 here" in done.stderr, done.stderr
    finally:
        system.daemon.stop()
        system.device.stop()
        system._sim_config = dict(line.split(" = ") for line in conf.splitlines())
        system._start_device()
        system.start_daemon()
