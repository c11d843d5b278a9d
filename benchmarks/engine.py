"""Container engines of one's own: dockerd, podman and containerd in a private folder, started and stopped by pid.

Used by the container tests and benchmarks. Nothing here touches the machine's own engines or their configuration:
roots, sockets and state lie in the given folder; no bridge is made and no packet filter is changed.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import time
import uuid
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TypeVar

from vgpud import paths
from vgpud.cli.demo.private_system import OwnSystem, Part, PartError, wait_for

BASE = "vgpu-test/base"
Done = subprocess.CompletedProcess[str]
E = TypeVar("E", bound="Engine")
COMMAND_TIMEOUT_S = 120.0
SBIN = "/usr/local/sbin:/usr/sbin:/sbin"
LOW_LEVEL = "runc"


def find(name: str) -> str | None:
    """A program in PATH or in the directories that a user's PATH often lacks."""
    return shutil.which(name, path=f"{os.environ.get('PATH', os.defpath)}:{SBIN}")


def why_not(*programs: str) -> str:
    """Why no engine can run on this machine; "" when one can. programs: what is needed besides runc."""
    if os.geteuid() != 0:
        return "container engines need root"
    missing = [name for name in (LOW_LEVEL, *programs) if find(name) is None]
    return f"{', '.join(missing)} is not installed" if missing else ""


def install_front(folder: Path, runtime_socket: Path, low_level: str = LOW_LEVEL) -> Path:
    """Puts the built vgpu-runtime and its configuration into a folder of its own; returns the executable's path."""
    folder.mkdir(parents=True, exist_ok=True)
    front = folder / "vgpu-runtime"
    shutil.copy2(paths.lib_dir() / "vgpu-runtime", front)
    lines = [f"socket = {runtime_socket}", f"runtime = {find(low_level) or low_level}"]
    (folder / "vgpu-runtime.conf").write_text("\n".join(lines) + "\n")
    return front


def front_of(system: OwnSystem, low_level: str = LOW_LEVEL) -> Path:
    """The runtime that asks this private system's daemon."""
    return install_front(system.folder / "front", system.folder / "run" / "runtime.sock", low_level)


def call(command: Sequence[str], env: Mapping[str, str], check: bool, timeout_s: float, talk: str = "") -> Done:
    """Runs a command to its end, output as text. With check raises PartError with what it said."""
    done = subprocess.run(
        list(command), env=dict(env), input=talk, capture_output=True, text=True, timeout=timeout_s, check=False
    )
    if check and done.returncode:
        raise PartError(f"{' '.join(command)} ended with {done.returncode}: {done.stderr.strip()}")
    return done


class Engine(ABC):
    """An engine of one's own; use it in a `with`."""

    def __enter__(self: E) -> E:
        try:
            self.start()
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, tb: TracebackType | None) -> None:
        self.stop()

    @abstractmethod
    def start(self) -> None: ...

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def cli(self, *arguments: str) -> Done: ...


class ImageEngine(Engine):
    """One with docker's commands for images and containers."""

    def import_base(self, tar: Path, name: str = BASE) -> str:
        """Makes an image of a root file system; returns its name."""
        self.cli("import", str(tar), name)
        return name

    def pid(self, container: str) -> int:
        """The host's pid of a container's init."""
        return int(self.cli("inspect", "-f", "{{.State.Pid}}", container).stdout)


class Docker(ImageEngine):
    """A dockerd with its own containerd. runtimes: name -> executable."""

    #: what a failed start answers: docker's own codes
    REFUSED = 125

    def __init__(self, folder: Path, runtimes: Mapping[str, Path], config: Mapping[str, object] | None = None) -> None:
        self.folder = folder
        self.runtimes = dict(runtimes)
        self.config = dict(config or {})
        self.daemon: Part | None = None
        self.program = find("dockerd") or "dockerd"  # a wrapper, where dockerd is to find another world
        self.host = f"unix://{folder / 's'}"
        self.env = {**os.environ, "DOCKER_CONFIG": str(folder / "cli"), "DOCKER_HOST": self.host}
        self.env["PATH"] = f"{self.env.get('PATH', os.defpath)}:{SBIN}"

    def write_config(self) -> None:
        """daemon.json: what changes here is read at the next start, runtimes also at SIGHUP."""
        runtimes = {name: {"path": str(path)} for name, path in self.runtimes.items()}
        (self.folder / "daemon.json").write_text(json.dumps({**self.config, "runtimes": runtimes}))

    def start(self) -> None:
        """Starts dockerd and waits until it answers. Also used to start it again. Raises PartError."""
        (self.folder / "cli").mkdir(parents=True, exist_ok=True)
        self.write_config()
        command = [self.program, "--iptables=false", "--bridge=none", "-H", self.host]
        places = {"--data-root": "data", "--exec-root": "exec", "-p": "pid", "--config-file": "daemon.json"}
        for option, name in places.items():
            command += [option, str(self.folder / name)]
        # Where process 1 is slow to wait for orphans, dockerd takes the dead containerd of a killed one for alive.
        for name in ("pid", "exec/containerd/containerd.pid"):
            (self.folder / name).unlink(missing_ok=True)
        self.daemon = Part("dockerd", command, self.env, self.folder)
        wait_for("dockerd", self._answers, 60)

    def _answers(self) -> bool:
        assert self.daemon
        self.daemon.check()
        return self.cli("version", check=False).returncode == 0

    def reload(self) -> None:
        """Makes dockerd read its runtimes again."""
        assert self.daemon
        self.write_config()
        self.daemon.process.send_signal(signal.SIGHUP)

    def stop_daemon(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Ends dockerd alone; with live-restore its containers continue."""
        if self.daemon:
            self.daemon.stop(number, 30)

    def stop(self) -> None:
        """Ends all containers, then dockerd."""
        if self.daemon and self.daemon.running:
            self.remove_all()
        self.stop_daemon()
        unmount_below(self.folder)

    def remove(self, *containers: str) -> None:
        """Ends and removes containers."""
        self.cli("rm", "-f", *containers)

    def remove_all(self) -> None:
        """Removes every container of this engine."""
        with contextlib.suppress(PartError, subprocess.TimeoutExpired):
            ids = self.cli("ps", "-aq").stdout.split()
            if ids:
                self.remove(*ids)

    def cli(self, *arguments: str, check: bool = True, timeout_s: float = COMMAND_TIMEOUT_S, talk: str = "") -> Done:
        """A `docker` command at this engine."""
        return call([find("docker") or "docker", *arguments], self.env, check, timeout_s, talk)

    def run(self, *arguments: str, runtime: str = "vgpu", check: bool = False) -> Done:
        """`docker run --rm`, without a network. arguments: options, image, command."""
        return self.cli(*self.run_words(*arguments, runtime=runtime), check=check)

    def run_words(self, *arguments: str, runtime: str = "vgpu", remove: bool = True) -> list[str]:
        """The arguments of `docker` that run a container of a test."""
        return ["run", *(["--rm"] if remove else []), "--network=none", f"--runtime={runtime}", *arguments]

    def start_container(self, *arguments: str, runtime: str = "vgpu") -> str:
        """`docker run -d`; returns the id."""
        return self.cli(*self.run_words("-d", *arguments, runtime=runtime, remove=False)).stdout.strip()

    def build(self, name: str, dockerfile: str, files: Mapping[str, Path] | None = None) -> str:
        """Builds an image from a Dockerfile's text and files beside it (name -> source); returns its name."""
        context = self.folder / "build" / name.replace("/", "-")
        shutil.rmtree(context, ignore_errors=True)
        context.mkdir(parents=True)
        (context / "Dockerfile").write_text(dockerfile)
        for target, source in (files or {}).items():
            shutil.copy2(source, context / target)
        words = [find("docker") or "docker", "build", "-q", "--network=none", "-t", name, str(context)]
        call(words, {**self.env, "DOCKER_BUILDKIT": "0"}, True, COMMAND_TIMEOUT_S)
        return name


class Podman(ImageEngine):
    """podman with its own storage. cdi_dir is what it sees as /var/run/cdi (a mount of its own namespace)."""

    REFUSED = 126

    def __init__(self, folder: Path, runtimes: Mapping[str, Path], cdi_dir: Path | None = None) -> None:
        self.folder = folder
        self.cdi_dir = cdi_dir
        self._world: Part | None = None
        folder.mkdir(parents=True, exist_ok=True)
        named = {LOW_LEVEL: Path(find(LOW_LEVEL) or LOW_LEVEL), **runtimes}
        lines = [
            "[containers]",
            'default_ulimits = ["nofile=1024:20000", "nproc=4096:4096"]',  # more needs a right that CI often lacks
            "[engine]",
            'cgroup_manager = "cgroupfs"',
            'events_logger = "none"',
            f'runtime = "{LOW_LEVEL}"',  # crun refuses machines with both cgroup versions
            f"runtime_supports_json = {json.dumps(list(named))}",
            "[engine.runtimes]",
            *(f"{name} = {json.dumps([str(path)])}" for name, path in named.items()),
        ]
        (folder / "containers.conf").write_text("\n".join(lines) + "\n")
        self.env = {**os.environ, "CONTAINERS_CONF": str(folder / "containers.conf")}
        self.env["PATH"] = f"{self.env.get('PATH', os.defpath)}:{SBIN}"

    def start(self) -> None:
        """Sees that podman works at all: there is no daemon. Raises PartError."""
        self.cli("version")

    def _make_world(self, cdi_dir: Path) -> Part:
        """A process with a mount namespace in which cdi_dir is /var/run/cdi: podman 4 knows the fixed folders only.

        One for all commands: podman remembers what it has mounted, and would not mount it again in another one.
        """
        fixed = Path("/var/run/cdi")
        fixed.mkdir(exist_ok=True)
        script = 'mount --bind "$0" "$1" && echo {} && exec sleep infinity'
        command = ["unshare", "-m", "--propagation", "slave", "sh", "-c", script, str(cdi_dir), str(fixed)]
        world = Part("podman-world", command, self.env, self.folder)

        def is_mounted() -> bool:
            world.check()
            return bool(list(world.lines()))

        wait_for("podman's mount namespace", is_mounted)
        return world

    def remove(self, *containers: str) -> None:
        """Ends and removes containers."""
        self.cli("rm", "-f", "-t", "0", *containers)

    def stop(self) -> None:
        """Removes all containers; podman has no daemon."""
        with contextlib.suppress(PartError, subprocess.TimeoutExpired):
            self.remove("-a")
        if self._world:
            self._world.stop()
        unmount_below(self.folder)

    def cli(self, *arguments: str, check: bool = True, timeout_s: float = COMMAND_TIMEOUT_S, runtime: str = "") -> Done:
        """A `podman` command with this storage."""
        roots = ["--root", str(self.folder / "root"), "--runroot", str(self.folder / "runroot")]
        command = [find("podman") or "podman", *roots, *(["--runtime", runtime] if runtime else []), *arguments]
        if self.cdi_dir and self._world is None:
            self._world = self._make_world(self.cdi_dir)
        if self._world:
            command = ["nsenter", f"--mount=/proc/{self._world.process.pid}/ns/mnt", *command]
        return call(command, self.env, check, timeout_s)

    def run(self, *arguments: str, runtime: str = "vgpu", check: bool = False) -> Done:
        """`podman run --rm`, without a network. arguments: options, image, command."""
        return self.cli("run", "--rm", "--network=none", *arguments, check=check, runtime=runtime)

    def start_container(self, *arguments: str, runtime: str = "vgpu") -> str:
        """`podman run -d`; returns the id."""
        return self.cli("run", "-d", "--network=none", *arguments, runtime=runtime).stdout.strip()


class Containerd(Engine):
    """A containerd of one's own, for `ctr`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.address = folder / "c.sock"
        self.daemon: Part | None = None
        self.env = {**os.environ, "PATH": f"{os.environ.get('PATH', os.defpath)}:{SBIN}"}

    def start(self) -> None:
        """Starts containerd and waits until it answers. Raises PartError."""
        self.folder.mkdir(parents=True, exist_ok=True)
        config = self.folder / "config.toml"
        config.write_text('version = 2\ndisabled_plugins = ["io.containerd.grpc.v1.cri"]\n')
        command = [find("containerd") or "containerd", "--config", str(config), "--address", str(self.address)]
        command += ["--root", str(self.folder / "root"), "--state", str(self.folder / "state")]
        self.daemon = Part("containerd", command, self.env, self.folder)
        wait_for("containerd", self._answers, 60)

    def _answers(self) -> bool:
        assert self.daemon
        self.daemon.check()
        return self.cli("version", check=False).returncode == 0

    def cli(self, *arguments: str, check: bool = True, timeout_s: float = COMMAND_TIMEOUT_S) -> Done:
        """A `ctr` command at this containerd."""
        command = [find("ctr") or "ctr", "--address", str(self.address), *arguments]
        return call(command, self.env, check, timeout_s)

    def import_image(self, docker: Docker, name: str) -> None:
        """Takes an image from a dockerd; here it is called docker.io/NAME:latest."""
        tar = self.folder / "image.tar"
        docker.cli("save", "-o", str(tar), name)
        self.cli("image", "import", str(tar))
        tar.unlink()

    def run(self, front: Path, *arguments: str, check: bool = False) -> Done:
        """`ctr run` with vgpu-runtime in runc's place. arguments: options, image, id, command.

        What the container prints, on either stream, is `stdout` here. The shim writes it to a file: `ctr` closes its
        own pipes when the task has ended, and so loses what a short task printed last.
        """
        log = self.folder / f"output-{uuid.uuid4().hex}"
        options = ("--rm", f"--log-uri=file://{log}", f"--runc-binary={front}")
        done = self.cli("run", *options, *arguments, check=check)
        with contextlib.suppress(FileNotFoundError):  # no task was made
            done.stdout += log.read_text()
            log.unlink()
        return done

    def stop(self) -> None:
        """Ends all tasks, then containerd."""
        if self.daemon and self.daemon.running:
            with contextlib.suppress(PartError, subprocess.TimeoutExpired):
                for task in self.cli("task", "ls", "-q").stdout.split():
                    self.cli("task", "rm", "-f", task, check=False)
        if self.daemon:
            self.daemon.stop()
        unmount_below(self.folder)


def unmount_below(folder: Path) -> None:
    """Unmounts what an engine left mounted, so that its folder can be removed; a busy one is tried for a moment."""
    for _ in range(20):
        lines = Path("/proc/self/mounts").read_text().splitlines()
        mounted = [line.split()[1] for line in lines if line.split()[1].startswith(f"{folder}/")]
        if not mounted:
            return
        for place in reversed(mounted):
            subprocess.run(["umount", "-l", place], stderr=subprocess.DEVNULL, check=False)
        time.sleep(0.05)
