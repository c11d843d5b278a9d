"""Processor time of the event loop per user: a token bucket for each user, and one from which all users together draw.

The daemon has one event loop, so one user's requests delay all others. A user who has spent more than the bucket holds
waits until it has filled again. Admins have no bucket: they can do worse than being slow.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

SECOND_NS = 1_000_000_000
#: key of the admins, who are one class
ADMINS = -1


@dataclass(frozen=True, slots=True)
class Shares:
    """Parts of the loop's time in thousandths, and how much may be saved up or overdrawn."""

    user_milli: int = 50  # each user, while others use the API
    users_milli: int = 150  # all users together, while an admin or several of them use it
    alone_milli: int = 500  # a user who is the only one
    saved_ns: int = 500_000_000  # a list of a thousand jobs now and then is answered at once
    overdrawn_ns: int = 250_000_000  # more is forgiven: one long step must not lock its user out for minutes
    all_overdrawn_ns: int = 10_000_000  # the same of all together: nor keep the others waiting
    recent_ns: int = SECOND_NS  # a user who has called within this time counts as using the API
    users_max: int = 4096  # the least recent ones beyond are forgotten, with a full bucket


@dataclass(slots=True)
class _Bucket:
    level_ns: int
    at_ns: int


class Accounts:
    """Of every user, by uid."""

    def __init__(self, shares: Shares | None = None) -> None:
        self.shares = shares or Shares()
        self._users: OrderedDict[int, _Bucket] = OrderedDict()
        self._all = _Bucket(self.shares.saved_ns, 0)
        # the last user of the API, and the last one before that who was another
        self._last, self._other = (ADMINS, -SECOND_NS), (ADMINS, -SECOND_NS)

    def record_use(self, key: int, now_ns: int) -> None:
        """That user, or an admin, uses the API now."""
        if key != self._last[0]:
            self._other = self._last
        self._last = (key, now_ns)

    def is_contended(self, uid: int, now_ns: int) -> bool:
        """Whether another user has used the API recently."""
        return any(key != uid and now_ns - at_ns < self.shares.recent_ns for key, at_ns in (self._last, self._other))

    def charge(self, uid: int, spent_ns: int, now_ns: int) -> None:
        """That much of the loop's time went to this user."""
        (mine, _), (everybodys, _) = self._refill_buckets(uid, now_ns)
        mine.level_ns = max(mine.level_ns - spent_ns, -self.shares.overdrawn_ns)
        everybodys.level_ns = max(everybodys.level_ns - spent_ns, -self.shares.all_overdrawn_ns)

    def wait_ns(self, uid: int, now_ns: int) -> int:
        """How long until this user may continue; 0 = at once."""
        waits = [
            -bucket.level_ns * 1000 // milli
            for bucket, milli in self._refill_buckets(uid, now_ns)
            if bucket.level_ns < 0
        ]
        return max(waits, default=0)

    def _refill_buckets(self, uid: int, now_ns: int) -> tuple[tuple[_Bucket, int], ...]:
        """The user's bucket and the common one, as of now, with their rates."""
        mine = self._users.get(uid)
        if mine is None:
            mine = self._users[uid] = _Bucket(self.shares.saved_ns, now_ns)
            if len(self._users) > self.shares.users_max:
                self._users.popitem(last=False)
        self._users.move_to_end(uid)
        contended = self.is_contended(uid, now_ns)
        rates = (self.shares.user_milli, self.shares.users_milli) if contended else (self.shares.alone_milli,) * 2
        both = (mine, rates[0]), (self._all, rates[1])
        for bucket, milli in both:
            gained_ns = max(0, now_ns - bucket.at_ns) * milli // 1000
            bucket.level_ns = min(bucket.level_ns + gained_ns, self.shares.saved_ns)
            bucket.at_ns = max(bucket.at_ns, now_ns)
        return both
