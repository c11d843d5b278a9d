"""Says that a program on a simulated device uses a PyTorch that was built without CUDA: it finds no device, and its
wheel looks like any other to pip.
"""

from __future__ import annotations

from pathlib import Path

from vgpud.cli.common.output import say
from vgpud.cli.common.unhooked import list_tree

_LIBRARY, _CUDA_LIBRARY = "libtorch_cpu.so", "libtorch_cuda.so"


def find_cpu_torch(root_pid: int, proc: Path = Path("/proc")) -> str:
    """The folder of such a PyTorch that a process, or one below it, has loaded; "" while there is none."""
    for pid in list_tree(root_pid, proc):
        try:
            maps = (proc / str(pid) / "maps").read_text(errors="replace")
        except OSError:
            continue  # it has ended, or is another user's
        at = maps.find(f"/{_LIBRARY}\n")
        if at < 0:
            continue
        folder = Path(maps[maps.index("/", maps.rfind("\n", 0, at) + 1) : at])
        if not (folder / _CUDA_LIBRARY).exists():
            return str(folder)
    return ""


class TorchWatch:
    """Looks at a command's processes until it has said so."""

    def __init__(self, pid: int) -> None:
        self._pid, self._is_said = pid, False

    def look(self) -> None:
        folder = "" if self._is_said else find_cpu_torch(self._pid)
        if folder:
            self._is_said = True
            say(
                f"this torch has no CUDA: {folder}; install PyPI's for Linux (`pip install --no-deps torch===2.13.0`), "
                "not one of the index for CPUs"
            )
