"""Quotas: what each queue uses and may use, now and over its history, and which queue is served next.

Guarantee, limit and over-quota weight of queues that are nested once, after NVIDIA's KAI scheduler: a queue below its
guarantee comes first, then the one that uses least beyond it for its weight; use beyond a guarantee can be reclaimed.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import isqrt

from vgpud.core.jobs.model import NEVER_NS, JobSpec, QueueSpec
from vgpud.core.model import Denied, Reason
from vgpud.core.units import format_bytes, format_gpus

#: shares are compared in millionths of a milli-GPU
_SCALE = 1_000_000
#: fractional bits of the history, which is in milli-GPU
HISTORY_BITS = 40
_ONE = 1 << 62

# a part of a half-life in binary, with so many bits: 2**-part is a product of 2**-(2**-k), one for each bit that is set
_PART_BITS = 40
_ROOTS = [_ONE >> 1]
while len(_ROOTS) <= _PART_BITS:
    _ROOTS.append(isqrt(_ROOTS[-1] << 62))


def decay(elapsed_ns: int, half_life_ns: int) -> int:
    """2**-(elapsed / half-life) in 62 bits."""
    halvings, rest = divmod(elapsed_ns, half_life_ns)
    if halvings >= 62:
        return 0
    factor, part = _ONE, (rest << _PART_BITS) // half_life_ns
    while part:
        top = part.bit_length() - 1
        factor = factor * _ROOTS[_PART_BITS - top] >> 62
        part ^= 1 << top
    return factor >> halvings


@dataclass(slots=True)
class Amount:
    """What jobs or slices hold of a quota."""

    milli: int = 0
    cpu_milli: int = 0
    ram_bytes: int = 0

    def add(self, spec: JobSpec, sign: int) -> None:
        self.milli += sign * spec.width_milli
        self.cpu_milli += sign * spec.ask.cpu_milli * spec.members
        self.ram_bytes += sign * spec.ask.ram_bytes * spec.members


_NOTHING = Amount()


@dataclass(frozen=True, slots=True)
class Over:
    """A limit that a job does not fit under."""

    account: Account
    what: str  # GPUs, CPUs or RAM
    used: int
    limit: int
    requested_amount: int

    def sentence(self) -> str:
        form = format_bytes if self.what == "RAM" else format_gpus
        return (
            f"queue {self.account.spec.name} has {form(self.used)} of its limit of {form(self.limit)} {self.what} in"
            f" use, and this needs {form(self.requested_amount)}"
        )


class Account:
    """One queue's quota and what is used of it; what its children use counts in it."""

    def __init__(self, spec: QueueSpec, index: int, parent: Account | None) -> None:
        self.spec = spec
        self.index = index
        self.parent = parent
        self.chain: list[Account] = [self] if parent is None else [self, parent]
        self.children: list[Account] = []
        if parent is not None:
            parent.children.append(self)
        self.used = Amount()  # as decided: by jobs that run or have a claim and by slices that are no jobs
        self.claimed_amount = Amount()  # of that: by jobs with a claim, whose capacity is still being freed
        self.stopping = Amount()  # besides that: by jobs that have been told to stop and still run
        self.fixed_milli = 0  # of used: by jobs that cannot be preempted
        self.direct: dict[str, Amount] = {}  # by node: of used, by slices that are no jobs
        self.history = 0  # moving average of used.milli, << HISTORY_BITS
        self.history_at_ns = 0

    def adopt(self, old: Account) -> None:
        """Takes over what is used: the queue has new rules."""
        self.used, self.claimed_amount, self.stopping = old.used, old.claimed_amount, old.stopping
        self.fixed_milli, self.direct = old.fixed_milli, old.direct
        self.history, self.history_at_ns = old.history, old.history_at_ns

    def set_direct(self, node: str, amount: Amount) -> None:
        """What slices that are no jobs hold on a node; in place of what they held."""
        before = self.direct.get(node, _NOTHING)
        self.direct[node] = amount
        self.used.milli += amount.milli - before.milli
        self.used.cpu_milli += amount.cpu_milli - before.cpu_milli
        self.used.ram_bytes += amount.ram_bytes - before.ram_bytes
        self.fixed_milli += amount.milli - before.milli

    def learn(self, now_ns: int, half_life_ns: int) -> None:
        """Call it before `used` changes, and before the next queue is chosen."""
        self.history = self.history_now(now_ns, half_life_ns)
        self.history_at_ns = now_ns

    def history_now(self, now_ns: int, half_life_ns: int) -> int:
        """Average use, each half-life ago counting half, in milli-GPU << HISTORY_BITS."""
        if now_ns <= self.history_at_ns or not half_life_ns:
            return self.history
        kept = decay(now_ns - self.history_at_ns, half_life_ns)
        return (self.history * kept + (self.used.milli << HISTORY_BITS) * (_ONE - kept)) >> 62

    def above_milli(self) -> int:
        return self.used.milli - self.spec.guarantee_milli

    def excess_milli(self, claimant: Account) -> int:
        """How much its own jobs are above what is guaranteed to them: so much is the claimant's to reclaim.

        A parent's own jobs are guaranteed what its children are not.
        """
        kept = self.spec.guarantee_milli - sum(child.spec.guarantee_milli for child in self.children)
        own = self.used.milli - sum(child.used.milli for child in self.children) - kept
        return min([own, *(a.above_milli() for a in self.chain if a not in claimant.chain)])

    def share(self) -> int:
        """What it uses beyond its guarantee, now and in the past, for its weight. After learn()."""
        return ((self.above_milli() * _SCALE) + (self.history * _SCALE >> HISTORY_BITS)) // self.spec.weight

    def turn(self) -> tuple[int, ...]:
        """Least first: the order in which queues are served. After learn()."""
        before = self.parent.turn() if self.parent else ()
        if self.used.milli < self.spec.guarantee_milli:
            return (*before, 0, self.used.milli * _SCALE // self.spec.guarantee_milli, self.index)
        return (*before, 1, self.share(), self.index)

    def limit_for(self, spec: JobSpec, *, standing: bool = False) -> Over | None:
        """The limit that keeps this job waiting. `standing`: with what is being stopped, without what only waits."""
        ask, members = spec.ask, spec.members
        return self.limit_for_amount(
            spec.width_milli, ask.cpu_milli * members, ask.ram_bytes * members, standing=standing
        )

    def limit_for_amount(self, milli: int, cpu_milli: int, ram_bytes: int, *, standing: bool = False) -> Over | None:
        """The same for any amount."""
        for account in self.chain:
            used, limits = account.used, account.spec
            more = account.standing if standing else _NOTHING
            if used.milli + more.milli + milli > limits.limit_milli:
                return Over(account, "GPUs", used.milli + more.milli, limits.limit_milli, milli)
            if cpu_milli and used.cpu_milli + more.cpu_milli + cpu_milli > limits.cpu_limit_milli:
                return Over(account, "CPUs", used.cpu_milli + more.cpu_milli, limits.cpu_limit_milli, cpu_milli)
            if ram_bytes and used.ram_bytes + more.ram_bytes + ram_bytes > limits.ram_limit_bytes:
                return Over(account, "RAM", used.ram_bytes + more.ram_bytes, limits.ram_limit_bytes, ram_bytes)
        return None

    @property
    def standing(self) -> Amount:
        """What runs beyond `used` as it was decided (or below, where it is negative)."""
        going, claimed = self.stopping, self.claimed_amount
        return Amount(
            going.milli - claimed.milli, going.cpu_milli - claimed.cpu_milli, going.ram_bytes - claimed.ram_bytes
        )

    def below_guarantee(self, width_milli: int) -> Account | None:
        """The account, its own or its parent's, whose guarantee covers this much more; None when none does.

        Guarantees are GPUs: a job that asks for none has none to claim, whatever memory it needs.
        """
        for account in self.chain if width_milli else ():
            if account.used.milli + width_milli <= account.spec.guarantee_milli:
                return account
        return None


def has_limit(spec: QueueSpec) -> bool:
    """Whether it may not use all that there is."""
    return min(spec.limit_milli, spec.cpu_limit_milli, spec.ram_limit_bytes) < NEVER_NS


def check_queues(queues: tuple[QueueSpec, ...]) -> Denied | None:
    """Refuses invalid queues."""
    by_name = {q.name: q for q in queues}
    if len(by_name) != len(queues):
        twice = next(q.name for i, q in enumerate(queues) if q.name in {o.name for o in queues[:i]})
        return _invalid(f"there are two queues {twice!r}: give each its own name", "name")
    for queue in queues:
        wrong = _check_queue(queue, by_name)
        if wrong:
            return wrong
    for parent in queues:
        below = [q for q in queues if q.parent == parent.name]
        total = sum(q.guarantee_milli for q in below)
        if below and total > parent.guarantee_milli:
            return _invalid(
                f"the queues below {parent.name} guarantee {format_gpus(total)} GPUs, itself only"
                f" {format_gpus(parent.guarantee_milli)}: raise its guarantee or lower theirs",
                "guarantee_milli",
            )
    return None


def _check_queue(queue: QueueSpec, by_name: dict[str, QueueSpec]) -> Denied | None:
    name = queue.name
    if queue.parent:
        above = by_name.get(queue.parent)
        if above is None or queue.parent == name:
            return _invalid(
                f"queue {name}: its parent {queue.parent!r} is not another queue: name one or none", "parent"
            )
        if above.parent:
            return _invalid(
                f"queue {name}: its parent {queue.parent} has a parent itself: queues are nested once", "parent"
            )
    if queue.guarantee_milli < 0:
        return _invalid(
            f"queue {name}: a guarantee of {format_gpus(queue.guarantee_milli)} GPUs is out of range: write 0 or more",
            "guarantee_milli",
        )
    if queue.limit_milli < queue.guarantee_milli:
        return _invalid(
            f"queue {name}: its limit of {format_gpus(queue.limit_milli)} GPUs is below its guarantee of"
            f" {format_gpus(queue.guarantee_milli)}: raise the one or lower the other",
            "limit_milli",
        )
    if queue.weight < 1:
        return _invalid(f"queue {name}: weight {queue.weight} is out of range: write 1 or more", "weight")
    if queue.min_run_ns < 0 or queue.min_run_ns > NEVER_NS:
        return _invalid(
            f"queue {name}: the minimum run of {queue.min_run_ns} ns is out of range: write 0 or more", "min_run"
        )
    return None


def _invalid(message: str, field: str) -> Denied:
    return Denied(Reason.INVALID, message, field=field)
