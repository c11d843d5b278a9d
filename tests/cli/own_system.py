"""A daemon with simulated devices that all users may ask, and a stand-in for its container engine."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from tests.daemon.forked import ForkedSystem
from vgpud.cli.demo.private_system import OwnSystem

#: has every image, and runs a container's command beside itself with the container's variables; notes its words
ENGINE = """#!/bin/sh
[ "$1" = run ] || exit 0
echo "$@" >> "{folder}/engine-words"
while [ "$1" != -- ]; do
  [ "$1" = --env-file ] && while IFS= read -r line; do export "$line"; done < "$2"
  shift
done
shift 2
exec "$@"
"""


@contextmanager
def own_system(device: Mapping[str, str] | None = None, grace_s: int = 1) -> Iterator[OwnSystem]:
    """`device`: the simulated device's settings, one device by default; `grace_s`: of its jobs."""
    folder = Path(tempfile.mkdtemp(prefix="vgs-", dir="/tmp"))
    folder.chmod(0o755)
    engine = folder / "engine"
    engine.write_text(ENGINE.format(folder=folder))
    engine.chmod(0o755)
    lines = ['socket_mode = "0666"', f"job_grace_s = {grace_s}", f'jobs = {{ engine = "{engine}" }}']
    try:
        with ForkedSystem(folder, dict(device or {"devices": "1"}), lines) as made:
            yield made
    finally:
        shutil.rmtree(folder)
