"""The limits of failed log-ins by password: which source must wait before the next try. Pure: the time is an argument.

A source is an address, or a user of this machine; an address is one person's, but a local user may be a proxy's, with
many people behind it. Whoever fails fills shares of their own: the next try of others is looked at all the same. Since
each look at a password takes processor time, all sources together have a limit as well, and three shares of it: sources
that have failed before, sources that have not, and names that have logged in from their source, which never wait for
others' failures.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, deque
from collections.abc import Hashable
from dataclasses import dataclass

WINDOW_NS = 60 * 10**9
#: failures within the window: of a name at a source, and of an address; of a source that several people may share
OWN_MAX, SHARED_MAX = 5, 40
#: of all together: beyond the first, sources that have failed wait; beyond the second, those that never logged in
KNOWN_FAIL_MAX, ALL_MAX = 60, 120
#: names at their sources: whose failures, and whose log-ins, are remembered
REMEMBERED_MAX = 4096


@dataclass(frozen=True, slots=True)
class Attempt:
    """A log-in by password. `is_shared`: several people may be at this source."""

    name: str
    source: str
    is_shared: bool


class Failures:
    """Failed log-ins of the last minute. At a limit, an attempt is refused before its password is looked at."""

    def __init__(self) -> None:
        self._own: OrderedDict[Hashable, deque[int]] = OrderedDict()  # by name and source
        self._all: deque[tuple[int, str]] = deque()
        self._by_source: Counter[str] = Counter()  # of _all
        self._log_ins: OrderedDict[Hashable, None] = OrderedDict()  # the newest last

    def wait_ns(self, attempt: Attempt, now_ns: int) -> int:
        """How long it must wait; 0 = not at all."""
        while self._all and now_ns - self._all[0][0] > WINDOW_NS:
            self._subtract(self._all.popleft()[1])
        key, source = (attempt.name, attempt.source), attempt.source
        own = self._own.get(key, deque())
        while own and now_ns - own[0] > WINDOW_NS:
            own.popleft()
        if len(own) >= OWN_MAX:
            return own[0] + WINDOW_NS - now_ns
        failed, is_known = self._by_source[source], key in self._log_ins
        if failed >= (SHARED_MAX if attempt.is_shared else OWN_MAX) and not (attempt.is_shared and is_known):
            first_ns = next(at_ns for at_ns, whose in self._all if whose == source)
            return first_ns + WINDOW_NS - now_ns
        if len(self._all) >= (KNOWN_FAIL_MAX if failed else ALL_MAX) and not is_known:
            return self._all[0][0] + WINDOW_NS - now_ns
        return 0

    def add(self, attempt: Attempt, now_ns: int) -> None:
        """It has failed."""
        key = (attempt.name, attempt.source)
        self._all.append((now_ns, attempt.source))
        self._by_source[attempt.source] += 1
        self._own.setdefault(key, deque()).append(now_ns)
        self._own.move_to_end(key)
        if len(self._own) > REMEMBERED_MAX:
            self._own.popitem(last=False)

    def log_in(self, attempt: Attempt) -> None:
        """It has succeeded."""
        key = (attempt.name, attempt.source)
        self._log_ins[key] = None
        self._log_ins.move_to_end(key)
        if len(self._log_ins) > REMEMBERED_MAX:
            self._log_ins.popitem(last=False)

    def _subtract(self, source: str) -> None:
        self._by_source[source] -= 1
        if not self._by_source[source]:
            del self._by_source[source]
