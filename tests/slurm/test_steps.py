"""Steps on a real daemon (with a fake driver): Slurm's part is played by processes of the test."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from benchmarks.engine import install_front
from tests.attach import client
from tests.daemon import engine
from tests.daemon.node import Node, own_node, wait_until
from vgpud.v1alpha1 import vgpud_pb2 as pb

#: another user, for a daemon of root
OTHER = 12345
JOB = {"job": "12", "step": "0", "gpus": "1", "shards": "500"}


class Slurm:
    """slurmd's and slurmstepd's parts on one node. front: the vgpu-runtime that the plugin runs."""

    def __init__(self, front: Path) -> None:
        self.front = front
        self.running: list[subprocess.Popen[bytes]] = []

    def stepd(self) -> subprocess.Popen[bytes]:
        """A process that stands for a step."""
        made = subprocess.Popen(["sleep", "600"])
        self.running.append(made)
        return made

    def call(self, word: str, **fields: object) -> subprocess.CompletedProcess[str]:
        pairs = [f"{key}={value}" for key, value in fields.items() if value != ""]
        command = [self.front, "vgpu-slurm", word, *pairs]
        return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)

    def begin(self, process: subprocess.Popen[bytes] | None = None, **fields: object) -> dict[str, str]:
        """The variables that the step's tasks get."""
        pid = process.pid if process else self.stepd().pid
        done = self.call("begin", **({**JOB, "uid": os.getuid(), "stepd": pid} | fields))
        assert done.returncode == 0, done.stderr
        return dict(line.split("=", 1) for line in done.stdout.splitlines())

    def refusal(self, **fields: object) -> str:
        """The line of a refusal."""
        done = self.call("begin", **({**JOB, "uid": os.getuid(), "stepd": self.stepd().pid} | fields))
        assert done.returncode == 1 and done.stdout == "" and done.stderr.count("\n") == 1, done
        return done.stderr.strip()

    def close(self) -> None:
        for process in self.running:
            engine.end(process)


@pytest.fixture(scope="module")
def two_devices(fake_driver: Path) -> Iterator[Node]:
    """A daemon for all tests of this file; one may end it."""
    with own_node(fake_driver) as made:
        made.directory.chmod(0o755)
        made.env["FAKE_DEVICES"] = "2"
        made.start()
        install_front(made.directory / "front", made.runtime / "runtime.sock")
        yield made


@pytest.fixture
def node(two_devices: Node) -> Node:
    """The daemon, without slices."""
    if two_devices.process is None:
        two_devices.start()
    for name in two_devices.names():
        two_devices.slices.DeleteSlice(pb.DeleteSliceRequest(name=name, force=True))
    return two_devices


@pytest.fixture
def slurm(node: Node) -> Iterator[Slurm]:
    made = Slurm(node.directory / "front" / "vgpu-runtime")
    yield made
    made.close()


def test_a_step_gets_its_slice_and_its_tasks_their_variables(slurm: Slurm, node: Node) -> None:
    got = slurm.begin(max=".8", mem="1G", **{"class": "latency"})
    made = node.get("slurm-12.0")
    assert got["VGPU_SOCKET"] == made.attach_socket and Path(got["VGPU_SOCKET"]).is_socket()
    assert got["CUDA_VISIBLE_DEVICES"] == "0", "it counts within the slice"
    assert Path(got["LD_PRELOAD"].split(":")[0]).is_file() and got["VGPU_DRIVER"] == str(node.library)
    (device,) = made.devices
    assert (device.device_index, device.min_milli, device.max_milli) == (1, 500, 800)
    assert device.mem_max_bytes == 1 << 30 and made.owner_uid == os.getuid() and made.ephemeral
    assert [c.id for c in made.containers] == ["slurm-12.0"]


def test_each_task_asks_and_gets_the_same(slurm: Slurm, node: Node) -> None:
    stepd = slurm.stepd()
    first = slurm.begin(stepd)
    uid = node.get("slurm-12.0").uid
    assert slurm.begin(stepd) == first
    assert node.names() == ["slurm-12.0"] and node.get("slurm-12.0").uid == uid


def test_tasks_that_ask_at_once(slurm: Slurm, node: Node) -> None:
    before = node.event_kinds().count("slice.created")
    pairs = [f"{key}={value}" for key, value in {**JOB, "uid": os.getuid(), "stepd": slurm.stepd().pid}.items()]
    command = [str(slurm.front), "vgpu-slurm", "begin", *pairs]
    tasks = [subprocess.Popen(command, stdout=subprocess.PIPE) for _ in range(8)]
    outputs = {task.communicate(timeout=60)[0] for task in tasks}
    assert [task.returncode for task in tasks] == [0] * 8 and len(outputs) == 1
    assert node.event_kinds().count("slice.created") == before + 1


def test_the_end_of_a_step_ends_its_slice_and_reports_what_it_used(slurm: Slurm, node: Node) -> None:
    slurm.begin()
    done = slurm.call("end", job=12, step=0)
    assert (done.returncode, done.stdout) == (0, "slice=slurm-12.0\nused_ms=0\n")
    assert node.names() == []
    assert slurm.call("end", job=12, step=0).stdout == "", "again: nothing is left"


def test_a_slurmstepd_that_is_killed_ends_the_step(slurm: Slurm, node: Node) -> None:
    stepd = slurm.stepd()
    slurm.begin(stepd)
    engine.end(stepd)
    wait_until(lambda: node.names() == [], "the slice's end")


def test_steps_within_a_batch_script_join_its_slice(slurm: Slurm, node: Node) -> None:
    script = slurm.begin(step="batch", shards="800")
    inside = slurm.begin(step=0, shards="300")
    assert inside == script and node.names() == ["slurm-12.batch"], "300 more would be beyond the job's 800"
    assert slurm.call("end", job=12, step=0).stdout == ""
    assert node.names() == ["slurm-12.batch"]
    slurm.begin(step=1, shards="300")
    assert slurm.call("end", job=12, step="batch").stdout == "", "step 1 still uses it"
    assert slurm.call("end", job=12, step=1).stdout.startswith("slice=slurm-12.batch\n")
    assert node.names() == []


def test_steps_without_a_batch_script_have_slices_of_their_own(slurm: Slurm, node: Node) -> None:
    """As far as the job's shards go: the plugin finds out how many those are, and only where it matters."""
    assert "VGPU_SOCKET" in slurm.begin(shards="200", total="ask")
    assert slurm.begin(step=1, shards="300", total="ask") == {"ask": "total"} and node.names() == ["slurm-12.0"]
    slurm.begin(step=1, shards="300", total="500")
    assert sorted(node.names()) == ["slurm-12.0", "slurm-12.1"]


@pytest.mark.parametrize("total", ["500", ""])
def test_a_step_that_overlaps_shares_a_slice(slurm: Slurm, node: Node, total: str) -> None:
    """srun --overlap: Slurm gives the step what others have as well. The same where slurmctld did not say how much that
    is: a job never gets more."""
    first = slurm.begin(shards="500", total="ask")
    assert slurm.begin(step=1, shards="500", total=total) == first
    assert node.names() == ["slurm-12.0"] and node.get("slurm-12.0").devices[0].min_milli == 500
    assert slurm.call("end", job=12, step=0).stdout == "", "step 1 still uses it"
    assert node.names() == ["slurm-12.0"]
    assert slurm.call("end", job=12, step=1).stdout.startswith("slice=slurm-12.0\n")
    assert node.names() == []


def test_of_several_slices_the_largest_is_shared(slurm: Slurm, node: Node) -> None:
    slurm.begin(shards="200", total="500")
    largest = slurm.begin(step=1, shards="300", total="500")
    assert slurm.begin(step=2, shards="500", total="500") == largest
    assert sum(node.get(name).devices[0].min_milli for name in node.names()) == 500


def test_whole_devices_that_overlap(slurm: Slurm, node: Node) -> None:
    """No question is needed: a whole device cannot be another step's as well."""
    first = slurm.begin(gpus="0", shards="", total="ask")
    assert slurm.begin(step=1, gpus="1", shards="", total="ask") != first
    assert slurm.begin(step=2, gpus="0", shards="", total="ask") == first
    assert sorted(node.names()) == ["slurm-12.0", "slurm-12.1"]


def test_steps_of_other_jobs_and_users_are_not_beside_it(slurm: Slurm, node: Node) -> None:
    slurm.begin(shards="300")
    slurm.begin(job=120, shards="300", total="ask")
    slurm.begin(step=1, shards="300", total="ask", uid=OTHER)
    assert sorted(node.names()) == ["slurm-12.0", "slurm-12.1", "slurm-120.0"]


def test_without_shards_a_step_has_whole_devices(slurm: Slurm, node: Node) -> None:
    """A Slurm that counts no shards."""
    slurm.begin(gpus="0,1", shards="")
    assert [device.min_milli for device in node.get("slurm-12.0").devices] == [1000, 1000]


def test_a_requeued_step_begins_again(slurm: Slurm, node: Node) -> None:
    """Its former slurmstepd may not have reported the end."""
    slurm.begin()
    before = node.get("slurm-12.0").uid
    slurm.begin()
    assert node.names() == ["slurm-12.0"] and node.get("slurm-12.0").uid != before


def test_steps_survive_a_restart_of_the_daemon(slurm: Slurm, node: Node) -> None:
    stepd = slurm.stepd()
    slurm.begin(stepd)
    assert node.stop() == 0
    node.start()
    assert node.names() == ["slurm-12.0"]
    engine.end(stepd)
    wait_until(lambda: node.names() == [], "the end that nothing reported")


def test_a_step_that_ended_while_vgpud_was_away(slurm: Slurm, node: Node) -> None:
    """As after a reboot of the node."""
    stepd = slurm.stepd()
    slurm.begin(stepd)
    node.stop(signal.SIGKILL)
    engine.end(stepd)
    node.start()
    wait_until(lambda: node.names() == [], "the slice's end")


def test_a_job_by_prolog_and_epilog(slurm: Slurm, node: Node) -> None:
    whole = {"job": 13, "step": "", "stepd": "", "shards": "600"}
    first = slurm.begin(**whole)
    assert slurm.begin(**whole) == first
    made = node.get("slurm-13")
    assert not made.ephemeral and made.devices[0].min_milli == 600
    assert slurm.call("end", job=13).stdout == "slice=slurm-13\nused_ms=0\n"
    assert node.names() == []


@pytest.mark.parametrize(
    "fields", [{"shards": "300"}, {"gpus": "0"}, {"uid": 12345}], ids=lambda given: next(iter(given))
)
def test_a_job_whose_id_had_an_earlier_one(slurm: Slurm, node: Node, fields: dict[str, object]) -> None:
    """A node that crashed, or slurmctld without its state: the earlier slice is not what Slurm counts now."""
    whole: dict[str, object] = {"job": 13, "step": "", "stepd": "", "shards": "600"}
    slurm.begin(**whole)
    before = node.get("slurm-13").uid
    slurm.begin(**(whole | fields))
    made = node.get("slurm-13")
    assert made.uid != before and made.owner_uid == fields.get("uid", os.getuid())
    device = (made.devices[0].device_index, made.devices[0].min_milli)
    assert device == (int(str(fields.get("gpus", 1))), int(str(fields.get("shards", 600))))
    assert slurm.call("end", job=13).returncode == 0


def test_a_step_does_not_join_another_users_job_of_the_same_id(slurm: Slurm, node: Node) -> None:
    slurm.begin(step="batch", shards="300", uid=OTHER)
    slurm.begin(shards="300")
    assert sorted(node.names()) == ["slurm-12.0", "slurm-12.batch"]
    assert node.get("slurm-12.0").owner_uid == os.getuid()


# ---- whose it is ----


def test_names_of_jobs_are_kept_for_slurm(slurm: Slurm, node: Node) -> None:
    for name in ("slurm-12", "slurm-12.0", "slurm-12.batch"):
        with pytest.raises(grpc.RpcError, match="name of a Slurm job's slice"):
            node.create(name)
    assert node.create("slurm-team").name == "slurm-team"


def _status(path: str, who: str, entry: Path | None = None) -> int:
    """The attach status that a user's program gets; entry: the cgroup that it enters first."""
    command = [sys.executable, client.__file__, path]
    if entry:
        command = ["sh", "-c", 'echo 0 > "$0" && exec "$@"', str(entry / "cgroup.procs"), *command]
    program = subprocess.Popen(command, stdout=subprocess.PIPE, env=os.environ | {"AS": who})
    try:
        assert program.stdout
        return int(program.stdout.readline())
    finally:
        engine.end(program)


@pytest.mark.root
def test_without_cgroups_a_slice_is_its_users(slurm: Slurm, node: Node) -> None:
    path = slurm.begin(uid=OTHER)["VGPU_SOCKET"]
    assert node.get("slurm-12.0").owner_uid == OTHER
    assert _status(path, f"{OTHER}:{OTHER}") == client.OK
    assert _status(path, "12346:12346") == client.DENIED
    assert any("known by their uid alone" in text for text in node.messages("container.warning"))


@pytest.mark.root
@pytest.mark.skipif(engine.why_no_cgroup() != "", reason=engine.why_no_cgroup() or "-")
def test_a_program_belongs_to_the_step_whose_cgroup_it_is_in(slurm: Slurm, node: Node) -> None:
    """Whatever slice its environment names."""
    with engine.cgroup() as parent, _named(parent, "job_12") as job, _named(parent, "job_14") as other:
        with _named(job, "step_0") as step, _named(other, "step_0") as foreign:
            mine = slurm.begin(_stepd_inside(slurm, step), uid=OTHER, shards="300")["VGPU_SOCKET"]
            theirs = slurm.begin(_stepd_inside(slurm, foreign), job=14, uid=OTHER, shards="300")["VGPU_SOCKET"]
            assert node.get("slurm-12.0").containers[0].cgroup.endswith("/job_12/step_0")
            assert _status(mine, "0:0", step) == client.OK, "as any user of the job's processes"
            assert _status(theirs, f"{OTHER}:{OTHER}", step) == client.DENIED
            engine.end(slurm.running.pop(0))
            slurm.close()
    wait_until(lambda: node.names() == [], "the end of both")


class _named:
    """A cgroup with a name below another one."""

    def __init__(self, parent: Path, name: str) -> None:
        self.path = parent / name

    def __enter__(self) -> Path:
        self.path.mkdir()
        return self.path

    def __exit__(self, *_: object) -> None:
        for pid in (self.path / "cgroup.procs").read_text().split():
            os.kill(int(pid), signal.SIGKILL)
        wait_until(lambda: not (self.path / "cgroup.procs").read_text().split(), "an empty cgroup")
        self.path.rmdir()


def _stepd_inside(slurm: Slurm, cgroup: Path) -> subprocess.Popen[bytes]:
    made = slurm.stepd()
    (cgroup / "cgroup.procs").write_text(str(made.pid))
    return made


# ---- what is refused ----


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"shards": "1500"}, "shard:1500 is not within the 1000"),
        ({"gpus": "7"}, "no device '7' on this node"),
        ({"gpus": "0-2", "shards": "2500"}, "Slurm gives 3 GPUs, vgpud has 2 here"),
        ({"mem": "900G"}, "memory 900GiB"),
        ({"max": "1.5"}, "max 1.5 is more than the 1 device(s)"),
        ({"max": ".1"}, "--vgpu-max=.1 is below"),
        ({"stepd": "4000000"}, "slurmstepd 4000000 does not exist"),
        ({"class": "fast"}, "--vgpu-class=fast is not a class"),
    ],
)
def test_refused(slurm: Slurm, node: Node, fields: dict[str, str], message: str) -> None:
    assert message in slurm.refusal(**fields)
    assert node.names() == []
    assert message in "".join(node.messages("container.refused"))


def test_what_others_hold_is_named(slurm: Slurm, node: Node) -> None:
    """Slurm does not know slices that are made otherwise: give it the devices alone, or count them there."""
    node.create("mine", 800, spec={"device_uuids": ["1"]})
    assert "left" in slurm.refusal()


def test_no_daemon(slurm: Slurm, node: Node) -> None:
    assert node.stop() == 0
    said = slurm.refusal()
    assert said.startswith("vgpud is not running") and said.endswith("run the job without asking for a GPU")
    assert slurm.call("end", job=12, step=0).returncode == 1


def test_lines_are_not_smuggled_in(slurm: Slurm) -> None:
    done = slurm.call("begin", job="12\nuid=0")
    assert (done.returncode, done.stdout) == (1, "") and "KEY=VALUE" in done.stderr
    assert "usage" in slurm.call("start").stderr
