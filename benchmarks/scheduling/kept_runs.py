"""Runs of a long row in several processes, kept as they end: a row that was interrupted continues where it was.

What the runs of other sources found is not used: the file has a digest of the sources in its name.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ProcessPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from benchmarks import results

PROCESSES = 2
#: what decides how a run ends
SOURCES = ("vgpud/core", "vgpud/simulate", "benchmarks/data", "benchmarks/scheduling/perturbed.py")


def digest_sources() -> str:
    """Of code and traces."""
    found = hashlib.sha256()
    for name in SOURCES:
        path = results.ROOT / name
        files = [path] if path.is_file() else sorted(path.rglob("*.py")) + sorted(path.rglob("*.csv"))
        for file in files:
            found.update(f"{file.relative_to(results.ROOT)}\0".encode() + file.read_bytes())
    return found.hexdigest()[:12]


class KeptRuns:
    """By the text of a task (str), what its run gave: numbers by name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._known: dict[str, dict[str, float]] = dict(_read(path))

    def measure(self, run: Callable[[Any], Mapping[str, float]], tasks: Iterable[Any]) -> None:
        """Runs those that are not known, in this order."""
        wanted = {str(task): task for task in tasks if str(task) not in self._known}
        if not wanted:
            return
        self._path.parent.mkdir(parents=True, exist_ok=True)
        with self._path.open("a", encoding="utf-8") as file, ProcessPoolExecutor(PROCESSES) as pool:
            begun = {pool.submit(run, task): name for name, task in wanted.items()}
            for done in as_completed(begun):
                name, found = begun[done], dict(done.result())
                self._known[name] = found
                file.write(json.dumps([name, found]) + "\n")
                file.flush()

    def __getitem__(self, task: Any) -> dict[str, float]:
        return self._known[str(task)]


def _read(path: Path) -> Iterable[tuple[str, dict[str, float]]]:
    """What is kept; the last line may be half of one."""
    if not path.is_file():
        return
    for line in path.read_text(encoding="utf-8").splitlines():
        try:
            name, found = json.loads(line)
        except ValueError:
            continue
        yield name, found
