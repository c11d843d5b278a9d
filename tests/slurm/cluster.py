"""A real Slurm on this machine: munged, slurmctld and one slurmd for each of two nodes, each node with a vgpud and two
simulated devices of its own, as on real nodes. All of it is started and stopped by pid, in a folder of its own.

Needs root and Debian's packages slurmctld, slurmd, slurm-client and munge; libslurm-dev for the plugin. Or munge and
another Slurm, configured with --enable-multiple-slurmd and munge, whose prefix VGPU_TEST_SLURM names.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pwd
import random
import re
import shutil
import signal
import socket
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from functools import cache
from pathlib import Path
from typing import Any

from benchmarks.engine import front_of
from tests.ports import find_free_ports
from vgpud.cli.demo.private_system import OwnSystem, Part, wait_for
from vgpud.client import calls

ROOT = Path(__file__).resolve().parents[2]
SOURCES = ROOT / "integrations" / "slurm"
NODES = ("n1", "n2")
SHARDS = 1000
#: without a type (or Cores=) 22.05 gives a whole device away on which shards are in use
TYPE = "sim"
SIM_CONFIG = {"devices": "2", "memory_bytes": "4G"}
PROGRAMS = ("slurmctld", "slurmd", "srun", "scontrol", "munged", "mungekey")
#: "" is Debian's
PREFIX = os.environ.get("VGPU_TEST_SLURM", "")
#: whether this Slurm can run job_submit.lua
HAS_LUA = any(
    Path(PREFIX or "/usr").glob("lib/slurm/job_submit_lua.so" if PREFIX else "lib/*/slurm*/job_submit_lua.so")
)
INCLUDE = Path(f"{PREFIX or '/usr'}/include")
HEADER = INCLUDE / "slurm" / "spank.h"
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
#: of version 1's cgroups, which Slurm can use without systemd
FREEZER = Path("/sys/fs/cgroup/freezer")
#: of one cluster; Slurm's highest number is 67,043,328
JOB_NUMBERS = 100_000
_DEV_NULL = os.makedev(1, 3)
READY_S = 30.0


def search_path() -> str:
    """Where Slurm's programs are, for PATH."""
    found = f"{os.environ.get('PATH', os.defpath)}:{SBIN}"
    return f"{PREFIX}/bin:{PREFIX}/sbin:{found}" if PREFIX else found


@cache
def version() -> tuple[int, int]:
    """Of this Slurm, as (22, 5)."""
    done = subprocess.run(["slurmctld", "-V"], env={"PATH": search_path()}, capture_output=True, text=True, check=True)
    year, month, *_ = done.stdout.split()[1].split(".")  # slurm-wlm 22.05.8
    return int(year), int(month)


def missing(*, plugin: bool = True) -> str:
    """Why no Slurm can be started here; "" when one can."""
    if os.geteuid() != 0:
        return "Slurm starts jobs as their users: needs root"
    absent = [name for name in PROGRAMS if shutil.which(name, path=search_path()) is None]
    if absent:
        return f"{', '.join(absent)} not installed (Debian: slurmctld slurmd slurm-client munge)"
    return f"{HEADER} is missing (Debian: libslurm-dev)" if plugin and not HEADER.exists() else ""


def build_plugin(folder: Path) -> Path:
    """Builds the SPANK plugin as a site does."""
    out = folder / "vgpu_spank.so"
    flags = [f"SLURM_CFLAGS=-isystem {INCLUDE}"] if PREFIX else []
    subprocess.run(["make", "-s", "-C", str(SOURCES), "WERROR=-Werror", *flags, f"OUT={out}", str(out)], check=True)
    return out


class Cluster:
    """Use cluster()."""

    def __init__(self, folder: Path, systems: Mapping[str, OwnSystem], conf: Sequence[str], plugin: bool) -> None:
        self.folder, self.systems = folder, systems
        #: how Slurm knows a step's programs: the plugin is tried with cgroups where there are any, the scripts without
        self.by_cgroup = plugin and os.access(FREEZER / "cgroup.procs", os.W_OK)
        self.plugstack = folder / "plugstack.conf"
        self.plugstack_text = ""
        self.conf = folder / "slurm.conf"
        self.env = {**os.environ, "SLURM_CONF": str(self.conf)}
        self.env["PATH"] = search_path()
        for name in [name for name in self.env if name.startswith("SLURM_") and name != "SLURM_CONF"]:
            del self.env[name]
        self.parts: dict[str, Part] = {}
        # A step's cgroup has the names of node, user and job: a second cluster of this machine must not share it.
        first = JOB_NUMBERS * random.SystemRandom().randrange(1, 670)
        self._numbers = range(first, first + JOB_NUMBERS)
        self._write(conf, plugin)

    # ---- configuration ----

    def _write(self, conf: Sequence[str], plugin: bool) -> None:
        ports = find_free_ports(1 + len(NODES))
        lines = [
            "ClusterName=vgpu",
            f"FirstJobId={self._numbers.start}",
            f"SlurmctldHost={socket.gethostname()}(127.0.0.1)",
            f"SlurmctldPort={ports[0]}",
            "SlurmUser=root",
            "AuthType=auth/munge",
            f"AuthInfo=socket={self.folder}/munge.sock",
            "CredType=cred/munge",
            "MailProg=/bin/true",
            "MpiDefault=none",
            "TaskPlugin=task/none",
            "SelectType=select/cons_tres",
            "SelectTypeParameters=CR_CPU",
            "SchedulerParameters=sched_min_interval=0,sched_interval=1,batch_sched_delay=0,bf_interval=1",
            f"ProctrackType=proctrack/{'cgroup' if self.by_cgroup else 'linuxproc'}",
            "JobAcctGatherType=jobacct_gather/none",
            "GresTypes=gpu,shard",
            "ReturnToService=2",
            "SlurmdParameters=config_overrides",
            "LaunchParameters=use_interactive_step",
            'InteractiveStepOptions="--interactive --preserve-env sh"',
            "KillWait=1",
            "CompleteWait=0",
            "InactiveLimit=0",
            "SlurmctldTimeout=60",
            "SlurmdTimeout=60",
            f"StateSaveLocation={self.folder}/ctld",
            f"SlurmdSpoolDir={self.folder}/%n/spool",
            f"SlurmctldPidFile={self.folder}/slurmctld.pid",
            f"SlurmdPidFile={self.folder}/%n/slurmd.pid",
            *conf,
        ]
        gres = []
        for name, port in zip(NODES, ports[1:], strict=True):
            of_node = f"NodeHostName={socket.gethostname()} NodeAddr=127.0.0.1 Port={port} CPUs=8 RealMemory=1000"
            with self.systems[name].client() as client:
                files = [self.folder / name / f"nvidia{device.index}" for device in client.all(calls.devices())]
            lines.append(
                f"NodeName={name} {of_node} Gres=gpu:{TYPE}:{len(files)},shard:{len(files) * SHARDS} State=UNKNOWN"
            )
            for file in files:
                os.mknod(file, 0o666 | stat.S_IFCHR, _DEV_NULL)  # Slurm sets no variables for files of other types
                gres.append(f"NodeName={name} Name=gpu Type={TYPE} File={file}")
                gres.append(f"NodeName={name} Name=shard Count={SHARDS} File={file}")
        lines.append(f"PartitionName=main Nodes={','.join(NODES)} Default=YES State=UP MaxTime=INFINITE")
        if plugin:
            shutil.copy2(SOURCES / "comment.sh", self.folder / "comment.sh")
            shutil.copy2(SOURCES / "job_submit.lua", self.folder / "job_submit.lua")
            options = f"helper={self.folder}/%n/front/vgpu-runtime comment={self.folder}/comment.sh"
            self.plugstack_text = f"required {build_plugin(self.folder)} {options}\n"
        else:
            lines += self._scripts()
        self.plugstack.write_text(self.plugstack_text)
        lines.append(f"PlugStackConfig={self.plugstack}")
        self.conf.write_text("\n".join(lines) + "\n")
        (self.folder / "gres.conf").write_text("\n".join(["AutoDetect=off", *gres]) + "\n")
        (self.folder / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")
        for name in ("ctld", "munge"):
            (self.folder / name).mkdir(mode=0o700)

    def _scripts(self) -> list[str]:
        """Installs what stands for the plugin where that cannot be built."""
        names = {"Prolog": "prolog.sh", "TaskProlog": "task_prolog.sh", "Epilog": "epilog.sh"}
        for name in names.values():
            shutil.copy2(SOURCES / name, self.folder / name)
        settings = f"HELPER={self.folder}/%n/front/vgpu-runtime\nSTATE={self.folder}/%n/jobs\n"
        (self.folder / "scripts.conf").write_text(settings)
        return [*(f"{word}={self.folder}/{name}" for word, name in names.items()), "PrologFlags=Alloc"]

    # ---- life ----

    def start(self) -> None:
        key = self.folder / "munge" / "key"
        subprocess.run(["mungekey", "--create", f"--keyfile={key}"], env=self.env, check=True)
        files = [f"--{name}-file={self.folder}/munge/{name}" for name in ("key", "pid", "log", "seed")]
        sockets = f"--socket={self.folder}/munge.sock"
        self._start("munged", ["munged", "--foreground", "--force", sockets, "--num-threads=2", *files])
        wait_for("munged", lambda: (self.folder / "munge.sock").exists(), READY_S)
        self.start_controller()
        for name in NODES:
            self.start_node(name)
        wait_for("Slurm", self._is_ready, READY_S)

    def _start(self, name: str, command: Sequence[str]) -> None:
        program = shutil.which(command[0], path=self.env["PATH"])
        assert program
        self.parts[name] = Part(name, [program, *command[1:]], self.env, self.folder)

    def start_controller(self) -> None:
        self._start("slurmctld", ["slurmctld", "-D", "-f", str(self.conf)])

    def start_node(self, name: str) -> None:
        self._start(f"slurmd-{name}", ["slurmd", "-D", "-N", name, "-f", str(self.conf)])

    def _is_ready(self) -> bool:
        for part in self.parts.values():
            part.check()
        return self.states() == dict.fromkeys(NODES, "idle")

    def states(self) -> dict[str, str]:
        """Node -> its state, such as idle, alloc, mix, down, drain."""
        done = self.call("sinfo", "-h", "-N", "-o", "%N %t", check=False)
        return dict(line.split() for line in done.stdout.splitlines())

    def stop(self) -> None:
        with contextlib.suppress(subprocess.SubprocessError, OSError):
            self.call("scancel", "--signal=KILL", "--user=root", check=False, timeout_s=5)
        for name in reversed(list(self.parts)):
            self.parts[name].stop()
        for stepd in self.stepds():
            with contextlib.suppress(ProcessLookupError):
                os.kill(stepd, signal.SIGKILL)
        if self.by_cgroup:
            self._remove_cgroups()

    def _remove_cgroups(self) -> None:
        """Of this cluster's jobs. Under the lock with which Slurm makes and removes them."""
        lock = os.open(FREEZER, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            for top in [FREEZER / f"slurm_{name}" for name in NODES]:
                jobs = [path for path in top.glob("uid_*/job_*") if int(path.name[len("job_") :]) in self._numbers]
                of_jobs = [Path(folder) for job in jobs for folder, _, _ in os.walk(job, topdown=False)]
                for path in [*of_jobs, *top.glob("uid_*"), top]:
                    with contextlib.suppress(OSError):  # another cluster's jobs are there
                        path.rmdir()
        finally:
            os.close(lock)

    def stepds(self) -> list[int]:
        """The slurmstepds of this cluster, which outlive slurmd: known by the configuration in their environment, or by
        the job in their title, which newer releases write over that."""
        wanted, found = f"SLURM_CONF={self.conf}".encode(), []
        for process in Path("/proc").iterdir():
            with contextlib.suppress(OSError):
                if not process.name.isdigit() or not (process / "comm").read_text().startswith("slurmstepd"):
                    continue
                title = re.match(rb"slurmstepd: \[(\d+)\.", (process / "cmdline").read_bytes())
                is_ours = title is not None and int(title[1]) in self._numbers
                if is_ours or wanted in (process / "environ").read_bytes().split(b"\0"):
                    found.append(int(process.name))
        return found

    # ---- use ----

    def call(
        self,
        *command: str,
        user: str = "",
        check: bool = True,
        timeout_s: float = 60,
        env: Mapping[str, str] | None = None,
        stdin: str = "",
    ) -> subprocess.CompletedProcess[str]:
        """Runs one of Slurm's commands to its end. stdin: its standard input."""
        done = subprocess.run(
            list(command),
            env={**self.env, **(env or {})},
            cwd="/",
            input=stdin,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            **_as(user),
        )
        assert not check or done.returncode == 0, f"{' '.join(command)}: {done.stdout}{done.stderr}{self.logs()}"
        return done

    def allocate(self, *options: str) -> str:
        """A job on node n1 without a step; its number."""
        done = self.call("salloc", "--no-shell", "-w", NODES[0], *options)
        granted = re.search(r"Granted job allocation (\d+)", done.stderr)
        assert granted, done.stderr
        return granted[1]

    def begin(self, *command: str, user: str = "") -> subprocess.Popen[str]:
        """Starts one of Slurm's commands; its output is in a pipe."""
        pipe = subprocess.PIPE
        return subprocess.Popen(
            list(command),
            env=self.env,
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=pipe,
            stderr=subprocess.STDOUT,
            text=True,
            **_as(user),
        )

    def tidy(self) -> None:
        """Ends all jobs, and starts what a test has ended."""
        if not self.parts["slurmctld"].running:
            self.start_controller()
        for name in NODES:
            if not self.parts[f"slurmd-{name}"].running:
                self.start_node(name)
            daemon = self.systems[name].daemon
            if daemon is None or not daemon.running:
                self.systems[name].start_daemon()
        wait_for("slurmctld", lambda: self.call("scancel", "--user=root", check=False).returncode == 0, READY_S)
        wait_for("idle nodes", self._is_ready, READY_S)
        wait_for("the end of all slices", lambda: not any(self.names(name) for name in NODES), READY_S)

    def names(self, node: str) -> list[str]:
        """The slices of a node."""
        with self.systems[node].client() as client:
            return sorted(made.name for made in client.all(calls.slices()))

    def logs(self) -> str:
        """The ends of all logs, for messages of failed tests."""
        return "".join(f"\n== {name}\n{part.error_file.read_text()[-1500:]}" for name, part in self.parts.items())


def _as(user: str) -> dict[str, Any]:
    """Arguments of Popen for a program of this user."""
    if not user:
        return {}
    entry = pwd.getpwnam(user)
    return {"user": entry.pw_uid, "group": entry.pw_gid, "extra_groups": []}


@contextmanager
def cluster(
    conf: Sequence[str] = (),
    *,
    plugin: bool = True,
    sim: Mapping[str, str] = SIM_CONFIG,
    env: Mapping[str, str] | None = None,
) -> Iterator[Cluster]:
    """A running cluster. conf: more lines of slurm.conf; plugin: else the scripts are used; sim: the devices of each
    node; env: of these devices, and of jobs."""
    folder = Path(tempfile.mkdtemp(prefix="vgs-"))
    folder.chmod(0o755)
    try:
        with ExitStack() as stack:
            systems = {}
            for name in NODES:
                own = OwnSystem(folder / name, sim)
                own.env.update(env or {})
                systems[name] = stack.enter_context(own)
                front_of(own)
            made = Cluster(folder, systems, conf, plugin)
            made.env.update(env or {})
            stack.callback(made.stop)
            made.start()
            yield made
    finally:
        shutil.rmtree(folder, ignore_errors=True)
