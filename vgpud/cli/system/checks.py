"""The checks of `vgpu doctor`. Each yields findings: ok, warn (works, but not as well) or fail, and the remedy."""

from __future__ import annotations

import fcntl
import os
import socket
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import vgpud
from vgpud import paths
from vgpud.cli.common.findings import Check, Finding, Look
from vgpud.cli.common.options import Settings
from vgpud.cli.system import checks_containers, checks_engines
from vgpud.core.driver_faults import hangs_at_kill
from vgpud.core.model import BY_CHECKPOINT
from vgpud.errors import CliError, VgpudError
from vgpud.v1alpha1 import vgpud_pb2 as pb
from vgpud.v1alpha1 import words
from vgpud.view.slice_tables import not_offered

_SCHEDULING: dict[int, str] = {
    pb.SCHEDULING_FIFO: "SCHED_FIFO",
    pb.SCHEDULING_NICE: "a nice value of its own",
    pb.SCHEDULING_NORMAL: "normal priority",
}
#: linux/fcntl.h; not in the fcntl module before Python 3.13
_F_SEAL_FUTURE_WRITE = 0x0010


def all_findings(settings: Settings) -> Iterator[Finding]:
    """Runs every check; an exception in one is a finding itself and does not hide the others."""
    look = Look(settings)
    for check in CHECKS:
        if look.is_remote:
            return
        try:
            yield from check(look)
        except (VgpudError, OSError) as error:
            text = str(error)
            # messages of vgpud's own errors end in the remedy
            is_own = isinstance(error, VgpudError) and not isinstance(error, CliError)
            problem, colon, remedy = text.rpartition(": ") if is_own else (text, "", "")
            yield Finding(check.__name__, "fail", problem or remedy, remedy if colon else "")


def kernel(look: Look) -> Iterator[Finding]:
    """memfd seals (a slice cannot raise its own limits) and pidfd (the end of a process is noticed at once)."""
    release = os.uname().release
    try:
        fd = os.memfd_create("vgpu-doctor", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        try:
            fcntl.fcntl(fd, fcntl.F_ADD_SEALS, _F_SEAL_FUTURE_WRITE)
        finally:
            os.close(fd)
        yield Finding("kernel-seals", "ok", f"Linux {release} seals shared pages")
    except OSError as error:
        text = f"Linux {release}: memfd with F_SEAL_FUTURE_WRITE: {error.strerror}"
        yield Finding("kernel-seals", "fail", text, "use Linux 5.1 or later")
    try:
        os.close(os.pidfd_open(os.getpid()))
        yield Finding("kernel-pidfd", "ok", f"Linux {release} has pidfd")
    except OSError as error:
        text = f"Linux {release}: pidfd_open: {error.strerror}"
        yield Finding("kernel-pidfd", "fail", text, "use Linux 5.3 or later")


def libraries(look: Look) -> Iterator[Finding]:
    """The native libraries are built, and every user can load them."""
    for name in ("libvgpu.so", "libvgpu-ml.so"):
        path = paths.lib_dir() / name
        if not path.is_file():
            remedy = "build it: `pip install .`, or `python shim/build_shim.py` in the source"
            yield Finding("library", "fail", f"{path} does not exist", remedy)
        elif not os.access(path, os.R_OK):
            yield Finding("library", "fail", f"{path} cannot be read", f"chmod a+r {path}")
        else:
            yield from _preloadable("library", path)


def _preloadable(check: str, path: Path) -> Iterator[Finding]:
    """The loader splits LD_PRELOAD at blanks and colons; root's programs may become any user, and still need it."""
    if any(c in str(path) for c in " :\t\n;"):
        yield Finding(check, "fail", f"{path}: the loader splits LD_PRELOAD at blanks and colons", "install elsewhere")
        return
    closed = [p for p in (path, *path.parents) if not p.stat().st_mode & (0o004 if p == path else 0o001)]
    if closed and os.geteuid() == 0:
        text = f"{path}: other users have no permission for {closed[-1]}"
        yield Finding(check, "warn", text, "install where every user may read")
    else:
        yield Finding(check, "ok", str(path))


def environment(look: Look) -> Iterator[Finding]:
    """Effects of this shell's environment on programs."""
    for entry in os.environ.get("LD_PRELOAD", "").replace(":", " ").split():
        if "/" in entry and not os.access(entry, os.R_OK):
            yield Finding("ld-preload", "warn", f"LD_PRELOAD names {entry}, which cannot be read", "unset LD_PRELOAD")
    attach = os.environ.get("VGPU_SOCKET")
    if attach:
        there = os.path.exists(attach)
        text = f"this shell is inside a slice (VGPU_SOCKET={attach})"
        remedy = "" if there else "the socket is gone: start a new shell"
        yield Finding("in-slice", "ok" if there else "warn", text, remedy)
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    if attach and visible is not None:
        text = f"CUDA_VISIBLE_DEVICES={visible!r} selects among a slice's devices"
        yield Finding("visible-devices", "warn", text, "unset CUDA_VISIBLE_DEVICES unless it is intended")


def daemon(look: Look) -> Iterator[Finding]:
    """The daemon answers, has the same version as vgpu, and has its devices and its slices' sockets."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    try:
        with Client(look.settings) as client:
            node, devices, slices = client.send(calls.node()), client.all(calls.devices()), client.all(calls.slices())
            target, remote = client.target, client.remote
    except CliError as error:
        problem, _, remedy = error.message.partition(": ")
        yield Finding("daemon", "fail", problem, remedy or "see `vgpud serve --help`")
        return
    look.node = node
    look.device_uuids, look.device_indices = tuple(d.uuid for d in devices), tuple(d.index for d in devices)
    yield Finding(
        "daemon",
        "ok",
        f"{target} answers: vgpud {node.version} on {node.name}, mode {words.TENANT_MODE.to_word(node.mode)}",
    )
    yield from _versions(node)
    if node.unwatched:
        text = "vgpud is not in the host's pid namespace: programs that bypass their slices are not detected"
        yield Finding("pids", "warn", text, "run vgpud in the host's pid namespace (docker run --pid=host)")
    for arbiter in node.arbiters:
        yield from _arbiter(arbiter, {device.uuid: device.index for device in devices})
    yield from driver_fences(node, {device.uuid: device.index for device in devices})
    if not devices:
        yield Finding("devices", "fail", "the daemon has no device", "see its log")
    for device in devices:
        name = device.name if not device.simulated or "SIMULATED" in device.name else f"SIMULATED {device.name}"
        yield _check_offer(device, f"device {device.index}: {name} {device.uuid}")
    if remote:
        look.is_remote = True
        text = f"{node.name} is another machine: `vgpu doctor` there checks its driver, engines and files"
        yield Finding("machine", "ok", text)
        return
    if node.simulated:
        yield from _sim_server(Path(node.sim_dir or f"{node.runtime_dir}/sim"))
    for item in slices:
        is_ours = not item.HasField("owner_uid") or item.owner_uid == os.getuid()
        if is_ours and not os.access(item.attach_socket, os.W_OK):
            text = f"slice {item.name}: you cannot use {item.attach_socket}"
            yield Finding("attach-socket", "fail", text, "restart vgpud; it recreates the socket")


def driver_fences(node: pb.Node, indices: Mapping[str, int]) -> Iterator[Finding]:
    """What the driver itself holds slices to: limits on memory, and its own time slices."""
    problem = node.memory_fence_problem
    if node.memory_fence and problem:
        yield Finding("memory-fence", "warn", problem, "programs that bypass the hook are detected there, not stopped")
    elif node.memory_fence:
        yield Finding("memory-fence", "ok", "the driver's memory limits stand behind those of the slices")
    elif problem:
        yield Finding("memory-fence", "ok", f"no memory limits of the driver: {problem}")
    if node.memory_moves_problem:
        yield Finding("memory-moves", "ok", f"no --mem-swap: {node.memory_moves_problem}")
    elif node.memory_moves:
        who = "the driver" if node.memory_moves == BY_CHECKPOINT else "the library in their programs"
        text = f"memory of slices that take turns or sleep is moved by {who} ({node.memory_moves})"
        yield Finding("memory-moves", "ok", text)
    if hangs_at_kill(node.driver_version):
        text = (
            f"driver {node.driver_version} may hang this machine when a program is killed that was evicted and resumed"
        )
        remedy = "install another driver, or evict nothing (NVIDIA/cuda-checkpoint issue 53)"
        yield Finding("driver-fault", "warn", text, remedy)
    for one in node.time_slices:
        whose = f"device {indices.get(one.device_uuid, one.device_uuid)}"
        if one.problem:
            text = f"{whose} has the driver's default time slices instead of {one.length}: {one.problem}"
            yield Finding("time-slice", "warn", text, "change devices.time_slice, then restart vgpud")
        else:
            yield Finding("time-slice", "ok", f"{whose} has {one.length} time slices of the driver")


def environments(look: Look) -> Iterator[Finding]:
    """The site's list of environments is the one that its file has."""
    from vgpud.cli.common.client import Client
    from vgpud.client import calls

    if look.node is None:
        return
    try:
        with Client(look.settings) as client:
            answer = client.send(calls.environments())
    except CliError:
        return  # a daemon of before, which has none
    if answer.problem:
        yield Finding("environments", "warn", answer.problem, "correct the file: it is read again by itself")
    elif answer.environments:
        yield Finding("environments", "ok", f"{len(answer.environments)} environments for you (`vgpu env ls`)")


def _arbiter(arbiter: pb.ArbiterThread, indices: Mapping[str, int]) -> Iterator[Finding]:
    """The thread that opens and closes the gates of a device should run at once, and never wait for its memory."""
    late = f", {arbiter.late} times late, {arbiter.late_max_ns / 1e6:.1f} ms at most" if arbiter.late else ""
    whose = f"device {indices.get(arbiter.device_uuid, arbiter.device_uuid)}"
    text = f"the arbiter of {whose} has {_SCHEDULING[arbiter.scheduling]}{late}"
    if arbiter.steps_down:
        text += f"; {arbiter.steps_down} times it used too much of a processor for SCHED_FIFO"
    if arbiter.scheduling == pb.SCHEDULING_FIFO:
        yield Finding("arbiter", "ok", text)
    else:
        remedy = "let vgpud have CAP_SYS_NICE (docker run --cap-add SYS_NICE); with cgroups v1 real-time budget as well"
        yield Finding("arbiter", "warn", f"{text}: on a busy machine shares are less exact", remedy)
    if arbiter.unlocked_bytes:
        text = f"{arbiter.unlocked_bytes >> 10} KiB of the arbiter of {whose} may leave the RAM"
        yield Finding("arbiter-memory", "warn", text, "raise vgpud's RLIMIT_MEMLOCK (systemd: LimitMEMLOCK=infinity)")


def _versions(node: pb.Node) -> Iterator[Finding]:
    from vgpud.client.held_slice import ABI_VERSION

    if node.abi_version != ABI_VERSION:
        text = f"vgpud speaks ABI {node.abi_version}, this libvgpu.so {ABI_VERSION}: programs cannot attach"
        yield Finding("abi-version", "fail", text, "install vgpu and vgpud of one release, then restart vgpud")
    elif node.version != vgpud.__version__:
        text = f"vgpud is {node.version}, vgpu is {vgpud.__version__}"
        yield Finding("daemon-version", "warn", text, "restart vgpud: programs continue meanwhile")


def _sim_server(folder: Path) -> Iterator[Finding]:
    """The simulated device's server still answers, and programs of this user can reach it."""
    path = folder / "sock"
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as sock:
            sock.settimeout(2)
            sock.connect(str(path))
        yield Finding("sim", "ok", f"SIMULATED device server answers at {path}")
    except OSError as error:
        text = f"SIMULATED device server at {path}: {error.strerror or error}"
        yield Finding("sim", "fail", text, f"start it with `vgpu sim start --dir {folder}`, then restart vgpud")


def driver(look: Look) -> Iterator[Finding]:
    """The driver behind the shim: found, the kernel module's version, its device nodes usable, its names exported."""
    from vgpud.errors import DriverError
    from vgpud.libraries import driver as drivers
    from vgpud.libraries.environment import real_drivers

    node = look.node
    if node and node.simulated:
        yield from fitting(*real_drivers({}, ("", ""), is_simulated=True))
        yield _cuda_libraries(paths.sim_lib_dir() / drivers.DRIVER_SONAME)
        return
    try:
        found, nvml = real_drivers(os.environ, (node.driver, node.nvml) if node else ("", ""), is_simulated=False)
    except DriverError as error:
        problem, _, remedy = str(error).partition("; ")
        if not problem.startswith("VGPU_"):
            remedy = "install the NVIDIA driver; without a GPU: `vgpu demo --sim`, `vgpu sim start`"
        yield Finding("driver", "fail", problem, remedy)
        return
    yield Finding("driver", "ok", f"{found} ({found.resolve().name})")
    yield from _module_version(found, Path("/sys/module/nvidia/version"))
    yield from _device_nodes(Path("/dev"))
    if nvml is None:
        yield Finding("nvml", "warn", f"no NVML ({drivers.NVML_SONAME}): nvidia-smi does not work", "install it")
    yield from _shareable(look, found, nvml)
    yield from fitting(found, nvml)


def _cuda_libraries(simulated_driver: Path) -> Finding:
    """What programs such as PyTorch load on a simulated device in place of NVIDIA's."""
    from vgpud.libraries import simulated

    found = simulated.cuda_libraries(simulated_driver)
    folder = simulated_driver.parent / simulated.FOLDER
    if found:
        return Finding("cuda-libraries", "ok", f"{len(found)} of the SIMULATED device in {folder}")
    return Finding("cuda-libraries", "warn", f"none in {folder}: PyTorch finds no device", "install vgpud again")


def _check_offer(device: pb.Device, label: str) -> Finding:
    """Whether a device is offered to slices."""
    if device.drained:
        remedy = "see dmesg, reset or replace it, then: " if device.drained_by_fault else "when it is repaired: "
        text = f"{label} is drained: {device.drained}"
        return Finding("devices", "warn", text, f"{remedy}vgpu gpu undrain {device.index}")
    if not device.offered:
        text = f"{label} is {not_offered(device.taken_by)}: nothing is placed there"
        return Finding(
            "devices", "warn", text, f'end that, or exclude the device (devices.exclude = ["{device.index}"])'
        )
    if device.taken_by:
        text = f"{label} is used by {device.taken_by}, whose memory is not offered"
        return Finding("devices", "warn", text, "see `vgpu events` for the processes")
    return Finding("devices", "ok", f"{label}, given to Kubernetes" if device.kubernetes else label)


def _shareable(look: Look, library: Path, nvml: Path | None) -> Iterator[Finding]:
    """The daemon's own check of the devices: cuInit, MPS, exclusive-process mode, MIG. In a separate process."""
    # not python -m, which imports from the working directory first: that may belong to another user
    code = "import sys; sys.path[0] = sys.argv.pop(1); from vgpud.serve import main; main()"
    command = [sys.executable, "-c", code, str(Path(vgpud.__file__).parents[1])]
    command += ["check-devices", "--driver", str(library)]
    command += ["--nvml", str(nvml)] if nvml else []
    command += [word for uuid in look.device_uuids for word in ("--device", uuid)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        for line in done.stdout.splitlines():
            if " held by " in line:
                problem, _, remedy = line.rpartition(": ")
                yield Finding("shareable", "warn", f"{problem}: it is not offered", remedy)
                break
        else:
            yield Finding("shareable", "ok", "no MPS, no exclusive-process mode, no MIG mode without instances")
        return
    said = done.stderr.strip().splitlines()
    line = (said[-1] if said else f"check-devices ended with {done.returncode}: see its log").removeprefix("vgpud: ")
    problem, _, remedy = line.partition("; ") if "; " in line else line.rpartition(": ")
    yield Finding("shareable", "fail", problem or remedy, remedy)


def _module_version(library: Path, version_file: Path) -> Iterator[Finding]:
    """After an upgrade the library and the loaded module differ until the module is reloaded."""
    try:
        module = version_file.read_text().strip()
    except OSError:
        yield Finding("driver-module", "fail", "the nvidia kernel module is not loaded", "modprobe nvidia, see dmesg")
        return
    ours = library.resolve().name.removeprefix("libcuda.so.")
    if ours != module and ours != "1":
        text = f"libcuda is of version {ours}, the loaded kernel module of {module}"
        yield Finding("driver-module", "fail", text, "reboot, or unload and load the nvidia modules")


def _device_nodes(folder: Path) -> Iterator[Finding]:
    nodes = [folder / "nvidiactl", *sorted(folder.glob("nvidia[0-9]*"))]
    for node in nodes:
        if not node.exists():
            yield Finding("device-nodes", "fail", f"{node} does not exist", "run nvidia-smi once as root")
        elif not os.access(node, os.R_OK | os.W_OK):
            yield Finding(
                "device-nodes",
                "fail",
                f"you have no permission for {node}",
                f"ask to be added to the group that owns {node}",
            )


def fitting(library: Path, nvml: Path | None) -> Iterator[Finding]:
    """Every name of the driver is in the copy that programs preload, and that copy can be built and loaded."""
    from vgpud.libraries import elf, environment, fit

    try:
        for name, behind in (("libvgpu.so", library), ("libvgpu-ml.so", nvml)):
            left_out = fit.missing_names(paths.lib_dir() / name, behind) if behind else ()
            if left_out:
                names = ", ".join(left_out[:5]) + (" ..." if len(left_out) > 5 else "")
                text = f"{len(left_out)} names of {behind} have no place in {name}: {names}"
                yield Finding("fit", "warn", text, "programs that link them do not start: update vgpud")
        folder = environment.fit_dir()
        for path in environment.fitted_shims(library, nvml, folder):
            yield from _preloadable("fit", path)
    except FileNotFoundError as error:
        yield Finding("fit", "fail", f"{error.filename} does not exist", "build it: `pip install .`")
    except elf.ElfError as error:
        yield Finding("fit", "fail", str(error), "reinstall the driver, or vgpud")


CHECKS: tuple[Check, ...] = (
    kernel,
    libraries,
    daemon,
    environments,
    driver,
    environment,
    checks_engines.docker_engine,
    checks_engines.podman_engine,
    checks_engines.containerd_engine,
    checks_containers.front,
    checks_containers.runtime_socket,
    checks_containers.looking_inside,
    checks_containers.cache,
    checks_containers.nvidia_cdi,
    checks_containers.our_cdi,
    checks_containers.security_modules,
)
