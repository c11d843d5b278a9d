"""Which replica gets a request. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

from vgpud.services.core.model import Replica

#: methods that may be repeated whatever became of the first try (RFC 9110, 9.2.2)
IDEMPOTENT = frozenset((b"GET", b"HEAD", b"OPTIONS", b"TRACE", b"PUT", b"DELETE"))


class Choice:
    """The ready replica with the fewest requests under way; of several the one that was chosen longest ago."""

    def __init__(self) -> None:
        self._turn = 0
        self._chosen: dict[int, int] = {}

    def pick(self, replicas: Iterable[Replica], tried_ids: Collection[int] = ()) -> Replica | None:
        """None: none is ready. One of `tried_ids` for this request only if no other is."""
        ready = [one for one in replicas if one.is_ready]
        if not ready:
            return None
        best = min(ready, key=lambda one: (one.job_id in tried_ids, one.outstanding, self._chosen.get(one.job_id, 0)))
        self._turn += 1
        self._chosen[best.job_id] = self._turn
        return best

    def forget(self, job_id: int) -> None:
        self._chosen.pop(job_id, None)
