"""Claims with adminAccess: for monitoring, in namespaces that the API server knows by their label.

The scheduler gives such a claim devices that others have, and counts nothing. So nothing is prepared in vgpud either:
the container gets what NVIDIA's own CDI specification has for the device, without a slice and without the shim. It sees
the whole GPU, with the programs of all slices, as a program of the node does.
"""

from __future__ import annotations

from collections.abc import Iterable

from vgpud.core.model import gpu_of
from vgpud.k8s.core.model import Gpu

#: of what `nvidia-ctk cdi generate` writes on the node, which vgpud reads as well
NVIDIA_KIND = "nvidia.com/gpu"


def cdi_devices(gpus: Iterable[Gpu]) -> tuple[str, ...]:
    """The CDI devices by which a container sees these; none for simulated devices, which NVIDIA's driver does not know.
    By index: that is the name that the specification has in every version of nvidia-ctk."""
    return tuple(dict.fromkeys(f"{NVIDIA_KIND}={_name(gpu)}" for gpu in gpus if not gpu.is_simulated))


def _name(gpu: Gpu) -> str:
    parent, number = gpu_of(gpu.index) if gpu.profile else (str(gpu.index), "")
    return f"{parent}:{number}" if number else parent
