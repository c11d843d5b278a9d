"""The daemon's configuration: TOML -> one frozen dataclass. Every key, its meaning and its default are in this file.

A key that is not known is an error naming it and the nearest one that is. Flags of `vgpud serve` override the file.
"""

from __future__ import annotations

import difflib
import ipaddress
import re
import socket
from collections.abc import Callable
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, TypeVar

from vgpud import paths
from vgpud.core.devices.enforce import VERBS
from vgpud.core.jobs.container_parts import Allowance, PartError, parse_allowance
from vgpud.core.model import ALL_DEVICES, BY_EITHER, DIRECTS, MEMORY_MOVES, PRIORITY_MAX, SLICES_MAX
from vgpud.core.units import PORT_MAX, UnitError, parse_bytes, parse_gpus, parse_whole
from vgpud.errors import ConfigError
from vgpud.oci.owner import BY_ANNOTATION, BY_ENGINE, BY_LABEL, BY_SESSION
from vgpud.oci.request import Limits
from vgpud.userfiles import toml
from vgpud.userfiles.bounded import FileError

MODES = ("coast", "open", "closed")
DEFAULT_MAXES = ("same", "device")
FENCES = ("auto", "off")
#: lengths of the driver's time slices, in the order in which `nvidia-smi compute-policy --set-timeslice` counts them
TIME_SLICES = ("default", "short", "medium", "long")
METRICS_OFF = "off"
ANY_IMAGES = "any"
#: the arbiters hold this many processes per device (shim/arbiter/arbiter.h)
PROCESSES_MAX = 1024
_MS = 1_000_000
SYSTEM_CDI_DIR = Path("/var/run/cdi")
#: nothing that the arbiter does is shorter than 100 us or longer than 10 s
_ARBITER_MIN_NS, _ARBITER_MAX_NS = _MS // 10, 10_000 * _MS
#: keys that hold lists of strings
_LISTS = ("device", "nvidia_cdi_dirs", "exclude", "kubernetes", "time_slice", "volumes", "ports")

_T = TypeVar("_T")
#: takes a value and returns how to fix it, "" when it is valid
Check = Callable[[Any], str]


# ---- checks of single values ----


def one_of(*choices: str) -> Check:
    return lambda value: "" if value in choices else "write " + " or ".join(f'"{name}"' for name in choices)


def check_range(low: int, high: int, unit: str = "") -> Check:
    return lambda value: "" if low <= value <= high else f"write {low} to {high}{unit}"


def _device(value: str | tuple[str, ...]) -> str:
    listed = not isinstance(value, str) or value in ("auto", "sim")
    return "" if listed else 'write "auto", "sim" or a list of UUIDs and indices'


def _file_mode(value: int) -> str:
    owner_can = 0 <= value <= 0o777 and value & 0o600 == 0o600
    return "" if owner_can else "the owner must read and write, write for example '0660'"


def _node(value: str) -> str:
    return "" if 1 <= len((value or socket.gethostname()).encode()) <= 63 else "write 1 to 63 bytes"


def _gpus(value: str) -> str:
    try:
        parse_gpus(value)
    except UnitError as error:
        return str(error)
    return ""


def _absolute_path(value: str) -> str:
    return "" if not value or value.startswith("/") else "write an absolute path"


def _absolute_paths(value: tuple[str, ...]) -> str:
    return "" if all(directory.startswith("/") for directory in value) else "write absolute paths"


def _context_bytes(value: int) -> str:
    return "" if value >= 0 else "write 0 (as measured) or a number of bytes"


def _word(value: str) -> str:
    return "" if re.fullmatch(r"[\w./:-]*", value) and not value.startswith("-") else "write one word"


def _time_slice(value: str | tuple[str, ...]) -> str:
    entries = (f"{ALL_DEVICES}={value}",) if isinstance(value, str) else value
    pairs = [entry.partition("=") for entry in entries]
    if all(device and length in TIME_SLICES for device, _equals, length in pairs):
        return ""
    return f'write one of {", ".join(TIME_SLICES)}, or a list such as ["{ALL_DEVICES}=long", "0=short"]'


def _volumes(value: tuple[str, ...]) -> str:
    return _why_not(lambda: parse_allowance(value, ()))


def _ports(value: tuple[str, ...]) -> str:
    return _why_not(lambda: parse_allowance((), value))


def _why_not(parse: Callable[[], Allowance]) -> str:
    try:
        parse()
    except PartError as error:
        return str(error)
    return ""


def _metrics(value: str) -> str:
    host, colon, port = value.rpartition(":")
    valid = value == METRICS_OFF or (colon and host and parse_whole(port, PORT_MAX) is not None)
    return "" if valid else 'write "off" or an address such as "127.0.0.1:9419"'


def _port_address(value: str) -> str:
    try:
        ipaddress.ip_address(value)
    except ValueError:
        return "write an address of this node, such as 127.0.0.1 or 0.0.0.0"
    return ""


def _listen(value: str) -> str:
    host, _, port = value.rpartition(":")
    named = re.fullmatch(r"\[[0-9A-Fa-f:.]+\]|[\w.-]+", host) and parse_whole(port, PORT_MAX) is not None
    valid = not value or named
    return "" if valid else 'write "" or an address such as "0.0.0.0:7443"'


# ---- keys ----


def key(default: _T, check: Check | None = None, *, live: bool = False) -> _T:
    """A key of the file. `live`: `vgpud` takes a new value over while it runs (SIGHUP), others need a restart."""
    found: _T = field(default=default, metadata={"check": check, "live": live})
    return found


def _arbiter_key(default_ns: int, least_ns: int = _ARBITER_MIN_NS) -> int:
    return key(default_ns, check_range(least_ns, _ARBITER_MAX_NS, " ns"))


@dataclass(frozen=True, slots=True)
class ArbiterConfig:
    """[arbiter]: times of the arbitration, all in ns (shim/arbiter/arbiter.h)."""

    quantum_ns: int = _arbiter_key(7 * _MS)
    quantum_min_ns: int = _arbiter_key(1 * _MS)
    bound_ns: int = _arbiter_key(2 * _MS)
    open_bound_ns: int = _arbiter_key(20 * _MS)
    overrun_ns: int = _arbiter_key(14 * _MS)
    latency_bound_ns: int = _arbiter_key(_MS)
    lookahead_ns: int = _arbiter_key(_MS // 10, least_ns=0)  # 0: gates are not opened ahead
    guarantee_depth_ns: int = _arbiter_key(50 * _MS)
    cap_depth_ns: int = _arbiter_key(15 * _MS)


@dataclass(frozen=True, slots=True)
class DevicesConfig:
    """[devices]"""

    #: devices that are never offered, watched or policed, by UUID or index
    exclude: tuple[str, ...] = key(())
    #: devices given to Kubernetes, by UUID or index, or ["all"]: only claims of its DRA driver are placed there
    kubernetes: tuple[str, ...] = key(())
    #: length of the driver's time slices: one of TIME_SLICES for all devices, or a list of DEVICE=LENGTH by UUID or
    #: index, "all" for those that no other entry names
    time_slice: str | tuple[str, ...] = key("default", _time_slice)

    def time_slice_of(self, names: frozenset[str]) -> str:
        """Of a device that has these names."""
        if isinstance(self.time_slice, str):
            return self.time_slice
        lengths = dict(entry.split("=", 1) for entry in self.time_slice)
        own = next((length for name, length in lengths.items() if name in names), "")
        return own or lengths.get(ALL_DEVICES, TIME_SLICES[0])

    @property
    def named_in_time_slice(self) -> list[str]:
        """The devices that it names."""
        entries = () if isinstance(self.time_slice, str) else self.time_slice
        return [name for entry in entries if (name := entry.partition("=")[0]) != ALL_DEVICES]


@dataclass(frozen=True, slots=True)
class JobsConfig:
    """[jobs]: the container engine for jobs in images (`vgpu submit --image`)."""

    #: "docker", "podman" or a path; "" = the first of them that is installed
    engine: str = key("", _word)
    #: the engine's name for vgpu-runtime, or for podman its path
    runtime: str = key("vgpu", _word)
    #: network of their containers, as --network takes it; "" = the engine's default
    network: str = key("", _word)
    #: "any", or "listed": users who are no admins run images of the site's environments only
    images: str = key(ANY_IMAGES, one_of(ANY_IMAGES, "listed"))
    #: directories of the node below which `--volume` may name what a container gets; "/data:ro": for reading only
    volumes: tuple[str, ...] = key((), _volumes)
    #: ports of the node that `--port` may publish, as ranges: "20000-20999"
    ports: tuple[str, ...] = key((), _ports)
    #: address at which they are published
    port_address: str = key("127.0.0.1", _port_address)

    @property
    def allowance(self) -> Allowance:
        return parse_allowance(self.volumes, self.ports, self.network, any_image=self.images == ANY_IMAGES)


@dataclass(frozen=True, slots=True)
class Config:
    """All that the site decides."""

    #: "auto" (all of the driver), "sim" or a list of UUIDs and indices
    device: str | tuple[str, ...] = key("auto", _device)
    #: directory of the simulated device's server; "" = $VGPU_SIM_DIR, else <runtime_dir>/sim
    sim_dir: str = key("")
    #: path of the real libcuda; "" = the one that the loader finds
    driver: str = key("")
    #: path of the real NVML; "" = the one that the loader finds
    nvml: str = key("")
    #: "" = paths.runtime_dir()
    runtime_dir: str = key("")
    #: "" = paths.state_dir()
    state_dir: str = key("")
    #: name of this machine; "" = its host name
    node: str = key("", _node)
    #: group that may connect to the API socket besides its owner, by socket_mode
    group: str = key("")
    #: group whose members may do what root may; "" = only root and the daemon's own user
    admin_group: str = key("")
    #: 0o666: every user may connect, and sees only their own slices and jobs
    socket_mode: int = key(0o660, _file_mode)
    #: address at which users of other machines are served, over TLS with certificates; "" = none
    listen: str = key("", _listen)
    #: directory of the certificates; "" = tls, beside the configuration file
    tls_dir: str = key("", _absolute_path)
    #: what tenants do when the daemon is gone: coast, open or closed
    mode: str = key("coast", one_of(*MODES), live=True)
    #: maximum of a slice that names none: "same" as asked, or the whole "device"
    default_max: str = key("same", one_of(*DEFAULT_MAXES), live=True)
    #: address of the Prometheus endpoint, or "off"
    metrics: str = key("127.0.0.1:9419", _metrics)
    #: file of lines `USER TOKEN`: a scrape needs a token and shows that user's slices, for * all; "" = no tokens
    metrics_tokens: str = key("", _absolute_path)
    slices_max: int = key(SLICES_MAX, check_range(1, SLICES_MAX), live=True)
    #: slices of a user who is no admin, those of jobs not counted
    slices_per_user_max: int = key(32, check_range(1, SLICES_MAX), live=True)
    processes_per_slice_max: int = key(256, check_range(1, PROCESSES_MAX), live=True)
    #: on one device; each container counts separately
    processes_per_user_max: int = key(512, check_range(1, PROCESSES_MAX), live=True)
    #: kept in the event log
    events_max: int = key(10_000, check_range(1, 1_000_000))
    #: an ephemeral slice to which no process attaches ends after this
    grace_s: int = key(60, check_range(1, 86_400, " seconds"), live=True)
    #: what is done with a program that uses a device and is attached to no slice: "log", "freeze" or "kill"
    on_stranger: str = key("log", one_of(*VERBS), live=True)
    #: the same for a program through which its slice uses more memory than its limit, past the ledger
    on_excess: str = key("log", one_of(*VERBS), live=True)
    #: the driver's memory limits per cgroup as a second fence behind the ledger: "auto", where there are any, or "off"
    memory_fence: str = key("auto", one_of(*FENCES))
    #: how long a slice has to give back memory beyond its minimum that another one is guaranteed; 0: none is asked
    memory_grace_s: int = key(10, check_range(0, 3600, " seconds"), live=True)
    #: host memory that the programs of a slice may pin together, in contexts of one device; 0 = no limit
    pinned_bytes_max: int = key(0, check_range(0, 1 << 50, " bytes"), live=True)
    #: memory that one context takes; 0 = as measured (devices.CONTEXT_BYTES)
    context_bytes: int = key(0, _context_bytes)
    #: rate of the link between host and device, in each direction, of which slices have parts; 0 = by NVML
    link_bytes_per_s: int = key(0, check_range(0, 1 << 50, " bytes"))
    #: what a container may ask for by environment variables: an image's ENV cannot be distinguished from -e
    container_gpus_max: str = key("4", _gpus, live=True)
    #: highest priority of containers, and of slices of users who are no admins
    container_priority_max: int = key(0, check_range(0, PRIORITY_MAX), live=True)
    #: the slice of a container that its engine starts again is kept for this long; 0 = not at all
    container_restart_grace_s: int = key(60, check_range(0, 3600, " seconds"), live=True)
    #: whether these may be of the latency class
    container_latency: bool = key(False, live=True)
    #: where the daemon's CDI files go; "" = /var/run/cdi for the system's daemon, none for others
    cdi_dir: str = key("", _absolute_path)
    #: NVIDIA's CDI files; a later directory overrides an earlier one
    nvidia_cdi_dirs: tuple[str, ...] = key(("/etc/cdi", "/var/run/cdi"), _absolute_paths, live=True)
    #: slices that are no jobs': "allow" (counted in their queue), "quota" (held to it) or "deny"
    direct: str = key("quota", one_of(*DIRECTS), live=True)
    #: from SIGTERM to SIGKILL, when a job is to end
    job_grace_s: int = key(10, check_range(0, 3600, " seconds"), live=True)
    #: the same for a job that asks for a time of its own: at most this
    job_grace_max_s: int = key(300, check_range(0, 86_400, " seconds"), live=True)
    #: jobs that have not ended, of all users together
    jobs_max: int = key(100_000, check_range(1, 1_000_000))
    jobs_per_user_max: int = key(10_000, check_range(1, 1_000_000))
    #: highest priority of jobs of users who are no admins; lower ones are always allowed
    job_priority_max: int = key(0, check_range(-PRIORITY_MAX, PRIORITY_MAX), live=True)
    #: how long ended jobs and usage are kept
    accounting_days: int = key(400, check_range(1, 36_500))
    #: of the database: above, what is oldest of the users who have most is forgotten earlier
    state_bytes_max: int = key(2 << 30, check_range(16 << 20, 1 << 44, " bytes"), live=True)
    #: of host RAM, for the device memory of evicted slices; 0 = what is available, but a tenth of all
    suspended_bytes_max: int = key(0, check_range(0, 1 << 50, " bytes"), live=True)
    #: how memory leaves a device when slices rotate or sleep: "checkpoint" (the driver moves it), "hook" (the program's
    #: library does) or "auto" (the hook where the driver cannot)
    memory_moves: str = key(BY_EITHER, one_of(*MEMORY_MOVES))
    #: slices that do not say otherwise give their memory back after this time without work; 0 = never
    idle_after_s: int = key(0, check_range(0, 365 * 86_400, " seconds"), live=True)
    #: whether the use of devices, slices, jobs, queues and users is recorded (docs/watching.md)
    history: bool = key(True)
    #: file to which all events and commands of the queue are written, for replay; "" = none
    record_queue: str = key("", _absolute_path)
    #: file of the site's environments; "" = beside the configuration file
    environments: str = key("", _absolute_path)
    #: whom the slice of a container of root's engine is for: "engine" (root), "session" (the login session that called
    #: podman), "annotation" (also whom dev.vgpu/user names) or "label" (also whom docker's label dev.vgpu.user names)
    container_owner: str = key(BY_SESSION, one_of(BY_ENGINE, BY_SESSION, BY_ANNOTATION, BY_LABEL), live=True)
    #: vgpu-runtime on the host, for the hooks of our CDI devices; "" = as `vgpu setup` installs it
    front: str = key("", _absolute_path)
    arbiter: ArbiterConfig = field(default_factory=ArbiterConfig, metadata={"live": True})
    devices: DevicesConfig = field(default_factory=DevicesConfig, metadata={"live": False})
    jobs: JobsConfig = field(default_factory=JobsConfig, metadata={"live": False})

    @property
    def runtime(self) -> Path:
        return Path(self.runtime_dir) if self.runtime_dir else paths.runtime_dir()

    @property
    def state(self) -> Path:
        return Path(self.state_dir) if self.state_dir else paths.state_dir()

    @property
    def tls(self) -> Path:
        """Directory of the certificates."""
        return Path(self.tls_dir) if self.tls_dir else paths.config_file().parent / "tls"

    @property
    def environments_file(self) -> Path:
        return Path(self.environments) if self.environments else paths.config_file().parent / "environments.toml"

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

    Raises ConfigError with one line that names the key, its value and the fix.
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
    known = _parse_keys(Config, given, f"{where}: ") | {k: v for k, v in overrides.items() if v is not None}
    config = replace(Config(), **tables, **known)
    check(config, where)
    return config


def _table(name: str, cls: type, values: dict[str, Any], where: str) -> Any:
    body = values.pop(name, {})
    if not isinstance(body, dict):
        raise ConfigError(f"{where}: {name} = {body!r} is not a table: write [{name}] and its keys below it")
    return cls(**_parse_keys(cls, body, f"{where}: [{name}] "))


def _parse_keys(cls: type, values: dict[str, Any], where: str) -> dict[str, Any]:
    """The given keys as constructor arguments; unknown keys and wrong types are errors."""
    types = {f.name: f.default for f in fields(cls) if f.name not in _TABLES}
    for key, value in values.items():
        if key not in types:
            near = difflib.get_close_matches(key, types, 1, 0.0)[0]
            raise ConfigError(f"{where}no key {key!r}: did you mean {near!r}?")
        if (
            key in _LISTS
            and isinstance(value, list)
            and (value or key != "device")
            and all(isinstance(v, str) for v in value)
        ):
            values[key] = tuple(value)
        elif "_bytes" in key and isinstance(value, str):
            values[key] = _size(key, value, where)
        elif key == "socket_mode" and isinstance(value, str):
            values[key] = _octal(value, where)
        elif type(value) is not type(types[key]):
            type_names = {int: "a whole number", tuple: "a list of strings", bool: "true or false"}
            wanted, example = type_names.get(type(types[key]), "a string"), types[key]
            shown = (
                "true" if isinstance(example, bool) else repr(list(example) if isinstance(example, tuple) else example)
            )
            raise ConfigError(f"{where}{key} = {value!r} is not {wanted}: write for example {shown}")
    return values


def _size(key: str, text: str, where: str) -> int:
    try:
        return parse_bytes(text)
    except UnitError as error:
        raise ConfigError(f"{where}{key}: {error}") from error


def _octal(text: str, where: str) -> int:
    try:
        return int(text, 8)
    except ValueError as error:
        raise ConfigError(f"{where}socket_mode = {text!r} is not a file mode: write for example '0660'") from error


#: keys whose new value the daemon takes over while it runs
LIVE_KEYS = frozenset(f.name for f in fields(Config) if f.metadata["live"])


class LiveConfig:
    """`current`: the configuration in use. It is replaced when another is taken over: read it again each time."""

    def __init__(self, config: Config) -> None:
        self.current = config

    def take_over(self, config: Config) -> list[str]:
        """Takes over what can change while running; the keys that differ from those in use, LIVE_KEYS or not."""
        names = [name for name in Config.__dataclass_fields__ if getattr(config, name) != getattr(self.current, name)]
        # the rest stays as it is in use: sockets do not move because a file says so
        self.current = replace(self.current, **{name: getattr(config, name) for name in LIVE_KEYS})
        return names


def check(config: Config, where: str) -> None:
    """Refuses invalid values. Raises ConfigError."""
    _check_all(config, f"{where}: ")
    for name in _TABLES:
        _check_all(getattr(config, name), f"{where}: [{name}] ")


def _check_all(table: Any, where: str) -> None:
    for f in fields(table):
        _check_value(f.metadata.get("check"), f.name, getattr(table, f.name), where)


def _check_value(check: Check | None, name: str, value: Any, where: str) -> None:
    fix = check(value) if check else ""
    if fix:
        raise ConfigError(f"{where}{name} = {value!r}: {fix}")


def arbiter_items(arbiter: ArbiterConfig) -> list[tuple[str, int]]:
    return [(f.name, getattr(arbiter, f.name)) for f in fields(arbiter)]


def check_arbiter(name: str, value_ns: int) -> None:
    """Refuses a time that no arbiter can keep. Raises ConfigError."""
    metadata = next(f.metadata for f in fields(ArbiterConfig) if f.name == name)
    _check_value(metadata["check"], name, value_ns, "")


def metrics_address(config: Config) -> tuple[str, int] | None:
    """(host, port) of the Prometheus endpoint, None when it is off."""
    return None if config.metrics == METRICS_OFF else _address(config.metrics)


def listen_address(config: Config) -> tuple[str, int] | None:
    """(host, port) for users of other machines, None when they are not served."""
    return _address(config.listen) if config.listen else None


def _address(text: str) -> tuple[str, int]:
    host, _, port = text.rpartition(":")
    return host.strip("[]"), int(port)
