"""Data-parallel training with elastic workers: `with vgpud.elastic.Workers(...) as workers`, see docs/elastic.md.

Needs torch: pip install 'vgpud[elastic]'.
"""

from __future__ import annotations

try:
    import torch.distributed as _distributed
except ImportError as error:
    raise ImportError("vgpud.elastic needs torch: run pip install 'vgpud[elastic]'") from error
if not _distributed.is_available():
    raise ImportError("vgpud.elastic needs torch.distributed, which this torch was built without")

from vgpud.client import channel as _first  # noqa: F401 - before grpc is imported: it sets grpc up
from vgpud.elastic.link import RefusedError
from vgpud.elastic.state import StateError
from vgpud.elastic.workers import Workers

__all__ = ["RefusedError", "StateError", "Workers"]
