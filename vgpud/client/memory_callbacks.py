"""What well-known programs can give back when their slice is asked for memory, for watch_memory_pressure()."""

from __future__ import annotations

import contextlib
import http.client
import sys
from collections.abc import Callable

from vgpud.client.memory import MemoryRequest

#: a level-1 sleep copies the weights to host memory
_ANSWER_S = 120.0


def empty_torch_cache(request: MemoryRequest) -> None:
    """What PyTorch's allocator keeps for later allocations goes back to the device. Tensors stay as they are."""
    torch = sys.modules.get("torch")
    if torch is not None and torch.cuda.is_initialized():
        torch.cuda.empty_cache()


def sleep_vllm(address: str, level: int = 1) -> Callable[[MemoryRequest], None]:
    """Sends the vLLM server at HOST:PORT to sleep: level 1 keeps its weights on the host, level 2 discards them.

    The server needs VLLM_SERVER_DEV_MODE=1 and --enable-sleep-mode. `POST /wake_up` wakes it.
    """

    def sleep(request: MemoryRequest) -> None:
        host = http.client.HTTPConnection(address, timeout=_ANSWER_S)
        with contextlib.closing(host):
            host.request("POST", f"/sleep?level={level}")
            host.getresponse().read()

    return sleep
