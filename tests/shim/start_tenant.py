"""A tenant that starts while the process lacks something, for test_link.py: `python start_tenant.py WHAT`."""

from __future__ import annotations

import json
import resource
import sys
from pathlib import Path
from typing import Any

from ledger_tenant import Cuda


def init_without(what: str) -> dict[str, Any]:
    """cuInit while threads or descriptors cannot be had, and again when they can."""
    if what == "threads":  # root is under no limit on processes, but a thread needs a stack
        kind, used = resource.RLIMIT_AS, int(Path("/proc/self/statm").read_text().split()[0]) * 4096 + (700 << 10)
    else:
        kind, used = resource.RLIMIT_NOFILE, 3
    cuda, before = Cuda(), resource.getrlimit(kind)
    resource.setrlimit(kind, (used, before[1]))
    code = cuda.call("cuInit", 0)
    resource.setrlimit(kind, before)
    return {"code": code, "later": cuda.call("cuInit", 0)}


if __name__ == "__main__":
    print(json.dumps(init_without(sys.argv[1])))
