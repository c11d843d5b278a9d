"""Keeps every finished run, so that a table that was interrupted continues behind it (--resume).

A run is one file, written at once when the run is over: whatever ends the table, and whenever, costs the run that was
at work and no other. Runs of different code, machines or lengths are never combined.
"""

from __future__ import annotations

import fcntl
import gzip
import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from vgpud.errors import VgpudError

MADE_BY = "made-by.json"
SUFFIX = ".run.gz"


class KeptError(VgpudError):
    """What is kept is of something else, or belongs to a table that is at work."""


class Kept:
    """Finished runs in a folder. made_by: what all runs of a table have in common, and what is to say it."""

    def __init__(self, folder: Path, made_by: Mapping[str, Any], resume: bool) -> None:
        """Raises KeptError when another process is at work there, or (resume) when what is kept was made otherwise."""
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            os.close(self._lock)
            raise KeptError(f"another table is at work and keeps its runs in {folder}") from None
        if resume and (folder / MADE_BY).exists():
            self._refuse_others(made_by)
        else:
            self.forget()
            _write(folder / MADE_BY, json.dumps(dict(made_by), indent=1).encode())

    def count(self) -> int:
        """How many runs are kept."""
        return sum(1 for _ in self.folder.glob(f"*{SUFFIX}"))

    def get(self, key: str) -> Any:
        """What the run of this name found; None when it is still to be made."""
        try:
            return json.loads(gzip.decompress(self._path(key).read_bytes()))
        except FileNotFoundError:
            return None

    def put(self, key: str, result: Any) -> None:
        """Keeps what a run found, as JSON (infinite numbers included)."""
        _write(self._path(key), gzip.compress(json.dumps(result).encode(), 6))

    def close(self) -> None:
        """Another table may keep its runs here now; until then, or until this process ends, it may not."""
        os.close(self._lock)

    def forget(self) -> None:
        """The whole table is written: nothing is to be continued."""
        for path in self.folder.iterdir():
            path.unlink()

    def _refuse_others(self, made_by: Mapping[str, Any]) -> None:
        then = json.loads((self.folder / MADE_BY).read_text())
        other = [
            f"{name} was {then.get(name)}, is {value}" for name, value in made_by.items() if then.get(name) != value
        ]
        if other:
            self.close()
            raise KeptError(f"the runs in {self.folder} are others' ({'; '.join(other)}): start without --resume")

    def _path(self, key: str) -> Path:
        return self.folder / f"{hashlib.sha256(key.encode()).hexdigest()[:24]}{SUFFIX}"


def _write(path: Path, data: bytes) -> None:
    """Whole or not at all, also when the machine goes down."""
    new = path.with_suffix(".new")
    with new.open("wb") as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    os.replace(new, path)
