"""How much processor the host denied the demo's parts: on a busy machine a share may be off by the machine's doing.

A thread that could run and waits for a processor is counted by the kernel (/proc/PID/task/TID/schedstat). The demo's
parts also wait for each other, which is no excuse: of their waiting at most so much is the host's doing as other
programs used of the processors, plus what a hypervisor or a quota of the cgroup took.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

PROC = Path("/proc")
#: in a container with its own cgroup namespace: the container's quota
QUOTA = Path("/sys/fs/cgroup/cpu.stat")
_US_NS = 1000


@dataclass(frozen=True)
class Mark:
    """Sums up to a moment. waited_ns, ran_ns: of all threads of the parts; used_ns: all processors, by any program;
    stolen_ns: by the hypervisor; throttled_ns: by the quota."""

    at_ns: int
    waited_ns: int
    ran_ns: int
    used_ns: int
    stolen_ns: int
    throttled_ns: int


def count_denied_cpus(begin: Mark | None, end: Mark | None) -> float | None:
    """Processors that the parts were denied on average between two marks: 0.5 is half of one, None is not known."""
    if begin is None or end is None or end.at_ns <= begin.at_ns:
        return None
    others_ns = max(0, (end.used_ns - begin.used_ns) - (end.ran_ns - begin.ran_ns))
    others_ns += end.throttled_ns - begin.throttled_ns
    lost_ns = min(end.waited_ns - begin.waited_ns, others_ns) + end.stolen_ns - begin.stolen_ns
    return max(0.0, lost_ns / (end.at_ns - begin.at_ns))


class HostWatch:
    """Follows the threads of the parts: look() often, since a thread that has ended takes its sums along."""

    def __init__(self, proc: Path = PROC, quota: Path = QUOTA) -> None:
        self._proc = proc
        self._quota = quota
        self._threads: dict[tuple[int, int], tuple[int, int]] = {}  # (pid, tid): (ran, waited), as last seen

    def look(self, pids: Iterable[int]) -> None:
        """Reads the sums of all threads of these processes."""
        for pid in pids:
            try:
                tasks = list((self._proc / str(pid) / "task").iterdir())
            except OSError:  # it has ended
                continue
            for task in tasks:
                try:
                    ran, waited, _times = map(int, (task / "schedstat").read_text().split())
                except (OSError, ValueError):  # the thread has ended; or a kernel that does not count
                    continue
                self._threads[pid, int(task.name)] = (ran, waited)

    def mark(self) -> Mark | None:
        """The sums up to now; None where the kernel does not say."""
        try:
            fields = (self._proc / "stat").read_text().split("\n", 1)[0].split()[1:]
            user, nice, system, _idle, _iowait, irq, softirq, steal = map(int, fields[:8])
        except (OSError, ValueError):
            return None
        if not self._threads:
            return None
        tick_ns = 1_000_000_000 // os.sysconf("SC_CLK_TCK")
        ran = sum(ran for ran, _ in self._threads.values()) + time.process_time_ns()  # and the demo itself
        waited = sum(waited for _, waited in self._threads.values())
        used = (user + nice + system + irq + softirq) * tick_ns
        return Mark(time.monotonic_ns(), waited, ran, used, steal * tick_ns, self._throttled_ns())

    def _throttled_ns(self) -> int:
        try:
            words = self._quota.read_text().split()
        except OSError:
            return 0
        return int(dict(zip(words[::2], words[1::2], strict=False)).get("throttled_usec", 0)) * _US_NS
