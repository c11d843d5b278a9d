"""CUDA's libraries of the simulated device (shim/simcuda/): which there are, and that programs get them before others.

The one list is their folder beside the simulated driver. They are preloaded: a library that is loaded already is taken
by its SONAME, whatever RPATH, RUNPATH or LD_LIBRARY_PATH a program has, so also where NVIDIA's wheels lie beside
PyTorch. Beside a real driver there is no such folder, and no caller asks for a real device.

NVRTC is not preloaded: NVIDIA's needs no device, and compiles. Ours is last in the search path, for programs that have
none.
"""

from __future__ import annotations

from pathlib import Path

#: says in each path what they are: their files have to be named as NVIDIA's
FOLDER = "SIMULATED"
#: in that folder: what is searched for after all other places
NVRTC = "nvrtc"


def cuda_libraries(driver: Path) -> list[Path]:
    """The libraries beside the simulated driver, in the order in which they are preloaded."""
    return sorted((driver.parent / FOLDER).glob("*.so*"))


def nvrtc_folder(driver: Path) -> Path:
    """The folder with NVRTC beside the simulated driver."""
    return driver.parent / FOLDER / NVRTC


def is_in_search_path(entry: str) -> bool:
    """Whether an entry of LD_LIBRARY_PATH is a folder of the simulated device, of whichever release."""
    return FOLDER in Path(entry).parts or (Path(entry) / FOLDER).is_dir()


def is_cuda_library(entry: str) -> bool:
    """Whether an entry of LD_PRELOAD is one of them, of whichever release."""
    return Path(entry).parent.name == FOLDER
