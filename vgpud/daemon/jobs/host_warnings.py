"""What a host cannot do for jobs, such as cgroups: every job would say the same."""

from __future__ import annotations


class HostWarnings:
    """Each is for each user once in the life of a daemon."""

    def __init__(self) -> None:
        self._seen: set[tuple[int, str]] = set()  # few: the texts are about a host's limits, not about one job

    def is_new(self, uid: int, text: str) -> bool:
        """Whether this user has not had it; from now on they have."""
        if (uid, text) in self._seen:
            return False
        self._seen.add((uid, text))
        return True
