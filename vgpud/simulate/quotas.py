"""Queues to simulate, as `vgpu queue ls -o json` shows those of a node: quotas, weights, policies."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Any

from vgpud.core.jobs.model import QueueSpec
from vgpud.core.queue.record import decode
from vgpud.simulate.trace import TraceError
from vgpud.userfiles.bounded import FileError, read_text

FILE_BYTES_MAX = 16 << 20
#: of what a message quotes of the file
QUOTED_CHARS_MAX = 200

_KNOWN = {field.name for field in fields(QueueSpec)}


def read(path: Path, regular: bool = False) -> tuple[QueueSpec, ...]:
    """`regular`: not from a pipe, which may block. Raises TraceError."""
    try:
        data = json.loads(read_text(path, FILE_BYTES_MAX, regular=regular))
    except FileError as error:
        raise TraceError(f"queues: {error}") from error
    except (ValueError, RecursionError) as error:
        raise TraceError(f"{path} is not JSON: {error}") from error
    listed = data.get("queues") if isinstance(data, dict) else data
    if not isinstance(listed, list) or not listed:
        raise TraceError(f"{path} has no queues: write `vgpu queue ls -o json > {path.name}`")
    return tuple(_queue(path, item) for item in listed)


def _queue(path: Path, item: Any) -> QueueSpec:
    """What is not said has its default; what is shown beside (used, running) is passed over."""
    if not isinstance(item, dict) or not isinstance(item.get("name"), str):
        raise TraceError(f"{path}: a queue without a name: {repr(item)[:QUOTED_CHARS_MAX]}")
    try:
        spec: QueueSpec = decode(
            QueueSpec, {k: value for k, value in item.items() if k in _KNOWN and value is not None}
        )
    except ValueError as error:
        raise TraceError(f"{path}: queue {item['name']!r}: {str(error)[:QUOTED_CHARS_MAX]}") from error
    return spec
