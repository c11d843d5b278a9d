"""A worker group as the text that the store keeps."""

from __future__ import annotations

from typing import Any

from vgpud.core.checksums import seal, unseal
from vgpud.core.elastic.worker_group import WorkerGroup, WorkerState
from vgpud.core.queue.record import decode, encode

#: what older versions wrote of a worker instead of its state
_FLAGS = {"leaving": bool, "done": bool, "stands_for": int, "again": bool}


def dump(group: WorkerGroup) -> str:
    return seal(encode(group))


def parse(text: str) -> WorkerGroup:
    """Also of a text that an older version wrote. Raises ValueError."""
    body = unseal(text)
    workers = body.get("workers", [])
    if isinstance(workers, list):
        body["workers"] = [_upgrade_worker(worker) if isinstance(worker, dict) else worker for worker in workers]
    made: WorkerGroup = decode(WorkerGroup, body)
    return made


def _upgrade_worker(worker: dict[str, Any]) -> dict[str, Any]:
    """Older versions had flags instead of a state."""
    old = {name: worker[name] for name in _FLAGS if name in worker}
    if not old:
        return worker
    for name, value in old.items():
        if type(value) is not _FLAGS[name]:
            raise ValueError(f"{name} = {value!r} is no {_FLAGS[name].__name__}")
    state = WorkerState.ACTIVE
    if old.get("done"):
        state = WorkerState.DONE
    elif old.get("leaving"):
        state = WorkerState.RESPAWNING if old.get("again") else WorkerState.LEAVING
    elif old.get("stands_for", -1) >= 0:
        state = WorkerState.STAND_IN
    kept = {name: value for name, value in worker.items() if name not in old}
    replaces = {"replaces": old["stands_for"]} if state is WorkerState.STAND_IN else {}
    return kept | {"state": state.value} | replaces
