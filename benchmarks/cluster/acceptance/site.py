"""A real Slurm of two nodes, each with vgpud and two simulated devices, and `vgpu cluster run` beside slurmctld.

Daemons of all four types can be killed and started again. Jobs keep their records in folders that every user may write.
"""

from __future__ import annotations

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.cluster.acceptance.workload import QUEUES, Submission
from tests.slurm.cluster import HAS_LUA, NODES, ROOT, Cluster, cluster
from tests.slurm.cluster import missing as no_slurm
from vgpud.cli.demo.private_system import Part, wait_for
from vgpud.client import calls
from vgpud.cluster.shell import published
from vgpud.core.queue.record import encode

PARTITION = "main"
#: minutes, which Slurm's backfill goes by; no job takes as long
TIME_LIMIT = "3"
#: the daemons that are killed; slurmd and vgpud are each node's
CONTROLLER, SLURMCTLD, SLURMD, VGPUD = PROCESS_NAMES = ("controller", "slurmctld", "slurmd", "vgpud")
SOURCES = ROOT / "integrations" / "slurm"
READY_S = 60.0


def missing() -> str:
    """Why none can be started here; "" when one can."""
    return no_slurm() or ("" if HAS_LUA else "this Slurm has no job_submit/lua")


@dataclass(frozen=True, slots=True)
class Folder:
    """Where the jobs of one run keep their records."""

    path: Path

    @classmethod
    def make(cls, path: Path) -> Folder:
        path.mkdir()
        for folder in (path, path / "progress", path / "out"):
            folder.mkdir(exist_ok=True)
            folder.chmod(0o777)
        (path / "records").touch()
        (path / "records").chmod(0o666)
        return cls(path)

    def records(self) -> str:
        return (self.path / "records").read_text()

    def read_output(self) -> str:
        """What jobs have printed: there is nothing where all went well."""
        texts = (path.read_text(errors="replace") for path in sorted((self.path / "out").iterdir()))
        return "".join(texts)


class Site:
    """Use site(). `decides`: whether a controller decides; else the order is Slurm's own."""

    def __init__(self, cluster: Cluster, folder: Path, poll_s: float, decides: bool) -> None:
        self.cluster, self.folder = cluster, folder
        self.decides = decides
        self._poll_s = poll_s
        self.program = folder / "steps"
        shutil.copy2(harness.build("tenants/steps.c"), self.program)
        self.program.chmod(0o755)
        self.controller: Part | None = None
        self._controllers = 0
        if decides:
            (folder / "queues.json").write_text(json.dumps({"queues": [encode(queue) for queue in QUEUES]}))
            self._hold_jobs()
            self.start(CONTROLLER)
            wait_for("the controller", lambda: published.fresh(self.run_dir, published.now_s()), READY_S)

    @property
    def state_dir(self) -> Path:
        return self.folder / "state"

    @property
    def run_dir(self) -> Path:
        return self.folder / "run"

    def _hold_jobs(self) -> None:
        """As docs/cluster.md says."""
        lua = (SOURCES / "vgpu_cluster.lua").read_text()
        lua = lua.replace('PARTITION = "gpu"', f'PARTITION = "{PARTITION}"')
        lua = lua.replace("/run/vgpud/cluster/heartbeat", str(self.run_dir / "heartbeat"))
        (self.cluster.folder / "vgpu_cluster.lua").write_text(lua)
        script = self.cluster.folder / "job_submit.lua"
        *lines, last = script.read_text().splitlines()
        call = f'dofile("{self.cluster.folder}/vgpu_cluster.lua")'
        script.write_text("\n".join([*lines, call, last]) + "\n")

    # ---- daemons ----

    def kill(self, kind: str, node: str = "", *, gentle: bool = False) -> None:
        """SIGKILL to one of the daemons; `gentle`: SIGTERM."""
        part = self._part(kind, node)
        if gentle:
            part.stop()
        else:
            part.kill()

    def start(self, kind: str, node: str = "") -> None:
        """Starts one that has been killed."""
        if kind == CONTROLLER:
            self._controllers += 1
            command = [sys.executable, "-m", "vgpud.cli.main", "cluster", "run", "--partition", PARTITION]
            command += ["--queues", str(self.folder / "queues.json"), "--poll", str(self._poll_s)]
            command += ["--state-dir", str(self.state_dir), "--run-dir", str(self.run_dir)]
            command += ["--record", str(self.folder / f"record-{self._controllers}.jsonl")]
            env = {**self.cluster.env, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
            self.controller = Part(f"controller-{self._controllers}", command, env, self.folder)
        elif kind == SLURMCTLD:
            self.cluster.start_controller()
        elif kind == SLURMD:
            self.cluster.start_node(node)
        else:
            self.cluster.systems[node].start_daemon()

    def _part(self, kind: str, node: str) -> Part:
        if kind == CONTROLLER:
            part = self.controller
        elif kind == VGPUD:
            part = self.cluster.systems[node].daemon
        else:
            part = self.cluster.parts[SLURMCTLD if kind == SLURMCTLD else f"{SLURMD}-{node}"]
        assert part
        return part

    def check(self, killed_processes: set[tuple[str, str]]) -> None:
        """Raises PartError when one has ended that was not killed."""
        of_site = [(CONTROLLER, ""), (SLURMCTLD, "")] if self.decides else [(SLURMCTLD, "")]
        for kind, node in [*of_site, *((kind, node) for kind in (SLURMD, VGPUD) for node in NODES)]:
            if (kind, node) not in killed_processes:
                self._part(kind, node).check()

    def drained(self) -> int:
        """How often Slurm has drained a node where it started a job that ran there. The controller resumes it."""
        return self.cluster.parts[SLURMCTLD].error_file.read_text().count("Duplicate jobid on nodes")

    def recordings(self) -> list[Path]:
        """Of all controllers, in their order."""
        return [self.folder / f"record-{number}.jsonl" for number in range(1, self._controllers + 1)]

    def device_bytes(self) -> int:
        with self.cluster.systems[NODES[0]].client() as client:
            return client.all(calls.devices())[0].mem_total_bytes

    # ---- jobs ----

    def submit(self, one: Submission, folder: Folder, after: list[str]) -> list[str]:
        """sbatch's command line. `after`: Slurm's ids of the jobs that it comes after."""
        words = ["sbatch", "--parsable", f"--partition={PARTITION}", f"--job-name={one.name}", f"--account={one.queue}"]
        # slurmctld that was killed gives numbers away again, and a user cannot write to the file of another one
        output = f"{folder.path}/out/{one.name}.%j"
        words += [f"--gres={one.gres}", f"--time={TIME_LIMIT}", f"--output={output}", "--open-mode=append"]
        if one.nodes > 1:
            words += [f"--nodes={one.nodes}", "--ntasks-per-node=1"]
        if one.is_array:
            words.append(f"--array=0-{len(one.durations_ms) - 1}")
        if after:
            words.append(f"--dependency={'afterany' if one.after_any else 'afterok'}:{':'.join(after)}")
        return [*words, f"--wrap={self._script(one, folder)}"]

    def _script(self, one: Submission, folder: Folder) -> str:
        program = f"{self.program} {folder.path}"
        if one.is_array:
            durations = " ".join(str(ms) for ms in one.durations_ms)
            return (
                f'set -- {durations}; shift $SLURM_ARRAY_TASK_ID; exec {program} {one.name}.$SLURM_ARRAY_TASK_ID "$1"'
            )
        return f"exec {'srun ' if one.nodes > 1 else ''}{program} {one.name} {one.durations_ms[0]}"

    def ended_jobs(self) -> dict[str, tuple[str, str]]:
        """Slurm's own account of ended jobs: number -> (name, state)."""
        found = {}
        path = self.folder / "jobcomp"
        for line in path.read_text().splitlines() if path.exists() else []:
            words = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
            found[words["JobId"]] = (words["Name"], words["JobState"])
        return found

    def stop(self) -> None:
        if self.controller:
            self.controller.stop()

    def keep_logs(self, to: Path) -> None:
        """Copies what all daemons have said and decided, and the jobs' records, before the folder goes."""
        shutil.rmtree(to, ignore_errors=True)
        to.mkdir(parents=True)
        logs = [*self.cluster.folder.glob("*.log"), *self.folder.glob("*.log"), *self.recordings()]
        for path in [*logs, self.folder / "jobcomp"]:
            if path.exists():
                shutil.copy2(path, to)
        for node, system in self.cluster.systems.items():
            for path in system.folder.glob("*.log"):
                shutil.copy2(path, to / f"{node}-{path.name}")
        for path in self.folder.glob("*/records"):
            shutil.copytree(path.parent, to / path.parent.name)


@contextmanager
def site(poll_s: float, decides: bool = True) -> Iterator[Site]:
    """A running one, in a folder of its own. Slurm's own order is with its backfill, as is its default."""
    folder = Path(tempfile.mkdtemp(prefix="vgs-"))
    folder.chmod(0o755)
    conf = ["JobSubmitPlugins=lua", "JobCompType=jobcomp/filetxt", f"JobCompLoc={folder}/jobcomp"]
    try:
        with ExitStack() as stack:
            made = stack.enter_context(cluster(conf))
            one = Site(made, folder, poll_s, decides)
            stack.callback(one.stop)
            yield one
    finally:
        shutil.rmtree(folder, ignore_errors=True)
