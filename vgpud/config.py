"""The daemon's configuration: TOML -> one frozen dataclass. Every key, its meaning and its default are in this file.

A key that is not known is an error naming it and the nearest one that is. Flags of `vgpud serve` override the file.
"""

from __future__ import annotations

import difflib
import re
import socket
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from vgpud import paths
from vgpud.core.admit import PRIORITY_MAX
from vgpud.core.enforce import VERBS
from vgpud.core.model import DIRECTS
from vgpud.core.units import UnitError, parse_gpus
from vgpud.errors import ConfigError
from vgpud.oci.request import Limits
from vgpud.userfiles import toml
from vgpud.userfiles.bounded import FileError

MODES = ("coast", "open", "closed")
DEFAULT_MAXES = ("same", "device")
METRICS_OFF = "off"
#: the arbiters hold this many slices and processes per device (shim/arbiter/arbiter.h)
SLICES_MAX = 128
PROCESSES_MAX = 1024
_MS = 1_000_000
SYSTEM_CDI_DIR = Path("/var/run/cdi")
#: nothing that the arbiter does is shorter than 100 us or longer than 10 s
_ARBITER_MIN_NS, _ARBITER_MAX_NS = _MS // 10, 10_000 * _MS
#: keys that hold lists of strings
_LISTS = ("device", "nvidia_cdi_dirs", "exclude")


@dataclass(frozen=True, slots=True)
class ArbiterConfig:
    """[arbiter]: times of the arbitration, all in ns (shim/arbiter/arbiter.h)."""

    quantum_ns: int = 10 * _MS
    quantum_min_ns: int = 1 * _MS
    bound_ns: int = 2 * _MS
    open_bound_ns: int = 20 * _MS
    overrun_ns: int = 14 * _MS
    latency_bound_ns: int = _MS
    lookahead_ns: int = _MS // 10
    guarantee_depth_ns: int = 50 * _MS
    cap_depth_ns: int = 15 * _MS


@dataclass(frozen=True, slots=True)
class DevicesConfig:
    """[devices]: which of them are never offered, seen or policed, by UUID or index."""

    exclude: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """[jobs]: the engine of those in images (`vgpu submit --image`)."""

    engine: str = ""  # "docker", "podman" or a path; "" = the first of them that is installed
    runtime: str = "vgpu"  # the engine's name of vgpu-runtime, or podman's path of it
    network: str = ""  # of their containers, as --network has it; "" = the engine's default


@dataclass(frozen=True, slots=True)
class Config:
    """All that the site decides. `device`: "auto" (all of the driver), "sim" or a list of UUIDs and indices."""

    device: str | tuple[str, ...] = "auto"
    sim_dir: str = ""  # of the simulated device's server; "" = $VGPU_SIM_DIR, else <runtime_dir>/sim
    driver: str = ""  # path of the real libcuda; "" = the one that the loader finds
    nvml: str = ""
    runtime_dir: str = ""  # "" = paths.runtime_dir()
    state_dir: str = ""
    node: str = ""  # "" = the host's name
    group: str = ""  # who may connect to the API socket besides its owner, by socket_mode
    admin_group: str = ""  # whose members may do what root may; "" = only root and the daemon's own user
    socket_mode: int = 0o660  # 0o666: every user may connect, and has their own slices and jobs only
    mode: str = "coast"  # what tenants do when the daemon is gone: coast, open or closed
    default_max: str = "same"  # a slice without a maximum: "same" as asked, or the whole "device"
    metrics: str = "127.0.0.1:9419"  # address of the Prometheus endpoint, or "off"
    slices_max: int = SLICES_MAX
    slices_per_user_max: int = 32  # of one who is no admin, without those of jobs
    processes_per_slice_max: int = 256
    processes_per_user_max: int = 512  # on one device; containers count one by one
    events_max: int = 10_000  # kept in the event log
    grace_s: int = 60  # an ephemeral slice that nobody attaches to ends after this
    on_stranger: str = "log"  # a program that uses a device and is attached to no slice: "log", "freeze" or "kill" it
    on_excess: str = "log"  # the same for one through which its slice uses more than its limit, past the ledger
    context_bytes: int = 0  # what one context costs; 0 = as measured (devices.CONTEXT_BYTES)
    container_gpus_max: str = "4"  # what a container may ask for by environment: an image's ENV cannot be told from -e
    container_priority_max: int = 0  # the same for its priority, and for what users ask for who are no admins
    container_latency: bool = False  # and whether either may be of class latency
    cdi_dir: str = ""  # where our CDI files go; "" = /var/run/cdi for the system's daemon, none for others
    nvidia_cdi_dirs: tuple[str, ...] = ("/etc/cdi", "/var/run/cdi")  # NVIDIA's CDI files, later ones win
    direct: str = "allow"  # slices that are no jobs': "allow" (counted in their queue), "quota" (held to it) or "deny"
    job_grace_s: int = 10  # from SIGTERM to SIGKILL, for a job that is told to end
    jobs_max: int = 100_000  # that have not ended, of all users together
    jobs_per_user_max: int = 10_000
    job_priority_max: int = 0  # what jobs of users who are no admins may have; less than it they always may
    accounting_days: int = 400  # how long jobs that have ended, and what was used, are kept
    record_queue: str = ""  # a file to which all that the queue is told and decides is written, to be replayed
    front: str = ""  # vgpu-runtime on the host, for our CDI devices' hooks; "" = as `vgpu setup` installs it
    arbiter: ArbiterConfig = field(default_factory=ArbiterConfig)
    devices: DevicesConfig = field(default_factory=DevicesConfig)
    jobs: JobsConfig = field(default_factory=JobsConfig)

    @property
    def runtime(self) -> Path:
        return Path(self.runtime_dir) if self.runtime_dir else paths.runtime_dir()

    @property
    def state(self) -> Path:
        return Path(self.state_dir) if self.state_dir else paths.state_dir()

    @property
    def cdi(self) -> Path | None:
        """Where our CDI files go, None when none are written."""
        if self.cdi_dir:
            return Path(self.cdi_dir)
        return SYSTEM_CDI_DIR if self.runtime == paths.runtime_dir(uid=0) else None

    @property
    def container_limits(self) -> Limits:
        return Limits(parse_gpus(self.container_gpus_max), self.container_priority_max, self.container_latency)

    @property
    def node_name(self) -> str:
        return self.node or socket.gethostname()


_TABLES: dict[str, type] = {"arbiter": ArbiterConfig, "devices": DevicesConfig, "jobs": JobsConfig}


def load(path: Path | None, **overrides: Any) -> Config:
    """Reads a file (None: the default one, which may be missing) and lays the overrides that are not None over it.

    Raises ConfigError with one line naming the key, its value and the mend.
    """
    chosen = paths.config_file() if path is None else path
    given: dict[str, Any] = {}
    try:
        given = toml.read(chosen)
    except FileError as error:
        if not isinstance(error.__cause__, FileNotFoundError):
            raise ConfigError(str(error)) from error
        if path is not None:
            raise ConfigError(f"no configuration file {path}: name one that exists, or leave --config out") from error
    where = str(chosen)
    tables: dict[str, Any] = {name: _table(name, cls, given, where) for name, cls in _TABLES.items()}
    known = _known(Config, given, f"{where}: ") | {k: v for k, v in overrides.items() if v is not None}
    config = replace(Config(), **tables, **known)
    check(config, where)
    return config


def _table(name: str, cls: type, given: dict[str, Any], where: str) -> Any:
    body = given.pop(name, {})
    if not isinstance(body, dict):
        raise ConfigError(f"{where}: {name} = {body!r} is not a table: write [{name}] and its keys below it")
    return cls(**_known(cls, body, f"{where}: [{name}] "))


def _known(cls: type, given: dict[str, Any], where: str) -> dict[str, Any]:
    """The given keys as constructor arguments; unknown keys and wrong types are errors."""
    types = {f.name: f.default for f in fields(cls) if f.name not in _TABLES}
    for key, value in given.items():
        if key not in types:
            near = difflib.get_close_matches(key, types, 1, 0.0)[0]
            raise ConfigError(f"{where}no key {key!r}: did you mean {near!r}?")
        if (
            key in _LISTS
            and isinstance(value, list)
            and (value or key != "device")
            and all(isinstance(v, str) for v in value)
        ):
            given[key] = tuple(value)
        elif key == "socket_mode" and isinstance(value, str):
            given[key] = _octal(value, where)
        elif type(value) is not type(types[key]):
            kinds = {int: "a whole number", tuple: "a list of strings", bool: "true or false"}
            wanted, example = kinds.get(type(types[key]), "a string"), types[key]
            shown = (
                "true" if isinstance(example, bool) else repr(list(example) if isinstance(example, tuple) else example)
            )
            raise ConfigError(f"{where}{key} = {value!r} is not {wanted}: write for example {shown}")
    return given


def _octal(text: str, where: str) -> int:
    try:
        return int(text, 8)
    except ValueError as error:
        raise ConfigError(f"{where}socket_mode = {text!r} is no file mode: write for example '0660'") from error


def check(config: Config, where: str) -> None:
    """Refuses values that cannot work. Raises ConfigError."""

    def refuse(key: str, mend: str) -> None:
        raise ConfigError(f"{where}: {key} = {getattr(config, key)!r}: {mend}")

    for key, allowed in (
        ("mode", MODES),
        ("default_max", DEFAULT_MAXES),
        ("on_stranger", VERBS),
        ("on_excess", VERBS),
        ("direct", DIRECTS),
    ):
        if getattr(config, key) not in allowed:
            refuse(key, "write " + " or ".join(f'"{a}"' for a in allowed))
    if isinstance(config.device, str) and config.device not in ("auto", "sim"):
        refuse("device", 'write "auto", "sim" or a list of UUIDs and indices')
    if not 0 <= config.socket_mode <= 0o777 or config.socket_mode & 0o600 != 0o600:
        refuse("socket_mode", "the owner must read and write, write for example '0660'")
    for key, top in (
        ("slices_max", SLICES_MAX),
        ("slices_per_user_max", SLICES_MAX),
        ("processes_per_slice_max", PROCESSES_MAX),
        ("processes_per_user_max", PROCESSES_MAX),
        ("events_max", 1_000_000),
    ):
        if not 1 <= getattr(config, key) <= top:
            refuse(key, f"write 1 to {top}")
    if not 0 <= config.container_priority_max <= PRIORITY_MAX:
        refuse("container_priority_max", f"write 0 to {PRIORITY_MAX}")
    if abs(config.job_priority_max) > PRIORITY_MAX:
        refuse("job_priority_max", f"write {-PRIORITY_MAX} to {PRIORITY_MAX}")
    if not 1 <= config.grace_s <= 86_400:
        refuse("grace_s", "write 1 to 86400 seconds")
    try:
        parse_gpus(config.container_gpus_max)
    except UnitError as error:
        refuse("container_gpus_max", str(error))
    for key, top in (("jobs_max", 1_000_000), ("jobs_per_user_max", 1_000_000), ("accounting_days", 36_500)):
        if not 1 <= getattr(config, key) <= top:
            refuse(key, f"write 1 to {top}")
    if not 0 <= config.job_grace_s <= 3600:
        refuse("job_grace_s", "write 0 to 3600 seconds")
    for key in ("cdi_dir", "front", "record_queue"):
        if getattr(config, key) and not getattr(config, key).startswith("/"):
            refuse(key, "write an absolute path")
    if not all(directory.startswith("/") for directory in config.nvidia_cdi_dirs):
        refuse("nvidia_cdi_dirs", "write absolute paths")
    if config.context_bytes < 0:
        refuse("context_bytes", "write 0 (as measured) or a number of bytes")
    if not config.node_name or len(config.node_name.encode()) > 63:
        refuse("node", "write 1 to 63 bytes")
    for name in ("engine", "runtime", "network"):
        if not re.fullmatch(r"[\w./:-]*", getattr(config.jobs, name)) or getattr(config.jobs, name).startswith("-"):
            raise ConfigError(f"{where}: [jobs] {name} = {getattr(config.jobs, name)!r}: write one word")
    _check_metrics(config, where)
    for name, value in arbiter_items(config.arbiter):
        check_arbiter(name, value, f"{where}: [arbiter] ")


def arbiter_items(arbiter: ArbiterConfig) -> list[tuple[str, int]]:
    return [(f.name, getattr(arbiter, f.name)) for f in fields(arbiter)]


def check_arbiter(name: str, value_ns: int, where: str = "") -> None:
    """Refuses times that no arbiter can keep. Raises ConfigError."""
    least_ns = 0 if name == "lookahead_ns" else _ARBITER_MIN_NS  # 0: gates are not opened ahead
    if not least_ns <= value_ns <= _ARBITER_MAX_NS:
        raise ConfigError(f"{where}{name} = {value_ns}: write {least_ns} to {_ARBITER_MAX_NS} ns")


def metrics_address(config: Config) -> tuple[str, int] | None:
    """(host, port) of the Prometheus endpoint, None when it is off."""
    if config.metrics == METRICS_OFF:
        return None
    host, _, port = config.metrics.rpartition(":")
    return host.strip("[]"), int(port)


def _check_metrics(config: Config, where: str) -> None:
    host, colon, port = config.metrics.rpartition(":")
    number = int(port) if port.isascii() and port.isdigit() else -1
    if config.metrics != METRICS_OFF and not (colon and host and 0 <= number <= 65535):
        raise ConfigError(f'{where}: metrics = {config.metrics!r}: write "off" or an address such as "127.0.0.1:9419"')
