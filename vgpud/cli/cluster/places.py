"""Where a controller keeps its files, and what it has published there."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def state_dir(dir_option: Path | None) -> Path:
    """Of the controller's database."""
    from vgpud import paths

    return (dir_option or paths.state_dir() / "cluster").absolute()


def run_dir(dir_option: Path | None) -> Path:
    """Of the heartbeat and the status, also for users who are not root."""
    from vgpud import paths

    return (dir_option or paths.runtime_dir(uid=0) / "cluster").absolute()


def status(dir_option: Path | None) -> dict[str, Any]:
    """What the controller published last. Raises NoControllerError."""
    from vgpud.cluster.shell import published

    directory = run_dir(dir_option)
    found = published.read(directory)
    found["fresh"] = published.fresh(directory, published.now_s())
    return found
