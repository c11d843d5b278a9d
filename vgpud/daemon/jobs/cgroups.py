"""The cgroups in which the members and workers of jobs run, by slice."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from vgpud.core.model import Slice
from vgpud.core.origins import Job
from vgpud.jobs.messages import Key

#: (attempt, number of the leaf in its cgroup: one for each member, one alone for a worker)
Leaf = tuple[Key, int]


class JobCgroups:
    """`list_running`: keys of the attempts that run. `read`: the cgroup of one as a path of a directory, "" while it
    has none; reads a file, so in a thread."""

    def __init__(self, list_running: Callable[[], list[Key]], read: Callable[[Key], str]) -> None:
        self._list_running = list_running
        self._read = read
        self._known: dict[Key, str] = {}

    def leaves(self, slices: Iterable[Slice]) -> dict[str, Leaf]:
        """Where the programs of these slices are, by the slice's name."""
        origins = {made.name: made.origin for made in slices}
        of_jobs = {name: origin for name, origin in origins.items() if isinstance(origin, Job)}
        if not of_jobs:
            return {}
        running: dict[tuple[int, int | None], Key] = {}
        for key in self._list_running():
            job_id, _attempt, *worker = key
            running[job_id, worker[0] if worker and worker[0] >= 0 else None] = key
        self._known = {key: path for key, path in self._known.items() if key in set(running.values())}
        found: dict[str, Leaf] = {}
        for name, origin in of_jobs.items():
            own, whole_job = running.get((origin.job_id, origin.member)), running.get((origin.job_id, None))
            if own:
                found[name] = own, 0
            elif whole_job:
                found[name] = whole_job, origin.member or 0
        return found

    def folders(self, leaves: dict[str, Leaf]) -> dict[str, str]:
        """The directories of leaves whose attempt has a cgroup. In a thread."""
        for key, _leaf in leaves.values():
            if not self._known.get(key):
                self._known[key] = self._read(key)
        return {name: f"{self._known[key]}/{leaf}" for name, (key, leaf) in leaves.items() if self._known[key]}
