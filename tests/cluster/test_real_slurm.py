"""The controller over a real Slurm of two nodes with two simulated devices each, where one can run (tests/slurm)."""

from __future__ import annotations

import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from tests.mandatory import unavailable
from tests.slurm import cluster as slurm
from vgpud.cli.main import cli
from vgpud.cluster import service
from vgpud.cluster.core import reruns
from vgpud.cluster.core.model import Order, Release, SlurmSnapshot
from vgpud.cluster.shell import arrays
from vgpud.cluster.shell import slurm as shell
from vgpud.cluster.shell.slurm import Slurm
from vgpud.core.jobs.model import SECOND_NS, QueueSpec

pytestmark = pytest.mark.slow

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "integrations/slurm"
PARTITION = "main"
#: whom each Debian has; newer releases know no job of "nobody"
USER = "games"
SLEEPS = ("--", "sleep", "300")
QUEUES = (QueueSpec("default", min_run_ns=0), QueueSpec("team", guarantee_milli=4000, min_run_ns=0))


def wait_until(ready: Callable[[], bool], timeout_s: float = 60) -> None:
    until_s = time.monotonic() + timeout_s
    while not ready():
        assert time.monotonic() < until_s, "that did not happen"
        time.sleep(0.3)


class Site:
    """A cluster whose jobs are held for a controller in this process."""

    def __init__(self, cluster: Any, folder: Path) -> None:
        self.cluster, self.folder = cluster, folder
        self.options = service.Options(PARTITION, folder / "state", folder / "run", QUEUES)
        lua = (SOURCES / "vgpu_cluster.lua").read_text()
        lua = lua.replace('PARTITION = "gpu"', f'PARTITION = "{PARTITION}"')
        lua = lua.replace("/run/vgpud/cluster/heartbeat", str(folder / "run/heartbeat"))
        (cluster.folder / "job_submit.lua").write_text(lua)
        cluster.plugstack.write_text("")  # what happens on the nodes is not the queue's business

    def service(self) -> service.Service:
        return service.Service(self.options, Slurm(PARTITION))

    def submit(self, *words: str, command: str = "sleep 300") -> str:
        given = ("sbatch", "--parsable", "--output=/dev/null", *words, f"--wrap={command}")
        return str(self.cluster.call(*given, user=USER).stdout.strip())

    def show_job(self, key: str) -> tuple[str, str]:
        """(state, reason)."""
        done = self.cluster.call("squeue", "-h", "-a", "--states=all", f"--jobs={key}", "-o", "%T|%r", check=False)
        state, _, reason = done.stdout.strip().partition("|")
        return state, reason

    def elements(self, array: str) -> list[str]:
        """The states of those that have not ended."""
        done = self.cluster.call("squeue", "-h", "--array", f"--jobs={array}", "-o", "%T", check=False)
        return str(done.stdout).split()

    def states(self, *keys: str) -> list[str]:
        return [self.show_job(key)[0] for key in keys]


@pytest.fixture(scope="module")
def module_site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    reason = slurm.missing() or ("" if slurm.HAS_LUA else "this Slurm has no job_submit.lua")
    if reason:
        unavailable(reason)
    with slurm.cluster(["JobSubmitPlugins=lua"]) as made:
        folder = tmp_path_factory.mktemp("controller")
        for path in (folder, *list(folder.parents)[:-2]):
            path.chmod(path.stat().st_mode | 0o055)  # slurmctld's script reads the heartbeat
        yield Site(made, folder)


@pytest.fixture
def site(module_site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    for name in ("PATH", "SLURM_CONF"):
        monkeypatch.setenv(name, module_site.cluster.env[name])
    yield module_site
    module_site.cluster.call("scancel", f"--user={USER}", check=False)
    module_site.cluster.tidy()


def test_jobs_start_end_and_make_way(site: Site) -> None:
    one = site.service()
    one.look()  # the heartbeat: from now on jobs are held
    wide = site.submit("--gres=gpu:1", "--nodes=2")
    half, other = site.submit("--gres=shard:600"), site.submit("--gres=shard:600")
    assert site.show_job(half)[1].startswith("JobHeld")

    def has_states(*states: str) -> bool:
        one.look()
        return site.states(half, other, wide) == list(states)

    wait_until(lambda: has_states("RUNNING", "RUNNING", "RUNNING"))
    wait_until(lambda: one.look() is None and not one.controller.foreign)
    later = site.submit("--gres=gpu:2")
    one.look()
    one.look()
    assert site.states(later) == ["PENDING"]
    # a job that a node's failure, or a user, requeues waits its turn again
    site.cluster.call("scontrol", "requeue", half)
    wait_until(lambda: one.look() is None and site.states(half) == ["RUNNING"] and _restarts(site, half) == 1)
    site.cluster.call("scancel", half, other, wide)
    wait_until(lambda: one.look() is None and site.states(later) == ["RUNNING"])
    ended = {job.state.value for job in one.controller.machine.jobs.values()}
    assert ended == {"running"}  # the others are forgotten
    one.close()


def test_a_job_makes_way_for_a_guarantee(site: Site) -> None:
    one = site.service()
    one.look()
    low = site.submit("--gres=gpu:2", "--nodes=2")
    wait_until(lambda: one.look() is None and site.states(low) == ["RUNNING"])
    high = site.submit("--gres=gpu:2", "--account=team")
    wait_until(lambda: one.look() is None and site.states(low, high) == ["PENDING", "RUNNING"])
    site.cluster.call("scancel", high)
    wait_until(lambda: one.look() is None and site.states(low) == ["RUNNING"])
    assert _restarts(site, low) == 1
    one.close()


def test_the_controller_goes_and_slurms_order_continues(site: Site) -> None:
    one = site.service()
    one.look()
    held = site.submit("--gres=gpu:1", "--hold")
    waits = site.submit("--gres=gpu:1")
    assert site.show_job(held)[1] == "JobHeldUser" and site.show_job(waits)[1].startswith("JobHeld")
    one.close()
    free = site.submit("--gres=gpu:1")
    wait_until(lambda: site.states(free) == ["RUNNING"])
    heartbeat = str(site.options.run / "heartbeat")
    subprocess.run(["sh", str(SOURCES / "release_if_stale.sh"), PARTITION, heartbeat, "0"], check=True, timeout=60)
    wait_until(lambda: site.states(waits) == ["RUNNING"])
    assert site.states(held) == ["PENDING"]
    two = site.service()
    two.look()
    two.look()
    assert two.controller.foreign == 2 and site.show_job(held) == ("PENDING", "JobHeldUser")
    # released by its user it is the queue's, not Slurm's
    site.cluster.call("scontrol", "release", held, user=USER)
    wait_until(lambda: two.look() is None and site.states(held) == ["RUNNING"])
    two.close()


def test_what_cannot_be_placed_is_refused_at_once(site: Site) -> None:
    one = site.service()
    one.look()
    for words in (["--gpus=1"], ["--gres=gpu:1", "--nodelist=n1"], ["--gres=gpu:1", "--nodes=1-2"]):
        given = ["sbatch", "--output=/dev/null", *words, "--wrap=true"]
        done = site.cluster.call(*given, user=USER, check=False)
        assert done.returncode and f"partition {PARTITION}: " in done.stderr
    for name in ("account", "comment"):  # what follows a line break the controller cannot see
        given = ["sbatch", "--output=/dev/null", "--gres=gpu:1", f"--{name}=x\n12", "--wrap=true"]
        done = site.cluster.call(*given, user=USER, check=False)
        assert done.returncode and f"the {name} has a line break" in done.stderr
    held = site.submit("--gres=gpu:1", "--hold")
    for name in ("Account", "Comment"):
        for value, refused in (("x\r12", True), ("x", False)):
            words = ("scontrol", "update", f"JobId={held}", f"{name}={value}")
            done = site.cluster.call(*words, user=USER, check=False)
            # by the script; without slurmdbd 25.11 itself refuses some accounts, with whatever errno it has left
            assert ("Unspecified error" in done.stderr) == refused, done.stderr
    site.cluster.call("scancel", held)
    big = site.submit("--gres=shard:600", "--comment=vgpu duration=1h")
    wait_until(lambda: one.look() is None and site.states(big) == ["RUNNING"])
    (job,) = one.controller.machine.jobs.values()
    assert job.spec.duration_ns == 3600 * 10**9
    one.close()


def test_an_array_keeps_to_its_limit(site: Site) -> None:
    """Submitted by vgpu itself. Other jobs have the GPUs that its elements would hold in the queue's books."""
    one = site.service()
    one.look()
    run = ("--run-dir", str(site.options.run), "--log", "/dev/null")
    done = CliRunner().invoke(cli, ["submit", "--cluster", *run, "-q", "--gpus", "1", "--array", "0-4%1", *SLEEPS])
    assert done.exit_code == 0, done.output
    array = done.output.strip()
    others = [site.submit("--gres=gpu:1") for _ in range(3)]

    def is_settled(running: int) -> bool:
        one.look()
        return site.states(*others) == ["RUNNING"] * 3 and site.elements(array).count("RUNNING") == running

    wait_until(lambda: is_settled(1))
    for _ in range(3):
        one.look()
    states = [job.state.value for job in one.controller.machine.jobs.values() if job.spec.array == int(array)]
    assert sorted(states) == ["pending"] * 4 + ["running"]
    site.cluster.call("scancel", f"{array}_0")
    wait_until(lambda: is_settled(1) and site.show_job(f"{array}_1")[0] == "RUNNING")
    # its user wants more of it, and there is space
    site.cluster.call("scontrol", "update", f"JobId={array}", "ArrayTaskThrottle=2", check=False)  # 0 has ended
    site.cluster.call("scancel", *others[:1])
    others = others[1:]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(arrays, "EVERY_S", 0.0)
        wait_until(lambda: one.look() is None and site.elements(array).count("RUNNING") == 2)
    one.close()


def test_a_node_publishes_its_memory(site: Site) -> None:
    env = {**site.cluster.systems["n1"].env, **site.cluster.env, "SLURMD_NODENAME": "n1"}
    env["PATH"] = f"{Path(sys.executable).parent}:{env['PATH']}"
    subprocess.run(["bash", str(SOURCES / "publish_memory.sh")], env=env, check=True, timeout=60)
    assert {one.name: one.memory_bytes for one in Slurm(PARTITION).look().nodes} == {"n1": 4 << 30, "n2": 0}


def test_no_text_of_a_job_takes_devices(site: Site) -> None:
    """A job that is not the queue's, on a Slurm whose nodes show no amounts."""
    lie = "x UserId=a(1) Nodes=n1 CPU_IDs=0 Mem=0 GRES=gpu:sim:2(IDX:0-1) MinCPUsNode=1"
    texts = [f"--{name}={lie}\n{lie}" for name in ("job-name", "account", "mcs-label", "wckey", "comment", "network")]
    job = site.submit("--gres=shard:100", "--nodelist=n1", "--hold", *texts)
    # squeue shows a WCKey, and scontrol only with TrackWCKey=yes; small letters are what keeps it from ending devices
    wckey = "x MinCPUsNode=1 MinCPUsNode=1"
    site.cluster.call("scontrol", "update", f"JobId={job}", f"WCKey={wckey}", user=USER)
    shown = site.cluster.call("squeue", "-h", f"--jobs={job}", "-O", "WCKey:1100").stdout
    assert shown.strip() == wckey.lower()
    site.cluster.call("scontrol", "release", job, user=USER)
    plain = site.submit("--gres=shard:100", "--nodelist=n2", "--account=x\n99")
    wait_until(lambda: site.states(job, plain) == ["RUNNING", "RUNNING"])
    found = {one.key: one.devices for one in Slurm(PARTITION).look().jobs}
    assert "99" not in found
    ((name, _, milli),) = found[job]
    assert (name, milli) == ("n1", 100)
    ((name, _, milli),) = found[plain]
    assert (name, milli) == ("n2", 100)


def test_there_is_no_slurmdbd(site: Site) -> None:
    done = CliRunner().invoke(cli, ["whatif", "--from-slurm", "--cluster", "2x2"])
    assert isinstance(done.exception, shell.SlurmError)
    assert "accounting storage is disabled" in str(done.exception) and "vgpu cluster usage" in str(done.exception)


def test_slurmctld_is_restarted(site: Site) -> None:
    one = site.service()
    one.look()
    job = site.submit("--gres=gpu:1")
    wait_until(lambda: one.look() is None and site.states(job) == ["RUNNING"])
    site.cluster.parts["slurmctld"].stop()
    one.look()
    assert [found.state.value for found in one.controller.machine.jobs.values()] == ["running"]
    site.cluster.start_controller()
    wait_until(lambda: site.states(job) == ["RUNNING"])
    one.look()
    assert [found.state.value for found in one.controller.machine.jobs.values()] == ["running"]
    one.close()


class Observed(Slurm):
    """Remembers which jobs were released to nodes that had not registered."""

    def __init__(self, partition: str) -> None:
        super().__init__(partition)
        self.unregistered_nodes: set[str] = set()
        self.early_releases: list[Release] = []

    def look(self) -> SlurmSnapshot:
        seen = super().look()
        self.unregistered_nodes = {node.name for node in seen.nodes if not node.is_registered}
        return seen

    def tell(self, order: Order) -> None:
        if isinstance(order, Release) and self.unregistered_nodes.intersection(order.nodes):
            self.early_releases.append(order)
        super().tell(order)


def test_slurmctld_has_forgotten_a_start(site: Site, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is killed, and begins again from the state that it saved before: the program that runs is ended before the job
    starts again. A job that fails then runs once more, as that may be another run's end."""
    monkeypatch.setattr(reruns, "REPORTED_NS", 3600 * SECOND_NS)
    observed = Observed(PARTITION)
    one = service.Service(site.options, observed)
    one.look()
    other = site.submit("--gres=shard:500")  # beside which Slurm would start jobs on that node at once
    wait_until(lambda: one.look() is None and site.states(other) == ["RUNNING"])
    job = site.submit("--gres=shard:500")
    saved, state = tmp_path / "ctld", site.cluster.folder / "ctld"
    site.cluster.parts["slurmctld"].stop()  # SIGTERM: it saves all
    shutil.copytree(state, saved)
    site.cluster.start_controller()
    wait_until(lambda: one.look() is None and site.states(job) == ["RUNNING"])
    wait_until(lambda: len(_programs(site, job)) == 1)
    first = _programs(site, job)
    one.look()  # it has seen that start
    site.cluster.parts["slurmctld"].kill()
    shutil.rmtree(state)
    shutil.copytree(saved, state)
    nodes = [site.cluster.parts[f"slurmd-{name}"].process for name in slurm.NODES]
    for node in nodes:
        node.send_signal(signal.SIGSTOP)
    site.cluster.start_controller()
    try:
        wait_until(lambda: one.look() is None and job in one.controller.delay_reasons)
        assert _programs(site, job) == first and site.states(job) == ["PENDING"]
    finally:
        for node in nodes:
            node.send_signal(signal.SIGCONT)
    wait_until(lambda: one.look() is None and site.states(job) == ["RUNNING"])
    wait_until(lambda: len(_programs(site, job)) == 1 and _programs(site, job) != first)
    assert observed.early_releases == []
    attempts = {found.spec.name: found.attempt for found in one.controller.machine.jobs.values()}
    assert attempts[other] == 1 and attempts[job] >= 2
    fails = site.submit("--gres=gpu:1", command="exit 3")
    wait_until(lambda: one.look() is None and "JobState=FAILED" in _details(site, fails) and not _is_queued(one, fails))
    assert "Restarts=1 " in _details(site, fails) and "ExitCode=3:0" in _details(site, fails)
    one.close()


def _details(site: Site, key: str) -> str:
    return str(site.cluster.call("scontrol", "--oneliner", "show", "job", key).stdout)


def _is_queued(one: service.Service, key: str) -> bool:
    return key in one.controller.bindings


def _programs(site: Site, key: str) -> list[int]:
    """The slurmstepds of a job."""
    return [pid for pid in site.cluster.stepds() if f"[{key}.batch]" in _command(pid)]


def _command(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes().decode(errors="replace")
    except OSError:  # it has ended
        return ""


def _restarts(site: Site, key: str) -> int:
    done = site.cluster.call("squeue", "-h", f"--jobs={key}", "-O", "RestartCnt", check=False)
    return int(done.stdout.strip() or 0)
