"""Made-up images, configurations and specifications for the tests of vgpud/oci; small enough to read in a failure."""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from vgpud.libraries import tree as library_tree
from vgpud.oci import prepare

MACHINE = platform.machine()
HOME = f"/usr/lib/{MACHINE}-linux-gnu"
LOADER = {"x86_64": "/lib64/ld-linux-x86-64.so.2", "aarch64": "/lib/ld-linux-aarch64.so.1"}[MACHINE]
ELF_MACHINE = {"x86_64": 62, "aarch64": 183}
DRIVER = b"\x7fELF\x02\x01\x01" + bytes(9) + (3).to_bytes(2, "little") + ELF_MACHINE[MACHINE].to_bytes(2, "little")
DRIVER_32 = b"\x7fELF\x01\x01\x01" + bytes(9) + (3).to_bytes(2, "little") + (3).to_bytes(2, "little")
OTHER_MACHINE = DRIVER[:18] + (8).to_bytes(2, "little")
UUIDS = ("GPU-aaaaaaaa-0000-0000-0000-000000000000", "GPU-bbbbbbbb-0000-0000-0000-000000000001")


@dataclass
class Image:
    """A root directory, by default a glibc image with merged /usr, and the configuration that names it."""

    root: Path
    plan: prepare.Plan
    config: dict[str, Any] = field(default_factory=dict)

    def put(self, path: str, data: bytes = DRIVER) -> Path:
        """A file at a path of the image."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)
        return file

    def link(self, path: str, target: str) -> None:
        """A symlink at a path of the image."""
        file = self.root / path.lstrip("/")
        file.parent.mkdir(parents=True, exist_ok=True)
        file.symlink_to(target)

    def prepare(self, config: Mapping[str, Any] | bytes | None = None, **changes: Any) -> Result:
        """prepare() with this image's configuration, and the plan with these fields changed."""
        given = self.config if config is None else config
        raw = given if isinstance(given, bytes) else json.dumps(given).encode()
        plan = replace(self.plan, **changes)
        done = prepare.prepare(raw, str(self.root.parent), Path("/proc/self/root"), plan)
        again = prepare.prepare(done.config, str(self.root.parent), Path("/proc/self/root"), plan)
        assert again.config == done.config, "preparing a prepared configuration changes nothing"
        return Result(json.loads(done.config), done.warnings, plan)


@dataclass
class Result:
    config: dict[str, Any]
    warnings: tuple[str, ...]
    plan: prepare.Plan

    @property
    def shims(self) -> dict[str, str]:
        """Place in the container -> which library of ours is mounted there."""
        tree = f"{self.plan.tree}/"
        ours = [m for m in self.config["mounts"] if m["source"].startswith(tree) and m["source"].endswith(".so")]
        return {m["destination"]: m["source"].removeprefix(tree) for m in ours}

    @property
    def drivers(self) -> set[str]:
        """The places that libvgpu.so covers."""
        return {place for place, library in self.shims.items() if library == library_tree.SHIM}

    def mount(self, destination: str) -> dict[str, Any] | None:
        """The mount that is seen at a destination: the last one."""
        found = [m for m in self.config["mounts"] if m.get("destination") == destination]
        return found[-1] if found else None

    @property
    def env(self) -> list[str]:
        return list(self.config["process"]["env"])


def docker_config(root: str, env: Sequence[str] = ("PATH=/bin", "VGPU=0.5")) -> dict[str, Any]:
    """A configuration with the parts that dockerd writes."""
    pseudo = [
        ("proc", "/proc"),
        ("tmpfs", "/dev"),
        ("devpts", "/dev/pts"),
        ("sysfs", "/sys"),
        ("mqueue", "/dev/mqueue"),
    ]
    return {
        "ociVersion": "1.0.2",
        "process": {"user": {"uid": 0, "gid": 0}, "args": ["/bin/true"], "env": list(env), "cwd": "/"},
        "root": {"path": root},
        "hostname": "box",
        "mounts": [
            *(
                {"destination": at, "type": kind, "source": kind, "options": ["nosuid", "noexec"]}
                for kind, at in pseudo
            ),
            *(
                bound(f"/var/lib/docker/containers/x/{name}", f"/etc/{name}", "rprivate")
                for name in ("hosts", "hostname")
            ),
        ],
        "linux": {
            "resources": {"devices": [{"allow": False, "access": "rwm"}]},
            "cgroupsPath": "/docker/0123",
            "namespaces": [{"type": "mount"}],
        },
    }


def bound(source: str | Path, destination: str, *options: str) -> dict[str, Any]:
    """A bind mount as an engine writes one."""
    return {"destination": destination, "type": "bind", "source": str(source), "options": ["rbind", *options]}


def node(path: str, major: int = 195, minor: int = 0) -> dict[str, Any]:
    """A device node as an engine writes one."""
    return {"path": path, "type": "c", "major": major, "minor": minor, "fileMode": 0o666, "uid": 0, "gid": 0}


def allow(major: int | None, minor: int | None, kind: str | None = "c") -> dict[str, Any]:
    """A cgroup rule as an engine writes one."""
    rule = {"allow": True, "type": kind, "major": major, "minor": minor, "access": "rwm"}
    return {key: value for key, value in rule.items() if value is not None}
