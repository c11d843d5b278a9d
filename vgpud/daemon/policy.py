"""What the core and the runtime directory take from the configuration."""

from __future__ import annotations

import os
from pathlib import Path

from vgpud import paths
from vgpud.config import PROCESSES_MAX, Config
from vgpud.core.model import SiteLimits
from vgpud.daemon.slices.evicted_memory import swap_bytes
from vgpud.errors import ConfigError
from vgpud.host import descriptors
from vgpud.host.directories import RuntimeDirectory

_SOCKET_PATH_MAX = 107  # sun_path without its end


def policy_of(config: Config, swap_fault: str = "") -> SiteLimits:
    """The core's part of the configuration. swap_fault: why the driver moves no memory to the host."""
    directory = len(str(paths.attach_socket(config.runtime, "").parent).encode()) + len("//attach.sock")
    return SiteLimits(
        default_max=config.default_max,
        slices_max=config.slices_max,
        slices_per_user_max=config.slices_per_user_max,
        processes_per_slice_max=config.processes_per_slice_max,
        processes_per_user_max=config.processes_per_user_max,
        processes_per_device_max=PROCESSES_MAX,
        attach_descriptors_max=descriptors.for_programs(),
        name_bytes_max=min(40, _SOCKET_PATH_MAX - directory),
        daemon_uid=os.geteuid(),
        grace_ns=config.grace_s * 1_000_000_000,
        restart_grace_ns=config.container_restart_grace_s * 1_000_000_000,
        on_stranger=config.on_stranger,
        on_excess=config.on_excess,
        direct=config.direct,
        idle_after_ns=config.idle_after_s * 1_000_000_000,
        swap_bytes=swap_bytes(config.suspended_bytes_max),
        swap_fault=swap_fault,
        kubernetes_devices=config.devices.kubernetes,
    )


def prepare_runtime(config: Config) -> Path:
    """Makes the runtime directory and checks that socket paths fit. Raises DeniedError, ConfigError."""
    if policy_of(config).name_bytes_max < 8:
        raise ConfigError(
            f"runtime_dir {config.runtime} is too long for unix sockets: choose a shorter one (--runtime-dir)"
        )
    RuntimeDirectory(config.runtime)
    return config.runtime
