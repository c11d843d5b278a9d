"""Ray's fractions of GPUs held to what they say: each worker process runs in a slice (docs/ray.md).

`options()` and `runtime_env()` are for programs, `vgpud.ray.plugin.VgpuPlugin` is what raylets load. Importing this
loads neither Ray nor a client: a program that only describes what it asks for needs no GPU and no daemon.
"""

from __future__ import annotations

from vgpud.client.sizes import SizeError as SizeError
from vgpud.ray.request import options as options
from vgpud.ray.request import runtime_env as runtime_env
