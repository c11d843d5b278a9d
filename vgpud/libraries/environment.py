"""The environment of a program in a slice: the preloaded shim, its attach socket, and the driver behind it; on a
simulated device its CUDA libraries as well."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from vgpud import paths
from vgpud.errors import DeniedError, DriverError, ExitCode, VgpudError
from vgpud.libraries import driver as drivers
from vgpud.libraries import elf, fit, simulated
from vgpud.v1alpha1.words import TENANT_MODE

if TYPE_CHECKING:
    from vgpud.v1alpha1 import vgpud_pb2 as pb

#: variables of the loader
_SEARCHED = ("LD_PRELOAD", "LD_LIBRARY_PATH")
#: characters at which the loader splits LD_PRELOAD
_SEPARATORS = " :\t\n"


def preload(libraries: Sequence[Path], old_preload: str) -> str:
    """LD_PRELOAD with the libraries first; what an outer `vgpu run` has preloaded is removed."""
    for path in libraries:
        if any(c in str(path) for c in _SEPARATORS):
            text = f"cannot preload {str(path)!r}: the loader splits LD_PRELOAD at blanks and colons"
            if simulated.is_cuda_library(str(path)):
                raise VgpudError(f"{text}; install vgpud in a folder without them", ExitCode.ENGINE)
            raise VgpudError(f"{text}; set XDG_CACHE_HOME to a path without them", ExitCode.ENGINE)
    return ":".join([*map(str, libraries), *_foreign(old_preload)])


def _foreign(old_preload: str) -> list[str]:
    """The libraries in LD_PRELOAD except shims and those of the simulated device."""
    entries = old_preload.replace(":", " ").split()
    return [e for e in entries if not Path(e).name.startswith("libvgpu") and not simulated.is_cuda_library(e)]


def remove_shim(old_environment: Mapping[str, str]) -> dict[str, str]:
    """The environment without the shim and the slice of an outer `vgpu run`."""
    made = {name: value for name, value in old_environment.items() if name not in (*_SEARCHED, "VGPU_SOCKET")}
    return made | _foreign_places(old_environment)


def _foreign_places(old_environment: Mapping[str, str]) -> dict[str, str]:
    """LD_PRELOAD and LD_LIBRARY_PATH without shims and without the simulated device, where something is left."""
    entries = old_environment.get("LD_LIBRARY_PATH", "").split(":")
    others = [entry for entry in entries if not (entry and simulated.is_in_search_path(entry))]
    made = {
        "LD_PRELOAD": ":".join(_foreign(old_environment.get("LD_PRELOAD", ""))),
        "LD_LIBRARY_PATH": ":".join(others),
    }
    return {name: value for name, value in made.items() if value}


def preload_simulated(old_environment: Mapping[str, str]) -> dict[str, str]:
    """The environment with the simulated device's CUDA libraries, for programs that use it without a slice."""
    driver = paths.sim_lib_dir() / drivers.DRIVER_SONAME
    return remove_shim(old_environment) | {
        "LD_PRELOAD": preload(simulated.cuda_libraries(driver), old_environment.get("LD_PRELOAD", "")),
        "LD_LIBRARY_PATH": last_in_path(simulated.nvrtc_folder(driver), old_environment.get("LD_LIBRARY_PATH", "")),
    }


def real_drivers(
    old_environment: Mapping[str, str], daemon_drivers: tuple[str, str], is_simulated: bool
) -> tuple[Path, Path | None]:
    """libcuda and libnvidia-ml behind the shim; the latter may be missing. `daemon_drivers`: the daemon's own.

    The simulated ones only for a simulated device. Raises DriverError.
    """
    if is_simulated:
        folder = paths.sim_lib_dir()
        return folder / drivers.DRIVER_SONAME, folder / drivers.NVML_SONAME
    wanted = {
        name: path
        for name, path in zip(("VGPU_DRIVER", "VGPU_NVML"), daemon_drivers, strict=True)
        if os.path.isabs(path)
    }
    environment = wanted | dict(old_environment)
    for variable, function in (("VGPU_DRIVER", drivers.DRIVER_FUNCTION), ("VGPU_NVML", drivers.NVML_FUNCTION)):
        path = old_environment.get(variable)
        if path and (why := drivers.unusable(Path(path), function)):
            raise DriverError(f"{variable} names {path}, which {why}; unset it, or name the real library")
    found = drivers.find_driver(environment)
    if found is None:
        what = environment.get("VGPU_DRIVER") or drivers.DRIVER_SONAME
        raise DriverError(f"no CUDA driver: {what} was not found; install the NVIDIA driver, or see `vgpu doctor`")
    return found, drivers.find_nvml(environment)


def fit_dir() -> Path:
    """The directory of fitted copies: the cache, or the runtime directory; not one that is mounted noexec.

    /run is mounted noexec on Debian and Ubuntu, so the cache is tried first. Raises DeniedError.
    """
    problems: list[str] = []
    for base in (paths.cache_dir(), paths.runtime_dir()):
        try:
            folder = paths.make_private_dir(paths.make_private_dir(base, 0o755) / "fitted", 0o755)
        except DeniedError as error:
            problems.append(str(error))
            continue
        if not os.statvfs(folder).f_flag & os.ST_NOEXEC:
            return folder
        problems.append(f"{folder} is mounted noexec: set XDG_CACHE_HOME to another directory")
    raise DeniedError("; ".join(problems))


def fitted_shims(driver: Path, nvml: Path | None, folder: Path) -> list[Path]:
    """libvgpu.so and libvgpu-ml.so fitted to these drivers. Raises VgpudError."""
    pairs = [("libvgpu.so", driver), ("libvgpu-ml.so", nvml)]
    try:
        return [fit.ensure_fitted_copy(paths.lib_dir() / name, behind, folder) for name, behind in pairs if behind]
    except FileNotFoundError as error:
        raise VgpudError(f"{error.filename} does not exist: build it with `pip install .`", ExitCode.ENGINE) from error
    except (fit.FitError, elf.ElfError) as error:
        raise VgpudError(str(error), ExitCode.ENGINE) from error
    except OSError as error:
        reason = error.strerror or error
        raise DeniedError(f"cannot write fitted libraries to {folder}: {reason}; set XDG_CACHE_HOME") from error


def for_slice(old_environment: Mapping[str, str], node: pb.Node, item: pb.Slice, is_simulated: bool) -> dict[str, str]:
    """The environment of a program in this slice. Raises VgpudError, DriverError, DeniedError.

    CUDA_VISIBLE_DEVICES of `old_environment` counts the node's devices: the slice has other numbers, so it goes.
    """
    found = real_drivers(old_environment, (node.driver, node.nvml), is_simulated)
    sim_dir = node.sim_dir or old_environment.get("VGPU_SIM_DIR") or f"{node.runtime_dir}/sim" if is_simulated else ""
    mode = TENANT_MODE.to_word(node.mode)
    before = dict(old_environment) if is_simulated else remove_shim(old_environment)
    made = before | variables(before, found, item.attach_socket, mode, sim_dir)
    made.pop("CUDA_VISIBLE_DEVICES", None)
    return made


def variables(
    old_environment: Mapping[str, str], driver_paths: tuple[Path, Path | None], socket: str, mode: str, sim_dir: str
) -> dict[str, str]:
    """The variables that a program in a slice has beside, or in place of, those of `old_environment`.

    driver_paths: libcuda and libnvidia-ml behind the shim; sim_dir: "" on real devices. Raises VgpudError, DeniedError.
    """
    driver, nvml = driver_paths
    libraries = fitted_shims(driver, nvml, fit_dir()) + (simulated.cuda_libraries(driver) if sim_dir else [])
    made = {
        "LD_PRELOAD": preload(libraries, old_environment.get("LD_PRELOAD", "")),
        "VGPU_SOCKET": socket,
        "VGPU_DRIVER": str(driver),
        "VGPU_MODE": mode,
    }
    if nvml:
        made["VGPU_NVML"] = str(nvml)
    if sim_dir:
        made["VGPU_SIM_DIR"] = sim_dir
        search_path = first_in_path(driver.parent, old_environment.get("LD_LIBRARY_PATH", ""))
        made["LD_LIBRARY_PATH"] = last_in_path(simulated.nvrtc_folder(driver), search_path)
    return made


def first_in_path(folder: Path, search_path: str) -> str:
    """A search path with the folder in front, once."""
    return ":".join([str(folder), *(entry for entry in search_path.split(":") if entry and entry != str(folder))])


def last_in_path(folder: Path, search_path: str) -> str:
    """A search path with the folder at its end, once."""
    return ":".join([*(entry for entry in search_path.split(":") if entry and entry != str(folder)), str(folder)])
