"""What `make test-k8s` will run on this machine, and what it will skip and why: `python -m tests.k8s`."""

from __future__ import annotations

from tests.k8s import control_plane, node

LEVELS = {
    "fake API server, fake kubelet": "",
    "real control plane": control_plane.missing(),
    "real node with pods": node.missing(),
}

for level, reason in LEVELS.items():
    print(f"{level:<30} {f'skipped: {reason}' if reason else 'runs'}")
