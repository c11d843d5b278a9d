"""Shell of NVML: the devices of this node, their present usage, and whether they can be shared at all.

The simulated NVML is loaded by absolute path and only when the configuration says "sim"; it is never a fallback. An
NVML that is lost while the daemon runs is a value (no reading), not an exception; at start every problem is an error
with the fix.
"""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple

import pynvml

from vgpud.core.model import BY_CHECKPOINT, BY_EITHER, BY_HOOK, INSTANCES_FROM, Device, instance_index
from vgpud.core.observed import Reading
from vgpud.devices.asking import or_none
from vgpud.devices.mig import Instance, instances, is_in_mig_mode
from vgpud.errors import ConfigError, DeviceRefusedError, DriverError
from vgpud.host import processes as host_processes
from vgpud.simdevice import state_page
from vgpud.simdevice.liveness import Simulator

#: a context of CUDA 12/13 on Hopper, until `make qualify` has measured this node's (configuration: context_bytes)
CONTEXT_BYTES = 560 << 20
#: what the driver hands out memory in (cuMemGetAllocationGranularity; 2 MiB on every device since Pascal)
GRANULE_BYTES = 2 << 20
PROBE_S = 60
#: the first version with cuCheckpointProcess*
CHECKPOINT_DRIVER = 570
#: the first one with events behind all work of a context (cuCtxRecordEvent), as CUDA counts versions, and as NVIDIA
HOOK_CUDA_VERSION, HOOK_DRIVER = 12050, 555
NO_GPU = "try without a GPU: `vgpu sim start && vgpud serve --device sim`"
#: how the name of every simulated device begins
SIMULATED = "SIMULATED"
#: has a folder for each GPU, named by its PCI address
GPUS_OF_KERNEL = Path("/proc/driver/nvidia/gpus")
_MPS_NAMES = ("nvidia-cuda-mps-control", "nvidia-cuda-mps-server")
#: by generation of PCIe; copies of pinned memory reach about such a part (50 of 63 GB/s of generation 5 by 16)
PCIE_LANE_BYTES_PER_S = {1: 250e6, 2: 500e6, 3: 985e6, 4: 1969e6, 5: 3938e6, 6: 7563e6}
PCIE_REACHED = 0.8
#: faults that are taken in one go
FAULTS_MAX = 16
_COMM_MAX = 15  # the kernel cuts process names
#: compute modes in which a device has one program at most
_MODES = {
    pynvml.NVML_COMPUTEMODE_EXCLUSIVE_PROCESS: "exclusive-process",
    pynvml.NVML_COMPUTEMODE_PROHIBITED: "prohibited",
}

#: runs in a process of its own, so that the daemon never becomes a client of the driver; prints the error's name
_PROBE = """
import ctypes, os, sys
try:
    driver = ctypes.CDLL(sys.argv[1])
except OSError as error:
    print(error); sys.exit(2)
code = driver.cuInit(0)
name = ctypes.c_char_p()
if code:
    driver.cuGetErrorName(code, ctypes.byref(name))
version = ctypes.c_int()
driver.cuDriverGetVersion(ctypes.byref(version))
try:
    has_checkpoint = driver.cuCheckpointProcessGetState(os.getpid(), ctypes.byref(ctypes.c_int())) != 801
except AttributeError:
    has_checkpoint = False
print(name.value.decode() if name.value else f"error {code}" if code else f"{version.value} {int(has_checkpoint)}")
sys.exit(1 if code else 0)
"""


class MemoryMoves(NamedTuple):
    """How memory leaves devices."""

    way: str = BY_CHECKPOINT  # or BY_HOOK
    problem: str = ""  # why it does not, about the driver
    has_checkpoint: bool = True


class DriverFacts(NamedTuple):
    """Of a driver that initialises."""

    cuda_version: int  # 13000 = 13.0
    has_checkpoint: bool  # cuCheckpointProcess*

    def choose_memory_moves(self, setting: str) -> MemoryMoves:
        """setting: memory_moves of the configuration."""
        way = (BY_CHECKPOINT if self.has_checkpoint else BY_HOOK) if setting == BY_EITHER else setting
        problem = ""
        if way == BY_CHECKPOINT and not self.has_checkpoint:
            problem = f"cannot move memory to the host ({CHECKPOINT_DRIVER} and later can;"
            problem += f' from {HOOK_DRIVER} on with memory_moves = "{BY_HOOK}")'
        elif way == BY_HOOK and self.cuda_version < HOOK_CUDA_VERSION:
            problem = f"cannot move memory to the host ({HOOK_DRIVER} and later can)"
        return MemoryMoves(way, problem, self.has_checkpoint)


def probe_driver(driver: str, sim_dir: str = "") -> DriverFacts:
    """Raises DriverError with the driver's own words."""
    env = {k: v for k, v in os.environ.items() if not k.startswith(("LD_", "CUDA_", "VGPU_"))}
    if sim_dir:
        env["VGPU_SIM_DIR"] = sim_dir
    command = [sys.executable, "-I", "-S", "-c", _PROBE, driver]
    try:
        done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=PROBE_S, check=False)
    except subprocess.TimeoutExpired as error:
        text = f"cuInit of {driver} does not return within {PROBE_S} s: see dmesg for the driver's messages"
        raise DriverError(text) from error
    said = done.stdout.strip()
    if done.returncode == 0:
        version, has_checkpoint = said.split()
        return DriverFacts(int(version), has_checkpoint == "1")
    if sim_dir:
        raise DriverError(f"the simulated device does not start ({said}): run `vgpu sim start --dir {sim_dir}` first")
    if done.returncode == 2:
        raise DriverError(f"no CUDA driver ({said}): install the NVIDIA driver, or {NO_GPU}")
    if done.returncode != 1:
        raise DriverError(f"cuInit of {driver} crashed (exit {done.returncode}): reinstall the NVIDIA driver")
    remedy = f"see `nvidia-smi` and dmesg, load the kernel module, or {NO_GPU}"
    raise DriverError(f"the CUDA driver does not start: cuInit says {said}; {remedy}")


@dataclass(frozen=True, slots=True)
class Holder:
    """What keeps a device from being shared. `remedy`: a command, with the device's index for {}."""

    what: str
    so: str
    remedy: str


class Devices:
    """NVML of this node. `driver`, `nvml`: libraries in use; `sim_dir`: of the simulated device, "" for real ones."""

    def __init__(
        self,
        driver: str,
        nvml: str,
        sim_dir: str = "",
        context_bytes: int = 0,
        link_bytes_per_s: int = 0,
        memory_moves: MemoryMoves = MemoryMoves(),  # noqa: B008  # a constant
    ) -> None:
        self.driver, self.nvml, self.sim_dir = driver, nvml, sim_dir
        self.memory_moves = memory_moves
        self._context_bytes, self._link_bytes_per_s = context_bytes, link_bytes_per_s
        self._handles: dict[str, Any] = {}
        #: by the GPU's UUID its MIG instances, and by an instance's UUID the GPU's handle
        self._instances: dict[str, list[Instance]] = {}
        self._gpus: dict[str, Any] = {}
        self._faults: Any = None  # a set of events
        #: what inventory() has seen, for newcomers(): UUIDs, PCI addresses, and the GPUs that are not for us
        self._listed: frozenset[str] = frozenset()
        self._slots: frozenset[str] = frozenset()
        self._unwanted: Callable[[frozenset[str]], bool] = lambda names: False
        self._simulator = Simulator(Path(sim_dir)) if sim_dir else None
        #: whether the pids that NVML lists mean the same processes to us: the real driver's are the host's
        self.knows_pids = bool(sim_dir) or host_processes.sees_all_pids()
        if sim_dir:
            os.environ["VGPU_SIM_DIR"] = sim_dir  # the simulated NVML reads it when it starts
        try:
            pynvml.nvmlLib = ctypes.CDLL(nvml)
            pynvml.nvmlInit()
            self.version = str(pynvml.nvmlSystemGetDriverVersion())
        except OSError as error:
            raise DriverError(f"no NVML ({error}): install the NVIDIA driver, or {NO_GPU}") from error
        except pynvml.NVMLError as error:
            remedy = f"run `vgpu sim start --dir {sim_dir}` first" if sim_dir else "see `nvidia-smi` and dmesg"
            raise DriverError(f"NVML does not start: {error}; {remedy}") from error
        if self._simulator:
            self._simulator.look()  # this one we have

    def inventory(self, included_names: Iterable[str] = (), excluded_names: Iterable[str] = ()) -> tuple[Device, ...]:
        """The devices to share: all or the wanted, without the excluded (UUIDs or indices; those of a GPU are for all
        its MIG instances). An excluded one need not be there. Raises DriverError, ConfigError."""
        try:
            count = pynvml.nvmlDeviceGetCount()
            if count > INSTANCES_FROM:
                text = f"NVML lists {count} GPUs: vgpud can name {INSTANCES_FROM}, the indices from {INSTANCES_FROM} on"
                raise DriverError(f"{text} are MIG instances'; run it in a virtual machine or container with fewer")
            found = [device for index in range(count) for device in self._find_devices(index)]
        except (pynvml.NVMLError, ValueError) as error:
            raise DriverError(f"NVML cannot list the devices: {error}; see `nvidia-smi` and dmesg") from error
        found.sort(key=lambda device: device.index)
        self._listed = frozenset(name for device in found for name in (device.uuid, device.parent_uuid))
        self._slots = _slots()
        self._unwanted = lambda names: bool(included_names) or not names.isdisjoint(excluded_names)
        names = frozenset[str]().union(*(d.names for d in found))
        for name in included_names:
            if name not in names:
                have = ", ".join(f"{d.index} ({d.uuid})" for d in found) or "none"
                raise ConfigError(f"device {name!r} is not on this node: it has {have}")
        masked = next((d for d in found if d.name.startswith(SIMULATED) and not self.sim_dir), None)
        if masked:
            raise ConfigError(f'the driver is the simulated one ({masked.name}): ask for it by name (device = "sim")')
        chosen = tuple(d for d in found if not included_names or d.names & set(included_names))
        if not chosen:
            raise DriverError("the driver lists no device: see `nvidia-smi -L`")
        chosen = tuple(d for d in chosen if not d.names & set(excluded_names))
        if not chosen:
            raise ConfigError(f"devices.exclude leaves no device: {', '.join(excluded_names)}; leave one of them out")
        self._handles = {d.uuid: self._handles[d.uuid] for d in chosen}
        return self._with_nvlink(chosen)

    def keep(self, devices: Iterable[Device]) -> None:
        """Only these are read from now on: the others are another daemon's."""
        self._handles = {device.uuid: self._handles[device.uuid] for device in devices}

    def _find_devices(self, index: int) -> list[Device]:
        """A GPU, or its MIG instances where it has any."""
        handle = pynvml.nvmlDeviceGetHandleByIndex(index)
        gpu = self._gpu(index, handle)
        self._instances[gpu.uuid] = instances(handle)
        return [self._instance(gpu, one) for one in self._instances[gpu.uuid]] or [gpu]

    def _instance(self, gpu: Device, one: Instance) -> Device:
        self._gpus[one.uuid] = self._handles[gpu.uuid]
        self._handles[one.uuid] = one.handle
        memory_bytes = _usable_bytes(one.handle) // one.sharers
        return replace(
            gpu,
            uuid=one.uuid,
            index=instance_index(gpu.index, one.number),
            name=one.name,
            memory_bytes=memory_bytes - memory_bytes % gpu.granule_bytes,
            sm_count=one.sm_count,
            parent_uuid=gpu.uuid,
            profile=one.profile,
        )

    def _gpu(self, index: int, handle: Any) -> Device:
        uuid = str(pynvml.nvmlDeviceGetUUID(handle))
        self._handles[uuid] = handle
        pci = pynvml.nvmlDeviceGetPciInfo(handle).busId
        return Device(
            uuid=uuid,
            index=index,
            name=str(pynvml.nvmlDeviceGetName(handle)),
            pci_bus_id=pci.decode() if isinstance(pci, bytes) else str(pci),
            memory_bytes=_usable_bytes(handle),
            sm_count=_or_zero(lambda: pynvml.nvmlDeviceGetNumGpuCores(handle) // 128),
            is_simulated=bool(self.sim_dir),
            context_bytes=self._context_bytes or self._context_cost(index),
            granule_bytes=GRANULE_BYTES,
            link_bytes_per_s=self._link_rate(handle),
            compute_capability=_compute_capability(handle),
        )

    def _link_rate(self, handle: Any) -> int:
        """Of the link to the host, in each direction: as the site says, else of its PCIe; 0 = not known."""
        if self._link_bytes_per_s or not self.sim_dir:
            return self._link_bytes_per_s or _pcie_rate(handle)
        return state_page.read(Path(self.sim_dir) / "state").link_bytes_per_us * 1_000_000

    def _context_cost(self, index: int) -> int:
        if not self.sim_dir:
            return CONTEXT_BYTES
        return sim_context_bytes(Path(self.sim_dir) / "state", index)

    def refuse_unshareable(self, devices: Iterable[Device]) -> None:
        """Raises DeviceRefusedError, with the fix, when MPS, exclusive-process mode or MIG without instances have every
        device."""
        held = [(device, self.holder(device.uuid)) for device in devices]
        if all(holder for _, holder in held):
            device, holder = held[0]
            assert holder
            text = f"device {device.index} ({device.uuid}) is held by {holder.what}, {holder.so}:"
            raise DeviceRefusedError(f"{text} run `{holder.remedy.format(device.index)}`")

    def holder(self, uuid: str, proc: Path = Path("/proc")) -> Holder | None:
        """What has a whole device, so that it cannot be shared now. `proc`: /proc, or a copy for tests."""
        handle = self._handles.get(uuid)
        mode = or_none(lambda: pynvml.nvmlDeviceGetComputeMode(handle))
        if mode in _MODES:
            return Holder(f"compute mode {_MODES[mode]}", "so programs cannot share it", "nvidia-smi -i {} -c DEFAULT")
        # Since vgpud started, or there were none. Whether NVML takes an instance here, and answers for its GPU, is not
        # documented: it is not asked.
        if uuid not in self._gpus and is_in_mig_mode(handle):
            so = "and vgpud knows no instances of it: make some (nvidia-smi mig -cgi PROFILE -C) and start vgpud again,"
            return Holder("MIG mode", f"{so} or", "nvidia-smi -i {} -mig 0")
        clients = or_none(lambda: pynvml.nvmlDeviceGetMPSComputeRunningProcesses(handle))
        pid = clients[0].pid if clients else 0 if self.sim_dir else mps_pid(proc)
        if pid:
            so = "which would merge the tenants' contexts"
            return Holder(f"MPS (pid {pid})", so, "echo quit | nvidia-cuda-mps-control")
        return None

    def handle(self, uuid: str) -> Any:
        """NVML's, for calls that other modules have; of a device of inventory()."""
        return self._handles[uuid]

    def read(self, uuid: str) -> Reading:
        """Present usage of the device; fields are None when NVML does not report them or is lost. A MIG instance has
        temperature and power of its GPU."""
        handle = self._handles.get(uuid)
        if handle is None:
            return Reading(None, None)
        gpu = self._gpus.get(uuid, handle)
        memory = or_none(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle).used)
        busy = or_none(lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu)
        celsius = or_none(lambda: pynvml.nvmlDeviceGetTemperature(gpu, pynvml.NVML_TEMPERATURE_GPU))
        power = or_none(lambda: pynvml.nvmlDeviceGetPowerUsage(gpu))
        limit = or_none(lambda: pynvml.nvmlDeviceGetEnforcedPowerLimit(gpu))
        return Reading(memory, None if busy is None else busy / 100, celsius, power, limit)

    def groups(self, devices: Sequence[Device]) -> tuple[int, ...]:
        """For each device a number that linked ones share: by NVLink where there is any, else by NUMA node. () when
        NVML reports neither."""
        return self._group_devices(devices, _by_nvlink) or self._group_devices(devices, _in_numa_node)

    def _group_devices(self, devices: Sequence[Device], is_linked: Callable[[Any, Any], bool]) -> tuple[int, ...]:
        """For each device the first of those that links join with it, also through others; () where there is no
        link."""
        handles = [self._handles.get(device.uuid) for device in devices]
        pairs = {(a, b): is_linked(handles[a], handles[b]) for b in range(len(handles)) for a in range(b)}
        found = list(range(len(handles)))
        for (a, b), together in pairs.items():
            if together:
                low, high = sorted((found[a], found[b]))
                found = [low if group == high else group for group in found]
        return tuple(found) if any(pairs.values()) else ()

    def _with_nvlink(self, devices: tuple[Device, ...]) -> tuple[Device, ...]:
        first: Sequence[int | None] = self._group_devices(devices, _by_nvlink) or [None] * len(devices)
        groups = (None if i is None or devices[i].profile else devices[i].index for i in first)
        return tuple(replace(device, nvlink_group=group) for device, group in zip(devices, groups, strict=True))

    def newcomers(self) -> dict[str, str]:
        """What can be shared and was not there when the inventory was made, by UUID or PCI address. The library lists
        no GPU that came after its own start: the kernel does. For one thread only, that of faults()."""
        if self._unwanted(frozenset()):
            return {}
        found = {slot: f"the GPU at {slot}" for slot in _slots() - self._slots}
        for index in range(or_none(pynvml.nvmlDeviceGetCount) or 0):
            handle = or_none(lambda i=index: pynvml.nvmlDeviceGetHandleByIndex(i))
            uuid = or_none(lambda h=handle: str(pynvml.nvmlDeviceGetUUID(h)))
            if handle is None or self._unwanted(frozenset({str(index), str(uuid)})):
                continue
            for one in or_none(lambda h=handle: instances(h)) or ():
                if one.uuid not in self._listed:
                    found[one.uuid] = f"the MIG instance {one.uuid} ({one.profile}) of GPU {index}"
        return found

    def why_not_swap(self) -> str:
        """Why no memory can be moved to the host; "" = it can."""
        problem = self.memory_moves.problem
        return f"driver {self.version} {problem}" if problem else ""

    def find_lost_devices(self) -> dict[str, str]:
        """Why devices are missing, by UUID: those that NVML calls lost, or those of a simulator that has ended. Finds
        them again in a simulator that replaced it. For one thread only, that of faults()."""
        if self._simulator is None:
            why = "lost: NVML says that the GPU is lost: see dmesg, then reset it or boot the machine"
            return {uuid: why for uuid, handle in self._handles.items() if _is_lost(handle)}
        lives, is_new = self._simulator.look()
        if not lives:
            why = f"lost: its simulator has ended: run `vgpu sim start --dir {self.sim_dir}`"
            return dict.fromkeys(self._handles, why)
        if is_new:
            or_none(pynvml.nvmlInit)  # maps the new server's page beside the old one
            self.watch_faults()
        now = {
            uuid: or_none(lambda h=handle: str(pynvml.nvmlDeviceGetUUID(h))) for uuid, handle in self._handles.items()
        }
        return {uuid: "lost: its simulator has other devices now: restart vgpud" for uuid in now if now[uuid] != uuid}

    def watch_faults(self) -> None:
        """From now on the driver's reports of faults (XIDs) are kept for faults(), where it makes any."""
        self._faults = or_none(pynvml.nvmlEventSetCreate)
        gpus = [self._gpus.get(uuid, handle) for uuid, handle in self._handles.items()]
        once = {id(handle): handle for handle in gpus}.values()
        for handle in once if self._faults else ():  # NVML takes no instance here: its GPU's reports name it
            kind = pynvml.nvmlEventTypeXidCriticalError
            or_none(lambda h=handle, k=kind: pynvml.nvmlDeviceRegisterEvents(h, k, self._faults))

    def faults(self) -> list[tuple[str, int]]:
        """The faults (device, XID) since the last call; does not wait for any. After FAULTS_MAX the next call has the
        others."""
        found: list[tuple[str, int]] = []
        while self._faults and len(found) < FAULTS_MAX:
            event = or_none(lambda: pynvml.nvmlEventSetWait_v2(self._faults, 0))
            if event is None:
                break
            uuid = or_none(lambda e=event: str(pynvml.nvmlDeviceGetUUID(e.device))) or ""
            about = int(event.gpuInstanceId), int(event.computeInstanceId)
            parts = self._instances.get(uuid)
            affected_uuids = [one.uuid for one in parts if one.is_affected(*about)] if parts else [uuid]
            affected_uuids = [
                device for device in affected_uuids if device in self._handles
            ]  # not what is excluded, or another daemon's
            found += [(device, int(event.eventData)) for device in affected_uuids]
        return found

    def lists(self, pid: int) -> bool:
        """Whether the driver still counts a process among a device's clients. False when NVML does not report it."""
        return any(pid in (self.running(uuid) or ()) for uuid in self._handles)

    def running(self, uuid: str) -> dict[int, int] | None:
        """The pids that use the device and how many bytes (0 when NVML does not report it); None when it does not list
        them now, or they mean nothing here. A process that computes and draws is in two lists with the same memory."""
        handle = self._handles.get(uuid)
        if not self.knows_pids or handle is None:
            return None
        computing = or_none(lambda: pynvml.nvmlDeviceGetComputeRunningProcesses(handle))
        if computing is None:
            return None
        used = _used_bytes(computing)
        for more in (pynvml.nvmlDeviceGetGraphicsRunningProcesses, pynvml.nvmlDeviceGetMPSComputeRunningProcesses):
            for pid, size in _used_bytes(or_none(lambda ask=more: ask(handle)) or ()).items():
                used[pid] = max(used.get(pid, 0), size)
        return used

    def close(self) -> None:
        or_none(pynvml.nvmlShutdown)
        if self._simulator:
            self._simulator.close()


def _slots() -> frozenset[str]:
    """PCI addresses of the GPUs that the kernel's part of the driver has now."""
    try:
        return frozenset(os.listdir(GPUS_OF_KERNEL))
    except OSError:
        return frozenset()


def _used_bytes(processes: Iterable[Any]) -> dict[int, int]:
    """By pid; one that has opened the driver twice may be listed twice."""
    used: dict[int, int] = {}
    for process in processes:
        used[process.pid] = used.get(process.pid, 0) + (process.usedGpuMemory or 0)
    return used


def _is_lost(handle: Any) -> bool:
    try:
        pynvml.nvmlDeviceGetMemoryInfo(handle)
    except pynvml.NVMLError as error:
        return bool(error.value == pynvml.NVML_ERROR_GPU_IS_LOST)
    return False


def _by_nvlink(a: Any, b: Any) -> bool:
    index = pynvml.NVML_P2P_CAPS_INDEX_NVLINK
    return bool(or_none(lambda: pynvml.nvmlDeviceGetP2PStatus(a, b, index)) == pynvml.NVML_P2P_STATUS_OK)


def _in_numa_node(a: Any, b: Any) -> bool:
    level = or_none(lambda: pynvml.nvmlDeviceGetTopologyCommonAncestor(a, b))
    return level is not None and level <= pynvml.NVML_TOPOLOGY_NODE


def _or_zero(ask: Any) -> int:
    return or_none(ask) or 0


def _compute_capability(handle: Any) -> str:
    major, minor = or_none(lambda: pynvml.nvmlDeviceGetCudaComputeCapability(handle)) or (0, 0)
    return f"{major}.{minor}" if major else ""


def _pcie_rate(handle: Any) -> int:
    """What copies reach of it: a part of the generation's rate times the width, both as they are at full power."""
    generation = or_none(lambda: pynvml.nvmlDeviceGetMaxPcieLinkGeneration(handle))
    width = or_none(lambda: pynvml.nvmlDeviceGetMaxPcieLinkWidth(handle))
    if generation is None or width is None:
        return 0
    return int(PCIE_LANE_BYTES_PER_S.get(int(generation), 0) * int(width) * PCIE_REACHED)


def _usable_bytes(handle: Any) -> int:
    """Memory that programs can have: without the reserve of driver and firmware, where NVML reports it (v2)."""
    v2 = or_none(lambda: pynvml.nvmlDeviceGetMemoryInfo(handle, version=pynvml.nvmlMemory_v2))
    if v2 is not None:
        return int(v2.total - v2.reserved)
    return int(pynvml.nvmlDeviceGetMemoryInfo(handle).total)


def mps_pid(proc: Path) -> int:
    """The pid of a running MPS control daemon or server, 0 if there is none. `proc`: /proc, or a copy for tests."""
    names = {name[:_COMM_MAX] for name in _MPS_NAMES}
    for entry in proc.iterdir():
        if not entry.name.isdigit():
            continue
        try:
            if (entry / "comm").read_text().strip() in names:
                return int(entry.name)
        except OSError:
            continue  # it ended while we looked
    return 0


def sim_context_bytes(page: Path, index: int) -> int:
    """What one context costs on a simulated device, from its server's state page. Raises DriverError."""
    devices = state_page.read(page).devices
    if index >= len(devices):
        raise DriverError(f"{page} is of another version of the simulated device: it has {len(devices)} devices")
    return devices[index].context_bytes
