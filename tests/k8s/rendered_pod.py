"""A pod of the chart run without a cluster: runc gets each container as kubelet's runtime would make it.

The image is this machine's own system and this source tree, both read-only. The node's folders (hostPath) lie below one
folder of the test's, so a clean node is an empty folder.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from benchmarks import engine

ROOT = Path(__file__).resolve().parents[2]
Object = dict[str, Any]
#: what Docker's Debian images have; everything else of /etc is the node's
_ETC = ("ld.so.cache", "passwd", "group", "nsswitch.conf")
_LINKED = ("bin", "sbin", "lib", "lib64")
#: in the kernel's order
_CAPABILITIES = (
    *("CHOWN", "DAC_OVERRIDE", "DAC_READ_SEARCH", "FOWNER", "FSETID", "KILL", "SETGID", "SETUID", "SETPCAP"),
    *("LINUX_IMMUTABLE", "NET_BIND_SERVICE", "NET_BROADCAST", "NET_ADMIN", "NET_RAW", "IPC_LOCK", "IPC_OWNER"),
    *("SYS_MODULE", "SYS_RAWIO", "SYS_CHROOT", "SYS_PTRACE", "SYS_PACCT", "SYS_ADMIN", "SYS_BOOT", "SYS_NICE"),
    *("SYS_RESOURCE", "SYS_TIME", "SYS_TTY_CONFIG", "MKNOD", "LEASE", "AUDIT_WRITE", "AUDIT_CONTROL", "SETFCAP"),
    *("MAC_OVERRIDE", "MAC_ADMIN", "SYSLOG", "WAKE_ALARM", "BLOCK_SUSPEND", "AUDIT_READ", "PERFMON", "BPF"),
    "CHECKPOINT_RESTORE",
)


def capabilities() -> list[str]:
    """All that this process may pass on: a machine that is a container itself does not have every one."""
    status = Path("/proc/self/status").read_text()
    (mask,) = (int(line.split()[1], 16) for line in status.splitlines() if line.startswith("CapEff:"))
    return [f"CAP_{name}" for number, name in enumerate(_CAPABILITIES) if mask >> number & 1]


class RenderedPod:
    """spec: the pod's, as rendered; node: where the node's folders are; configs: of ConfigMap volumes, by name."""

    def __init__(self, folder: Path, spec: Object, node: Path, configs: Mapping[str, Mapping[str, str]]) -> None:
        self._folder, self._spec, self._node = folder, spec, node
        self._image = folder / "image"
        self._make_image()
        self._volumes = {one["name"]: self._volume(one, configs) for one in spec["volumes"]}

    def _make_image(self) -> None:
        for name in ("etc", "run", "var", "tmp", "proc", "sys", "dev"):
            (self._image / name).mkdir(parents=True)
        (self._image / "var" / "run").symlink_to("/run")
        for name in filter(lambda name: (Path("/") / name).is_symlink(), _LINKED):
            (self._image / name).symlink_to(os.readlink(Path("/") / name))
        for path in filter(Path.exists, (Path("/etc") / name for name in _ETC)):
            shutil.copy(path, self._image / "etc")

    def _volume(self, volume: Object, configs: Mapping[str, Mapping[str, str]]) -> Path:
        if "configMap" in volume:
            source = self._folder / volume["name"]
            source.mkdir()
            for name, text in configs[volume["configMap"]["name"]].items():
                (source / name).write_text(text)
            return source
        at = self._node / str(volume["hostPath"]["path"]).lstrip("/")
        if volume["hostPath"]["type"] == "DirectoryOrCreate":
            at.mkdir(mode=0o755, parents=True, exist_ok=True)
        return at

    def _bundle(self, container: Object) -> Path:
        bundle = self._folder / f"bundle-{uuid.uuid4().hex[:8]}"
        bundle.mkdir()
        (bundle / "config.json").write_text(json.dumps(self._config(container)))
        return bundle

    def _config(self, container: Object) -> Object:
        security = container["securityContext"]
        privileged = security.get("privileged", False)
        assert privileged or security["capabilities"] == {"drop": ["ALL"]}, "all or none: others are not made here"
        held = capabilities() if privileged else []
        shared = {"pid": self._spec.get("hostPID"), "network": self._spec.get("hostNetwork"), "cgroup": privileged}
        return {
            "ociVersion": "1.0.2",
            "process": {
                "user": {"uid": security.get("runAsUser", 0), "gid": 0},
                "args": self.words(container["command"] + container.get("args", [])),
                "env": [f"PATH={Path(sys.executable).parent}:/usr/bin:/usr/sbin", *self._env(container)],
                "cwd": "/",
                "noNewPrivileges": not security.get("allowPrivilegeEscalation", True),
                "capabilities": dict.fromkeys(("bounding", "effective", "permitted"), held),
            },
            "root": {"path": str(self._image), "readonly": security.get("readOnlyRootFilesystem", False)},
            "mounts": [*self._system_mounts(privileged), *self._volume_mounts(container)],
            "linux": {
                "namespaces": [{"type": "mount"}, *({"type": name} for name in shared if not shared[name])],
                "resources": {"devices": [{"allow": True, "access": "rwm"}]},
            },
        }

    @staticmethod
    def _env(container: Object) -> Iterator[str]:
        for one in container.get("env", []):
            yield f"{one['name']}={one.get('value', 'n1')}"  # what is no value is the node's name

    @staticmethod
    def words(arguments: list[str]) -> list[str]:
        return [word.replace("$(NODE_NAME)", "n1") for word in arguments]

    def _system_mounts(self, is_privileged: bool) -> Iterator[Object]:
        yield {"destination": "/proc", "type": "proc", "source": "proc"}
        yield {"destination": "/dev", "type": "tmpfs", "source": "tmpfs", "options": ["nosuid", "mode=755"]}
        yield {"destination": "/dev/shm", "type": "tmpfs", "source": "shm", "options": ["nosuid", "mode=1777"]}
        rights = "rw" if is_privileged else "ro"
        yield {"destination": "/sys", "type": "bind", "source": "/sys", "options": ["rbind", rights]}
        for path in dict.fromkeys((Path("/usr"), ROOT, Path(sys.base_prefix))):
            yield {"destination": str(path), "type": "bind", "source": str(path), "options": ["rbind", "ro"]}

    def _volume_mounts(self, container: Object) -> Iterator[Object]:
        for mount in container["volumeMounts"]:
            options = ["rbind", "ro" if mount.get("readOnly") else "rw", "rprivate"]
            source = str(self._volumes[mount["name"]])
            yield {"destination": mount["mountPath"], "type": "bind", "source": source, "options": options}

    # ---- running ----

    def _runc(self, *words: str) -> list[str]:
        return [engine.find(engine.LOW_LEVEL) or engine.LOW_LEVEL, "--root", str(self._folder / "runc"), *words]

    def run_first(self) -> list[subprocess.CompletedProcess[str]]:
        """Runs the init containers to their ends, until one fails."""
        done: list[subprocess.CompletedProcess[str]] = []
        for container in self._spec["initContainers"]:
            command = self._runc("run", "--bundle", str(self._bundle(container)), f"i{uuid.uuid4().hex[:8]}")
            done.append(subprocess.run(command, capture_output=True, text=True, check=False, timeout=120))
            if done[-1].returncode:
                break
        return done

    @contextlib.contextmanager
    def running(self) -> Iterator[RunningContainer]:
        """The pod's only container, until the end of the block."""
        (container,) = self._spec["containers"]
        name = f"c{uuid.uuid4().hex[:8]}"
        log = self._folder / f"{name}.log"
        command = self._runc("run", "--bundle", str(self._bundle(container)), name)
        with log.open("wb") as file:
            process = subprocess.Popen(command, stdout=file, stderr=file)
        try:
            yield RunningContainer(process, log, self._runc("exec", name), container)
        finally:
            subprocess.run(self._runc("kill", name, "KILL"), capture_output=True, check=False)
            process.wait()


class RunningContainer:
    """log: what it has said."""

    def __init__(self, process: subprocess.Popen[bytes], log: Path, enter: list[str], container: Object) -> None:
        self._process, self.log, self._enter, self._container = process, log, enter, container

    def passes(self, probe: str) -> bool:
        """Whether a probe that is a command passes. Fails where the container has ended."""
        assert self._process.poll() is None, self.log.read_text()
        command = self._container[probe]["exec"]["command"]
        return not subprocess.run([*self._enter, *command], capture_output=True, check=False).returncode
