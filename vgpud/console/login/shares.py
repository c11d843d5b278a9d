"""Links that open one session for whoever has them, for a time. Pure: the time is an argument, in ns since the machine
was booted, so that no clock that is set makes a link last longer.

Secrets are kept as SHA-256 digests only. The table is saved as it is: links outlive a restart of the console, and end
with the machine's boot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

NS = 1_000_000_000
#: how long a link is valid
SPAN_MIN_NS, SPAN_MAX_NS = 60 * NS, 7 * 86_400 * NS
#: of one user, and of all together
SHARES_MAX, ALL_MAX = 32, 1024
#: a user's agent stays for so long after the last use of a link
USED_NS = 600 * NS


class ShareError(Exception):
    """Why there is no such link; one sentence."""


@dataclass(slots=True)
class Share:
    """A link of this user's, to one session."""

    share_id: str
    uid: int
    name: str
    job_id: int
    digest: str
    made_ns: int
    until_ns: int
    used_ns: int = -1  # when it was last used; -1 = never


def _digest(secret: str) -> str:
    return hashlib.sha256(secret.encode(errors="replace")).hexdigest()


class Shares:
    """`make_token`: a new secret each time."""

    def __init__(self, make_token: Callable[[], str]) -> None:
        self._make_token = make_token
        self._shares: dict[str, Share] = {}  # by digest

    def make(self, uid: int, name: str, job_id: int, span_ns: int, now_ns: int) -> tuple[Share, str]:
        """The link, and its secret. Raises ShareError."""
        self.expire(now_ns)
        if not SPAN_MIN_NS <= span_ns <= SPAN_MAX_NS:
            raise ShareError("a link is valid for 1 minute to 7 days: choose another --for")
        if len(self.of(uid, now_ns)) >= SHARES_MAX:
            raise ShareError(f"you have {SHARES_MAX} links, which is the limit: end some (`vgpu session unshare`)")
        if len(self._shares) >= ALL_MAX:
            raise ShareError(f"all users together have {ALL_MAX} links, which is the limit")
        secret = self._make_token()
        made = Share(_digest(self._make_token())[:8], uid, name, job_id, _digest(secret), now_ns, now_ns + span_ns)
        self._shares[made.digest] = made
        return made, secret

    def find(self, secret: str, now_ns: int) -> Share | None:
        """The valid link of this secret; it counts as used now."""
        found = self._shares.get(_digest(secret))
        if found is None or now_ns >= found.until_ns:
            return None
        found.used_ns = now_ns
        return found

    def of(self, uid: int | None, now_ns: int) -> list[Share]:
        """The valid links of a user, or of all."""
        return [one for one in self._shares.values() if one.until_ns > now_ns and uid in (None, one.uid)]

    def revoke(self, uid: int | None, share_id: str) -> bool:
        """Whether there was such a link of this user's, or of any."""
        found = [key for key, one in self._shares.items() if one.share_id == share_id and uid in (None, one.uid)]
        for key in found:
            del self._shares[key]
        return bool(found)

    def uids(self, now_ns: int) -> set[int]:
        """Users whose links are in use."""
        return {one.uid for one in self.of(None, now_ns) if one.used_ns >= 0 and now_ns - one.used_ns < USED_NS}

    def expire(self, now_ns: int) -> None:
        self._shares = {key: one for key, one in self._shares.items() if one.until_ns > now_ns}

    # ---- in a file ----

    def as_plain(self) -> list[dict[str, Any]]:
        return [asdict(one) for one in self._shares.values()]

    def load(self, rows: Sequence[Any], now_ns: int) -> None:
        """Raises TypeError, KeyError, ValueError: the rows are not those of as_plain()."""
        found = [Share(**row) for row in rows[:ALL_MAX]]
        for one in found:
            if not all(isinstance(value, int) for value in (one.uid, one.job_id, one.made_ns, one.until_ns)):
                raise ValueError("a number of a link is none")
        self._shares = {one.digest: one for one in found if now_ns < one.until_ns <= now_ns + SPAN_MAX_NS}
